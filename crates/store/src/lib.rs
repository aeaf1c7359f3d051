//! Packets kept for days, and found again.
//!
//! ```text
//! batches --Recorder--> chunk buffer --thread--> segment (pcapng) + index         one store, one recorder
//! filter --Question--> keys --Search: time, keys--> chunks --checked--> packets     any number of searches meanwhile
//! ```
//!
//! `docs/format/store.md` has the layout, what is promised, and why a search finds exactly what a scan finds. This crate knows
//! files and packets; interfaces and sockets are its callers'.
#![forbid(unsafe_code)]

mod catalog;
mod check;
mod chunk;
mod erase;
mod error;
mod hold;
mod index;
mod keys;
mod layout;
mod lock;
mod log;
pub mod moments;
mod name;
mod names;
mod question;
mod recorder;
mod repair;
mod restore;
mod search;
mod walk;

#[cfg(test)]
mod tests;

pub use catalog::{Catalog, SegmentEntry, Standing};
pub use check::{Checked, Finding, Verified, check, verify};
pub use chunk::{ChunkHead, Erasure};
pub use erase::{Eraser, ErasureAccount, Wanted};
pub use error::Error;
pub use hold::{Hold, HoldEntry};
pub use index::IndexOptions;
pub use keys::{
    Class, Group, WAYS, WAYS_ALL, Way, flow_value, inner_key, key, mac_value, name_value, open_key,
    pair_value, port_value,
};
pub use layout::{SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SLOT_LEN};
pub use name::StoreName;
pub use names::{NameFilter, NameMatcher};
pub use question::{Fact, Question};
pub use recorder::{Cutoff, Losses, Recorder, RecorderSettings, Totals};
pub use repair::{Repaired, repair};
pub use search::{Examine, Examiners, Next, ParallelSearch, Search, SearchAccount, Window};
