//! Distribution of values: a histogram with sixteen buckets per power of two.
//!
//! ```text
//! value   0    1   ...  15    16    17   ...  31     32-33   34-35   ...  62-63     64-67   ...
//! bucket  0    1        15    16    17        31     32      33           47        48
//! ```
//!
//! A percentile is known to a sixteenth.

const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Values, counted by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Distribution {
    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether no value was counted.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Quantile `share` (0 to 1) of the values, to a sixteenth; `None` without values.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let wanted = ((share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        self.steps().find_map(|(_, last, count)| {
            below += count;
            (below >= wanted).then_some(last)
        })
    }

    /// Buckets with values: the least and the greatest value of the bucket, and the count.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (first(bucket), last(bucket), *count))
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    let Some(power) = value.checked_ilog2().filter(|power| *power >= STEP_BITS) else {
        return value as usize;
    };
    let step = (value >> (power - STEP_BITS)) as usize & (STEPS - 1);
    (power - STEP_BITS + 1) as usize * STEPS + step
}

/// Bits by which values are shifted to the right for their bucket number.
fn shift(bucket: usize) -> u32 {
    (bucket / STEPS).saturating_sub(1) as u32
}

/// The least value in a bucket.
fn first(bucket: usize) -> u64 {
    if bucket < STEPS { bucket as u64 } else { ((STEPS + bucket % STEPS) as u64) << shift(bucket) }
}

/// The greatest value in a bucket.
fn last(bucket: usize) -> u64 {
    first(bucket) + ((1 << shift(bucket)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_begins_where_the_one_before_ends() {
        for number in 0..BUCKETS - 1 {
            let end = last(number);
            assert_eq!((bucket(end), bucket(end + 1), first(number + 1)), (number, number + 1, end + 1));
        }
        assert_eq!((last(BUCKETS - 1), bucket(u64::MAX)), (u64::MAX, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut spread = Distribution::default();
        assert_eq!((spread.percentile(0.5), spread.is_empty()), (None, true));
        let values: Vec<u64> = (1..=1000).map(|n| n * n).collect();
        values.iter().for_each(|value| spread.add(*value));
        for (share, exact) in [(0.0, 1), (0.5, 250_000), (0.99, 980_100), (1.0, 1_000_000)] {
            let found = spread.percentile(share).unwrap();
            assert!((exact..=exact + exact / 16).contains(&found), "{share}: {found} and not {exact}");
        }
        assert_eq!(spread.len(), 1000);
        assert_eq!(spread.steps().map(|(.., count)| count).sum::<u64>(), 1000);
    }
}
