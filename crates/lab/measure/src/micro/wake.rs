//! Waking a thread that waits: an eventfd written, and the thread that polls it running again.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_meters::Task;
use tapline_sys::{Poller, SyscallError, Wakeup};

/// Wake-ups there and back in a round.
const ROUNDS: u64 = 8;
/// No wake-up takes so long: the other thread looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(100);
/// FFPF's figure for waking a user process.
const WAKE: f64 = 624.0;

/// Two threads that wake each other.
pub(crate) struct Pair {
    there: Arc<Wakeup>,
    back: Arc<Wakeup>,
    is_over: Arc<AtomicBool>,
    other: Option<JoinHandle<()>>,
}

/// Half of the round trip, by the clock: until the other thread runs, not the cost for this one.
pub(super) fn task() -> anyhow::Result<Task<'static>> {
    let pair = Pair::new()?;
    let mut poller = Poller::new();
    let name = "waking a thread, until it runs";
    let task = Task::new(name, "wake-up", (2 * ROUNDS) as f64, ROUNDS, move || {
        (0..ROUNDS).map(|_| u64::from(pair.there_and_back(&mut poller).is_ok())).sum()
    });
    Ok(task.with_reference(WAKE))
}

impl Pair {
    pub(crate) fn new() -> anyhow::Result<Pair> {
        let (there, back) = (Arc::new(Wakeup::new()?), Arc::new(Wakeup::new()?));
        let is_over = Arc::new(AtomicBool::new(false));
        let ours = (Arc::clone(&there), Arc::clone(&back), Arc::clone(&is_over));
        let other = thread::spawn(move || answer(&ours.0, &ours.1, &ours.2));
        Ok(Pair { there, back, is_over, other: Some(other) })
    }

    pub(crate) fn there_and_back(&self, poller: &mut Poller) -> Result<(), SyscallError> {
        self.there.notify();
        while !self.back.take() {
            wait(poller, &self.back)?;
        }
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.there.notify();
        if let Some(other) = self.other.take() {
            // The thread does not panic; and after a panic nothing depends on it.
            let _ = other.join();
        }
    }
}

fn answer(there: &Wakeup, back: &Wakeup, is_over: &AtomicBool) {
    let mut poller = Poller::new();
    while !is_over.load(Ordering::Relaxed) && wait(&mut poller, there).is_ok() {
        if there.take() {
            back.notify();
        }
    }
}

fn wait(poller: &mut Poller, wakeup: &Wakeup) -> Result<(), SyscallError> {
    poller.clear();
    poller.add(wakeup.as_fd());
    poller.wait(PATIENCE).map(|_| ())
}
