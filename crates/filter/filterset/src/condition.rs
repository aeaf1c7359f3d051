//! The numbers that a part of a packet may be: a set, the complement of a set, or a range.
//!
//! ```text
//! part = 6                 among {6}
//! part = 6 or part = 17    among {6, 17}
//! part != 80               without {80}
//! part & 0x1fff = 0        among {0}, of the masked part
//! 80 <= part <= 90         low 80, high 90
//! ```

/// A set of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Condition {
    /// The numbers, ascending; if they are given, the other fields say nothing more.
    pub(super) among: Option<Vec<u32>>,
    /// Numbers that are not in it, ascending.
    pub(super) without: Vec<u32>,
    /// The least number.
    pub(super) low: u32,
    /// The greatest number.
    pub(super) high: u32,
}

impl Condition {
    const ANY: Condition = Condition { among: None, without: Vec::new(), low: 0, high: u32::MAX };

    /// One of `values`, which ascend.
    pub(super) fn among(values: Vec<u32>) -> Condition {
        Condition { among: Some(values), ..Condition::ANY }
    }

    /// This number, or any but this.
    pub(super) fn equal(value: u32, holds: bool) -> Condition {
        if holds {
            Condition::among(vec![value])
        } else {
            Condition { without: vec![value], ..Condition::ANY }
        }
    }

    /// `low..=high`; no number if `low` is greater.
    pub(super) fn within(low: u32, high: u32) -> Condition {
        if low > high { Condition::among(Vec::new()) } else { Condition { low, high, ..Condition::ANY } }
    }

    /// Whether `value` is in it.
    #[inline]
    pub(super) fn holds(&self, value: u32) -> bool {
        match &self.among {
            Some(values) => values.binary_search(&value).is_ok(),
            None => self.low <= value && value <= self.high && self.without.binary_search(&value).is_err(),
        }
    }

    /// Whether no number is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.among.as_ref().is_some_and(Vec::is_empty)
    }

    /// The numbers in both.
    pub(super) fn and(&self, other: &Condition) -> Condition {
        let kept = |values: &Vec<u32>, by: &Condition| {
            Condition::among(values.iter().copied().filter(|value| by.holds(*value)).collect())
        };
        match (&self.among, &other.among) {
            (Some(values), _) => kept(values, other),
            (None, Some(values)) => kept(values, self),
            (None, None) => {
                let within = Condition::within(self.low.max(other.low), self.high.min(other.high));
                let mut without = [&self.without[..], &other.without[..]].concat();
                without.sort_unstable();
                without.dedup();
                if within.is_empty() { within } else { Condition { without, ..within } }
            }
        }
    }
}
