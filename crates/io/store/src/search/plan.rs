//! Plan of a search: chooses the chunks to read, segment by segment, by time and by keys.
//!
//! ```text
//! segment --time of its index--> --keys--> slots --time--> a stretch each, whose chunks are found when it is read
//!         '-- no index: its chunks are walked, and chosen by time; adjacent ones are a stretch
//! ```

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tapline_packet::Timestamp;
use tapline_sys::disk::PieceFile;

use super::{SearchAccount, Window};
use crate::catalog::Catalog;
use crate::index::rollup::{RollUp, roll_up_of};
use crate::index::{Index, SlotRow};
use crate::keys::OpenKeys;
use crate::layout::{PAGE_LEN, SLOT_LEN, is_packed};
use crate::log::{History, Sealed, history};
use crate::question::{Fact, Question};
use crate::recorder::WRITES_MAX;
use crate::walk::{FoundChunk, Walk};

/// Bytes of chunks that a search reads through the page cache; none while a recorder runs.
pub(super) const CACHED_MAX: u64 = 256 << 20;

/// Question to a store, and the state to answer it.
pub(super) struct Plan {
    pub(super) catalog: Arc<Catalog>,
    pub(super) window: Window,
    pub(super) question: Question,
    /// A recorder runs, before which this search gives way.
    pub(super) is_recorded: bool,
    /// Bytes of chunks that are still read through the page cache, where the next search finds them. All others go past
    /// it.
    pub(super) cache_left: AtomicU64,
    /// The roll-up that was asked last, by number.
    pub(super) roll_up: Mutex<(u64, Option<Arc<RollUp>>)>,
    /// The log as it was read last.
    pub(super) history: Mutex<History>,
}

pub(super) struct OpenSegment {
    pub(super) number: u64,
    pub(super) file: PieceFile,
    pub(super) len: u64,
    /// Whether its chunks are compressed, by its name.
    pub(super) is_packed: bool,
    /// From here on chunks may be written just now: one that is not whole is unfinished, not damaged. `u64::MAX` if no
    /// recorder writes to the segment.
    pub(super) unfinished_from: u64,
}

/// Part of a segment that is read at once.
pub(super) struct Stretch {
    pub(super) segment: Arc<OpenSegment>,
    pub(super) offset: u64,
    pub(super) part: StretchContent,
    /// The least time that packets in it may have.
    pub(super) first: Timestamp,
    /// The least time that packets of the next [`REACH`] slots may have which are read; [`LATER_UNKNOWN`] where the
    /// segment ends before.
    pub(super) later: Timestamp,
}

/// Slots in which older packets are looked for before a packet is given out.
pub const REACH: u64 = 3;
/// Nothing is known of the next slots.
pub(super) const LATER_UNKNOWN: Timestamp = Timestamp::from_nanos(i64::MIN);

pub(super) enum StretchContent {
    /// Chunks, one behind the other: as long as a slot at most, or one longer chunk.
    Chunks(Vec<ChunkSpan>),
    /// So many bytes from a slot's start on, in which so many chunks begin.
    Slot(usize, u32),
}

impl Stretch {
    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        match &self.part {
            StretchContent::Chunks(chunks) => chunks.iter().map(|chunk| chunk.len as usize).sum(),
            StretchContent::Slot(len, _) => *len,
        }
    }

    /// Chunks in it, as far as is known before it is read.
    pub(super) fn chunks(&self) -> u64 {
        match &self.part {
            StretchContent::Chunks(chunks) => chunks.len() as u64,
            StretchContent::Slot(_, chunks) => u64::from(*chunks),
        }
    }
}

/// Place of a chunk in its segment.
#[derive(Clone, Copy)]
pub(super) struct ChunkSpan {
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Bytes of it that are on the disk, from its start on.
    pub(super) stored: u32,
}

impl ChunkSpan {
    pub(super) fn of(found: &FoundChunk) -> ChunkSpan {
        let FoundChunk { offset, head } = found;
        ChunkSpan { offset: *offset, len: head.len, stored: head.stored_len() as u32 }
    }
}

