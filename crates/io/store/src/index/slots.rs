//! Sets of slots.

/// A set of slots of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots(Vec<u64>);

impl Slots {
    pub(crate) fn none(slots: u32) -> Slots {
        Slots(vec![0; words(slots)])
    }

    /// All slots of a segment with so many.
    pub(crate) fn all(slots: u32) -> Slots {
        let mut all = Slots::none(slots);
        (0..slots).for_each(|slot| all.insert(slot));
        all
    }

    pub(crate) fn insert(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub(crate) fn insert_all(&mut self, other: &Slots) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one |= other);
    }

    pub(crate) fn has(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word & 1 << (slot % 64) != 0)
    }

    pub(crate) fn count(&self) -> u32 {
        count(&self.0)
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }
}

/// Words of a set of so many slots.
pub(super) fn words(slots: u32) -> usize {
    (slots as usize).div_ceil(64)
}

pub(super) fn count(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

/// The slots of a set, ascending.
pub(super) fn each(words: &[u64]) -> impl Iterator<Item = u32> + '_ {
    words.iter().enumerate().flat_map(|(at, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(at as u32 * 64 + bit)
        })
    })
}

/// Encodes the set as gaps or as a bit set, whichever is shorter. Returns `true` for a bit set.
pub(super) fn encode(words: &[u64], slots: u32, bytes: &mut Vec<u8>) -> bool {
    let from = bytes.len();
    let set_len = (slots as usize).div_ceil(8);
    let mut next = 0;
    for slot in each(words) {
        let mut gap = slot - next;
        while gap >= 255 {
            bytes.push(255);
            gap -= 255;
        }
        bytes.push(gap as u8);
        next = slot + 1;
    }
    if bytes.len() - from <= set_len {
        return false;
    }
    bytes.truncate(from);
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(set_len));
    true
}

/// Reads a set; `None` if it is none of so many slots.
pub(super) fn decode(bytes: &[u8], is_bit_set: bool, slots: u32) -> Option<Slots> {
    let mut set = Slots::none(slots);
    if is_bit_set {
        (bytes.len() == (slots as usize).div_ceil(8)).then_some(())?;
        for (word, part) in set.0.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            *word = u64::from_le_bytes(whole);
        }
        let is_within = each(&set.0).all(|slot| slot < slots);
        return is_within.then_some(set);
    }
    let mut next = 0_u32;
    for &byte in bytes {
        next = next.checked_add(byte.into())?;
        if byte < 255 {
            (next < slots).then_some(())?;
            set.insert(next);
            next += 1;
        }
    }
    (bytes.last() != Some(&255)).then_some(set)
}

#[cfg(test)]
mod tests {
    use tapline_testkit::random::Random;

    use super::*;

    #[test]
    fn sets_are_read_as_they_were_written() {
        let mut random = Random::new(5);
        for round in 0..500 {
            let slots = 1 + random.below(4096) as u32;
            let mut set = Slots::none(slots);
            (0..1 << (round % 12)).for_each(|_| set.insert(random.below(slots.into()) as u32));
            let mut bytes = Vec::new();
            let is_bit_set = encode(&set.0, slots, &mut bytes);
            assert!(bytes.len() <= (slots as usize).div_ceil(8).max(set.count() as usize + 16));
            assert_eq!(decode(&bytes, is_bit_set, slots), Some(set));
        }
    }

    #[test]
    fn sets_that_no_segment_has_are_refused() {
        assert_eq!(decode(&[0xff, 0xff], true, 9), None);
        assert_eq!(decode(&[1], true, 9), None);
        assert_eq!(decode(&[3, 9], false, 9), None);
        assert_eq!(decode(&[255], false, 4096), None);
        assert_eq!(decode(&[255, 0], false, 4096).map(|set| set.has(255)), Some(true));
        assert_eq!(decode(&[255; 100], false, 4096), None);
    }
}
