//! A quick hash for small keys that nobody chooses to our harm: values, questions and blocks of one filter.
//!
//! Each word is mixed in by a rotation, an exclusive or and a multiplication, as Firefox and rustc do. The standard hash, which
//! withstands chosen keys, takes a third of the time of simplifying a filter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with the quick hash.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

/// 2^64 divided by the golden ratio: odd, and without a pattern in its bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Quick {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.mix(byte.into()));
    }

    fn write_u8(&mut self, n: u8) {
        self.mix(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.mix(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.mix(n as u64);
    }

    /// The table takes its place from the low bits, and multiplication leaves the best bits at the top.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
