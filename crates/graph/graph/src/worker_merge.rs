//! Merges the packets of several workers into one ordered stream, for stages that must see all of them in their order.
//!
//! ```text
//! worker 0   source --Watermark--> ... -> MergeInput --copies--> queue \
//! worker 1   source --Watermark--> ... -> MergeInput --copies--> queue  >-- least key first --> MergedSource -> stages
//! worker 2   source --Watermark--> ... -> MergeInput --copies--> queue /                         in one thread
//! ```
//!
//! Each pair of exit and inlet has a *lane*: one queue for each worker. A packet's key is its position in the file, or
//! for interfaces its time stamp (never less than that of the packet before it in the same worker). A *watermark* is
//! the key up to which a worker has queued all packets of an inlet. A packet leaves its lane once the watermarks of all
//! workers are past its key, so packets of a file leave in the file's order with any number of workers.
//!
//! A worker whose queue is full waits for room. Workers may wait for each other through different lanes; the queues
//! grow then.

mod input;
mod merged;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tapline_packet::{BATCH_MAX, Batch, Interface, Record};

pub use input::{MergeInputs, TimedSource, Watermark};
pub use merged::MergedSource;

/// Bytes that a queue holds before its worker waits: of small packets, with about 140 bytes for each, half a million.
const QUEUE_LEN: usize = 64 << 20;
/// Emptied blocks kept for reuse.
const SPARE_MAX: usize = 64;

/// The order of a packet in its lane: position of its batch in the file and offset in the batch, or time stamp and 0.
type Key = (u64, u64);

/// The queues between the workers and the thread that reads the merged stream.
pub struct WorkerMerge {
    inlets: usize,
    state: Mutex<MergeState>,
    moved: Condvar,
}

struct MergeState {
    lanes: Vec<Lane>,
    interfaces: Vec<Interface>,
    /// By inlet and worker: all packets with lesser keys are in their queues.
    watermarks: Vec<Vec<u64>>,
    /// Workers that still run.
    live: usize,
    /// By worker: waits for room in a queue.
    waiting: Vec<bool>,
    /// By worker: has ended.
    ended: Vec<bool>,
    /// By worker and inlet: waits for a shared reader that waits for another worker; `None` where the worker has a
    /// reader of its own.
    starved: Vec<Vec<Option<bool>>>,
    queue_len: usize,
    spare: Vec<PacketBlock>,
    /// The merged source was dropped: queues take no more packets.
    is_closed: bool,
}

/// The queues of one exit and one inlet, by worker.
#[derive(Default)]
struct Lane {
    queues: Vec<Queue>,
}

#[derive(Default)]
struct Queue {
    blocks: VecDeque<PacketBlock>,
    len: usize,
}

/// Packets of one batch of one worker.
#[derive(Default)]
struct PacketBlock {
    bytes: Vec<u8>,
    records: Vec<Record>,
    keys: Vec<Key>,
    /// The first record that has not been merged.
    next: usize,
}

