//! All readers of a writer: their attachments, guarantees and sleep.
//!
//! ```text
//! ends, of each reader that packets are kept for, by the place of a block:
//!   entry        0 1 2 3 4 5 6        it consumed 3: what it has not read begins in the second block
//!   of block     1 1 2 2 2 4 4        ends of the blocks 1 to 4: 2 5 5 7
//! ```

use std::time::Duration;

use tapline_sys::futex::FutexWaitEnd;
use tapline_sys::{Bell, futex};

use crate::Error;
use crate::atomic::{SeqCst, fence};
use crate::layout::{Geometry, Guarantee};
use crate::producer::{Producer, Sleep, fence_for_sleepers, to_words};
use crate::store::{HistoryPacket, Holders, IndexEntry, Next, Past, Store};
use crate::writer::{DetachedReader, Policy, READERS_MAX, ReaderId, ReplayProgress, WriteRoom, holders_max};

/// Maximum number of blocks that a reader may hold while a batch is stored. With this and [`holders_max`] a search
/// skips a quarter of the blocks at most, so it always ends with a block, however many readers are dishonest. An
/// honest reader that is found at a block was notified before that it is lossy, since it lags by more than any
/// credit, and holds no new block; so one that is found at two moves its mark as we look.
const HOLDS_MAX: u32 = 1;
/// The longest sleep of the writer before it looks whether the reader still lives.
const NAP: Duration = Duration::from_millis(20);

/// The lease of a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    blocks: u64,
    time_ns: u64,
}

/// Since when a sleeper has something to read.
#[derive(Clone, Copy, Debug)]
struct Pending {
    since_ns: u64,
    /// The block that was filled then.
    block: u64,
}

/// One reader.
pub(super) struct Attached {
    id: ReaderId,
    pub(super) index: Producer,
    bell: Bell,
    pub(super) standing: Guarantee,
    /// Promised to leased readers, also to those that exceeded it: they keep the blocks that they hold.
    credit: Option<Credit>,
    /// The time when it came, or was last offered a packet of the past: older packets are kept as long as the rest.
    since_ns: u64,
    /// Packets from before it came that are to be offered to it, or counted.
    past: Option<Past>,
    /// Whether its index shows the time of the past.
    shows_past: bool,
    /// For each block, by its place: the entry after the last one that may lead there or to an older block. Empty for
    /// readers that nothing is kept for.
    ends: Box<[u64]>,
    /// Up to which block `ends` is known.
    ends_at: u64,
    /// The time when it was first seen asleep with packets to read.
    pending: Option<Pending>,
    pub(super) wakes: u64,
    /// Blocks that it was found at while a batch was stored.
    holds: u32,
    /// The longest sleep until it comes on: [`NAP`], and in tests any.
    nap: Duration,
}

impl Attached {
    /// A reader of packets from the next one on; of older ones only by [`replay`](Self::replay).
    pub(super) fn new(
        id: ReaderId,
        index: Producer,
        bell: Bell,
        standing: Guarantee,
        credit: Option<Credit>,
        store: &Store,
    ) -> Attached {
        let blocks = store.geometry().blocks();
        let ends = if standing.keeps_unread() { vec![0; blocks].into() } else { Box::default() };
        Attached {
            id,
            index,
            bell,
            standing,
            credit,
            since_ns: 0,
            past: None,
            shows_past: false,
            ends,
            ends_at: store.sequence(),
            pending: None,
            wakes: 0,
            holds: 0,
            nap: NAP,
        }
    }

    pub(super) fn begin(&mut self, past: Option<Past>) {
        self.past = past;
        if let Some(past) = past {
            (self.ends_at, self.shows_past) = (self.ends_at.min(past.sequence), true);
            self.index.set_past(Some(i64::MIN));
        }
    }

    /// The part of the past that is to be offered, or counted.
    pub(super) fn past(&self) -> Option<&Past> {
        self.past.as_ref()
    }

