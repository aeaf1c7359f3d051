//! Limits the reported events of a rule: the rest is swallowed, and counted.

/// The most events of a rule in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Events that are reported, 1 or more.
    pub events: u64,
    /// The time, in nanoseconds.
    pub period_ns: u64,
}

impl Default for Limit {
    /// 60 a minute.
    fn default() -> Limit {
        Limit { events: 60, period_ns: 60_000_000_000 }
    }
}

/// The events of the present period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitState {
    /// The latest period of an event; `None` before the first.
    period: Option<i64>,
    told: u64,
    swallowed_since: u64,
    swallowed: u64,
    all: u64,
}

impl LimitState {
    /// Counts an event. If it is to be reported, returns the number that was swallowed since the last reported one.
    pub(crate) fn take(&mut self, limit: Limit, time_ns: i64) -> Option<u64> {
        let period = time_ns.div_euclid(limit.period_ns.clamp(1, i64::MAX as u64) as i64);
        // A period that was before begins no new one: times in turn would have no limit.
        if self.period.is_none_or(|before| before < period) {
            (self.period, self.told) = (Some(period), 0);
        }
        if self.told >= limit.events {
            self.swallowed_since += 1;
            self.swallowed += 1;
            return None;
        }
        self.told += 1;
        self.all += 1;
        Some(std::mem::take(&mut self.swallowed_since))
    }

    /// The clock was set back: a period begins with the next event.
    pub(crate) fn set_back(&mut self) {
        self.period = None;
    }

    /// Events that were reported, and those that were swallowed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.all, self.swallowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_counted_and_told_with_the_next() {
        let limit = Limit { events: 2, period_ns: 10 };
        let mut state = LimitState::default();
        let taken = [0, 1, 2, 3, 12, 13].map(|time| state.take(limit, time));
        assert_eq!(taken, [Some(0), Some(0), None, None, Some(2), Some(0)]);
        assert_eq!(state.counts(), (4, 2));
    }

    #[test]
    fn times_in_turn_have_the_limit_of_one() {
        let limit = Limit { events: 2, period_ns: 10 };
        let mut state = LimitState::default();
        let taken = [19, 20, 19, 20, 19, 20].map(|time| state.take(limit, time).is_some());
        assert_eq!(taken, [true, true, true, false, false, false]);
        state.set_back();
        assert_eq!(state.take(limit, 5), Some(3), "the clock was set back");
    }
}
