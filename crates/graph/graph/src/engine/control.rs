//! Requests to a running engine, and the limits that its workers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tapline_packet::Timestamp;
use tapline_sys::Wakeup;

use super::GraphChange;
use super::pending::Pending;
use super::phase::{Order, OrderRefused, Phase};
use crate::reload::ReloadRequests;

/// Requests to a running loop, from other threads and signal handlers.
#[derive(Debug)]
pub struct Control {
    stop: AtomicBool,
    /// Set by [`Control::stop`].
    stop_requested: AtomicBool,
    /// Set by signal handlers, before a thread calls [`Control::stop`].
    signalled: OnceLock<Arc<AtomicBool>>,
    /// Set when an output is complete and takes no more packets.
    is_complete: AtomicBool,
    /// Set when paced outputs are to drop packets that are not due yet.
    is_pacing_cancelled: Arc<AtomicBool>,
    has_paced_output: AtomicBool,
    report: AtomicU64,
    pub(super) remaining: AtomicU64,
    /// Bytes until the end; `u64::MAX` without a limit.
    remaining_bytes: AtomicU64,
    pending: Pending,
    phase: Mutex<Phase>,
    pub(super) phase_changes: AtomicU64,
    reloads: ReloadRequests,
    /// Wake-ups of sources that wait.
    wakeups: Mutex<Vec<Arc<Wakeup>>>,
}

impl Control {
    /// For a run until the source ends or `limit` packets were accepted, whichever comes first.
    pub fn new(limit: Option<u64>) -> Control {
        Control {
            stop: AtomicBool::new(false),
            stop_requested: AtomicBool::new(false),
            signalled: OnceLock::new(),
            is_complete: AtomicBool::new(false),
            is_pacing_cancelled: Arc::default(),
            has_paced_output: AtomicBool::new(false),
            report: AtomicU64::new(0),
            remaining: AtomicU64::new(limit.unwrap_or(u64::MAX)),
            remaining_bytes: AtomicU64::new(u64::MAX),
            pending: Pending::default(),
            phase: Mutex::new(Phase::Running { since: None }),
            phase_changes: AtomicU64::new(0),
            reloads: ReloadRequests::default(),
            wakeups: Mutex::default(),
        }
    }

    /// Ends the run with the accepted packet whose captured bytes reach this sum; 0 ends it with the first. To be called
    /// before the run.
    pub fn stop_after_bytes(&self, bytes: u64) {
        self.remaining_bytes.store(bytes.min(u64::MAX - 1), Ordering::Relaxed);
    }

    /// Requests the end of the loop, with every output completed.
    pub fn stop(&self) {
        self.stop_requested.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Whether the loop is about to end: a stop was requested, the limit was reached, or a worker failed or completed
    /// the work.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a stop was requested, by [`stop`](Self::stop) or a signal; the loop may end for other reasons too.
    pub fn is_stop_requested(&self) -> bool {
        let signalled = self.signalled.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
        signalled || self.stop_requested.load(Ordering::Relaxed)
    }

    /// Sets the flag that signal handlers raise, so that a signal is seen before the end of the input: Ctrl-C also ends
    /// the program that writes it. Only the first call counts.
    pub fn set_signal_flag(&self, flag: Arc<AtomicBool>) {
        let _ = self.signalled.set(flag);
    }

    /// The flag of an output with a given rate: once true, the output drops packets that are not due yet, and counts
    /// them as lost.
    pub fn pacing_cancel_flag(&self) -> Arc<AtomicBool> {
        self.has_paced_output.store(true, Ordering::Relaxed);
        Arc::clone(&self.is_pacing_cancelled)
    }

    /// Whether an output has a given rate, so that completing it may take long.
    pub fn has_paced_output(&self) -> bool {
        self.has_paced_output.load(Ordering::Relaxed)
    }

    /// Makes outputs with a given rate drop packets that are not due yet.
    pub fn cancel_pacing(&self) {
        self.is_pacing_cancelled.store(true, Ordering::Relaxed);
    }

    /// Requests a fresh account from each worker.
    pub fn request_report(&self) {
        self.report.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    /// The number of reports requested so far.
    pub fn reports_requested(&self) -> u64 {
        self.report.load(Ordering::Relaxed)
    }

    /// Requests a change of the graph, which a loop without other workers applies before its next batch. A loop that
    /// ends first drops it.
    ///
    /// # Errors
    /// The change itself, if an earlier one has not been applied yet, or the loop has ended.
    pub fn change(&self, change: GraphChange) -> Result<(), GraphChange> {
        self.pending.put(change)?;
        self.wake();
        Ok(())
    }

    /// Whether the loop has ended, so that it takes no change any more.
    pub fn has_ended(&self) -> bool {
        self.pending.is_closed()
    }

    /// Pauses the run: live packets are counted and go nowhere, files are not read on.
    ///
    /// # Errors
    /// It is paused already, or ends.
    pub fn pause(&self) -> Result<(), OrderRefused> {
        self.order(Order::Pause)
    }

    /// Ends a pause. Live packets from before `now` that wait still are of the pause.
    ///
    /// # Errors
    /// It is not paused, or ends.
    pub fn resume(&self, now: Timestamp) -> Result<(), OrderRefused> {
        self.order(Order::Resume(now))
    }

    /// Whether the run is paused.
    pub fn is_paused(&self) -> bool {
        self.phase() == Phase::Paused
    }

    fn order(&self, order: Order) -> Result<(), OrderRefused> {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        *phase = phase.after(order)?;
        self.phase_changes.fetch_add(1, Ordering::Release);
        drop(phase);
        self.wake();
        Ok(())
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests to read files again that stages obey.
    pub fn reloads(&self) -> &ReloadRequests {
        &self.reloads
    }

    /// Registers the wake-up of a source, so that requests end its waits.
    pub(super) fn add_wakeup(&self, wakeup: Option<Arc<Wakeup>>) {
        self.wakeups.lock().unwrap_or_else(PoisonError::into_inner).extend(wakeup);
    }

    fn wake(&self) {
        let wakeups = self.wakeups.lock().unwrap_or_else(PoisonError::into_inner);
        wakeups.iter().for_each(|wakeup| wakeup.notify());
    }

    pub(super) fn take_change(&self) -> Option<GraphChange> {
        self.pending.take()
    }

    /// Refuses changes from now on: the loop has ended.
    pub(super) fn end_changes(&self) {
        self.pending.close();
    }

    /// Ends all workers after a failure.
    pub(super) fn end(&self) {
        if !self.stop.swap(true, Ordering::Relaxed) {
            // Every phase has a way to the end.
            let _ = self.order(Order::Stop);
        }
    }

    /// Ends all workers because every output is complete.
    pub(super) fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
        self.end();
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` packets from the rest of the limit.
    pub fn take(&self, wanted: u64) -> u64 {
        let before = self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(if left == u64::MAX { left } else { left.saturating_sub(wanted) })
        });
        let left = before.unwrap_or(0);
        if left <= wanted && left != u64::MAX {
            self.end();
        }
        wanted.min(left)
    }

    /// Whether bytes are limited.
    pub fn limits_bytes(&self) -> bool {
        self.remaining_bytes.load(Ordering::Relaxed) != u64::MAX
    }

    /// Takes a packet of `len` bytes from the rest of the limit; whether it is still within it.
    pub fn take_bytes(&self, len: u64) -> bool {
        let before = self.remaining_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left.saturating_sub(len))
        });
        if before.is_ok_and(|left| left <= len) {
            self.end();
        }
        before.is_ok()
    }
}
