//! A source that several workers share: one thread reads, each worker gets its packets.
//!
//! ```text
//!                       /-- records of worker 0 --> FlowShardSource --> worker 0
//! source --> block: bytes, once                                          at most 2 * workers + 2 blocks; a block that all workers are through
//!  (a thread of its own) \-- records of worker 1 --> FlowShardSource --> worker 1    with is filled again
//! ```
//!
//! A hash of the addresses chooses the worker of a packet: both directions of a flow and all fragments of its packets
//! come to one worker, and the shares of all workers together are the source. The reader copies each span of bytes
//! once, computes that hash, and hands over blocks of [`BLOCK_LEN`] bytes: one lock a block. A slow worker holds the
//! reader back, which then waits for a free block; memory stays bounded.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_packet::headers::{self, Headers};
use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType, Packet, Record};
use tapline_source::{Advance, Error, Event, InterfaceAccount, Source};
use tapline_sys::tsc;

use crate::worker_merge::Watermark;

/// The seed of the hash.
const SEED: u64 = 0x7368_6172_6500;
/// Size at which a block is handed over, in bytes. Smaller blocks cost more wake-ups, larger ones leave the cache.
const BLOCK_LEN: usize = 256 << 10;
/// The longest time that the reader waits before it checks for a stop.
const WAIT: Duration = Duration::from_millis(100);
/// The longest time that a worker waits for the first block of a source.
const BEGINNING_WAIT: Duration = Duration::from_secs(1);
/// The longest time that a stopped worker waits for the reader's last account.
const ACCOUNT_WAIT: Duration = Duration::from_millis(500);

/// Batches of a source, with the packets of each worker.
struct Block {
    bytes: Vec<u8>,
    spans: Vec<BatchSpan>,
    /// The records of each worker, in the source's order.
    records: Vec<Vec<Record>>,
    /// For each span and worker, in this order: the end of its records.
    ends: Vec<usize>,
    /// Interfaces that the source knew of.
    interfaces: usize,
}

/// A batch of the source.
struct BatchSpan {
    bytes: Range<usize>,
    snap_len: u32,
    /// The places in the source of its first packet, and of the one behind its last.
    places: Range<u64>,
}

impl Block {
    fn new(workers: usize) -> Block {
        let records = (0..workers).map(|_| Vec::new()).collect();
        Block { bytes: Vec::new(), spans: Vec::new(), records, ends: Vec::new(), interfaces: 0 }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.records.iter_mut().for_each(Vec::clear);
        self.ends.clear();
    }

    /// Copies a batch whose first packet has the place `start`, and deals out its records.
    fn add(&mut self, batch: &Batch<'_>, interfaces: &[Interface], start: u64) {
        let base = batch.base();
        let end_of = |record: &Record| {
            let options =
                (record.cap_len as usize).next_multiple_of(4).saturating_add(record.options_len as usize);
            let len = if record.options_len > 0 { options } else { record.cap_len as usize };
            record.offset.saturating_add(len).min(base.len())
        };
        let from = batch.records().iter().map(|record| record.offset.min(base.len())).min().unwrap_or(0);
        let to = batch.records().iter().map(end_of).max().unwrap_or(0).max(from);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&base[from..to]);
        let workers = self.records.len() as u128;
        for (index, record) in batch.records().iter().enumerate() {
            let hash = hash(interfaces, batch.packet(index));
            let worker = (u128::from(hash) * workers) >> 64;
            self.records[worker as usize]
                .push(Record { offset: record.offset.wrapping_sub(from), ..*record });
        }
        self.ends.extend(self.records.iter().map(Vec::len));
        self.spans.push(BatchSpan {
            bytes: at..self.bytes.len(),
            snap_len: batch.snap_len(),
            places: start..start + batch.len() as u64,
        });
    }

    fn records(&self, span: usize, worker: usize) -> &[Record] {
        let workers = self.records.len();
        let end = |span: usize| self.ends[span * workers + worker];
        let begin = span.checked_sub(1).map_or(0, end);
        &self.records[worker][begin..end(span)]
    }
}

/// The hash of a packet's hosts.
#[inline]
fn hash(interfaces: &[Interface], packet: Packet<'_>) -> u64 {
    let interface = interfaces.get(packet.meta.interface.0 as usize);
    let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
    let plain =
        if link_type == LinkType::ETHERNET { headers::plain_host_hash(packet.data, SEED) } else { None };
    plain.unwrap_or_else(|| Headers::parse(link_type, packet).host_hash(packet.data, SEED))
}