impl Plan {
    /// Reads `buffer.len()` bytes of chunks. The first [`CACHED_MAX`] bytes of a search go through the page cache: the
    /// next, narrower question about the same time finds them there. The others go straight to `buffer`: in the cache
    /// they would push out pages of other programs, and copying them costs a third of a dense search.
    pub(super) fn read(&self, file: &PieceFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let len = buffer.len() as u64;
        let take = |left: u64| left.checked_sub(len);
        match self.cache_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => file.file().read_exact_at(buffer, offset),
            Err(_) => file.read_exact_at(buffer, offset),
        }
    }

    /// The stretches of a segment to read, in the order of recording. Counts the segment and the skipped chunks in the
    /// account.
    pub(super) fn segment(&self, number: u64, account: &mut SearchAccount) -> Vec<Stretch> {
        if self.is_ruled_out(number, account) {
            return Vec::new();
        }
        match self.open(number) {
            Ok(Some(stretches)) => {
                *account += stretches.1;
                stretches.0
            }
            Ok(None) => {
                match self.is_deleted(number) {
                    true => account.segments_gone += 1,
                    false => account.segments_unreadable += 1,
                }
                Vec::new()
            }
            Err(_) => {
                account.segments_unreadable += 1;
                Vec::new()
            }
        }
    }

    /// Whether a recorder has deleted a segment: its file is gone, or has another name by now, and the log says so.
    pub(super) fn is_deleted(&self, number: u64) -> bool {
        if self.catalog.segment_path(number).exists() {
            return false;
        }
        let mut known = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.deleted.contains(&number) {
            *known = history(&self.catalog.paths);
        }
        known.deleted.contains(&number)
    }

    /// The number of these segments that a recorder has deleted, by the log.
    pub(super) fn deleted_within(&self, numbers: Range<u64>) -> u64 {
        if numbers.is_empty() {
            return 0;
        }
        let mut known = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        *known = history(&self.catalog.paths);
        known.deleted.range(numbers).count() as u64
    }

    /// Contents of a segment when it was sealed, by the log; `None` if it had no packets of the window.
    fn sealed(&self, number: u64) -> Option<Sealed> {
        let known = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let sealed = known.sealed.get(&number).copied();
        sealed.filter(|sealed| self.window.overlaps(sealed.first, sealed.last))
    }

    /// Whether the roll-up of a segment has neither its times nor its keys to offer.
    fn is_ruled_out(&self, number: u64, account: &mut SearchAccount) -> bool {
        let Some(roll_up) = self.roll_up(number) else { return false };
        let Some((first, last)) = roll_up.times(number) else { return false };
        if !self.window.overlaps(first, last) {
            account.segments_by_time += 1;
            return true;
        }
        let is_open = |way: OpenKeys| roll_up.is_open(number, way);
        // What is damaged rules nothing out.
        let may = |fact: &Fact| {
            !roll_up.has_class(fact.class())
                || fact.ways().into_iter().any(is_open)
                || roll_up.may_have(fact.key()).unwrap_or(true)
        };
        let is_ruled_out = !is_open(OpenKeys::All) && !self.question.holds(&may);
        account.segments_by_roll_up += u64::from(is_ruled_out);
        is_ruled_out
    }

    fn roll_up(&self, segment: u64) -> Option<Arc<RollUp>> {
        let number = roll_up_of(segment);
        let mut known = self.roll_up.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != number {
            *known = (number, RollUp::read(&self.catalog, number).map(Arc::new));
        }
        known.1.clone()
    }

    /// `None` if the segment is gone.
    fn open(&self, number: u64) -> io::Result<Option<(Vec<Stretch>, SearchAccount)>> {
        let path = self.catalog.segment_path(number);
        let file = match PieceFile::open(&path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let len = file.file().metadata()?.len().min(self.catalog.segment_len);
        let index = self.catalog.index(number);
        let is_packed = is_packed(&path);
        let mut segment = Arc::new(OpenSegment { number, file, len, is_packed, unfinished_from: u64::MAX });
        let mut account = SearchAccount::default();
        if let Some(stretches) = index.and_then(|index| self.by_index(&index, &segment, &mut account)) {
            return Ok(Some((stretches, account)));
        }
        // Of an index that is damaged nothing is believed.
        account = SearchAccount::default();
        let (places, unfinished_from) = self.by_walk(&segment, &mut account)?;
        if let Some(segment) = Arc::get_mut(&mut segment) {
            segment.unfinished_from = unfinished_from;
        }
        Ok(Some((stretches(&segment, &places), account)))
    }

    /// The stretches that an index does not rule out; `None` if it is damaged.
    fn by_index(
        &self,
        index: &Index,
        segment: &Arc<OpenSegment>,
        account: &mut SearchAccount,
    ) -> Option<Vec<Stretch>> {
        let found = self.not_ruled_out(index, segment, account);
        account.index_bytes += index.read_len();
        found
    }

    fn not_ruled_out(
        &self,
        index: &Index,
        segment: &Arc<OpenSegment>,
        account: &mut SearchAccount,
    ) -> Option<Vec<Stretch>> {
        // An index that was made again leaves out chunks that were gone by then.
        let sealed = self.sealed(segment.number).map_or(0, |sealed| sealed.chunks);
        account.damage(sealed.saturating_sub(index.summary.chunks.into()));
        if !self.window.overlaps(index.summary.first, index.summary.last) {
            account.segments_by_time += 1;
            return Some(Vec::new());
        }
        let may = index.may_satisfy(&self.question)?;
        if !may.contains(&true) {
            account.segments_by_keys += 1;
            account.lost = account.lost.saturating_add(self.lost_in(index)?);
            return Some(Vec::new());
        }
        let rows = index.rows()?;
        account.segments_indexed += 1;
        let mut stretches = Vec::new();
        for (slot, row) in rows.iter().enumerate().filter(|(_, row)| row.chunks > 0) {
            account.chunks += u64::from(row.chunks);
            if !self.window.overlaps(row.first, row.last) {
                account.chunks_by_time += u64::from(row.chunks);
            } else if !may.get(slot).copied().unwrap_or(true) {
                account.chunks_by_keys += u64::from(row.chunks);
                account.lost = account.lost.saturating_add(row.lost.into());
            } else {
                let part = StretchContent::Slot(row.pages as usize * PAGE_LEN, row.chunks);
                let (segment, offset) = (Arc::clone(segment), slot as u64 * SLOT_LEN as u64);
                let first = row.first;
                stretches.push(Stretch { segment, offset, part, first, later: LATER_UNKNOWN });
            }
        }
        look_ahead(&mut stretches, rows.len() as u64 * SLOT_LEN as u64);
        Some(stretches)
    }

    /// Packets that a recording lost in the slots of a segment that overlap the window; `None` if the index is damaged.
    fn lost_in(&self, index: &Index) -> Option<u64> {
        let summary = &index.summary;
        let all = summary.lost.saturating_add(summary.dropped);
        let is_inside = self.window.has(summary.first) && self.window.has(summary.last);
        if all == 0 || is_inside {
            return Some(all);
        }
        let is_meant = |row: &&SlotRow| row.chunks > 0 && self.window.overlaps(row.first, row.last);
        let rows = index.rows()?;
        Some(rows.iter().filter(is_meant).map(|row| u64::from(row.lost)).sum())
    }

    /// The chunks of a segment that the times do not rule out, and where those begin that may be written just now: as
    /// many as a recorder has on their way to the disk. A later one may be whole before an earlier one is, so a place
    /// among them without a chunk is not damaged.
    fn by_walk(
        &self,
        segment: &OpenSegment,
        account: &mut SearchAccount,
    ) -> io::Result<(Vec<(ChunkSpan, Timestamp)>, u64)> {
        let OpenSegment { number, file, len, .. } = segment;
        // A recorder has written all chunks of a segment before it begins the next one: a missing index says nothing.
        let is_newest = self.catalog.numbers().is_ok_and(|numbers| numbers.last() == Some(number));
        let is_written = is_newest && (self.is_recorded || self.catalog.is_recorded());
        let sealed = self.sealed(*number).map_or(0, |sealed| sealed.chunks);
        let walk = Walk::new(file.file(), self.catalog.id, *number, self.catalog.segment_len)?;
        let mut walk = walk.sealed(sealed);
        account.segments_walked += 1;
        let mut places = Vec::new();
        // The last chunks found, each with the damaged places before it.
        let mut last = VecDeque::from([(0, 0)]);
        while let Some(found) = walk.next() {
            account.chunks += 1;
            last.push_back((found.offset, walk.damaged));
            if last.len() > WRITES_MAX {
                last.pop_front();
            }
            if self.window.overlaps(found.head.first, found.head.last) {
                places.push((ChunkSpan::of(&found), found.head.first));
            } else {
                account.chunks_by_time += 1;
            }
        }
        let (unfinished_from, damaged) = match last.front() {
            Some(first) if is_written => *first,
            _ => (u64::MAX, walk.damaged + u64::from(walk.is_begun() && !is_newest)),
        };
        // Of a segment that was cut nobody knows how many chunks it had.
        let damaged = damaged + u64::from(*len < self.catalog.segment_len);
        // A segment that was recycled meanwhile has chunks of another number, or none yet.
        if damaged + walk.missing() > 0 && !self.is_deleted(*number) {
            account.places_damaged += damaged;
            account.damage(walk.missing());
        }
        Ok((places, unfinished_from))
    }
}

