//! The departure time of each frame, in nanoseconds after the start.

use std::str::FromStr;

use tapline_syntax::units::{self, RateUnit};

/// Pacing of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// The gaps of the capture divided by `speed`; 1.0 keeps them.
    Original {
        /// The divisor: positive and finite.
        speed: f64,
    },
    /// Even gaps.
    Rate(ReplayRate),
    /// Every frame is due at once.
    Top,
}

/// A constant rate, positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayRate {
    /// Packets per second.
    Packets(f64),
    /// Bits of frames per second: link headers count, check sequences and preambles do not.
    Bits(f64),
}

impl FromStr for ReplayRate {
    type Err = String;

    /// Reads `10k` (packets per second) or `10Mbit` (bits per second), up to 1000G.
    fn from_str(text: &str) -> Result<ReplayRate, String> {
        let rate = units::rate(text).map_err(|error| error.to_string())?;
        let a_second = rate.in_1000_s as f64 / 1000.0;
        if a_second > 1e12 {
            return Err("at most 1000G a second".to_owned());
        }
        match rate.unit {
            RateUnit::Packets => Ok(ReplayRate::Packets(a_second)),
            RateUnit::FrameBits => Ok(ReplayRate::Bits(a_second)),
            RateUnit::WireBits => {
                Err("a file is sent at a rate of packets or of bits of frames: 10Mbit".to_owned())
            }
        }
    }
}

/// Gives frames their times, pass after pass.
#[derive(Debug)]
pub(super) struct Timeline {
    timing: Timing,
    /// Frames and bits before the next one.
    frames: u64,
    bits: f64,
    /// The start of this pass, and its first frame's time in the file.
    base: u64,
    first: Option<i64>,
    in_pass: u64,
    last: u64,
    /// Frames whose time in the file is before that of the frame before: they follow it at once.
    pub(super) backwards: u64,
}

impl Timeline {
    pub(super) fn new(timing: Timing) -> Timeline {
        Timeline { timing, frames: 0, bits: 0.0, base: 0, first: None, in_pass: 0, last: 0, backwards: 0 }
    }

    /// Departure of the next frame, in nanoseconds after the start. `stamp` is its time in the capture in
    /// nanoseconds, `len` its length in bytes.
    pub(super) fn time(&mut self, stamp: i64, len: u64) -> u64 {
        let time = match self.timing {
            Timing::Top => 0.0,
            Timing::Rate(ReplayRate::Packets(rate)) => self.frames as f64 * 1e9 / rate,
            Timing::Rate(ReplayRate::Bits(rate)) => self.bits * 1e9 / rate,
            Timing::Original { speed } => {
                let first = *self.first.get_or_insert(stamp);
                let since = stamp.saturating_sub(first);
                self.base as f64 + since as f64 / speed
            }
        };
        // A time that is too large for 64 bits is one that never comes.
        let time = time as u64;
        self.backwards += u64::from(time < self.last);
        self.last = self.last.max(time);
        self.frames += 1;
        self.in_pass += 1;
        self.bits += (len * 8) as f64;
        self.last
    }

    /// Begins another pass: its first frame follows the last one by the mean gap.
    pub(super) fn next_pass(&mut self) {
        let gap = (self.last - self.base).checked_div(self.in_pass.saturating_sub(1)).unwrap_or(0);
        self.base = self.last.saturating_add(gap);
        (self.first, self.in_pass) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(timing: Timing, stamps: &[i64]) -> (Vec<u64>, u64) {
        let mut timeline = Timeline::new(timing);
        let mut times: Vec<u64> = stamps.iter().map(|stamp| timeline.time(*stamp, 125)).collect();
        timeline.next_pass();
        times.extend(stamps.iter().map(|stamp| timeline.time(*stamp, 125)));
        (times, timeline.backwards)
    }

    #[test]
    fn gaps_of_the_file_are_kept_and_scaled() {
        let stamps = [5_000, 6_000, 9_000];
        let original = |speed| times(Timing::Original { speed }, &stamps).0;
        assert_eq!(original(1.0), [0, 1000, 4000, 6000, 7000, 10_000]);
        assert_eq!(original(2.0), [0, 500, 2000, 3000, 3500, 5000]);
    }

    #[test]
    fn frames_never_go_before_those_before_them() {
        let (times, backwards) = times(Timing::Original { speed: 1.0 }, &[100, 300, 200, i64::MIN, 400]);
        assert_eq!((&times[..5], backwards), (&[0, 200, 200, 200, 300][..], 4));
        assert!(times.is_sorted());
    }

    #[test]
    fn rates_are_even() {
        assert_eq!(times("1M".parse().map(Timing::Rate).unwrap(), &[9, 7]).0, [0, 1000, 2000, 3000]);
        assert_eq!(times("1Gbps".parse().map(Timing::Rate).unwrap(), &[9, 7]).0, [0, 1000, 2000, 3000]);
        assert_eq!(times(Timing::Top, &[9, 7]).0, [0; 4]);
    }

    #[test]
    fn rates_have_units() {
        assert_eq!("1.5k".parse(), Ok(ReplayRate::Packets(1500.0)));
        assert_eq!("10pps".parse(), Ok(ReplayRate::Packets(10.0)));
        assert_eq!("2Mbps".parse(), Ok(ReplayRate::Bits(2e6)));
        for text in ["", "k", "0", "-1", "5x", "5kk", "1e30", "NaN", "5é"] {
            assert!(text.parse::<ReplayRate>().is_err(), "{text}");
        }
    }
}
