//! The thread that writes chunks to segments.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use tapline_packet::Timestamp;

use super::at_work::AtWork;
use super::at_work::Before;
use super::clearing::mark_gap;
use super::overload::{Jobs, Overload};
use super::progress::{Progress, add};
use super::reserve::Reserve;
use super::retention::Retention;
use super::sealer::Sealer;
use super::segments::{Fresh, Prepared, Retired, Segments};
use super::syncer::Syncer;
use super::writers::{Target, Writers};
use crate::catalog::Catalog;
use crate::chunk::{self, ChunkBuffer, ChunkBuilder, ChunkHead};
use crate::index::{Builder, Contents};
use crate::layout::{PAGE_LEN, SLOT_LEN, named};
use crate::log::{self, History, now};
use crate::packed::{PackedPlace, Packer};
use crate::recordings::Rest;

/// Interval between searches for expired segments, in nanoseconds.
const EXPIRE_EVERY_NS: i64 = 60_000_000_000;
/// Old segments that are given up at once: no segment begins meanwhile.
const EXPIRED_MAX: usize = 16;

/// The last part of a segment in which a file is made ready for the next one.
const PREPARED_SHARE: u64 = 8;
/// Interval between attempts to get a segment while there is none, in nanoseconds.
const RETRY_EVERY_NS: i64 = 1_000_000_000;
/// Order to the store's thread.
pub(super) enum Job {
    /// Writes a chunk at its place in the segment.
    Chunk { buffer: ChunkBuffer, head: Box<ChunkHead>, offset: u64 },
    /// A chunk that was given up under overload: its counts.
    Shed { head: Box<ChunkHead> },
    /// The segment is full: its index, if it has one, and the next segment. Its first chunk comes.
    Seal { index: Option<Box<Builder>> },
    /// Sync the disk; delete segments that are too old.
    Sync { now: Timestamp },
    /// The last one; the counts since the last chunk.
    Finish { index: Option<Box<Builder>>, rest: Box<ChunkHead> },
    /// The recorder is gone without having finished.
    End,
}

/// Event for the store's thread.
pub(super) enum Event {
    /// There is another job in the queue.
    Job,
    /// A write has ended, whichever way.
    Written { ticket: u64, buffer: ChunkBuffer, result: io::Result<()> },
    /// The index of a segment was made, as far as it could be. Its places of chunks if they are compressed and it has
    /// its whole room still.
    Sealed(u64, Option<Arc<[PackedPlace]>>),
    /// A file was made ready for the next segment, or not.
    Prepared(Prepared),
    /// Segments were given up, as far as they could be.
    Retired(Retired),
    /// The disk keeps everything written before the request, or the error was reported.
    Synced,
}

/// Position of a chunk, written or not yet, and its hash.
pub(super) struct ChunkPlace {
    pub(super) offset: u64,
    end: u64,
    slot_end: u64,
    hash: [u8; 32],
    /// The rest of the slot, if a filler has to be written there.
    pub(super) filler: Option<Range<u64>>,
}

impl ChunkPlace {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.end
    }
}

/// Counts of the source and of the caller's thread in the heads of chunks that could not be written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untold {
    received: u64,
    lost: u64,
    cut: u64,
    overload: u64,
    refused: u64,
}

/// A place that may have a chunk which was also written elsewhere.
pub(super) struct Doubtful {
    /// The segment's number.
    segment: u64,
    target: Arc<Target>,
    place: Range<u64>,
}

