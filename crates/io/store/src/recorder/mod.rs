//! The recorder: batches of packets become chunks, and chunks are written to segments.
//!
//! ```text
//! caller's thread   batch --encode, keys--> chunk buffer --full, or older than `flush_ns`--> job
//! store             job --compress, number, hash, checksum--> write;   segment full --> next segment
//! store-write (4)   write --> disk, with O_DIRECT where the file system takes it
//! store-index       full segment --> index;   segment almost full --> a file for the next one, cleared;   expired --> spare
//! store-sync        fdatasync(2), every `sync_ns`
//! buffers           are allocated when the recorder opens, and go back to the caller's thread after the write
//! ```
//!
//! The caller's thread writes no packets to files. If all buffers wait for the disk, the policy [`Overload`] decides:
//! by default [`Recorder::write`] blocks until one is free; packets then queue in the source's ring, and the source
//! counts those that the ring drops.

mod access;
mod at_work;
mod clearing;
mod cutoff;
mod filling;
mod opening;
mod overload;
mod progress;
mod reserve;
mod retention;
mod sealer;
mod segments;
mod settings;
mod syncer;
mod writers;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use tapline_file::{InterfaceStatistics, blocks};
use tapline_packet::{Batch, Headers, Interface, Packet, Selection, Timestamp};
use tapline_sys::Folder;

use crate::chunk::{ChunkBuffer, ChunkBuilder, ChunkHead, STATISTICS_LEN};
use crate::error::Error;
use crate::index::Builder;
use crate::layout::{PAGE_LEN, Paths, SLOT_LEN};
pub use cutoff::Cutoff;
use cutoff::{Cutter, FlowVerdict};
pub use overload::Overload;
use overload::{Jobs, OverloadState};
use progress::Progress;
pub use settings::{Losses, RecorderSettings, Totals};
pub(crate) use writers::WRITES_MAX;
use writing::{Event, Job, Writing};

/// Bytes that must be left in a slot for another chunk to begin there; fewer bytes become fillers.
const ROOM_MIN: usize = 64 << 10;
/// Packets whose fingerprints are computed before the first of them is written, so that cache lines of the index come
/// meanwhile.
const GROUP: usize = 16;
/// The longest chunk without packets, in bytes: descriptions of all interfaces, and room for their statistics.
const OPENING_LEN_MAX: usize = SLOT_LEN / 2;

/// Writes packets to a store. It holds the store's lock: a second recorder gets [`Error::Locked`].
pub struct Recorder {
    root: PathBuf,
    /// Whether this recorder made the store's directory.
    is_made: bool,
    /// Number of interfaces that a chunk describes, and the bytes of such a chunk without packets.
    opening: (usize, usize),
    settings: RecorderSettings,
    chunk: ChunkBuilder,
    index: Option<Box<Builder>>,
    /// Offset in the segment at which the current chunk will begin, in bytes.
    at: u64,
    segment_len: u64,
    /// When the first packet of the current chunk came; `None` for a chunk without packets.
    begun: Option<Timestamp>,
    /// Packets in chunks that were sent to the writing thread.
    handed: u64,
    /// Packets that were never sent to it: too long for a segment, of an unknown interface, or after an error. All of
    /// them, and those that heads of chunks already count.
    lost: u64,
    lost_told: u64,
    cutter: Option<Cutter>,
    /// Packets beyond the cut-off of their flow: all of them, and those that heads of chunks already count.
    cut: (u64, u64),
    load: OverloadState,
    /// Whether there is a current chunk: not while all buffers wait for the disk.
    is_open: bool,
    /// A buffer for a chunk that could not be begun.
    spare: Option<ChunkBuffer>,
    synced: Timestamp,
    losses: Losses,
    told: Losses,
    /// Whether the source was asked for its losses.
    is_told: bool,
    jobs: Arc<Jobs>,
    events: Sender<Event>,
    buffers: Receiver<ChunkBuffer>,
    indexes: Receiver<Box<Builder>>,
    progress: Arc<Progress>,
    /// Resources of the writing thread until it is started: by the first `write` or `tick`, since a thread made by
    /// `open` would keep the privileges that the caller drops afterwards.
    waiting: Option<Box<Waiting>>,
    thread: Option<JoinHandle<()>>,
    is_finished: bool,
}

