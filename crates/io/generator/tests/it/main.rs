//! One program for the integration tests of this crate.

mod laws;
