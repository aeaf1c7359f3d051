//! A map from keys to the numbers filed under them.
//!
//! ```text
//! slots   [ entry key.. | entry key.. | ... ]   a power of two; entry 0: free; GONE: was moved or removed
//! entry   FILED | number                        or LISTED | index of a list of numbers, for keys that several filters have
//!
//! lookup  slot of the hash, then the next ones until a free one
//! present a bit for the hash of each entry, eight for each slot: most keys that are not there end with it
//! growth  a second row of slots of twice the size; each change moves some slots over, so no change waits for all
//! ```
//!
//! The hash is seeded for each table, so an attacker who chooses keys cannot make them collide.

use std::hash::BuildHasher;

/// Marks an entry; the number below it has 62 bits.
const FILED: u64 = 1 << 62;
/// The entry's number is the index of a list.
const LISTED: u64 = 1 << 63;
/// Nothing any more, but lookups go on after it.
const GONE: u64 = 1;

const NUMBER: u64 = FILED - 1;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;

/// The most slots of a row with bits: those of more are not in the cache, and the slot itself is as near.
const PRESENT_MAX: usize = 1 << 16;

/// An odd factor of about as many ones as zeros: the golden ratio's fraction.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Slots that each change moves while a table grows: enough for growth to end before the next begins.
const MOVED_AT_ONCE: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Table {
    words: usize,
    seed: u64,
    rows: Rows,
    /// The row that is being left, and its first slot that was not moved yet.
    leaving: Option<(Rows, usize)>,
    /// Keys.
    len: usize,
    lists: Vec<Vec<u64>>,
    free_lists: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Rows {
    slots: Vec<u64>,
    /// Slots less one.
    mask: usize,
    /// Slots that are not free, those with `GONE` too.
    taken: usize,
    /// A bit for each hash that an entry has, or had; empty for rows of more than [`PRESENT_MAX`] slots.
    present: Vec<u64>,
}

impl Table {
    /// An empty table for keys of `words` words.
    pub(super) fn new(words: usize) -> Table {
        Table {
            words,
            seed: std::hash::RandomState::new().hash_one(words) | 1,
            rows: Rows::new(SLOTS_MIN, words),
            leaving: None,
            len: 0,
            lists: Vec::new(),
            free_lists: Vec::new(),
        }
    }

    /// Keys that something is filed under.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    /// The hash of a key, for all tables of this seed.
    #[inline]
    pub(super) fn hash(&self, key: &[u64]) -> u64 {
        // Odd, so that no product forgets the high bits of a key.
        let factor = (ODD ^ self.seed.rotate_left(32)) | 1;
        let hash = key.iter().fold(self.seed, |hash, word| folded(hash ^ word, factor));
        // One product leaves the keys of a run, such as addresses of one network, in steps of one length. Of some
        // seeds that length fills a few places over and over; a second product breaks the steps up.
        folded(hash, ODD)
    }

    /// Whether something may be filed under a key of this hash. `false` is sure.
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.rows.may_have(hash) || self.leaving.as_ref().is_some_and(|(rows, _)| rows.may_have(hash))
    }

    /// Reads the slot that a lookup starts at, so that it is in the cache when the lookup comes.
    #[inline]
    pub(super) fn touch(&self, hash: u64) -> u64 {
        let at = (hash as usize & self.rows.mask) * (self.words + 1);
        self.rows.slots.get(at).copied().unwrap_or(0)
    }

    /// The numbers filed under a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u64]) -> &[u64] {
        let entry = self.rows.find(hash, key).or_else(|| self.find_leaving(hash, key));
        match entry {
            None => &[],
            Some(entry) if *entry & LISTED == 0 => std::slice::from_ref(entry),
            Some(entry) => self.lists.get((*entry & NUMBER) as usize).map_or(&[], Vec::as_slice),
        }
    }

    /// The number of an entry that [`find`](Self::find) gave.
    #[inline]
    pub(super) fn number(entry: u64) -> u64 {
        entry & NUMBER
    }

    #[inline]
    fn find_leaving(&self, hash: u64, key: &[u64]) -> Option<&u64> {
        self.leaving.as_ref()?.0.find(hash, key)
    }

    /// Adds a number under a key, in addition to those that are there.
    pub(super) fn insert(&mut self, key: &[u64], number: u64) {
        self.step();
        let hash = self.hash(key);
        let entry = FILED | number;
        match self.entry(hash, key) {
            Some(found) if *found & LISTED != 0 => {
                let list = (*found & NUMBER) as usize;
                self.lists[list].push(entry);
            }
            Some(found) => {
                let first = *found;
                let list = self.new_list(vec![first, entry]);
                if let Some(found) = self.entry(hash, key) {
                    *found = LISTED | FILED | list as u64;
                }
            }
            None => {
                self.make_room();
                self.rows.add(hash, key, entry);
                self.len += 1;
            }
        }
    }

    /// Takes a number away from a key.
    pub(super) fn remove(&mut self, key: &[u64], number: u64) {
        self.step();
        let hash = self.hash(key);
        let Some(found) = self.entry(hash, key) else { return };
        if *found & LISTED == 0 {
            if *found == FILED | number {
                *found = GONE;
                self.len -= 1;
            }
            return;
        }
        let list = (*found & NUMBER) as usize;
        let entries = &mut self.lists[list];
        if let Some(at) = entries.iter().position(|entry| *entry == FILED | number) {
            entries.swap_remove(at);
        }
        if let [last] = self.lists[list][..] {
            self.lists[list] = Vec::new();
            self.free_lists.push(list);
            if let Some(found) = self.entry(hash, key) {
                *found = last;
            }
        }
    }

    fn entry(&mut self, hash: u64, key: &[u64]) -> Option<&mut u64> {
        match self.rows.position(hash, key) {
            Some(at) => self.rows.slots.get_mut(at),
            None => {
                let (rows, _) = self.leaving.as_mut()?;
                let at = rows.position(hash, key)?;
                rows.slots.get_mut(at)
            }
        }
    }

    fn new_list(&mut self, entries: Vec<u64>) -> usize {
        if let Some(free) = self.free_lists.pop() {
            self.lists[free] = entries;
            return free;
        }
        self.lists.push(entries);
        self.lists.len() - 1
    }

    /// Begins to leave the row if three quarters of it are taken.
    fn make_room(&mut self) {
        let slots = self.rows.mask + 1;
        if self.leaving.is_some() || 4 * self.rows.taken < 3 * slots {
            return;
        }
        // If most entries are gone, the same size will do.
        let wanted = if 2 * self.len > slots { 2 * slots } else { slots };
        let left = std::mem::replace(&mut self.rows, Rows::new(wanted, self.words));
        self.leaving = Some((left, 0));
    }

    /// Moves some slots of the row that is being left.
    fn step(&mut self) {
        let Some((mut left, mut at)) = self.leaving.take() else { return };
        let stride = self.words + 1;
        let end = (at + MOVED_AT_ONCE).min(left.mask + 1);
        while at < end {
            let slot = &mut left.slots[at * stride..][..stride];
            if slot[0] & FILED != 0 {
                let hash = self.hash(&slot[1..]);
                self.rows.add(hash, &slot[1..], slot[0]);
                slot[0] = GONE;
            }
            at += 1;
        }
        if at <= left.mask {
            self.leaving = Some((left, at));
        }
    }
}