    /// A look at the next packet of the past, at whose block all ends of those before are known.
    fn next<'s>(&mut self, store: &'s Store) -> Next<'s> {
        let Some(past) = self.past.as_mut() else { return Next::End };
        let next = store.next_held(past);
        if past.until.is_none() && self.standing.keeps_unread() {
            let geometry = store.geometry();
            let first = self.ends_at.max(oldest(geometry, store.sequence()));
            (first..past.sequence).for_each(|at| self.ends[geometry.slot(at)] = self.index.head());
            self.ends_at = past.sequence;
        }
        next
    }

    /// Offers a packet of the past, or counts it as lost if it is too late for that. Whether there was no place for it.
    fn offer(&mut self, entry: IndexEntry, verdict: u32) -> bool {
        if self.past.is_some_and(|past| past.until.is_some()) {
            self.index.lose(1);
            return false;
        }
        self.index.push(std::iter::once(to_words(entry, verdict))) > 0
    }

    /// Offers it the next packets of the past as far as they please `verdict`, after a look at `looks` of them at most.
    pub(super) fn replay(
        &mut self,
        store: &Store,
        looks: usize,
        mut verdict: impl FnMut(&HistoryPacket<'_>) -> Option<u32>,
    ) -> ReplayProgress {
        for _ in 0..looks {
            let Some(past) = self.past else { return ReplayProgress::Done };
            if past.until.is_none() && self.index.room_for(1) == 0 {
                return ReplayProgress::Full;
            }
            match self.next(store) {
                Next::Held(held) => drop(verdict(&held).map(|verdict| self.offer(held.entry, verdict))),
                Next::Older => {}
                Next::End => return ReplayProgress::Done,
            }
        }
        ReplayProgress::More
    }

    /// The reader has come to the present.
    pub(super) fn finish_replay(&mut self) {
        self.past = None;
    }

    /// Whether the next packet of the past may be in a block that is taken when `blocks` more are used.
    fn is_pressed(&self, store: &Store, reach: u64) -> bool {
        let end = |past: Past| past.sequence + store.geometry().blocks() as u64;
        reach > 0 && self.past.is_some_and(|past| end(past) <= store.sequence() + reach)
    }

    /// Offers it the packets in such blocks, even without a free place. Returns the number that did not fit.
    pub(super) fn replay_pressed(
        &mut self,
        store: &Store,
        reach: u64,
        mut verdict: impl FnMut(&HistoryPacket<'_>) -> Option<u32>,
    ) -> u64 {
        let mut lost = 0;
        while self.is_pressed(store, reach) {
            match self.next(store) {
                Next::Held(held) => {
                    lost += verdict(&held).map_or(0, |verdict| u64::from(self.offer(held.entry, verdict)));
                }
                Next::Older => {}
                Next::End => break,
            }
        }
        lost
    }

    /// Offers nothing more of the past up to now; [`replay`](Self::replay) counts it. Returns whether there is any.
    pub(super) fn skip(&mut self, store: &Store) -> bool {
        let past = self.past.as_mut().filter(|past| past.until.is_none());
        past.map(|past| past.until = Some(store.head())).is_some()
    }

    /// Whether it has not read something in the block at a place, as last heard; may be true a little longer than it
    /// is.
    fn has_unread_at(&mut self, slot: usize) -> bool {
        // Asked only when it matters, and then each time.
        self.ends[slot] > self.index.listen()
    }

    fn publish(&mut self, store: &Store, now_ns: u64) {
        self.index.publish();
        let past = self.past.filter(|past| past.until.is_none());
        if self.shows_past {
            // Packets of the past stay as long as those that come.
            self.since_ns = now_ns;
            self.index.set_past(past.map(|past| past.latest));
            self.shows_past = past.is_some();
        }
        if self.standing.keeps_unread() {
            let (geometry, sequence) =
                (store.geometry(), past.map_or(store.sequence(), |past| past.sequence));
            let first = self.ends_at.max(oldest(geometry, store.sequence()));
            (first..=sequence).for_each(|at| self.ends[geometry.slot(at)] = self.index.head());
            self.ends_at = sequence;
        }
    }

    fn demote(&mut self, standing: Guarantee) {
        self.standing = standing;
        self.index.set_standing(standing);
    }

    /// Sleeps until it has come on, for `timeout` at most and never long.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<FutexWaitEnd, Error> {
        // The reader may sleep until there is more, and the buffer has no room before it reads.
        if self.index.has_news()
            && let Some(sleep) = self.index.sleeps()
        {
            self.wake(sleep);
        }
        let waited = match self.index.announce_sleep() {
            Some(seen) if !self.bell.is_hung_up() => {
                futex::wait(self.index.turn_word(), seen, timeout.min(self.nap))
            }
            _ => Ok(FutexWaitEnd::Changed),
        };
        self.index.announce_awake();
        waited.map_err(Error::system("wait for a reader"))
    }

    /// Sets the longest sleep until it comes on.
    #[cfg(all(test, not(miri)))]
    pub(super) fn set_nap(&mut self, nap: Duration) {
        self.nap = nap;
    }

    /// Wakes it if it sleeps and has waited for this, or has so much to read that it might lose some: `current` is the
    /// block that is being filled.
    fn wake_if_due(&mut self, now_ns: u64, current: u64, blocks: u64) {
        let Some(sleep) = self.index.sleeps().filter(|_| self.index.has_news()) else {
            self.pending = None;
            return;
        };
        let Pending { since_ns, block } =
            *self.pending.get_or_insert(Pending { since_ns: now_ns, block: current });
        let is_far_behind = current.saturating_sub(block) >= self.sleep_max(blocks);
        if is_far_behind || self.index.should_wake(now_ns.saturating_sub(since_ns)) {
            self.wake(sleep);
        }
    }

    /// Number of a buffer's blocks that may be filled while it sleeps over packets.
    fn sleep_max(&self, blocks: u64) -> u64 {
        let half_of_credit = self.credit.map_or(u64::MAX, |credit| credit.blocks / 2);
        half_of_credit.min(blocks / 4).max(1)
    }

    fn wake(&mut self, sleep: Sleep) {
        self.pending = None;
        self.wakes += 1;
        self.index.mark_awake();
        match sleep {
            Sleep::OnFutex => {
                futex::wake(self.index.waiting_word());
            }
            Sleep::OnBell => self.bell.ring(),
        }
    }
}

