//! Search plans of switches, made once for each switch, independent of any machine.
//!
//! ```text
//! plan := bits  first span word          (word >> (value - first)) & 1
//!       | table first span words         (words[(value - first) / 64] >> (value - first) % 64) & 1
//!       | jump  first span               targets[value - first]
//!       | hash                           keys[hash(value)] == value
//!       | tree  range*                   by halves; range := low high case
//! ```
//!
//! A plan for a wish that the keys do not allow (keys too far apart, several targets) is a tree. With one target,
//! neighbouring keys become one range; keys that are all neighbours need nothing else, whatever was wished.

mod hash;

pub(crate) use hash::PerfectHash;

use tapline_ir::{Case, SwitchSearch};

/// The largest table of bits: 2^20 bits are 128 KiB, as much as a second-level cache lends.
const TABLE_SPAN_MAX: u64 = 1 << 20;

/// The longest table of targets.
const JUMP_SPAN_MAX: u64 = 4096;

/// The search of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// One target; bit `key - first` of a word is set for each key.
    Bits { first: u64, span: u64, word: u64 },
    /// One target; the same in memory.
    Table { first: u64, span: u64, words: Box<[u64]> },
    /// An entry for each number from `first` on, `span` the last one's distance.
    Jump { first: u64, span: u64 },
    /// One target; the only key that a value can be.
    Hash(PerfectHash),
    /// By halves.
    Tree(Box<[Range]>),
}

/// Numbers that lead to one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first.
    pub(crate) low: u64,
    /// The last.
    pub(crate) high: u64,
    /// Index of a case with its target.
    pub(crate) case: usize,
}

impl Plan {
    /// The plan for cases in ascending order.
    pub(crate) fn new(cases: &[Case], search: SwitchSearch) -> Plan {
        let tree = || Plan::Tree(ranges(cases));
        let (Some(first), Some(last)) = (cases.first(), cases.last()) else { return tree() };
        let (first, span) = (first.key, last.key - first.key);
        let one_target = cases.iter().all(|case| case.to == cases[0].to);
        let places = || cases.iter().map(|case| case.key - first);
        if one_target && span == cases.len() as u64 - 1 {
            return tree();
        }
        match search {
            SwitchSearch::Bitmap if one_target && span < 64 => {
                Plan::Bits { first, span, word: places().fold(0, |word, at| word | 1 << at) }
            }
            SwitchSearch::BitTable if one_target && span < TABLE_SPAN_MAX => {
                let mut words = vec![0; span as usize / 64 + 1];
                places().for_each(|at| words[at as usize / 64] |= 1 << (at % 64));
                Plan::Table { first, span, words: words.into() }
            }
            SwitchSearch::JumpTable if span < JUMP_SPAN_MAX => Plan::Jump { first, span },
            SwitchSearch::PerfectHash if one_target => {
                let keys: Vec<u64> = cases.iter().map(|case| case.key).collect();
                PerfectHash::new(&keys).map_or_else(tree, Plan::Hash)
            }
            _ => tree(),
        }
    }
}

/// The cases as ranges: neighbours with one target are one.
fn ranges(cases: &[Case]) -> Box<[Range]> {
    let mut ranges: Vec<Range> = Vec::with_capacity(cases.len());
    for (case, Case { key, to }) in cases.iter().enumerate() {
        match ranges.last_mut() {
            Some(last) if last.high.checked_add(1) == Some(*key) && cases[last.case].to == *to => {
                last.high = *key
            }
            _ => ranges.push(Range { low: *key, high: *key, case }),
        }
    }
    ranges.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_ir::{BlockId, Target};

    fn cases(keys: &[(u64, u32)]) -> Vec<Case> {
        keys.iter().map(|&(key, to)| Case { key, to: Target::to(BlockId(to)) }).collect()
    }

    #[test]
    fn wishes_that_fit_are_granted() {
        let close = cases(&[(80, 1), (82, 1), (143, 1)]);
        assert_eq!(
            Plan::new(&close, SwitchSearch::Bitmap),
            Plan::Bits { first: 80, span: 63, word: 1 | 1 << 2 | 1 << 63 }
        );
        let far = cases(&[(1, 1), (66, 1)]);
        let words = Box::new([1, 2]);
        assert_eq!(Plan::new(&far, SwitchSearch::BitTable), Plan::Table { first: 1, span: 65, words });
        assert_eq!(Plan::new(&far, SwitchSearch::JumpTable), Plan::Jump { first: 1, span: 65 });
        assert!(matches!(Plan::new(&far, SwitchSearch::PerfectHash), Plan::Hash(_)));
    }

    #[test]
    fn other_wishes_become_trees_of_ranges() {
        let two = cases(&[(5, 1), (6, 1), (7, 2), (9, 2)]);
        let range = |low, high, case| Range { low, high, case };
        let tree = Plan::Tree(Box::new([range(5, 6, 0), range(7, 7, 2), range(9, 9, 3)]));
        for wish in
            [SwitchSearch::Bitmap, SwitchSearch::BitTable, SwitchSearch::PerfectHash, SwitchSearch::Binary]
        {
            assert_eq!(Plan::new(&two, wish), tree);
        }
        let wide = cases(&[(0, 1), (u64::MAX, 2)]);
        assert!(matches!(Plan::new(&wide, SwitchSearch::JumpTable), Plan::Tree(_)));
        let neighbours = cases(&[(5, 1), (6, 1), (7, 1)]);
        assert_eq!(Plan::new(&neighbours, SwitchSearch::Bitmap), Plan::Tree(Box::new([range(5, 7, 0)])));
        assert_eq!(Plan::new(&[], SwitchSearch::Bitmap), Plan::Tree(Box::new([])));
    }
}
