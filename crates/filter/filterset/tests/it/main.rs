//! One program for the integration tests of this crate.

mod set;
mod set_fragments;