/// Whether a packet has a place in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkRoom {
    There,
    /// The packet is too long for any chunk.
    Never,
    /// No buffer is free.
    Overloaded,
}

/// Resources that the writing thread takes over when it starts.
struct Waiting {
    writing: Writing,
    jobs: Arc<Jobs>,
    events: (Sender<Event>, Receiver<Event>),
    give: SyncSender<ChunkBuffer>,
    give_index: SyncSender<Box<Builder>>,
}

impl Recorder {
    /// Opens the store in a directory for recording, or makes a new one. Disk space for all segments, indexes and the
    /// log is reserved here. After a crash, the last segment is continued, an erasure that was cut off is completed,
    /// and indexes of the newest 3 segments without one are made again.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds the lock; [`Error::NoRoom`] if the file system has too little free
    /// space; [`Error::Setting`] for settings out of range; [`Error::NoSegment`] and [`Error::AllHeld`] if no segment
    /// can be begun; and those of [`Catalog::open`](crate::Catalog::open).
    pub fn open(
        root: &Path,
        settings: RecorderSettings,
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<Recorder, Error> {
        let cutter = Cutter::new(&settings.cutoffs, settings.overload == Overload::Flows)?;
        let begun = Writing::open(root, &settings, now)?;
        let (segment_len, at) = (begun.segment_len, begun.at);
        let (index, spare, is_made) = (begun.index, begun.spare, begun.is_made);
        // One buffer is filled while another is written.
        let count = settings.buffers.max(2);
        let (events, received) = channel();
        let (give, buffers) = sync_channel(count);
        let (give_index, indexes) = sync_channel(2);
        let progress = begun.writing.progress();
        for _ in 0..count {
            // The channel has room for `count` buffers, so this cannot fail.
            let _ = give.try_send(ChunkBuffer::of_slot());
            progress.free.give();
        }
        if let Some(spare) = spare {
            let _ = give_index.try_send(spare);
        }
        let (writing, jobs) = (begun.writing, Arc::<Jobs>::default());
        let of_thread = Arc::clone(&jobs);
        let waiting =
            Waiting { writing, jobs: of_thread, events: (events.clone(), received), give, give_index };
        let mut recorder = Recorder {
            root: root.to_owned(),
            is_made,
            opening: (0, 0),
            chunk: ChunkBuilder::new(settings.snap_len).packed(settings.compress.is_some()),
            index,
            at,
            segment_len,
            begun: None,
            handed: 0,
            lost: 0,
            lost_told: 0,
            cutter,
            cut: (0, 0),
            load: OverloadState { policy: settings.overload, buffers: count, ..OverloadState::default() },
            is_open: false,
            spare: None,
            synced: now,
            losses: Losses::default(),
            told: Losses::default(),
            is_told: false,
            jobs,
            events,
            buffers,
            indexes,
            progress,
            waiting: Some(Box::new(waiting)),
            thread: None,
            is_finished: false,
            settings,
        };
        // Each segment begins with a chunk without packets: pcapng readers want a section header at the start of a
        // file.
        recorder.check_opening(interfaces)?;
        recorder.begin(interfaces, 0, now)?;
        if at == 0 {
            recorder.close(&[], now)?;
            recorder.begin(interfaces, 0, now)?;
        }
        Ok(recorder)
    }

    /// Bytes of a chunk that the description of an interface takes, with room for its statistics. A chunk describes
    /// each interface of the recording, in [`DESCRIPTIONS_LEN_MAX`](Self::DESCRIPTIONS_LEN_MAX) at most.
    pub fn description_len(interface: &Interface, snap_len: u32) -> usize {
        let mut block = Vec::new();
        blocks::interface(&mut block, interface, snap_len);
        block.len() + STATISTICS_LEN
    }

    /// Bytes of a chunk that descriptions of interfaces may take.
    pub const DESCRIPTIONS_LEN_MAX: usize = OPENING_LEN_MAX - PAGE_LEN;

    /// Copies the selected packets into chunks. `interfaces` is the source's table, which may grow between calls. While
    /// all buffers wait for the disk, it blocks or gives packets up, as [`Overload`] says. `now` is the wall clock.
    ///
    /// # Errors
    /// [`Error::Access`] if the process may not write the store, once it has given up privileges; [`Error::Thread`] if
    /// the writing thread has ended; [`Error::File`] if it cannot be started; [`Error::Setting`] if the descriptions of
    /// the interfaces take more than 512 KiB. Packets not taken count as lost.
    pub fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.start().inspect_err(|_| self.lost += selection.len() as u64)?;
        let mut left = selection.len() as u64;
        // While all flows that come are refused no chunk takes a buffer.
        self.load.look(self.progress.free.count());
        if self.opening.0 < interfaces.len() {
            // A chunk describes its interfaces at its start: new ones need a new chunk.
            let begun = self.check_opening(interfaces).and_then(|()| self.close(&[], now));
            begun.and_then(|()| self.begin(interfaces, 0, now)).inspect_err(|_| self.lost += left)?;
        } else if !self.is_open {
            self.begin(interfaces, 0, now).inspect_err(|_| self.lost += left)?;
        }
        let (mut selected, mut group, mut headers) = (selection.iter(), [(0, 0); GROUP], [None; GROUP]);
        let has_headers = self.needs_headers();
        loop {
            let mut len = 0;
            for (place, packet) in group.iter_mut().zip(selected.by_ref()) {
                let (flow, parsed) = self.look(batch.packet(packet), interfaces);
                *place = (packet, flow);
                if has_headers {
                    headers[len] = parsed;
                }
                len += 1;
            }
            if len == 0 {
                return Ok(());
            }
            for ((packet, flow), headers) in group[..len].iter().zip(&headers) {
                let known = (*flow, headers.as_ref());
                self.write_packet(batch, *packet, known, interfaces, now)
                    .inspect_err(|_| self.lost += left)?;
                left -= 1;
            }
        }
    }

