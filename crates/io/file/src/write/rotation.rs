//! When a file is closed and the next one begun: by size, by the clock, or both.
//!
//! ```text
//! by size    before a packet that finds the file longer than the limit
//! by clock   at start + n * period by the steady clock, whether packets arrive or not; named after the wall clock of that moment
//! ```
//!
//! `-W`: with a size alone, numbers start over and old files are overwritten; with a period alone, writing ends after
//! that many files; with both, numbers start over in each period (tcpdump's `dump_packet_and_trunc`).

use tapline_packet::{ClockReading, Timestamp};

use crate::error::WriteError;

/// The conditions for a new file. By default there is never one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes, before packing, beyond which no packet is added to a file (`-C`).
    pub size_max: Option<u64>,
    /// Seconds after which a file ends (`-G`).
    pub period_s: Option<u32>,
    /// Files (`-W`).
    pub count: Option<u32>,
}

impl Rotation {
    /// Whether there is more than one file to write.
    pub fn is_used(&self) -> bool {
        self.size_max.is_some() || self.period_s.is_some()
    }

    pub(super) fn check(&self) -> Result<(), WriteError> {
        let text = match self {
            Rotation { size_max: Some(0), .. } => "a file size of 0 leaves no room for a packet",
            Rotation { period_s: Some(0), .. } => "a period of 0 seconds would begin files without end",
            Rotation { count: Some(0), .. } => "0 files cannot hold a packet",
            Rotation { size_max: None, period_s: None, count: Some(_) } => {
                "a number of files (-W) needs a size (-C) or a period (-G) at which to begin the next"
            }
            _ => return Ok(()),
        };
        Err(WriteError::Options(text.to_owned()))
    }
}

/// The state of a rotation.
#[derive(Clone, Debug)]
pub(super) struct Course {
    rotation: Rotation,
    /// The start of the current period.
    start: ClockReading,
    periods: u32,
    /// Counts files within a period by size.
    number: u32,
}

/// The time of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByClock {
    /// Go on with this file.
    Stay,
    /// Begin the next.
    Next,
    /// All requested files are written.
    Done,
}

impl Course {
    pub(super) fn new(rotation: Rotation, now: ClockReading) -> Course {
        Course { rotation, start: now, periods: 0, number: 0 }
    }

    /// The start of the current period, by the wall clock as it was when the period was found to begin.
    pub(super) fn period_start(&self) -> Timestamp {
        self.start.wall
    }

    /// The number in the name of the current file.
    pub(super) fn number(&self) -> Option<u32> {
        self.rotation.size_max.map(|_| self.number)
    }

    /// The size beyond which [`next_by_size`](Self::next_by_size) is to be called.
    pub(super) fn size_max(&self) -> u64 {
        self.rotation.size_max.unwrap_or(u64::MAX)
    }

    /// Goes to the next file because this one is full.
    pub(super) fn next_by_size(&mut self) {
        self.number = match self.rotation.count {
            Some(count) if self.number + 1 >= count => 0,
            _ => self.number.saturating_add(1),
        };
    }

    /// Goes to the next file if its time has come. Periods without a look at the clock are passed over, so that files
    /// begin on the beat. A wall clock that was set forward or back changes names, never the beat.
    pub(super) fn next_by_clock(&mut self, now: ClockReading) -> ByClock {
        let Some(period_s) = self.rotation.period_s else { return ByClock::Stay };
        let period_ns = i64::from(period_s) * 1_000_000_000;
        let elapsed = now.since(self.start);
        let passed = elapsed / period_ns;
        if passed < 1 {
            return ByClock::Stay;
        }
        self.start = ClockReading {
            wall: now.wall.plus_nanos(-(elapsed % period_ns)),
            steady_ns: self.start.steady_ns.saturating_add(passed.saturating_mul(period_ns)),
        };
        self.periods += 1;
        self.number = 0;
        match self.rotation {
            Rotation { size_max: None, count: Some(count), .. } if self.periods >= count => ByClock::Done,
            _ => ByClock::Next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: i64) -> ClockReading {
        ClockReading::unset(Timestamp::from_parts(s, 0))
    }

    #[test]
    fn periods_keep_the_beat() {
        let mut course = Course::new(Rotation { period_s: Some(10), ..Rotation::default() }, seconds(5));
        assert_eq!(course.next_by_clock(seconds(14)), ByClock::Stay);
        assert_eq!(course.next_by_clock(seconds(15)), ByClock::Next);
        assert_eq!(course.next_by_clock(seconds(15)), ByClock::Stay);
        // Three periods without a look.
        assert_eq!(course.next_by_clock(seconds(47)), ByClock::Next);
        assert_eq!(course.start, seconds(45));
    }

    /// The clock set back or forward by an hour: files begin on the beat, and are named after the new time.
    #[test]
    fn the_beat_outlives_a_clock_that_is_set() {
        for hour in [-3600, 3600] {
            let rotation = Rotation { period_s: Some(10), ..Rotation::default() };
            let mut course = Course::new(rotation, seconds(100_000));
            let set = |s: i64| ClockReading { wall: seconds(s + hour).wall, ..seconds(s) };
            assert_eq!(course.next_by_clock(set(100_009)), ByClock::Stay);
            assert_eq!(course.next_by_clock(set(100_011)), ByClock::Next);
            assert_eq!(course.period_start(), seconds(100_010 + hour).wall);
            assert_eq!(course.next_by_clock(set(100_019)), ByClock::Stay);
            // Set right again.
            assert_eq!(course.next_by_clock(seconds(100_020)), ByClock::Next);
            assert_eq!(course.period_start(), seconds(100_020).wall);
        }
    }

    #[test]
    fn a_count_of_periods_ends_the_work() {
        let rotation = Rotation { period_s: Some(1), count: Some(2), ..Rotation::default() };
        let mut course = Course::new(rotation, seconds(0));
        assert_eq!(course.next_by_clock(seconds(1)), ByClock::Next);
        assert_eq!(course.next_by_clock(seconds(2)), ByClock::Done);
    }

    #[test]
    fn numbers_go_round() {
        let rotation = Rotation { size_max: Some(1), count: Some(3), period_s: Some(1) };
        let mut course = Course::new(rotation, seconds(0));
        let mut numbers = vec![course.number().unwrap()];
        for _ in 0..4 {
            course.next_by_size();
            numbers.push(course.number().unwrap());
        }
        assert_eq!(numbers, [0, 1, 2, 0, 1]);
        assert_eq!(course.next_by_clock(seconds(9)), ByClock::Next);
        assert_eq!(course.number(), Some(0));
    }

    #[test]
    fn senseless_rotations_are_refused() {
        let none = Rotation::default();
        assert!(none.check().is_ok());
        assert!(Rotation { count: Some(3), ..none }.check().is_err());
        assert!(Rotation { size_max: Some(0), ..none }.check().is_err());
        assert!(Rotation { period_s: Some(0), ..none }.check().is_err());
    }
}
