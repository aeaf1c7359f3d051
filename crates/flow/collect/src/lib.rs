//! Flows out of the messages of routers and probes: IPFIX, NetFlow v1, v5, v7 and v9, sFlow v5.
//!
//! ```text
//! datagram --version--> v1,5,7  records -----------------------------------> Draft --> Flow
//!                       v9      sets --templates of the source--> records -->
//!                       IPFIX   sets --templates of the source--> records -->
//!                       sFlow   samples: the head of a packet ------------->
//! ```
//!
//! - [`Collector`] takes datagrams and gives flows, or the records that an exporter makes of them. It reads no clock and
//!   opens no socket.
//! - [`SourceAccount`] is the account of one source: an exporter's address and port, and one of its observation
//!   domains.
//! - [`TemplateFile`] keeps templates over restarts.
//!
//! Datagrams are hostile: each read is checked against their bytes, and every table has a bound and a count of its
//! refusals. Sources: NetFlow v5 as Cisco's collectors document it; RFC 3954 (v9); RFC 7011, RFC 7012 (IPFIX); RFC
//! 5103 (biflows); RFC 5477 (sampling); sflow.org's "sFlow Version 5" (2004).
#![forbid(unsafe_code)]

mod account;
mod bytes;
mod collector;
mod draft;
mod error;
mod flow_sink;
mod netflow5;
mod sampling;
mod sequence;
mod sets;
mod sflow;
mod sources;
mod template;
mod template_file;
mod totals;

pub use account::{DatagramFault, Forgotten, Protocol, RefusedCause, SourceAccount};
pub use collector::{Collector, CollectorSettings};
pub use error::Error;
pub use template_file::TemplateFile;
