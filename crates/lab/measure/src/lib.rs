//! Measures Tapline and its peers on this machine.
//!
//! ```text
//! system   `tapline bench`          whole programs under offered load: loss, rate, processor time
//! papers   `tapline bench papers`   tables and figures of five documents, with ours
//! filter   `tapline filter bench`   every filter engine, libpcap's and the kernel's too, on the same packets
//! costs    `tapline profile`        a packet in a run of the engine, component by component
//! micro    `tapline profile --micro` one stage, one store, one wake-up, one search
//! ```
//!
//! The machine may be busy: runs of the peers alternate, so a disturbance meets all of them, and medians are compared.
//! No peer is timed before its answer equals ours. The program `tapline-bench`, for developers, builds on the same
//! parts.
#![forbid(unsafe_code)]

pub mod answer;
mod chart;
pub mod costs;
pub mod filter;
pub mod filters;
pub mod machine;
pub mod micro;
mod papers;
pub mod payloads;
pub mod runs;
pub mod scheduled;
pub mod spread;
pub mod system;
mod tap_timer;
