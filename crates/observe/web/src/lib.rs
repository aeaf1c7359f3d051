//! The view of a running meter in a browser, and its history.
//!
//! ```text
//! Feed, once a second (crate pages)     --> Snapshot --+--> Keeper, a thread --> history: minutes to days in SQLite
//!                                                          |
//! EventFile, rules' events (tapline watch) --> Watched -----> the same
//! browser --GET--> Server: rights, page --> PageRequest: JSON of the snapshot, as an answer or once a second as an event
//!                                              --> Packets: of the daemon's past or a store, by its rules
//! ```
//!
//! The meter does not know its viewers. This process has no right of its own: it opens files as its user, and a
//! browser may see still less ([`Rights`](tapline_pages::Rights)).
#![forbid(unsafe_code)]

mod access;
mod assets;
mod body;
mod bundle;
#[cfg_attr(not(feature = "tls"), path = "no_certificate.rs")]
mod certificate;
mod complaint;
mod error;
mod history;
mod keeper;
mod neighbours;
mod packets;
mod query;
mod server;
mod visitors;

pub use access::Access;
pub use certificate::Certificate;
pub use error::Error;
pub use history::{History, HistoryAnswer, HistoryLimits};
pub use packets::{PacketAnswer, PacketRequest, PacketSource, QuestionTime};
pub use server::{Server, ServerSettings};
