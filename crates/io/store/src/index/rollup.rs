//! The roll-up of 64 segments: when they are, and which keys none of them has (docs/format/store.md, "Roll-up").

use tapline_packet::Timestamp;
use xorf::BinaryFuse8;

use super::pages::{self, Owner, Pages};
use crate::catalog::Catalog;
use crate::error::Error;
use crate::keys::OpenKeys;
use crate::layout::{ROLL_UPS, sync_directory};
use crate::log::History;

const MAGIC: [u8; 8] = *b"TAPLTIR1";
const HEAD_LEN: usize = 128;
/// Segments of a roll-up.
pub(crate) const SEGMENTS: u64 = 64;
const TIMES_LEN: usize = SEGMENTS as usize * 16;
const FINGERPRINTS_AT: u64 = (HEAD_LEN + TIMES_LEN) as u64;
/// The most keys of a filter: its construction takes thirty bytes a key. Beyond it a roll-up has times only.
const KEYS_MAX: usize = 8 << 20;
/// The groups whose keys are in roll-ups: all but high ports, pairs and flows.
const GROUPS: std::ops::Range<u64> = 0..2;

pub(crate) fn roll_up_of(segment: u64) -> u64 {
    segment.saturating_sub(1) / SEGMENTS
}

/// The segments of a roll-up.
pub(crate) fn segments_of(number: u64) -> std::ops::RangeInclusive<u64> {
    number * SEGMENTS + 1..=(number + 1) * SEGMENTS
}

/// Facts of a roll-up's segments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    /// Segments that are in it, by bits.
    covered: u64,
    /// Segments with a slot open in [`OpenKeys::All`].
    open: u64,
    /// In [`OpenKeys::Addresses`].
    without_addresses: u64,
    /// In [`OpenKeys::Inner`] or [`OpenKeys::Names`].
    without_others: u64,
    /// Classes that all of them have.
    classes: u64,
    keys: u64,
    filter: Filter,
    times: [(Timestamp, Timestamp); SEGMENTS as usize],
}

/// A binary fuse filter, but for its fingerprints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Filter {
    seed: u64,
    segment_len: u32,
    /// Bytes of all segments but the last two.
    segments_len: u32,
    fingerprints: u32,
}

/// Writes the roll-up of those of its segments that have an index of all chunks that were recorded.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn write(catalog: &Catalog, number: u64, history: &History) -> Result<(), Error> {
    let (mut head, keys) = gather(catalog, number, history);
    let fingerprints = match keys {
        Some(keys) if !keys.is_empty() => head.take(&keys),
        _ => Box::default(),
    };
    catalog.paths.make(ROLL_UPS)?;
    let folder = catalog.root().join(ROLL_UPS);
    sync_directory(&folder).map_err(Error::file("make", &folder))?;
    let owner = Owner { store: catalog.id, number };
    let content = head.encode(&owner, &fingerprints);
    pages::write(&catalog.paths.roll_up(number), &owner, &content).map(|_| ())
}

/// Reads the indexes of a roll-up's segments, and their keys; `None` if the keys are too many.
fn gather(catalog: &Catalog, number: u64, history: &History) -> (Head, Option<Vec<u64>>) {
    let mut head = Head {
        covered: 0,
        open: 0,
        without_addresses: 0,
        without_others: 0,
        classes: u64::MAX,
        keys: 0,
        filter: Filter::default(),
        times: [(Timestamp::EPOCH, Timestamp::EPOCH); SEGMENTS as usize],
    };
    let mut keys = Some(Vec::new());
    for (bit, segment) in segments_of(number).enumerate() {
        let had = history.sealed.get(&segment).map_or(0, |sealed| sealed.chunks);
        let Some(index) = catalog.index(segment).filter(|index| u64::from(index.summary.chunks) >= had)
        else {
            continue;
        };
        let Some(of_segment) = index.uppers(GROUPS) else { continue };
        let flag = |is_set: bool| u64::from(is_set) << bit;
        let open = |way: OpenKeys| index.summary.open[way as usize] > 0;
        head.covered |= flag(true);
        head.open |= flag(open(OpenKeys::All));
        head.without_addresses |= flag(open(OpenKeys::Addresses));
        head.without_others |= flag(open(OpenKeys::Inner) || open(OpenKeys::Names));
        head.classes &= index.summary.classes;
        head.times[bit] = (index.summary.first, index.summary.last);
        keys = keys.filter(|keys: &Vec<u64>| keys.len() + of_segment.len() <= KEYS_MAX);
        if let Some(keys) = &mut keys {
            keys.extend(of_segment.into_iter().map(u64::from));
            keys.sort_unstable();
            keys.dedup();
        }
    }
    (head, keys)
}