/// The state of the store.
pub(super) struct Writing {
    pub(super) segments: Segments,
    pub(super) reserve: Reserve,
    pub(super) number: u64,
    pub(super) target: Arc<Target>,
    pub(super) path: PathBuf,
    /// Chunks of the segment.
    pub(super) contents: Contents,
    /// The last chunk of the store: its number and hash.
    pub(super) last: (u64, [u8; 32]),
    /// End of the fillers and chunks in the current slot, in bytes of the segment.
    pub(super) filled: u64,
    /// Where the last chunk of the segment ends.
    pub(super) end: u64,
    /// Packets that could not be written since the last chunk that was.
    pub(super) dropped: u64,
    /// Counts of chunks that could not be written, for the head of the next one.
    pub(super) untold: Untold,
    /// The times of packets in chunks since the last one that was written, which are lost.
    pub(super) untold_times: Option<(Timestamp, Timestamp)>,
    pub(super) is_live: bool,
    pub(super) is_unsynced: bool,
    /// Places of segments that were left.
    pub(super) doubtful: Vec<Doubtful>,
    /// A filler of one page.
    pub(super) filler: Vec<u8>,
    /// Compresses chunks; `None` if they are not compressed.
    pub(super) packer: Option<Packer>,
    /// The segment was sealed and there was no next one yet: chunks are for that.
    pub(super) is_full: bool,
    /// Time of the last failed request for a segment, by the clock of chunks.
    pub(super) tried: Timestamp,
    /// The rule of `--keep`.
    pub(super) retention: Option<Retention>,
    pub(super) expired: Timestamp,
    pub(super) progress: Arc<Progress>,
    pub(super) snap_len: u32,
    pub(super) keeps_room: bool,
    pub(super) policy: Overload,
    /// The log as it was when the recording began.
    pub(super) history: History,
    /// Held as long as the store is recorded.
    pub(super) _lock: File,
}

impl Writing {
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Works until the last job.
    pub(super) fn run(
        mut self,
        jobs: Arc<Jobs>,
        events: (Sender<Event>, Receiver<Event>),
        buffers: SyncSender<ChunkBuffer>,
        indexes: SyncSender<Box<Builder>>,
    ) {
        let (sender, received) = events;
        let writers = Writers::start(self.segments.is_direct(), &sender);
        let catalog = self.segments.catalog().clone();
        let syncer = Syncer::start(self.progress(), sender.clone());
        let kept = (self.reserve.clone(), std::mem::take(&mut self.history));
        let sealer = Sealer::start(catalog, self.progress(), kept, indexes, sender);
        let mut at_work = AtWork {
            writing: self,
            writers,
            sealer,
            syncer,
            events: received,
            buffers,
            jobs,
            flights: VecDeque::new(),
            flown: 0,
            sealing: Vec::new(),
            is_preparing: false,
            prepared_in: 0,
            wanted_sync: None,
        };
        at_work.run();
    }

    /// Writes a chunk and waits for it; once more in the next segment if the disk fails here. `failed` is the disk's
    /// answer if it was tried before. Gives the buffer back.
    pub(super) fn chunk(
        &mut self,
        mut buffer: ChunkBuffer,
        mut head: ChunkHead,
        offset: u64,
        failed: Option<io::Error>,
    ) -> ChunkBuffer {
        let packets = u64::from(head.packets);
        let place = offset..offset + u64::from(head.len);
        self.tell_untold(&mut head);
        // Holds and failures are not asked about for each chunk.
        if self.is_full && (0..RETRY_EVERY_NS).contains(&head.closed.since(self.tried)) {
            self.lose(&head, place);
            return buffer;
        }
        let mut written = match (failed, self.is_full) {
            (Some(error), _) => Err(error),
            (None, true) => Err(io::Error::other("it is full")),
            (None, false) => self.write(&mut buffer, &mut head, offset),
        };
        if let Err(error) = &written {
            if !self.is_full {
                self.progress.tell(format!(
                    "{}: {error}; the segment is left, and the recording continues in the next",
                    self.path.display()
                ));
                self.note("failed", self.number);
            }
            buffer.truncate(head.stored_len());
            let (segment, left, was_full) = (self.number, self.target(), self.is_full);
            let has_moved = self.next_segment();
            self.is_full &= !has_moved;
            if has_moved && !was_full {
                // Bytes of a write that failed may have come to the disk all the same, and the chunk is written again.
                self.doubtful.push(Doubtful { segment, target: left, place: place.clone() });
                self.clear_doubtful();
            }
            // Where there is no next segment, the chunks of this one must not be written over.
            if has_moved && offset > 0 {
                self.open_segment();
            }
            if !self.is_full {
                written = self.write(&mut buffer, &mut head, offset);
            }
        }
        match written {
            Ok(written) => self.count_written(&head, &written),
            Err(error) => {
                if !self.is_full {
                    let path = self.path.display();
                    self.progress.tell(format!("{path}: {error}; {packets} packets are lost"));
                }
                self.tried = head.closed;
                self.lose(&head, place);
            }
        }
        buffer
    }

