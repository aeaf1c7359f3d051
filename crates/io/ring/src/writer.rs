//! The writer of one PBuf, and of the indices of all its readers.
//!
//! ```text
//! for each batch:  make_room (lossless readers only), replay_before (readers of the past only)
//!                  store(batch, what anybody wants)        each packet once
//!                  index(reader, what it wants, verdict)   16 bytes for each
//!                  publish(now)                            heads, one fence, sleepers woken
//! between batches: replay (readers of the past only)
//! now and then:    tick, reap, set_source
//! ```
//!
//! One thread owns the writer. It never waits for a reader but in [`Writer::wait_for`], and calls the system only to
//! wake sleepers.

mod readers;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, LinkType, Selection, Timestamp};
use tapline_sys::{Bell, Memfd, Seals};

use crate::account::{Account, SourceCounts};
use crate::atomic::Relaxed;
use crate::layout::{BLOCK_LEN_DEFAULT, ENTRIES, Geometry, Guarantee, index_len};
use crate::producer::{EntryWords, Producer, to_words};
use crate::reader::ReaderParts;
use crate::store::{Facts, HistoryPacket, StartPosition, Store};
use crate::{Error, layout};
use readers::{Attached, Readers};

/// The most readers that one PBuf has.
pub const READERS_MAX: usize = 1024;

/// Settings of a new PBuf.
#[derive(Clone, Copy, Debug)]
pub struct BufferSpec {
    /// Bytes of a block, the unit that readers hold and the writer overwrites: a power of two, 4096 to 2^30.
    pub block_len: u32,
    /// Blocks: a power of two, 4 to 2^20.
    pub blocks: u32,
    /// The link type: the first header of each packet.
    pub link_type: LinkType,
    /// Packets are cut to this many bytes. At most a block's length less 192.
    pub snap_len: u32,
    /// The capture worker, for readers that merge several buffers.
    pub worker: u32,
}

impl BufferSpec {
    /// 64 blocks of 1 MiB, packets of up to 262,144 bytes.
    pub fn new(link_type: LinkType) -> BufferSpec {
        BufferSpec { block_len: BLOCK_LEN_DEFAULT, blocks: 64, link_type, snap_len: 262_144, worker: 0 }
    }
}

/// The policy for a reader that is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The reader loses packets, which are counted, and copies those that it reads.
    Lossy,
    /// Unread packets stay within a credit, and the reader reads them in place. Beyond the credit it becomes lossy,
    /// and is notified.
    Leased {
        /// The reader's lag at most, in bytes of the buffer, rounded up to blocks; half of the buffer at most.
        bytes: u64,
        /// The longest that a packet may be unread, counted from the last packet of its block.
        time: Duration,
    },
    /// The writer waits for the reader, as long as the writer's caller decides.
    Lossless,
}

/// Settings of a new reader.
#[derive(Clone, Copy, Debug)]
pub struct ReaderSpec {
    /// The policy for a reader that is too slow.
    pub policy: Policy,
    /// Entries of its index, the most packets that can wait for it: a power of two, 16 to 2^24.
    pub entries: u32,
}

impl ReaderSpec {
    /// With an index of 65,536 entries, 1 MiB.
    pub fn new(policy: Policy) -> ReaderSpec {
        ReaderSpec { policy, entries: 1 << 16 }
    }

    /// Bytes of its index.
    pub fn memory(&self) -> u64 {
        index_len(u64::from(self.entries))
    }
}

/// A reader of one writer. The value is never given to another reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReaderId {
    slot: u32,
    number: u32,
}

/// A reader that was added: its number for the writer, and the descriptors for its process.
#[derive(Debug)]
pub struct NewReader {
    /// Number of the reader for the writer.
    pub id: ReaderId,
    /// The descriptors for [`Reader::open`](crate::Reader::open). Passed on by SCM_RIGHTS, or inherited.
    pub parts: ReaderParts,
}

/// A reader that was taken away.
#[derive(Clone, Copy, Debug)]
pub struct DetachedReader {
    /// The reader.
    pub id: ReaderId,
    /// The fate of its packets, to the last.
    pub account: Account,
}

/// The progress of a reader that began in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayProgress {
    /// All published packets were offered. Before another batch is stored the reader can
    /// [`finish_replay`](Writer::finish_replay).
    Done,
    /// There are more packets to look at.
    More,
    /// There are more packets, and its index is full until the reader has read.
    Full,
}

