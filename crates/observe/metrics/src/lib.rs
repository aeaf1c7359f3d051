//! Counters of running captures as text for Prometheus.
//!
//! ```text
//! files of meters (every process) ──┐
//!                                   ├──► Exposition ──► OpenMetrics or Prometheus text ──► HTTP, file
//! socket of tapline serve (status) ─┘
//! ```
//!
//! Everything is read when it is asked for, from files that processes count in and from the daemon's status: no capture
//! takes part. [`FAMILIES`] is the list of all names; nothing else is ever written.
#![forbid(unsafe_code)]

mod collector;
mod daemon;
mod error;
mod exposition;
mod family;
mod process;
mod request;
mod server;
mod textfile;

pub use collector::Collector;
pub use error::Error;
pub use exposition::{Exposition, Format};
pub use family::{FAMILIES, Family, FamilyKind, family, reference};
pub use server::{Address, Server};
pub use textfile::write_file;
