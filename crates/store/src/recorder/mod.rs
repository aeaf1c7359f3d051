//! Packets into a store.
//!
//! ```text
//! caller's thread   batch --encode, keys--> chunk buffer --full, or a second old--> job
//! store             job --number, hash, checksum--> write;   segment full --> next segment
//! store-write (4)   write --> disk, past the page cache where that goes
//! store-index       full segment --> index
//! buffers           go back and forth; none is made while packets come
//! ```
//!
//! The caller's thread never touches a file. Where all buffers are on their way to the disk it waits for one: the source's own
//! buffer then takes what comes, and its counters what it loses.

mod at_work;
mod cutoff;
mod opening;
mod reserve;
mod retention;
mod sealer;
mod segments;
mod writers;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use tapline_file::InterfaceStatistics;
use tapline_packet::{Batch, Interface, Packet, Selection, Timestamp};

use crate::chunk::{CHUNK_LEN_MAX, ChunkBuffer, ChunkBuilder};
use crate::error::Error;
use crate::index::{Builder, IndexOptions};
use crate::layout::{SEGMENT_LEN_DEFAULT, SLOT_LEN};
pub use cutoff::Cutoff;
use cutoff::Cutter;
use writing::{Event, Job, Progress, Writing};

/// The least room in a slot for another chunk; less is left to fillers.
const ROOM_MIN: usize = 64 << 10;
/// The most bytes of a chunk without packets: each chunk describes all interfaces and has room for their counters.
const OPENING_LEN_MAX: usize = SLOT_LEN / 2;

/// How a store is recorded.
#[derive(Clone, Debug)]
pub struct RecorderSettings {
    /// Bytes of all segments together; at least two segments.
    pub size: u64,
    /// Bytes of a segment, 4 MiB to 4 GiB; `None` for those of a store that is there, and 1 GiB of one that is made.
    pub segment_len: Option<u64>,
    /// Packets older than this many nanoseconds are given up, a segment at a time; `None` to keep them as long as there is room.
    pub keep_ns: Option<i64>,
    /// How long packets may wait for others before they are written and can be found, in nanoseconds.
    pub flush_ns: i64,
    /// How long written packets may be lost to a power failure, in nanoseconds.
    pub sync_ns: i64,
    /// The most bytes of a packet; what interfaces of the segments say that do not know theirs.
    pub snap_len: u32,
    /// What the index has besides what it always has; `None` for no index: searches then walk the chunks.
    pub index: Option<IndexOptions>,
    /// How much of each flow is recorded: the first that means a flow counts. Empty for all of each.
    pub cutoffs: Vec<Cutoff>,
    /// Chunk buffers of 1 MiB between the capture and the disk, 2 or more.
    pub buffers: usize,
}

impl Default for RecorderSettings {
    fn default() -> RecorderSettings {
        RecorderSettings {
            size: 10 * SEGMENT_LEN_DEFAULT,
            segment_len: None,
            keep_ns: None,
            flush_ns: 1_000_000_000,
            sync_ns: 5_000_000_000,
            snap_len: 262_144,
            index: Some(IndexOptions::default()),
            cutoffs: Vec::new(),
            buffers: 32,
        }
    }
}

/// What the source counted since the recording began; `None` where it cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets received, stored or not.
    pub received: Option<u64>,
    /// Packets lost before the recorder.
    pub lost: Option<u64>,
}

/// What became of packets, and of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets in chunks that the system took.
    pub written: u64,
    /// Packets that could not be stored.
    pub lost: u64,
    /// Packets that were left out by wish: beyond the cut-off of their flow.
    pub cut: u64,
    /// Packets in a chunk that is not written yet.
    pub buffered: u64,
    /// Bytes of chunks that the system took.
    pub bytes: u64,
    /// Bytes of the indexes of sealed segments.
    pub index_bytes: u64,
    /// Segments begun.
    pub segments: u64,
    /// Segments whose oldest packets made room for new ones.
    pub recycled: u64,
}