/// Whether lossless readers have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRoom {
    /// All of them have room for the whole batch.
    Ready,
    /// This reader must read first.
    Blocked(ReaderId),
}

/// The packets stored of the last batch, as entries without a verdict; a position of 0 for one that could not be
/// stored.
struct Last {
    /// By place in the batch.
    by_index: [EntryWords; BATCH_MAX],
    /// One after the other.
    stretch: [EntryWords; BATCH_MAX],
    len: usize,
    /// Whether all of it is in the buffer. Not so if the batch was larger than the buffer, or no block was free.
    is_whole: bool,
}

impl Default for Last {
    fn default() -> Last {
        Last { by_index: [[0; 2]; BATCH_MAX], stretch: [[0; 2]; BATCH_MAX], len: 0, is_whole: true }
    }
}

/// The writer of a PBuf.
pub struct Writer {
    file: Memfd,
    store: Store,
    generation: u64,
    readers: Readers,
    last: Box<Last>,
    /// The latest time of a stored packet.
    latest: Option<Timestamp>,
}

impl Writer {
    /// Makes a buffer. All of its memory is reserved and touched here, which takes some 60 ms for 64 MiB, and its
    /// seals are tried. `now` goes into the header.
    ///
    /// Minimum kernel: 5.1.
    ///
    /// # Errors
    /// [`Error::Size`] for numbers outside of their ranges, [`Error::System`] if memory is refused,
    /// [`Error::SealBroken`] if readers could write.
    pub fn create(spec: &BufferSpec, now: Timestamp) -> Result<Writer, Error> {
        let geometry = Geometry::new(u64::from(spec.block_len), u64::from(spec.blocks))?;
        if spec.snap_len == 0 || spec.snap_len > geometry.cap_len_max() {
            let (value, most) = (u64::from(spec.snap_len), u64::from(geometry.cap_len_max()));
            return Err(Error::Size { what: "snap length", value, least: 1, most });
        }
        let system = Error::system("make the packet buffer");
        let file = Memfd::create(c"tapline-packets", geometry.file_len()).map_err(&system)?;
        let words = file.map_populated().map_err(&system)?;
        file.seal(Seals::READ_ONLY).map_err(&system)?;
        if let Some(breach) = file.find_broken_seal() {
            return Err(Error::SealBroken { breach });
        }
        let facts = Facts {
            generation: generation(now),
            link_type: spec.link_type.0,
            snap_len: spec.snap_len,
            created_ns: now.as_nanos(),
            worker: spec.worker,
        };
        Ok(Writer {
            file,
            store: Store::new(words, geometry, &facts),
            generation: facts.generation,
            readers: Readers::new(geometry),
            last: Box::default(),
            latest: None,
        })
    }

    /// Adds a reader, for packets that are indexed for it from now on; with [`begin`](Self::begin) older ones too.
    ///
    /// # Errors
    /// [`Error::TooManyReaders`], [`Error::CreditTooLarge`], [`Error::Size`], [`Error::System`].
    pub fn attach(&mut self, spec: &ReaderSpec) -> Result<NewReader, Error> {
        let entries = u64::from(spec.entries);
        if !entries.is_power_of_two() || !ENTRIES.contains(&entries) {
            let (least, most) = (*ENTRIES.start(), *ENTRIES.end());
            return Err(Error::Size { what: "number of entries", value: entries, least, most });
        }
        let credit = self.readers.admit(&spec.policy)?;
        let system = Error::system("make an index");
        let file = Memfd::create(c"tapline-index", index_len(entries)).map_err(&system)?;
        let words = file.map().map_err(&system)?;
        file.seal(Seals::SIZE).map_err(&system)?;
        let (bell, theirs) = Bell::pair().map_err(&system)?;
        let parts = ReaderParts {
            buffer: self.file.duplicate().map_err(&system)?,
            index: OwnedFd::from(file),
            bell: OwnedFd::from(theirs),
        };
        let standing = match spec.policy {
            Policy::Lossy => Guarantee::Lossy,
            Policy::Leased { .. } => Guarantee::Leased,
            Policy::Lossless => Guarantee::Lossless,
        };
        let id = self.readers.add(|id| {
            let number = u64::from(id.number);
            let index = Producer::new(words, entries, self.generation, number, standing);
            Attached::new(id, index, bell, standing, credit, &self.store)
        });
        Ok(NewReader { id, parts })
    }