    /// Counts a chunk that cannot be written.
    fn lose(&mut self, head: &ChunkHead, place: Range<u64>) {
        let packets = u64::from(head.packets);
        // In a segment that is full nothing stands there; else a write that failed may have come to the disk.
        if !self.is_full {
            self.doubtful.push(Doubtful { segment: self.number, target: self.target(), place });
        }
        add(&self.progress.lost, packets);
        self.dropped += packets;
        let ChunkHead { received, lost, cut, overload, refused, .. } = *head;
        self.untold = Untold { received, lost, cut, overload, refused };
        self.note_times(head);
    }

    /// Notes the times of the packets of a chunk that is lost.
    fn note_times(&mut self, head: &ChunkHead) {
        if head.packets == 0 {
            return;
        }
        let (first, last) = self.untold_times.unwrap_or((head.first, head.last));
        self.untold_times = Some((first.min(head.first), last.max(head.last)));
    }

    /// Counts a chunk that was given up under overload.
    pub(super) fn shed(&mut self, head: &ChunkHead) {
        let packets = u64::from(head.packets);
        add(&self.progress.shed, packets);
        self.untold.received += head.received;
        self.untold.lost += head.lost;
        self.untold.cut += head.cut;
        self.untold.overload += head.overload + packets;
        self.untold.refused += head.refused;
        self.note_times(head);
    }

    /// Adds the counts of chunks that could not be written to the next head.
    pub(super) fn tell_untold(&mut self, head: &mut ChunkHead) {
        let Untold { received, lost, cut, overload, refused } = std::mem::take(&mut self.untold);
        head.refused = head.refused.saturating_add(refused);
        head.cut = head.cut.saturating_add(cut);
        head.overload = head.overload.saturating_add(overload);
        head.received = head.received.saturating_add(received);
        head.lost = head.lost.saturating_add(lost);
    }

    /// Counts a chunk that is written, and notes it for the index.
    pub(super) fn count_written(&mut self, head: &ChunkHead, place: &ChunkPlace) {
        self.contents.note(head, place.offset, place.hash);
        self.is_unsynced = true;
        self.untold_times = None;
        add(&self.progress.written, head.packets.into());
        add(&self.progress.bytes, head.stored_len() as u64);
        add(&self.progress.unpacked, head.len.into());
    }

    fn write(
        &mut self,
        buffer: &mut ChunkBuffer,
        head: &mut ChunkHead,
        offset: u64,
    ) -> io::Result<ChunkPlace> {
        let place = self.prepare(buffer, head, offset);
        self.leave_gap(offset)?;
        // The gap covers what could not be written here.
        let (segment, end) = (self.number, self.end);
        self.doubtful.retain(|one| one.segment != segment || one.place.start < end);
        self.target.write(buffer, offset, place.filler.clone())?;
        self.go_to(head, &place);
        Ok(place)
    }

    /// Completes a chunk for its place: compressed, once, then number, hash, checksum, and the fillers that come along.
    pub(super) fn prepare(
        &mut self,
        buffer: &mut ChunkBuffer,
        head: &mut ChunkHead,
        offset: u64,
    ) -> ChunkPlace {
        if let Some(packer) = self.packer.as_mut().filter(|_| head.packing.is_none()) {
            packer.pack_buffer(buffer, head);
        }
        let (before, previous) = self.last;
        head.store = self.segments.catalog().id;
        head.segment = self.number;
        head.number = before + 1;
        head.previous = previous;
        head.dropped = self.dropped.saturating_add(head.overload).saturating_add(head.refused);
        head.policy = self.policy;
        let hash = chunk::seal(&mut buffer.bytes_mut()[..head.stored_len()], head);
        // The first chunk of a slot brings the fillers behind it along, in the same write.
        let end = offset + u64::from(head.len);
        let slot_end = end.next_multiple_of(SLOT_LEN as u64);
        let filler = head.packing.map(|_| end..slot_end).filter(|rest| !rest.is_empty());
        if end > self.filled && head.packing.is_none() {
            let pages = (slot_end - end) as usize / PAGE_LEN;
            (0..pages).for_each(|_| buffer.tail().extend_from_slice(&self.filler));
        }
        ChunkPlace { offset, end, slot_end, hash, filler }
    }

    /// The next chunk follows this one.
    pub(super) fn go_to(&mut self, head: &ChunkHead, place: &ChunkPlace) {
        self.end = place.end;
        self.filled = self.filled.max(place.slot_end);
        self.last = (head.number, place.hash);
        self.dropped = 0;
    }

