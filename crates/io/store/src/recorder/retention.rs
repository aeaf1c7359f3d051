//! The clock that `--keep` goes by: one that is set ahead gives nothing up too early.

/// Computes the age of packets from a wall clock that may be wrong.
///
/// A clock that is ahead of the newest packets by more than the time that packets are kept is not believed until the
/// recording has gone on under it for that time: meanwhile the time goes on from where it was. So no packet goes before
/// it was kept for that time, and each goes after twice that time at the latest.
#[derive(Debug)]
pub(super) struct Retention {
    keep_ns: i64,
    /// A clock that goes on by more between two looks was set.
    step_max_ns: i64,
    /// The time that is believed.
    time_ns: i64,
    /// The wall clock at the last look.
    now_ns: i64,
    /// Time that was recorded under a clock that is ahead.
    ahead_ns: i64,
}

impl Retention {
    /// `newest_ns` is the time of the newest packets; the clock is looked at once in half of `step_max_ns`.
    pub(super) fn new(keep_ns: i64, step_max_ns: i64, newest_ns: Option<i64>, now_ns: i64) -> Retention {
        let time_ns = newest_ns.filter(|newest| now_ns.saturating_sub(*newest) > keep_ns).unwrap_or(now_ns);
        Retention { keep_ns, step_max_ns, time_ns, now_ns, ahead_ns: 0 }
    }

    /// Looks at the clock; packets before the moment that is given have been kept long enough.
    pub(super) fn look(&mut self, now_ns: i64) -> i64 {
        let step = now_ns.saturating_sub(self.now_ns);
        // Longer ones are of a clock that was set.
        let step = if (0..=self.step_max_ns).contains(&step) { step } else { 0 };
        self.now_ns = now_ns;
        let is_ahead = now_ns.saturating_sub(self.time_ns) > self.keep_ns;
        self.ahead_ns = if is_ahead { self.ahead_ns.saturating_add(step) } else { 0 };
        let is_believed = !is_ahead || self.ahead_ns >= self.keep_ns;
        self.time_ns = if is_believed { now_ns } else { self.time_ns.saturating_add(step) };
        self.time_ns.saturating_sub(self.keep_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const HOUR: i64 = 3600 * SECOND;
    const YEAR: i64 = 365 * 24 * HOUR;

    /// Looks every five seconds for some time; gives the last moment.
    fn go_on(retention: &mut Retention, now: &mut i64, time: i64) -> i64 {
        let mut before = 0;
        for _ in 0..time / (5 * SECOND) {
            *now += 5 * SECOND;
            before = retention.look(*now);
        }
        before
    }

    #[test]
    fn a_clock_that_goes_is_followed() {
        let mut now = 100 * HOUR;
        let mut retention = Retention::new(2 * HOUR, 10 * SECOND, Some(now), now);
        assert_eq!(go_on(&mut retention, &mut now, 9 * HOUR), now - 2 * HOUR);
        // Back, and ahead by less than what is kept.
        for step in [-3 * HOUR, HOUR] {
            now += step;
            assert_eq!(retention.look(now), now - 2 * HOUR);
        }
    }

    #[test]
    fn a_clock_set_ahead_gives_nothing_up_early() {
        let start = 100 * HOUR;
        let mut now = start;
        let mut retention = Retention::new(2 * HOUR, 10 * SECOND, Some(now), now);
        now += YEAR;
        let before = go_on(&mut retention, &mut now, HOUR);
        let gone_on = HOUR - 5 * SECOND;
        assert_eq!(before, start + gone_on - 2 * HOUR);
        // Right again after an hour, it is believed at once.
        assert_eq!(retention.look(now - YEAR), start + HOUR - 2 * HOUR);
    }

    #[test]
    fn a_clock_that_stays_ahead_is_believed_in_time() {
        let start = 100 * HOUR;
        let mut now = start;
        let mut retention = Retention::new(2 * HOUR, 10 * SECOND, Some(now), now);
        now += YEAR;
        assert!(go_on(&mut retention, &mut now, 2 * HOUR - 10 * SECOND) < start);
        let before = go_on(&mut retention, &mut now, 15 * SECOND);
        assert_eq!(before, now - 2 * HOUR);
    }

    #[test]
    fn recorders_after_a_pause_keep_unexpired_packets() {
        let newest = 100 * HOUR;
        let mut now = newest + YEAR;
        let mut retention = Retention::new(2 * HOUR, 10 * SECOND, Some(newest), now);
        assert!(go_on(&mut retention, &mut now, HOUR) < newest);
        assert_eq!(go_on(&mut retention, &mut now, HOUR), now - 2 * HOUR);
    }
}