    /// Makes a new reader begin in the past, with the packets that the buffer still holds from `start` on.
    /// [`replay`](Self::replay) offers them; the reader is not to be [indexed](Self::index) before
    /// [`finish_replay`](Self::finish_replay).
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn begin(&mut self, id: ReaderId, start: StartPosition) -> Result<(), Error> {
        let past = self.store.past(start);
        self.readers.get(id)?.begin(past);
        Ok(())
    }

    /// Offers a reader the next packets of the past for which `verdict` returns a number; `None` leaves a packet out.
    /// At most `looks` packets are looked at, so that the call fits between batches; the reader sees them after the
    /// next [`publish`](Self::publish). If the index is full, the rest waits for the reader to go on. To be called
    /// when all stored packets are published.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn replay(
        &mut self,
        id: ReaderId,
        looks: usize,
        verdict: impl FnMut(&HistoryPacket<'_>) -> Option<u32>,
    ) -> Result<ReplayProgress, Error> {
        Ok(self.readers.get(id)?.replay(&self.store, looks, verdict))
    }

    /// Ends a reader's past, when all of it was offered: the reader is to be indexed from the next batch on. To be
    /// called after [`replay`](Self::replay) returned [`ReplayProgress::Done`], and before more packets are stored.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn finish_replay(&mut self, id: ReaderId) -> Result<(), Error> {
        self.readers.get(id)?.finish_replay();
        Ok(())
    }

    /// Before a batch is stored: offers a reader that part of the past which the batch may overwrite. Packets beyond
    /// the room of the index are lost as `index_full`; returns their number. After such a loss it is best to
    /// [`skip`](Self::skip) the rest. A lossless reader is lossy then.
    ///
    /// # Errors
    /// [`Error::UnknownReader`]; [`Error::BatchTooLarge`] if the batch may take more than half of the buffer: store it
    /// in parts.
    pub fn replay_before(
        &mut self,
        id: ReaderId,
        batch: &Batch<'_>,
        wanted: &Selection,
        verdict: impl FnMut(&HistoryPacket<'_>) -> Option<u32>,
    ) -> Result<u64, Error> {
        let blocks = self.store.blocks_for(wanted.iter().map(|index| batch.packet(index).data.len()));
        let reach = self.readers.reach(blocks);
        if reach > self.store.geometry().blocks() as u64 / 2 {
            return Err(Error::BatchTooLarge { packets: wanted.len(), blocks });
        }
        let reader = self.readers.get(id)?;
        let lost = reader.replay_pressed(&self.store, reach, verdict);
        if lost > 0 && reader.standing == Guarantee::Lossless {
            self.readers.demote(id)?;
        }
        Ok(lost)
    }

    /// Brings a reader to the present: packets of the past that it was not offered up to now it never gets. The
    /// reader is to be indexed from the next batch on; packets that further [`replay`](Self::replay) calls would
    /// offer count as lost, because its index was full. A lossless reader is lossy then.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn skip(&mut self, id: ReaderId) -> Result<(), Error> {
        let reader = self.readers.get(id)?;
        let is_kept = reader.standing == Guarantee::Lossless;
        if reader.skip(&self.store) && is_kept { self.readers.demote(id) } else { Ok(()) }
    }

    /// Whether any reader still has packets of the past to be offered or counted.
    pub fn has_replays(&self) -> bool {
        self.readers.has_replays()
    }

    /// Number of the stored packets that are still to be looked at for a reader that began in the past; 0 for one in
    /// the present.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn replay_left(&mut self, id: ReaderId) -> Result<u64, Error> {
        Ok(self.readers.get(id)?.past().map_or(0, |past| self.store.records_after(past)))
    }

    /// Whether all lossless readers have room for these packets. Without such readers, or if a reader was given up,
    /// no look is needed.
    ///
    /// Publish indexed packets before this: readers consume visible packets only. If the index or the buffer is full,
    /// [`wait_for`](Self::wait_for) sleeps; the caller decides when to stop waiting. A reader that loses a packet
    /// because the batch is stored all the same is lossy from then on.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`] if there never will be room.
    pub fn make_room(&mut self, batch: &Batch<'_>, wanted: &Selection) -> Result<WriteRoom, Error> {
        if !self.readers.has_lossless() {
            return Ok(WriteRoom::Ready);
        }
        let blocks = self.store.blocks_for(wanted.iter().map(|index| batch.packet(index).data.len()));
        self.readers.room(&self.store, blocks, wanted.len())
    }

    /// Sleeps until a reader has read since [`make_room`](Self::make_room), its process is gone, or `timeout` is
    /// over; may return early. Other readers can see the published packets meanwhile.
    ///
    /// # Errors
    /// [`Error::UnknownReader`], [`Error::System`].
    pub fn wait_for(&mut self, id: ReaderId, timeout: Duration) -> Result<(), Error> {
        self.readers.get(id)?.wait(timeout).map(|_| ())
    }

    /// As [`wait_for`](Self::wait_for), for the whole of a long `timeout`; returns how the sleep ended.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn wait_long_for(
        &mut self,
        id: ReaderId,
        timeout: Duration,
    ) -> Result<tapline_sys::futex::FutexWaitEnd, Error> {
        let reader = self.readers.get(id)?;
        reader.set_nap(timeout);
        reader.wait(timeout)
    }

    /// Stores the packets of a batch that any reader accepts, each once. Readers see them once they are indexed and
    /// published.
    ///
    /// # Panics
    /// If a packet is wanted that the batch does not have.
    #[inline]
    pub fn store(&mut self, batch: &Batch<'_>, wanted: &Selection) {
        self.readers.begin_batch();
        let Last { by_index, stretch, len, is_whole } = &mut *self.last;
        *len = wanted.len();
        let (sequence, not_stored) = (self.store.sequence(), self.store.unstored_packets());
        for (index, place) in wanted.iter().zip(stretch) {
            let packet = batch.packet(index);
            *place = to_words(self.store.put(packet, &mut self.readers).unwrap_or_default(), 0);
            by_index[index] = *place;
            self.latest = self.latest.max(Some(packet.meta.timestamp));
        }
        let opened = self.store.sequence() - sequence;
        *is_whole =
            opened < self.store.geometry().blocks() as u64 && self.store.unstored_packets() == not_stored;
    }

    /// Offers packets of those that were stored last to a reader, all with the same verdict. Packets for which no
    /// block was free count as damaged.
    ///
    /// A lossless reader that loses one of them here, because its index is full or the batch was more than the buffer
    /// holds, is lossy from then on; so is a leased one in the second case.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    #[inline]
    pub fn index(&mut self, id: ReaderId, wanted: &Selection, verdict: u32) -> Result<(), Error> {
        // As many as were stored, and only such: all of them.
        if wanted.len() != self.last.len {
            return self.index_each(id, wanted, |_| verdict);
        }
        let index = &mut self.readers.get(id)?.index;
        let lost = index.push_stretch(&self.last.stretch[..self.last.len], verdict);
        if lost > 0 || !self.last.is_whole {
            self.keep_promises(id, wanted, lost)?;
        }
        Ok(())
    }

    /// As [`index`](Self::index), with a verdict for each packet, by its index in the batch.
    ///
    /// # Errors
    /// As [`index`](Self::index).
    #[inline]
    pub fn index_each(
        &mut self,
        id: ReaderId,
        wanted: &Selection,
        verdict: impl Fn(usize) -> u32,
    ) -> Result<(), Error> {
        let index = &mut self.readers.get(id)?.index;
        let by_index = &self.last.by_index;
        let lost = index.push(wanted.iter().map(|index| with_verdict(by_index[index], verdict(index))));
        if lost > 0 || !self.last.is_whole {
            self.keep_promises(id, wanted, lost)?;
        }
        Ok(())
    }

    /// After a reader's index or the buffer was full: demotes and notifies the readers that were promised otherwise.
    #[cold]
    fn keep_promises(&mut self, id: ReaderId, wanted: &Selection, lost: u64) -> Result<(), Error> {
        let standing = self.readers.get(id)?.standing;
        let is_gone = |index: usize| {
            let [position, _] = self.last.by_index[index];
            !self.store.holds(self.store.geometry().place(position).sequence)
        };
        let is_broken = match standing {
            Guarantee::Lossless => lost > 0 || wanted.iter().any(is_gone),
            Guarantee::Leased => wanted.iter().any(is_gone),
            _ => false,
        };
        if is_broken { self.readers.demote(id) } else { Ok(()) }
    }

    /// Shows all stored and indexed packets to readers, and wakes the sleepers that have waited for them. `now_ns` is
    /// of a clock that never goes back; credits and delays are counted by it.
    ///
    /// The watermark for readers of several buffers is the time of the latest packet: a source with packets out of
    /// order should use [`publish_until`](Self::publish_until).
    pub fn publish(&mut self, now_ns: u64) {
        self.publish_until(now_ns, self.latest);
    }

    /// As [`publish`](Self::publish), with a lower bound for the times of packets that are stored from now on; `None`
    /// gives none. An idle writer calls this as well, so that merging readers go on.
    pub fn publish_until(&mut self, now_ns: u64, watermark: Option<Timestamp>) {
        self.store.publish(watermark, |store| self.readers.publish(store, now_ns));
        self.readers.wake_sleepers(now_ns);
    }

    /// Work that is due without packets: sleepers whose delay is over, credits of time. To be called ten times a
    /// second, as the daemon does, or at [`next_wake_ns`](Self::next_wake_ns).
    pub fn tick(&mut self, now_ns: u64) {
        self.readers.enforce(&self.store, now_ns);
        self.readers.wake_sleepers(now_ns);
    }

    /// The time of the next wake-up for a delay, by the clock of [`publish`](Self::publish); `None` if no reader
    /// waits for one.
    pub fn next_wake_ns(&self) -> Option<u64> {
        self.readers.next_wake_ns()
    }

    /// The counters of the source, visible to all readers.
    pub fn set_source(&self, counts: &SourceCounts) {
        self.store.set_source(counts);
    }

    /// The fate of a reader's packets up to now.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn account(&mut self, id: ReaderId) -> Result<Account, Error> {
        Ok(self.readers.get(id)?.index.account())
    }

    /// The guarantee that a writer gives a reader.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn guarantee(&mut self, id: ReaderId) -> Result<Guarantee, Error> {
        Ok(self.readers.get(id)?.standing)
    }

    /// Number of times that a reader was woken.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn wake_count(&mut self, id: ReaderId) -> Result<u64, Error> {
        Ok(self.readers.get(id)?.wakes)
    }

    /// Takes a reader away. The reader sees that its writer is gone.
    ///
    /// # Errors
    /// [`Error::UnknownReader`].
    pub fn detach(&mut self, id: ReaderId) -> Result<Account, Error> {
        self.readers.remove(id).map(|mut reader| reader.index.account())
    }

    /// Takes away all readers with dead processes. One system call for each reader: to be called now and then.
    pub fn reap(&mut self) -> Vec<DetachedReader> {
        self.readers.reap()
    }

    /// Packets stored since the start.
    pub fn stored(&self) -> u64 {
        self.store.records()
    }

    /// Captured bytes of the packets stored since the start.
    pub fn stored_bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Packets that were not stored because readers held all blocks: 0, unless one breaks the rules.
    pub fn unstored_packets(&self) -> u64 {
        self.store.unstored_packets()
    }

    /// Blocks skipped because a reader held them.
    pub fn skipped_blocks(&self) -> u64 {
        self.store.skipped_blocks()
    }

    /// Ends the buffer: shows all stored and indexed packets, notifies all readers that no more come, and wakes them.
    /// They read the rest; [`reap`](Self::reap) and [`detach`](Self::detach) give their accounts.
    pub fn end(&mut self) {
        let now_ns = self.readers.now_ns();
        self.store.close(|store| self.readers.publish(store, now_ns));
        self.readers.wake_all();
    }
}