    pub(super) fn before(&self) -> Before {
        Before { last: self.last, filled: self.filled, end: self.end, dropped: self.dropped }
    }

    /// Takes chunks back that were prepared since.
    pub(super) fn return_to(&mut self, before: Before) {
        Before { last: self.last, filled: self.filled, end: self.end, dropped: self.dropped } = before;
    }

    pub(super) fn target(&self) -> Arc<Target> {
        Arc::clone(&self.target)
    }

    /// The number of the segment.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn filled(&self) -> u64 {
        self.filled
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether chunks are missing before this place.
    pub(super) fn has_gap(&self, offset: u64) -> bool {
        self.gap_start(offset) < offset
    }

    /// Places of a segment that was left whose chunks are written again elsewhere.
    pub(super) fn leave_places(&mut self, segment: u64, left: &Arc<Target>, places: Vec<Range<u64>>) {
        let doubtful = |place| Doubtful { segment, target: Arc::clone(left), place };
        self.doubtful.extend(places.into_iter().map(doubtful));
        self.clear_doubtful();
    }

    /// Returns the contents of a full segment and forgets them.
    pub(super) fn close(&mut self) -> (u64, Arc<Target>, Contents) {
        self.is_unsynced = false;
        (self.number, self.target(), std::mem::take(&mut self.contents))
    }

    /// Begins the segment after one that is full.
    pub(super) fn begin_next(&mut self) {
        self.is_full = !self.next_segment();
    }

    fn gap_start(&self, offset: u64) -> u64 {
        // Fillers stand in the rest of a slot that has a chunk.
        let slot_end = self.end.next_multiple_of(SLOT_LEN as u64);
        if slot_end <= offset { slot_end } else { self.end }
    }

    /// Marks the bytes between the last chunk and `offset` as gaps, none of which crosses a slot's end. There are such
    /// bytes after chunks could not be written.
    fn leave_gap(&mut self, offset: u64) -> io::Result<()> {
        let slot_len = SLOT_LEN as u64;
        let mut at = self.gap_start(offset);
        while at < offset {
            let next = offset.min((at / slot_len + 1) * slot_len);
            mark_gap(&self.target.file, at..next, self.packer.is_some())?;
            at = next;
        }
        Ok(())
    }

    /// Overwrites places with gaps whose chunks were written elsewhere. Tries again later where the disk refuses it.
    fn clear_doubtful(&mut self) {
        let (segments, is_packed) = (&self.segments, self.packer.is_some());
        self.doubtful.retain(|one| {
            // Its file may be another segment's by now.
            if !segments.has(one.segment) {
                return false;
            }
            let mut at = one.place.start;
            while at < one.place.end {
                let next = one.place.end.min((at / SLOT_LEN as u64 + 1) * SLOT_LEN as u64);
                if mark_gap(&one.target.file, at..next, is_packed).is_err() {
                    return true;
                }
                at = next;
            }
            false
        });
    }

    /// Goes on in another file. `false`, said, if there is none: then the segment stays.
    fn next_segment(&mut self) -> bool {
        let next = self.segments.next();
        self.segments.take_changes().tell(&self.progress);
        match next {
            Ok(Fresh { number, target }) => {
                (self.number, self.target) = (number, Arc::new(target));
                self.path = named(&self.segments.catalog().segment_path(number));
                self.contents = Contents::new(self.segments.catalog().segment_len());
                (self.filled, self.end) = (0, 0);
                add(&self.progress.segments, 1);
                if self.is_full {
                    self.progress.tell(format!("segment {number} is begun: the recording continues"));
                }
                self.note("begun", number);
                true
            }
            Err(error) => {
                if !self.is_full {
                    self.progress.tell(error.to_string());
                }
                false
            }
        }
    }

    /// A chunk of one page at the start of a segment that takes the place of one that failed: files begin with a
    /// section.
    fn open_segment(&mut self) {
        let mut builder = ChunkBuilder::new(self.snap_len).packed(self.packer.is_some());
        builder.begin(ChunkBuffer::with_capacity(SLOT_LEN), PAGE_LEN, &[]);
        let (mut buffer, mut head) = builder.finish(&[], now());
        match self.write(&mut buffer, &mut head, 0) {
            Ok(written) => self.count_written(&head, &written),
            Err(error) => self.progress.tell(format!("{}: {error}", self.path.display())),
        }
    }