/// All of them.
pub(super) struct Readers {
    slots: Vec<Option<Attached>>,
    numbers: u32,
    geometry: Geometry,
    /// The time when each block was last published to, by its place.
    touched_ns: Box<[u64]>,
    /// Records and block at that time.
    touched: (u64, u64),
    /// Counted, so that the path of most captures asks no reader.
    lossless: usize,
    now_ns: u64,
    /// The block that is being filled.
    current: u64,
}

impl Readers {
    pub(super) fn new(geometry: Geometry) -> Readers {
        Readers {
            slots: Vec::new(),
            numbers: 0,
            geometry,
            touched_ns: vec![0; geometry.blocks()].into(),
            touched: (0, 0),
            lossless: 0,
            now_ns: 0,
            current: 0,
        }
    }

    /// The time of the last call that gave it.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Whether one more reader of this policy is possible, and the promised credit.
    pub(super) fn admit(&self, policy: &Policy) -> Result<Option<Credit>, Error> {
        if self.attached().count() >= READERS_MAX {
            return Err(Error::TooManyReaders { most: READERS_MAX });
        }
        let Policy::Leased { bytes, time } = *policy else { return Ok(None) };
        let most = holders_max(self.geometry);
        if self.attached().filter(|reader| reader.credit.is_some()).count() >= most {
            return Err(Error::TooManyReaders { most });
        }
        let (blocks, block_len) = (self.geometry.blocks() as u64, self.geometry.block_len() as u64);
        let asked = bytes.div_ceil(block_len);
        if asked > blocks / 2 {
            return Err(Error::CreditTooLarge { asked: bytes, most: blocks / 2 * block_len });
        }
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Ok(Some(Credit { blocks: asked.max(1), time_ns }))
    }

    pub(super) fn add(&mut self, make: impl FnOnce(ReaderId) -> Attached) -> ReaderId {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.numbers = self.numbers.wrapping_add(1);
        let id = ReaderId { slot: slot as u32, number: self.numbers };
        let reader = Attached { since_ns: self.now_ns, ..make(id) };
        self.lossless += usize::from(reader.standing == Guarantee::Lossless);
        self.slots[slot] = Some(reader);
        id
    }

    #[inline]
    pub(super) fn get(&mut self, id: ReaderId) -> Result<&mut Attached, Error> {
        let reader = self.slots.get_mut(id.slot as usize).and_then(Option::as_mut);
        reader.filter(|reader| reader.id == id).ok_or(Error::UnknownReader)
    }

