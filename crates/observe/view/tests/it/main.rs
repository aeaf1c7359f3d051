//! One program for the integration tests of this crate.

mod file;
mod ranker;
mod sums;
