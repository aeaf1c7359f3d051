//! Packets as text, in the form of tcpdump, and as JSON.
//!
//! ```text
//! Packet --Printer--> [number] [time] link layer > network > transport > application [hex dump] newline
//!              |
//!              +-- state: previous time, TCP connections (relative numbers), names of ports and hosts
//! ```
//!
//! The form is that of tcpdump 4.99, which people and their scripts know. A packet is never an error: a header that
//! is cut short ends in `[|protocol]`, an unknown one is shown as its bytes. Printing allocates nothing once the
//! output buffer and the tables have grown, except for names of hosts, which are looked up once (`names/lookup.rs`).
#![forbid(unsafe_code)]

mod app;
mod bytes;
mod checksum;
mod context;
mod hexdump;
pub mod json;
mod link;
mod llc;
mod names;
mod net;
mod options;
mod printer;
mod text;
mod time;
mod transport;
mod tunnel;

pub use app::service::service_name;
pub use names::{HostLookup, HostNames, Services};
pub use options::{HexStyle, Options, Precision, TimeStyle};
pub use printer::Printer;
