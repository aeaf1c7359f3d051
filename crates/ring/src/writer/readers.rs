//! All readers of a writer: who is attached, what it may expect, whether it sleeps.

use std::time::Duration;

use tapline_sys::{Bell, futex};

use crate::Error;
use crate::layout::{Geometry, Standing};
use crate::producer::{Producer, Sleep, fence_for_sleepers, to_words};
use crate::store::{Entry, Holders, Store};
use crate::writer::{Departed, Policy, READERS_MAX, ReaderId, Room, holders_max};

/// A reader that is found holding more blocks than this while one is looked for moves its mark as we look: an honest one holds one, and
/// has to read on between two.
const HOLDS_MAX: u32 = 8;
/// How long the writer sleeps at most before it looks whether the reader still lives.
const NAP: Duration = Duration::from_millis(20);

/// What a leased reader was promised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    blocks: u64,
    time_ns: u64,
}

/// One reader.
pub(super) struct Attached {
    id: ReaderId,
    pub(super) index: Producer,
    bell: Bell,
    pub(super) standing: Standing,
    /// Promised to leased readers, also to those that exceeded it: what they hold stays theirs.
    credit: Option<Credit>,
    /// For each block, by its place: the entry after the last one that may lead there. Empty for readers that nothing is kept for.
    ends: Box<[u64]>,
    /// Up to which block `ends` is known.
    ends_at: u64,
    /// When it was first seen asleep with something to read.
    pending_since_ns: Option<u64>,
    pub(super) wakes: u64,
    /// Blocks that it held while one was looked for.
    holds: u32,
}

impl Attached {
    pub(super) fn new(
        id: ReaderId,
        index: Producer,
        bell: Bell,
        standing: Standing,
        credit: Option<Credit>,
        blocks: usize,
    ) -> Attached {
        let ends = if standing.is_kept() { vec![0; blocks].into() } else { Box::default() };
        Attached {
            id,
            index,
            bell,
            standing,
            credit,
            ends,
            ends_at: 0,
            pending_since_ns: None,
            wakes: 0,
            holds: 0,
        }
    }

    /// Entries of packets that were stored long ago.
    pub(super) fn replay(&mut self, found: &[(Entry, u32)], geometry: Geometry) {
        let room = self.index.room_for(found.len() as u64) as usize;
        let (lost, kept) = found.split_at(found.len() - room);
        self.index.lose(lost.len() as u64);
        let before = self.index.head();
        self.index.push(kept.iter().map(|(entry, verdict)| to_words(*entry, *verdict)));
        if self.standing.is_kept() {
            for (number, (entry, _)) in kept.iter().enumerate() {
                self.ends[geometry.place(entry.position).slot] = before + number as u64 + 1;
            }
        }
    }

    /// Whether it has not read something in the block at a place, as last heard; may be true a little longer than it is.
    fn has_unread_at(&mut self, slot: usize) -> bool {
        // Asked only when it matters, and then anew.
        self.ends[slot] > self.index.listen()
    }

    fn publish(&mut self, store: &Store) {
        self.index.publish();
        if self.standing.is_kept() {
            let (geometry, sequence) = (store.geometry(), store.sequence());
            let first = self.ends_at.max(sequence.saturating_sub(geometry.blocks() as u64 - 1));
            (first..=sequence).for_each(|at| self.ends[geometry.slot(at)] = self.index.head());
            self.ends_at = sequence;
        }
    }

    fn demote(&mut self, standing: Standing) {
        self.standing = standing;
        self.index.set_standing(standing);
    }

    /// Sleeps until it has come on, for `timeout` at most and never long.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let waited = match self.index.announce_sleep() {
            Some(seen) if !self.bell.is_hung_up() => {
                futex::wait(self.index.turn_word(), seen, timeout.min(NAP)).map(|_| ())
            }
            _ => Ok(()),
        };
        self.index.announce_awake();
        waited.map_err(Error::system("wait for a reader"))
    }

    /// Wakes it if it sleeps and has waited for this.
    fn wake_if_due(&mut self, now_ns: u64) {
        let Some(sleep) = self.index.sleeps() else {
            self.pending_since_ns = None;
            return;
        };
        self.index.listen();
        if self.index.unread() == 0 {
            self.pending_since_ns = None;
            return;
        }
        let since = *self.pending_since_ns.get_or_insert(now_ns);
        if self.index.should_wake(now_ns.saturating_sub(since)) {
            self.wake(sleep);
        }
    }

    fn wake(&mut self, sleep: Sleep) {
        self.pending_since_ns = None;
        self.wakes += 1;
        self.index.mark_awake();
        match sleep {
            Sleep::OnFutex => futex::wake(self.index.head_word()),
            Sleep::OnBell => self.bell.ring(),
        }
    }
}

/// All of them.
pub(super) struct Readers {
    slots: Vec<Option<Attached>>,
    numbers: u32,
    geometry: Geometry,
    /// When each block was last published to, by its place.
    touched_ns: Box<[u64]>,
    /// Records and block at that time.
    touched: (u64, u64),
    /// Counted, so that the path of most captures asks nobody.
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

