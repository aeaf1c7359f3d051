//! The tapline program.
fn main() {}
