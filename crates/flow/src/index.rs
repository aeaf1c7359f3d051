//! From a hash to a place in the table.
//!
//! ```text
//! bucket = 64 bytes, one cache line:
//!   0   tag 2 x 10         16 bits of the hash; 0 where nothing stands
//!  20   passed 2           entries that would stand here or before, had there been room: a look-up goes on to the next bucket
//!  22   free 2
//!  24   low 2 x 10         the place in the table, low half ...
//!  44   high 2 x 10        ... and high half
//! ```
//!
//! There are at most six places in use to a bucket, so that one in twenty-odd is full when all are taken, and nearly every look-up reads one line.
//! Memory for all places is reserved at the start; of that only as many buckets are in use as the flows need, twice as many each time when they become too few. So a
//! table with room for a million flows that holds a thousand has its index in 22 KB, not spread over 11 MB.

use std::collections::TryReserveError;
use std::hint::black_box;

use tapline_sys::memory;

/// Entries of a bucket.
const WIDTH: usize = 10;
/// Places in the table for each bucket.
const PLACES_PER_BUCKET: usize = 6;
/// Places for which there are buckets at first.
const PLACES_AT_FIRST: usize = 2048;
const PASSED: usize = 10;
const LOW: usize = 12;
const HIGH: usize = 22;
/// 16-bit words of a bucket.
const WORDS: usize = 32;

/// What a flow's hash says of where to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Home {
    bucket: u32,
    tag: u16,
}

/// Buckets of tags and places.
pub(crate) struct Index {
    words: Vec<u16>,
    /// Words before the first bucket, so that buckets are cache lines.
    start: usize,
    /// Those in use.
    buckets: u32,
    /// Places for which these are enough, and for which there is memory.
    places: usize,
    places_max: usize,
    /// The most buckets that an entry was away from its home, plus one, since it grew last.
    pub(crate) chain_max: u32,
}

impl Index {
    /// For so many places. The memory is zero and untouched until it is used.
    ///
    /// # Errors
    /// If there is no memory for the places.
    pub(crate) fn new(places: usize) -> Result<Index, TryReserveError> {
        let places_max = places;
        let places = places_max.min(PLACES_AT_FIRST);
        // Small pages: large ones made no difference, and a small table would have 2 MB of zeros.
        let words = zeros((buckets(places_max) as usize + 1) * WORDS)?;
        let start = match words.as_ptr().align_offset(64) {
            offset @ 0..WORDS => offset,
            _ => 0,
        };
        Ok(Index { words, start, buckets: buckets(places), places, places_max, chain_max: 0 })
    }

    /// Whether so many places may be in use.
    pub(crate) fn has_room(&self, places: usize) -> bool {
        places <= self.places || self.places == self.places_max
    }

    /// Makes room for so many places, as far as there is memory, and forgets all. What a hash led to is no more so: all have to be put in again.
    pub(crate) fn grow(&mut self, places: usize) {
        self.clear();
        self.places = places.next_power_of_two().min(self.places_max);
        self.buckets = buckets(self.places);
        self.chain_max = 0;
    }

