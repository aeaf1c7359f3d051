//! The way of batches from the thread that fills them to the thread that delivers: flows' and packets' alike.
//!
//! ```text
//! seal --batch--> thread: blocks, carrier, spool        more than `memory` waits: lost, or the reader of files waits
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tapline_packet::Timestamp;

use crate::account::{Cause, DeliveryAccount, Tally};
use crate::worker::Worker;
use crate::{Block, Delivery, Error};

/// Lines for the user that wait to be shown; further ones are left out.
const EVENTS_MAX: usize = 32;
/// Batches that wait to be filled again; the memory of further ones is given back.
const SPENT_MAX: usize = 1;
/// Poll interval for cancellation while memory is full.
const LOOK: Duration = Duration::from_millis(100);

/// Limits of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows with which a batch is sealed.
    pub rows: u64,
    /// The time, from the first flow or packet of a batch on, after which it is sealed.
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

impl Limits {
    /// Whether a batch that was begun at `since` is to be sealed now.
    pub(crate) fn is_too_old(&self, since: Timestamp, now: Timestamp) -> bool {
        let time = i64::try_from(self.time.as_nanos()).unwrap_or(i64::MAX);
        // A clock that was set back must not keep a batch open until it has come there again.
        !(0..time).contains(&now.since(since))
    }
}

/// Data that a thread fills and seals.
pub(crate) trait Batch: Send + 'static {
    /// Name of the contents, for messages.
    const WHAT: &str;

    /// Flows, rows and packets in this batch.
    fn tally(&self) -> Tally;

    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

pub(crate) trait MakeBlocks<B>: Send {
    /// The blocks of a batch, of `bytes_max` bytes each if possible. The text of an error is the reason for their
    /// absence. The rest of the batch may be filled again.
    fn blocks(&mut self, batch: &mut B, bytes_max: usize) -> Result<Vec<Block>, String>;

    /// Takes the memory of a block that is done with, for one to come: fresh memory costs more than filling it.
    fn reuse(&mut self, _bytes: Vec<u8>) {}
}

/// State that the two threads share.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<OutletState>,
    /// Memory became free, or the receiver acknowledged something.
    has_changed: Condvar,
    /// No further batch comes.
    pub(crate) is_ending: AtomicBool,
    pub(crate) is_cancelled: AtomicBool,
}

#[derive(Default)]
pub(crate) struct OutletState {
    pub(crate) account: DeliveryAccount,
    /// Bytes in memory.
    pub(crate) memory: usize,
    pub(crate) events: Vec<String>,
    /// The first reason of each cause of loss.
    pub(crate) reasons: [Option<String>; 4],
}

impl OutletState {
    pub(crate) fn tell(&mut self, line: String) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(line);
        }
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, OutletState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        self.has_changed.notify_all();
    }
}

/// The thread that delivers, as the other one sees it.
pub(crate) struct Outlet<B: Batch> {
    name: String,
    limits: Limits,
    shared: Arc<Shared>,
    cancel: Option<Arc<AtomicBool>>,
    /// The acknowledged sum when the wait for room was given up: until it grows there is no further wait.
    given_up: Option<Tally>,
    thread: Option<(Sender<B>, JoinHandle<()>)>,
    /// Batches that were encoded, to be filled again.
    spent: Receiver<B>,
}

impl<B: Batch> Outlet<B> {
    /// Starts the thread that encodes and delivers.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be none.
    pub(crate) fn start(delivery: Delivery, blocks: Box<dyn MakeBlocks<B>>) -> Result<Outlet<B>, Error> {
        let Delivery { name, carrier, spool, limits, .. } = delivery;
        let shared = Arc::new(Shared::default());
        let (sender, batches) = channel();
        let (give_back, spent) = sync_channel(SPENT_MAX);
        let worker = Worker::new(blocks, carrier, spool, limits, Arc::clone(&shared), give_back);
        let thread = thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(move || worker.run(&batches));
        let thread = thread.map_err(|source| Error::Thread { name: name.clone(), source })?;
        let thread = Some((sender, thread));
        Ok(Outlet { name, limits, shared, cancel: None, given_up: None, thread, spent })
    }

    /// The destination as users wrote it, without secrets.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A batch whose memory may be filled again.
    pub(crate) fn spent(&self) -> Option<B> {
        self.spent.try_recv().ok()
    }

    /// Once `cancel` is true the end of the run waits for no receiver: blocks that are not spooled are lost.
    pub(crate) fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        self.cancel = Some(Arc::clone(cancel));
    }

    /// Hands a batch to the thread. Where the memory is full, one of a live interface is lost and counted; others wait for
    /// room.
    pub(crate) fn seal(&mut self, batch: B, is_live: bool) {
        let (tally, bytes) = (batch.tally(), batch.bytes());
        let has_room = self.reserve(bytes, is_live);
        let mut state = self.shared.lock();
        state.account.ended += tally;
        state.account.in_flight += tally;
        let is_taken = has_room && self.thread.as_ref().is_some_and(|(sender, _)| sender.send(batch).is_ok());
        if is_taken {
            state.memory += bytes;
            return;
        }
        state.account.lose(Cause::Memory, tally);
        let reason = format!("{} MiB of memory were full", self.limits.memory >> 20);
        state.reasons[Cause::Memory as usize].get_or_insert(reason);
    }

    /// Waits until every block is acknowledged, spooled or lost.
    pub(crate) fn finish(&mut self) {
        let Some((sender, thread)) = self.thread.take() else { return };
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

    /// Counters. Rows in the batch that is being filled are in flight.
    pub(crate) fn account(&self, filling: Tally) -> DeliveryAccount {
        let mut account = self.shared.lock().account;
        account.ended += filling;
        account.in_flight += filling;
        account
    }

    /// Lines to be shown to the user since this was last asked.
    pub(crate) fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().events)
    }

    /// Losses by cause: each with the name and the first reason, blocks and packets.
    pub(crate) fn losses(&self) -> Vec<(String, u64, u64)> {
        let state = self.shared.lock();
        let of = |cause: Cause| {
            let at = cause as usize;
            let (blocks, packets) = (state.account.blocks_lost[at], state.account.lost[at].packets);
            let reason = state.reasons[at].as_deref().unwrap_or("?");
            let name = || format!("{} ({}: {reason})", self.name, cause.name());
            (blocks > 0).then(|| (name(), blocks, packets))
        };
        Cause::ALL.into_iter().filter_map(of).collect()
    }

    /// Whether there is room for this number of bytes. A batch that is alone always has room.
    fn reserve(&mut self, bytes: usize, is_live: bool) -> bool {
        let has_room = |state: &OutletState| state.memory == 0 || state.memory + bytes <= self.limits.memory;
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

impl<B: Batch> Drop for Outlet<B> {
    /// Without [`finish`](Self::finish) there is no wait for the receiver.
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            self.shared.is_cancelled.store(true, Ordering::Relaxed);
            drop(sender);
            let _ = thread.join();
        }
    }
}