/// Both halves of a product, one over the other.
#[inline]
fn folded(value: u64, factor: u64) -> u64 {
    let product = u128::from(value) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

impl Rows {
    fn new(slots: usize, words: usize) -> Rows {
        let bits = if slots > PRESENT_MAX { 0 } else { slots / 8 };
        Rows { slots: vec![0; slots * (words + 1)], mask: slots - 1, taken: 0, present: vec![0; bits] }
    }

    /// The word of a hash among the bits, and its bit there: of the half of the hash that places do not come from.
    #[inline]
    fn bit(&self, hash: u64) -> (usize, u64) {
        let bit = (hash >> 32) as usize & (8 * self.mask + 7);
        (bit / 64, 1 << (bit % 64))
    }

    #[inline]
    fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.bit(hash);
        self.present.get(word).is_none_or(|word| word & bit != 0)
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u64]) -> Option<&u64> {
        self.position(hash, key).and_then(|at| self.slots.get(at))
    }

    /// The slot of a key's entry.
    #[inline]
    fn position(&self, hash: u64, key: &[u64]) -> Option<usize> {
        // Comparing a known number of words takes no call.
        match *key {
            [a] => self.position_of(hash, &[a]),
            [a, b] => self.position_of(hash, &[a, b]),
            [a, b, c] => self.position_of(hash, &[a, b, c]),
            [a, b, c, d] => self.position_of(hash, &[a, b, c, d]),
            _ => self.position_of(hash, key),
        }
    }

    #[inline(always)]
    fn position_of<K: AsRef<[u64]> + ?Sized>(&self, hash: u64, key: &K) -> Option<usize> {
        let key = key.as_ref();
        let stride = key.len() + 1;
        let mut slot = hash as usize & self.mask;
        loop {
            let found = self.slots.get(slot * stride..)?.get(..stride)?;
            let (entry, its) = found.split_first()?;
            if *entry == 0 {
                return None;
            }
            let differs = its.iter().zip(key).fold(0, |differs, (a, b)| differs | (a ^ b));
            if *entry & FILED != 0 && differs == 0 {
                return Some(slot * stride);
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// Adds a key that is not there.
    fn add(&mut self, hash: u64, key: &[u64], entry: u64) {
        let stride = key.len() + 1;
        let mut slot = hash as usize & self.mask;
        while self.slots[slot * stride] & FILED != 0 {
            slot = (slot + 1) & self.mask;
        }
        self.taken += usize::from(self.slots[slot * stride] == 0);
        let (word, bit) = self.bit(hash);
        if let Some(word) = self.present.get_mut(word) {
            *word |= bit;
        }
        self.slots[slot * stride] = entry;
        self.slots[slot * stride + 1..][..key.len()].copy_from_slice(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use tapline_testkit::random::Random;

    fn numbers(table: &Table, key: &[u64]) -> Vec<u64> {
        let mut found: Vec<u64> =
            table.find(table.hash(key), key).iter().map(|entry| Table::number(*entry)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_table_agrees_with_a_map_of_lists() {
        for words in [0, 1, 3, 8] {
            let mut random = Random::new(words as u64);
            let mut table = Table::new(words);
            let mut model: HashMap<Vec<u64>, Vec<u64>> = HashMap::new();
            for step in 0..20_000_u64 {
                // Times of growth and times of removal, keys that repeat.
                let key: Vec<u64> = (0..words).map(|_| random.below(7) * 1000 + random.below(40)).collect();
                if random.below(20_000) > step {
                    table.insert(&key, step);
                    model.entry(key).or_default().push(step);
                } else if let Some(list) = model.get_mut(&key) {
                    let gone = list.swap_remove(random.below(list.len() as u64) as usize);
                    if list.is_empty() {
                        model.remove(&key);
                    }
                    table.remove(&key, gone);
                }
                table.remove(&vec![u64::MAX; words], step + 1_000_000);
                if step % 1000 == 0 {
                    assert_eq!(table.len(), model.len());
                    for (key, list) in &model {
                        let mut list = list.clone();
                        list.sort_unstable();
                        assert_eq!(numbers(&table, key), list);
                        assert!(table.may_have(table.hash(key)));
                    }
                }
            }
        }
    }

    /// Consecutive keys, as addresses of one network are, in tables of many seeds: of each seed they spread.
    #[test]
    fn most_keys_that_are_not_there_end_with_a_bit() {
        for (keys, tables) in [(1, 20), (500, 200), (40_000, 20), (80_000, 1)] {
            for _ in 0..tables {
                let mut table = Table::new(1);
                (0..keys).for_each(|key| table.insert(&[key], key));
                let seed = table.seed;
                assert!(
                    (0..keys).all(|key| table.may_have(table.hash(&[key]))),
                    "{keys} keys, seed {seed:#x}"
                );
                let others = (keys..keys + 10_000).filter(|key| table.may_have(table.hash(&[*key]))).count();
                assert!(
                    others < 2_500 || keys == 80_000,
                    "{others} of 10,000 by {keys} keys, seed {seed:#x}"
                );
            }
        }
    }

    #[test]
    fn a_table_filled_and_emptied_again_stays_small() {
        let mut table = Table::new(2);
        for key in 0..100_000_u64 {
            table.insert(&[key, 1], key);
            table.remove(&[key, 1], key);
        }
        assert_eq!(table.len(), 0);
        assert!(table.rows.mask < 64, "{} slots", table.rows.mask + 1);
    }
}
