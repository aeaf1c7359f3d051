//! The PBuf's writing half: blocks that are filled one after the other, and taken again when the buffer has gone round.
//!
//! ```text
//! put(packet) -> position          publish() -> all of it can be seen, then what indices say of it, then the watermark
//!    |  does not fit: close the block, take the next
//!    v
//! take    for each sequence from the next on, until one can be had
//!           held by a reader             -> passed over
//!           sequence := new; fence; held -> sequence := old; passed over
//! ```

use tapline_packet::{Meta, Packet, Timestamp};

use crate::account::{PLACES, SourceCounts};
use crate::atomic::{AtomicU64, Relaxed, Release, SeqCst, fence};
use crate::copy::{store_bytes, store_line};
use crate::layout::{
    BLOCK_END, BLOCK_HEAD_LEN, BUFFER_MAGIC, BYTE_ORDER, Geometry, HEADER_LEN, VERSION, block, buffer,
    header, record_len,
};
use crate::memory::Words;
use crate::record;

/// A stored packet's position and length, as an index holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// The record's position.
    pub position: u64,
    /// Captured bytes.
    pub cap_len: u32,
}

/// The packet at which a new reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// Packets that are stored from now on.
    Newest,
    /// All that the buffer still holds.
    Oldest,
    /// Packets in the buffer that are not older than this.
    Since(Timestamp),
}

/// The position of a reader that began in the past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// The block of the packet that comes next.
    pub(crate) sequence: u64,
    offset: usize,
    /// Packets older than this are left out.
    since: i64,
    /// The latest time of the examined packets.
    pub(crate) latest: i64,
    /// The number of the record that comes next.
    number: u64,
    /// The position up to which it is looked for; `None` for all that there is by then.
    pub(crate) until: Option<u64>,
}

/// The result of a look at the past.
pub(crate) enum Next<'s> {
    /// A packet that was asked for.
    Held(HistoryPacket<'s>),
    /// A packet that is older than requested.
    Older,
    /// All published packets were returned.
    End,
}

/// The readers' part when a block is to be taken.
pub(crate) trait Holders {
    /// A search for a block begins: `current` was filled.
    fn begin(&mut self, current: u64);
    /// Whether a reader holds the block `sequence`.
    fn hold(&mut self, sequence: u64) -> bool;
    /// The block will be taken: readers that were promised that it stays are notified.
    fn give_up(&mut self, sequence: u64);
}

/// No reader holds a block.
#[cfg(loom)]
pub(crate) struct NoHolders;

#[cfg(loom)]
impl Holders for NoHolders {
    fn begin(&mut self, _: u64) {}

    fn hold(&mut self, _: u64) -> bool {
        false
    }

    fn give_up(&mut self, _: u64) {}
}

/// The constant part of a PBuf's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) generation: u64,
    pub(crate) link_type: u16,
    pub(crate) snap_len: u32,
    pub(crate) created_ns: i64,
    pub(crate) worker: u32,
}

/// Counts of the block that is being filled.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    first_time: i64,
    last_time: i64,
    records: u64,
    bytes: u64,
    /// Bytes in use, with the block's head.
    used: u64,
    lost_before: u64,
    first_number: u64,
}

/// The writing half. All counters are its own; the memory has a copy for others.
pub(crate) struct Store {
    words: Words,
    geometry: Geometry,
    snap_len: u32,
    /// Blocks by place: sequences, 0 for nothing.
    held: Box<[u64]>,
    sequence: u64,
    /// The offset of the next record in the current block; the length of a block if there is no open block.
    offset: usize,
    filling: Filling,
    records: u64,
    bytes: u64,
    /// Packets that the source knew to be lost.
    source_lost: u64,
    not_stored: u64,
    passed_over: u64,
}

