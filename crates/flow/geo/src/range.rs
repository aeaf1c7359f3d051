//! Ranges of addresses, one inside the other, as a sorted list that a search by halves answers.
//!
//! ```text
//! 10.0.0.0   ------------------------ 10.255.255.255   a          starts   10.0.0.0  10.1.0.0  10.2.0.0  11.0.0.0
//!              10.1.0.0 -- 10.1.255.255   b                values  a         b         a         none
//! ```

/// A range with both its ends, and the offset in its file of the line that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range<A> {
    pub(crate) first: A,
    pub(crate) last: A,
    pub(crate) value: u32,
    pub(crate) offset: u64,
}

/// Two lines whose ranges are equal, or share a part of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) offset: u64,
    pub(crate) other: u64,
    pub(crate) are_equal: bool,
}

/// An address as a number.
pub(crate) trait Number: Copy + Ord {
    /// The next address; `None` behind the last one.
    fn next(self) -> Option<Self>;
}

impl Number for u32 {
    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }
}

impl Number for u128 {
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }
}

/// The value of an address that no range has.
const NONE: u32 = u32::MAX;

/// The value of each address: that of the narrowest range around it.
#[derive(Debug)]
pub(crate) struct RangeMap<A> {
    starts: Vec<A>,
    values: Vec<u32>,
}

impl<A: Number> RangeMap<A> {
    /// Values are less than `u32::MAX`, and no range ends before its first address.
    pub(crate) fn new(mut ranges: Vec<Range<A>>) -> Result<RangeMap<A>, Conflict> {
        ranges.sort_by_key(|range| (range.first, std::cmp::Reverse(range.last), range.offset));
        let mut map = RangeMap { starts: Vec::new(), values: Vec::new() };
        let mut around: Vec<Range<A>> = Vec::new();
        for range in ranges {
            while let Some(inner) = around.pop_if(|inner| inner.last < range.first) {
                map.end(inner, around.last());
            }
            if let Some(outer) = around.last() {
                let are_equal = outer.first == range.first && outer.last == range.last;
                if are_equal || outer.last < range.last {
                    let (offset, other) = (range.offset.max(outer.offset), range.offset.min(outer.offset));
                    return Err(Conflict { offset, other, are_equal });
                }
            }
            map.begin(range.first, range.value);
            around.push(range);
        }
        while let Some(inner) = around.pop() {
            map.end(inner, around.last());
        }
        map.starts.shrink_to_fit();
        map.values.shrink_to_fit();
        Ok(map)
    }

    /// From `first` on the value is this one.
    fn begin(&mut self, first: A, value: u32) {
        if self.starts.last() == Some(&first) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last().copied().unwrap_or(NONE) != value {
            self.starts.push(first);
            self.values.push(value);
        }
    }

    /// Behind a range the value is again that of the one around it.
    fn end(&mut self, inner: Range<A>, outer: Option<&Range<A>>) {
        if let Some(first) = inner.last.next() {
            self.begin(first, outer.map_or(NONE, |outer| outer.value));
        }
    }

    pub(crate) fn get(&self, address: A) -> Option<u32> {
        let behind = self.starts.partition_point(|start| *start <= address);
        let value = *self.values.get(behind.checked_sub(1)?)?;
        (value != NONE).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(first: u32, last: u32, value: u32) -> Range<u32> {
        Range { first, last, value, offset: u64::from(value) }
    }

    #[test]
    fn the_narrowest_range_counts() {
        let map = RangeMap::new(vec![
            range(10, 99, 1),
            range(20, 29, 2),
            range(20, 24, 3),
            range(30, 99, 4),
            range(u32::MAX, u32::MAX, 5),
        ]);
        let map = map.expect("they are one inside the other");
        let of = |address| map.get(address);
        assert_eq!([9, 10, 19].map(of), [None, Some(1), Some(1)]);
        assert_eq!([20, 24, 25, 29].map(of), [Some(3), Some(3), Some(2), Some(2)]);
        assert_eq!([30, 99, 100, u32::MAX - 1, u32::MAX].map(of), [Some(4), Some(4), None, None, Some(5)]);
    }

    #[test]
    fn ranges_that_share_a_part_are_refused() {
        let conflict = |ranges| RangeMap::new(ranges).expect_err("they conflict");
        let crossing = conflict(vec![range(10, 20, 1), range(15, 25, 2)]);
        assert_eq!(crossing, Conflict { offset: 2, other: 1, are_equal: false });
        let equal = conflict(vec![range(10, 20, 7), range(0, 90, 2), range(10, 20, 3)]);
        assert_eq!(equal, Conflict { offset: 7, other: 3, are_equal: true });
    }

    proptest! {
        #[test]
        fn the_map_answers_as_a_look_at_every_range(
            prefixes in proptest::collection::btree_set((0_u32..=32, any::<u32>()), 0..40),
            addresses in proptest::collection::vec(any::<u32>(), 50),
        ) {
            let mask = |len: u32| u32::MAX.checked_shl(32 - len).unwrap_or(0);
            let distinct: std::collections::BTreeSet<_> =
                prefixes.into_iter().map(|(len, bits)| (bits & mask(len), len)).collect();
            let ranges: Vec<_> = distinct
                .iter()
                .enumerate()
                .map(|(at, (first, len))| range(*first, first | !mask(*len), at as u32))
                .collect();
            let map = RangeMap::new(ranges.clone()).expect("prefixes are one inside the other");
            let edges = ranges.iter().flat_map(|range| [range.first, range.last, range.last.wrapping_add(1)]);
            for address in addresses.into_iter().chain(edges) {
                let around = ranges.iter().filter(|range| (range.first..=range.last).contains(&address));
                let narrowest = around.min_by_key(|range| range.last - range.first);
                prop_assert_eq!(map.get(address), narrowest.map(|range| range.value));
            }
        }
    }
}