impl Head {
    /// Makes the filter of these keys, which are all different; gives its fingerprints.
    fn take(&mut self, keys: &[u64]) -> Box<[u8]> {
        // It may fail in theory; then every key may be there.
        let Ok(filter) = BinaryFuse8::try_from(keys) else { return Box::default() };
        self.keys = keys.len() as u64;
        self.filter = Filter {
            seed: filter.descriptor.seed,
            segment_len: filter.descriptor.segment_length,
            segments_len: filter.descriptor.segment_count_length,
            fingerprints: filter.fingerprints.len() as u32,
        };
        filter.fingerprints
    }

    fn encode(&self, owner: &Owner, fingerprints: &[u8]) -> Vec<u8> {
        let mut content = Vec::with_capacity(HEAD_LEN + TIMES_LEN + fingerprints.len());
        content.extend_from_slice(&MAGIC);
        content.extend_from_slice(&owner.store);
        let words = [
            owner.number,
            self.covered,
            self.open,
            self.without_addresses,
            self.without_others,
            self.classes,
            self.keys,
            self.filter.seed,
        ];
        words.iter().for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
        let Filter { segment_len, segments_len, fingerprints: count, .. } = self.filter;
        [segment_len, segments_len, count]
            .iter()
            .for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
        content.resize(HEAD_LEN, 0);
        for (first, last) in self.times {
            content.extend_from_slice(&first.as_nanos().to_le_bytes());
            content.extend_from_slice(&last.as_nanos().to_le_bytes());
        }
        content.extend_from_slice(fingerprints);
        content
    }

    fn parse(content: &[u8], owner: &Owner) -> Option<Head> {
        let word = |at: usize| content.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let half = |at: usize| content.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let is_ours =
            content.get(..8)? == MAGIC && content.get(8..24)? == owner.store && word(24)? == owner.number;
        let filter = Filter {
            seed: word(80)?,
            segment_len: half(88)?,
            segments_len: half(92)?,
            fingerprints: half(96)?,
        };
        let mut times = [(Timestamp::EPOCH, Timestamp::EPOCH); SEGMENTS as usize];
        for (bit, of_segment) in times.iter_mut().enumerate() {
            let at = |at: usize| word(at).map(|nanos| Timestamp::from_nanos(nanos as i64));
            *of_segment = (at(HEAD_LEN + bit * 16)?, at(HEAD_LEN + bit * 16 + 8)?);
        }
        let head = Head {
            covered: word(32)?,
            open: word(40)?,
            without_addresses: word(48)?,
            without_others: word(56)?,
            classes: word(64)?,
            keys: word(72)?,
            filter,
            times,
        };
        (is_ours && filter.is_sound()).then_some(head)
    }
}

impl Filter {
    /// Whether every place that a key has is one of the fingerprints.
    fn is_sound(&self) -> bool {
        let Filter { segment_len, segments_len, fingerprints, .. } = *self;
        fingerprints == 0
            || segment_len.is_power_of_two()
                && u64::from(segments_len) + 2 * u64::from(segment_len) <= fingerprints.into()
                && segments_len.is_multiple_of(segment_len)
    }

    /// Places of the three fingerprints of a key, and the value that they give by XOR if the filter has the key.
    fn places(&self, upper: u64) -> ([u64; 3], u8) {
        let hash = mix(upper.wrapping_add(self.seed));
        let (len, mask) = (u64::from(self.segment_len), u64::from(self.segment_len) - 1);
        let first = ((u128::from(hash) * u128::from(self.segments_len)) >> 64) as u64;
        let places = [first, (first + len) ^ (hash >> 18 & mask), (first + 2 * len) ^ (hash & mask)];
        (places, (hash ^ hash >> 32) as u8)
    }
}