    /// Where a hash leads.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> Home {
        let bucket = ((hash >> 32) * u64::from(self.buckets)) >> 32;
        Home { bucket: bucket as u32, tag: (hash as u16).max(1) }
    }

    #[inline(always)]
    fn bucket(&self, bucket: u32) -> &[u16; WORDS] {
        let at = self.start + bucket as usize * WORDS;
        self.words[at..].first_chunk().expect("a bucket lies in the index")
    }

    /// Asks for the line of a home.
    #[inline(always)]
    pub(crate) fn prefetch(&self, home: Home) {
        memory::prefetch_element(&self.words, self.start + home.bucket as usize * WORDS);
    }

    /// The place that most likely is the one: the first of this tag at home.
    #[inline(always)]
    pub(crate) fn hint(&self, home: Home) -> Option<u32> {
        let words = self.bucket(home.bucket);
        let found = matches(words, home.tag);
        (found != 0).then(|| place(words, found.trailing_zeros() as usize))
    }

    /// The first place of this tag for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, home: Home, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut bucket = home.bucket;
        for _ in 0..self.buckets {
            let words = self.bucket(bucket);
            let mut found = matches(words, home.tag);
            while found != 0 {
                let place = place(words, found.trailing_zeros() as usize);
                if is_it(place) {
                    return Some(place);
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

    /// Notes that a place is in use. There is always room: the table has fewer places.
    pub(crate) fn insert(&mut self, home: Home, place: u32) {
        let mut bucket = home.bucket;
        for chain in 1..=self.buckets {
            let words = self.bucket_mut(bucket);
            if let Some(free) = words[..WIDTH].iter().position(|tag| *tag == 0) {
                words[free] = home.tag;
                (words[LOW + free], words[HIGH + free]) = (place as u16, (place >> 16) as u16);
                self.chain_max = self.chain_max.max(chain);
                return;
            }
            words[PASSED] = words[PASSED].saturating_add(1);
            bucket = self.next(bucket);
        }
        debug_assert!(false, "the index has room for every place of the table");
    }

    /// Forgets a place.
    pub(crate) fn remove(&mut self, home: Home, which: u32) {
        let mut bucket = home.bucket;
        for _ in 0..self.buckets {
            let words = self.bucket_mut(bucket);
            let stands = |&at: &usize| words[at] == home.tag && place(words, at) == which;
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
        debug_assert!(false, "a place that is in use stands in the index");
    }

    /// Forgets every place.
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

fn buckets(places: usize) -> u32 {
    (places / PLACES_PER_BUCKET + 2) as u32
}

/// Memory that the system gives as zeros, which nobody has to write. Such can only be had in a way that ends the program if there is none, so
/// whether there is any is tried before.
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
fn place(words: &[u16], at: usize) -> u32 {
    u32::from(words[LOW + at]) | u32::from(words[HIGH + at]) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tapline_testkit::random::Random;

    #[test]
    fn places_are_found_until_they_are_forgotten() {
        let (places, mut random) = (3000_u32, Random::new(1));
        let mut index = Index::new(places as usize).expect("there is memory");
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for _ in 0..60_000 {
            let place = random.below(places.into()) as u32;
            // Few buckets, so that many are full.
            let hash = random.below(20) << 42 | random.below(1 << 16);
            match model.remove(&place) {
                Some(hash) => index.remove(index.home(hash), place),
                None => {
                    index.insert(index.home(hash), place);
                    model.insert(place, hash);
                }
            }
            if let Some((place, hash)) = model.iter().next() {
                assert_eq!(index.find(index.home(*hash), |found| found == *place), Some(*place));
            }
        }
        assert!(index.chain_max > 3, "{}", index.chain_max);
        for place in 0..places {
            let hash = model.get(&place).copied().unwrap_or(0);
            let found = index.find(index.home(hash), |found| found == place);
            assert_eq!(found, model.get(&place).map(|_| place));
        }
        index.clear();
        assert!((0..20).all(|home| index.find(index.home(home << 42), |_| true).is_none()));
        assert!(index.words.iter().all(|word| *word == 0));
    }

    #[test]
    fn it_grows_with_the_places_in_use() {
        let mut index = Index::new(10_000).expect("there is memory");
        let hash = |place: u32| u64::from(place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for place in 0..10_000 {
            if !index.has_room(place as usize + 1) {
                let (before, used) = (index.buckets, index.words.len());
                index.grow(place as usize + 1);
                assert!(index.buckets > before && index.words.len() == used);
                assert!(index.words.iter().all(|word| *word == 0));
                (0..place).for_each(|known| index.insert(index.home(hash(known)), known));
            }
            index.insert(index.home(hash(place)), place);
        }
        assert_eq!((index.places, index.buckets), (10_000, buckets(10_000)));
        assert!(index.has_room(usize::MAX), "there is no more than all");
        for place in 0..10_000 {
            assert_eq!(index.find(index.home(hash(place)), |found| found == place), Some(place));
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
