//! One program for the integration tests of this crate.

mod files;
mod live;
mod position;
mod support;
mod symbols;
