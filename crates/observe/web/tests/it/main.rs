//! One program for the integration tests of this crate.

mod assets;
mod history;
mod server;
