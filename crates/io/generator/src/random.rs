//! Chance that the seed alone decides.
//!
//! SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): one addition and one
//! mixing for 64 bits. Generated packets depend on its values, so it must not change.

use tapline_packet::mix::{GOLDEN, mixed};

/// A stream of numbers that its seed alone decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `seed` for one purpose; streams of different purposes have nothing to do with each other.
    pub(crate) fn new(seed: u64, purpose: u64) -> Random {
        Random(mixed(seed ^ mixed(purpose)))
    }

    /// The next 64 bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mixed(self.0)
    }

    /// A number from 0 to `end - 1`; 0 if `end` is 0.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number above 0 and at most 1.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// The number at `index` of the numbers below `end`, shuffled: each occurs once.
///
/// A Feistel network of four rounds over the next even number of bits; numbers outside go through again, at most four
/// times on average (Black, Rogaway, "Ciphers with arbitrary finite domains", 2002).
pub(crate) fn shuffled(index: u64, end: u64, seed: u64) -> u64 {
    let bits = (64 - end.saturating_sub(1).leading_zeros()).next_multiple_of(2).max(2);
    let (half, mask) = (bits / 2, (1_u64 << (bits / 2)) - 1);
    let mut number = index;
    loop {
        let (mut left, mut right) = (number >> half & mask, number & mask);
        for round in 0..4_u64 {
            let mix = mixed(seed ^ right.wrapping_add(round.wrapping_mul(GOLDEN)));
            (left, right) = (right, left ^ mix & mask);
        }
        number = left << half | right;
        if number < end {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_number_once() {
        for end in [1, 2, 3, 10, 64, 1000, 4097] {
            let mut seen: Vec<u64> = (0..end).map(|index| shuffled(index, end, 7)).collect();
            let is_as_it_was = end > 3 && seen.is_sorted();
            assert!(!is_as_it_was, "{end}");
            seen.sort_unstable();
            assert_eq!(seen, (0..end).collect::<Vec<_>>());
        }
    }

    #[test]
    fn units_are_never_zero() {
        let mut random = Random::new(1, 2);
        let mean = (0..10_000)
            .map(|_| random.unit())
            .inspect(|unit| assert!(*unit > 0.0 && *unit <= 1.0))
            .sum::<f64>();
        assert!((4900.0..5100.0).contains(&mean), "{mean}");
    }
}
