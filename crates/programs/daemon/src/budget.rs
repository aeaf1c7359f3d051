//! The budget of a user: processor time, from a purse that time fills.
//!
//! ```text
//! time ---> purse of a user ---> its filters asked, its readers served, its requests answered
//!      \        full: what may be spent at once
//!       \       empty: its readers are sent away, or its requests wait
//!        \--> purse of all, from which each takes too
//!               empty: likewise, for users that have taken more than an equal share
//! ```
//!
//! Root and the owner of the daemon have no purse. Times are arguments; only [`spent`] looks at a clock.

use std::time::Duration;

use tapline_sys::usage;

/// Processor time that all users together may spend, in milliseconds a second of one processor: the rest is for
/// receiving, and for root. Users that spend share it.
pub(crate) const TIME_OF_ALL_MS: u32 = 500;

/// The user that pays for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payer {
    /// The user's number.
    pub(crate) uid: u32,
    /// Processor time that the user may take of a thread, in milliseconds a second: 1 to 1000.
    pub(crate) time_ms: u32,
}

/// The rest of one user's budget.
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
    /// A full purse holds what fills it in this time.
    span: Duration,
    /// Processor time that all users together may spend, in milliseconds a second.
    time_of_all_ms: u32,
    /// The budget of all users together.
    left_of_all_ns: i64,
    /// When they were filled last.
    filled_ns: u64,
}

impl Purses {
    /// Purses that hold what fills them in `span`; all users together have `time_of_all_ms` milliseconds a second.
    pub(crate) fn new(span: Duration, time_of_all_ms: u32, now_ns: u64) -> Purses {
        let left_of_all_ns = gain(time_of_all_ms, span);
        Purses { purses: Vec::new(), span, time_of_all_ms, left_of_all_ns, filled_ns: now_ns }
    }

    /// Fills all purses for the time that has passed.
    #[inline]
    pub(crate) fn fill(&mut self, now_ns: u64) {
        let passed = Duration::from_nanos(now_ns.saturating_sub(self.filled_ns));
        self.filled_ns = self.filled_ns.max(now_ns);
        let (share_ms, span) = (self.share_ms(), self.span);
        let of_all = self.left_of_all_ns.saturating_add(gain(self.time_of_all_ms, passed));
        self.left_of_all_ns = of_all.min(gain(self.time_of_all_ms, span));
        for purse in &mut self.purses {
            let left = purse.left_ns.saturating_add(gain(purse.payer.time_ms.min(share_ms), passed));
            purse.left_ns = left.min(purse.full_ns(span));
        }
        self.purses.retain(|purse| purse.left_ns < purse.full_ns(span));
    }

    /// Budget of each user with a purse, in milliseconds a second.
    fn share_ms(&self) -> u32 {
        (self.time_of_all_ms / self.purses.len().max(1) as u32).max(1)
    }

    /// Charges processor time to a user's purse, and to that of all. Returns whether the user may go on.
    #[inline]
    pub(crate) fn spend(&mut self, payer: Payer, cost: Duration) -> bool {
        let cost_ns = nanos(cost);
        let known = self.purses.iter().position(|purse| purse.payer.uid == payer.uid);
        let at = known.unwrap_or_else(|| {
            self.purses.push(Purse { payer, left_ns: gain(payer.time_ms, self.span) });
            self.purses.len() - 1
        });
        let purse = &mut self.purses[at];
        // Rules may have changed.
        purse.payer = payer;
        purse.left_ns = purse.left_ns.saturating_sub(cost_ns);
        self.left_of_all_ns = self.left_of_all_ns.saturating_sub(cost_ns);
        !self.is_empty(payer.uid)
    }

    fn of(&self, uid: u32) -> Option<&Purse> {
        self.purses.iter().find(|purse| purse.payer.uid == uid)
    }

    /// The recent processor time of a user, in nanoseconds.
    pub(crate) fn spent_ns(&self, uid: u32) -> i64 {
        self.of(uid).map_or(0, |purse| purse.full_ns(self.span).saturating_sub(purse.left_ns))
    }

