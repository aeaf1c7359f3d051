//! Perfect hashing: a table in which each key has a slot of its own that a few multiplications find.
//!
//! ```text
//! few keys:   slot = (value * m) >> s
//! many keys:  slot = ((value * m) >> s) ^ shifts[(value * n) >> t]
//! table[slot] == value ?
//! ```
//!
//! Multipliers are tried until one fits. With many keys no single one does; each bucket of keys then gets a number
//! that moves it to free slots, the fullest bucket first ("hash and displace": Pagh 1999; Belazzougui, Botelho,
//! Dietzfelbinger 2009).
//!
//! A slot without a key holds some key of another slot, which no value that comes to this slot can equal.

use tapline_packet::mix::{GOLDEN, scramble};

/// A hash that is exact for its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PerfectHash {
    /// Odd; 64 bits.
    pub(crate) multiplier: u64,
    /// 64 less the table's bits.
    pub(crate) shift: u32,
    /// The displacement of slots, for many keys.
    pub(crate) displacement: Option<Displacement>,
    /// A key in each slot.
    pub(crate) table: Box<[u64]>,
    /// The table in half the room, if all keys have 32 bits.
    pub(crate) narrow: Option<Box<[u32]>>,
}

/// A second hash that says how a slot moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Displacement {
    /// Odd; 64 bits.
    pub(crate) multiplier: u64,
    /// 64 less the bits of the buckets' number.
    pub(crate) shift: u32,
    /// The numbers with which each bucket's slots are combined.
    pub(crate) shifts: Box<[u32]>,
}

/// More keys than this are placed by displacement.
const SINGLE_MAX: usize = 32;

/// Multipliers tried for each size of the table.
const TRIES: u64 = 256;

impl PerfectHash {
    /// A hash for ascending keys, each once; `None` without keys, or in the unlikely case that no multiplier does.
    pub(crate) fn new(keys: &[u64]) -> Option<PerfectHash> {
        if keys.is_empty() {
            return None;
        }
        let found = if keys.len() <= SINGLE_MAX { single(keys) } else { displaced(keys) };
        let mut hash = found.filter(|hash| keys.iter().all(|key| hash.table[hash.slot(*key)] == *key))?;
        let narrow: Result<Box<[u32]>, _> = hash.table.iter().map(|key| u32::try_from(*key)).collect();
        hash.narrow = narrow.ok();
        Some(hash)
    }

    /// The only slot in which a value can be.
    pub(crate) fn slot(&self, value: u64) -> usize {
        let slot = place(value, self.multiplier, self.shift);
        let moved = self.displacement.as_ref().map_or(0, |displacement| {
            displacement.shifts[place(value, displacement.multiplier, displacement.shift)]
        });
        slot ^ moved as usize
    }

    /// The hash with its keys in their slots; `None` if two need the same.
    fn filled(mut self, keys: &[u64]) -> Option<PerfectHash> {
        let mut taken = vec![false; self.table.len()];
        for &key in keys {
            let slot = self.slot(key);
            if std::mem::replace(&mut taken[slot], true) {
                return None;
            }
            self.table[slot] = key;
        }
        // The first key stands in where there is none: it has a slot, so no free one is its own.
        let free = |slot: &usize| !taken[*slot];
        (0..self.table.len()).filter(free).for_each(|slot| self.table[slot] = keys[0]);
        Some(self)
    }
}

/// At least one bit, so that shifts stay below 64.
fn bits_for(len: usize) -> u32 {
    len.next_power_of_two().trailing_zeros().max(1)
}

fn place(value: u64, multiplier: u64, shift: u32) -> usize {
    (value.wrapping_mul(multiplier) >> shift) as usize
}

/// Odd numbers that look random: SplitMix64.
fn multiplier(number: u64) -> u64 {
    scramble(number.wrapping_mul(GOLDEN)) | 1
}

/// One multiplication: the smallest table for which a multiplier is found soon.
fn single(keys: &[u64]) -> Option<PerfectHash> {
    let least = bits_for(keys.len());
    (least..=least + 5).find_map(|bits| {
        (0..TRIES).find_map(|number| {
            let table = vec![0; 1 << bits].into_boxed_slice();
            let (multiplier, shift) = (multiplier(number), 64 - bits);
            PerfectHash { multiplier, shift, displacement: None, table, narrow: None }.filled(keys)
        })
    })
}

/// A table at most half full, and a bucket for every other key.
fn displaced(keys: &[u64]) -> Option<PerfectHash> {
    let (bits, bucket_bits) = (bits_for(keys.len()) + 1, bits_for(keys.len()) - 1);
    (0..TRIES).find_map(|number| {
        let (own, other) = (multiplier(2 * number), multiplier(2 * number + 1));
        let shifts = displace(keys, bits, bucket_bits, own, other)?;
        let displacement = Some(Displacement { multiplier: other, shift: 64 - bucket_bits, shifts });
        let table = vec![0; 1 << bits].into_boxed_slice();
        PerfectHash { multiplier: own, shift: 64 - bits, displacement, table, narrow: None }.filled(keys)
    })
}

/// For each bucket a number that moves its keys to free slots; the fullest buckets choose first.
fn displace(keys: &[u64], bits: u32, bucket_bits: u32, own: u64, other: u64) -> Option<Box<[u32]>> {
    let mut buckets: Vec<Vec<usize>> = vec![Vec::new(); 1 << bucket_bits];
    for &key in keys {
        buckets[place(key, other, 64 - bucket_bits)].push(place(key, own, 64 - bits));
    }
    let mut order: Vec<usize> = (0..buckets.len()).collect();
    order.sort_by_key(|&bucket| std::cmp::Reverse(buckets[bucket].len()));
    let mut taken = vec![false; 1 << bits];
    let mut shifts = vec![0_u32; buckets.len()];
    for bucket in order {
        let slots = &buckets[bucket];
        let is_free = |by: &usize| slots.iter().all(|slot| !taken[slot ^ by]);
        let mut distinct = slots.clone();
        distinct.sort_unstable();
        if distinct.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        let by = (0..taken.len()).find(is_free)?;
        slots.iter().for_each(|slot| taken[slot ^ by] = true);
        shifts[bucket] = by as u32;
    }
    Some(shifts.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_testkit::random::Random;

    fn exact(keys: &[u64], random: &mut Random) {
        let hash = PerfectHash::new(keys).expect("a hash");
        let found = |value: u64| hash.table[hash.slot(value)] == value;
        assert!(keys.iter().all(|key| found(*key)));
        for _ in 0..1000 {
            let near = random.pick(keys) ^ (1 << random.below(64));
            for value in [random.bits(), random.bits() >> 32, near] {
                assert_eq!(found(value), keys.binary_search(&value).is_ok(), "{value}");
            }
        }
    }

    #[test]
    fn exact_for_its_keys_and_for_nothing_else() {
        let mut random = Random::new(3);
        for len in [1, 2, 3, 10, 32, 33, 100, 1000, 10_000] {
            for width in [16, 32, 64] {
                let mut keys: Vec<u64> = (0..len).map(|_| random.bits() >> (64 - width)).collect();
                keys.sort_unstable();
                keys.dedup();
                exact(&keys, &mut random);
            }
            let in_a_row: Vec<u64> = (0..len).map(|n| 0x0a00_0000 + n).collect();
            exact(&in_a_row, &mut random);
        }
    }

    #[test]
    fn nothing_has_no_hash() {
        assert_eq!(PerfectHash::new(&[]), None);
    }
}
