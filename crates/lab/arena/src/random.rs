//! Numbers that look random and are the same for the same seed, on every machine and in every release.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): one
//! addition and one mixing of 64 bits for each number. Files, tests and benchmarks depend on its values, so it stays.

use tapline_packet::mix::{GOLDEN, mixed};

/// A stream of numbers that its seed alone decides.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// Bytes that decide the first numbers, the next one last.
    given: Vec<u8>,
}

impl Random {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Random {
        Random { state: seed, given: Vec::new() }
    }

    /// A stream whose first choices `bytes` makes: the top byte of a number is the next of them, as long as there are
    /// any. A fuzzer that changes one byte so changes one choice of whatever is made from the stream.
    pub fn from_bytes(bytes: &[u8]) -> Random {
        Random { state: 0, given: bytes.iter().rev().copied().collect() }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let bits = mixed(self.state);
        match self.given.pop() {
            Some(byte) => bits >> 8 | u64::from(byte) << 56,
            None => bits,
        }
    }

    /// A number from 0 to `end - 1`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // Multiply and shift instead of a remainder: no division, and a bias that no test can see.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number of `range`, both ends included; its start if it is empty.
    pub fn between(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        let (start, end) = range.into_inner();
        start + self.below(end.saturating_sub(start).saturating_add(1))
    }

    /// True `numerator` times out of `denominator`.
    pub fn one_of(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// One of `items`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A size as flows have it: mostly near `smallest`, seldom up to `largest` (Pareto with shape 1).
    pub fn heavy_tailed(&mut self, smallest: u64, largest: u64) -> u64 {
        let parts = self.between(1..=1 << 16);
        (smallest.saturating_mul(1 << 16) / parts).min(largest)
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        // First outputs of the reference implementation for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn given_bytes_decide_choices() {
        let mut random = Random::from_bytes(&[0, 128, 255]);
        let choices: Vec<u64> = (0..3).map(|_| random.below(4)).collect();
        assert_eq!(choices, [0, 2, 3]);
        assert_eq!(Random::from_bytes(&[]).bits(), Random::new(0).bits());
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!((3..=5).contains(&random.between(3..=5)));
            assert!((100..=5000).contains(&random.heavy_tailed(100, 5000)));
        }
        assert_eq!(random.below(0), 0);
        assert_eq!(random.bytes(13).len(), 13);
    }
}
