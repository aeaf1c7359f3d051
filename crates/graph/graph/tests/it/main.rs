//! One program for the integration tests of this crate.

mod change;
mod embedding;
mod plan;
mod stages;
mod trial;
mod view;
