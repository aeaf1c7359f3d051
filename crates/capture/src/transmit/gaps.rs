//! How far the gaps between frames were off.
//!
//! ```text
//! error   0    1   ...  15    16    17   ...  31     32-33   34-35   ...  62-63     64-67   ...      nanoseconds
//! bucket  0    1        15    16    17        31     32      33           47        48
//! ```
//!
//! Sixteen steps for each power of two: a percentile is known to a sixteenth.

const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Errors of gaps, in nanoseconds, counted by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gaps {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
}

impl Default for Gaps {
    fn default() -> Gaps {
        Gaps { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Gaps {
    /// Counts one error, whatever its sign was.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
    }

    /// How many were counted.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether none was counted.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The error in nanoseconds that this share (0 to 1) of the gaps did not exceed, to a sixteenth; `None` if there are no gaps.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let wanted = ((share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        self.counts.iter().enumerate().find_map(|(bucket, count)| {
            below += count;
            (below >= wanted && *count > 0).then(|| last(bucket))
        })
    }
}

#[inline]
fn bucket(nanos: u64) -> usize {
    let Some(power) = nanos.checked_ilog2().filter(|power| *power >= STEP_BITS) else {
        return nanos as usize;
    };
    let step = (nanos >> (power - STEP_BITS)) as usize & (STEPS - 1);
    (power - STEP_BITS + 1) as usize * STEPS + step
}

/// The largest error in a bucket.
fn last(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = (bucket / STEPS - 1) as u32;
    let start = ((STEPS + bucket % STEPS) as u64) << shift;
    start + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_begins_where_the_one_before_ends() {
        for bucket_number in 0..BUCKETS - 1 {
            let end = last(bucket_number);
            assert_eq!((bucket(end), bucket(end + 1)), (bucket_number, bucket_number + 1));
        }
        assert_eq!((last(BUCKETS - 1), bucket(u64::MAX)), (u64::MAX, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut gaps = Gaps::default();
        assert_eq!((gaps.percentile(0.5), gaps.is_empty()), (None, true));
        let errors: Vec<u64> = (1..=1000).map(|n| n * n).collect();
        errors.iter().for_each(|error| gaps.add(*error));
        for (share, exact) in [(0.0, 1), (0.5, 250_000), (0.99, 980_100), (1.0, 1_000_000)] {
            let found = gaps.percentile(share).unwrap();
            assert!((exact..=exact + exact / 16).contains(&found), "{share}: {found} and not {exact}");
        }
        assert_eq!(gaps.len(), 1000);
    }
}
