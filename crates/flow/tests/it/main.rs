//! One program for the integration tests of this crate.

mod details;
mod export;
mod memory;
mod reference;
