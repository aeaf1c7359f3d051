//! Packets by cost in cycles: a histogram with four buckets per power of two.
//!
//! ```text
//! bucket   0    1     2     3     4     5    6     ...  80        81
//! from     0    1     1.25  1.5   1.75  2    2.5        917,504   2^20   cycles a packet, inclusive
//! ```
//!
//! A bucket is at most a quarter as wide as its lower end, so a percentile is known to a quarter; sums are exact, they
//! are counted apart. These are the leading bits of a floating-point number, exponent and two bits of the fraction, and
//! that is how a bucket is found: without a branch or a search.

/// Buckets of a histogram.
pub const BUCKETS: usize = 82;
/// Bits of the fraction that distinguish buckets.
const STEP_BITS: u32 = 2;
/// The bits of 1.0 without those that a bucket drops: sign, exponent, steps.
const ONE: i32 = (127 << STEP_BITS) - 1;

/// The bucket of a batch in which `packets` cost `cycles`. Any for a batch without packets.
///
/// Rounded to the 24 bits of an `f32`. Cycles from 2^63 on, as clocks that went backwards give them, are bucket 0.
#[inline]
pub(crate) fn bucket(cycles: u64, packets: u64) -> usize {
    let mean = (cycles as i64 as f32) / (packets as i64 as f32);
    let step = (mean.to_bits() as i32) >> (f32::MANTISSA_DIGITS - 1 - STEP_BITS);
    // Less than 1, and negative, is less than the bits of 1; infinity and what is not a number are more, or negative.
    (step - ONE).clamp(0, BUCKETS as i32 - 1) as usize
}

/// The lower bound of a bucket, in cycles per packet. The bucket after the last begins at infinity.
///
/// ```
/// use tapline_meters::bucket_start;
/// assert_eq!([0, 1, 2, 5, 81, 82].map(bucket_start), [0.0, 1.0, 1.25, 2.0, 1048576.0, f64::INFINITY]);
/// ```
pub fn bucket_start(bucket: usize) -> f64 {
    match bucket {
        0 => 0.0,
        1..BUCKETS => {
            let (power, step) = ((bucket - 1) >> STEP_BITS, (bucket - 1) & 3);
            f64::from(1u32 << power) * (1.0 + step as f64 / 4.0)
        }
        _ => f64::INFINITY,
    }
}

/// Packets by their cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    pub(crate) packets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { packets: [0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts a batch in which `packets` cost `cycles` together.
    pub fn add(&mut self, cycles: u64, packets: u64) {
        let count = &mut self.packets[bucket(cycles, packets)];
        *count = count.wrapping_add(packets);
    }

    /// Packets in each bucket, see [`bucket_start`].
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.packets
    }

    /// Packets in all.
    pub fn packets(&self) -> u64 {
        self.packets.iter().fold(0, |sum, packets| sum.saturating_add(*packets))
    }

    /// Cycles that a share of the packets (0 to 1) cost at most; `None` without packets. 0.5 is the median.
    ///
    /// Taken to grow evenly within a bucket. In the last bucket it is where that begins.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let all = self.packets();
        let wanted = share.clamp(0.0, 1.0) * all as f64;
        let mut below = 0.0;
        for (bucket, packets) in self.packets.iter().enumerate().filter(|(_, packets)| **packets > 0) {
            let packets = *packets as f64;
            if below + packets >= wanted {
                let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
                let part = if end.is_finite() { (wanted - below) / packets * (end - start) } else { 0.0 };
                return Some(start + part.max(0.0));
            }
            below += packets;
        }
        None
    }

    /// With the packets of another.
    pub fn merge(&mut self, other: &Histogram) {
        for (ours, theirs) in self.packets.iter_mut().zip(&other.packets) {
            *ours = ours.saturating_add(*theirs);
        }
    }

    /// Counts since `earlier`, an older state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut packets = self.packets;
        for (now, before) in packets.iter_mut().zip(&earlier.packets) {
            *now = now.saturating_sub(*before);
        }
        Histogram { packets }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_bucket_starts_where_it_says() {
        for number in 1..BUCKETS {
            let quarter_cycles = (bucket_start(number) * 4.0) as u64;
            assert_eq!(bucket(quarter_cycles, 4), number);
            assert_eq!(bucket(quarter_cycles - 1, 4), number - 1);
        }
    }

    #[test]
    fn impossible_values_have_a_bucket() {
        assert_eq!(bucket(0, 256), 0);
        assert_eq!(bucket(u64::MAX, 1), 0, "a clock that went backwards");
        assert_eq!(bucket(1 << 62, 1), BUCKETS - 1);
        assert!(bucket(0, 0) < BUCKETS && bucket(9, 0) < BUCKETS && bucket(9, u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_lie_where_the_packets_are() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        histogram.add(256 * 10, 256);
        assert_eq!(histogram.percentile(0.0), Some(10.0));
        assert_eq!(histogram.percentile(0.5), Some(11.0));
        assert_eq!(histogram.percentile(1.0), Some(12.0));
        histogram.add(1 << 40, 1);
        assert_eq!(histogram.percentile(1.0), Some(1_048_576.0));
        assert!(histogram.percentile(0.99).is_some_and(|cycles| cycles < 12.0));
    }

    proptest! {
        #[test]
        fn a_batch_lies_in_its_bucket(cycles in 0u64..1 << 23, packets in 1u64..=256) {
            let number = bucket(cycles, packets);
            let mean = cycles as f64 / packets as f64;
            // Just below an end, a mean may round up to it.
            prop_assert!(mean >= bucket_start(number) * (1.0 - 1e-7), "{} {}", mean, number);
            prop_assert!(mean < bucket_start(number + 1), "{} {}", mean, number);
        }

        #[test]
        fn a_merged_histogram_can_be_subtracted(batches in prop::collection::vec((0u64..1 << 30, 0u64..300), 0..40)) {
            let (mut all, mut first) = (Histogram::default(), Histogram::default());
            let mut second = Histogram::default();
            for (index, (cycles, packets)) in batches.iter().enumerate() {
                if index % 2 == 0 { first.add(*cycles, *packets) } else { second.add(*cycles, *packets) }
            }
            all.merge(&first);
            all.merge(&second);
            prop_assert_eq!(all.since(&first), second);
            prop_assert_eq!(all.packets(), batches.iter().map(|batch| batch.1).sum::<u64>());
        }
    }
}
