//! A stretch of chunks, read and checked.

use std::ops::Range;

use tapline_sys::disk::DIRECT_ALIGN;

use super::SearchAccount;
use super::plan::{ChunkSpan, OpenSegment, Plan, Stretch, StretchContent};
use crate::chunk::{ChunkHead, is_intact};
use crate::walk::{Bytes, FoundChunk, Walk, belongs};

/// A chunk in a stretch.
struct Chunk<'a> {
    bytes: &'a [u8],
    /// Offset in the segment.
    offset: u64,
}

impl Plan {
    /// Reads a stretch into `buffer`. Gives the place of its intact chunks there, one behind the other; the others are
    /// in the account.
    pub(super) fn fetch(
        &self,
        stretch: &Stretch,
        buffer: &mut Vec<u8>,
        account: &mut SearchAccount,
    ) -> Range<usize> {
        let len = stretch.len();
        let from = aligned(buffer, len);
        let segment = &stretch.segment;
        let is_read = self.read(&segment.file, &mut buffer[from..from + len], stretch.offset).is_ok();
        let places = match &stretch.part {
            StretchContent::Chunks(chunks) => together(stretch.offset, chunks),
            StretchContent::Slot(_, chunks) => {
                let bytes = if is_read {
                    Bytes::Part(&buffer[from..from + len], stretch.offset)
                } else {
                    Bytes::File(segment.file.file())
                };
                self.in_slot(stretch, bytes, *chunks, account)
            }
        };
        let mut end = from;
        for place in &places {
            let at = from + (place.offset - stretch.offset) as usize;
            let there = at..at + place.len as usize;
            // What the disk cannot read is one chunk, not all.
            if !is_read && segment.file.read_exact_at(&mut buffer[there.clone()], place.offset).is_err() {
                account.chunks_damaged += 1;
                continue;
            }
            account.bytes_read += u64::from(place.len);
            let chunk = Chunk { bytes: &buffer[there.clone()], offset: place.offset };
            if self.is_there(segment, &chunk, account) {
                if at != end {
                    buffer.copy_within(there.clone(), end);
                }
                end += there.len();
            }
        }
        from..end
    }

    /// The chunks of a slot that are meant; its index says that there are `expected` of them.
    fn in_slot(
        &self,
        stretch: &Stretch,
        bytes: Bytes<'_>,
        expected: u32,
        account: &mut SearchAccount,
    ) -> Vec<ChunkSpan> {
        let Stretch { segment, offset, .. } = stretch;
        let part = *offset..offset + stretch.len() as u64;
        let mut walk = Walk::within(bytes, self.catalog.id, segment.number, segment.len, part.clone());
        let (mut places, mut found) = (Vec::new(), 0_u32);
        while let Some(FoundChunk { offset, head }) = walk.next() {
            found += 1;
            if !self.window.overlaps(head.first, head.last) {
                account.chunks_by_time += 1;
            } else if offset + u64::from(head.len) <= part.end {
                places.push(ChunkSpan { offset, len: head.len });
            } else {
                account.chunks_damaged += 1;
            }
        }
        // Those without a head; or the segment was recycled meanwhile.
        account.chunks += u64::from(found.saturating_sub(expected));
        let missing = u64::from(expected.saturating_sub(found));
        match missing > 0 && self.is_deleted(segment.number) {
            true => account.chunks_gone += missing,
            false => account.chunks_damaged += missing,
        }
        places
    }

    /// Whether a chunk is as it was written.
    fn is_there(&self, segment: &OpenSegment, chunk: &Chunk<'_>, account: &mut SearchAccount) -> bool {
        let head = ChunkHead::parse(chunk.bytes);
        let is_ours = |head: &ChunkHead| {
            belongs(head, &self.catalog.id, segment.number, chunk.offset, segment.len)
                && head.len as usize == chunk.bytes.len()
        };
        match head {
            Some(head) if is_ours(&head) && is_intact(chunk.bytes, &head) => {
                account.chunks_read += 1;
                account.packets += u64::from(head.packets);
                account.lost = account.lost.saturating_add(head.lost.saturating_add(head.dropped));
                account.losses_unknown += u64::from(head.is_loss_unknown);
                return true;
            }
            Some(head) if head.store == self.catalog.id && head.segment != segment.number => {
                account.chunks_gone += 1;
            }
            _ if chunk.offset >= segment.unfinished_from => account.chunks_unfinished += 1,
            // The segment was recycled meanwhile: its file has another name now.
            _ if self.is_deleted(segment.number) => account.chunks_gone += 1,
            _ => account.chunks_damaged += 1,
        }
        false
    }
}

/// Places of chunks of these lengths, one after the other.
fn together(from: u64, chunks: &[u32]) -> Vec<ChunkSpan> {
    let mut offset = from;
    let place = |len: &u32| {
        let place = ChunkSpan { offset, len: *len };
        offset += u64::from(*len);
        place
    };
    chunks.iter().map(place).collect()
}

/// Makes room for `len` bytes in `buffer` at an address that a disk can write to; where they begin.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> usize {
    if buffer.len() < len + DIRECT_ALIGN {
        // In place of growing, which would copy what is not wanted.
        *buffer = vec![0; len + DIRECT_ALIGN];
    }
    buffer.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN)
}