impl Store {
    /// Writes the header into memory that is all zero.
    pub(crate) fn new(words: Words, geometry: Geometry, facts: &Facts) -> Store {
        for (word, value) in [
            (header::BYTE_ORDER, BYTE_ORDER),
            (header::VERSION, VERSION),
            (header::HEADER_LEN, HEADER_LEN as u64),
            (buffer::BLOCK_LEN, geometry.block_len() as u64),
            (buffer::BLOCKS, geometry.blocks() as u64),
            (buffer::GENERATION, facts.generation),
            (buffer::LINK_TYPE, u64::from(facts.link_type)),
            (buffer::SNAP_LEN, u64::from(facts.snap_len)),
            (buffer::CREATED, facts.created_ns as u64),
            (buffer::WORKER, u64::from(facts.worker)),
            (buffer::STATE, buffer::RUNNING),
            (buffer::WATERMARK, i64::MIN as u64),
            (buffer::HEAD, geometry.position(1, 0)),
            (header::MAGIC, BUFFER_MAGIC),
        ] {
            words[word].store(value, Relaxed);
        }
        let store = Store {
            words,
            geometry,
            snap_len: facts.snap_len.min(geometry.cap_len_max()),
            held: vec![0; geometry.blocks()].into(),
            sequence: 0,
            offset: geometry.block_len(),
            filling: Filling::default(),
            records: 0,
            bytes: 0,
            source_lost: 0,
            not_stored: 0,
            passed_over: 0,
        };
        store.set_source(&SourceCounts::new());
        store
    }

    /// Stores one packet, cut to the snap length; readers see it after [`publish`] only(Self::publish). `None` if no
    /// block was free: the packet is counted as not stored.
    #[inline]
    pub(crate) fn put(&mut self, packet: Packet<'_>, holders: &mut impl Holders) -> Option<IndexEntry> {
        let cap_len = packet.data.len().min(self.snap_len as usize) as u32;
        let len = record_len(cap_len);
        self.source_lost = self.source_lost.wrapping_add(packet.meta.drops_before);
        if self.offset + len > self.geometry.block_len() && !self.next_block(holders) {
            self.not_stored += 1;
            return None;
        }
        let position = self.geometry.position(self.sequence, self.offset);
        let first = self.geometry.block_word(self.geometry.slot(self.sequence)) + self.offset / 8;
        let place = &self.words[first..first + len / 8];
        let (line, bytes) = place.split_first_chunk().expect("a record has more than its metadata's length");
        store_line(line, &record::encode(packet.meta, cap_len, self.records, position));
        store_bytes(bytes, &packet.data[..cap_len as usize]);
        self.offset += len;
        self.count(packet.meta, cap_len);
        Some(IndexEntry { position, cap_len })
    }

    #[inline]
    fn count(&mut self, meta: &Meta, cap_len: u32) {
        let time = meta.timestamp.as_nanos();
        let filling = &mut self.filling;
        if filling.records == 0 {
            *filling = Filling {
                first_time: time,
                last_time: time,
                first_number: self.records,
                lost_before: self.source_lost,
                ..Filling::default()
            };
        }
        filling.last_time = filling.last_time.max(time);
        filling.records += 1;
        filling.used = self.offset as u64;
        filling.bytes += u64::from(cap_len);
        self.records += 1;
        self.bytes += u64::from(cap_len);
    }

    /// Shows all that was stored, then by `indices` which of it is for which reader. Packets stored later are not
    /// older than `watermark`, as far as known: it covers the packets that can be seen by then, so it is shown last.
    pub(crate) fn publish(&mut self, watermark: Option<Timestamp>, indices: impl FnOnce(&Store)) {
        if self.sequence != 0 {
            self.write_block_head();
        }
        let words = &self.words;
        words[buffer::RECORDS].store(self.records, Relaxed);
        words[buffer::BYTES].store(self.bytes, Relaxed);
        words[buffer::NOT_STORED].store(self.not_stored, Relaxed);
        words[buffer::PASSED_OVER].store(self.passed_over, Relaxed);
        // Pairs with the acquire fence after the load in `View::head`.
        words[buffer::HEAD].store(self.head(), Release);
        indices(self);
        if let Some(time) = watermark {
            // Pairs with the acquire fence after the load in `View::watermark`.
            self.words[buffer::WATERMARK].store(time.as_nanos() as u64, Release);
        }
    }

    /// Ends the store, and then announces that nothing more comes.
    pub(crate) fn close(&mut self, indices: impl FnOnce(&Store)) {
        self.publish(None, indices);
        // Pairs with the acquire fence after the load in `View::is_closed`.
        self.words[buffer::STATE].store(buffer::CLOSED, Release);
    }

