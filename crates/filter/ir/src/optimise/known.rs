//! Facts about a number: its range, and its bits that are certainly 0 or 1.
//!
//! ```text
//! load8 [14]              0..=255     bits ........
//! after & 0xf0 == 0x40    64..=79     bits 0100....
//! after == 0x45           69          bits 01000101
//! ```

use crate::{Binary, Comparison, Type};

/// Numbers that a value can be. Contradictory knowledge is possible on paths that no packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) least: u64,
    pub(super) greatest: u64,
    /// The bits that are 0.
    pub(super) zeros: u64,
    /// The bits that are 1.
    pub(super) ones: u64,
}

impl Known {
    /// Nothing but the type.
    pub(super) const fn any(ty: Type) -> Known {
        Known { least: 0, greatest: ty.max(), zeros: !ty.max(), ones: 0 }
    }

    pub(super) const fn exactly(k: u64) -> Known {
        Known { least: k, greatest: k, zeros: !k, ones: k }
    }

    /// From one number to another.
    pub(super) fn between(least: u64, greatest: u64) -> Known {
        Known { least, greatest, zeros: 0, ones: 0 }.settled()
    }

    pub(super) fn bits(zeros: u64, ones: u64) -> Known {
        Known { least: 0, greatest: u64::MAX, zeros, ones }.settled()
    }

    /// The only number that it can be.
    pub(super) fn exact(self) -> Option<u64> {
        (self.least == self.greatest).then_some(self.least)
    }

    pub(super) fn is_contradictory(self) -> bool {
        self.least > self.greatest || self.zeros & self.ones != 0
    }

    /// The facts that follow if both hold.
    pub(super) fn and(self, other: Known) -> Known {
        Known {
            least: self.least.max(other.least),
            greatest: self.greatest.min(other.greatest),
            zeros: self.zeros | other.zeros,
            ones: self.ones | other.ones,
        }
        .settled()
    }

    /// The facts that follow if at least one of both holds.
    pub(super) fn or(self, other: Known) -> Known {
        Known {
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
            zeros: self.zeros & other.zeros,
            ones: self.ones & other.ones,
        }
    }

    /// Bits follow from the range, the range from bits.
    fn settled(mut self) -> Known {
        self.least = self.least.max(self.ones);
        self.greatest = self.greatest.min(!self.zeros);
        self.zeros |= !ones_up_to(self.greatest);
        if self.least == self.greatest {
            self.zeros |= !self.least;
            self.ones |= self.least;
        }
        self
    }

    /// The result of arithmetic.
    pub(super) fn compute(op: Binary, ty: Type, left: Known, right: Known) -> Known {
        let known = match (left.exact(), right.exact()) {
            (Some(a), Some(b)) => op.compute(ty, a, b).map(Known::exactly),
            (_, by) => Known::bitwise(op, ty, left, right, by).or_else(|| Known::ranged(op, ty, left, right)),
        };
        known.unwrap_or(Known::any(ty)).and(Known::any(ty))
    }

    fn bitwise(op: Binary, ty: Type, left: Known, right: Known, by: Option<u64>) -> Option<Known> {
        let by = by.filter(|&by| by < ty.bits().into());
        Some(match op {
            Binary::And => Known::bits(left.zeros | right.zeros, left.ones & right.ones)
                .and(Known::between(0, left.greatest.min(right.greatest))),
            Binary::Or => Known::bits(left.zeros & right.zeros, left.ones | right.ones),
            Binary::Xor => Known::bits(
                left.zeros & right.zeros | left.ones & right.ones,
                left.zeros & right.ones | left.ones & right.zeros,
            ),
            Binary::Shl => {
                let by = by?;
                let moved =
                    Known::bits(left.zeros << by | !(u64::MAX << by) | !ty.max(), left.ones << by & ty.max());
                match left.greatest.leading_zeros() as u64 >= by && left.greatest << by <= ty.max() {
                    true => moved.and(Known::between(left.least << by, left.greatest << by)),
                    false => moved,
                }
            }
            Binary::Shr => {
                let by = by?;
                Known::bits(left.zeros >> by | !(u64::MAX >> by), left.ones >> by)
                    .and(Known::between(left.least >> by, left.greatest >> by))
            }
            _ => return None,
        })
    }