/// Joins adjacent chunks to stretches; each has the least time of its packets.
pub(super) fn stretches(segment: &Arc<OpenSegment>, places: &[(ChunkSpan, Timestamp)]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    let (mut chunks, mut from, mut len, mut least) = (Vec::new(), 0, 0, LATER_UNKNOWN);
    let stretch = |offset, chunks: Vec<ChunkSpan>, first| {
        let (segment, part) = (Arc::clone(segment), StretchContent::Chunks(chunks));
        Stretch { segment, offset, part, first, later: LATER_UNKNOWN }
    };
    for (place, first) in places {
        if !chunks.is_empty() && (from + len != place.offset || len + u64::from(place.len) > SLOT_LEN as u64)
        {
            all.push(stretch(from, std::mem::take(&mut chunks), least));
        }
        if chunks.is_empty() {
            (from, len, least) = (place.offset, 0, *first);
        }
        chunks.push(*place);
        len += u64::from(place.len);
        least = least.min(*first);
    }
    if !chunks.is_empty() {
        all.push(stretch(from, chunks, least));
    }
    look_ahead(&mut all, places.last().map_or(0, |(place, _)| place.offset + u64::from(place.len)));
    all
}

/// Notes with each stretch how old packets behind it may be, in a segment whose chunks end at `end`.
fn look_ahead(stretches: &mut [Stretch], end: u64) {
    for at in 0..stretches.len() {
        let reach = (stretches[at].offset / SLOT_LEN as u64 + REACH + 1) * SLOT_LEN as u64;
        let next = stretches[at + 1..].iter().take_while(|next| next.offset < reach);
        let least = next.map(|next| next.first).min().unwrap_or(Timestamp::from_nanos(i64::MAX));
        stretches[at].later = if reach < end { least } else { LATER_UNKNOWN };
    }
}
