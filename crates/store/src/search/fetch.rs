//! A stretch of chunks, read and checked.

use std::ops::Range;

use tapline_sys::disk::DIRECT_ALIGN;

use super::SearchAccount;
use super::plan::{OpenSegment, Plan, Stretch};
use crate::chunk::{ChunkHead, is_intact};
use crate::walk::belongs;

/// A chunk in a stretch.
struct Chunk<'a> {
    bytes: &'a [u8],
    /// Where it stands in its segment.
    offset: u64,
    /// Whether it may be written just now.
    is_end: bool,
}

impl Plan {
    /// Reads a stretch into `buffer`. Gives the place of its intact chunks there, one behind the other; the others are in the account.
    pub(super) fn fetch(
        &self,
        stretch: &Stretch,
        buffer: &mut Vec<u8>,
        account: &mut SearchAccount,
    ) -> Range<usize> {
        let len = stretch.len();
        let from = aligned(buffer, len);
        let bytes = &mut buffer[from..from + len];
        let is_read = stretch.segment.file.read_exact_at(bytes, stretch.offset).is_ok();
        let (mut at, mut end) = (from, from);
        for (index, chunk_len) in stretch.chunks.iter().enumerate() {
            let place = at..at + *chunk_len as usize;
            let offset = stretch.offset + (at - from) as u64;
            at = place.end;
            // What the disk cannot read is one chunk, not all.
            let segment = &stretch.segment;
            if !is_read && segment.file.read_exact_at(&mut buffer[place.clone()], offset).is_err() {
                account.chunks_damaged += 1;
                continue;
            }
            account.bytes_read += u64::from(*chunk_len);
            let is_end = stretch.is_last && index + 1 == stretch.chunks.len() && !segment.is_whole;
            let chunk = Chunk { bytes: &buffer[place.clone()], offset, is_end };
            if self.is_there(segment, &chunk, account) {
                if place.start != end {
                    buffer.copy_within(place.clone(), end);
                }
                end += place.len();
            }
        }
        from..end
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
                return true;
            }
            Some(head) if head.store == self.catalog.id && head.segment != segment.number => {
                account.chunks_gone += 1;
            }
            _ if chunk.is_end => account.chunks_unfinished += 1,
            // The segment was recycled meanwhile: its file has another name now.
            _ if !self.catalog.segment_path(segment.number).exists() => account.chunks_gone += 1,
            _ => account.chunks_damaged += 1,
        }
        false
    }
}

/// Makes room for `len` bytes in `buffer` at an address that a disk can write to; where they begin.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> usize {
    if buffer.len() < len + DIRECT_ALIGN {
        // In place of growing, which would copy what is not wanted.
        *buffer = vec![0; len + DIRECT_ALIGN];
    }
    buffer.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN)
}