    pub(super) fn remove(&mut self, id: ReaderId) -> Result<Attached, Error> {
        self.get(id)?;
        let reader = self.slots[id.slot as usize].take().ok_or(Error::UnknownReader)?;
        self.lossless -= usize::from(reader.standing == Guarantee::Lossless);
        Ok(reader)
    }

    pub(super) fn reap(&mut self) -> Vec<DetachedReader> {
        let gone: Vec<ReaderId> =
            self.attached().filter(|reader| reader.bell.is_hung_up()).map(|reader| reader.id).collect();
        gone.into_iter().filter_map(|id| self.depart(id)).collect()
    }

    /// All are woken, whatever they wait for: it is the end, which they can see.
    pub(super) fn wake_all(&mut self) {
        fence_for_sleepers();
        for reader in self.slots.iter_mut().flatten() {
            if let Some(sleep) = reader.index.sleeps() {
                reader.wake(sleep);
            }
        }
    }

    fn depart(&mut self, id: ReaderId) -> Option<DetachedReader> {
        let mut reader = self.remove(id).ok()?;
        Some(DetachedReader { id, account: reader.index.account() })
    }

    fn attached(&self) -> impl Iterator<Item = &Attached> {
        self.slots.iter().flatten()
    }

    /// A reader lost packets while they were indexed, and its promise cannot be kept.
    #[cold]
    pub(super) fn demote(&mut self, id: ReaderId) -> Result<(), Error> {
        let reader = self.get(id)?;
        let was_lossless = reader.standing == Guarantee::Lossless;
        reader.demote(Guarantee::LossyByBytes);
        self.lossless -= usize::from(was_lossless);
        Ok(())
    }

    /// Shows each reader its entries.
    pub(super) fn publish(&mut self, store: &Store, now_ns: u64) {
        self.touch(store, now_ns);
        self.slots.iter_mut().flatten().for_each(|reader| reader.publish(store, now_ns));
    }

    /// Notes when the blocks that were filled since the last time were published to.
    fn touch(&mut self, store: &Store, now_ns: u64) {
        (self.now_ns, self.current) = (now_ns, store.sequence());
        let (records, sequence) = self.touched;
        if store.records() != records {
            let oldest = oldest(self.geometry, self.current);
            (sequence.max(oldest)..=self.current)
                .for_each(|at| self.touched_ns[self.geometry.slot(at)] = now_ns);
            self.touched = (store.records(), self.current);
        }
    }

    /// One fence for all, then a look at each.
    pub(super) fn wake_sleepers(&mut self, now_ns: u64) {
        if self.attached().next().is_none() {
            return;
        }
        fence_for_sleepers();
        let (current, blocks) = (self.current, self.geometry.blocks() as u64);
        self.slots.iter_mut().flatten().for_each(|reader| reader.wake_if_due(now_ns, current, blocks));
    }

    pub(super) fn next_wake_ns(&self) -> Option<u64> {
        self.attached()
            .filter_map(|reader| Some(reader.pending?.since_ns.saturating_add(reader.index.wake_after_ns())))
            .min()
    }

    /// Makes those lossy that exceeded their credit.
    pub(super) fn enforce(&mut self, store: &Store, now_ns: u64) {
        (self.now_ns, self.current) = (now_ns, store.sequence());
        self.enforce_credit();
    }

    fn enforce_credit(&mut self) {
        let (geometry, current) = (self.geometry, self.current);
        let (now_ns, touched_ns) = (self.now_ns, &self.touched_ns);
        for reader in self.slots.iter_mut().flatten() {
            let (Some(credit), Guarantee::Leased) = (reader.credit, reader.standing) else { continue };
            // Unpublished packets have no end yet, and are unread.
            let beyond = current.saturating_sub(credit.blocks).min(reader.ends_at);
            if beyond > 0 && reader.has_unread_at(geometry.slot(beyond)) {
                reader.demote(Guarantee::LossyByBytes);
            } else if let Some(slot) = oldest_unread(reader, geometry, current)
                && now_ns.saturating_sub(touched_ns[slot].max(reader.since_ns)) > credit.time_ns
            {
                reader.demote(Guarantee::LossyByTime);
            }
        }
    }

