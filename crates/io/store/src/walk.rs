//! The chunks of a segment without its index, by their heads.
//!
//! ```text
//! at a slot's start:  chunk -> behind it     chunk of a lower number -> next slot     filler -> next slot     unused slot -> the end, or next slot if chunks are missing     gap -> behind it     else: damaged, next page
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::chunk::{CHUNK_HEAD_LEN, ChunkHead, is_intact};
use crate::layout::{PAGE_LEN, SLOT_LEN, StoreId, filler_len, fills_slot, gap_len};

/// Where a segment's bytes are.
#[derive(Clone, Copy)]
pub(crate) enum Bytes<'a> {
    File(&'a File),
    /// A part of them that was read, and where it begins.
    Part(&'a [u8], u64),
}

impl Bytes<'_> {
    /// Whether there are as many as `buffer` takes.
    fn read(&self, buffer: &mut [u8], at: u64) -> bool {
        match self {
            Bytes::File(file) => file.read_exact_at(buffer, at).is_ok(),
            Bytes::Part(bytes, from) => {
                let place = at.checked_sub(*from).and_then(|at| bytes.get(at as usize..));
                let found = place.and_then(|rest| rest.get(..buffer.len()));
                found.is_some_and(|found| {
                    buffer.copy_from_slice(found);
                    true
                })
            }
        }
    }
}

/// Finds the chunks of a segment one by one.
pub(crate) struct Walk<'a> {
    bytes: Bytes<'a>,
    store: StoreId,
    segment: u64,
    /// Bytes of the segment.
    len: u64,
    /// Where the walk ends.
    end: u64,
    at: u64,
    /// Whether the bytes before `at` in its slot are damaged: the next chunk is searched page by page.
    is_lost: bool,
    /// Places that were no chunk, no filler, no unused slot.
    pub(crate) damaged: u64,
    /// Slots with a chunk of the segment that the file was before it was recycled.
    old: u64,
    has_chunks: bool,
    /// Chunks that the segment had when it was sealed and that were not found so far.
    left: u64,
}

/// A chunk that was found, and where.
#[derive(Clone, Debug)]
pub(crate) struct FoundChunk {
    pub(crate) offset: u64,
    pub(crate) head: ChunkHead,
}

