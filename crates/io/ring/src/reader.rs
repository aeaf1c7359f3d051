//! A reader of one PBuf: batches copied out, or lent in place, and sleep in between.
//!
//! ```text
//! loop { while advance() > 0 { batch() } ; wait(timeout) }                    futex
//! loop { while advance() > 0 { batch() } ; if arm() { epoll(descriptor()) } }   the bell
//! ```
//!
//! `advance` ends the batch before it: until then its packets are not counted as delivered, and packets lent in place
//! stay. So a batch is lent until the next call, as with any source.

use std::os::fd::OwnedFd;

use tapline_packet::{BATCH_MAX, Batch, LinkType, Record, Timestamp};
use tapline_sys::{Bell, Memfd, futex};

mod mapping;
mod sleep;

pub use sleep::{WaitEnd, WakeThreshold};

use mapping::{ensure_most, info_of, open_buffer, open_index};

use crate::Error;
use crate::account::{Account, LossCounts, SourceCounts};
use crate::consumer::{Consumer, Outcome};
use crate::copy::as_bytes;
use crate::layout::{BLOCK_HEAD_LEN, Guarantee, LINE_LEN, index, record_len};
use crate::record::RecordHead;
use crate::store::IndexEntry;
use crate::view::{Miss, View, release};

/// Room for the copies of a batch, in bytes, unless one packet takes more.
const ARENA_LEN: usize = 256 << 10;
/// Words of lost packets that one [`Reader::advance`] copies at most before it returns to its caller.
const IN_VAIN_WORDS: usize = (4 << 20) / 8;
/// The descriptors of a reader, as its writer made them.
#[derive(Debug)]
pub struct ReaderParts {
    /// The PBuf: packets.
    pub buffer: OwnedFd,
    /// The IBuf: the entries of the wanted packets.
    pub index: OwnedFd,
    /// The bell of this reader.
    pub bell: OwnedFd,
}

/// Limits on a writer that the reader does not trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderLimits {
    /// The most entries of the index, 16 to 2^24: the number that the reader asked for.
    pub entries_max: u32,
    /// The most captured bytes of a packet. The reader's memory holds one such packet.
    pub snap_len_max: u32,
    /// Whether packets of a leased reader may be lent in the buffer itself, in the trust that the writer does not
    /// change them meanwhile.
    pub in_place: bool,
}

impl ReaderLimits {
    /// The limits of the format.
    pub const ANY: ReaderLimits =
        ReaderLimits { entries_max: 1 << 24, snap_len_max: u32::MAX, in_place: true };
}

/// The description of a PBuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferInfo {
    /// The link type: the first header of each packet.
    pub link_type: LinkType,
    /// The most bytes of a packet.
    pub snap_len: u32,
    /// The number of the writer's start, different each time.
    pub generation: u64,
    /// The capture worker.
    pub worker: u32,
    /// The time of its creation.
    pub created: Timestamp,
    /// Bytes of a block.
    pub block_len: u32,
    /// Blocks.
    pub blocks: u32,
}

/// A reader.
pub struct Reader {
    view: View,
    index: Consumer,
    bell: Bell,
    info: BufferInfo,
    wish: WakeThreshold,
    /// Copies, one after the other.
    arena: Box<[u64]>,
    records: Vec<Record>,
    /// Words copied for this batch, including those of packets that were lost by then.
    copied: usize,
    base: Base,
    /// The fate of this batch's entries, which counts with the next call.
    outcome: Outcome,
    reads_in_place: bool,
    verdict_use: VerdictUse,
    /// Verdicts of the batch's packets, if they are lent.
    verdicts: Vec<u32>,
    /// The block that is held; 0 for none.
    held: u64,
    /// The last time at which all was known to be read: packets that are there now are not older.
    all_read_ns: Option<u64>,
    /// Whether the writer woke this reader, for whatever reason, since the last read.
    is_called: bool,
    /// Whether the writer knows that this reader sleeps.
    is_armed: bool,
    /// Whether the bell hung up.
    is_gone: bool,
}

/// The memory that holds the bytes of the batch.
#[derive(Clone, Copy, Debug)]
enum Base {
    Arena,
    /// In the block that is held: records count from its beginning.
    Block {
        end: usize,
    },
}

/// The use of verdicts, the numbers of packets in an index. Writer and reader agree on their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerdictUse {
    /// Verdicts are ignored.
    #[default]
    Ignore,
    /// The verdict becomes the packet's [`label`](tapline_packet::Meta::label), up to 255.
    Label,
    /// Verdicts are lent with the packets: [`Reader::verdicts`].
    Lend,
}

impl Reader {
    /// Maps the memory of a writer, after a check of seals, sizes, headers, and that buffer and index belong
    /// together.
    ///
    /// # Errors
    /// [`Error::NotSealed`], [`Error::WrongLength`], [`Error::WrongHeader`], [`Error::Size`], [`Error::System`].
    pub fn open(parts: ReaderParts) -> Result<Reader, Error> {
        Reader::open_within(parts, &ReaderLimits::ANY)
    }

