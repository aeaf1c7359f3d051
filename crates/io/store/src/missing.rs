//! Segments that somebody else than a recorder removed or renamed.
//!
//! ```text
//! segments that are there, with numbers missing between them      the log has the deletion of each, or it is missing
//! before the first, behind the last                               missing if the log has their beginning and no deletion
//! ```

use std::ops::RangeInclusive;

use crate::catalog::Catalog;
use crate::error::Error;
use crate::log::{History, history};
use crate::search::Window;

/// Numbers of segments, ascending.
pub(crate) type Ranges = Vec<RangeInclusive<u64>>;

impl Catalog {
    /// The first and the last number of each range of segments that were recorded, are not there, and that no recorder
    /// deleted by the log.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn segments_missing(&self) -> Result<Vec<(u64, u64)>, Error> {
        Ok(self.missing_segments()?.0.into_iter().map(|range| (*range.start(), *range.end())).collect())
    }

    /// Numbers of segments that were recorded, are not there, and that no recorder deleted by the log. Of a segment
    /// before the oldest or behind the newest only the log knows. With the history that the log has.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub(crate) fn missing_segments(&self) -> Result<(Ranges, History), Error> {
        let before = self.numbers()?;
        let history = history(&self.paths);
        // A recorder may have begun and deleted segments meanwhile. Deletions come into the log first.
        let mut numbers = self.numbers()?;
        numbers.extend(before);
        numbers.sort_unstable();
        numbers.dedup();
        let is_held = !self.holds()?.is_empty();
        Ok((missing(&numbers, &history, is_held), history))
    }

    /// The number of these segments that may have packets of the window, by the times of their neighbours that
    /// are there.
    pub(crate) fn missing_within(&self, missing: &Ranges, window: Window) -> Result<u64, Error> {
        if missing.is_empty() {
            return Ok(0);
        }
        let numbers = self.numbers()?;
        let may_be_in = |range: &RangeInclusive<u64>| {
            let (lower, upper) = numbers.split_at(numbers.partition_point(|number| number < range.start()));
            let is_later = lower.last().and_then(|number| self.span_of(*number));
            let is_earlier = upper.first().and_then(|number| self.span_of(*number));
            let is_behind =
                is_later.is_some_and(|(first, _)| window.to != Window::ALL.to && first >= window.to);
            let is_before = is_earlier.is_some_and(|(_, last)| last < window.from);
            !is_behind && !is_before
        };
        let count = |range: &RangeInclusive<u64>| (range.end() - range.start()).saturating_add(1);
        Ok(missing.iter().filter(|range| may_be_in(range)).map(count).fold(0, u64::saturating_add))
    }
}

/// `numbers` are those of the segments that are there, ascending.
fn missing(numbers: &[u64], History { begun, deleted, .. }: &History, is_held: bool) -> Ranges {
    let mut ranges = Ranges::new();
    let (oldest, newest) = match numbers {
        [] => (u64::MAX, u64::MAX),
        [oldest, .., newest] => (*oldest, *newest),
        [only] => (*only, *only),
    };
    // The oldest segments are deleted first, but for held ones: one older than a deleted one would be gone by now.
    let since = if is_held { 0 } else { deleted.range(..oldest).next_back().copied().unwrap_or(0) };
    let ends = begun.range(since..oldest).chain(begun.range(newest.saturating_add(1)..));
    for number in ends.filter(|number| !deleted.contains(number)) {
        match ranges.last_mut().filter(|last| last.end() + 1 == *number) {
            Some(last) => *last = *last.start()..=*number,
            None => ranges.push(*number..=*number),
        }
    }
    for pair in numbers.windows(2) {
        let mut from = pair[0] + 1;
        for number in deleted.range(from..pair[1]) {
            ranges.extend((from < *number).then(|| from..=number - 1));
            from = number + 1;
        }
        ranges.extend((from < pair[1]).then(|| from..=pair[1] - 1));
    }
    ranges.sort_unstable_by_key(|range| *range.start());
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_no_recorder_deleted_are_missing() {
        let history = |begun: RangeInclusive<u64>, deleted: &[u64]| History {
            begun: begun.collect(),
            deleted: deleted.iter().copied().collect(),
            ..History::default()
        };
        for (numbers, history, is_held, expected) in [
            (&[4, 5, 6][..], history(1..=6, &[1, 2, 3]), false, vec![]),
            (&[4, 6], history(1..=6, &[1, 2, 3]), false, vec![5..=5]),
            (&[4, 5], history(1..=7, &[1, 2, 3]), false, vec![6..=7]),
            (&[5, 6], history(1..=6, &[1, 2, 3]), false, vec![4..=4]),
            // Number 1 would have been deleted before number 3 unless it was held.
            (&[4, 5], history(1..=5, &[2, 3]), false, vec![]),
            (&[4, 5], history(1..=5, &[2, 3]), true, vec![1..=1]),
            (&[1, 9], history(1..=9, &[3, 6, 7]), false, vec![2..=2, 4..=5, 8..=8]),
            (&[1, 1 << 60], history(1..=1, &[]), false, vec![2..=(1 << 60) - 1]),
            (&[2, 4], History::default(), false, vec![3..=3]),
            (&[], history(1..=2, &[]), false, vec![1..=2]),
            (&[], History::default(), false, vec![]),
        ] {
            assert_eq!(missing(numbers, &history, is_held), expected, "{numbers:?} {history:?}");
        }
    }
}