/// State that the reader and the workers share.
struct SharedBlocks {
    state: Mutex<ShardState>,
    /// A block was filled, or the source is at its end.
    filled: Condvar,
    /// A block is free, or the reader is to stop.
    freed: Condvar,
    /// The amount read, and the whole; the latter is [`u64::MAX`] if unknown.
    progress: [AtomicU64; 2],
}

struct ShardState {
    /// The source, until the first worker asks for packets.
    source: Option<Box<dyn Source>>,
    reader: Option<JoinHandle<()>>,
    /// Blocks that some worker is not through with, and the number of the first of them.
    filled: VecDeque<Arc<Block>>,
    first: u64,
    spare: Vec<Block>,
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
    /// The reader has ended.
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
            if let Some(mut block) = state.spare.pop() {
                block.clear();
                return Some(block);
            }
            if state.filled.len() < 2 * workers + 2 {
                return Some(Block::new(workers));
            }
            state.is_full = true;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.is_full = false;
        }
    }

    fn publish(&self, block: Option<Block>, source: &mut dyn Source) {
        let events = source.events();
        if let Some((done, all)) = source.progress() {
            self.progress[0].store(done, Ordering::Relaxed);
            self.progress[1].store(all, Ordering::Relaxed);
        }
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
    /// Takes back blocks that all workers are through with.
    fn release(&mut self, desk: &SharedBlocks) {
        let first = self.at.iter().copied().min().unwrap_or(u64::MAX);
        while self.first < first {
            let Some(block) = self.filled.pop_front() else { break };
            self.first += 1;
            self.spare.extend(Arc::into_inner(block));
        }
        if self.is_full {
            desk.freed.notify_one();
        }
    }
}

/// The thread that reads.
struct Reader {
    desk: Arc<SharedBlocks>,
    source: Box<dyn Source>,
    workers: usize,
    /// Packets so far.
    read: u64,
}

impl Reader {
    fn run(mut self) {
        let mut error = None;
        while let Some(mut block) = self.desk.room(self.workers) {
            let step = self.fill(&mut block);
            let is_filled = !block.spans.is_empty();
            self.desk.publish(is_filled.then_some(block), self.source.as_mut());
            match step {
                Ok(Advance::End) => break,
                Ok(_) => {}
                Err(fault) => {
                    error = Some(fault);
                    break;
                }
            }
        }
        let accounts = self.source.account();
        let mut state = self.desk.lock();
        state.accounts = accounts;
        state.error = error;
    }

    /// Reads until a block is full, the source has nothing more now, or it ends.
    fn fill(&mut self, block: &mut Block) -> Result<Advance, Error> {
        // From a pipe each batch goes on at once: the next may be long in coming.
        let is_whole = self.source.progress().is_some();
        loop {
            match self.source.advance(WAIT)? {
                Advance::Batch => {
                    let batch = self.source.batch();
                    block.add(&batch, self.source.interfaces(), self.read);
                    block.interfaces = self.source.interfaces().len();
                    self.read += batch.len() as u64;
                }
                other => return Ok(other),
            }
            let is_full = block.bytes.len() >= BLOCK_LEN || block.spans.len() >= BATCH_MAX;
            if is_full || !is_whole {
                return Ok(Advance::Batch);
            }
        }
    }
}

/// Signals the workers that nothing more comes, however the reader ended.
impl Drop for Reader {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.filled.notify_all();
    }
}

/// A worker's share of a source.
pub struct FlowShardSource {
    desk: Arc<SharedBlocks>,
    worker: usize,
    interfaces: Vec<Interface>,
    block: Option<Arc<Block>>,
    /// The span of the block that is lent, or comes next if none is.
    span: usize,
    is_lent: bool,
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
    pub fn all(mut source: Box<dyn Source>, workers: usize) -> Vec<FlowShardSource> {
        let workers = workers.max(1);
        let interfaces = source.interfaces().to_vec();
        let state = ShardState {
            accounts: source.account(),
            source: Some(source),
            reader: None,
            filled: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
            at: vec![0; workers],
            sleeping: 0,
            is_full: false,
            interfaces: interfaces.clone(),
            wants_account: false,
            events: Vec::new(),
            open: workers,
            is_stopped: false,
            is_over: false,
            error: None,
        };
        let desk = Arc::new(SharedBlocks {
            state: Mutex::new(state),
            filled: Condvar::new(),
            freed: Condvar::new(),
            progress: [AtomicU64::new(0), AtomicU64::new(u64::MAX)],
        });
        let share = |worker| FlowShardSource {
            desk: Arc::clone(&desk),
            worker,
            interfaces: interfaces.clone(),
            block: None,
            span: 0,
            is_lent: false,
            lent: Vec::new(),
            watermark: None,
            waited: 0,
            is_stopped: false,
            is_at_end: false,
        };
        (0..workers).map(share).collect()
    }