    /// As [`open`](Self::open), within these limits.
    ///
    /// # Errors
    /// Like [`open`](Self::open); [`Error::Size`] beyond the limits.
    pub fn open_within(parts: ReaderParts, terms: &ReaderLimits) -> Result<Reader, Error> {
        let view = open_buffer(Memfd::from_descriptor(parts.buffer))?;
        ensure_most("snap length", view.snap_len().into(), terms.snap_len_max.into())?;
        let index = open_index(Memfd::from_descriptor(parts.index))?;
        ensure_most("number of entries", index.capacity(), terms.entries_max.into())?;
        let info = info_of(&view);
        if index.generation() != info.generation {
            let (found, expected) = (index.generation(), info.generation);
            return Err(Error::WrongHeader { file: "index", offset: index::GENERATION * 8, found, expected });
        }
        let arena_len = ARENA_LEN.max(record_len(view.snap_len()));
        let reads_in_place = terms.in_place && index.guarantee() == Guarantee::Leased;
        Ok(Reader {
            view,
            index,
            bell: Bell::from(parts.bell),
            info,
            wish: WakeThreshold::default(),
            arena: vec![0; arena_len / 8].into(),
            records: Vec::with_capacity(BATCH_MAX),
            copied: 0,
            base: Base::Arena,
            outcome: Outcome::default(),
            reads_in_place,
            verdict_use: VerdictUse::default(),
            verdicts: Vec::new(),
            held: 0,
            all_read_ns: None,
            is_called: false,
            is_armed: false,
            is_gone: false,
        })
    }

    /// Sets the use of the verdicts on packets that are read from now on.
    pub fn use_verdicts(&mut self, verdicts: VerdictUse) {
        self.verdict_use = verdicts;
    }

    /// The verdicts on the packets of the batch, in their order; none unless they are lent ([`VerdictUse::Lend`]).
    pub fn verdicts(&self) -> &[u32] {
        &self.verdicts
    }

    /// Lends a packet whose bytes begin at `offset` of the batch's memory.
    #[inline]
    fn lend(&mut self, head: &RecordHead, offset: usize, verdict: u32) {
        let mut meta = head.meta;
        match self.verdict_use {
            VerdictUse::Ignore => {}
            VerdictUse::Label => meta.label = u8::try_from(verdict).unwrap_or(u8::MAX),
            VerdictUse::Lend => self.verdicts.push(verdict),
        }
        self.records.push(Record { offset, cap_len: head.cap_len, options_len: 0, meta });
    }

    /// The description of the buffer.
    pub fn info(&self) -> &BufferInfo {
        &self.info
    }

    /// The bytes that the buffer holds at a time, at most.
    pub fn buffer_len(&self) -> u64 {
        self.view.geometry().blocks_len()
    }

    /// Goes on to the next packets, up to [`BATCH_MAX`], and returns their number; 0 if there are none now. The
    /// packets of the batch before count as delivered from here on.
    ///
    /// # Errors
    /// [`Error::IndexDamaged`] if the writer's counters are impossible; packets read until then are right.
    pub fn advance(&mut self) -> Result<usize, Error> {
        self.all_read_ns = None;
        self.is_called = false;
        // A writer that only writes nonsense does not keep us here.
        let (mut left, mut words) = (self.index.capacity(), 0);
        loop {
            let ready = self.next_batch()?;
            words += self.copied;
            if !self.records.is_empty() || ready == 0 || left == 0 || words >= IN_VAIN_WORDS {
                return Ok(self.records.len());
            }
            // All of them were lost: counted, and on.
            left = left.saturating_sub(self.outcome.total());
        }
    }

    /// Limits reading to the packets that are offered by now.
    pub(crate) fn stop_at_present(&mut self) {
        self.index.stop_at_present();
    }

