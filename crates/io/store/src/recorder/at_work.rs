//! The store's thread: jobs in their order, several writes on their way, what they come to in the order of their
//! chunks.
//!
//! ```text
//! job: chunk --number, hash--> on its way --written--> counted, when all before it are
//!                                  '-- failed: all behind it are awaited, and written again in the next segment
//! job: sync                        once all writes on their way now have ended; another thread waits for the disk
//! job: seal, finish                when no write is on its way
//! ```

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use tapline_packet::Timestamp;

use super::overload::Jobs;
use super::sealer::{Sealer, Sealing};
use super::syncer::Syncer;
use super::writers::{Request, Target, Writers};
use super::writing::{ChunkPlace, Event, Job, Writing};
use crate::chunk::{ChunkBuffer, ChunkHead};
use crate::index::Builder;

/// The store's thread.
pub(super) struct AtWork {
    pub(super) writing: Writing,
    pub(super) writers: Writers,
    pub(super) sealer: Sealer,
    pub(super) syncer: Syncer,
    pub(super) events: Receiver<Event>,
    pub(super) buffers: SyncSender<ChunkBuffer>,
    /// Jobs that wait, perhaps for writes that are on their way.
    pub(super) jobs: Arc<Jobs>,
    pub(super) flights: VecDeque<Flight>,
    /// Writes begun so far.
    pub(super) flown: u64,
    /// Segments whose index is being made.
    pub(super) sealing: Vec<u64>,
    /// A file is being made ready for the next segment, or segments are being given up.
    pub(super) is_preparing: bool,
    /// The segment in which a file was requested last.
    pub(super) prepared_in: u64,
    /// A file that the disk is to keep, once no write up to this ticket is on its way.
    pub(super) wanted_sync: Option<(u64, Arc<Target>, PathBuf)>,
}

/// A chunk on its way to the disk.
pub(super) struct Flight {
    ticket: u64,
    head: Box<ChunkHead>,
    place: ChunkPlace,
    /// Positions of the segment and of the chain before this chunk.
    before: Before,
    /// The buffer and the result of the write.
    ended: Option<(ChunkBuffer, io::Result<()>)>,
}

/// Where the segment and the chain of chunks were.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) last: (u64, [u8; 32]),
    pub(super) filled: u64,
    pub(super) end: u64,
    pub(super) dropped: u64,
}

/// Result of a step on the first job.
#[derive(PartialEq, Eq)]
enum Step {
    Done,
    /// The job waits for an event.
    Waits,
    /// The job was the last one.
    Over,
}

