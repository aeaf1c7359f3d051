//! The shared ring: packets stored once by one process, and read by many on the mainline kernel.
//!
//! ```text
//! Batch --Writer::store--> PBuf: blocks of records ------ mapped by all, written by the writer alone ------+
//!           |                                                                                                   v
//!           +--Writer::index, for each reader--> IBuf: (position, length, verdict) --Reader::advance--> Batch, lent
//!           +--Writer::publish, once a batch---> heads, and sleepers are woken
//! ```
//!
//! | module | content |
//! |---|---|
//! | `layout` | the layout of the memory; `docs/format/ring.md` has the tables, the writers of each word, and the orderings |
//! | `record` | a packet's metadata as eight words |
//! | `store`, `view` | the PBuf's two halves: blocks that are filled and taken again; records copied out or held |
//! | `producer`, `consumer` | the IBuf's two halves |
//! | `writer`, `reader` | both together, with descriptors, sleep and accounts |
//! | `merge` | a reader of several PBufs |
//!
//! The four halves know words of memory and nothing of files or processes, so that loom and miri run them as they
//! are. A reader chooses what happens when it is too slow: [`Policy`]. No reader can cost another one a packet,
//! except a lossless one, for which the writer's caller agrees to wait.
#![cfg_attr(loom, allow(dead_code, reason = "models use the halves, and not what is built of them"))]

mod account;
mod atomic;
mod consumer;
mod copy;
mod error;
mod layout;
mod memory;
#[cfg(not(loom))]
mod merge;
mod producer;
#[cfg(not(loom))]
mod reader;
mod record;
mod store;
mod view;
#[cfg(not(loom))]
mod writer;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use account::{Account, LossCounts, SourceCounter, SourceCounts};
pub use error::Error;
pub use layout::{BLOCK_LEN_DEFAULT, Guarantee};
#[cfg(not(loom))]
pub use merge::{MergeOrder, MergedBatch, MergedReader};
#[cfg(not(loom))]
pub use reader::{BufferInfo, Reader, ReaderLimits, ReaderParts, VerdictUse, WaitEnd, WakeThreshold};
pub use store::{HistoryPacket, IndexEntry, StartPosition};
#[cfg(not(loom))]
pub use writer::{
    BufferSpec, DetachedReader, NewReader, Policy, READERS_MAX, ReaderId, ReaderSpec, ReplayProgress,
    WriteRoom, Writer,
};
