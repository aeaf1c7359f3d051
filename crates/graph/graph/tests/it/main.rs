//! One program for the integration tests of this crate.

mod change;
mod plan;
mod stages;
mod trial;
mod view;
