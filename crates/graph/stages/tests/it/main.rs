//! One program for the integration tests of this crate.

mod change;
mod embedding;
mod engine;
mod plan;
mod stages;
mod trial;
mod view;
