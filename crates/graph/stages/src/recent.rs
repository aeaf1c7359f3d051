//! A bounded memory of flows: it keeps at least the last `room` keys, and at most twice as many.
//!
//! Two tables, young and old: a key met in the old one moves to the young one. A full young table becomes the old one,
//! whose entries are forgotten.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key.
pub(super) struct Recent<K, V> {
    room: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    forgotten: u64,
}

impl<K: Eq + Hash + Copy, V> Recent<K, V> {
    /// Remembers the last `room` keys for certain.
    pub(super) fn new(room: usize) -> Recent<K, V> {
        Recent { room, young: HashMap::new(), old: HashMap::new(), forgotten: 0 }
    }

    /// The value of a key; `new` gives the value of an unknown one.
    pub(super) fn of(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        if !self.young.contains_key(&key) {
            if self.young.len() == self.room {
                self.forgotten += self.old.len() as u64;
                self.old = std::mem::take(&mut self.young);
            }
            let known = self.old.remove(&key).unwrap_or_else(new);
            self.young.insert(key, known);
        }
        self.young.get_mut(&key).expect("it is young now")
    }

    /// Number of forgotten entries.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Another worker forgot as many.
    pub(super) fn merge(&mut self, other: &Recent<K, V>) {
        self.forgotten += other.forgotten;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_keeps_between_one_and_two_windows() {
        let mut recent = Recent::new(3);
        for key in 0..100_u32 {
            *recent.of(key, || 0) += 1;
            for back in 0..3.min(key) {
                assert_eq!(*recent.of(key - back, || -1_000), 1, "{key} {back}");
            }
            assert!(recent.young.len() + recent.old.len() <= 6);
        }
        assert!(recent.forgotten() > 90);
        assert_eq!(*recent.of(0, || 7), 7, "long forgotten");
    }
}
