//! The workers' side of the merge: watermarks, and the stages that queue packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tapline_packet::{Interface, InterfaceId, Record, Timestamp};
use tapline_source::{Advance, Error, Source};

use super::{Key, PacketBlock, WorkerMerge, append_packet};
use crate::delegate::delegate_source;
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Stage, StageCounters, TickContext};

/// An interface without packets moves its watermark to this long ago, in nanoseconds: twice the longest time for which
/// the ring keeps a block open, and more.
const QUIET_NS: i64 = 100_000_000;

/// The handle by which a worker reports its progress in one inlet, and the batch that it is at.
#[derive(Clone)]
pub struct Watermark {
    merge: Arc<WorkerMerge>,
    at: Arc<BatchPosition>,
    worker: usize,
    inlet: usize,
}

/// The batch that a worker is at. Only the worker's thread reads and writes it.
#[derive(Default)]
struct BatchPosition {
    inlet: AtomicUsize,
    /// The position of the batch's first packet in its file.
    start: AtomicU64,
    /// The latest time stamp so far, for keys by time.
    newest: AtomicU64,
    is_by_time: AtomicBool,
}

/// One worker's inputs to the merge: a watermark for each inlet, and a stage for each exit.
pub struct MergeInputs {
    merge: Arc<WorkerMerge>,
    at: Arc<BatchPosition>,
    worker: usize,
    ends: Arc<EndGuard>,
}

/// Ends the worker when the last of its inputs is dropped, also after a failure.
struct EndGuard {
    merge: Arc<WorkerMerge>,
    worker: usize,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.merge.end(self.worker);
    }
}

impl MergeInputs {
    /// The inputs of `worker`. To be made once for each worker.
    pub fn new(merge: &Arc<WorkerMerge>, worker: usize) -> MergeInputs {
        let ends = Arc::new(EndGuard { merge: Arc::clone(merge), worker });
        MergeInputs { merge: Arc::clone(merge), at: Arc::default(), worker, ends }
    }

    /// The watermark of an inlet; `None` if the merge has no exits.
    pub fn watermark(&self, inlet: usize) -> Option<Watermark> {
        let watermark = Watermark {
            merge: Arc::clone(&self.merge),
            at: Arc::clone(&self.at),
            worker: self.worker,
            inlet,
        };
        (!self.merge.lock().lanes.is_empty()).then_some(watermark)
    }

    /// The stage that queues the packets of an exit.
    pub fn stage(&self, exit: usize) -> Box<dyn Stage> {
        Box::new(MergeInput {
            merge: Arc::clone(&self.merge),
            at: Arc::clone(&self.at),
            worker: self.worker,
            exit,
            ids: Vec::new(),
            block: PacketBlock::default(),
            packets: 0,
            end: Some(Arc::clone(&self.ends)),
        })
    }
}

impl Watermark {
    /// Begins a batch whose first packet has the position `start` in the file; all packets before it are queued.
    pub(crate) fn begin_batch(&self, start: u64) {
        self.at.inlet.store(self.inlet, Ordering::Relaxed);
        self.at.start.store(start, Ordering::Relaxed);
        self.at.is_by_time.store(false, Ordering::Relaxed);
        self.merge.advance(self.inlet, self.worker, start);
    }

    /// Moves the watermark: all packets before this position are queued.
    pub(crate) fn advance(&self, position: u64) {
        self.merge.advance(self.inlet, self.worker, position);
    }

    /// Marks the inlet as a worker's share of a common reader.
    pub(crate) fn set_shared(&self) {
        self.merge.set_shared(self.inlet, self.worker);
    }

    /// Marks the worker as idle until the common reader, which waits for another worker, goes on.
    pub(crate) fn set_starved(&self) {
        self.merge.set_starved(self.inlet, self.worker);
    }

    /// Begins a batch of an interface, whose keys are time stamps from `first` on.
    fn begin_timed_batch(&self, first: Timestamp) {
        self.at.inlet.store(self.inlet, Ordering::Relaxed);
        self.at.is_by_time.store(true, Ordering::Relaxed);
        let newest = self.at.newest.load(Ordering::Relaxed);
        self.merge.advance(self.inlet, self.worker, newest.max(time_key(first)));
    }
}

