//! Workloads as data, peers side by side.
fn main() {}