    /// Whether the writer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.view.is_closed()
    }

    /// Looks at the next entries. Returns their number.
    fn next_batch(&mut self) -> Result<u64, Error> {
        self.done();
        self.records.clear();
        self.verdicts.clear();
        self.copied = 0;
        let ready = match self.index.ready() {
            0 => self.index.refresh()?,
            ready => ready,
        };
        if ready > 0 && std::mem::take(&mut self.is_armed) {
            self.index.announce_awake();
        }
        if ready > 0 && self.reads_in_place && self.index.guarantee().keeps_unread() {
            self.look_at(ready);
        }
        if self.outcome.total() == 0 {
            self.let_go();
            self.copy(ready);
        }
        Ok(ready)
    }

    /// The packets that the last [`advance`](Self::advance) found.
    ///
    /// The packets of a leased reader lie in the buffer, where the writer leaves them alone as long as they are lent;
    /// those of other readers in memory of this process.
    pub fn batch(&self) -> Batch<'_> {
        let base = match self.base {
            Base::Arena => as_bytes(&self.arena),
            // SAFETY: the block is held until `let_go`, which takes `&mut self`, and all up to the end of the last
            // record was published. The head of the block is left out by the range, because the writer renews it.
            Base::Block { end } => unsafe { self.view.bytes(self.held, BLOCK_HEAD_LEN..end) },
        };
        Batch::new(base, &self.records)
    }

    /// Whether the batch is in the buffer itself.
    pub fn is_in_place(&self) -> bool {
        matches!(self.base, Base::Block { .. })
    }

    /// The guarantee that the writer gives this reader. A leased reader that exceeded its credit is lossy here.
    pub fn guarantee(&self) -> Guarantee {
        self.index.guarantee()
    }

    /// The fate of the packets so far. The batch that is lent counts as unread.
    pub fn account(&self) -> Account {
        let Outcome { delivered, overwritten, damaged, .. } = self.index.done();
        let index_full = self.index.index_full();
        let unread = self.index.ready();
        let consumed = delivered + overwritten + damaged;
        Account {
            offered: consumed.saturating_add(unread).saturating_add(index_full),
            delivered,
            lost: LossCounts { index_full, overwritten, damaged, unread },
            is_implausible: false,
        }
    }

    /// Ends the last batch, and the reading.
    pub fn finish(mut self) -> Account {
        self.done();
        self.let_go();
        // An index that is damaged now adds nothing.
        let _ = self.index.refresh();
        self.account()
    }

    /// Finishes when only the first `packets` of the last batch were handed on: the others count as unread.
    pub(crate) fn finish_after(mut self, packets: usize) -> Account {
        self.outcome.delivered = self.outcome.delivered.min(packets as u64);
        self.finish()
    }

    /// The counters of the source.
    pub fn source(&self) -> SourceCounts {
        self.view.source()
    }

    /// A lower bound for the times of packets that [`advance`](Self::advance) has not found before this call; `None`
    /// if the writer gave none.
    pub fn watermark(&self) -> Option<Timestamp> {
        let past = Timestamp::from_nanos(self.index.past());
        self.view.watermark().map(|time| time.min(past)).filter(|time| time.as_nanos() != i64::MIN)
    }

    /// Whether packets from before the reader's start are still searched for.
    pub(crate) fn is_in_past(&self) -> bool {
        self.index.past() != i64::MAX
    }

    /// Commits the entries of the batch that was lent.
    fn done(&mut self) {
        let outcome = std::mem::take(&mut self.outcome);
        if let Some(turn) = self.index.commit(outcome) {
            futex::wake(turn);
        }
    }

    fn let_go(&mut self) {
        if self.held != 0 {
            self.held = 0;
            release(self.index.held_word());
        }
        self.base = Base::Arena;
    }

    /// Copies records until the batch is full.
    fn copy(&mut self, ready: u64) {
        self.base = Base::Arena;
        let mut used = 0;
        for ahead in 0..ready.min(BATCH_MAX as u64) {
            let (entry, verdict) = self.index.peek(ahead);
            let result = match self.view.words_of(entry) {
                // A copy that turns out to be invalid takes its time too.
                Ok(words) if self.copied + words > self.arena.len() => break,
                Ok(words) => {
                    self.copied += words;
                    self.view.copy(entry, &mut self.arena[used..])
                }
                Err(miss) => Err(miss),
            };
            self.outcome.add(entry, result.map(|_| ()));
            if let Ok(head) = result {
                let offset = used * 8 + LINE_LEN;
                self.lend(&head, offset, verdict);
                used += record_len(head.cap_len) / 8;
            }
        }
    }

    /// Lends records in place: those of one block. None, if the writer does not keep packets for this reader any
    /// more.
    fn look_at(&mut self, ready: u64) {
        let mut end = BLOCK_HEAD_LEN;
        for ahead in 0..ready.min(BATCH_MAX as u64) {
            let (entry, verdict) = self.index.peek(ahead);
            let is_first = self.records.is_empty();
            if !is_first && self.view.sequence_of(entry) != self.held {
                break;
            }
            let held = self.hold(entry);
            if held == Ok(false) {
                break;
            }
            let result = held.and_then(|_| self.view.look(entry));
            self.outcome.add(entry, result.map(|_| ()));
            if let Ok(head) = result {
                let start = self.view.data_offset(entry);
                end = end.max(start + head.cap_len as usize);
                let offset = start - BLOCK_HEAD_LEN;
                self.lend(&head, offset, verdict);
            }
        }
        self.base = if self.held == 0 { Base::Arena } else { Base::Block { end } };
    }

    /// Holds the block of an entry, if it is not held already. `false`: the writer stopped keeping packets for this
    /// reader meanwhile, and no block is held.
    fn hold(&mut self, entry: IndexEntry) -> Result<bool, Miss> {
        if self.held != 0 && self.view.sequence_of(entry) == self.held {
            return Ok(true);
        }
        self.let_go();
        self.held = self.view.hold(entry, self.index.held_word())?;
        // Behind the fence in there. Pairs with that in `Readers::enforce_credit`: a writer that found us at a block
        // before, and is on its way to this one, told us before it looked, and we see that here. The writer refuses
        // readers that move from block to block before it.
        let is_kept = self.index.guarantee().keeps_unread();
        if !is_kept {
            self.let_go();
        }
        Ok(is_kept)
    }
}
