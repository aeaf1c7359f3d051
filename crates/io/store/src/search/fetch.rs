//! A stretch of chunks, read, checked and unpacked.

use std::ops::Range;

use tapline_sys::disk::DIRECT_ALIGN;

use super::SearchAccount;
use super::plan::{ChunkSpan, OpenSegment, Plan, Stretch, StretchContent};
use crate::chunk::{ChunkHead, SECTION_MAGIC, is_intact};
use crate::erase::packets_of;
use crate::packed::unpack;
use crate::walk::{Bytes, FoundChunk, Walk, belongs};

/// A chunk in a stretch.
struct Chunk<'a> {
    bytes: &'a [u8],
    /// Offset in the segment.
    offset: u64,
}

impl Plan {
    /// Reads a stretch into `buffer`. Gives the place of the sections of its intact chunks there, one behind the other;
    /// the others are in the account.
    pub(super) fn fetch(
        &self,
        stretch: &Stretch,
        buffer: &mut Vec<u8>,
        account: &mut SearchAccount,
    ) -> Range<usize> {
        let segment = &stretch.segment;
        if segment.is_packed {
            return self.fetch_packed(stretch, buffer, account);
        }
        let len = stretch.len();
        let from = aligned(buffer, len);
        let is_read = self.read(&segment.file, &mut buffer[from..from + len], stretch.offset).is_ok();
        let places = match &stretch.part {
            StretchContent::Chunks(chunks) => chunks.clone(),
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
            let mut is_plain =
                |bytes: &[u8], head: &ChunkHead| head.packing.is_none() && is_sound(bytes, head);
            if self.is_there(segment, &chunk, account, &mut is_plain) {
                if at != end {
                    buffer.copy_within(there.clone(), end);
                }
                end += there.len();
            }
        }
        from..end
    }

    /// As [`fetch`](Self::fetch), of a segment whose chunks are compressed: of each the bytes are read that are on the
    /// disk. The sections are in the first part of the buffer, the chunk that is read last in the second.
    fn fetch_packed(
        &self,
        stretch: &Stretch,
        buffer: &mut Vec<u8>,
        account: &mut SearchAccount,
    ) -> Range<usize> {
        let segment = &stretch.segment;
        let places = match &stretch.part {
            StretchContent::Chunks(chunks) => chunks.clone(),
            StretchContent::Slot(_, chunks) => {
                self.in_slot(stretch, Bytes::File(segment.file.file()), *chunks, account)
            }
        };
        let len: usize = places.iter().map(|place| place.len as usize).sum();
        let stored_max = places.iter().map(|place| place.stored as usize).max().unwrap_or(0);
        let from = aligned(buffer, len + stored_max);
        let (sections, stored) = buffer[from..from + len + stored_max].split_at_mut(len);
        let mut end = 0;
        for place in &places {
            let bytes = &mut stored[..place.stored as usize];
            if self.read(&segment.file, bytes, place.offset).is_err() {
                account.chunks_damaged += 1;
                continue;
            }
            account.bytes_read += u64::from(place.stored);
            let section = &mut sections[end..end + place.len as usize];
            let mut section_len = 0;
            let chunk = Chunk { bytes, offset: place.offset };
            let mut unpacks = |bytes: &[u8], head: &ChunkHead| {
                section_len = unpack(bytes, head, section).unwrap_or(0);
                is_sound(&section[..section_len], head)
            };
            if self.is_there(segment, &chunk, account, &mut unpacks) {
                end += section_len;
            }
        }
        from..from + end
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
        while let Some(chunk) = walk.next() {
            let FoundChunk { offset, head } = &chunk;
            found += 1;
            if !self.window.overlaps(head.first, head.last) {
                account.chunks_by_time += 1;
            } else if *offset + u64::from(head.len) <= part.end {
                places.push(ChunkSpan::of(&chunk));
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

    /// Whether a chunk is as it was written, and `is_sound` is true of it.
    fn is_there(
        &self,
        segment: &OpenSegment,
        chunk: &Chunk<'_>,
        account: &mut SearchAccount,
        is_sound: &mut dyn FnMut(&[u8], &ChunkHead) -> bool,
    ) -> bool {
        let head = ChunkHead::parse(chunk.bytes);
        let is_ours = |head: &ChunkHead| {
            belongs(head, &self.catalog.id, segment.number, chunk.offset, segment.len)
                && head.stored_len() == chunk.bytes.len()
        };
        match head {
            Some(head) if is_ours(&head) && is_intact(chunk.bytes, &head) && is_sound(chunk.bytes, &head) => {
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

/// Whether an intact chunk is a section with as many packets as its head says: a checksum alone proves no author.
fn is_sound(section: &[u8], head: &ChunkHead) -> bool {
    section.starts_with(&SECTION_MAGIC) && packets_of(section) == Some(head.packets.into())
}

/// Makes room for `len` bytes in `buffer` at an address that a disk can write to; where they begin.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> usize {
    if buffer.len() < len + DIRECT_ALIGN {
        // In place of growing, which would copy what is not wanted.
        *buffer = vec![0; len + DIRECT_ALIGN];
    }
    buffer.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN)
}
