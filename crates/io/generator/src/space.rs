//! Numbers that addresses and ports walk through: ranges, one behind the other.

/// Ranges of numbers (addresses, ports), one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRanges {
    /// Start and length of each range.
    parts: Vec<(u128, u64)>,
    len: u64,
}

impl NumberRanges {
    /// One number.
    pub fn one(number: u128) -> NumberRanges {
        NumberRanges { parts: vec![(number, 1)], len: 1 }
    }

    /// From the first to the last, both included; the first alone if the last is below it.
    pub fn range(first: u128, last: u128) -> NumberRanges {
        let more = last.saturating_sub(first);
        let len = u64::try_from(more).unwrap_or(u64::MAX - 1).saturating_add(1);
        NumberRanges { parts: vec![(first, len)], len }
    }

    /// The ranges of both.
    #[must_use]
    pub fn and(mut self, other: NumberRanges) -> NumberRanges {
        self.parts.extend(other.parts);
        self.len = self.len.saturating_add(other.len);
        self
    }

    /// Number of numbers, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The number at `index`, counted from 0 and round again behind the last.
    pub fn at(&self, index: u64) -> u128 {
        let mut left = index % self.len;
        for &(first, len) in &self.parts {
            if left < len {
                return first + u128::from(left);
            }
            left -= len;
        }
        self.parts[0].0
    }

    /// The largest number.
    pub fn last(&self) -> u128 {
        self.parts.iter().map(|&(first, len)| first + u128::from(len - 1)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other() {
        let space = NumberRanges::range(5, 7).and(NumberRanges::one(100));
        assert_eq!(space.len(), 4);
        assert_eq!([0, 1, 2, 3, 4].map(|index| space.at(index)), [5, 6, 7, 100, 5]);
        assert_eq!(space.last(), 100);
        assert_eq!(NumberRanges::range(9, 3), NumberRanges::one(9));
        assert_eq!(NumberRanges::range(0, u128::MAX).len(), u64::MAX);
    }
}