/// MurmurHash3's finalizer.
fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

/// An open roll-up: its head was read and checked, fingerprints are read when needed.
#[derive(Debug)]
pub(crate) struct RollUp {
    head: Head,
    number: u64,
    pages: Pages,
}

impl RollUp {
    /// Opens a roll-up; `None` if there is none, or one that is damaged: then its segments are looked into one by one.
    pub(crate) fn read(catalog: &Catalog, number: u64) -> Option<RollUp> {
        let owner = Owner { store: catalog.id, number };
        let pages = Pages::open(&catalog.paths.roll_up(number), owner)?;
        let head = Head::parse(&pages.read(0..FINGERPRINTS_AT)?, &owner)?;
        let fits = pages.is_of(FINGERPRINTS_AT + u64::from(head.filter.fingerprints));
        fits.then_some(RollUp { head, number, pages })
    }

    /// Whether every page is as it was written.
    pub(crate) fn is_whole(&self) -> bool {
        self.pages.read(0..FINGERPRINTS_AT + u64::from(self.head.filter.fingerprints)).is_some()
    }

    /// The least and greatest time of a segment; `None` if it is not covered.
    pub(crate) fn times(&self, segment: u64) -> Option<(Timestamp, Timestamp)> {
        let bit = segment.checked_sub(*segments_of(self.number).start())?;
        let is_covered = bit < SEGMENTS && self.head.covered >> bit & 1 == 1;
        is_covered.then(|| self.head.times[bit as usize])
    }

    /// Whether a segment, which is covered, has slots open in a way.
    pub(crate) fn is_open(&self, segment: u64, way: OpenKeys) -> bool {
        let bits = match way {
            OpenKeys::All => self.head.open,
            OpenKeys::Addresses => self.head.without_addresses,
            OpenKeys::Inner | OpenKeys::Names => self.head.without_others,
            // Such keys are in no roll-up.
            OpenKeys::Flows | OpenKeys::Ports => u64::MAX,
        };
        segment
            .checked_sub(*segments_of(self.number).start())
            .is_none_or(|bit| bit >= SEGMENTS || bits >> bit & 1 == 1)
    }

    /// Whether every covered segment has keys of a class, by number.
    pub(crate) fn has_class(&self, class: u8) -> bool {
        self.head.classes >> class & 1 == 1
    }

    /// Whether any covered segment may have slots with a key; `None` if the filter is damaged.
    pub(crate) fn may_have(&self, key: u64) -> Option<bool> {
        if !GROUPS.contains(&(key >> 62)) || self.head.filter.fingerprints == 0 {
            return Some(true);
        }
        let (places, wanted) = self.head.filter.places(key >> 32);
        let mut found = 0;
        for place in places {
            let at = FINGERPRINTS_AT + place;
            found ^= *self.pages.read(at..at + 1)?.first()?;
        }
        Some(found == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_its_keys_and_few_others() {
        for count in [1_u64, 2, 10, 1_000, 100_000] {
            let keys: Vec<u64> = (0..count).map(|key| key * 40_009 + 7).collect();
            let mut head = gather_none();
            let fingerprints = head.take(&keys);
            assert!(head.filter.is_sound(), "{:?}", head.filter);
            let has = |key: u64| {
                let (places, wanted) = head.filter.places(key);
                places.iter().fold(0, |found, at| found ^ fingerprints[*at as usize]) == wanted
            };
            assert!(keys.iter().all(|key| has(*key)), "{count}");
            let wrong = (0..20_000).filter(|key| has(key * 40_009 + 8)).count();
            assert!(wrong < 200, "{count}: {wrong}");
        }
    }

    fn gather_none() -> Head {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("seg")).unwrap();
        gather(&Catalog::create(folder.path(), 4 << 20).unwrap(), 0, &History::default()).0
    }
}