    pub(crate) fn set_source(&self, counts: &SourceCounts) {
        for place in 0..PLACES {
            self.words[buffer::SOURCE + place].store(counts.words[place], Relaxed);
        }
    }

    /// The position at which the next record would begin.
    pub(crate) fn head(&self) -> u64 {
        // A full block, or none, is the same as the next one not begun.
        self.geometry.position(self.sequence, self.offset)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn unstored_packets(&self) -> u64 {
        self.not_stored
    }

    pub(crate) fn skipped_blocks(&self) -> u64 {
        self.passed_over
    }

    /// The block that a place holds; 0 if it never held one.
    pub(crate) fn held_at(&self, sequence: u64) -> u64 {
        self.held[self.geometry.slot(sequence)]
    }

    /// Whether the buffer still holds the block `sequence`.
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        sequence != 0 && self.held_at(sequence) == sequence
    }

    /// Number of blocks that packets of these lengths would open.
    pub(crate) fn blocks_for(&self, cap_lens: impl Iterator<Item = usize>) -> usize {
        let (mut offset, mut blocks) = (self.offset, 0);
        for cap_len in cap_lens {
            let len = record_len(cap_len.min(self.snap_len as usize) as u32);
            if offset + len > self.geometry.block_len() {
                (offset, blocks) = (BLOCK_HEAD_LEN, blocks + 1);
            }
            offset += len;
        }
        blocks
    }

    /// Closes the block and takes the next free one. False if readers hold them all.
    #[cold]
    #[inline(never)]
    fn next_block(&mut self, holders: &mut dyn Holders) -> bool {
        self.end_block();
        holders.begin(self.sequence);
        let tour = self.geometry.blocks() as u64;
        let first = self.sequence + 1;
        for sequence in first..first + tour {
            if self.take(sequence, holders) {
                self.sequence = sequence;
                self.offset = BLOCK_HEAD_LEN;
                self.filling = Filling::default();
                return true;
            }
            self.passed_over += 1;
        }
        false
    }

    fn end_block(&mut self) {
        if self.sequence == 0 {
            return;
        }
        self.write_block_head();
        if self.offset < self.geometry.block_len() {
            let block = self.geometry.block_word(self.geometry.slot(self.sequence));
            self.words[block + self.offset / 8].store(BLOCK_END, Relaxed);
            self.offset = self.geometry.block_len();
        }
    }

    fn take(&mut self, sequence: u64, holders: &mut dyn Holders) -> bool {
        let slot = self.geometry.slot(sequence);
        let old = self.held[slot];
        if old != 0 && holders.hold(old) {
            return false;
        }
        if old != 0 {
            holders.give_up(old);
        }
        let word = &self.words[self.geometry.block_word(slot) + block::SEQUENCE];
        word.store(sequence, Relaxed);
        // With `View::hold`: either it sees the new sequence, or we see that it holds the block. With `View::copy`: a
        // reader that sees a byte of what is written from here on sees that the sequence is another.
        fence(SeqCst);
        if old != 0 && holders.hold(old) {
            word.store(old, Relaxed);
            return false;
        }
        self.held[slot] = sequence;
        true
    }

    fn write_block_head(&self) {
        let first = self.geometry.block_word(self.geometry.slot(self.sequence));
        let head: &[AtomicU64] = &self.words[first..first + BLOCK_HEAD_LEN / 8];
        let filling = &self.filling;
        for (word, value) in [
            (block::FIRST_TIME, filling.first_time as u64),
            (block::LAST_TIME, filling.last_time as u64),
            (block::RECORDS, filling.records),
            (block::BYTES, filling.bytes),
            (block::USED, filling.used),
            (block::LOST_BEFORE, filling.lost_before),
            (block::FIRST_NUMBER, filling.first_number),
        ] {
            head[word].store(value, Relaxed);
        }
    }
}

/// A packet that the buffer holds, lent to its writer.
#[derive(Clone, Copy, Debug)]
pub struct HistoryPacket<'a> {
    /// Position of the record.
    pub entry: IndexEntry,
    /// The facts about it.
    pub meta: Meta,
    /// Number of the record, from 0, among all that were ever stored.
    pub number: u64,
    /// The captured bytes.
    pub data: &'a [u8],
}

