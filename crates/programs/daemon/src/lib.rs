//! `tapline serve` as a library: captures once, filters once, stores once, and lets many read.
//!
//! ```text
//!            +-- worker thread, one for each source ---------------------------------------+
//! Source --->| batch --FilterSet::classify--> wanted by which readers --Writer::store, index--> PBuf |--> readers, in their processes
//!            +------^------------------------------------------------------------------^---+
//!                   | orders: attach, filter, detach, status                           | descriptors, SCM_RIGHTS
//!            control thread: socket, rules, clients ------------------------------------+
//! ```
//!
//! One pass of the merged filters of all readers for each batch; each packet is stored once for all readers of the same
//! rights. A reader that may not see a packet cannot map it: readers of different rights have different buffers (a
//! [`view`] each).
//!
//! | module | contents |
//! |---|---|
//! | `rules` | the access rules, from a TOML file |
//! | `recording` | captures that are recorded: their tables in the rules, and their states |
//! | `publishing` | places of graphs that are captures: their tables in the rules |
//! | `view` | a buffer for readers of the same rights |
//! | `searching` | a search of a recorded capture, with the rights of a reader |
//! | `interfaces` | interfaces of a capture, also those that appear while it runs |
//! | `section` | the filters of one user in one buffer, at the user's cost |
//! | `budget` | processor time that a user may take |
//! | `memory` | memory that a user may take |
//! | `sandbox` | what the daemon may still do once all is open |
//! | `union` | what all readers want, as one program for the kernel |
//! | `worker` | a source, its filters and its views, in a thread |
//! | `capture` | the workers of a capture, as the control thread sees them |
//! | `client` | what a connection may do next |
//! | `listener` | the socket that clients connect to |
//! | `log` | the queue before the log, so that an unread log stops nothing |
//! | `journal` | entries with fields for systemd's journal |
//! | `loss_watch` | losses of captures, as entries of the journal |
//! | `log_budget` | how much of the log a user causes |
//! | `server` | the socket, and all captures |
#![forbid(unsafe_code)]

mod budget;
mod capture;
mod client;
mod error;
mod interfaces;
mod journal;
mod listener;
mod log;
mod log_budget;
mod loss_watch;
mod memory;
mod publishing;
mod recording;
mod rules;
mod sandbox;
mod searching;
mod section;
mod server;
mod union;
mod view;
mod worker;

pub use capture::{Capture, CaptureTotals};
pub use error::Error;
pub use journal::{EntryKind, JournalEntry};
pub use listener::Socket;
pub use log::Log;
pub use publishing::PublishRule;
pub use recording::{RecordRule, Recording};
pub use rules::{AccessRule, CaptureRule, ClientIdentity, MatchRule, Rules, TimeStamps};
pub use sandbox::{Confinement, confine};
pub use server::{Orders, Server};
