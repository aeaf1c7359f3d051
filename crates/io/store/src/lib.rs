//! A packet recorder: packets go into a directory of pcapng files with indexes (a *store*), and a search reads those
//! that a filter accepts.
//!
//! ```text
//! batches --Recorder--> chunk buffer --thread--> segment (pcapng) + index         one recorder at a time
//! filter --Question--> keys --Search: time, keys--> chunks, checksums checked       any number of searches beside it
//! ```
//!
//! A *segment* is a pcapng file of fixed length, divided into *slots* of 1 MiB. A *chunk* is a pcapng section in a slot
//! with a head and a checksum. The *index* of a segment lists the slots of each *key* (an address, a port, a protocol).
//! A segment is *sealed* once its index is written, and *recycled* when its file is used again for a new segment.
//!
//! `docs/format/store.md` has the layout, the guarantees after a crash or a power failure, and the reason why a search
//! finds the same packets as a scan of all files. This crate reads and writes files; its callers open interfaces and
//! sockets.
#![forbid(unsafe_code)]

mod catalog;
mod check;
mod chunk;
mod erase;
mod error;
mod files;
mod hold;
mod index;
mod input;
mod keys;
mod layout;
mod link_types;
mod lock;
mod log;
mod missing;
pub mod moments;
mod name;
mod names;
mod packed;
mod question;
mod recorder;
mod recordings;
mod repair;
mod restore;
mod search;
mod walk;

#[cfg(test)]
mod tests;

pub use catalog::{Catalog, SegmentEntry, Standing};
pub use check::{Checked, Finding, Verified, check, verify};
pub use chunk::{ChunkHead, Erasure};
pub use erase::{Eraser, ErasureAccount, ErasureScope};
pub use error::Error;
pub use hold::{Hold, HoldEntry};
pub use index::IndexOptions;
pub use input::{SearchFilter, SearchReport, StoreInput, StoreReading};
pub use keys::{
    Class, Group, OpenKeys, WAYS, WAYS_ALL, flow_value, inner_key, key, mac_value, name_value, open_key,
    pair_value, port_value,
};
pub use layout::{SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SLOT_LEN};
pub use name::StoreName;
pub use names::{NameFilter, NameMatcher};
pub use question::{Fact, Question};
pub use recorder::{Cutoff, Losses, Overload, Recorder, RecorderSettings, Totals};
pub use recordings::{RecordingEntry, RecordingGap, Rest};
pub use repair::{Repaired, repair};
pub use search::{REACH, Search, SearchAccount, Window, gap_lines};
