//! A source that several workers share: each worker gets its packets.
//!
//! ```text
//!                       /-- records of worker 0 --> FlowShardSource --> worker 0
//! source --> block: bytes, once                                          at most 2 * workers + 2 blocks; a block that all workers are through
//!                       \-- records of worker 1 --> FlowShardSource --> worker 1    with is filled again
//! ```
//!
//! A hash of the addresses chooses the worker of a packet: both directions of a flow and all fragments of its packets
//! come to one worker, and the shares of all workers together are the source. The blocks come
//!
//! - from the workers themselves, if the source can be [split](Source::split), as a large file can: a worker that has no
//!   block to go on with takes a piece of the source, computes the hashes, and publishes the piece as a block;
//! - else from one more thread, the reader: it copies each span of bytes once, and hands over blocks of 256 KiB.
//!
//! Either takes a few locks a block and none a packet. A slow worker holds the others back, which then wait for a free
//! block, or until blocks with very long packets have less than 64 MiB; memory stays bounded.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, Interface, Record};
use tapline_source::{Advance, Error, Event, InterfaceAccount, Piece, PieceReader, Source, free_long_buffer};
use tapline_sys::tsc;

use self::block::Block;
use self::reader::start;
use crate::worker_merge::Watermark;

mod block;
mod reader;
#[cfg(test)]
mod tests;

/// With so many bytes in blocks no further one is begun. Only very long packets need as many.
const FILLED_LEN_MAX: usize = 64 << 20;
/// The longest time that a worker waits for the first block of a source.
const BEGINNING_WAIT: Duration = Duration::from_secs(1);
/// The longest time that a stopped worker waits for the reader's last account.
const ACCOUNT_WAIT: Duration = Duration::from_millis(500);

/// State that the reader and the workers share.
struct SharedBlocks {
    state: Mutex<ShardState>,
    /// A block was filled, or the source is at its end.
    filled: Condvar,
    /// A block is free, or the reader is to stop.
    freed: Condvar,
    /// The amount read, and the whole; the latter is [`u64::MAX`] if unknown.
    progress: [AtomicU64; 2],
    /// The pieces of a source that workers read themselves.
    pieces: Option<Arc<dyn PieceReader>>,
}

struct ShardState {
    /// The source, until the first worker asks for packets.
    source: Option<Box<dyn Source>>,
    reader: Option<JoinHandle<()>>,
    /// Blocks that some worker is not through with, and the number of the first of them.
    filled: VecDeque<Arc<Block>>,
    first: u64,
    spare: Vec<Block>,
    /// Blocks of pieces whose place is behind one that is not filled yet.
    early: BTreeMap<u64, Block>,
    /// Blocks that workers fill now, and early ones.
    begun: usize,
    /// For each worker: the number of the block that it takes next, or is at.
    at: Vec<u64>,
    /// Workers that sleep, and whether the reader does.
    sleeping: usize,
    is_full: bool,
    interfaces: Vec<Interface>,
    accounts: Vec<InterfaceAccount>,
    /// Whether a worker needs a fresh account.
    wants_account: bool,
    events: Vec<Event>,
    /// Workers that may still take packets.
    open: usize,
    is_stopped: bool,
    /// No piece is left to take.
    has_all: bool,
    /// No more blocks come.
    is_over: bool,
    error: Option<Error>,
}

impl SharedBlocks {
    fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block to fill, as soon as there is one; `None` if the reader is to stop.
    fn room(&self, workers: usize) -> Option<Block> {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.open == 0 {
                return None;
            }
            if state.has_room() {
                let Some(mut block) = state.spare.pop() else { return Some(Block::new(workers)) };
                block.clear();
                return Some(block);
            }
            state.is_full = true;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.is_full = false;
        }
    }

    fn set_progress(&self, progress: Option<(u64, u64)>) {
        if let Some((done, all)) = progress {
            self.progress[0].store(done, Ordering::Relaxed);
            self.progress[1].store(all, Ordering::Relaxed);
        }
    }

    fn publish(&self, block: Option<Block>, source: &mut dyn Source) {
        let events = source.events();
        self.set_progress(source.progress());
        let mut state = self.lock();
        let known = state.interfaces.len();
        state.interfaces.extend_from_slice(&source.interfaces()[known..]);
        if std::mem::take(&mut state.wants_account) {
            state.accounts = source.account();
        }
        state.events.extend(events);
        state.filled.extend(block.map(Arc::new));
        if state.sleeping > 0 {
            self.filled.notify_all();
        }
    }
}

