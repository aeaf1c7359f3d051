//! One program for the integration tests of this crate.

mod change;
mod embedding;
mod engine;
mod pieces;
mod plan;
mod stages;
mod trial;
mod view;