impl FoundChunk {
    /// Reads the chunk's bytes on the disk. Returns whether they are as they were written.
    pub(crate) fn read(&self, file: &File, bytes: &mut Vec<u8>) -> bool {
        bytes.resize(self.head.stored_len(), 0);
        file.read_exact_at(bytes, self.offset).is_ok() && is_intact(bytes, &self.head)
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        file: &'a File,
        store: StoreId,
        segment: u64,
        segment_len: u64,
    ) -> io::Result<Walk<'a>> {
        let len = file.metadata()?.len().min(segment_len);
        Ok(Walk::within(Bytes::File(file), store, segment, len, 0..len))
    }

    /// A walk over a part of the segment that begins with a slot.
    pub(crate) fn within(
        bytes: Bytes<'a>,
        store: StoreId,
        segment: u64,
        segment_len: u64,
        part: Range<u64>,
    ) -> Walk<'a> {
        let end = segment_len.min(part.end);
        Walk {
            bytes,
            store,
            segment,
            len: segment_len,
            end,
            at: part.start,
            is_lost: false,
            damaged: 0,
            old: 0,
            has_chunks: false,
            left: 0,
        }
    }

    /// A segment had so many chunks when it was sealed: unused slots do not end it before these are found.
    pub(crate) fn sealed(self, chunks: u64) -> Walk<'a> {
        Walk { left: chunks, ..self }
    }

    /// Looks from a place on where a chunk ends.
    pub(crate) fn from(self, at: u64) -> Walk<'a> {
        Walk { at, ..self }
    }

    /// The next chunk; `None` at the end. Bytes that the disk cannot read count as damaged.
    pub(crate) fn next(&mut self) -> Option<FoundChunk> {
        while self.at + PAGE_LEN as u64 <= self.end {
            let mut bytes = [0; CHUNK_HEAD_LEN];
            let is_read = self.bytes.read(&mut bytes, self.at);
            if let Some(head) = self.head(&bytes).filter(|_| is_read) {
                let offset = self.at;
                self.is_lost = false;
                self.has_chunks = true;
                self.left = self.left.saturating_sub(1);
                self.at += u64::from(head.len);
                return Some(FoundChunk { offset, head });
            }
            let in_slot = (self.at % SLOT_LEN as u64) as usize;
            if in_slot == 0 {
                self.is_lost = false;
            }
            let slot_end = self.at - in_slot as u64 + SLOT_LEN as u64;
            if let Some(len) = self.old_len(&bytes).filter(|_| is_read) {
                self.old += 1;
                self.at = (self.at + u64::from(len)).next_multiple_of(SLOT_LEN as u64);
                continue;
            }
            let is_gap =
                |len: usize| len >= PAGE_LEN && len.is_multiple_of(PAGE_LEN) && in_slot + len <= SLOT_LEN;
            match (filler_len(&bytes), gap_len(&bytes).filter(|len| is_gap(*len))) {
                // Nothing was ever put behind it.
                (Some(SLOT_LEN), _) if in_slot == 0 && self.left == 0 => break,
                (Some(SLOT_LEN), _) if in_slot == 0 => self.at = slot_end,
                (_, Some(len)) => self.at += len as u64,
                _ if !self.is_lost && fills_slot(&bytes, in_slot) => self.at = slot_end,
                _ => {
                    self.damaged += u64::from(!std::mem::replace(&mut self.is_lost, true));
                    self.at = if is_read { self.at + PAGE_LEN as u64 } else { slot_end };
                }
            }
        }
        if self.has_chunks {
            // Slots are cleared before the first chunk is written: beside chunks an old one is a place that was lost.
            self.damaged += std::mem::take(&mut self.old);
        }
        None
    }

    /// Chunks that were recorded and are gone, without the one in each damaged place. Known once the walk is at its end.
    pub(crate) fn missing(&self) -> u64 {
        self.left.saturating_sub(self.damaged)
    }

    /// Whether the segment was begun in a recycled file, and its recorder ended before all slots were cleared: no chunk
    /// was written yet, and nothing is lost. Known once the walk is at its end.
    pub(crate) fn is_begun(&self) -> bool {
        self.old > 0 && !self.has_chunks && self.left == 0
    }

    /// Start of the first slot without a chunk, once the walk has ended.
    pub(crate) fn end(&self) -> u64 {
        self.at.next_multiple_of(SLOT_LEN as u64).min(self.len)
    }

    /// The length of a chunk at a slot's start that belongs to a segment of a lower number: the one that the file was
    /// before.
    fn old_len(&self, bytes: &[u8]) -> Option<u32> {
        let head = ChunkHead::parse(bytes).filter(|_| self.at.is_multiple_of(SLOT_LEN as u64))?;
        let is_old =
            head.segment < self.segment && belongs(&head, &self.store, head.segment, self.at, self.len);
        is_old.then_some(head.len)
    }

    /// Parses the head of a chunk and checks that it belongs here.
    fn head(&self, bytes: &[u8]) -> Option<ChunkHead> {
        let head = ChunkHead::parse(bytes)?;
        belongs(&head, &self.store, self.segment, self.at, self.len).then_some(head)
    }
}

/// Whether a chunk with this head belongs to this segment and fits its place.
pub(crate) fn belongs(head: &ChunkHead, store: &StoreId, segment: u64, at: u64, segment_len: u64) -> bool {
    let slot_len = SLOT_LEN as u64;
    let (in_slot, len) = (at % slot_len, u64::from(head.len));
    let fits = if len > slot_len { in_slot == 0 } else { in_slot + len <= slot_len };
    head.store == *store
        && head.segment == segment
        && u64::from(head.slot) == at / slot_len
        && fits
        && at + len <= segment_len
}