    /// Maximum number of held blocks that are skipped, one for each reader that may hold.
    fn passed_max(&self) -> usize {
        self.attached().filter(|reader| reader.credit.is_some()).count()
    }

    /// Number of blocks that the writer moves on, at most, when it opens `blocks` more.
    pub(super) fn reach(&self, blocks: usize) -> u64 {
        if blocks == 0 { 0 } else { (blocks + self.passed_max()) as u64 }
    }

    /// A batch is stored from here on: the blocks that each reader may hold are counted over all of it.
    pub(super) fn begin_batch(&mut self) {
        self.slots.iter_mut().flatten().for_each(|reader| reader.holds = 0);
    }

    /// Whether any reader has not come to the present, or has not all of the past counted.
    pub(super) fn has_replays(&self) -> bool {
        self.attached().any(|reader| reader.past.is_some())
    }

    pub(super) fn has_lossless(&self) -> bool {
        self.lossless > 0
    }

    /// Whether lossless readers have room for `packets` packets in `blocks` new blocks.
    pub(super) fn room(&mut self, store: &Store, blocks: usize, packets: usize) -> Result<WriteRoom, Error> {
        let (geometry, passed) = (self.geometry, self.passed_max());
        if blocks > 0 && blocks + passed + 1 > geometry.blocks() {
            return Err(Error::BatchTooLarge { packets, blocks });
        }
        let first = store.sequence() + 1;
        let reach = self.reach(blocks);
        for reader in self.slots.iter_mut().flatten() {
            if reader.standing != Guarantee::Lossless {
                continue;
            }
            // A reader in the past is not offered them before it has come to them.
            let is_past = reader.past.is_some_and(|past| past.until.is_none());
            let needs_entries = !is_past && reader.index.room_for(packets as u64) < packets as u64;
            if needs_entries && packets as u64 > reader.index.capacity() {
                return Err(Error::BatchTooLarge { packets, blocks });
            }
            let needs_blocks = (first..first + reach)
                .any(|at| store.held_at(at) != 0 && reader.has_unread_at(geometry.slot(at)));
            if needs_entries || needs_blocks || reader.is_pressed(store, reach) {
                return Ok(WriteRoom::Blocked(reader.id));
            }
        }
        Ok(WriteRoom::Ready)
    }
}

/// The place of the oldest block in which a reader has not read something.
fn oldest_unread(reader: &mut Attached, geometry: Geometry, current: u64) -> Option<usize> {
    let consumed = reader.index.listen();
    (oldest(geometry, current)..=current)
        .map(|at| geometry.slot(at))
        .find(|slot| reader.ends[*slot] > consumed)
}

/// The oldest block that the buffer can hold, if none was skipped.
fn oldest(geometry: Geometry, current: u64) -> u64 {
    current.saturating_sub(geometry.blocks() as u64 - 1).max(1)
}

impl Holders for Readers {
    fn begin(&mut self, current: u64) {
        self.current = current;
        self.enforce_credit();
        // Pairs with the fence in `View::hold`: a reader that we find at one block hears what it may expect before it
        // looks at another in place.
        fence(SeqCst);
    }

    fn hold(&mut self, sequence: u64) -> bool {
        let mut is_held = false;
        for reader in self.slots.iter_mut().flatten() {
            if reader.credit.is_none() || reader.standing == Guarantee::Refused {
                continue;
            }
            if reader.index.held() == sequence {
                reader.holds += 1;
                if reader.holds > HOLDS_MAX {
                    reader.demote(Guarantee::Refused);
                } else {
                    is_held = true;
                }
            }
        }
        is_held
    }

    fn give_up(&mut self, sequence: u64) {
        let slot = self.geometry.slot(sequence);
        for reader in self.slots.iter_mut().flatten() {
            // Packets indexed since the last publication have no end yet, and may be in any block from then on.
            let may_be_new = sequence >= reader.ends_at && reader.index.has_unpublished();
            if reader.standing.keeps_unread() && (may_be_new || reader.has_unread_at(slot)) {
                self.lossless -= usize::from(reader.standing == Guarantee::Lossless);
                reader.demote(Guarantee::LossyByBytes);
            }
        }
    }
}
