//! The chunk that takes packets now: begun in a free buffer at its place in the segment, closed when it is full.

use std::sync::mpsc::TryRecvError;

use tapline_file::InterfaceStatistics;
use tapline_packet::{Interface, Timestamp};

use super::writing::Job;
use super::{ChunkRoom, OPENING_LEN_MAX, Overload, ROOM_MIN, Recorder};
use crate::chunk::{CHUNK_LEN_MAX, ChunkBuffer, ChunkBuilder, ChunkHead};
use crate::error::Error;
use crate::layout::SLOT_LEN;

impl Recorder {
    /// Ends the current chunk and begins one that has room for a packet of this length.
    pub(super) fn make_room(
        &mut self,
        cap_len: usize,
        options_len: usize,
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<ChunkRoom, Error> {
        if self.is_open && self.chunk.packets() > 0 {
            self.close(&[], now)?;
            self.begin(interfaces, 0, now)?;
        }
        if !self.is_open {
            return Ok(ChunkRoom::Overloaded);
        }
        let needed = self.chunk.len_with(cap_len, options_len);
        if self.chunk.fits(cap_len, options_len) {
            return Ok(ChunkRoom::There);
        }
        if needed > CHUNK_LEN_MAX || needed as u64 + SLOT_LEN as u64 > self.segment_len {
            return Ok(ChunkRoom::Never);
        }
        // The current chunk has no packets yet: it is begun again with more room.
        self.begin(interfaces, needed, now)?;
        Ok(if self.is_open { ChunkRoom::There } else { ChunkRoom::Overloaded })
    }

    /// Computes the length of a chunk with these interfaces and without packets; an error if that is too long.
    pub(super) fn check_opening(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        let mut opening = self.builder();
        opening.begin(ChunkBuffer::default(), SLOT_LEN, interfaces);
        let len = opening.len_with(0, 0);
        if len > OPENING_LEN_MAX {
            let count = interfaces.len();
            return Err(Error::Setting(format!(
                "the descriptions of {count} interfaces take {len} bytes; a chunk has room for {OPENING_LEN_MAX}"
            )));
        }
        self.opening = (interfaces.len(), len);
        Ok(())
    }

    fn builder(&self) -> ChunkBuilder {
        ChunkBuilder::new(self.settings.snap_len).packed(self.settings.compress.is_some())
    }

    /// Begins a chunk that takes the rest of a slot, or several slots if a packet makes it `needed` bytes long. Under
    /// overload there may be no buffer for it: then there is no current chunk afterwards.
    pub(super) fn begin(
        &mut self,
        interfaces: &[Interface],
        needed: usize,
        now: Timestamp,
    ) -> Result<(), Error> {
        // A chunk that is begun again still has its buffer.
        self.is_open = false;
        let Some(buffer) =
            self.chunk.take_buffer().map_or_else(|| self.take_buffer(), |buffer| Ok(Some(buffer)))?
        else {
            return Ok(());
        };
        let slot_len = SLOT_LEN as u64;
        let needed = needed.max(self.opening.1);
        if self.room(needed).is_none() {
            self.at = self.at.next_multiple_of(slot_len);
        }
        if self.room(needed).is_none() && !self.next_segment(interfaces, now)? {
            self.spare = Some(buffer);
            return Ok(());
        }
        // A packet that needs several slots begins at the start of one.
        if self.room(needed).is_none() {
            self.at = slot_len;
        }
        let room = self.room(needed).unwrap_or(0);
        if let Some(index) = &mut self.index {
            index.begin_slot((self.at / slot_len) as u32);
        }
        self.chunk.begin(buffer, room, interfaces);
        (self.begun, self.is_open) = (None, true);
        Ok(())
    }

    /// A buffer for a chunk; `None` if none is free and the policy is not to wait for one.
    fn take_buffer(&mut self) -> Result<Option<ChunkBuffer>, Error> {
        if let Some(buffer) = self.spare.take() {
            return Ok(Some(buffer));
        }
        let taken = match self.load.policy {
            Overload::Wait => self.buffers.recv().map_err(|_| Error::Thread)?,
            policy => match self.buffers.try_recv() {
                Ok(buffer) => buffer,
                Err(TryRecvError::Disconnected) => return Err(Error::Thread),
                Err(TryRecvError::Empty) => {
                    self.load.look(0);
                    return Ok(if policy == Overload::Oldest { self.jobs.shed_oldest() } else { None });
                }
            },
        };
        self.load.look(self.progress.free.take());
        Ok(Some(taken))
    }

    /// Bytes for a chunk that begins at `self.at`; `None` if they are fewer than `needed`.
    fn room(&self, needed: usize) -> Option<usize> {
        let in_slot = (self.at % SLOT_LEN as u64) as usize;
        let room = match needed > SLOT_LEN && in_slot == 0 {
            true => needed.next_multiple_of(SLOT_LEN),
            false => SLOT_LEN - in_slot,
        };
        let fits = room >= needed.max(ROOM_MIN) && self.at + room as u64 <= self.segment_len;
        fits.then_some(room)
    }

    /// Seals the segment and begins the next one with a chunk without packets, for readers that want a section header
    /// at the start of a file. `false` if the index before the last is still being made and the policy is not to wait.
    fn next_segment(&mut self, interfaces: &[Interface], now: Timestamp) -> Result<bool, Error> {
        let next = match (&self.index, self.load.policy) {
            (None, _) => None,
            (Some(_), Overload::Wait) => Some(self.indexes.recv().map_err(|_| Error::Thread)?),
            (Some(_), _) => match self.indexes.try_recv() {
                Ok(index) => Some(index),
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => return Err(Error::Thread),
            },
        };
        let index = std::mem::replace(&mut self.index, next);
        self.send(Job::Seal { index })?;
        let mut opening = self.builder();
        opening.begin(ChunkBuffer::with_capacity(SLOT_LEN), SLOT_LEN, interfaces);
        let (buffer, head) = opening.finish(&[], now);
        self.at = u64::from(head.len);
        self.send(Job::Chunk { buffer, head: Box::new(head), offset: 0 })?;
        Ok(true)
    }

    /// Sends the current chunk, if there is one, to the writing thread, with the losses since the chunk before.
    pub(super) fn close(&mut self, statistics: &[InterfaceStatistics], now: Timestamp) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let (buffer, mut head) = self.chunk.finish(statistics, now);
        head.slot = (self.at / SLOT_LEN as u64) as u32;
        self.tell_counts(&mut head);
        head.is_unindexed = self.settings.index.is_none();
        head.index = self.settings.index.unwrap_or_default();
        self.handed += u64::from(head.packets);
        let offset = self.at;
        self.at += u64::from(head.len);
        self.begun = None;
        self.send(Job::Chunk { buffer, head: Box::new(head), offset })
    }

    /// Puts the counts since the head before into a head.
    pub(super) fn tell_counts(&mut self, head: &mut ChunkHead) {
        let since = |now: Option<u64>, told: Option<u64>| now.unwrap_or(0).saturating_sub(told.unwrap_or(0));
        head.received = since(self.losses.received, self.told.received);
        head.lost = since(self.losses.lost, self.told.lost);
        head.is_loss_unknown = self.is_told && self.losses.lost.is_none();
        self.told = self.losses;
        head.cut = self.cut.0 - self.cut.1;
        self.cut.1 = self.cut.0;
        head.refused = self.lost - self.lost_told;
        self.lost_told = self.lost;
        head.overload = self.load.untold();
    }
}
