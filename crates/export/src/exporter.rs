//! The metering thread's side: flows fill a table, which is sealed and handed to a thread of the exporter.
//!
//! ```text
//! flows --push--> table --rows or time: sealed--> thread: encode, deliver, spool       more than `memory` waits: lost, or the
//!                                                                                      reader of files waits
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tapline_flow::export::{FlowTable, TableEncoder, TableShape};
use tapline_flow::{Flow, Sampling};
use tapline_packet::Timestamp;
use tapline_places::Places;

use crate::account::{Account, Cause, Tally};
use crate::worker::Worker;
use crate::{BlockId, Carrier, Encoding, Error, Sensor, Spool};

/// Lines for the user that wait to be shown; further ones are left out.
const EVENTS_MAX: usize = 32;
/// How often it is looked whether a run was interrupted, while there is no room.
const LOOK: Duration = Duration::from_millis(100);

/// Limits of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows with which a batch is sealed.
    pub rows: u64,
    /// The time of flows, from the first of a batch on, after which it is sealed.
    pub time: Duration,
    /// Bytes of a block, beyond which it goes by one flow at most.
    pub block: usize,
    /// Bytes of batches and blocks in memory; a batch that is being encoded comes on top.
    pub memory: usize,
    /// The longest time without an acknowledgement that is waited: for room while files are read, and at the end of a run.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            rows: 100_000,
            time: Duration::from_secs(5),
            block: 4 << 20,
            memory: 256 << 20,
            patience: Duration::from_secs(10),
        }
    }
}

/// What the two threads share.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Memory became free, or the receiver acknowledged something.
    has_changed: Condvar,
    /// No further batch comes.
    pub(crate) is_ending: AtomicBool,
    pub(crate) is_cancelled: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) account: Account,
    /// Bytes in memory.
    pub(crate) memory: usize,
    pub(crate) events: Vec<String>,
    /// The first reason of each cause of loss.
    pub(crate) reasons: [Option<String>; 4],
}

impl State {
    pub(crate) fn tell(&mut self, line: String) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(line);
        }
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        self.has_changed.notify_all();
    }
}

/// The making of blocks.
pub struct Blocks {
    /// The sensor and the run; its number is that of the first block.
    pub first: BlockId,
    /// The form of the bytes.
    pub encoding: Encoding,
    /// The version of the columns.
    pub schema: u64,
    /// Makes the bytes.
    pub encoder: Box<dyn TableEncoder>,
}

impl Blocks {
    /// Blocks of a sensor's run.
    pub fn new(
        sensor: Sensor,
        epoch: u64,
        encoding: Encoding,
        shape: &TableShape,
        encoder: Box<dyn TableEncoder>,
    ) -> Blocks {
        let first = BlockId { sensor, epoch, number: 0 };
        Blocks { first, encoding, schema: shape.version(), encoder }
    }
}

/// Exports flows in sealed batches.
pub struct BatchExporter {
    name: String,
    shape: TableShape,
    sampling: Sampling,
    limits: Limits,
    table: FlowTable,
    /// The time of the first flow of the table.
    since: Timestamp,
    shared: Arc<Shared>,
    cancel: Option<Arc<AtomicBool>>,
    /// What was acknowledged when the wait for room was given up: until there is more there is no further wait.
    given_up: Option<Tally>,
    thread: Option<(Sender<FlowTable>, JoinHandle<()>)>,
}

impl BatchExporter {
    /// Starts the thread that encodes and delivers.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be none.
    pub fn start(
        shape: TableShape,
        blocks: Blocks,
        carrier: Box<dyn Carrier>,
        spool: Option<Spool>,
        limits: Limits,
    ) -> Result<BatchExporter, Error> {
        let name = carrier.name().to_owned();
        let shared = Arc::new(Shared::default());
        let (sender, tables) = channel();
        let worker = Worker::new(blocks, carrier, spool, limits, Arc::clone(&shared));
        let thread = thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(move || worker.run(&tables));
        let thread = thread.map_err(|source| Error::Thread { name: name.clone(), source })?;
        Ok(BatchExporter {
            name,
            table: FlowTable::new(&shape),
            shape,
            sampling: Sampling::NONE,
            limits,
            since: Timestamp::EPOCH,
            shared,
            cancel: None,
            given_up: None,
            thread: Some((sender, thread)),
        })
    }

    /// The destination as users wrote it, without secrets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets how packets or flows were sampled.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// Sets the files that tell where addresses are, from the next flow on.
    pub fn set_places(&mut self, places: &Arc<Places>) {
        self.shape.set_places(places);
    }