    /// Whether headers of packets are needed for more than the fingerprint of their flow.
    #[inline]
    fn needs_headers(&self) -> bool {
        self.cutter.is_some() || self.index.as_ref().is_some_and(|index| index.needs_headers())
    }

    /// The fingerprint of a packet's flow, for the index, and its headers, for names, cut-offs and the policy under
    /// overload: parsed once for all of them.
    #[inline]
    fn look(&self, packet: Packet<'_>, interfaces: &[Interface]) -> (u64, Option<Headers>) {
        let Some(interface) = interfaces.get(packet.meta.interface.0 as usize) else { return (0, None) };
        match (&self.index, &self.cutter) {
            (None, None) => (0, None),
            (Some(index), _) if !self.needs_headers() => (index.fingerprint(interface, packet), None),
            (index, _) => {
                let headers = Headers::parse(interface.link_type, packet);
                let of = |index: &Builder| index.fingerprint_parsed(interface, packet, &headers);
                (index.as_deref().map_or(0, of), Some(headers))
            }
        }
    }

    /// Copies a packet into the chunk, or into the next one.
    #[inline]
    fn write_packet(
        &mut self,
        batch: &Batch<'_>,
        place: usize,
        (flow, headers): (u64, Option<&Headers>),
        interfaces: &[Interface],
        now: Timestamp,
    ) -> Result<(), Error> {
        let packet = batch.packet(place);
        if let (Some(cutter), Some(headers)) = (&mut self.cutter, headers) {
            let verdict = cutter.verdict(packet, headers, self.load.refuses_flows());
            self.cut.0 += u64::from(verdict == FlowVerdict::Cut);
            self.load.refused.0 += u64::from(verdict == FlowVerdict::Refused);
            if verdict != FlowVerdict::Recorded {
                return Ok(());
            }
        }
        let options = batch.options(place);
        let (cap_len, options_len) = (packet.data.len(), options.len());
        let room = match self.is_open && self.chunk.fits(cap_len, options_len) {
            true => ChunkRoom::There,
            false => self.make_room(cap_len, options_len, interfaces, now)?,
        };
        match (room, interfaces.get(packet.meta.interface.0 as usize)) {
            (ChunkRoom::There, Some(interface)) => {
                if let Some(index) = &mut self.index {
                    index.note(interface, packet, flow, headers);
                }
                self.chunk.push(&packet, interface, options);
                self.begun.get_or_insert(now);
            }
            (ChunkRoom::Overloaded, Some(_)) => self.load.refuse_without_buffer(),
            (ChunkRoom::Never, _) | (_, None) => self.lost += 1,
        }
        Ok(())
    }