impl AtWork {
    pub(super) fn run(&mut self) {
        loop {
            match self.step() {
                Step::Done => {}
                Step::Over => return,
                Step::Waits => match self.events.recv() {
                    Ok(event) => self.take(event),
                    Err(_) => return,
                },
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Written { ticket, buffer, result } => {
                if let Some(flight) = self.flights.iter_mut().find(|flight| flight.ticket == ticket) {
                    flight.ended = Some((buffer, result));
                }
                self.land();
            }
            event => self.take_while_failing(event),
        }
        self.start_sync();
        self.prepare_next();
    }

    /// Starts a sync, if one is due, once the writes that count have ended.
    fn start_sync(&mut self) {
        let first = self.flights.front().map_or(u64::MAX, |flight| flight.ticket);
        let is_due = |wanted: &mut (u64, Arc<Target>, PathBuf)| wanted.0 < first;
        if self.syncer.is_idle()
            && let Some((_, target, path)) = self.wanted_sync.take_if(is_due)
        {
            self.syncer.sync(target, path);
        }
    }

    /// Has a file made ready for the next segment, once for each segment.
    fn prepare_next(&mut self) {
        let number = self.writing.number();
        // The room of a segment that is being sealed is not known yet.
        let is_busy = self.is_preparing || !self.sealing.is_empty();
        if self.prepared_in == number || is_busy || !self.writing.wants_next() {
            return;
        }
        if self.sealer.prepare(&self.writing.segments) {
            (self.is_preparing, self.prepared_in) = (true, number);
        }
    }

    /// Deletes segments that are too old, in the thread that prepares files, as the disk may be slow.
    fn expire(&mut self, now: Timestamp) {
        let expired = self.writing.expired(now);
        if expired.is_empty() {
            return;
        }
        self.is_preparing = self.sealer.retire(&self.writing.segments, &expired);
        if !self.is_preparing {
            let retired = self.writing.segments.retire_all(&expired);
            self.writing.take_retired(retired);
        }
    }

    /// Does the first job, if nothing on its way keeps it back.
    fn step(&mut self) -> Step {
        let is_still = self.flights.is_empty();
        match self.jobs.pop() {
            None => Step::Waits,
            Some(Job::Chunk { buffer, head, offset }) if self.can_fly(offset) => {
                self.launch(buffer, head, offset);
                Step::Done
            }
            Some(Job::Chunk { buffer, head, offset }) if self.must_stay(offset) && self.is_quiet() => {
                let buffer = self.writing.chunk(buffer, *head, offset, None);
                self.give_back(buffer);
                Step::Done
            }
            Some(Job::Shed { head }) => {
                self.writing.shed(&head);
                Step::Done
            }
            Some(Job::Seal { index }) if self.is_quiet() => {
                self.seal(index, false);
                self.writing.begin_next();
                Step::Done
            }
            // A disk that takes longer than the interval holds up what comes: else more would be at stake than two
            // intervals.
            Some(Job::Sync { now }) if self.wanted_sync.is_none() && self.syncer.is_idle() => {
                let wanted = self.writing.begin_sync(!is_still);
                self.wanted_sync = wanted.map(|(target, path)| (self.flown, target, path));
                if self.sealing.is_empty() && !self.is_preparing {
                    self.expire(now);
                }
                self.start_sync();
                Step::Done
            }
            Some(Job::Finish { index, rest }) if is_still && !self.is_preparing => {
                self.writing.sync();
                self.seal(index, true);
                self.sealer.finish();
                while let Ok(event) = self.events.try_recv() {
                    self.take_while_failing(event);
                }
                self.writing.release_room();
                self.writing.note_ended(*rest);
                Step::Over
            }
            Some(Job::End) if is_still && !self.is_preparing => {
                self.writing.sync();
                Step::Over
            }
            Some(job) => {
                self.jobs.put_back(job);
                Step::Waits
            }
        }
    }

    /// Nothing is on its way, and no other thread works on segments: they may change.
    fn is_quiet(&self) -> bool {
        self.flights.is_empty() && self.sealing.is_empty() && !self.is_preparing
    }

    /// Whether a chunk must be written by this thread, and waited for.
    fn must_stay(&self, offset: u64) -> bool {
        self.writing.is_full() || self.writing.has_gap(offset) || self.writers.depth() == 0
    }

    fn can_fly(&self, offset: u64) -> bool {
        // The first chunk of a slot brings fillers, over which the next ones are written.
        let is_free = self.flights.is_empty() || offset >= self.writing.filled();
        let fails = || self.flights.iter().any(|flight| matches!(flight.ended, Some((_, Err(_)))));
        is_free && self.flights.len() < self.writers.depth() && !self.must_stay(offset) && !fails()
    }

    fn launch(&mut self, mut buffer: ChunkBuffer, mut head: Box<ChunkHead>, offset: u64) {
        let before = self.writing.before();
        self.writing.tell_untold(&mut head);
        let place = self.writing.prepare(&mut buffer, &mut head, offset);
        self.writing.go_to(&head, &place);
        self.flown += 1;
        let (ticket, target) = (self.flown, self.writing.target());
        let filler = place.filler.clone();
        self.flights.push_back(Flight { ticket, head, place, before, ended: None });
        self.writers.submit(Request { target, buffer, offset, filler, ticket });
    }

    /// Counts chunks that are written, in their order.
    fn land(&mut self) {
        while let Some(Flight { ended: Some((_, Ok(()))), .. }) = self.flights.front() {
            let Some(Flight { head, place, ended: Some((buffer, _)), .. }) = self.flights.pop_front() else {
                return;
            };
            self.writing.count_written(&head, &place);
            self.give_back(buffer);
        }
        let have_ended = self.flights.iter().all(|flight| flight.ended.is_some());
        if have_ended && !self.flights.is_empty() {
            self.write_again();
        }
    }

    /// The first chunk on its way failed and all others have ended: all are written once more, in their order and one
    /// at a time.
    fn write_again(&mut self) {
        while !self.sealing.is_empty() || self.is_preparing {
            let Ok(event) = self.events.recv() else { return };
            self.take_while_failing(event);
        }
        let flights = std::mem::take(&mut self.flights);
        let Some(first) = flights.front() else { return };
        self.writing.return_to(first.before);
        let (segment, left) = (self.writing.number(), self.writing.target());
        let mut places: Vec<_> = flights.iter().skip(1).map(|flight| flight.place.range()).collect();
        for Flight { head, place, ended, .. } in flights {
            let Some((mut buffer, result)) = ended else { continue };
            buffer.truncate(head.stored_len());
            // Those behind the first one are in no chain any more, whether they were written or not.
            let is_here = Arc::ptr_eq(&left, &self.writing.target());
            let failed = result.err().filter(|_| is_here);
            let buffer = self.writing.chunk(buffer, *head, place.offset, failed);
            self.give_back(buffer);
            if !Arc::ptr_eq(&left, &self.writing.target()) {
                self.writing.leave_places(segment, &left, std::mem::take(&mut places));
            }
        }
    }

    fn take_while_failing(&mut self, event: Event) {
        match event {
            Event::Job => {}
            Event::Sealed(number, places) => {
                self.sealing.retain(|sealing| *sealing != number);
                self.writing.segments.weigh_sealed(number, places);
            }
            Event::Prepared(prepared) => {
                self.is_preparing = false;
                self.writing.take_prepared(prepared);
            }
            Event::Retired(retired) => {
                self.is_preparing = false;
                self.writing.take_retired(retired);
            }
            Event::Synced => self.syncer.end(),
            // All writes have ended.
            Event::Written { .. } => {}
        }
    }

    fn give_back(&self, buffer: ChunkBuffer) {
        // The buffer of a packet longer than a slot is not kept. The recorder may be gone.
        let free = &self.writing.progress.free;
        free.give();
        if self.buffers.try_send(if buffer.is_of_slot() { buffer } else { ChunkBuffer::of_slot() }).is_err() {
            free.take();
        }
    }

    /// Has the index of the segment made. `is_last` if no segment follows.
    fn seal(&mut self, index: Option<Box<Builder>>, is_last: bool) {
        if self.writing.is_full() {
            // It was sealed before, and the chunks since are lost.
            index.into_iter().for_each(|index| self.sealer.give_back(index));
            return;
        }
        let gives_room = self.writing.gives_room(is_last);
        let (number, target, contents) = self.writing.close();
        self.sealing.push(number);
        self.sealer.seal(Sealing { number, target, contents, index, gives_room });
    }
}
