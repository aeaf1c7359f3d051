//! The view of a running meter in a browser, and its history.
//!
//! ```text
//! PID.view, PID.meters --Feed, once a second--> Snapshot --+--> history: minutes and hours in SQLite
//!                                                          |
//! browser --GET--> Server: rights, page --> Page: JSON of the snapshot, as an answer or once a second as an event
//!                                              --> Packets: of the daemon's past or a store, by its rules
//! ```
//!
//! The meter does not know that anybody looks. This process has no right of its own: what it may read it opens as its
//! user, and what a browser may see is less still ([`Rights`]).
#![forbid(unsafe_code)]

mod access;
mod assets;
mod body;
mod error;
mod feed;
mod filter_line;
mod history;
mod packets;
mod page;
mod query;
mod server;

pub use access::{Access, Rights};
pub use error::Error;
pub use feed::{Feed, Snapshot, WINDOW_MAX};
pub use filter_line::FilterLine;
pub use history::{History, HistoryAnswer, HistoryLimits};
pub use packets::{PacketAnswer, PacketRequest, PacketSource};
pub use server::{Server, ServerSettings};
