//! When the next packet leaves.

use crate::random::Random;
use crate::recipe::{Gaps, Rate};

/// Bytes of a frame on an Ethernet wire in addition to its own: frame check sequence 4, preamble and start 8, gap 12.
const WIRE_EXTRA: u64 = 24;
/// The shortest frame on the wire, without its check sequence.
const WIRE_MIN: u64 = 60;
const SECOND_NS: u128 = 1_000_000_000;

/// The time of the next packet. Times are counted in 2^-64 nanoseconds, so that no rate drifts.
pub(crate) struct Clock {
    now: u128,
    /// Nanoseconds for each packet or bit.
    unit: u128,
    per: Per,
    gaps: Gaps,
    /// Time that the packets of this burst have earned, and how many are still to come.
    earned: u128,
    left: u32,
    random: Random,
}

#[derive(Clone, Copy)]
enum Per {
    Packet,
    Bit,
    WireBit,
}

impl Clock {
    pub(crate) fn new(rate: Rate, gaps: Gaps, seed: u64) -> Clock {
        let (per, rate) = match rate {
            Rate::Free => (Per::Packet, 1_000_000),
            Rate::Packets(rate) => (Per::Packet, rate),
            Rate::Bits(rate) => (Per::Bit, rate),
            Rate::Wire(rate) => (Per::WireBit, rate),
        };
        let unit = (SECOND_NS << 64) / u128::from(rate.max(1));
        let left = if let Gaps::Burst(packets) = gaps { packets } else { 0 };
        Clock { now: 0, unit, per, gaps, earned: 0, left, random: Random::new(seed, 0x6761_7073) }
    }

    /// The time of the packet that comes now, in nanoseconds from the start.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        (self.now >> 64) as u64
    }

    /// A frame of `len` bytes has left.
    #[inline]
    pub(crate) fn pass(&mut self, len: usize) {
        let units = match self.per {
            Per::Packet => 1,
            Per::Bit => 8 * len as u128,
            Per::WireBit => 8 * u128::from((len as u64).max(WIRE_MIN) + WIRE_EXTRA),
        };
        let mean = self.unit.saturating_mul(units);
        let gap = match self.gaps {
            Gaps::Constant => mean,
            Gaps::Poisson => self.exponential(mean),
            Gaps::Burst(packets) => self.burst(mean, packets),
        };
        self.now = self.now.saturating_add(gap);
    }

    fn exponential(&mut self, mean: u128) -> u128 {
        let factor = -self.random.unit().ln();
        // Steps of 2^-32 nanoseconds: a fraction of 53 bits would lose more of long gaps.
        let gap_ns = mean as f64 / (1_u128 << 64) as f64 * factor;
        ((gap_ns * (1_u64 << 32) as f64) as u128) << 32
    }

    fn burst(&mut self, mean: u128, packets: u32) -> u128 {
        self.earned = self.earned.saturating_add(mean);
        self.left -= 1;
        if self.left > 0 {
            return 0;
        }
        self.left = packets;
        std::mem::take(&mut self.earned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rate: Rate, gaps: Gaps, len: usize, count: usize) -> Vec<u64> {
        let mut clock = Clock::new(rate, gaps, 1);
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(clock.now_ns());
            clock.pass(len);
        }
        times
    }

    #[test]
    fn no_rate_drifts() {
        for rate in [1, 3, 7, 1000, 148_809, 999_983, 14_880_952] {
            let last = times(Rate::Packets(rate), Gaps::Constant, 60, rate as usize % 1_000_003 + 1).pop();
            let expected = u128::from(rate % 1_000_003) * SECOND_NS / u128::from(rate);
            let off = u128::from(last.expect("a packet")).abs_diff(expected);
            assert!(off <= 1, "{rate}: {off} ns");
        }
    }

    #[test]
    fn a_hundred_megabits_are_148_809_small_frames() {
        let times = times(Rate::Wire(100_000_000), Gaps::Constant, 60, 200_000);
        assert_eq!(times.iter().filter(|time| **time < 1_000_000_000).count(), 148_810);
        assert_eq!(times[1], 6720);
        assert_eq!(self::times(Rate::Bits(1_000_000_000), Gaps::Constant, 1250, 2)[1], 10_000);
    }

    #[test]
    fn poisson_gaps_have_mean_and_spread() {
        let times = times(Rate::Packets(1_000_000), Gaps::Poisson, 60, 200_001);
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((990.0..1010.0).contains(&mean), "{mean}");
        assert!((980.0..1020.0).contains(&variance.sqrt()), "as wide as the mean: {}", variance.sqrt());
        let short = gaps.iter().filter(|gap| **gap < 693.0).count() as f64 / gaps.len() as f64;
        assert!((0.49..0.51).contains(&short), "half of them below ln 2 of the mean: {short}");
    }

    #[test]
    fn bursts_leave_at_once_and_keep_the_rate() {
        let times = times(Rate::Packets(1000), Gaps::Burst(4), 60, 12);
        let expected: Vec<u64> = (0..12).map(|packet| packet / 4 * 4_000_000).collect();
        assert_eq!(times, expected);
    }
}
