//! The few types that cross Tapline's crates.
//!
//! ```text
//! Source --lends--> Batch = base bytes + Records (where each packet lies, and its Meta)
//!                     |
//!                   Selection: the packets of the batch that are still wanted
//! ```
//!
//! A source lends packets in place: a [`Batch`] borrows the memory in which they arrived (a ring block, a file's
//! buffer) and a table of [`Record`]s. Filters and samplers narrow a [`Selection`]; nothing is moved or copied.
//! [`Headers`] says where the headers of one packet start, and which flow it belongs to; [`numbers`] has the numbers
//! by which headers name the next one. This crate has no unsafe code and makes no system call.
#![forbid(unsafe_code)]

mod batch;
pub mod block_sample;
pub mod checksum;
mod hardware;
pub mod headers;
mod interface;
pub mod link_type;
mod meta;
pub mod mix;
mod named_enum;
pub mod numbers;
mod selection;
mod timestamp;

pub use batch::{BATCH_MAX, Batch, Packet, Record, SNAP_LEN_MAX};
pub use block_sample::BlockSample;
pub use headers::{FiveTuple, Headers};
pub use interface::{Interface, InterfaceId, Resolution};
pub use link_type::LinkType;
pub use meta::{Checksum, Direction, Gso, Meta, PacketType, VlanTag};
pub use selection::Selection;
pub use timestamp::{ClockReading, Timestamp, date_of_day};
