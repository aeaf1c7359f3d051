//! What a user may cost: processor time, from a purse that time fills.
//!
//! ```text
//! time ---> purse of a user ---> its filters asked, its readers served, its requests answered
//!             full: what may be spent at once
//!             empty: readers are sent away, or requests wait
//! ```
//!
//! Root and the owner of the daemon have no purse. Times are arguments; only [`spent`] looks at a clock.

use std::time::Duration;

use tapline_sys::usage;

/// Processor time that all users together may spend, in milliseconds a second of one processor: the rest is for
/// receiving, and for root. Users that spend share it.
const TIME_OF_ALL_MS: u32 = 500;

/// The user that pays for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payer {
    /// The user's number.
    pub(crate) uid: u32,
    /// Processor time of the user's readers, in milliseconds a second, on each thread that captures: 1 to 1000.
    pub(crate) time_ms: u32,
}

/// What one user has left.
#[derive(Clone, Copy, Debug)]
struct Purse {
    payer: Payer,
    /// Nanoseconds of processor time; less than 0 for a debt.
    left_ns: i64,
}

/// The purses of all users that have spent something lately. A user without one has a full purse.
#[derive(Debug)]
pub(crate) struct Purses {
    purses: Vec<Purse>,
    /// What a full purse holds, in nanoseconds of processor time.
    full_ns: i64,
    /// When they were filled last.
    filled_ns: u64,
}

impl Purses {
    /// Purses that hold so much.
    pub(crate) fn new(full: Duration, now_ns: u64) -> Purses {
        Purses { purses: Vec::new(), full_ns: nanos(full), filled_ns: now_ns }
    }

    /// Fills all purses for the time that has passed.
    #[inline]
    pub(crate) fn fill(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
        if self.purses.is_empty() {
            return;
        }
        let share_ms = self.share_ms();
        let full_ns = self.full_ns;
        for purse in &mut self.purses {
            let rate = u128::from(purse.payer.time_ms.min(share_ms));
            let gain = i64::try_from(u128::from(passed_ns) * rate / 1000).unwrap_or(i64::MAX);
            purse.left_ns = purse.left_ns.saturating_add(gain).min(full_ns);
        }
        self.purses.retain(|purse| purse.left_ns < full_ns);
    }

    /// What each of the users that spend may spend, in milliseconds a second.
    fn share_ms(&self) -> u32 {
        (TIME_OF_ALL_MS / self.purses.len().max(1) as u32).max(1)
    }

    /// Takes what was spent from a user's purse. Returns what is left, in nanoseconds.
    #[inline]
    pub(crate) fn spend(&mut self, payer: Payer, cost: Duration) -> i64 {
        let cost_ns = nanos(cost);
        let known = self.purses.iter().position(|purse| purse.payer.uid == payer.uid);
        let at = known.unwrap_or_else(|| {
            self.purses.push(Purse { payer, left_ns: self.full_ns });
            self.purses.len() - 1
        });
        let purse = &mut self.purses[at];
        // Rules may have changed.
        purse.payer = payer;
        purse.left_ns = purse.left_ns.saturating_sub(cost_ns);
        purse.left_ns
    }

    /// What a user has left, in nanoseconds; less than 0 for a debt.
    pub(crate) fn left_ns(&self, uid: u32) -> i64 {
        self.purses.iter().find(|purse| purse.payer.uid == uid).map_or(self.full_ns, |purse| purse.left_ns)
    }

    /// Whether at least half of a user's purse is there.
    pub(crate) fn is_half_full(&self, uid: u32) -> bool {
        self.left_ns(uid) >= self.full_ns / 2
    }

    /// Whether a user has spent all.
    pub(crate) fn is_empty(&self, uid: u32) -> bool {
        self.left_ns(uid) <= 0
    }

    /// How long it takes until a user has something left.
    pub(crate) fn wait(&self, uid: u32) -> Duration {
        let Some(purse) = self.purses.iter().find(|purse| purse.payer.uid == uid) else {
            return Duration::ZERO;
        };
        let debt_ns = u64::try_from(1 - purse.left_ns.min(1)).unwrap_or(0);
        let rate = u64::from(purse.payer.time_ms.min(self.share_ms()).max(1));
        Duration::from_nanos(debt_ns.saturating_mul(1000) / rate)
    }
}

/// What `work` gives, and the processor time of this thread that went into it.
pub(crate) fn spent<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = usage::thread_time();
    let result = work();
    (result, usage::thread_time().saturating_sub(before))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn payer(uid: u32) -> Payer {
        Payer { uid, time_ms: 200 }
    }

    #[test]
    fn a_purse_fills_with_time_and_holds_so_much() {
        let mut purses = Purses::new(100 * MS, 0);
        assert_eq!(purses.left_ns(7), 100_000_000);
        assert_eq!(purses.spend(payer(7), 150 * MS), -50_000_000);
        assert!(purses.is_empty(7) && !purses.is_empty(8));
        // 200 ms a second: a quarter of a second for 50 ms.
        assert_eq!(purses.wait(7).as_millis(), 250);
        purses.fill(250_000_000);
        assert_eq!(purses.left_ns(7), 0);
        purses.fill(260_000_000);
        assert!(!purses.is_empty(7) && !purses.is_half_full(7));
        purses.fill(u64::MAX);
        assert_eq!((purses.left_ns(7), purses.wait(7)), (100_000_000, Duration::ZERO));
        assert!(purses.purses.is_empty(), "a full purse is not kept");
    }

    #[test]
    fn many_users_share_what_all_may_spend() {
        let mut purses = Purses::new(100 * MS, 0);
        (0..10).for_each(|uid| assert_eq!(purses.spend(payer(uid), 100 * MS), 0));
        purses.fill(1_000_000_000);
        assert_eq!((0..10).map(|uid| purses.left_ns(uid)).sum::<i64>(), 500_000_000);
    }
}