    /// Makes the sources report the progress of the reading if `steps` is given.
    #[must_use]
    pub fn marked(mut self, watermark: Option<Watermark>) -> FlowShardSource {
        watermark.iter().for_each(Watermark::set_shared);
        self.watermark = watermark;
        self
    }

    /// Goes on to the next span of the block that has packets of this worker.
    fn next_in_block(&mut self) -> bool {
        let Some(block) = &self.block else { return false };
        self.span += usize::from(std::mem::take(&mut self.is_lent));
        while let Some(span) = block.spans.get(self.span) {
            let records = block.records(self.span, self.worker);
            if !records.is_empty() {
                self.lent.resize(self.lent.len().max(block.interfaces), 0);
                if let [only] = self.lent.as_mut_slice() {
                    *only += records.len() as u64;
                } else {
                    for record in records {
                        self.lent
                            .get_mut(record.meta.interface.0 as usize)
                            .into_iter()
                            .for_each(|lent| *lent += 1);
                    }
                }
                if let Some(watermark) = &self.watermark {
                    watermark.begin_batch(span.places.start);
                }
                self.is_lent = true;
                return true;
            }
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
                self.block = Some(Arc::clone(block));
                (self.span, self.is_lent) = (0, false);
                let known = self.interfaces.len();
                self.interfaces.extend_from_slice(&state.interfaces[known..]);
                return Ok(Advance::Batch);
            }
            if state.is_over {
                return self.end(state);
            }
            if has_waited {
                let is_full = state.is_full;
                drop(state);
                if let Some(watermark) = self.watermark.as_ref().filter(|_| is_full) {
                    watermark.set_starved();
                }
                return Ok(Advance::Idle);
            }
            let begin = tsc::now();
            state.sleeping += 1;
            // Files begin together, however late the thread of one gets a processor.
            let is_first = state.at[self.worker] == 0 && self.waited == 0;
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

    /// Ends the source. The worker that comes to it last reports an error, so that the others get the packets before
    /// it.
    fn end(&mut self, mut state: MutexGuard<'_, ShardState>) -> Result<Advance, Error> {
        let known = self.interfaces.len();
        self.interfaces.extend_from_slice(&state.interfaces[known..]);
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

/// Makes the reader begin, if it has not.
fn start(desk: &Arc<SharedBlocks>, state: &mut ShardState) -> Result<(), Error> {
    let Some(source) = state.source.take() else { return Ok(()) };
    let reader = Reader { desk: Arc::clone(desk), source, workers: state.at.len(), read: 0 };
    match thread::Builder::new().name("reader".to_owned()).spawn(move || reader.run()) {
        Ok(thread) => state.reader = Some(thread),
        Err(error) => return Err(Error::source("the reader's thread", error)),
    }
    Ok(())
}

impl Source for FlowShardSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped || self.is_at_end {
            self.is_lent = false;
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
        let Some(block) = self.block.as_ref().filter(|_| self.is_lent) else { return Batch::empty() };
        let span = &block.spans[self.span];
        let bytes = &block.bytes[span.bytes.clone()];
        Batch::new(bytes, block.records(self.span, self.worker)).cut(span.snap_len)
    }

    fn stop(&mut self) -> Result<(), Error> {
        if !self.is_at_end {
            self.is_stopped = true;
        }
        (self.block, self.is_lent) = (None, false);
        let desk = Arc::clone(&self.desk);
        let mut state = desk.lock();
        state.is_stopped = true;
        state.is_over |= state.source.is_some();
        self.leave(&mut state);
        desk.freed.notify_one();
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let mut state = self.desk.lock();
        if self.is_at_end && !state.is_over {
            let over = self.desk.filled.wait_timeout_while(state, ACCOUNT_WAIT, |state| !state.is_over);
            state = over.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wants_account = true;
        if self.is_at_end {
            let known = self.interfaces.len();
            self.interfaces.extend_from_slice(&state.interfaces[known..]);
        }
        let mut accounts = state.accounts.clone();
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
        std::mem::take(&mut self.desk.lock().events)
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
        self.leave(&mut state);
        desk.freed.notify_one();
    }
}
