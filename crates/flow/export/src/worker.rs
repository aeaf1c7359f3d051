//! An exporter's thread: encodes batches, offers blocks to the carrier, and keeps them until they are acknowledged.
//!
//! ```text
//! batch --encode--> waiting --offer--> taken --Delivered--> counted
//!                    |   ^               |---Refused------> lost
//!    receiver away:  v   '---------------+---Again, after a pause that doubles
//!                  spool --oldest first--'
//! ```
//!
//! Blocks go into the spool while the receiver is away, while older ones wait there, or when half of the memory is full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crate::account::{Cause, Tally};
use crate::backoff::Backoff;
use crate::outlet::{Batch, Limits, MakeBlocks, OutletState, Shared};
use crate::spool::Entry;
use crate::{Block, Carrier, Offer, Outcome, Report, Spool};

/// The longest wait for a report before new batches are looked at.
const POLL: Duration = Duration::from_millis(20);
/// The longest wait for a batch.
const IDLE: Duration = Duration::from_millis(200);
/// Blocks that wait for the carrier before no further batch is encoded.
const WAITING_MAX: usize = 16;
/// Blocks of the spool that are in memory at a time.
const LOADED_MAX: usize = 4;

pub(crate) struct Worker<B> {
    blocks: Box<dyn MakeBlocks<B>>,
    carrier: Box<dyn Carrier>,
    spool: Option<Spool>,
    limits: Limits,
    shared: Arc<Shared>,
    /// Takes batches that were encoded.
    spent: SyncSender<B>,
    backoff: Backoff,
    waiting: VecDeque<PendingBlock>,
    taken: Vec<PendingBlock>,
    last_acknowledged: Instant,
    /// When the end of the run was seen.
    ended: Option<Instant>,
    /// Whether the last batch was encoded.
    is_drained: bool,
}

/// A block that is not acknowledged yet.
struct PendingBlock {
    block: Arc<Block>,
    /// File of the block, if it is one of the spool.
    entry: Option<Entry>,
}

impl<B: Batch> Worker<B> {
    pub(crate) fn new(
        blocks: Box<dyn MakeBlocks<B>>,
        carrier: Box<dyn Carrier>,
        spool: Option<Spool>,
        limits: Limits,
        shared: Arc<Shared>,
        spent: SyncSender<B>,
    ) -> Worker<B> {
        let mut worker = Worker {
            blocks,
            carrier,
            spool,
            limits,
            shared,
            spent,
            backoff: Backoff::default(),
            waiting: VecDeque::new(),
            taken: Vec::new(),
            last_acknowledged: Instant::now(),
            ended: None,
            is_drained: false,
        };
        worker.tell_what_was_found();
        worker
    }

    fn tell_what_was_found(&mut self) {
        let Some(spool) = &self.spool else { return };
        let mut state = self.shared.lock();
        state.account.found = spool.found();
        if spool.unreadable() > 0 {
            state.tell(format!("{} files in the spool are not blocks: renamed to .bad", spool.unreadable()));
        }
    }

    pub(crate) fn run(mut self, batches: &Receiver<B>) {
        while !self.is_done() {
            if let Some(batch) = self.next_batch(batches) {
                self.encode(batch);
            }
            self.spill();
            self.load();
            self.offer();
            self.poll();
        }
        self.give_up(batches);
    }

