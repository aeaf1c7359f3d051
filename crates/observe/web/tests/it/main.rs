//! One program for the integration tests of this crate.

mod api;
mod assets;
mod history;
mod server;
