//! One program for the integration tests of this crate.

mod files;
mod live;
mod position;
mod store;
mod support;
mod symbols;
