//! Packets to flows, and flows to records.
//!
//! ```text
//! Batch --Meter--> Table: one entry for both directions of a flow --ended--> Flow --Exporter--> NetFlow v5, v9, IPFIX
//!           |
//!           +--> not metered, by cause
//! ```
//!
//! - [`Meter`] puts packets into flows. Its memory is fixed when it is made; time comes from packets, or from the
//!   caller.
//! - [`Journal`] is the work of a meter on each packet, for a reader in another thread.
//! - [`Flow`] is a flow that has ended, with both its directions, and with [`Details`] where these were asked for.
//! - [`export`] turns flows into messages, and sends them to collectors or writes them to files.
//!
//! `docs/flow-table.md` has the layout of the table and its cost.
#![forbid(unsafe_code)]

mod collected;
mod creation_order;
mod details;
mod error;
pub mod export;
mod flow;
mod fragments;
mod index;
mod journal;
mod key;
mod meter;
mod packet;
mod sampling;
mod statistics;
mod table;
mod wheel;

pub use collected::{Collected, KnownField, KnownFields};
pub use details::{
    Application, DetailFields, Details, Dns, DnsAnswer, FoundBy, Http, InterarrivalTimes, LABELS_KEPT,
    LabelStack, LinkHeader, MacAddress, PAYLOAD_MAX, RefusedDetails, SIZES, SizeCounts, Tcp, TcpSide, Tls,
    application_names, is_plain, recognise,
};
pub use error::Error;
pub use flow::{EndReason, Endpoint, Flow, FlowContext};
pub use journal::{FlowBegin, Journal, JournalEntry, NamedAddresses, PayloadFacts};
pub use key::KeyFields;
pub use meter::{Meter, MeterSettings, TIMEOUT_MAX};
pub use sampling::Sampling;
pub use statistics::{EndCounts, PacketCount, Statistics, UnmeteredCause};