impl ShardState {
    /// Whether another block may be begun.
    fn has_room(&self) -> bool {
        let blocks = self.filled.iter().map(Arc::as_ref).chain(self.early.values());
        let len: usize = blocks.map(|block| block.bytes.len()).sum();
        self.filled.len() + self.begun < 2 * self.at.len() + 2 && len < FILLED_LEN_MAX
    }

    /// Whether other blocks can follow only once a worker is through with one.
    fn is_waiting_for_room(&self) -> bool {
        self.is_full || !self.has_all && self.begun == 0 && !self.has_room()
    }

    /// Takes a block of a piece, or what came in place of it.
    fn end_block(&mut self, step: Result<Option<u64>, Option<Error>>, block: Block) {
        match step {
            Ok(Some(number)) => drop(self.early.insert(number, block)),
            Ok(None) => self.give_back(block),
            Err(error) => {
                self.give_back(block);
                self.has_all = true;
                self.error = self.error.take().or(error);
            }
        }
        while let Some(block) = self.early.remove(&(self.first + self.filled.len() as u64)) {
            self.filled.push_back(Arc::new(block));
            self.begun -= 1;
        }
        self.is_over |= self.has_all && self.begun == 0;
    }

    /// Takes a block back that a worker could not fill.
    fn give_back(&mut self, block: Block) {
        self.begun -= 1;
        self.spare.push(block);
    }

    /// Takes back blocks that all workers are through with.
    fn release(&mut self, desk: &SharedBlocks) {
        let first = self.at.iter().copied().min().unwrap_or(u64::MAX);
        while self.first < first {
            let Some(block) = self.filled.pop_front() else { break };
            self.first += 1;
            if let Some(mut block) = Arc::into_inner(block) {
                free_long_buffer(&mut block.bytes);
                self.spare.push(block);
            }
        }
        if self.is_full {
            desk.freed.notify_one();
        }
        if desk.pieces.is_some() && self.sleeping > 0 {
            desk.filled.notify_all();
        }
    }
}

/// A worker's share of a source.
pub struct FlowShardSource {
    desk: Arc<SharedBlocks>,
    worker: usize,
    interfaces: Vec<Interface>,
    block: Option<Arc<Block>>,
    /// The span of the block that is lent, or comes next if none is, and its records that are lent.
    span: usize,
    lent_records: Range<usize>,
    /// Memory of a piece, for the next one.
    piece: Piece,
    /// Packets lent of each interface.
    lent: Vec<u64>,
    /// Watermark of the progress of this worker.
    watermark: Option<Watermark>,
    waited: u64,
    is_stopped: bool,
    is_at_end: bool,
}

impl FlowShardSource {
    /// One source for each of `workers` workers, in their order.
    pub fn all(source: Box<dyn Source>, workers: usize) -> Vec<Box<dyn Source>> {
        FlowShardSource::shares(source, workers).map(|share| Box::new(share) as _).collect()
    }

    pub(crate) fn shares(
        mut source: Box<dyn Source>,
        workers: usize,
    ) -> impl Iterator<Item = FlowShardSource> {
        let workers = workers.max(1);
        let (interfaces, accounts, progress) =
            (source.interfaces().to_vec(), source.account(), source.progress());
        // A stream is read by a thread of its own also for one worker.
        let pieces = source.split(workers);
        let state = ShardState {
            accounts,
            source: pieces.is_none().then_some(source),
            reader: None,
            filled: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
            early: BTreeMap::new(),
            begun: 0,
            at: vec![0; workers],
            sleeping: 0,
            is_full: false,
            interfaces: interfaces.clone(),
            wants_account: false,
            events: Vec::new(),
            open: workers,
            is_stopped: false,
            has_all: pieces.is_none(),
            is_over: false,
            error: None,
        };
        let desk = Arc::new(SharedBlocks {
            state: Mutex::new(state),
            filled: Condvar::new(),
            freed: Condvar::new(),
            progress: [AtomicU64::new(0), AtomicU64::new(u64::MAX)],
            pieces,
        });
        desk.set_progress(progress.filter(|_| desk.pieces.is_some()));
        let share = move |worker| FlowShardSource {
            desk: Arc::clone(&desk),
            worker,
            interfaces: interfaces.clone(),
            block: None,
            span: 0,
            lent_records: 0..0,
            piece: Piece::default(),
            lent: Vec::new(),
            watermark: None,
            waited: 0,
            is_stopped: false,
            is_at_end: false,
        };
        (0..workers).map(share)
    }

    /// Makes the source report the progress of the reading if a `watermark` is given.
    pub(crate) fn mark(&mut self, watermark: Option<Watermark>) {
        watermark.iter().for_each(Watermark::set_shared);
        self.watermark = watermark;
    }

