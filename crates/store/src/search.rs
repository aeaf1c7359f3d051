//! Chunks that may hold what is asked, read and checked, one after the other.
//!
//! ```text
//! segments --time of the index--> segments --keys--> slots --time--> chunks --read, checksum--> bytes
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::chunk::{ChunkHead, is_intact};
use crate::error::Error;
use crate::index::rollup::{RollUp, roll_up_of};
use crate::index::{Index, SlotRow, Slots};
use crate::keys::{Group, WAYS_ALL, Way};
use crate::layout::PAGE_LEN;
use crate::question::Question;
use crate::walk::{Found, Walk, belongs};

/// The times that are asked for: from `from`, before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment after.
    pub to: Timestamp,
}

impl Window {
    /// All times.
    pub const ALL: Window =
        Window { from: Timestamp::from_nanos(i64::MIN), to: Timestamp::from_nanos(i64::MAX) };

    /// Whether a moment is in it.
    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && (at < self.to || self.to == Window::ALL.to)
    }

    /// Whether any moment of a span may be in it.
    fn overlaps(&self, first: Timestamp, last: Timestamp) -> bool {
        last >= self.from && (first < self.to || self.to == Window::ALL.to)
    }
}

/// What a search did with the chunks of a store: each segment and each chunk is in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchAccount {
    /// Segments of the store when the search began.
    pub segments: u64,
    /// Of these, passed over because of their times.
    pub segments_by_time: u64,
    /// Passed over because no slot has the keys.
    pub segments_by_keys: u64,
    /// Gone, or recycled, before the search came to them.
    pub segments_gone: u64,
    /// Not to be read: no regular file, or the system refuses.
    pub segments_unreadable: u64,
    /// Looked into by their index.
    pub segments_indexed: u64,
    /// Looked into without an index: being recorded, or of a recorder that was killed.
    pub segments_walked: u64,
    /// Chunks of the segments that were looked into.
    pub chunks: u64,
    /// Of these, passed over because of their times.
    pub chunks_by_time: u64,
    /// Passed over because their slot does not have the keys.
    pub chunks_by_keys: u64,
    /// Read.
    pub chunks_read: u64,
    /// Of these, not as they were written, or not to be read.
    pub chunks_damaged: u64,
    /// Overwritten before the search came to them.
    pub chunks_gone: u64,
    /// Not yet whole: the last one of the segment that is being recorded.
    pub chunks_unfinished: u64,
    /// Places in walked segments that hold neither chunks nor fillers.
    pub places_damaged: u64,
    /// Bytes of chunks that were read.
    pub bytes_read: u64,
    /// Bytes of indexes that were read.
    pub index_bytes: u64,
    /// Packets in the chunks that were read and intact.
    pub packets: u64,
    /// Packets that the recording lost in the chunks that were read: before the recorder and in it.
    pub lost: u64,
}

impl SearchAccount {
    /// Whether each segment and each chunk is in one place.
    pub fn is_balanced(&self) -> bool {
        let looked_into = self.segments_indexed + self.segments_walked;
        let segments = self.segments_by_time + self.segments_by_keys + looked_into;
        let segments = segments + self.segments_gone + self.segments_unreadable;
        let passed = self.chunks_by_time + self.chunks_by_keys;
        let chunks =
            passed + self.chunks_read + self.chunks_damaged + self.chunks_gone + self.chunks_unfinished;
        self.segments == segments && self.chunks == chunks
    }
}

/// A search under way.
pub struct Search {
    catalog: Arc<Catalog>,
    window: Window,
    question: Question,
    /// Segments still to be looked into, the next one last.
    segments: Vec<u64>,
    /// Segments when it began.
    total: usize,
    current: Option<Current>,
    /// The roll-up that was asked last.
    roll_up: Option<(u64, Option<RollUp>)>,
    account: SearchAccount,
}

/// A segment that is looked into.
struct Current {
    number: u64,
    file: File,
    len: u64,
    /// Chunks still to be read, the next one last.
    chunks: Vec<Place>,
    is_indexed: bool,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    len: u32,
}