impl HistoryPacket<'_> {
    /// As a packet, which filters take.
    pub fn packet(&self) -> Packet<'_> {
        Packet { data: self.data, meta: &self.meta }
    }
}

#[cfg(not(loom))]
impl Store {
    /// The position before the first packet that the buffer holds and `start` includes; `None` if nothing is stored,
    /// or `start` is the present.
    pub(crate) fn past(&self, start: StartPosition) -> Option<Past> {
        let since = match start {
            StartPosition::Newest => return None,
            StartPosition::Oldest => i64::MIN,
            StartPosition::Since(time) => time.as_nanos(),
        };
        let sequence = self.held_after(0, |sequence| self.last_time(sequence) >= since)?;
        let number = self.first_number(sequence);
        Some(Past { sequence, offset: BLOCK_HEAD_LEN, since, latest: i64::MIN, number, until: None })
    }

    /// Looks at the packet that comes next, behind which `past` goes on.
    pub(crate) fn next_held(&self, past: &mut Past) -> Next<'_> {
        loop {
            let is_over = |until| self.geometry.position(past.sequence, past.offset) >= until;
            if past.until.is_some_and(is_over) {
                return Next::End;
            }
            if let Some(held) = self.held_at_place(past) {
                past.offset += record_len(held.entry.cap_len);
                past.number = held.number + 1;
                past.latest = past.latest.max(held.meta.timestamp.as_nanos());
                let is_older = held.meta.timestamp.as_nanos() < past.since;
                return if is_older { Next::Older } else { Next::Held(held) };
            }
            match self.held_after(past.sequence, |_| true) {
                None => return Next::End,
                Some(sequence) => past.sequence = sequence,
            }
            (past.offset, past.number) = (BLOCK_HEAD_LEN, self.first_number(past.sequence));
        }
    }

    /// Number of records that are still to be examined, if no block was skipped or taken.
    pub(crate) fn records_after(&self, past: &Past) -> u64 {
        self.records.saturating_sub(past.number)
    }

    /// The oldest block after this one that the buffer holds and that is `wanted`.
    fn held_after(&self, sequence: u64, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let held = self.held.iter().copied().filter(|held| *held > sequence);
        held.filter(|held| wanted(*held)).min()
    }

    fn last_time(&self, sequence: u64) -> i64 {
        self.head_word(sequence, block::LAST_TIME) as i64
    }

    fn first_number(&self, sequence: u64) -> u64 {
        self.head_word(sequence, block::FIRST_NUMBER)
    }

    /// A word of the head of a block that the buffer holds.
    fn head_word(&self, sequence: u64, word: usize) -> u64 {
        self.words[self.geometry.block_word(self.geometry.slot(sequence)) + word].load(Relaxed)
    }

    /// The record at a place, if there is one in its block.
    fn held_at_place(&self, past: &Past) -> Option<HistoryPacket<'_>> {
        if !self.holds(past.sequence) {
            return None;
        }
        let used = self.head_word(past.sequence, block::USED) as usize;
        let is_there = past.offset + record_len(0) <= used;
        is_there.then(|| self.record_at(past.sequence, past.offset)).flatten()
    }

    fn record_at(&self, sequence: u64, offset: usize) -> Option<HistoryPacket<'_>> {
        let first = self.geometry.block_word(self.geometry.slot(sequence)) + offset / 8;
        let line = std::array::from_fn(|word| self.words[first + word].load(Relaxed));
        let head = record::decode(&line);
        let position = self.geometry.position(sequence, offset);
        let fits = offset + record_len(head.cap_len) <= self.geometry.block_len();
        if head.position != position || !fits {
            return None;
        }
        let bytes = &self.words[first + record_len(0) / 8..][..(head.cap_len as usize).div_ceil(8)];
        // SAFETY: the words lie in the memory, which outlives the slice, and hold this many bytes. Only this value
        // writes to it, by methods that borrow it mutably, so nothing changes while the slice is there.
        let data = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), head.cap_len as usize) };
        Some(HistoryPacket {
            entry: IndexEntry { position, cap_len: head.cap_len },
            meta: head.meta,
            number: head.number,
            data,
        })
    }
}