    fn ranged(op: Binary, ty: Type, left: Known, right: Known) -> Option<Known> {
        let fits = |greatest: &u64| *greatest <= ty.max();
        Some(match op {
            Binary::Add => {
                let greatest = left.greatest.checked_add(right.greatest).filter(fits)?;
                Known::between(left.least.checked_add(right.least)?, greatest)
            }
            Binary::Mul => {
                let greatest = left.greatest.checked_mul(right.greatest).filter(fits)?;
                Known::between(left.least.checked_mul(right.least)?, greatest)
            }
            Binary::Sub => Known::between(
                left.least.checked_sub(right.greatest)?,
                left.greatest.checked_sub(right.least)?,
            ),
            Binary::Div => Known::between(0, left.greatest.checked_div(right.least).unwrap_or(left.greatest)),
            Binary::Mod => Known::between(0, left.greatest.min(right.greatest.saturating_sub(1))),
            _ => return None,
        })
    }

    /// The outcome of a test, if it follows.
    pub(super) fn decide(test: Comparison, ty: Type, left: Known, right: Known) -> Option<bool> {
        if left.is_contradictory() || right.is_contradictory() {
            return None;
        }
        if let (Some(a), Some(b)) = (left.exact(), right.exact()) {
            return Some(test.holds(ty, a, b));
        }
        let not_negative = |known: Known| known.greatest <= ty.max() >> 1;
        match test {
            Comparison::Equal => {
                let apart = left.least > right.greatest || right.least > left.greatest;
                let differ = left.ones & right.zeros | left.zeros & right.ones;
                (apart || differ != 0).then_some(false)
            }
            Comparison::Greater => above(left.least > right.greatest, left.greatest <= right.least),
            Comparison::GreaterEqual => above(left.least >= right.greatest, left.greatest < right.least),
            Comparison::AnySet => above(left.ones & right.ones != 0, !left.zeros & !right.zeros == 0),
            Comparison::SignedGreater if not_negative(left) && not_negative(right) => {
                Known::decide(Comparison::Greater, ty, left, right)
            }
            Comparison::SignedGreaterEqual if not_negative(left) && not_negative(right) => {
                Known::decide(Comparison::GreaterEqual, ty, left, right)
            }
            Comparison::SignedGreater | Comparison::SignedGreaterEqual => None,
        }
    }

    /// The facts about the left side that follow from a test's outcome, given those of before and a constant right
    /// side.
    pub(super) fn given(self, test: Comparison, k: u64, holds: bool) -> Known {
        let unknown = !(self.zeros | self.ones);
        let more = match (test, holds) {
            (Comparison::Equal, true) => Some(Known::exactly(k)),
            (Comparison::Equal, false) if unknown.count_ones() == 1 && k == self.ones => {
                Some(Known::bits(0, unknown))
            }
            (Comparison::Equal, false) if unknown.count_ones() == 1 && k == self.ones | unknown => {
                Some(Known::bits(unknown, 0))
            }
            (Comparison::Equal, false) if k == self.least => {
                k.checked_add(1).map(|least| Known::between(least, u64::MAX))
            }
            (Comparison::Equal, false) if k == self.greatest => {
                k.checked_sub(1).map(|greatest| Known::between(0, greatest))
            }
            (Comparison::Greater, true) => k.checked_add(1).map(|least| Known::between(least, u64::MAX)),
            (Comparison::Greater, false) => Some(Known::between(0, k)),
            (Comparison::GreaterEqual, true) => Some(Known::between(k, u64::MAX)),
            (Comparison::GreaterEqual, false) => k.checked_sub(1).map(|greatest| Known::between(0, greatest)),
            (Comparison::AnySet, true) if (k & !self.zeros).count_ones() == 1 => {
                Some(Known::bits(0, k & !self.zeros))
            }
            (Comparison::AnySet, false) => Some(Known::bits(k, 0)),
            _ => None,
        };
        more.map_or(self, |more| self.and(more))
    }
}

fn above(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

/// The bits that numbers up to this one have.
const fn ones_up_to(greatest: u64) -> u64 {
    match greatest {
        0 => 0,
        _ => u64::MAX >> greatest.leading_zeros(),
    }
}
