//! The index of a segment: which slots have packets with which facts.
//!
//! ```text
//! while recording   Builder: chunks, keys with the slots they are in       bounded
//! sealed            .tix file: head, chunks, keys, postings, checksum       docs/format/store.md
//! searching         Index: a file that was read and checked
//! ```

mod builder;
mod file;

pub(crate) use builder::Builder;
pub(crate) use file::{Index, write};

use tapline_packet::Timestamp;

/// A chunk's row in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRow {
    /// Where it begins in the segment, in bytes.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) packets: u32,
    pub(crate) lost: u32,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) bytes: u64,
    pub(crate) number: u64,
}

/// What an index says of its segment as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) store: [u8; 16],
    pub(crate) segment: u64,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) dropped: u64,
    pub(crate) slots: u32,
    /// Slots, from the first on, whose keys are all in the index.
    pub(crate) complete: u32,
    pub(crate) last_number: u64,
    pub(crate) last_hash: [u8; 32],
}

/// A set of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots(Vec<u64>);

impl Slots {
    pub(crate) fn none(slots: u32) -> Slots {
        Slots(vec![0; (slots as usize).div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub(crate) fn has(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word & 1 << (slot % 64) != 0)
    }
}
