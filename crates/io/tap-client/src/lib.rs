//! Packets from `tapline serve`: the protocol of its socket, and a source that reads its buffers.
//!
//! ```text
//! Client --connect--> daemon          requests and replies: JSON, one object a line (docs/format/tap.md)
//!        <--descriptors of buffers--- SCM_RIGHTS
//! Tap    --reads--> shared rings      from there on without the daemon (docs/format/ring.md)
//! ```
//!
//! | module | content |
//! |---|---|
//! | `protocol` | messages |
//! | `channel` | lines and descriptors over a socket, for both ends; trusts neither |
//! | `client` | asking a daemon |
//! | `group` | names of captures, and of groups of readers that share one |
//! | `interfaces` | interfaces of a capture, as its reader numbers them |
//! | `source` | a reader of its buffers, as a source of packets |
#![forbid(unsafe_code)]

mod channel;
mod client;
mod error;
mod group;
mod interfaces;
pub mod protocol;
mod source;

pub use channel::{Channel, MESSAGE_MAX};
pub use client::{Client, SOCKET_DEFAULT, SOCKET_VARIABLE, place_socket, socket_path};
pub use error::Error;
pub use group::{GROUP_MEMBERS_MAX, GROUP_NAME_MAX, GroupRequest, ShareBy, parse_name};
pub use source::{PREFIX, Tap};
pub use tapline_ring::WakeThreshold;
