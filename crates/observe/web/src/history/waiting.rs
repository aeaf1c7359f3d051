//! Buckets that are over, until they are in the file: a write that fails leaves them here for the next one.
//!
//! ```text
//! Bucket --it is over--> WholeBucket --Waiting--> one transaction --> file
//!                                       ^-- the transaction failed: another program writes, the disk is full
//! ```

use tapline_view::{Second, Table};

use super::{Bucket, KEPT, Tier};

/// The most buckets of a tier that wait: some 5 MB of minutes, 4 MB of hours and 2 MB of days. Minutes go first, because
/// hours and days have their seconds, too.
const fn most(tier: Tier) -> usize {
    match tier {
        Tier::Minute => 60,
        Tier::Hour => 12,
        Tier::Day => 2,
    }
}

/// A bucket that is over, with the rows that are kept.
#[derive(Debug)]
pub(super) struct WholeBucket {
    pub(super) tier: Tier,
    pub(super) number: u64,
    pub(super) second: Second,
    pub(super) tables: [Table; KEPT.len()],
}

impl WholeBucket {
    /// `None` for a bucket that was not begun.
    pub(super) fn of(bucket: Bucket) -> Option<WholeBucket> {
        let Bucket { tier, number, second, sums } = bucket;
        let tables = sums.map(|sum| sum.finish(tier.rows()));
        number.map(|number| WholeBucket { tier, number, second, tables })
    }
}

/// Buckets that are not in the file yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) buckets: Vec<WholeBucket>,
    /// Buckets that were dropped because too many waited.
    pub(super) given_up: u64,
}

impl Waiting {
    pub(super) fn extend(&mut self, buckets: impl IntoIterator<Item = Bucket>) {
        self.buckets.extend(buckets.into_iter().filter_map(WholeBucket::of));
    }

    /// Gives up the oldest buckets of each tier that has too many.
    pub(super) fn bound(&mut self) {
        for tier in Tier::ALL {
            let is_of_tier = |bucket: &&WholeBucket| bucket.tier == tier;
            let mut excess = self.buckets.iter().filter(is_of_tier).count().saturating_sub(most(tier));
            self.given_up += excess as u64;
            self.buckets.retain(|bucket| {
                let is_excess = bucket.tier == tier && excess > 0;
                excess -= usize::from(is_excess);
                !is_excess
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_minutes_go_first() {
        let mut waiting = Waiting::default();
        for number in 0..120 {
            let bucket = |tier, number| Bucket { number: Some(number), ..Bucket::new(tier) };
            waiting.extend([bucket(Tier::Minute, number)]);
            if number % 60 == 59 {
                waiting.extend([bucket(Tier::Hour, number / 60)]);
            }
            waiting.bound();
        }
        let of = |tier: Tier| waiting.buckets.iter().filter(move |bucket| bucket.tier == tier);
        assert_eq!((of(Tier::Minute).count(), of(Tier::Hour).count(), waiting.given_up), (60, 2, 60));
        assert_eq!(of(Tier::Minute).next().map(|bucket| bucket.number), Some(60), "the latest stay");
    }
}
