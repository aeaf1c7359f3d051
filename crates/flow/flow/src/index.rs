//! The hash index of the flow table: from the hash of a key to a slot.
//!
//! ```text
//! bucket = 64 bytes, one cache line:
//!   0   tag 2 x 10         16 bits of the hash; 0 where nothing stands
//!  20   passed 2           entries that would stand here or before, had there been room: a look-up goes on to the next bucket
//!  22   free 2
//!  24   low 2 x 10         the slot in the table, low half ...
//!  44   high 2 x 10        ... and high half
//! ```
//!
//! There are at most six slots in use to a bucket, so that one in twenty-odd is full when all are taken, and nearly
//! every look-up reads one line. Memory for all slots is reserved at the start; of that only as many buckets are in use
//! as the flows need, twice as many each time when they become too few. So a table with room for a million flows that
//! holds a thousand has its index in 22 KB, not spread over 11 MB.

use std::collections::TryReserveError;
use std::hint::black_box;

use tapline_sys::memory;

/// Entries of a bucket.
const WIDTH: usize = 10;
/// Slots of the table for each bucket.
const SLOTS_PER_BUCKET: usize = 6;
/// Slots for which there are buckets at first.
const SLOTS_AT_FIRST: usize = 2048;
const PASSED: usize = 10;
const LOW: usize = 12;
const HIGH: usize = 22;
/// 16-bit words of a bucket.
const WORDS: usize = 32;

/// The home bucket of a flow key, and the tag that the index compares there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketTag {
    bucket: u32,
    tag: u16,
}

/// The index: buckets of tags and slots.
pub(crate) struct Index {
    words: Vec<u16>,
    /// Words before the first bucket, so that buckets are cache lines.
    start: usize,
    /// Buckets in use.
    buckets: u32,
    /// Slots that these buckets are enough for, and the most that memory was reserved for.
    slots: usize,
    slots_max: usize,
    /// The most buckets that an entry was away from its home, plus one, since it grew last.
    pub(crate) chain_max: u32,
}

impl Index {
    /// An index for `slots` slots. Its memory stays untouched until used.
    ///
    /// # Errors
    /// If there is no memory for the slots.
    pub(crate) fn new(slots: usize) -> Result<Index, TryReserveError> {
        let slots_max = slots;
        let slots = slots_max.min(SLOTS_AT_FIRST);
        // Small pages: large ones made no difference, and a small table would have 2 MB of zeros.
        let words = zeros((buckets(slots_max) as usize + 1) * WORDS)?;
        let start = match words.as_ptr().align_offset(64) {
            offset @ 0..WORDS => offset,
            _ => 0,
        };
        Ok(Index { words, start, buckets: buckets(slots), slots, slots_max, chain_max: 0 })
    }

    /// Whether `slots` slots may be in use before the index must grow.
    pub(crate) fn has_room(&self, slots: usize) -> bool {
        slots <= self.slots || self.slots == self.slots_max
    }

    /// Grows to `slots` slots, at most to the capacity, and clears the index: all slots must be inserted again.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.clear();
        self.slots = slots.next_power_of_two().min(self.slots_max);
        self.buckets = buckets(self.slots);
        self.chain_max = 0;
    }

    #[inline(always)]
    pub(crate) fn bucket_tag(&self, hash: u64) -> BucketTag {
        let bucket = ((hash >> 32) * u64::from(self.buckets)) >> 32;
        BucketTag { bucket: bucket as u32, tag: (hash as u16).max(1) }
    }

    #[inline(always)]
    fn bucket(&self, bucket: u32) -> &[u16; WORDS] {
        let at = self.start + bucket as usize * WORDS;
        self.words[at..].first_chunk().expect("a bucket lies in the index")
    }

    /// Prefetches the cache line of a home bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bucket_tag: BucketTag) {
        memory::prefetch_element(&self.words, self.start + bucket_tag.bucket as usize * WORDS);
    }

    /// The most likely slot: the first with this tag in the home bucket.
    #[inline(always)]
    pub(crate) fn hint(&self, bucket_tag: BucketTag) -> Option<u32> {
        let words = self.bucket(bucket_tag.bucket);
        let found = matches(words, bucket_tag.tag);
        (found != 0).then(|| slot(words, found.trailing_zeros() as usize))
    }

    /// The first slot of this tag for which `is_it` holds.
    #[inline]
    pub(crate) fn find(
        &self,
        bucket_tag: BucketTag,
        mut matches_key: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut bucket = bucket_tag.bucket;
        for _ in 0..self.buckets {
            let words = self.bucket(bucket);
            let mut found = matches(words, bucket_tag.tag);
            while found != 0 {
                let slot = slot(words, found.trailing_zeros() as usize);
                if matches_key(slot) {
                    return Some(slot);
                }
                found &= found - 1;
            }
            if words[PASSED] == 0 {
                return None;
            }
            bucket = self.next(bucket);
        }
        None
    }

    /// Inserts a slot. There is always room: the table has fewer slots than the index.
    pub(crate) fn insert(&mut self, bucket_tag: BucketTag, slot: u32) {
        let mut bucket = bucket_tag.bucket;
        for chain in 1..=self.buckets {
            let words = self.bucket_mut(bucket);
            if let Some(free) = words[..WIDTH].iter().position(|tag| *tag == 0) {
                words[free] = bucket_tag.tag;
                (words[LOW + free], words[HIGH + free]) = (slot as u16, (slot >> 16) as u16);
                self.chain_max = self.chain_max.max(chain);
                return;
            }
            words[PASSED] = words[PASSED].saturating_add(1);
            bucket = self.next(bucket);
        }
        debug_assert!(false, "the index has room for every slot of the table");
    }

    /// Forgets a slot.
    pub(crate) fn remove(&mut self, bucket_tag: BucketTag, which: u32) {
        let mut bucket = bucket_tag.bucket;
        for _ in 0..self.buckets {
            let words = self.bucket_mut(bucket);
            let stands = |&at: &usize| words[at] == bucket_tag.tag && slot(words, at) == which;
            if let Some(at) = (0..WIDTH).find(stands) {
                words[at] = 0;
                return;
            }
            // A count that once reached its end is not known any more: look-ups go on to the next bucket for ever.
            if words[PASSED] != u16::MAX {
                words[PASSED] = words[PASSED].saturating_sub(1);
            }
            bucket = self.next(bucket);
        }
        debug_assert!(false, "a slot that is in use stands in the index");
    }

    /// Forgets every slot.
    pub(crate) fn clear(&mut self) {
        let end = self.start + self.buckets as usize * WORDS;
        for bucket in self.words[self.start..end].chunks_mut(WORDS) {
            if bucket.iter().any(|word| *word != 0) {
                bucket.fill(0);
            }
        }
    }

    #[inline]
    fn bucket_mut(&mut self, bucket: u32) -> &mut [u16] {
        let at = self.start + bucket as usize * WORDS;
        &mut self.words[at..at + WORDS]
    }

    fn next(&self, bucket: u32) -> u32 {
        if bucket + 1 == self.buckets { 0 } else { bucket + 1 }
    }
}

