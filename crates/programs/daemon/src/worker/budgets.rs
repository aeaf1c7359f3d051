//! The processor time that users may take of a worker's thread, and the clock that refills it.

use std::time::{Duration, Instant};

use tapline_sys::usage;

use crate::budget::{Payer, Purses, TIME_OF_ALL_MS};

/// Readers of a user may take at once the processor time that they may take in this time.
const PURSE: Duration = Duration::from_millis(125);
/// Time in which attachments, detachments and other filters earn their budget: 200 ms a second for each user.
const ORDER_PURSE: Duration = Duration::from_millis(2500);
const ORDER_TIME_MS: u32 = 200;
/// Time of orders for all users together, in milliseconds a second. With the time of their filters it leaves a third of
/// the thread to receiving.
const ORDER_TIME_OF_ALL_MS: u32 = 150;

/// The purses of a worker's users.
pub(super) struct Budgets {
    clock: WorkClock,
    /// For filters and readers.
    pub(super) packets: Purses,
    orders: Purses,
}

impl Budgets {
    /// Full purses. They fill by `clock` in nanoseconds; without one, by the time that the worker has.
    pub(super) fn new(clock: Option<fn() -> u64>) -> Budgets {
        let clock = WorkClock { clock, had: Duration::ZERO, worked_from: usage::thread_time() };
        let now_ns = clock.now_ns();
        Budgets {
            clock,
            packets: Purses::new(PURSE, TIME_OF_ALL_MS, now_ns),
            orders: Purses::new(ORDER_PURSE, ORDER_TIME_OF_ALL_MS, now_ns),
        }
    }

    /// Refills the purses of packets for the time that has passed.
    pub(super) fn fill(&mut self) {
        self.packets.fill(self.clock.now_ns());
    }

    /// Starts an order of a user: the processor time from here on is the user's.
    pub(super) fn begin_order(&mut self) -> Duration {
        self.fill();
        self.orders.fill(self.clock.now_ns());
        usage::thread_time()
    }

    /// Ends an order that began at `begun`, and takes its cost from the user's purse.
    pub(super) fn end_order(&mut self, payer: Payer, begun: Duration) {
        let cost = usage::thread_time().saturating_sub(begun);
        self.orders.spend(Payer { time_ms: ORDER_TIME_MS, ..payer }, cost);
    }

    /// Whether a user has time left for packets and for orders.
    pub(super) fn has_time(&self, uid: u32) -> bool {
        !self.packets.is_empty(uid) && !self.orders.is_empty(uid)
    }

    /// The time until a user may attach a reader again.
    pub(super) fn wait(&self, uid: u32) -> Duration {
        self.packets.wait(uid).max(self.orders.wait(uid))
    }

    /// Runs `sleep`, whose time fills purses as the worker's own processor time does.
    pub(super) fn sleeping<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        self.clock.pause();
        let begun = Instant::now();
        let slept = sleep();
        self.clock.resume(begun.elapsed());
        slept
    }
}

/// The time that a worker has: its processor time, and its waits for packets. Where other threads keep the processor
/// from it, purses fill the slower.
#[derive(Clone, Copy, Debug)]
struct WorkClock {
    clock: Option<fn() -> u64>,
    /// Time had when it last began or ended to wait.
    had: Duration,
    /// Processor time of the thread at that moment.
    worked_from: Duration,
}

impl WorkClock {
    fn now_ns(&self) -> u64 {
        let now = || self.had + usage::thread_time().saturating_sub(self.worked_from);
        self.clock.map_or_else(|| now().as_nanos() as u64, |clock| clock())
    }

    fn pause(&mut self) {
        self.had += usage::thread_time().saturating_sub(self.worked_from);
        self.worked_from = usage::thread_time();
    }

    fn resume(&mut self, waited: Duration) {
        self.had += waited;
        self.worked_from = usage::thread_time();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_as_time_that_the_worker_has() {
        let mut clock = WorkClock { clock: None, had: Duration::ZERO, worked_from: usage::thread_time() };
        clock.pause();
        clock.resume(Duration::from_secs(5));
        assert!(clock.now_ns() >= 5_000_000_000);
        let fixed = WorkClock { clock: Some(|| 7), ..clock };
        assert_eq!(fixed.now_ns(), 7);
    }

    #[test]
    fn orders_and_packets_have_purses_of_their_own() {
        let payer = Payer { uid: 7, time_ms: 200 };
        let mut budgets = Budgets::new(Some(|| 0));
        let _ = budgets.begin_order();
        // An order that took far more than the purse holds.
        budgets.orders.spend(Payer { time_ms: ORDER_TIME_MS, ..payer }, Duration::from_secs(10));
        assert!(!budgets.has_time(7) && !budgets.packets.is_empty(7) && budgets.has_time(8));
        assert!(budgets.wait(7) > Duration::ZERO && budgets.wait(8) == Duration::ZERO);
    }
}