impl WorkerMerge {
    /// A merge of `workers` workers. `interfaces` are those that all workers know at the start, in their order.
    pub fn new(exits: usize, inlets: usize, workers: usize, interfaces: Vec<Interface>) -> Arc<WorkerMerge> {
        let lane = || Lane { queues: (0..workers).map(|_| Queue::default()).collect() };
        let state = MergeState {
            lanes: (0..exits * inlets).map(|_| lane()).collect(),
            interfaces,
            watermarks: vec![vec![0; workers]; inlets],
            live: workers,
            waiting: vec![false; workers],
            ended: vec![false; workers],
            starved: vec![vec![None; inlets]; workers],
            queue_len: QUEUE_LEN,
            spare: Vec::new(),
            is_closed: false,
        };
        Arc::new(WorkerMerge { inlets, state: Mutex::new(state), moved: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, MergeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the watermark of a worker in an inlet to `key`.
    fn advance(&self, inlet: usize, worker: usize, key: u64) {
        let mut state = self.lock();
        if let Some(is_starved) = &mut state.starved[worker][inlet] {
            *is_starved = key == u64::MAX;
        }
        let watermark = &mut state.watermarks[inlet][worker];
        if key > *watermark {
            *watermark = key;
            self.moved.notify_all();
        }
    }

    /// Marks an inlet of a worker as a share of a common reader.
    fn set_shared(&self, inlet: usize, worker: usize) {
        self.lock().starved[worker][inlet] = Some(false);
    }

    /// Marks a worker as idle until the common reader of an inlet, which waits for another worker, goes on.
    fn set_starved(&self, inlet: usize, worker: usize) {
        self.lock().starved[worker][inlet] = Some(true);
    }

    /// Marks a worker as ended: its watermarks are at the end.
    fn end(&self, worker: usize) {
        let mut state = self.lock();
        state.live -= 1;
        state.ended[worker] = true;
        state.watermarks.iter_mut().for_each(|inlet| inlet[worker] = u64::MAX);
        self.moved.notify_all();
    }

    /// Puts a block into a queue once there is room, and returns an empty one.
    fn put(&self, lane: usize, worker: usize, block: PacketBlock) -> PacketBlock {
        let mut state = self.lock();
        state.waiting[worker] = true;
        // A block larger than a queue goes into an empty one.
        while !state.is_closed && state.lanes[lane].queues[worker].len >= state.queue_len {
            self.moved.notify_all();
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting[worker] = false;
        let queue = &mut state.lanes[lane].queues[worker];
        queue.len += block.len();
        queue.blocks.push_back(block);
        self.moved.notify_all();
        state.spare.pop().unwrap_or_default()
    }
}

impl MergeState {
    fn least_watermark(&self, inlet: usize) -> u64 {
        self.watermarks[inlet].iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Whether all workers wait, for room or for a reader that waits for one of them, and no packet can leave to make
    /// room.
    fn is_stuck(&self, inlets: usize) -> bool {
        let can_go = |(number, lane): (usize, &Lane)| {
            lane.first().is_some_and(|(_, key)| key.0 < self.least_watermark(number % inlets))
        };
        let is_starved = |worker: usize| {
            let mut shared = self.starved[worker].iter().flatten().peekable();
            shared.peek().is_some() && shared.all(|is_starved| *is_starved)
        };
        let waits = |worker: usize| self.ended[worker] || self.waiting[worker] || is_starved(worker);
        self.waiting.contains(&true)
            && (0..self.waiting.len()).all(waits)
            && !self.lanes.iter().enumerate().any(can_go)
    }

    /// Copies packets with keys below `until` to a batch; `false` if there are none.
    fn take(&mut self, lane: usize, until: u64, bytes: &mut Vec<u8>, records: &mut Vec<Record>) -> bool {
        while records.len() < BATCH_MAX {
            let Some((worker, key)) = self.lanes[lane].first() else { break };
            if key.0 >= until {
                break;
            }
            let queue = &mut self.lanes[lane].queues[worker];
            let Some(block) = queue.blocks.front_mut() else { break };
            append_packet(bytes, records, &Batch::new(&block.bytes, &block.records), block.next);
            block.next += 1;
            if block.next == block.records.len()
                && let Some(block) = queue.blocks.pop_front()
            {
                queue.len -= block.len();
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(block.emptied());
                }
            }
        }
        !records.is_empty()
    }
}

impl Lane {
    /// The worker whose queue has the least key at its head, and that key.
    fn first(&self) -> Option<(usize, Key)> {
        let firsts = self.queues.iter().enumerate().filter_map(|(worker, queue)| {
            let block = queue.blocks.front()?;
            Some((worker, *block.keys.get(block.next)?))
        });
        firsts.min_by_key(|&(worker, key)| (key, worker))
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.blocks.is_empty())
    }
}

impl PacketBlock {
    fn len(&self) -> usize {
        self.bytes.len() + self.records.len() * (size_of::<Record>() + size_of::<Key>())
    }

    fn emptied(mut self) -> PacketBlock {
        self.bytes.clear();
        self.records.clear();
        self.keys.clear();
        self.next = 0;
        self
    }
}

/// Copies a packet of a batch, with its raw pcapng options.
pub fn append_packet(bytes: &mut Vec<u8>, records: &mut Vec<Record>, batch: &Batch<'_>, index: usize) {
    let (packet, options) = (batch.packet(index), batch.options(index));
    let record = Record {
        offset: bytes.len(),
        cap_len: packet.data.len() as u32,
        options_len: options.len() as u32,
        meta: *packet.meta,
    };
    bytes.extend_from_slice(packet.data);
    // Options start at the next multiple of four.
    bytes.resize(record.offset + packet.data.len().next_multiple_of(4), 0);
    bytes.extend_from_slice(options);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    records.push(record);
}

#[cfg(test)]
mod tests;
