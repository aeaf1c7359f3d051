//! A point in time, to the nanosecond.

/// Nanoseconds since 1970-01-01 00:00:00 UTC, without leap seconds; negative before.
///
/// Range: the years 1677 to 2262. A time of a file beyond it is clamped to the nearest end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01 00:00:00 UTC; also the time of a packet without one (pcapng's Simple Packet Block).
    pub const EPOCH: Timestamp = Timestamp(0);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Timestamp {
        Timestamp(nanos)
    }

    /// From seconds and nanoseconds since the epoch. `nanos` may exceed a second, as corrupt files have it.
    pub const fn from_parts(seconds: i64, nanos: u64) -> Timestamp {
        let nanos = if nanos > i64::MAX as u64 { i64::MAX } else { nanos as i64 };
        Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds past [`seconds`](Self::seconds), 0 to 999,999,999.
    pub const fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// Nanoseconds from `earlier` to `self`; negative if `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time `nanos` later.
    pub const fn plus_nanos(self, nanos: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos))
    }
}

/// Year, month and day of a day that is counted from 1970-01-01, in the Gregorian calendar: cycles of 400 years, and
/// years that begin in March, so that the day of a leap year comes last.
pub const fn date_of_day(day: i64) -> (i64, u8, u8) {
    let day = day + 719_468;
    let (cycle, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, is_next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + is_next, month as u8, day as u8)
}

/// The time of both clocks at one moment: the wall clock for names and time stamps, the steady clock for intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The wall clock (CLOCK_REALTIME), which may be set forward and back.
    pub wall: Timestamp,
    /// Nanoseconds of the steady clock (CLOCK_MONOTONIC), which goes on whatever the wall clock is set to.
    pub steady_ns: i64,
}

impl ClockReading {
    /// The time by a wall clock that is never set: both clocks go together.
    pub const fn unset(wall: Timestamp) -> ClockReading {
        ClockReading { wall, steady_ns: wall.as_nanos() }
    }

    /// Nanoseconds of the steady clock since `earlier`.
    pub const fn since(self, earlier: ClockReading) -> i64 {
        self.steady_ns.saturating_sub(earlier.steady_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_before_the_epoch_round_down() {
        let t = Timestamp::from_nanos(-1);
        assert_eq!((t.seconds(), t.subsec_nanos()), (-1, 999_999_999));
    }

    #[test]
    fn parts_and_nanos_agree() {
        let t = Timestamp::from_parts(1_700_000_000, 123_456_789);
        assert_eq!((t.seconds(), t.subsec_nanos()), (1_700_000_000, 123_456_789));
        assert_eq!(t.plus_nanos(11).since(t), 11);
    }

    #[test]
    fn out_of_range_is_clamped() {
        assert_eq!(Timestamp::from_parts(i64::MAX, u64::MAX).as_nanos(), i64::MAX);
    }
}