    /// The next batch, if there is one and room for its blocks.
    fn next_batch(&mut self, batches: &Receiver<B>) -> Option<B> {
        let rest = self.backoff.rest(Instant::now());
        let is_idle = self.taken.is_empty() && (self.waiting.is_empty() || !rest.is_zero());
        let wait = match is_idle {
            true if self.has_backlog() => rest.min(IDLE),
            true => IDLE,
            false => Duration::ZERO,
        };
        if self.ended.is_none() && self.shared.is_ending.load(Ordering::Relaxed) {
            self.ended = Some(Instant::now());
        }
        if self.waiting.len() >= WAITING_MAX || self.is_drained {
            std::thread::sleep(wait);
            return None;
        }
        match batches.recv_timeout(wait) {
            Ok(batch) => Some(batch),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.ended.get_or_insert_with(Instant::now);
                self.is_drained = true;
                None
            }
        }
    }

    /// Whether blocks wait for the receiver.
    fn has_backlog(&self) -> bool {
        !self.waiting.is_empty() || self.spool.as_ref().is_some_and(Spool::has_waiting)
    }

    fn encode(&mut self, mut batch: B) {
        let (tally, held) = (batch.tally(), batch.bytes());
        let blocks = self.blocks.blocks(&mut batch, self.limits.block);
        // One more than is wanted is dropped.
        let _ = self.spent.try_send(batch);
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(reason) => return self.lose_batch(tally, held, reason),
        };
        let bytes: usize = blocks.iter().map(|block| block.bytes.len()).sum();
        let kept = blocks.into_iter().map(|block| PendingBlock { block: Arc::new(block), entry: None });
        self.waiting.extend(kept);
        let mut state = self.shared.lock();
        state.memory = (state.memory + bytes).saturating_sub(held);
        drop(state);
        self.shared.notify();
    }

    /// Counts a batch that cannot be encoded as refused.
    fn lose_batch(&self, tally: Tally, held: usize, reason: String) {
        let mut state = self.shared.lock();
        state.account.lose(Cause::Refused, tally);
        state.memory = state.memory.saturating_sub(held);
        self.note_loss(&mut state, Cause::Refused, reason);
        drop(state);
        self.shared.notify();
    }

    /// Puts blocks into the spool that are not delivered soon.
    fn spill(&mut self) {
        let Some(spool) = &self.spool else { return };
        let is_crowded = self.shared.lock().memory > self.limits.memory / 2;
        if !self.backoff.is_failing() && !spool.has_waiting() && !is_crowded {
            return;
        }
        for kept in std::mem::take(&mut self.waiting) {
            match kept.entry {
                None => self.keep(kept, is_crowded),
                Some(_) => self.waiting.push_back(kept),
            }
        }
    }

    /// Stores a block. Where the spool is full it waits in memory, as long as there is some.
    fn keep(&mut self, kept: PendingBlock, must_go: bool) {
        let Some(spool) = &mut self.spool else { return self.waiting.push_back(kept) };
        let reason = match spool.has_room(&kept.block) {
            true => match spool.store(&kept.block) {
                Ok(()) => return self.count_spooled(&kept.block),
                Err(error) => format!("the spool cannot be written: {error}"),
            },
            false => "the spool is full".to_owned(),
        };
        match must_go {
            true => self.lose(&kept.block, Cause::SpoolFull, reason),
            false => self.waiting.push_back(kept),
        }
    }

    fn count_spooled(&self, block: &Block) {
        let mut state = self.shared.lock();
        state.account.in_flight -= Tally::of(block);
        state.account.spooled += Tally::of(block);
        self.release(block, state);
    }

    fn lose(&self, block: &Block, cause: Cause, reason: String) {
        let mut state = self.shared.lock();
        state.account.lose(cause, Tally::of(block));
        self.note_loss(&mut state, cause, reason);
        self.release(block, state);
    }

    fn note_loss(&self, state: &mut OutletState, cause: Cause, reason: String) {
        if state.reasons[cause as usize].is_none() {
            state.tell(format!("{}: {} are lost: {reason}", self.carrier.name(), B::WHAT));
            state.reasons[cause as usize] = Some(reason);
        }
    }

    /// Returns the memory of a block.
    fn release(&self, block: &Block, mut state: std::sync::MutexGuard<'_, OutletState>) {
        state.memory = state.memory.saturating_sub(block.bytes.len());
        drop(state);
        self.shared.notify();
    }

    /// Reads the oldest blocks of the spool, a few at a time.
    fn load(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        if !self.backoff.rest(Instant::now()).is_zero() {
            return;
        }
        let is_loaded = |kept: &&PendingBlock| kept.entry.is_some();
        let mut loaded = self.waiting.iter().chain(&self.taken).filter(is_loaded).count();
        while loaded < LOADED_MAX
            && let Some(next) = spool.load()
        {
            match next {
                Ok((entry, block)) => {
                    self.shared.lock().memory += block.bytes.len();
                    self.waiting.push_back(PendingBlock { block: Arc::new(block), entry: Some(entry) });
                    loaded += 1;
                }
                Err((entry, error)) => {
                    spool.put_aside(&entry);
                    let mut state = self.shared.lock();
                    match entry.is_own {
                        true => {
                            state.account.spooled -= entry.tally;
                            state.account.in_flight += entry.tally;
                            state.account.lose(Cause::SpoolFull, entry.tally);
                        }
                        false => state.account.replay_lost += entry.tally,
                    }
                    state.tell(format!("a block of the spool is lost: {error}"));
                }
            }
        }
    }

    fn offer(&mut self) {
        if !self.backoff.rest(Instant::now()).is_zero() {
            return;
        }
        while let Some(kept) = self.waiting.pop_front() {
            match self.carrier.offer(&kept.block) {
                Offer::Taken => self.taken.push(kept),
                Offer::Full => {
                    self.waiting.push_front(kept);
                    // No report will make room.
                    if self.taken.is_empty() {
                        self.backoff.fail(Instant::now());
                    }
                    return;
                }
            }
        }
    }

    fn poll(&mut self) {
        let mut wait = if self.taken.is_empty() { Duration::ZERO } else { POLL };
        while let Some(report) = self.carrier.poll(wait) {
            self.handle(report);
            wait = Duration::ZERO;
        }
    }

    fn handle(&mut self, report: Report) {
        let at = self.taken.iter().position(|kept| Arc::ptr_eq(&kept.block, &report.block));
        let Some(kept) = at.map(|at| self.taken.remove(at)) else { return };
        match report.outcome {
            Outcome::Delivered => self.acknowledge(kept),
            Outcome::Refused(why) => self.refuse(&kept, why),
            Outcome::Again(why) => self.repeat(kept, &why),
        }
    }

    fn acknowledge(&mut self, kept: PendingBlock) {
        self.last_acknowledged = Instant::now();
        let was_away = self.backoff.succeed();
        self.forget(&kept);
        let mut state = self.shared.lock();
        if was_away {
            state.tell(format!("{}: takes {} again", self.carrier.name(), B::WHAT));
        }
        match &kept.entry {
            Some(entry) if !entry.is_own => state.account.replayed += entry.tally,
            _ => state.account.acknowledge(&kept.block),
        }
        self.release(&kept.block, state);
        if let Ok(block) = Arc::try_unwrap(kept.block) {
            self.blocks.reuse(block.bytes);
        }
    }

    fn refuse(&mut self, kept: &PendingBlock, why: String) {
        self.forget(kept);
        match &kept.entry {
            Some(entry) if !entry.is_own => {
                let mut state = self.shared.lock();
                state.account.replay_lost += entry.tally;
                self.note_loss(&mut state, Cause::Refused, why);
                self.release(&kept.block, state);
            }
            _ => self.lose(&kept.block, Cause::Refused, why),
        }
    }

    /// Takes a block out of the spool: of this run, it is in flight again.
    fn forget(&mut self, kept: &PendingBlock) {
        let (Some(entry), Some(spool)) = (&kept.entry, &mut self.spool) else { return };
        spool.remove(entry);
        if entry.is_own {
            let mut state = self.shared.lock();
            state.account.spooled -= entry.tally;
            state.account.in_flight += entry.tally;
        }
    }

    fn repeat(&mut self, kept: PendingBlock, why: &str) {
        let was_failing = self.backoff.is_failing();
        self.backoff.fail(Instant::now());
        let mut state = self.shared.lock();
        state.account.repeated += 1;
        if !was_failing {
            let place = if self.spool.is_some() { "the spool" } else { "memory" };
            state.tell(format!("{}: {why}; {} wait in {place}", self.carrier.name(), B::WHAT));
        }
        match (kept.entry, &mut self.spool) {
            (Some(entry), Some(spool)) => {
                spool.put_back(entry);
                self.release(&kept.block, state);
            }
            (entry, _) => {
                let number = kept.block.id.number;
                let at = self
                    .waiting
                    .partition_point(|other| other.entry.is_some() || other.block.id.number < number);
                self.waiting.insert(at, PendingBlock { block: kept.block, entry });
            }
        }
    }

    /// Whether the run has ended, and everything is delivered or has been waited for.
    fn is_done(&self) -> bool {
        let Some(ended) = self.ended else { return self.shared.is_cancelled.load(Ordering::Relaxed) };
        let is_safe =
            self.is_drained && self.waiting.iter().chain(&self.taken).all(|kept| kept.entry.is_some());
        if is_safe && self.taken.is_empty() && !self.has_backlog() {
            return true;
        }
        // A spool may have days: it is not emptied at the end of a run.
        let since = if is_safe { ended } else { ended.max(self.last_acknowledged) };
        self.shared.is_cancelled.load(Ordering::Relaxed) || since.elapsed() > self.limits.patience
    }

    /// Ends the work: blocks that are not delivered by now are spooled, or lost.
    fn give_up(&mut self, batches: &Receiver<B>) {
        for report in self.carrier.give_up() {
            self.handle(report);
        }
        // Those that the carrier did not report.
        self.waiting.extend(std::mem::take(&mut self.taken));
        loop {
            for kept in std::mem::take(&mut self.waiting).into_iter().filter(|kept| kept.entry.is_none()) {
                match self.spool {
                    Some(_) => self.keep(kept, true),
                    None => self.lose(&kept.block, Cause::Undelivered, self.reason()),
                }
            }
            let Ok(batch) = batches.recv() else { return };
            self.encode(batch);
        }
    }

    fn reason(&self) -> String {
        let is_cancelled = self.shared.is_cancelled.load(Ordering::Relaxed);
        match is_cancelled {
            true => "the run was interrupted".to_owned(),
            false => format!("no acknowledgement for {} s", self.limits.patience.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests;
