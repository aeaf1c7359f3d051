//! The chunks of a segment without its index, by their heads.
//!
//! ```text
//! at a slot's start:  chunk -> behind it     filler -> next slot     unused slot -> the end     else: damaged, next slot
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::chunk::{CHUNK_HEAD_LEN, ChunkHead};
use crate::layout::{PAGE_LEN, SLOT_LEN, StoreId, filler_len};

/// Finds the chunks of a segment one by one.
pub(crate) struct Walk<'a> {
    file: &'a File,
    store: StoreId,
    segment: u64,
    len: u64,
    at: u64,
    /// Places that were no chunk, no filler, no unused slot.
    pub(crate) damaged: u64,
}

/// A chunk that was found, and where.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    pub(crate) head: ChunkHead,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(file: &'a File, store: StoreId, segment: u64) -> io::Result<Walk<'a>> {
        Ok(Walk { file, store, segment, len: file.metadata()?.len(), at: 0, damaged: 0 })
    }

    /// The next chunk; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Found>> {
        while self.at + PAGE_LEN as u64 <= self.len {
            let mut bytes = [0; CHUNK_HEAD_LEN];
            self.file.read_exact_at(&mut bytes, self.at)?;
            if let Some(head) = self.head(&bytes) {
                let offset = self.at;
                self.at += u64::from(head.len);
                return Ok(Some(Found { offset, head }));
            }
            match filler_len(&bytes) {
                // Nothing was ever put behind it.
                Some(SLOT_LEN) if self.at.is_multiple_of(SLOT_LEN as u64) => break,
                Some(PAGE_LEN) => {}
                _ => self.damaged += 1,
            }
            self.at = (self.at / SLOT_LEN as u64 + 1) * SLOT_LEN as u64;
        }
        Ok(None)
    }

    /// Where the first slot begins in which no chunk stands, once the walk is at its end.
    pub(crate) fn end(&self) -> u64 {
        self.at.next_multiple_of(SLOT_LEN as u64).min(self.len)
    }

    /// The head of a chunk that belongs where it stands.
    fn head(&self, bytes: &[u8]) -> Option<ChunkHead> {
        let head = ChunkHead::parse(bytes)?;
        belongs(&head, &self.store, self.segment, self.at, self.len).then_some(head)
    }
}

/// Whether a chunk with this head is one of this segment and fits the place where it stands.
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