    /// Writes the current chunk if it is older than `flush_ns`; every `sync_ns`, flushes written chunks to the disk and
    /// deletes segments older than `keep_ns`. Callers call it several times per second, also without packets. `losses`
    /// and `statistics` go into the chunk.
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
        (self.losses, self.is_told) = (losses, true);
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

    /// Writes the current chunk, seals the segment and waits for the writing thread to end. A second call does nothing.
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
        (self.losses, self.is_told) = (losses, true);
        let closed = self.close(statistics, now);
        let index = self.index.take();
        // Where there is no chunk, as under overload, nothing has told of the last losses yet.
        let mut rest = Box::new(ChunkHead { closed: now, ..ChunkHead::default() });
        self.tell_counts(&mut rest);
        let sealed = self.send(Job::Finish { index, rest });
        let joined = self.thread.take().is_none_or(|thread| thread.join().is_ok());
        closed.and(sealed)?;
        if joined { Ok(()) } else { Err(Error::Thread) }
    }

    /// Starts the writing thread, once; it inherits the privileges that the caller has at that time, which must
    /// suffice.
    fn start(&mut self) -> Result<(), Error> {
        if self.waiting.is_some() {
            access::check(&Paths::new(&self.root))?;
        }
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            let Waiting { writing, jobs, events, give, give_index } = *waiting;
            writing.run(jobs, events, give, give_index);
        });
        self.thread = Some(thread.map_err(Error::file("start a thread for", &self.root))?);
        Ok(())
    }

    /// Makes a user the owner of the store's files, for a process that goes on as this user: it must own `seg/` to
    /// rename segments, and read holds. The store's directory changes its owner only if this recorder made it; files in
    /// it that are not the store's keep theirs.
    ///
    /// # Errors
    /// [`Error::File`] if lchown(2) fails, as it does without `CAP_CHOWN`.
    pub fn give_to(&self, uid: u32, gid: u32) -> Result<(), Error> {
        let mut all: Vec<PathBuf> = Vec::new();
        let names = ["seg", "roll", "holds"].map(|name| self.root.join(name));
        // By their descriptors: another may be put in their place meanwhile.
        let folders: Vec<Folder> = names.iter().filter_map(|path| Folder::open_no_link(path).ok()).collect();
        for folder in folders.iter().map(|folder| folder.path_of("".as_ref())) {
            let entries = std::fs::read_dir(&folder).map_err(Error::file("read", &folder))?;
            all.extend(entries.flatten().map(|entry| entry.path()));
        }
        let own = ["store.toml", "lock", "log", "recordings", "reserve", "seg", "roll", "holds"];
        let own = own.map(|name| self.root.join(name));
        all.extend(own.into_iter().filter(|path| path.exists()));
        all.extend(self.is_made.then(|| self.root.clone()));
        for path in all {
            std::os::unix::fs::lchown(&path, Some(uid), Some(gid))
                .map_err(Error::file("give away", &path))?;
        }
        Ok(())
    }

    /// Counters up to now.
    pub fn totals(&self) -> Totals {
        let mut totals = self.progress.totals();
        totals.lost += self.lost;
        totals.cut = self.cut.0;
        let done = totals.written + totals.lost - self.lost + totals.overloaded();
        let [newest, _, flows] = &mut totals.overload;
        *newest += self.load.without_buffer;
        *flows += self.load.refused.0 - self.load.without_buffer;
        totals.buffered = (self.handed + u64::from(self.chunk.packets())).saturating_sub(done);
        if self.is_finished {
            // The thread has ended: chunks that it did not write are lost.
            totals.lost += std::mem::take(&mut totals.buffered);
        }
        totals
    }

    /// Messages for the user since the last call, one sentence each: disk errors, segments left, indexes made again.
    pub fn news(&self) -> Vec<String> {
        self.progress.news()
    }

    fn send(&self, job: Job) -> Result<(), Error> {
        self.jobs.push(job);
        self.events.send(Event::Job).map_err(|_| Error::Thread)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Chunks that were sent are written; the current chunk is not.
        if let Some(thread) = self.thread.take() {
            let _ = self.send(Job::End);
            let _ = thread.join();
        }
    }
}