    /// Whether at least half of a user's purse is there, and of that of all.
    pub(crate) fn is_half_full(&self, uid: u32) -> bool {
        let is_half = |purse: &Purse| purse.left_ns >= purse.full_ns(self.span) / 2;
        self.of(uid).is_none_or(is_half) && self.left_of_all_ns >= gain(self.time_of_all_ms, self.span) / 2
    }

    /// Whether a user has spent all, or all users have and this one more than an equal share.
    pub(crate) fn is_empty(&self, uid: u32) -> bool {
        let share_ns = gain(self.time_of_all_ms, self.span) / self.purses.len().max(1) as i64;
        self.of(uid).is_some_and(|purse| {
            purse.left_ns <= 0 || self.left_of_all_ns <= 0 && self.spent_ns(uid) > share_ns
        })
    }

    /// Longest time until a user may spend again.
    pub(crate) fn wait(&self, uid: u32) -> Duration {
        let Some(purse) = self.of(uid) else { return Duration::ZERO };
        let until = |left_ns: i64, rate_ms: u32| {
            let debt_ns = u64::try_from(1 - left_ns.min(1)).unwrap_or(0);
            Duration::from_nanos(debt_ns.saturating_mul(1000) / u64::from(rate_ms.max(1)))
        };
        let own = until(purse.left_ns, purse.payer.time_ms.min(self.share_ms()));
        if self.is_empty(uid) { own.max(until(self.left_of_all_ns, self.time_of_all_ms)) } else { own }
    }
}

impl Purse {
    fn full_ns(&self, span: Duration) -> i64 {
        gain(self.payer.time_ms, span)
    }
}

/// A budget of milliseconds a second over some time, in nanoseconds.
fn gain(rate_ms: u32, time: Duration) -> i64 {
    i64::try_from(time.as_nanos() * u128::from(rate_ms) / 1000).unwrap_or(i64::MAX)
}

/// Runs `work`. Returns its result and the processor time of this thread that it used.
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

    fn left_ns(purses: &Purses, uid: u32) -> Option<i64> {
        purses.of(uid).map(|purse| purse.left_ns)
    }

    #[test]
    fn a_purse_fills_with_time_and_holds_so_much() {
        let mut purses = Purses::new(500 * MS, TIME_OF_ALL_MS, 0);
        assert_eq!(left_ns(&purses, 7), None, "a full purse");
        assert!(!purses.spend(payer(7), 150 * MS));
        assert_eq!(left_ns(&purses, 7), Some(-50_000_000));
        assert!(purses.is_empty(7) && !purses.is_empty(8));
        // 200 ms a second: a quarter of a second for 50 ms.
        assert_eq!(purses.wait(7).as_millis(), 250);
        purses.fill(250_000_000);
        assert_eq!(left_ns(&purses, 7), Some(0));
        purses.fill(260_000_000);
        assert!(!purses.is_empty(7) && !purses.is_half_full(7));
        purses.fill(u64::MAX);
        assert_eq!((left_ns(&purses, 7), purses.wait(7)), (None, Duration::ZERO));
    }

    /// Users that take more than an equal share go when all is spent, and one that takes little stays.
    #[test]
    fn many_users_share_what_all_may_spend() {
        let mut purses = Purses::new(500 * MS, TIME_OF_ALL_MS, 0);
        assert!(purses.spend(payer(100), MS));
        assert!((0..9).all(|uid| purses.spend(payer(uid), 26 * MS)));
        assert!(!purses.spend(payer(9), 26 * MS), "all is spent, and its share was 23 ms");
        assert!(purses.is_empty(3) && !purses.is_empty(100) && !purses.is_empty(101));
        assert!(purses.spend(payer(100), MS));
        purses.fill(1_000_000_000);
        // Half of a second for all; 45 ms for each of eleven, which fill their purses.
        assert!(!purses.is_empty(3) && purses.is_half_full(100));
        assert_eq!(purses.left_of_all_ns, 250_000_000);
    }
}