fn buckets(slots: usize) -> u32 {
    (slots / SLOTS_PER_BUCKET + 2) as u32
}

/// Zeroed memory from the system, without writing it. `vec!` aborts the program if there is no memory, so a reservation
/// is tried first.
fn zeros(words: usize) -> Result<Vec<u16>, TryReserveError> {
    let mut trial: Vec<u16> = Vec::new();
    trial.try_reserve_exact(words)?;
    drop(black_box(trial));
    Ok(vec![0; words])
}

/// A bit for each entry that has this tag.
#[inline(always)]
fn matches(words: &[u16; WORDS], tag: u16) -> u32 {
    (0..WIDTH).fold(0, |found, at| found | u32::from(words[at] == tag) << at)
}

#[inline(always)]
fn slot(words: &[u16], at: usize) -> u32 {
    u32::from(words[LOW + at]) | u32::from(words[HIGH + at]) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tapline_testkit::random::Random;

    #[test]
    fn places_are_found_until_they_are_forgotten() {
        let (slots, mut random) = (3000_u32, Random::new(1));
        let mut index = Index::new(slots as usize).expect("there is memory");
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for _ in 0..60_000 {
            let slot = random.below(slots.into()) as u32;
            // Few buckets, so that many are full.
            let hash = random.below(20) << 42 | random.below(1 << 16);
            match model.remove(&slot) {
                Some(hash) => index.remove(index.bucket_tag(hash), slot),
                None => {
                    index.insert(index.bucket_tag(hash), slot);
                    model.insert(slot, hash);
                }
            }
            if let Some((slot, hash)) = model.iter().next() {
                assert_eq!(index.find(index.bucket_tag(*hash), |found| found == *slot), Some(*slot));
            }
        }
        assert!(index.chain_max > 3, "{}", index.chain_max);
        for slot in 0..slots {
            let hash = model.get(&slot).copied().unwrap_or(0);
            let found = index.find(index.bucket_tag(hash), |found| found == slot);
            assert_eq!(found, model.get(&slot).map(|_| slot));
        }
        index.clear();
        assert!((0..20).all(|bucket_tag| index.find(index.bucket_tag(bucket_tag << 42), |_| true).is_none()));
        assert!(index.words.iter().all(|word| *word == 0));
    }

    #[test]
    fn it_grows_with_the_places_in_use() {
        let mut index = Index::new(10_000).expect("there is memory");
        let hash = |slot: u32| u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for slot in 0..10_000 {
            if !index.has_room(slot as usize + 1) {
                let (before, used) = (index.buckets, index.words.len());
                index.grow(slot as usize + 1);
                assert!(index.buckets > before && index.words.len() == used);
                assert!(index.words.iter().all(|word| *word == 0));
                (0..slot).for_each(|known| index.insert(index.bucket_tag(hash(known)), known));
            }
            index.insert(index.bucket_tag(hash(slot)), slot);
        }
        assert_eq!((index.slots, index.buckets), (10_000, buckets(10_000)));
        assert!(index.has_room(usize::MAX), "there is no more than all");
        for slot in 0..10_000 {
            assert_eq!(index.find(index.bucket_tag(hash(slot)), |found| found == slot), Some(slot));
        }
    }

    #[test]
    fn buckets_are_cache_lines() {
        let index = Index::new(100).expect("there is memory");
        assert_eq!(index.bucket(1).as_ptr().addr() % 64, 0);
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(Index::new(1 << 50).is_err());
    }
}
