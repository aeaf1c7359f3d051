//! One program for the integration tests of this crate.

mod applications;
mod captures;
mod equal;
mod hostile;
mod tcpdump;
