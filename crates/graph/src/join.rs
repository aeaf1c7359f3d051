//! Where the packets of several workers become one stream again, for stages that must see all of them in their order.
//!
//! ```text
//! worker 0   source --Marker--> ... -> Exit --copies--> queue \
//! worker 1   source --Marker--> ... -> Exit --copies--> queue  >-- the earliest first --> Entry -> stages that see all, in one thread
//! worker 2   source --Marker--> ... -> Exit --copies--> queue /
//! ```
//!
//! There is a line of queues for each exit and each inlet, a queue for each worker. A packet's key is its place in the file, or for interfaces its time
//! stamp (never less than that of one before it in its worker). Markers say how far each worker has come in each inlet: a packet leaves its line once all
//! workers are past its key, so that of a file the packets come as they stand in it, however many workers there are.
//!
//! A worker whose queue is full waits. It may wait for a worker that waits for it, by way of another line: then queues may grow.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tapline_capture::{Advance, Error, InterfaceAccount, Source};
use tapline_packet::{BATCH_MAX, Batch, Interface, InterfaceId, Record, Timestamp};
use tapline_sys::tsc;

use crate::delegate::delegate_source;
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Stage, StageCounters};

/// Bytes that a queue holds before its worker waits: of small packets, with about 140 bytes for each, half a million.
const QUEUE_LEN: usize = 64 << 20;
/// Emptied parcels that are kept to be filled again.
const SPARE_MAX: usize = 64;
/// An interface is quiet: packets that are on their way from the kernel are younger than this. Twice the longest that the ring keeps a block open, and more.
const QUIET_NS: i64 = 100_000_000;

/// A packet's place in its line: the file's order, or time and nothing.
type Key = (u64, u64);

/// The queues between workers and the one thread behind them.
pub struct Join {
    inlets: usize,
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    lines: Vec<Line>,
    interfaces: Vec<Interface>,
    /// By inlet and worker: packets with keys before this are in their queues.
    reached: Vec<Vec<u64>>,
    /// Workers that are at work.
    live: usize,
    /// By worker: it waits for room.
    waiting: Vec<bool>,
    /// By worker: it has ended.
    ended: Vec<bool>,
    /// By worker and inlet: it has had everything that its reader can read before another worker goes on; `None` where it reads by itself.
    starved: Vec<Vec<Option<bool>>>,
    queue_len: usize,
    spare: Vec<Parcel>,
    /// Nobody takes packets any more.
    is_closed: bool,
}

/// One exit and one inlet: a queue for each worker.
#[derive(Default)]
struct Line {
    queues: Vec<Queue>,
}

#[derive(Default)]
struct Queue {
    parcels: VecDeque<Parcel>,
    len: usize,
}

/// Packets of one batch of one worker.
#[derive(Default)]
struct Parcel {
    bytes: Vec<u8>,
    records: Vec<Record>,
    keys: Vec<Key>,
    /// The first that has not gone on.
    next: usize,
}

