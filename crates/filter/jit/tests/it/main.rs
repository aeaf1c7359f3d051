//! One program for the integration tests of this crate.

mod differential;
mod fpl;
mod fpl_filters;
mod graphs;
mod memory;
mod sets;
mod support;