impl Search {
    /// Begins a search of all segments that are there now.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn new(catalog: Arc<Catalog>, window: Window, question: Question) -> Result<Search, Error> {
        let mut segments = catalog.numbers()?;
        segments.reverse();
        let total = segments.len();
        let account = SearchAccount { segments: total as u64, ..SearchAccount::default() };
        Ok(Search { catalog, window, question, segments, total, current: None, roll_up: None, account })
    }

    /// What it did so far.
    pub fn account(&self) -> SearchAccount {
        self.account
    }

    /// The times that are asked for.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Segments done, and all.
    pub fn progress(&self) -> (u64, u64) {
        ((self.total - self.segments.len()) as u64, self.total as u64)
    }

    /// Reads the next chunk that may hold what is asked into `buffer`, whole and checked. `false` at the end. What cannot be
    /// read is passed over, and is in the account.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> bool {
        loop {
            let Some(current) = &mut self.current else {
                match self.segments.pop() {
                    Some(number) => self.enter(number),
                    None => return false,
                }
                continue;
            };
            let Some(place) = current.chunks.pop() else {
                self.current = None;
                continue;
            };
            let is_last = current.chunks.is_empty();
            if self.read(place, is_last, buffer) {
                return true;
            }
        }
    }

    /// Whether the roll-up that a segment is in has neither its times nor its keys to offer. Then the account says so.
    fn is_ruled_out(&mut self, number: u64) -> bool {
        let wanted = roll_up_of(number);
        if self.roll_up.as_ref().is_none_or(|(known, _)| *known != wanted) {
            self.roll_up = Some((wanted, RollUp::read(&self.catalog, wanted)));
        }
        let Some((_, Some(roll_up))) = &self.roll_up else { return false };
        let Some((first, last)) = roll_up.times(number) else { return false };
        if !self.window.overlaps(first, last) {
            self.account.segments_by_time += 1;
            return true;
        }
        let is_open = |way: Way| roll_up.is_open(number, way);
        // What is damaged rules nothing out.
        let may = |key: u64| is_open(Group::of(key).way()) || roll_up.may_have(key).unwrap_or(true);
        let is_ruled_out = !is_open(Way::All) && !self.question.holds(&may);
        self.account.segments_by_keys += u64::from(is_ruled_out);
        is_ruled_out
    }

    /// Opens a segment and finds out which of its chunks are to be read.
    fn enter(&mut self, number: u64) {
        if self.is_ruled_out(number) {
            return;
        }
        let path = self.catalog.segment_path(number);
        let opened = disk::open_regular(&path, OpenOptions::new().read(true));
        let (file, len) = match opened.and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((len, file)) => (file, len.min(self.catalog.segment_len)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.account.segments_gone += 1;
                return;
            }
            Err(_) => {
                self.account.segments_unreadable += 1;
                return;
            }
        };
        let index = self.catalog.index(number);
        let of_index = index.and_then(|index| self.by_index(&index, &file, number));
        let is_indexed = of_index.is_some();
        let mut chunks = match of_index {
            Some(Some(chunks)) => chunks,
            Some(None) => return,
            None => match self.by_walk(&file, number) {
                Ok(chunks) => chunks,
                Err(_) => {
                    self.account.segments_unreadable += 1;
                    return;
                }
            },
        };
        chunks.reverse();
        self.current = Some(Current { number, file, len, chunks, is_indexed });
    }

    /// The chunks that an index does not rule out; `None` within if it rules out all, `None` if it is damaged.
    fn by_index(&mut self, index: &Index, file: &File, number: u64) -> Option<Option<Vec<Place>>> {
        if !self.window.overlaps(index.summary.first, index.summary.last) {
            self.account.index_bytes += index.len();
            self.account.segments_by_time += 1;
            return Some(None);
        }
        let may = self.may(index)?;
        let rows = index.rows()?;
        self.account.index_bytes += index.len();
        if !may.contains(&true) {
            self.account.segments_by_keys += 1;
            return Some(None);
        }
        self.account.segments_indexed += 1;
        let mut chunks = Vec::new();
        for (slot, row) in rows.iter().enumerate().filter(|(_, row)| row.chunks > 0) {
            self.account.chunks += u64::from(row.chunks);
            if !self.window.overlaps(row.first, row.last) {
                self.account.chunks_by_time += u64::from(row.chunks);
            } else if !may.get(slot).copied().unwrap_or(true) {
                self.account.chunks_by_keys += u64::from(row.chunks);
            } else {
                self.by_slot(file, number, slot as u64, row, &mut chunks);
            }
        }
        Some(Some(chunks))
    }

    /// Which slots may hold what is asked; `None` if the index is damaged.
    fn may(&self, index: &Index) -> Option<Vec<bool>> {
        let open: Option<Vec<Slots>> = WAYS_ALL.into_iter().map(|way| index.open(way)).collect();
        let open = open?;
        let keys = self.question.keys();
        let sets: Option<Vec<Slots>> = keys.iter().map(|key| index.slots(*key)).collect();
        let sets = sets?;
        let slot_may = |slot: u32| {
            let has = |key: u64| {
                open[Group::of(key).way() as usize].has(slot)
                    || keys.binary_search(&key).is_ok_and(|at| sets[at].has(slot))
            };
            open[Way::All as usize].has(slot) || self.question.holds(&has)
        };
        Some((0..index.summary.slots).map(slot_may).collect())
    }

    /// The chunks of a slot, by their heads.
    fn by_slot(&mut self, file: &File, number: u64, slot: u64, row: &SlotRow, chunks: &mut Vec<Place>) {
        let from = slot * crate::SLOT_LEN as u64;
        let end = from + u64::from(row.pages) * PAGE_LEN as u64;
        let Ok(mut walk) = Walk::within(file, self.catalog.id, number, self.catalog.segment_len, from..end)
        else {
            self.account.chunks_damaged += u64::from(row.chunks);
            return;
        };
        let mut found = 0;
        while let Some(Found { offset, head }) = walk.next() {
            found += 1;
            chunks.push(Place { offset, len: head.len });
        }
        // Those without an intact head; or the segment was recycled meanwhile.
        let missing = u64::from(row.chunks.saturating_sub(found));
        self.account.chunks += u64::from(found.saturating_sub(row.chunks));
        match self.catalog.segment_path(number).exists() {
            true => self.account.chunks_damaged += missing,
            false => self.account.chunks_gone += missing,
        }
    }

    fn by_walk(&mut self, file: &File, number: u64) -> io::Result<Vec<Place>> {
        let mut walk = Walk::new(file, self.catalog.id, number, self.catalog.segment_len)?;
        self.account.segments_walked += 1;
        let mut chunks = Vec::new();
        while let Some(found) = walk.next() {
            self.account.chunks += 1;
            if self.window.overlaps(found.head.first, found.head.last) {
                chunks.push(Place { offset: found.offset, len: found.head.len });
            } else {
                self.account.chunks_by_time += 1;
            }
        }
        // A segment that was recycled meanwhile has chunks of another number, or none yet.
        if walk.damaged > 0 && self.catalog.segment_path(number).exists() {
            self.account.places_damaged += walk.damaged;
        }
        Ok(chunks)
    }

    /// Whether the chunk at `place` is there as it was written.
    fn read(&mut self, place: Place, is_last: bool, buffer: &mut Vec<u8>) -> bool {
        let Some(Current { number, file, len, is_indexed, .. }) = &self.current else { return false };
        let (number, is_open) = (*number, !*is_indexed);
        if place.offset + u64::from(place.len) > *len {
            self.account.chunks_damaged += 1;
            return false;
        }
        buffer.resize(place.len as usize, 0);
        let path = || self.catalog.segment_path(number);
        if file.read_exact_at(buffer, place.offset).is_err() {
            self.account.chunks_damaged += 1;
            return false;
        }
        self.account.bytes_read += u64::from(place.len);
        let head = ChunkHead::parse(buffer);
        let is_ours = |head: &ChunkHead| {
            belongs(head, &self.catalog.id, number, place.offset, *len) && head.len == place.len
        };
        match head {
            Some(head) if is_ours(&head) && is_intact(buffer, &head) => {
                self.account.chunks_read += 1;
                self.account.packets += u64::from(head.packets);
                let lost = head.lost.saturating_add(head.dropped);
                self.account.lost = self.account.lost.saturating_add(lost);
                return true;
            }
            Some(head) if head.store == self.catalog.id && head.segment != number => {
                self.account.chunks_gone += 1;
            }
            _ if is_last && is_open => self.account.chunks_unfinished += 1,
            // The segment was recycled meanwhile: its file has another name now.
            _ if !path().exists() => self.account.chunks_gone += 1,
            _ => self.account.chunks_damaged += 1,
        }
        false
    }
}
