//! The end of a recording that goes on: chunks as they are written.

use std::io;
use std::sync::Arc;

use tapline_packet::Timestamp;
use tapline_sys::disk::PieceFile;

use super::SearchAccount;
use super::plan::{ChunkSpan, OpenSegment, Plan, Stretch, stretches};
use crate::layout::is_packed;
use crate::recorder::WRITES_MAX;
use crate::walk::{FoundChunk, Walk};

/// Position in a recording that is followed.
#[derive(Default)]
pub(super) struct Tail {
    /// The segment that is followed; 0 for none yet.
    number: u64,
    open: Option<Arc<OpenSegment>>,
    /// Where the last chunk ends that was taken.
    end: u64,
    /// Number of that chunk; 0 for none yet.
    last: u64,
    /// The number of the last chunk that was taken before a recorder deleted the next ones; 0 if it deleted none.
    gone_behind: u64,
}

/// A chunk at the end of a recording that goes on.
struct TailChunk {
    found: FoundChunk,
    is_whole: bool,
}

impl Tail {
    /// Follows from the start of a segment on.
    pub(super) fn of(number: Option<u64>) -> Tail {
        Tail { number: number.unwrap_or(0), ..Tail::default() }
    }

    /// Segments that were counted and not looked into.
    pub(super) fn segments_left(&self) -> u64 {
        u64::from(self.number > 0 && self.open.is_none())
    }
}

impl Plan {
    /// The stretches that were recorded since the last call.
    pub(super) fn tail(&self, tail: &mut Tail, account: &mut SearchAccount) -> Vec<Stretch> {
        let numbers = self.catalog.numbers().unwrap_or_default();
        let mut all = Vec::new();
        loop {
            // A segment is sealed before the next one begins.
            let next = numbers.iter().copied().find(|number| *number > tail.number);
            if tail.number > 0 {
                all.extend(self.since(tail, next.is_some(), account));
            }
            let Some(number) = next else { return all };
            let gone_behind = if tail.number > 0 { self.count_gone(tail, number, account) } else { 0 };
            account.segments += 1;
            *tail = Tail { gone_behind, ..Tail::of(Some(number)) };
        }
    }

    /// Counts segments that a recorder deleted before this follower came to them. Returns the number of the last chunk
    /// that was taken if the next ones are gone with them, or with the segment that was followed.
    fn count_gone(&self, tail: &Tail, next: u64, account: &mut SearchAccount) -> u64 {
        let gone = self.deleted_within(tail.number + 1..next);
        account.segments += gone;
        account.segments_gone += gone;
        match gone > 0 || self.is_deleted(tail.number) {
            true if tail.last > 0 => tail.last,
            _ => tail.gone_behind,
        }
    }

    /// Chunks of the segment that is followed.
    fn since(&self, tail: &mut Tail, is_sealed: bool, account: &mut SearchAccount) -> Vec<Stretch> {
        if tail.open.is_none() {
            match self.open_tail(tail.number) {
                Ok(segment) => {
                    account.segments_walked += 1;
                    tail.open = Some(Arc::new(segment));
                }
                Err(_) if !is_sealed => return Vec::new(),
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_deleted(tail.number) => {
                    account.segments_gone += 1;
                }
                Err(_) => account.segments_unreadable += 1,
            }
        }
        let Some(mut segment) = tail.open.clone() else { return Vec::new() };
        let walk = Walk::new(segment.file.file(), self.catalog.id, tail.number, self.catalog.segment_len);
        let Ok(walk) = walk else { return Vec::new() };
        let chunks = chunks(&segment, walk.from(tail.end));
        // A recorder may rename a segment before its first chunk: compressed chunks where plain ones were to be, or
        // the other way round. The name is looked at after the chunks, which come behind it.
        if tail.end == 0
            && is_packed(&self.catalog.segment_path(tail.number)) != segment.is_packed
            && let Ok(renamed) = self.open_tail(tail.number)
        {
            segment = Arc::new(renamed);
            tail.open = Some(Arc::clone(&segment));
        }
        // A recorder has no more chunks than this on their way to the disk, and a later one may be there first.
        let newest = chunks.iter().filter(|chunk| chunk.is_whole).map(|chunk| chunk.found.head.number).max();
        let settled = newest.unwrap_or(0).saturating_sub(WRITES_MAX as u64);
        let mut places = Vec::new();
        for TailChunk { found, is_whole } in chunks {
            let (span, FoundChunk { offset, head }) = (ChunkSpan::of(&found), found);
            // A segment has its first chunk at its start, and numbers have no gaps.
            let is_next = offset == 0 || head.number == tail.last + 1;
            let is_settled = is_sealed || head.number <= settled;
            if !(is_settled || is_whole && is_next) {
                // It is being written, or one before it is.
                break;
            }
            (tail.end, tail.last) = (offset + u64::from(head.len), head.number);
            // Numbers have no gaps: those between were gone before they were looked at.
            let behind = std::mem::take(&mut tail.gone_behind);
            let gone = if behind > 0 { head.number.saturating_sub(behind + 1) } else { 0 };
            account.chunks += gone + 1;
            account.chunks_gone += gone;
            match self.window.overlaps(head.first, head.last) {
                true => places.push((span, head.first)),
                false => account.chunks_by_time += 1,
            }
        }
        let mut stretches = stretches(&segment, &places);
        // Packets that are recorded later are not waited for.
        stretches.iter_mut().for_each(|stretch| stretch.later = Timestamp::from_nanos(i64::MAX));
        stretches
    }

    fn open_tail(&self, number: u64) -> io::Result<OpenSegment> {
        let path = self.catalog.segment_path(number);
        let file = PieceFile::open(&path, false)?;
        let len = file.file().metadata()?.len().min(self.catalog.segment_len);
        Ok(OpenSegment { number, file, len, is_packed: is_packed(&path), unfinished_from: u64::MAX })
    }
}

/// The chunks from a place on, whether they are whole or not.
fn chunks(segment: &OpenSegment, mut walk: Walk<'_>) -> Vec<TailChunk> {
    let mut bytes = Vec::new();
    let chunk =
        |found: FoundChunk| TailChunk { is_whole: found.read(segment.file.file(), &mut bytes), found };
    std::iter::from_fn(|| walk.next()).map(chunk).collect()
}