impl Join {
    /// For so many exits, inlets and workers. `interfaces` are those that all workers know at the start, in their order.
    pub fn new(exits: usize, inlets: usize, workers: usize, interfaces: Vec<Interface>) -> Arc<Join> {
        let line = || Line { queues: (0..workers).map(|_| Queue::default()).collect() };
        let state = State {
            lines: (0..exits * inlets).map(|_| line()).collect(),
            interfaces,
            reached: vec![vec![0; workers]; inlets],
            live: workers,
            waiting: vec![false; workers],
            ended: vec![false; workers],
            starved: vec![vec![None; inlets]; workers],
            queue_len: QUEUE_LEN,
            spare: Vec::new(),
            is_closed: false,
        };
        Arc::new(Join { inlets, state: Mutex::new(state), moved: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has come to `key` in an inlet.
    fn reach(&self, inlet: usize, worker: usize, key: u64) {
        let mut state = self.lock();
        if let Some(is_starved) = &mut state.starved[worker][inlet] {
            *is_starved = key == u64::MAX;
        }
        let reached = &mut state.reached[inlet][worker];
        if key > *reached {
            *reached = key;
            self.moved.notify_all();
        }
    }

    /// A worker has what a reader hands it in an inlet.
    fn share(&self, inlet: usize, worker: usize) {
        self.lock().starved[worker][inlet] = Some(false);
    }

    /// A worker has nothing to do until the reader of an inlet goes on, which waits for another worker.
    fn starve(&self, inlet: usize, worker: usize) {
        self.lock().starved[worker][inlet] = Some(true);
    }

    /// A worker has no more packets.
    fn end(&self, worker: usize) {
        let mut state = self.lock();
        state.live -= 1;
        state.ended[worker] = true;
        state.reached.iter_mut().for_each(|inlet| inlet[worker] = u64::MAX);
        self.moved.notify_all();
    }

    /// Puts a parcel into a queue as soon as there is room; gives back an empty one.
    fn put(&self, line: usize, worker: usize, parcel: Parcel) -> Parcel {
        let mut state = self.lock();
        state.waiting[worker] = true;
        // What is larger than a queue goes into an empty one.
        while !state.is_closed && state.lines[line].queues[worker].len >= state.queue_len {
            self.moved.notify_all();
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting[worker] = false;
        let queue = &mut state.lines[line].queues[worker];
        queue.len += parcel.len();
        queue.parcels.push_back(parcel);
        self.moved.notify_all();
        state.spare.pop().unwrap_or_default()
    }
}

impl State {
    /// How far all workers have come in an inlet.
    fn until(&self, inlet: usize) -> u64 {
        self.reached[inlet].iter().copied().min().unwrap_or(u64::MAX)
    }

    /// All workers wait, for room or for a reader that waits for one of them, and no packet can go on to make room.
    fn is_stuck(&self, inlets: usize) -> bool {
        let can_go = |(number, line): (usize, &Line)| {
            line.first().is_some_and(|(_, key)| key.0 < self.until(number % inlets))
        };
        let is_starved = |worker: usize| {
            let mut shared = self.starved[worker].iter().flatten().peekable();
            shared.peek().is_some() && shared.all(|is_starved| *is_starved)
        };
        let waits = |worker: usize| self.ended[worker] || self.waiting[worker] || is_starved(worker);
        self.waiting.contains(&true)
            && (0..self.waiting.len()).all(waits)
            && !self.lines.iter().enumerate().any(can_go)
    }

    /// Copies what may go on to the end of a batch; whether anything did.
    fn take(&mut self, line: usize, until: u64, bytes: &mut Vec<u8>, records: &mut Vec<Record>) -> bool {
        while records.len() < BATCH_MAX {
            let Some((worker, key)) = self.lines[line].first() else { break };
            if key.0 >= until {
                break;
            }
            let queue = &mut self.lines[line].queues[worker];
            let Some(parcel) = queue.parcels.front_mut() else { break };
            append(bytes, records, &Batch::new(&parcel.bytes, &parcel.records), parcel.next);
            parcel.next += 1;
            if parcel.next == parcel.records.len()
                && let Some(parcel) = queue.parcels.pop_front()
            {
                queue.len -= parcel.len();
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(parcel.emptied());
                }
            }
        }
        !records.is_empty()
    }
}

impl Line {
    /// The packet that is first of all workers' first ones, and its worker.
    fn first(&self) -> Option<(usize, Key)> {
        let firsts = self.queues.iter().enumerate().filter_map(|(worker, queue)| {
            let parcel = queue.parcels.front()?;
            Some((worker, *parcel.keys.get(parcel.next)?))
        });
        firsts.min_by_key(|&(worker, key)| (key, worker))
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.parcels.is_empty())
    }
}

impl Parcel {
    fn len(&self) -> usize {
        self.bytes.len() + self.records.len() * (size_of::<Record>() + size_of::<Key>())
    }

    fn emptied(mut self) -> Parcel {
        self.bytes.clear();
        self.records.clear();
        self.keys.clear();
        self.next = 0;
        self
    }
}

/// Copies a packet of a batch, with its raw pcapng options.
fn append(bytes: &mut Vec<u8>, records: &mut Vec<Record>, batch: &Batch<'_>, index: usize) {
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

/// Says how far one worker has come in one inlet, and which batch it is at.
#[derive(Clone)]
pub struct Marker {
    join: Arc<Join>,
    at: Arc<At>,
    worker: usize,
    inlet: usize,
}

/// The batch that a worker is at. Only its own thread reads and writes it.
#[derive(Default)]
struct At {
    inlet: AtomicUsize,
    /// The place of the batch's first packet in its file.
    start: AtomicU64,
    /// By time instead: the latest time stamp so far.
    newest: AtomicU64,
    is_by_time: AtomicBool,
}

/// What one worker needs: a marker for each of its inlets, and a stage for each exit.
pub struct Exits {
    join: Arc<Join>,
    at: Arc<At>,
    worker: usize,
    ends: Arc<End>,
}

/// The last of a worker's exits that goes says that the worker has ended, whatever ended it.
struct End {
    join: Arc<Join>,
    worker: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.join.end(self.worker);
    }
}

impl Exits {
    /// Those of a worker; asked for once.
    pub fn new(join: &Arc<Join>, worker: usize) -> Exits {
        let ends = Arc::new(End { join: Arc::clone(join), worker });
        Exits { join: Arc::clone(join), at: Arc::default(), worker, ends }
    }

    /// The marker of an inlet; `None` if nothing leaves the workers, so that nobody asks how far they are.
    pub fn marker(&self, inlet: usize) -> Option<Marker> {
        let marker =
            Marker { join: Arc::clone(&self.join), at: Arc::clone(&self.at), worker: self.worker, inlet };
        (!self.join.lock().lines.is_empty()).then_some(marker)
    }

    /// The stage of an exit.
    pub fn stage(&self, exit: usize) -> Box<dyn Stage> {
        Box::new(Exit {
            join: Arc::clone(&self.join),
            at: Arc::clone(&self.at),
            worker: self.worker,
            exit,
            ids: Vec::new(),
            parcel: Parcel::default(),
            packets: 0,
            end: Some(Arc::clone(&self.ends)),
        })
    }
}

impl Marker {
    /// A batch is lent whose first packet has this place in the file; those before it have been handed on.
    pub(crate) fn begin(&self, start: u64) {
        self.at.inlet.store(self.inlet, Ordering::Relaxed);
        self.at.start.store(start, Ordering::Relaxed);
        self.at.is_by_time.store(false, Ordering::Relaxed);
        self.join.reach(self.inlet, self.worker, start);
    }

    /// All packets before this place have been handed on.
    pub(crate) fn reached(&self, place: u64) {
        self.join.reach(self.inlet, self.worker, place);
    }

    /// This inlet is a worker's share of what one thread reads.
    pub(crate) fn share(&self) {
        self.join.share(self.inlet, self.worker);
    }

    /// Nothing comes until another worker goes on: the reader that both share waits for it.
    pub(crate) fn starve(&self) {
        self.join.starve(self.inlet, self.worker);
    }

    /// A batch of an interface is lent.
    fn begin_at(&self, first: Timestamp) {
        self.at.inlet.store(self.inlet, Ordering::Relaxed);
        self.at.is_by_time.store(true, Ordering::Relaxed);
        let newest = self.at.newest.load(Ordering::Relaxed);
        self.join.reach(self.inlet, self.worker, newest.max(key_of(first)));
    }
}

/// Times in their order as numbers in theirs.
fn key_of(time: Timestamp) -> u64 {
    (time.as_nanos() as u64) ^ (1 << 63)
}

impl At {
    /// The key of the packet of a record.
    fn key(&self, record: &Record) -> Key {
        if !self.is_by_time.load(Ordering::Relaxed) {
            // Within a batch of a file, bytes lie in the file's order, also those of packets that were cut or unpacked where they lie.
            return (self.start.load(Ordering::Relaxed), record.offset as u64);
        }
        let newest = self.newest.load(Ordering::Relaxed).max(key_of(record.meta.timestamp));
        self.newest.store(newest, Ordering::Relaxed);
        (newest, 0)
    }
}

/// The end of a worker's part of a graph.
struct Exit {
    join: Arc<Join>,
    at: Arc<At>,
    worker: usize,
    exit: usize,
    /// For each interface of the worker the number that all know it by.
    ids: Vec<InterfaceId>,
    parcel: Parcel,
    packets: u64,
    end: Option<Arc<End>>,
}

impl Exit {
    /// Finds out what the interfaces of this worker are called by all.
    fn learn(&mut self, interfaces: &[Interface]) {
        let mut state = self.join.lock();
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

impl Stage for Exit {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.ids.len() {
            self.learn(packets.interfaces);
        }
        let mut parcel = std::mem::take(&mut self.parcel);
        for index in packets.selection.iter() {
            parcel.keys.push(self.at.key(&packets.batch.records()[index]));
            append(&mut parcel.bytes, &mut parcel.records, &packets.batch, index);
            let meta = &mut parcel.records.last_mut().expect("one was added").meta;
            meta.interface = self.ids.get(meta.interface.0 as usize).copied().unwrap_or_default();
        }
        self.packets += parcel.records.len() as u64;
        let line = self.exit * self.join.inlets + self.at.inlet.load(Ordering::Relaxed);
        self.parcel = self.join.put(line, self.worker, parcel);
        Ok(())
    }

    fn finish(&mut self, _: &crate::stage::Moment<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.end = None;
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        // What of them has gone on, the account of the entry knows.
        StageCounters { refused: Some(0), held: self.packets, ..StageCounters::default() }
    }
}

/// A source of one worker that marks its batches by their times: an interface.
pub struct Timed {
    source: Box<dyn Source>,
    marker: Marker,
    clock: fn() -> Timestamp,
}

impl Timed {
    /// `clock` is that of the time stamps.
    pub fn new(source: Box<dyn Source>, marker: Marker, clock: fn() -> Timestamp) -> Timed {
        Timed { source, marker, clock }
    }
}

impl Source for Timed {
    delegate_source!(interfaces batch stop is_filtered account waited_ticks events progress);

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        // A packet that comes while this waits may be as old as what the kernel keeps before it shows it.
        let quiet_until = (self.clock)().plus_nanos(-QUIET_NS);
        let advance = self.source.advance(wait)?;
        match advance {
            Advance::Batch => {
                let first = self.source.batch().records().iter().map(|record| record.meta.timestamp).min();
                first.into_iter().for_each(|first| self.marker.begin_at(first));
            }
            Advance::Idle => self.marker.reached(key_of(quiet_until)),
            Advance::End => self.marker.reached(u64::MAX),
        }
        Ok(advance)
    }
}

/// The packets of one line, in their order.
pub struct Entry {
    join: Arc<Join>,
    line: usize,
    interfaces: Vec<Interface>,
    bytes: Vec<u8>,
    records: Vec<Record>,
    waited: u64,
}

impl Entry {
    /// All entries, by exit, then inlet.
    pub fn all(join: &Arc<Join>) -> Vec<Entry> {
        let (lines, interfaces) = {
            let state = join.lock();
            (state.lines.len(), state.interfaces.clone())
        };
        let entry = |line| Entry {
            join: Arc::clone(join),
            line,
            interfaces: interfaces.clone(),
            bytes: Vec::new(),
            records: Vec::new(),
            waited: 0,
        };
        (0..lines).map(entry).collect()
    }

    /// Which exit its packets come from.
    pub fn exit(&self) -> usize {
        self.line / self.join.inlets
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.join.lock().is_closed = true;
        self.join.moved.notify_all();
    }
}

impl Source for Entry {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.bytes.clear();
        self.records.clear();
        let inlet = self.line % self.join.inlets;
        let mut has_waited = false;
        let mut state = self.join.lock();
        loop {
            let until = state.until(inlet);
            if state.take(self.line, until, &mut self.bytes, &mut self.records) {
                let known = self.interfaces.len();
                self.interfaces.extend_from_slice(&state.interfaces[known..]);
                self.join.moved.notify_all();
                return Ok(Advance::Batch);
            }
            if state.live == 0 && state.lines[self.line].is_empty() {
                return Ok(Advance::End);
            }
            if state.is_stuck(self.join.inlets) {
                state.queue_len = state.queue_len.saturating_mul(2);
                self.join.moved.notify_all();
            }
            if has_waited {
                return Ok(Advance::Idle);
            }
            let start = tsc::now();
            state = self.join.moved.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(start));
            has_waited = true;
        }
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    /// The workers stop; what they have handed on by then is lent.
    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The workers tell of the interfaces.
    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }

    fn waited_ticks(&self) -> u64 {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::Meta;
    use tapline_testkit::random::Random;

    /// Two files of so many packets each.
    const PACKETS: u64 = 4000;
    const EXITS: usize = 2;
    const INLETS: usize = 2;

    /// What a worker hands over of a batch: its share of the packets from `start` on. A packet is its number.
    fn parcel(start: u64, numbers: &[u64]) -> Parcel {
        let mut parcel = Parcel::default();
        for &number in numbers {
            let record =
                Record { cap_len: 8, meta: Meta { wire_len: 8, ..Meta::default() }, ..Record::default() };
            append(&mut parcel.bytes, &mut parcel.records, &Batch::new(&number.to_le_bytes(), &[record]), 0);
            parcel.keys.push((start, number));
        }
        parcel
    }

    /// Reads both files, batches of one and then the other, in steps that depend on the worker.
    fn work(join: &Arc<Join>, worker: usize, workers: u64, seed: u64) {
        let exits = Exits::new(join, worker);
        let markers: Vec<Marker> = (0..INLETS).filter_map(|inlet| exits.marker(inlet)).collect();
        let mut random = Random::new(seed);
        let mut at = [0; INLETS];
        while at.iter().any(|at| *at < PACKETS) {
            let inlet = random.below(INLETS as u64) as usize;
            // Batches end where they do in every worker.
            for _ in 0..random.below(40) {
                let (start, end) = (at[inlet], (at[inlet] + 16).min(PACKETS));
                let numbers: Vec<u64> =
                    (start..end).filter(|number| number * 7 % 11 % workers == worker as u64).collect();
                if !numbers.is_empty() {
                    markers[inlet].begin(start);
                    for exit in 0..EXITS {
                        join.put(exit * INLETS + inlet, worker, parcel(start, &numbers));
                    }
                }
                markers[inlet].reached(end);
                at[inlet] = end;
            }
        }
    }

    /// Workers that read at their own pace, with queues so short that they wait for each other across lines: every packet comes, in its order.
    #[test]
    fn every_line_is_in_order_and_whole_however_workers_wait() {
        for (seed, workers) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4)] {
            let join = Join::new(EXITS, INLETS, workers, Vec::new());
            join.lock().queue_len = 300;
            let mut entries = Entry::all(&join);
            let threads: Vec<_> = (0..workers)
                .map(|worker| {
                    let join = Arc::clone(&join);
                    std::thread::spawn(move || {
                        work(&join, worker, workers as u64, seed * 100 + worker as u64)
                    })
                })
                .collect();
            let mut seen = vec![Vec::new(); entries.len()];
            let mut open = vec![true; entries.len()];
            while open.contains(&true) {
                for (at, entry) in entries.iter_mut().enumerate() {
                    match entry.advance(Duration::from_millis(1)).unwrap() {
                        Advance::Batch => seen[at].extend(
                            entry
                                .batch()
                                .iter()
                                .map(|packet| u64::from_le_bytes(packet.data.try_into().unwrap())),
                        ),
                        Advance::Idle => {}
                        Advance::End => open[at] = false,
                    }
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            for line in seen {
                assert!(line.iter().copied().eq(0..PACKETS), "seed {seed}: {} packets", line.len());
            }
        }
    }

    #[test]
    fn a_worker_ends_that_nobody_reads_from() {
        let join = Join::new(1, 1, 1, Vec::new());
        join.lock().queue_len = 0;
        drop(Entry::all(&join));
        join.put(0, 0, parcel(0, &[1]));
        drop(Exits::new(&join, 0));
        assert_eq!(join.lock().live, 0);
    }

    #[test]
    fn times_are_keys_in_their_order() {
        let times = [i64::MIN, -1, 0, 1, i64::MAX].map(|time| key_of(Timestamp::from_nanos(time)));
        assert!(times.is_sorted());
    }

    #[test]
    fn a_packet_keeps_its_options_and_is_cut_as_its_batch() {
        let base = *b"..abcdefghij##OPTN";
        let record = Record { offset: 2, cap_len: 10, options_len: 4, meta: Meta::default() };
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        append(&mut bytes, &mut records, &Batch::new(&base[..], &[record]).cut(5), 0);
        let batch = Batch::new(&bytes, &records);
        assert_eq!(batch.packet(0).data, b"abcde");
        assert_eq!(batch.options(0), b"OPTN");
    }
}