/// Times as unsigned numbers of the same order.
pub(super) fn time_key(time: Timestamp) -> u64 {
    (time.as_nanos() as u64) ^ (1 << 63)
}

impl BatchPosition {
    /// The key of the packet of a record.
    fn key(&self, record: &Record) -> Key {
        if !self.is_by_time.load(Ordering::Relaxed) {
            // Within a batch of a file, bytes lie in the file's order, also those of packets that were cut or unpacked
            // where they lie.
            return (self.start.load(Ordering::Relaxed), record.offset as u64);
        }
        let newest = self.newest.load(Ordering::Relaxed).max(time_key(record.meta.timestamp));
        self.newest.store(newest, Ordering::Relaxed);
        (newest, 0)
    }
}

/// The stage at the end of a worker's graph: queues copies of packets for the merge.
struct MergeInput {
    merge: Arc<WorkerMerge>,
    at: Arc<BatchPosition>,
    worker: usize,
    exit: usize,
    /// The merge's number of each interface of the worker.
    ids: Vec<InterfaceId>,
    block: PacketBlock,
    packets: u64,
    end: Option<Arc<EndGuard>>,
}

impl MergeInput {
    /// Assigns the merge's numbers to new interfaces of this worker.
    fn learn(&mut self, interfaces: &[Interface]) {
        let mut state = self.merge.lock();
        for interface in &interfaces[self.ids.len()..] {
            let unused = |id: &usize| !self.ids.contains(&InterfaceId(*id as u32));
            let same =
                (0..state.interfaces.len()).filter(unused).find(|id| state.interfaces[*id] == *interface);
            let id = same.unwrap_or_else(|| {
                state.interfaces.push(interface.clone());
                state.interfaces.len() - 1
            });
            self.ids.push(InterfaceId(id as u32));
        }
    }
}

impl Stage for MergeInput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.ids.len() {
            self.learn(packets.interfaces);
        }
        let mut block = std::mem::take(&mut self.block);
        for index in packets.selection.iter() {
            block.keys.push(self.at.key(&packets.batch.records()[index]));
            append_packet(&mut block.bytes, &mut block.records, &packets.batch, index);
            let meta = &mut block.records.last_mut().expect("one was added").meta;
            meta.interface = self.ids.get(meta.interface.0 as usize).copied().unwrap_or_default();
        }
        self.packets += block.records.len() as u64;
        let lane = self.exit * self.merge.inlets + self.at.inlet.load(Ordering::Relaxed);
        self.block = self.merge.put(lane, self.worker, block);
        Ok(())
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.end = None;
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        // The account of the merged source has those that left their queues.
        StageCounters { refused: Some(0), held: self.packets, ..StageCounters::default() }
    }
}

/// An interface of one worker whose batches move the watermark by their time stamps.
pub struct TimedSource {
    source: Box<dyn Source>,
    watermark: Watermark,
    clock: fn() -> Timestamp,
}

impl TimedSource {
    /// Wraps `source`; `clock` is the clock of its time stamps.
    pub fn new(source: Box<dyn Source>, watermark: Watermark, clock: fn() -> Timestamp) -> TimedSource {
        TimedSource { source, watermark, clock }
    }
}

impl Source for TimedSource {
    delegate_source!(interfaces batch stop is_filtered account uncaptured waited_ticks events progress);

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        // A packet that comes while this waits may be as old as what the kernel keeps before it shows it.
        let quiet_until = (self.clock)().plus_nanos(-QUIET_NS);
        let advance = self.source.advance(wait)?;
        match advance {
            Advance::Batch => {
                let first = self.source.batch().records().iter().map(|record| record.meta.timestamp).min();
                first.into_iter().for_each(|first| self.watermark.begin_timed_batch(first));
            }
            Advance::Idle => self.watermark.advance(time_key(quiet_until)),
            Advance::End => self.watermark.advance(u64::MAX),
        }
        Ok(advance)
    }
}
