//! Counters of a search: segments and chunks by outcome.

use std::ops::AddAssign;

use serde::Serialize;

/// Counters of a search: each segment and each chunk is in one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SearchAccount {
    /// Segments of the store: when the search began, and those that it followed since.
    pub segments: u64,
    /// Segments that were skipped because of their times.
    pub segments_by_time: u64,
    /// Passed over because no segment of their roll-up has the keys.
    pub segments_by_roll_up: u64,
    /// Passed over because no slot has the keys.
    pub segments_by_keys: u64,
    /// Gone, or recycled, before the search came to them.
    pub segments_gone: u64,
    /// Not to be read: no regular file, or the system refuses.
    pub segments_unreadable: u64,
    /// Segments not among `segments`: removed or renamed by somebody else than a recorder, and perhaps in the window.
    pub segments_missing: u64,
    /// Looked into by their index.
    pub segments_indexed: u64,
    /// Looked into without an index: being recorded, or of a recorder that was killed.
    pub segments_walked: u64,
    /// Not come to: the search goes on, or was stopped.
    pub segments_left: u64,
    /// Chunks of the segments that were looked into.
    pub chunks: u64,
    /// Chunks that were skipped because of their times.
    pub chunks_by_time: u64,
    /// Passed over because their slot does not have the keys.
    pub chunks_by_keys: u64,
    /// Read.
    pub chunks_read: u64,
    /// Not as they were written, or not to be read.
    pub chunks_damaged: u64,
    /// Overwritten before the search came to them.
    pub chunks_gone: u64,
    /// Not yet whole: the last ones of the segment that is being recorded.
    pub chunks_unfinished: u64,
    /// Not come to: the search goes on, or was stopped.
    pub chunks_left: u64,
    /// Places in walked segments that hold neither chunks nor fillers.
    pub places_damaged: u64,
    /// Bytes of chunks that were read.
    pub bytes_read: u64,
    /// Bytes of indexes that were read.
    pub index_bytes: u64,
    /// Packets in the chunks that were read and intact.
    #[serde(skip)]
    pub packets: u64,
    /// Packets that were given out behind newer ones: they were recorded more than [`REACH`](super::REACH) slots behind
    /// them.
    pub late: u64,
    /// Packets that the recordings lost, before the recorder and in it, in the window: by the chunks of the segments
    /// that were read, and behind the last chunk of a recording.
    #[serde(rename = "lost_while_recorded")]
    pub lost: u64,
    /// Recordings that were broken off in the window, and chunks whose source did not count: `lost` is then a lower
    /// bound.
    pub losses_unknown: u64,
}

impl SearchAccount {
    /// Chunks, places and segments that could not be read: packets in them are not found.
    pub fn unread(&self) -> u64 {
        let segments = self.segments_unreadable.saturating_add(self.segments_missing);
        segments.saturating_add(self.chunks_damaged + self.places_damaged)
    }

    /// Warnings about packets that may be missing, a line each; `store` is the directory.
    pub fn warnings(&self, store: &str) -> Vec<String> {
        let counted = |count: u64, name: &str| match count {
            1 => format!("1 {name} is"),
            _ => format!("{count} {name}s are"),
        };
        let mut warnings = Vec::new();
        if let damaged @ 1.. = self.chunks_damaged + self.places_damaged {
            let chunks = counted(damaged, "chunk");
            warnings.push(format!(
                "{chunks} damaged and not searched: packets may be missing; tapline store verify {store} names them"
            ));
        }
        if self.segments_unreadable > 0 {
            let segments = counted(self.segments_unreadable, "segment");
            warnings.push(format!("{segments} not readable and not searched: packets may be missing"));
        }
        if self.segments_missing > 0 {
            let segments = counted(self.segments_missing, "segment");
            warnings.push(format!(
                "{segments} missing, and no recorder deleted them: packets may be missing; tapline store check {store} \
                 names them"
            ));
        }
        warnings
    }

    /// Whether `lost` is a lower bound: some losses are unknown, or are in segments that were not read.
    pub fn is_lost_at_least(&self) -> bool {
        let not_looked_into =
            self.segments_by_roll_up + self.segments_gone + self.segments_left + self.unread();
        self.losses_unknown + not_looked_into + self.chunks_gone + self.chunks_left > 0
    }

    /// Adds chunks that were recorded and are gone.
    pub(super) fn damage(&mut self, chunks: u64) {
        self.chunks = self.chunks.saturating_add(chunks);
        self.chunks_damaged = self.chunks_damaged.saturating_add(chunks);
    }

    /// Whether each segment and each chunk is in one place.
    pub fn is_balanced(&self) -> bool {
        let looked_into = self.segments_indexed + self.segments_walked;
        let segments = self.segments_by_time + self.segments_by_roll_up + self.segments_by_keys + looked_into;
        let segments = segments + self.segments_gone + self.segments_unreadable + self.segments_left;
        let passed = self.chunks_by_time + self.chunks_by_keys + self.chunks_left;
        let chunks =
            passed + self.chunks_read + self.chunks_damaged + self.chunks_gone + self.chunks_unfinished;
        self.segments == segments && self.chunks == chunks
    }
}

const _: () = assert!(size_of::<SearchAccount>() == 25 * size_of::<u64>(), "a sum has each counter");

impl SearchAccount {
    fn counters_mut(&mut self) -> [&mut u64; 25] {
        [
            &mut self.segments,
            &mut self.segments_by_time,
            &mut self.segments_by_roll_up,
            &mut self.segments_by_keys,
            &mut self.segments_gone,
            &mut self.segments_unreadable,
            &mut self.segments_missing,
            &mut self.segments_indexed,
            &mut self.segments_walked,
            &mut self.segments_left,
            &mut self.chunks,
            &mut self.chunks_by_time,
            &mut self.chunks_by_keys,
            &mut self.chunks_read,
            &mut self.chunks_damaged,
            &mut self.chunks_gone,
            &mut self.chunks_unfinished,
            &mut self.chunks_left,
            &mut self.places_damaged,
            &mut self.bytes_read,
            &mut self.index_bytes,
            &mut self.packets,
            &mut self.late,
            &mut self.lost,
            &mut self.losses_unknown,
        ]
    }
}

impl AddAssign for SearchAccount {
    fn add_assign(&mut self, mut other: SearchAccount) {
        for (ours, theirs) in self.counters_mut().into_iter().zip(other.counters_mut()) {
            // What heads say may be anything.
            *ours = ours.saturating_add(*theirs);
        }
    }
}