/// Writes packets to a store. One store has one recorder.
pub struct Recorder {
    root: PathBuf,
    /// Whether the directory was made for the store.
    is_made: bool,
    /// Interfaces that the last chunk began with, and the bytes of such a chunk without packets.
    opening: (usize, usize),
    settings: RecorderSettings,
    chunk: ChunkBuilder,
    index: Option<Box<Builder>>,
    /// Where the chunk that is gathered will begin in its segment.
    at: u64,
    segment_len: u64,
    /// When the first packet of the chunk came.
    begun: Option<Timestamp>,
    /// Packets handed to the thread.
    handed: u64,
    /// Packets that were not handed to the thread: too long for a segment, of an unknown interface, after a failure.
    lost: u64,
    cutter: Option<Cutter>,
    /// Packets left out by wish, and those that a chunk has told of.
    cut: (u64, u64),
    synced: Timestamp,
    losses: Losses,
    told: Losses,
    events: Sender<Event>,
    buffers: Receiver<ChunkBuffer>,
    indexes: Receiver<Box<Builder>>,
    progress: Arc<Progress>,
    /// What the thread will have: it begins with the first packet or tick, when its caller has given up the rights that opening took.
    waiting: Option<Box<Waiting>>,
    thread: Option<JoinHandle<()>>,
    is_finished: bool,
}

/// What the writing thread works with.
struct Waiting {
    writing: Writing,
    events: (Sender<Event>, Receiver<Event>),
    give: SyncSender<ChunkBuffer>,
    give_index: SyncSender<Box<Builder>>,
}

impl Recorder {
    /// Opens the store in a directory for recording, or makes it. Segments are reserved at once, so that the disk cannot be full
    /// later; a recording that was broken off is put in order.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NoRoom`], [`Error::Setting`], and those of [`Catalog::open`](crate::Catalog::open).
    pub fn open(
        root: &Path,
        settings: RecorderSettings,
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<Recorder, Error> {
        let cutter = Cutter::new(&settings.cutoffs)?;
        let begun = Writing::open(root, &settings, now)?;
        let (segment_len, at) = (begun.segment_len, begun.at);
        let (index, spare, is_made) = (begun.index, begun.spare, begun.is_made);
        // One is gathered while another is written.
        let count = settings.buffers.max(2);
        let (events, received) = channel();
        let (give, buffers) = sync_channel(count);
        let (give_index, indexes) = sync_channel(2);
        for _ in 0..count {
            // As many as there is room for.
            let _ = give.try_send(ChunkBuffer::of_slot());
        }
        if let Some(spare) = spare {
            let _ = give_index.try_send(spare);
        }
        let writing = begun.writing;
        let progress = writing.progress();
        let waiting = Waiting { writing, events: (events.clone(), received), give, give_index };
        let mut recorder = Recorder {
            root: root.to_owned(),
            is_made,
            opening: (0, 0),
            chunk: ChunkBuilder::new(settings.snap_len),
            index,
            at,
            segment_len,
            begun: None,
            handed: 0,
            lost: 0,
            cutter,
            cut: (0, 0),
            synced: now,
            losses: Losses::default(),
            told: Losses::default(),
            events,
            buffers,
            indexes,
            progress,
            waiting: Some(Box::new(waiting)),
            thread: None,
            is_finished: false,
            settings,
        };
        // A file that begins with a section is one that every program reads.
        recorder.check_opening(interfaces)?;
        recorder.begin(interfaces, 0, now)?;
        if at == 0 {
            recorder.close(&[], now)?;
            recorder.begin(interfaces, 0, now)?;
        }
        Ok(recorder)
    }

    /// Takes the selected packets. `interfaces` is the source's table, which may have grown.
    ///
    /// # Errors
    /// [`Error::Thread`] where nothing can be written any more; the packets are counted as lost.
    pub fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.start().inspect_err(|_| self.lost += selection.len() as u64)?;
        let mut left = selection.len() as u64;
        if self.opening.0 < interfaces.len() {
            // Descriptions of new interfaces may have no room in the chunk: another one begins with them.
            let begun = self.check_opening(interfaces).and_then(|()| self.close(&[], now));
            begun.and_then(|()| self.begin(interfaces, 0, now)).inspect_err(|_| self.lost += left)?;
        }
        for index in selection.iter() {
            let packet = batch.packet(index);
            if self.is_cut(packet, interfaces) {
                left -= 1;
                continue;
            }
            let options = batch.options(index);
            let (cap_len, options_len) = (packet.data.len(), options.len());
            let has_room = self.chunk.fits(cap_len, options_len)
                || self
                    .make_room(cap_len, options_len, interfaces, now)
                    .inspect_err(|_| self.lost += left)?;
            match interfaces.get(packet.meta.interface.0 as usize).filter(|_| has_room) {
                Some(interface) => {
                    if let Some(index) = &mut self.index {
                        index.note(interface, packet);
                    }
                    self.chunk.push(&packet, interface, options);
                    self.begun.get_or_insert(now);
                }
                None => self.lost += 1,
            }
            left -= 1;
        }
        Ok(())
    }

