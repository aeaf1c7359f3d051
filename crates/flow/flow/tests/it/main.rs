//! One program for the integration tests of this crate.

mod details;
mod export;
mod journal;
mod made_flows;
mod memory;
mod reference;
#[cfg(feature = "tls")]
mod tls;