    /// Whether the segment gives back the room that compression left, once it is sealed. `is_last` if none follows.
    pub(super) fn gives_room(&self, is_last: bool) -> bool {
        is_last && !self.keeps_room || self.segments.has_whole()
    }

    /// Whether a file should be made ready for the next segment.
    pub(super) fn wants_next(&self) -> bool {
        let len = self.segments.catalog().segment_len();
        self.end > len - len / PREPARED_SHARE && !self.is_full && !self.segments.has_cleared()
    }

    /// Takes the file that was prepared. Without one the next segment is requested when it begins, which reports the
    /// error.
    pub(super) fn take_prepared(&mut self, prepared: Prepared) {
        self.segments.take_prepared(prepared);
        self.segments.take_changes().tell(&self.progress);
    }

    /// The file to sync next: that of the segment, if chunks were written to it or `is_flying` says that some are being
    /// written.
    pub(super) fn begin_sync(&mut self, is_flying: bool) -> Option<(Arc<Target>, PathBuf)> {
        self.clear_doubtful();
        let is_needed = std::mem::take(&mut self.is_unsynced) || is_flying;
        is_needed.then(|| (self.target(), self.path.clone()))
    }

    /// Syncs written data to the disk.
    pub(super) fn sync(&mut self) {
        self.clear_doubtful();
        if std::mem::take(&mut self.is_unsynced)
            && let Err(error) = self.target.file.sync_data()
        {
            self.progress.tell(format!("{}: the disk does not keep it: {error}", self.path.display()));
        }
    }

    /// Segments that are too old now; some of them, if they are many.
    pub(super) fn expired(&mut self, now: Timestamp) -> Vec<u64> {
        let Some(retention) = &mut self.retention else { return Vec::new() };
        let before = retention.look(now.as_nanos());
        if (0..EXPIRE_EVERY_NS).contains(&now.since(self.expired)) {
            return Vec::new();
        }
        let expired = self.segments.expired(before);
        let mut expired =
            expired.inspect_err(|error| self.progress.tell(error.to_string())).unwrap_or_default();
        // The others go at the next flush.
        if expired.len() <= EXPIRED_MAX {
            self.expired = now;
        }
        expired.truncate(EXPIRED_MAX);
        expired
    }

    /// Learns of segments that another thread gave up.
    pub(super) fn take_retired(&mut self, retired: Retired) {
        self.segments.take_retired(retired);
        self.segments.take_changes().tell(&self.progress);
    }

    /// Notes the end of the recording, with the counts that no chunk has. `rest` has those of the caller's thread.
    pub(super) fn note_ended(&mut self, mut rest: ChunkHead) {
        self.tell_untold(&mut rest);
        if self.packer.is_some() {
            self.progress.tell_packed();
        }
        let now = rest.closed;
        let (first, last) = self.untold_times.unwrap_or((now, now));
        let dropped = self.dropped.saturating_add(rest.overload).saturating_add(rest.refused);
        let rest = Rest {
            segment: self.number,
            lost: rest.lost,
            lost_unknown: rest.is_loss_unknown,
            dropped,
            cut: rest.cut,
            first_ns: first.as_nanos(),
            // A source loses packets up to the end.
            last_ns: if self.is_live { last.max(now) } else { last }.as_nanos(),
        };
        if let Err(error) = self.segments.catalog().note_ended(now, rest) {
            self.progress.tell(error.to_string());
        }
    }

    /// After the last chunk: gives room back that is not kept for a later recording.
    pub(super) fn release_room(&mut self) {
        if self.keeps_room {
            return;
        }
        if let Err(error) = self.segments.release_room().and_then(|()| self.reserve.release()) {
            self.progress.tell(error.to_string());
        }
    }

    pub(super) fn note(&self, event: &str, segment: u64) {
        note(self.segments.catalog(), event, segment);
    }
}

/// A line in the store's log. A log that cannot be written keeps nothing else from being written.
pub(super) fn note(catalog: &Catalog, event: &str, segment: u64) {
    let event = serde_json::json!({ "event": event, "segment": segment });
    let _ = log::append(&catalog.paths, event);
}

/// The line of a segment that is about to be deleted, on the disk.
pub(super) fn note_deletion(catalog: &Catalog, event: &str, segment: u64) {
    let event = serde_json::json!({ "event": event, "segment": segment });
    let _ = log::append_synced(&catalog.paths, event);
}

#[cfg(test)]
mod tests;