    /// Whether a packet is beyond the cut-off of its flow; it is counted then.
    #[inline]
    fn is_cut(&mut self, packet: Packet<'_>, interfaces: &[Interface]) -> bool {
        let Some(cutter) = &mut self.cutter else { return false };
        let interface = interfaces.get(packet.meta.interface.0 as usize);
        let is_cut = interface.is_some_and(|interface| !cutter.keeps(interface, packet));
        self.cut.0 += u64::from(is_cut);
        is_cut
    }

    /// What goes by the clock: chunks that have waited long enough are written, and what was written is made safe. To be called several
    /// times a second.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn tick(
        &mut self,
        losses: Losses,
        statistics: &[InterfaceStatistics],
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.start()?;
        self.losses = losses;
        // A clock that was set back must not keep packets waiting.
        let is_due = |since: Timestamp, after: i64| !(0..after).contains(&now.since(since));
        if self.begun.is_some_and(|begun| is_due(begun, self.settings.flush_ns)) {
            self.close(statistics, now)?;
            self.begin(interfaces, 0, now)?;
        }
        if is_due(self.synced, self.settings.sync_ns) {
            self.synced = now;
            self.send(Job::Sync { now })?;
        }
        Ok(())
    }

    /// Writes what is gathered and seals the segment.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(
        &mut self,
        statistics: &[InterfaceStatistics],
        losses: Losses,
        now: Timestamp,
    ) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        self.start()?;
        self.losses = losses;
        let closed = self.close(statistics, now);
        let index = self.index.take();
        let sealed = self.send(Job::Finish { index });
        let joined = self.thread.take().is_none_or(|thread| thread.join().is_ok());
        closed.and(sealed)?;
        if joined { Ok(()) } else { Err(Error::Thread) }
    }

    /// Begins to write, in a thread that has the rights which its caller has now.
    fn start(&mut self) -> Result<(), Error> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            let Waiting { writing, events, give, give_index } = *waiting;
            writing.run(events, give, give_index);
        });
        self.thread = Some(thread.map_err(Error::file("start a thread for", &self.root))?);
        Ok(())
    }

    /// Gives the store's files to a user, who goes on to record: renaming segments takes the owner of their directory. The
    /// store's directory is given only if it was made for the store; other things in it are left alone.
    ///
    /// # Errors
    /// [`Error::File`] without the right to.
    pub fn give_to(&self, uid: u32, gid: u32) -> Result<(), Error> {
        let segments = self.root.join("seg");
        let entries = std::fs::read_dir(&segments).map_err(Error::file("read", &segments))?;
        let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let own = ["store.toml", "lock", "log", "reserve", "seg", "roll"].map(|name| self.root.join(name));
        all.extend(own.into_iter().filter(|path| path.exists()));
        all.extend(self.is_made.then(|| self.root.clone()));
        for path in all {
            std::os::unix::fs::lchown(&path, Some(uid), Some(gid))
                .map_err(Error::file("give away", &path))?;
        }
        Ok(())
    }

    /// What became of packets up to now.
    pub fn totals(&self) -> Totals {
        let mut totals = self.progress.totals();
        totals.lost += self.lost;
        totals.cut = self.cut.0;
        let done = totals.written + totals.lost - self.lost;
        totals.buffered = (self.handed + u64::from(self.chunk.packets())).saturating_sub(done);
        if self.is_finished {
            // What the thread did not come to is lost.
            totals.lost += std::mem::take(&mut totals.buffered);
        }
        totals
    }

    /// What happened that a person should know of, since the last call.
    pub fn news(&self) -> Vec<String> {
        self.progress.news()
    }

    /// Ends the chunk, and begins one in which a packet of this length has room. `false` if no chunk has.
    fn make_room(
        &mut self,
        cap_len: usize,
        options_len: usize,
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<bool, Error> {
        if self.chunk.packets() > 0 {
            self.close(&[], now)?;
            self.begin(interfaces, 0, now)?;
        }
        let needed = self.chunk.len_with(cap_len, options_len);
        if self.chunk.fits(cap_len, options_len) {
            return Ok(true);
        }
        if needed > CHUNK_LEN_MAX || needed as u64 + SLOT_LEN as u64 > self.segment_len {
            return Ok(false);
        }
        // Nothing is in it yet.
        self.begin(interfaces, needed, now)?;
        Ok(true)
    }

    /// Notes how long a chunk with these interfaces is without packets.
    fn check_opening(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        let mut opening = ChunkBuilder::new(self.settings.snap_len);
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

    /// Begins a chunk of a slot's rest, or one that is long enough for a packet that needs `needed` bytes in all.
    fn begin(&mut self, interfaces: &[Interface], needed: usize, now: Timestamp) -> Result<(), Error> {
        let slot_len = SLOT_LEN as u64;
        let needed = needed.max(self.opening.1);
        if self.room(needed).is_none() {
            self.at = self.at.next_multiple_of(slot_len);
        }
        if self.room(needed).is_none() {
            self.next_segment(interfaces, now)?;
        }
        // A packet that needs several slots begins at the start of one.
        if self.room(needed).is_none() {
            self.at = slot_len;
        }
        let room = self.room(needed).unwrap_or(0);
        if let Some(index) = &mut self.index {
            index.begin_slot((self.at / slot_len) as u32);
        }
        // A chunk that is begun again has the buffer still.
        let buffer = match self.chunk.take_buffer() {
            Some(buffer) => buffer,
            None => self.buffers.recv().map_err(|_| Error::Thread)?,
        };
        self.chunk.begin(buffer, room, interfaces);
        self.begun = None;
        Ok(())
    }

    /// Bytes for a chunk that begins here; `None` if they are not enough.
    fn room(&self, needed: usize) -> Option<usize> {
        let in_slot = (self.at % SLOT_LEN as u64) as usize;
        let room = match needed > SLOT_LEN && in_slot == 0 {
            true => needed.next_multiple_of(SLOT_LEN),
            false => SLOT_LEN - in_slot,
        };
        let fits = room >= needed.max(ROOM_MIN) && self.at + room as u64 <= self.segment_len;
        fits.then_some(room)
    }

    /// The rest is for the next segment, which begins with a chunk without packets: every program reads a file that begins with a section.
    fn next_segment(&mut self, interfaces: &[Interface], now: Timestamp) -> Result<(), Error> {
        let index = match self.index.take() {
            Some(index) => {
                self.index = Some(self.indexes.recv().map_err(|_| Error::Thread)?);
                Some(index)
            }
            None => None,
        };
        self.send(Job::Seal { index })?;
        let mut opening = ChunkBuilder::new(self.settings.snap_len);
        opening.begin(ChunkBuffer::with_capacity(SLOT_LEN), SLOT_LEN, interfaces);
        let (buffer, head) = opening.finish(&[], now);
        self.at = u64::from(head.len);
        self.send(Job::Chunk { buffer, head: Box::new(head), offset: 0 })
    }

    /// Hands the chunk to the thread, if there is something in it or the segment has none yet.
    fn close(&mut self, statistics: &[InterfaceStatistics], now: Timestamp) -> Result<(), Error> {
        let (buffer, mut head) = self.chunk.finish(statistics, now);
        head.slot = (self.at / SLOT_LEN as u64) as u32;
        let since = |now: Option<u64>, told: Option<u64>| now.unwrap_or(0).saturating_sub(told.unwrap_or(0));
        head.received = since(self.losses.received, self.told.received);
        head.lost = since(self.losses.lost, self.told.lost);
        head.is_loss_unknown = self.losses.lost.is_none();
        self.told = self.losses;
        head.cut = self.cut.0 - self.cut.1;
        self.cut.1 = self.cut.0;
        self.handed += u64::from(head.packets);
        let offset = self.at;
        self.at += u64::from(head.len);
        self.begun = None;
        self.send(Job::Chunk { buffer, head: Box::new(head), offset })
    }

    fn send(&self, job: Job) -> Result<(), Error> {
        self.events.send(Event::Job(job)).map_err(|_| Error::Thread)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // What was handed over is written.
        if let Some(thread) = self.thread.take() {
            let _ = self.send(Job::End);
            let _ = thread.join();
        }
    }
}
