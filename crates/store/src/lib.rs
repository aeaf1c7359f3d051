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
mod error;
mod index;
mod keys;
mod layout;
pub mod moments;
mod name;
mod question;
mod recorder;
mod search;
mod walk;

#[cfg(test)]
mod tests;

pub use catalog::{Catalog, SegmentEntry, Standing};
pub use check::{Finding, Verified, verify};
pub use chunk::ChunkHead;
pub use error::Error;
pub use keys::{Class, key};
pub use layout::{SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SLOT_LEN};
pub use name::StoreName;
pub use question::Question;
pub use recorder::{Losses, Recorder, RecorderSettings, Totals};
pub use search::{Examine, Examiners, Next, ParallelSearch, Search, SearchAccount, Window};
