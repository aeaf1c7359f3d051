//! One program for the integration tests of this crate.

mod english;
mod headers;
mod workspace;
