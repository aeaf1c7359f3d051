//! The queue between a graph and the capture that its place is: blocks of copied packets, at most [`QUEUE_LEN`] bytes.
//!
//! ```text
//! empty --copy--> filling (the stage) --put--> full (the queue) --take--> lent (the source) --give back--> spare --> empty
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_graph::append_packet;
use tapline_ir::CompiledFilter;
use tapline_packet::{BATCH_MAX, Batch, Interface, Record};
use tapline_source::UncapturedCounts;
use tapline_sys::Wakeup;

/// Bytes of packets and records that wait for the capture's thread. Beyond it packets are lost, and counted.
pub(super) const QUEUE_LEN: usize = 32 << 20;
/// Blocks that wait at most: 65,536 packets.
pub(super) const BLOCKS_MAX: usize = 256;

/// Packets that the readers accept, all together.
#[derive(Clone, Debug)]
pub(super) enum ReaderFilter {
    All,
    /// There is no reader.
    Nothing,
    Only(CompiledFilter),
}

/// A block of copied packets, one batch at most.
#[derive(Debug, Default)]
pub(super) struct PacketBlock {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

/// A queue. The graph's thread never waits for the other: the lock is held for as long as it takes to move a block.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Counts changes of the readers' wishes.
    pub(super) version: AtomicU64,
    /// Wakes the capture's thread.
    pub(super) wakeup: Arc<Wakeup>,
}

pub(super) struct QueueState {
    full: VecDeque<PacketBlock>,
    len: usize,
    spare: Vec<PacketBlock>,
    pub(super) wanted: ReaderFilter,
    pub(super) interfaces: Vec<Interface>,
    /// Packets for which the queue was full, by interface.
    pub(super) lost: Vec<u64>,
    /// Failures of the graph's sources to capture interfaces.
    pub(super) uncaptured: UncapturedCounts,
    /// The capture's thread sleeps.
    pub(super) is_awaited: bool,
    /// The graph hands nothing more over.
    pub(super) is_ended: bool,
}

impl PacketBlock {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= BATCH_MAX
    }

    pub(super) fn copy(&mut self, batch: &Batch<'_>, index: usize) {
        append_packet(&mut self.bytes, &mut self.records, batch, index);
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(self.records.as_slice())
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }
}

impl Queue {
    pub(super) fn new(interfaces: &[Interface]) -> std::io::Result<Arc<Queue>> {
        let state = QueueState {
            full: VecDeque::with_capacity(BLOCKS_MAX + 1),
            len: 0,
            spare: Vec::with_capacity(BLOCKS_MAX + 1),
            wanted: ReaderFilter::All,
            interfaces: interfaces.to_vec(),
            lost: Vec::new(),
            uncaptured: UncapturedCounts::default(),
            is_awaited: false,
            is_ended: false,
        };
        let wakeup = Arc::new(Wakeup::new().map_err(|error| error.source)?);
        Ok(Arc::new(Queue { state: Mutex::new(state), version: AtomicU64::new(0), wakeup }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds interfaces that came since.
    pub(super) fn learn(&self, interfaces: &[Interface]) {
        let mut state = self.lock();
        let known = state.interfaces.len();
        state.interfaces.extend(interfaces.iter().skip(known).cloned());
    }

    /// Changes the readers' wishes: the stage obeys from its next batch on.
    pub(super) fn want(&self, wanted: ReaderFilter) {
        self.lock().wanted = wanted;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Moves a block into the queue if there is room, or it `must` be taken, and leaves an empty one in its place.
    /// Returns whether it was moved.
    pub(super) fn put(&self, block: &mut PacketBlock, lost: &[u64], must: bool) -> bool {
        let mut state = self.lock();
        state.lost.clear();
        state.lost.extend_from_slice(lost);
        let has_room = state.full.len() < BLOCKS_MAX && state.len + block.size() <= QUEUE_LEN;
        // A block that is larger than the queue goes into an empty one.
        if !has_room && !must && !state.full.is_empty() {
            return false;
        }
        state.len += block.size();
        let empty = state.spare.pop().unwrap_or_default();
        state.full.push_back(std::mem::replace(block, empty));
        let is_awaited = std::mem::take(&mut state.is_awaited);
        drop(state);
        if is_awaited {
            self.wakeup.notify();
        }
        true
    }

    /// The end of the graph: packets in the queue are still read.
    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.wakeup.notify();
    }
}

impl QueueState {
    /// Takes the first block in exchange for one that was read.
    pub(super) fn take(&mut self, read: &mut PacketBlock) -> bool {
        let Some(next) = self.full.pop_front() else { return false };
        self.len -= next.size();
        let mut read = std::mem::replace(read, next);
        read.clear();
        if self.spare.len() <= BLOCKS_MAX {
            self.spare.push(read);
        }
        true
    }
}