#[inline]
fn with_verdict(entry: EntryWords, verdict: u32) -> EntryWords {
    [entry[0], entry[1] | u64::from(verdict) << 32]
}

/// The number of a buffer: different also for two that are made in the same moment.
fn generation(now: Timestamp) -> u64 {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let made = MADE.fetch_add(1, Relaxed);
    (now.as_nanos() as u64) ^ u64::from(std::process::id()).rotate_right(20) ^ made.rotate_right(8)
}

/// The most readers that can hold blocks: each holds one at most, and the writer needs others.
fn holders_max(geometry: layout::Geometry) -> usize {
    geometry.blocks() / 4
}

/// As many leased readers as a buffer can have, as a search for a block sees them, and their indices.
#[cfg(all(test, not(miri)))]
pub(crate) fn tests_only_readers(blocks: u32) -> (impl crate::store::Holders, Vec<crate::memory::Words>) {
    let spec = BufferSpec { block_len: 4096, blocks, snap_len: 1000, ..BufferSpec::new(LinkType::ETHERNET) };
    let mut writer = Writer::create(&spec, Timestamp::EPOCH).expect("a buffer");
    let policy = Policy::Leased { bytes: 4096, time: Duration::from_secs(1) };
    let words = (0..holders_max(writer.store.geometry()))
        .map(|_| {
            let attachment = writer.attach(&ReaderSpec { policy, entries: 16 }).expect("a reader");
            Memfd::from_descriptor(attachment.parts.index).map().expect("a mapping")
        })
        .collect();
    (writer.readers, words)
}