    /// Whether one more of this policy can be had, and what it is promised.
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
        let reader = make(id);
        self.lossless += usize::from(reader.standing == Standing::Lossless);
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
        self.lossless -= usize::from(reader.standing == Standing::Lossless);
        Ok(reader)
    }

    pub(super) fn reap(&mut self) -> Vec<Departed> {
        let gone: Vec<ReaderId> =
            self.attached().filter(|reader| reader.bell.is_hung_up()).map(|reader| reader.id).collect();
        gone.into_iter().filter_map(|id| self.depart(id)).collect()
    }

    /// All are told that it is the end, whatever they wait for.
    pub(super) fn end(&mut self) {
        for reader in self.slots.iter_mut().flatten() {
            reader.index.publish();
        }
        fence_for_sleepers();
        for reader in self.slots.iter_mut().flatten() {
            if let Some(sleep) = reader.index.sleeps() {
                reader.wake(sleep);
            }
        }
    }

    pub(super) fn depart_all(&mut self) -> Vec<Departed> {
        let ids: Vec<ReaderId> = self.ids().collect();
        ids.into_iter().filter_map(|id| self.depart(id)).collect()
    }

    fn depart(&mut self, id: ReaderId) -> Option<Departed> {
        let mut reader = self.remove(id).ok()?;
        Some(Departed { id, account: reader.index.account() })
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ReaderId> {
        self.attached().map(|reader| reader.id)
    }

    fn attached(&self) -> impl Iterator<Item = &Attached> {
        self.slots.iter().flatten()
    }

    /// Shows each reader its entries, then wakes.
    pub(super) fn publish(&mut self, store: &Store, now_ns: u64) {
        self.touch(store, now_ns);
        let mut any = false;
        for reader in self.slots.iter_mut().flatten() {
            reader.publish(store);
            any = true;
        }
        if any {
            self.wake_sleepers(now_ns);
        }
    }

    /// Notes when the blocks that were filled since the last time were published to.
    fn touch(&mut self, store: &Store, now_ns: u64) {
        (self.now_ns, self.current) = (now_ns, store.sequence());
        let (records, sequence) = self.touched;
        if store.records() != records {
            let oldest = self.current.saturating_sub(self.geometry.blocks() as u64 - 1);
            (sequence.max(oldest)..=self.current)
                .for_each(|at| self.touched_ns[self.geometry.slot(at)] = now_ns);
            self.touched = (store.records(), self.current);
        }
    }

    /// One fence for all, then a look at each.
    pub(super) fn wake_sleepers(&mut self, now_ns: u64) {
        fence_for_sleepers();
        self.slots.iter_mut().flatten().for_each(|reader| reader.wake_if_due(now_ns));
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        self.attached()
            .filter_map(|reader| Some(reader.pending_since_ns?.saturating_add(reader.index.wake_after_ns())))
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
            let (Some(credit), Standing::Leased) = (reader.credit, reader.standing) else { continue };
            if current > credit.blocks && reader.has_unread_at(geometry.slot(current - credit.blocks)) {
                reader.demote(Standing::LossyByBytes);
            } else if let Some(slot) = oldest_unread(reader, geometry, current)
                && now_ns.saturating_sub(touched_ns[slot]) > credit.time_ns
            {
                reader.demote(Standing::LossyByTime);
            }
        }
    }

    pub(super) fn has_lossless(&self) -> bool {
        self.lossless > 0
    }

    /// Whether lossless readers have room for so many packets in so many new blocks.
    pub(super) fn room(&mut self, store: &Store, blocks: usize, packets: usize) -> Result<Room, Error> {
        // Held blocks may be passed over, one for each reader that may hold.
        let passed = self.attached().filter(|reader| reader.credit.is_some()).count();
        let geometry = self.geometry;
        if blocks > 0 && blocks + passed + 1 > geometry.blocks() {
            return Err(Error::BatchTooLarge { packets, blocks });
        }
        let first = store.sequence() + 1;
        let reach = if blocks == 0 { 0 } else { (blocks + passed) as u64 };
        for reader in self.slots.iter_mut().flatten() {
            if reader.standing != Standing::Lossless {
                continue;
            }
            let needs_entries = reader.index.room_for(packets as u64) < packets as u64;
            if needs_entries && packets as u64 > reader.index.capacity() {
                return Err(Error::BatchTooLarge { packets, blocks });
            }
            let needs_blocks = (first..first + reach)
                .any(|at| store.held_at(at) != 0 && reader.has_unread_at(geometry.slot(at)));
            if needs_entries || needs_blocks {
                return Ok(Room::Blocked(reader.id));
            }
        }
        Ok(Room::Ready)
    }
}

/// The place of the oldest block in which a reader has not read something.
fn oldest_unread(reader: &mut Attached, geometry: Geometry, current: u64) -> Option<usize> {
    let consumed = reader.index.listen();
    let oldest = current.saturating_sub(geometry.blocks() as u64 - 1).max(1);
    (oldest..=current).map(|at| geometry.slot(at)).find(|slot| reader.ends[*slot] > consumed)
}

impl Holders for Readers {
    fn begin(&mut self) {
        self.slots.iter_mut().flatten().for_each(|reader| reader.holds = 0);
        self.enforce_credit();
    }

    fn hold(&mut self, sequence: u64, _is_late: bool) -> bool {
        let mut is_held = false;
        for reader in self.slots.iter_mut().flatten() {
            if reader.credit.is_none() || reader.standing == Standing::Refused {
                continue;
            }
            if reader.index.held() == sequence {
                reader.holds += 1;
                if reader.holds > HOLDS_MAX {
                    reader.demote(Standing::Refused);
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
            if reader.standing.is_kept() && reader.has_unread_at(slot) {
                self.lossless -= usize::from(reader.standing == Standing::Lossless);
                reader.demote(Standing::LossyByBytes);
            }
        }
    }
}
