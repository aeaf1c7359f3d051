//! The index of a segment: which slots have packets with which facts.
//!
//! ```text
//! while recording   Builder: flows, their keys, the slots they are in       bounded
//! sealed            Builder --expand: keys, sets, budget--> .tix file           docs/format/store.md
//! searching         Index: the pages that are asked for, each checked
//! 64 segments       .tix files --> Rollup
//! ```

mod asked;
mod builder;
mod expand;
mod file;
mod pages;
pub(crate) mod rollup;
mod slots;
#[cfg(test)]
mod tests;

pub(crate) use builder::Builder;
pub use builder::IndexOptions;
pub(crate) use file::{Index, write};
#[cfg(test)]
pub(crate) use pages::Owner;
pub(crate) use slots::Slots;

use tapline_packet::Timestamp;

use crate::chunk::ChunkHead;
use crate::keys::WAYS;
use crate::layout::{PAGE_LEN, SLOT_LEN};
use crate::packed::PackedPlace;

/// The chunks that begin in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotRow {
    pub(crate) chunks: u32,
    /// Pages from the slot's start up to the end of the last chunk that begins in it.
    pub(crate) pages: u32,
    pub(crate) packets: u32,
    /// Lost and dropped packets; `u32::MAX` for more.
    pub(crate) lost: u32,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) bytes: u64,
    /// The number of the first chunk.
    pub(crate) number: u64,
}

/// Facts of a segment as a whole.
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
    pub(crate) cut: u64,
    /// Packets given up under overload, by [`Overload::LOSING`](crate::Overload::LOSING).
    pub(crate) overload: [u64; 3],
    pub(crate) last_number: u64,
    pub(crate) last_hash: [u8; 32],
    pub(crate) chunks: u32,
    pub(crate) slots: u32,
    /// Chunks of which packets were erased.
    pub(crate) erased: u32,
    /// Bit `c` is set if the index has keys of class `c`.
    pub(crate) classes: u64,
    /// Slots that are open, by [`OpenKeys`](crate::keys::OpenKeys).
    pub(crate) open: [u32; WAYS],
}

/// The chunks of a segment, for its index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) rows: Vec<SlotRow>,
    pub(crate) summary: Summary,
    /// Places of the compressed ones.
    pub(crate) packed: Vec<PackedPlace>,
}

impl Contents {
    pub(crate) fn new(segment_len: u64) -> Contents {
        let rows = vec![SlotRow::default(); (segment_len / SLOT_LEN as u64) as usize];
        Contents { rows, ..Contents::default() }
    }

    /// Notes a chunk at `offset`; `hash` is its hash in the next chunk.
    pub(crate) fn note(&mut self, head: &ChunkHead, offset: u64, hash: [u8; 32]) {
        let slot = (offset / SLOT_LEN as u64) as usize;
        if let Some(row) = self.rows.get_mut(slot) {
            row.note(head, (offset % SLOT_LEN as u64) as u32);
        }
        self.summary.note(head, hash);
        self.packed.extend(PackedPlace::of(head, offset));
    }
}

impl SlotRow {
    fn note(&mut self, head: &ChunkHead, in_slot: u32) {
        if self.chunks == 0 {
            self.number = head.number;
        }
        span((&mut self.first, &mut self.last), self.packets.into(), self.chunks, head);
        self.chunks += 1;
        self.pages = (in_slot + head.len) / PAGE_LEN as u32;
        self.packets = self.packets.saturating_add(head.packets);
        let lost = u32::try_from(head.lost.saturating_add(head.dropped)).unwrap_or(u32::MAX);
        self.lost = self.lost.saturating_add(lost);
        self.bytes = self.bytes.saturating_add(head.bytes);
    }
}

impl Summary {
    /// Whether it has the totals of these chunks. The store, the segment's number and the facts of its own keys are not
    /// compared.
    pub(crate) fn tells_of(&self, chunks: &Summary) -> bool {
        let Summary { store, segment, slots, classes, open, .. } = self.clone();
        *self == Summary { store, segment, slots, classes, open, ..chunks.clone() }
    }

    fn note(&mut self, head: &ChunkHead, hash: [u8; 32]) {
        span((&mut self.first, &mut self.last), self.packets, self.chunks, head);
        self.chunks += 1;
        self.packets += u64::from(head.packets);
        self.bytes = self.bytes.saturating_add(head.bytes);
        self.lost = self.lost.saturating_add(head.lost);
        self.dropped = self.dropped.saturating_add(head.dropped);
        self.cut = self.cut.saturating_add(head.cut);
        if let Some(sum) =
            usize::from(head.policy.number()).checked_sub(1).and_then(|at| self.overload.get_mut(at))
        {
            *sum = sum.saturating_add(head.overload);
        }
        self.erased += u32::from(head.erasure.is_some());
        (self.last_number, self.last_hash) = (head.number, hash);
    }
}

/// Widens a span by a chunk's times. Those of a chunk without packets count only where no chunk has any.
fn span(span: (&mut Timestamp, &mut Timestamp), packets: u64, chunks: u32, head: &ChunkHead) {
    let is_first_with_packets = packets == 0 && head.packets > 0;
    if chunks == 0 || is_first_with_packets {
        (*span.0, *span.1) = (head.first, head.last);
    } else if head.packets > 0 || packets == 0 {
        *span.0 = (*span.0).min(head.first);
        *span.1 = (*span.1).max(head.last);
    }
}