    /// Goes on to the next packets of this worker in the block.
    fn next_in_block(&mut self) -> bool {
        let Some(block) = &self.block else { return false };
        while let Some(span) = block.spans.get(self.span) {
            let records = block.records(self.span, self.worker);
            let from = self.lent_records.end;
            if from < records.len() {
                self.lent_records = from..records.len().min(from + BATCH_MAX);
                self.lent.resize(self.lent.len().max(block.interfaces), 0);
                count(&records[self.lent_records.clone()], &mut self.lent);
                if let Some(watermark) = &self.watermark {
                    watermark.begin_batch(span.places.start);
                }
                return true;
            }
            self.lent_records = 0..0;
            self.span += 1;
        }
        if let (Some(watermark), Some(last)) = (&self.watermark, block.spans.last()) {
            watermark.advance(last.places.end);
        }
        false
    }

    /// Returns the block, and takes the next one; [`Advance::Idle`] if there is none yet.
    fn next_block(&mut self, wait: Duration) -> Result<Advance, Error> {
        let was_at_one = self.block.take().is_some();
        let desk = Arc::clone(&self.desk);
        let mut state = desk.lock();
        if was_at_one {
            state.at[self.worker] += 1;
            state.release(&desk);
        }
        start(&desk, &mut state)?;
        let mut has_waited = false;
        loop {
            let ahead = (state.at[self.worker] - state.first) as usize;
            if let Some(block) = state.filled.get(ahead) {
                let (block, known) = (Arc::clone(block), block.interfaces);
                (self.block, self.span, self.lent_records) = (Some(block), 0, 0..0);
                self.learn_interfaces(&state, known);
                return Ok(Advance::Batch);
            }
            if state.is_over {
                return self.end(state);
            }
            if let Some(pieces) = desk.pieces.as_deref()
                && !state.has_all
                && state.has_room()
            {
                state.begun += 1;
                let mut block = state.spare.pop().unwrap_or_else(|| Block::new(state.at.len()));
                drop(state);
                let step = self.fill(pieces, &mut block, wait);
                has_waited |= matches!(step, Ok(None));
                state = desk.lock();
                state.end_block(step, block);
                if state.sleeping > 0 {
                    desk.filled.notify_all();
                }
                if !has_waited {
                    continue;
                }
            }
            if has_waited {
                let is_full = state.is_waiting_for_room();
                drop(state);
                if let Some(watermark) = self.watermark.as_ref().filter(|_| is_full) {
                    watermark.set_starved();
                }
                return Ok(Advance::Idle);
            }
            let begin = tsc::now();
            state.sleeping += 1;
            // Files begin together, however late the thread of one gets a processor.
            let is_first = desk.pieces.is_none() && state.at[self.worker] == 0 && self.waited == 0;
            state = match is_first {
                true => {
                    let is_awaited = |state: &mut ShardState| {
                        !state.is_over && !state.is_stopped && state.filled.len() <= ahead
                    };
                    desk.filled.wait_timeout_while(state, wait.max(BEGINNING_WAIT), is_awaited)
                }
                false => desk.filled.wait_timeout(state, wait),
            }
            .unwrap_or_else(PoisonError::into_inner)
            .0;
            state.sleeping -= 1;
            self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(begin));
            has_waited = true;
        }
    }

    /// Fills a block with a piece. Returns its number, or `None` if there was none in time.
    ///
    /// # Errors
    /// There is no further piece: `None` at the end, else the error.
    fn fill(
        &mut self,
        pieces: &dyn PieceReader,
        block: &mut Block,
        wait: Duration,
    ) -> Result<Option<u64>, Option<Error>> {
        let begin = tsc::now();
        match pieces.read(&mut self.piece, wait).map_err(Some)? {
            Advance::Batch => {
                if self.piece.interfaces > self.interfaces.len() {
                    self.interfaces.extend(pieces.interfaces_from(self.interfaces.len()));
                }
                block.take(&mut self.piece, &self.interfaces);
                self.desk.set_progress(self.piece.progress);
                Ok(Some(self.piece.number))
            }
            Advance::Idle => {
                self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(begin));
                Ok(None)
            }
            Advance::End => Err(None),
        }
    }

    /// The account of the source, as far as it is known; complete at the end.
    fn source_account(&mut self) -> Vec<InterfaceAccount> {
        let desk = Arc::clone(&self.desk);
        if let Some(pieces) = &desk.pieces {
            let mut accounts = Vec::new();
            pieces.look(&mut |source| accounts = source.account());
            self.interfaces.extend(pieces.interfaces_from(self.interfaces.len()));
            return accounts;
        }
        let mut state = desk.lock();
        if self.is_at_end && !state.is_over {
            let over = desk.filled.wait_timeout_while(state, ACCOUNT_WAIT, |state| !state.is_over);
            state = over.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wants_account = true;
        if self.is_at_end {
            self.learn_interfaces(&state, usize::MAX);
        }
        state.accounts.clone()
    }

    /// Learns the interfaces that the source knows; of a source in pieces only if fewer than `wanted` are known here.
    fn learn_interfaces(&mut self, state: &ShardState, wanted: usize) {
        let known = self.interfaces.len();
        match &self.desk.pieces {
            Some(pieces) if wanted > known => self.interfaces.extend(pieces.interfaces_from(known)),
            Some(_) => {}
            None => self.interfaces.extend_from_slice(&state.interfaces[known..]),
        }
    }

    /// Ends the source. The worker that comes to it last reports an error, so that the others get the packets before
    /// it.
    fn end(&mut self, mut state: MutexGuard<'_, ShardState>) -> Result<Advance, Error> {
        self.learn_interfaces(&state, usize::MAX);
        if self.leave(&mut state) == 0 {
            let (error, reader) = (state.error.take(), state.reader.take());
            drop(state);
            if let Some(Err(panic)) = reader.map(JoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
            if let Some(error) = error {
                return Err(error);
            }
        } else {
            drop(state);
        }
        if let Some(watermark) = &self.watermark {
            watermark.advance(u64::MAX);
        }
        Ok(Advance::End)
    }

    /// This worker takes no more. How many are left that do.
    fn leave(&mut self, state: &mut ShardState) -> usize {
        if !std::mem::replace(&mut self.is_at_end, true) {
            state.open -= 1;
            state.at[self.worker] = u64::MAX;
            state.release(&self.desk);
        }
        state.open
    }
}

/// Counts the packets of records by interface.
pub(crate) fn count(records: &[Record], lent: &mut [u64]) {
    if let [only] = lent {
        *only += records.len() as u64;
        return;
    }
    for record in records {
        lent.get_mut(record.meta.interface.0 as usize).into_iter().for_each(|lent| *lent += 1);
    }
}

impl Source for FlowShardSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped || self.is_at_end {
            self.block = None;
            return Ok(Advance::End);
        }
        // A block may have nothing of this worker, and the loop has to look at the clock: one block a call.
        if self.next_in_block() {
            return Ok(Advance::Batch);
        }
        match self.next_block(wait)? {
            Advance::Batch if self.next_in_block() => Ok(Advance::Batch),
            Advance::Batch => Ok(Advance::Idle),
            other => Ok(other),
        }
    }

    fn batch(&self) -> Batch<'_> {
        let range = self.lent_records.clone();
        let Some(block) = self.block.as_ref().filter(|_| !range.is_empty()) else { return Batch::empty() };
        let span = &block.spans[self.span];
        let bytes = &block.bytes[span.bytes.clone()];
        Batch::new(bytes, &block.records(self.span, self.worker)[range]).cut(span.snap_len)
    }

    fn stop(&mut self) -> Result<(), Error> {
        if !self.is_at_end {
            self.is_stopped = true;
        }
        self.block = None;
        let desk = Arc::clone(&self.desk);
        let mut stopped = Ok(());
        if let Some(pieces) = &desk.pieces {
            pieces.look(&mut |source| stopped = source.stop());
        }
        let mut state = desk.lock();
        state.is_stopped = true;
        state.is_over |= state.source.is_some();
        self.leave(&mut state);
        desk.freed.notify_one();
        stopped
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let mut accounts = self.source_account();
        for interface in self.interfaces.iter().skip(accounts.len()) {
            accounts.push(InterfaceAccount::of_file(&interface.name, 0));
        }
        for (index, account) in accounts.iter_mut().enumerate() {
            account.delivered = self.lent.get(index).copied().unwrap_or(0);
            account.is_partial |= self.is_stopped && !account.is_generated;
        }
        accounts
    }

    fn waited_ticks(&self) -> u64 {
        self.waited
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.desk.lock().events);
        if let Some(pieces) = &self.desk.pieces {
            pieces.look(&mut |source| events.extend(source.events()));
        }
        events
    }

    fn progress(&self) -> Option<(u64, u64)> {
        let [done, all] = [0, 1].map(|at| self.desk.progress[at].load(Ordering::Relaxed));
        (all != u64::MAX).then_some((done, all))
    }
}

impl Drop for FlowShardSource {
    fn drop(&mut self) {
        self.block = None;
        let desk = Arc::clone(&self.desk);
        let mut state = desk.lock();
        // A block that this worker began would never come.
        state.is_over |= desk.pieces.is_some() && thread::panicking();
        self.leave(&mut state);
        desk.freed.notify_one();
    }
}
