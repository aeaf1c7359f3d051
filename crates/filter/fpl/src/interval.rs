//! The range of a number, as known before the program runs: its least and its greatest value, unsigned.

use super::tree::{Arithmetic, low_bits};
use tapline_ir::Binary;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) low: u64,
    pub(super) high: u64,
}

/// As signed numbers, those up to here are not negative.
const POSITIVE_MAX: u64 = i64::MAX as u64;

impl Interval {
    pub(super) const ANY: Interval = Interval { low: 0, high: u64::MAX };

    pub(super) const fn exactly(value: u64) -> Interval {
        Interval { low: value, high: value }
    }

    pub(super) const fn up_to(high: u64) -> Interval {
        Interval { low: 0, high }
    }

    /// The range that holds both.
    pub(super) fn join(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The values that are in both; the first one where there are none.
    pub(super) fn meet(self, other: Interval) -> Interval {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Interval { low, high } } else { self }
    }

    fn is_positive(self) -> bool {
        self.high <= POSITIVE_MAX
    }

    /// The results of arithmetic on any two of the values.
    pub(super) fn compute(self, arithmetic: Arithmetic, right: Interval) -> Interval {
        let both_positive = self.is_positive() && right.is_positive();
        match arithmetic {
            Arithmetic::Plain(Binary::SignedShr) if self.is_positive() => self.plain(Binary::Shr, right),
            Arithmetic::Plain(op) => self.plain(op, right),
            Arithmetic::SignedDivide if both_positive => self.plain(Binary::Div, right),
            Arithmetic::SignedRemainder if both_positive => self.plain(Binary::Mod, right),
            _ => Interval::ANY,
        }
    }

    fn plain(self, op: Binary, right: Interval) -> Interval {
        let bounds = |low: Option<u64>, high: Option<u64>| match (low, high) {
            (Some(low), Some(high)) => Interval { low, high },
            _ => Interval::ANY,
        };
        match op {
            Binary::Add => bounds(self.low.checked_add(right.low), self.high.checked_add(right.high)),
            Binary::Sub => bounds(self.low.checked_sub(right.high), self.high.checked_sub(right.low)),
            Binary::Mul => bounds(self.low.checked_mul(right.low), self.high.checked_mul(right.high)),
            Binary::Div => bounds(self.low.checked_div(right.high), self.high.checked_div(right.low.max(1))),
            Binary::Mod if self.high < right.low => self,
            Binary::Mod => Interval::up_to(self.high.min(right.high.saturating_sub(1))),
            Binary::And => Interval::up_to(self.high.min(right.high)),
            Binary::Or => Interval { low: self.low.max(right.low), high: filled(self.high | right.high) },
            Binary::Xor => Interval::up_to(filled(self.high | right.high)),
            Binary::Shl => self.shift_left(right),
            Binary::Shr => {
                Interval { low: shift_right(self.low, right.high), high: shift_right(self.high, right.low) }
            }
            Binary::SignedShr => Interval::ANY,
        }
    }

    fn shift_left(self, by: Interval) -> Interval {
        let room = u64::from(self.high.leading_zeros());
        if by.high >= 64 || by.high > room {
            return Interval::ANY;
        }
        Interval { low: self.low << by.low, high: self.high << by.high }
    }

    pub(super) fn zero_extend(self, bits: u32) -> Interval {
        if self.high <= low_bits(bits) { self } else { Interval::up_to(low_bits(bits)) }
    }

    pub(super) fn sign_extend(self, bits: u32) -> Interval {
        if self.high <= low_bits(bits) >> 1 { self } else { Interval::ANY }
    }
}

/// The value with all bits below its highest one set.
fn filled(value: u64) -> u64 {
    u64::MAX.checked_shr(value.leading_zeros()).unwrap_or(0)
}

fn shift_right(value: u64, by: u64) -> u64 {
    u32::try_from(by).ok().and_then(|by| value.checked_shr(by)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Operator;
    use tapline_testkit::random::Random;

    #[test]
    fn no_result_lies_outside() {
        const OPERATORS: &[Operator] = &[
            Operator::Add,
            Operator::Subtract,
            Operator::Multiply,
            Operator::Divide,
            Operator::Remainder,
            Operator::BitAnd,
            Operator::BitOr,
            Operator::BitXor,
            Operator::ShiftLeft,
            Operator::ShiftRight,
        ];
        let mut random = Random::new(5);
        for _ in 0..200_000 {
            let signed = random.one_of(1, 2);
            let Some(arithmetic) = Arithmetic::of(*random.pick(OPERATORS), signed) else { continue };
            let [left, right] = [0, 1].map(|_| interval(&mut random));
            let result = left.compute(arithmetic, right);
            let [a, b] = [left, right].map(|side| random.between(side.low..=side.high));
            if let Some(value) = arithmetic.compute(a, b) {
                assert!(
                    (result.low..=result.high).contains(&value),
                    "{arithmetic:?} {left:?} {right:?}: {value} is not in {result:?}"
                );
            }
            let bits = *random.pick(&[1, 4, 8, 16, 32]);
            for (kept, value) in [
                (left.zero_extend(bits), a & low_bits(bits)),
                (left.sign_extend(bits), crate::tree::sign_extend(bits, a)),
            ] {
                assert!((kept.low..=kept.high).contains(&value));
            }
        }
    }

    fn interval(random: &mut Random) -> Interval {
        let mut one = || random.bits() >> *random.clone().pick(&[0, 1, 32, 48, 56, 60, 63]);
        let (a, b) = (one(), one());
        Interval { low: a.min(b), high: a.max(b) }
    }
}