    /// Once `cancel` is true the end of the run waits for no receiver: what is not spooled is lost.
    pub fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        self.cancel = Some(Arc::clone(cancel));
    }

    /// Takes flows. `now` is the time by which a batch becomes too old. Where the memory is full, flows of live interfaces
    /// are lost and counted; others wait for room.
    pub fn export(&mut self, flows: &[Flow], now: Timestamp, is_live: bool) {
        for flow in flows {
            if self.table.is_empty() {
                self.since = now;
            }
            self.table.push(&self.shape, flow, self.sampling);
            if self.table.rows() >= self.limits.rows {
                self.seal(is_live);
            }
        }
        self.flush(now, is_live);
    }

    /// Seals the batch if it is too old.
    pub fn flush(&mut self, now: Timestamp, is_live: bool) {
        let time = i64::try_from(self.limits.time.as_nanos()).unwrap_or(i64::MAX);
        // A clock that was set back must not keep a batch open until it has come there again.
        if !self.table.is_empty() && !(0..time).contains(&now.since(self.since)) {
            self.seal(is_live);
        }
    }

    /// Seals the last batch, and waits until every block is acknowledged, spooled or lost.
    pub fn finish(&mut self) {
        self.seal(false);
        if let Some((sender, thread)) = self.thread.take() {
            self.shared.is_ending.store(true, Ordering::Relaxed);
            drop(sender);
            while !thread.is_finished() {
                self.pass_cancel();
                let state = self.shared.lock();
                drop(self.shared.has_changed.wait_timeout(state, LOOK));
            }
            let has_panicked = thread.join().is_err();
            let mut state = self.shared.lock();
            let rest = state.account.in_flight;
            if has_panicked && rest != Tally::default() {
                state.account.lose(Cause::Undelivered, rest);
                state.reasons[Cause::Undelivered as usize] =
                    Some("the thread of the exporter has ended".to_owned());
            }
        }
    }

    /// Counters. Flows of the batch that is being filled are in flight.
    pub fn account(&self) -> Account {
        let mut account = self.shared.lock().account;
        let filling = self.filling();
        account.ended += filling;
        account.in_flight += filling;
        account
    }

    /// Lines to be shown to the user since this was last asked.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().events)
    }

    /// The first reason of each cause by which rows were lost.
    pub fn reasons(&self) -> Vec<(Cause, String)> {
        let state = self.shared.lock();
        let of = |cause: Cause| state.reasons[cause as usize].clone().map(|reason| (cause, reason));
        Cause::ALL.into_iter().filter_map(of).collect()
    }

    fn filling(&self) -> Tally {
        Tally { flows: self.table.flows(), rows: self.table.rows(), packets: self.table.packets() }
    }

    /// Hands the table to the thread.
    fn seal(&mut self, is_live: bool) {
        if self.table.is_empty() {
            return;
        }
        let (tally, bytes) = (self.filling(), self.table.bytes());
        let table = std::mem::replace(&mut self.table, FlowTable::new(&self.shape));
        let has_room = self.reserve(bytes, is_live);
        let mut state = self.shared.lock();
        state.account.ended += tally;
        state.account.in_flight += tally;
        let is_taken = has_room && self.thread.as_ref().is_some_and(|(sender, _)| sender.send(table).is_ok());
        if is_taken {
            state.memory += bytes;
            return;
        }
        state.account.lose(Cause::Memory, tally);
        let reason = format!("{} MiB of memory were full", self.limits.memory >> 20);
        state.reasons[Cause::Memory as usize].get_or_insert(reason);
    }

    /// Whether there is room for this number of bytes. A batch that is alone always has room.
    fn reserve(&mut self, bytes: usize, is_live: bool) -> bool {
        let has_room = |state: &State| state.memory == 0 || state.memory + bytes <= self.limits.memory;
        let mut state = self.shared.lock();
        let (mut since, mut acknowledged) = (Instant::now(), state.account.acknowledged);
        while !has_room(&state) {
            let has_waited = self.given_up == Some(acknowledged) || since.elapsed() >= self.limits.patience;
            if is_live || has_waited || self.is_cancelled() {
                drop(state);
                self.given_up = has_waited.then_some(acknowledged);
                return false;
            }
            let waited = self.shared.has_changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.account.acknowledged != acknowledged {
                (since, acknowledged) = (Instant::now(), state.account.acknowledged);
            }
        }
        true
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    fn pass_cancel(&self) {
        if self.is_cancelled() {
            self.shared.is_cancelled.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for BatchExporter {
    /// Without [`finish`](Self::finish) there is no wait for the receiver.
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            self.shared.is_cancelled.store(true, Ordering::Relaxed);
            drop(sender);
            let _ = thread.join();
        }
    }
}
