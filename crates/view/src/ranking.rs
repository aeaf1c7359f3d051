//! The greatest keys among many, in fixed memory.
//!
//! ```text
//! hash of the key --> one of 128 sets of 8 places
//!                       there            add to it
//!                       a place is free  take it
//!                       none is          the least gives way: its amount goes to others, the new key may have had as much
//! ```
//!
//! That is the space-saving algorithm (Metwally, Agrawal and El Abbadi, 2005) in each set. The amount of a row is what
//! the key had since it has its place, so rows and others add up to all that was added; what it may have had before is
//! its error. The least is that of bytes, so a bound of packets is kept for each set: a key that gave way may have had more
//! packets than the one that gives way now.

use std::hash::{BuildHasher, RandomState};

use crate::change::{Changes, NamedChange};
use crate::dimension::{ChangeKeys, Dimension, KEY_WORDS, Key};
use crate::table::{Amount, Row, Table, Tables, both_states};

/// Places of a set.
const WAYS: usize = 8;
/// Sets: four places for each row that a file has.
const SETS: usize = 4 * crate::layout::ROWS_MAX / WAYS;

/// The greatest keys of one dimension.
#[derive(Debug)]
pub struct Ranking {
    keys: Vec<Key>,
    counts: Vec<Counts>,
    /// Names of rows; they stand apart, for most are empty and need not be written.
    names: Vec<Key>,
    /// A part of the hash of each row's key; 0 for a free place.
    tags: Vec<u32>,
    /// The most that each row's key can have had, side by side for each set: a full set is searched for its least.
    at_most: Vec<Amount>,
    /// The most packets that any key can have had which gave way, for each set.
    gone: Vec<u64>,
    /// The place of the last key: many flows in turn are of one interface, segment or service.
    last: usize,
    /// Words of a key that can differ from 0.
    key_words: usize,
    others: Amount,
    others_flows: u64,
    /// The most that gave way.
    missing: Amount,
    seed: u64,
}

/// What a row counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    amount: Amount,
    first: Amount,
    flows: u64,
    state: u64,
    error: Amount,
    began_ns: i64,
}

/// The part of a change that a ranking adds.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    amount: Amount,
    first: Amount,
    state: u64,
}

impl Ranking {
    /// No key yet. `seed` should be random, so that a sender cannot choose keys of one set.
    pub fn new(seed: u64) -> Ranking {
        Ranking {
            keys: vec![Key::default(); SETS * WAYS],
            counts: vec![Counts::default(); SETS * WAYS],
            names: vec![Key::default(); SETS * WAYS],
            tags: vec![0; SETS * WAYS],
            at_most: vec![Amount::default(); SETS * WAYS],
            gone: vec![0; SETS],
            last: 0,
            key_words: KEY_WORDS,
            others: Amount::default(),
            others_flows: 0,
            missing: Amount::default(),
            seed,
        }
    }

    /// The same for the keys of a dimension.
    fn of(dimension: Dimension, seed: u64) -> Ranking {
        Ranking { key_words: dimension.key_words(), ..Ranking::new(seed) }
    }

    /// Adds packets and bytes of a key: one flow's.
    pub fn add(&mut self, key: Key, amount: Amount) {
        self.add_part(key, &Part { amount, ..Part::default() }, || (Key::default(), 0));
    }

    /// Adds a part of a key; `new` gives the name and the begin of a row that is not there yet.
    fn add_part(&mut self, key: Key, part: &Part, new: impl FnOnce() -> (Key, i64)) {
        let is_last = self.tags[self.last] != 0 && self.is_key(self.last, &key);
        let place = if is_last { self.last } else { self.place_of(key, new) };
        self.last = place;
        self.at_most[place].add(part.amount);
        let counts = &mut self.counts[place];
        counts.amount.add(part.amount);
        counts.first.add(part.first);
        counts.flows += 1;
        counts.state = both_states(counts.state, part.state);
    }

    /// The place of a key, where it gets one if it has none.
    fn place_of(&mut self, key: Key, new: impl FnOnce() -> (Key, i64)) -> usize {
        let hash = hash(&key.0[..self.key_words], self.seed);
        let (set, tag) = ((hash as usize % SETS) * WAYS, (hash >> 32) as u32 | 1);
        self.find(set, tag, &key).unwrap_or_else(|| {
            let (place, error) = self.make_room(set);
            (self.tags[place], self.at_most[place]) = (tag, error);
            let (name, began_ns) = new();
            self.keys[place] = key;
            self.counts[place] = Counts { error, began_ns, ..Counts::default() };
            if !(is_empty(&name) && is_empty(&self.names[place])) {
                self.names[place] = name;
            }
            place
        })
    }

    /// The place of a key in its set.
    fn find(&self, set: usize, tag: u32, key: &Key) -> Option<usize> {
        (set..set + WAYS).find(|&place| self.tags[place] == tag && self.is_key(place, key))
    }

    /// Whether a place has this key, by the words that can differ.
    fn is_key(&self, place: usize, key: &Key) -> bool {
        let (one, other) = (&self.keys[place].0, &key.0);
        (0..self.key_words).all(|word| one[word] == other[word])
    }

    /// A place for a new key, and the most that the key can have had before: of a full set the least gives way.
    fn make_room(&mut self, set: usize) -> (usize, Amount) {
        if let Some(free) = (set..set + WAYS).find(|&place| self.tags[place] == 0) {
            return (free, Amount::default());
        }
        let (place, at_most) = self.least(set);
        let gone = &self.counts[place];
        self.others.add(gone.amount);
        self.others_flows += gone.flows;
        let packets = &mut self.gone[set / WAYS];
        *packets = at_most.packets.max(*packets);
        let at_most = Amount { packets: *packets, ..at_most };
        self.missing = self.missing.max(at_most);
        (place, at_most)
    }

    /// The place of a full set whose key can have had least, and the most that it can have had.
    fn least(&self, set: usize) -> (usize, Amount) {
        let places = (set..set + WAYS).map(|place| (place, self.at_most[place]));
        places.min_by_key(|(_, at_most)| (at_most.bytes, at_most.packets)).unwrap_or_default()
    }

    /// The row of a place that is taken.
    fn row(&self, place: usize) -> Row {
        let Counts { amount, first, flows, state, error, began_ns } = self.counts[place];
        Row { key: self.keys[place], name: self.names[place], amount, first, error, flows, began_ns, state }
    }

    /// All rows so far, in no order, and begins anew.
    pub fn take(&mut self) -> Table {
        let used = (0..self.tags.len()).filter(|&place| self.tags[place] != 0);
        let rows = used.map(|place| self.row(place)).collect();
        self.tags.fill(0);
        self.gone.fill(0);
        Table {
            rows,
            others: std::mem::take(&mut self.others),
            others_flows: std::mem::take(&mut self.others_flows),
            missing: std::mem::take(&mut self.missing),
        }
    }
}

fn is_empty(name: &Key) -> bool {
    name.0[0] == 0
}

/// A hash of the words of a key, by multiplying them into each other.
fn hash(words: &[u64], seed: u64) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    words.iter().fold(seed, |hash, word| {
        let product = u128::from(hash ^ word) * u128::from(ODD ^ seed | 1);
        (product >> 64) as u64 ^ product as u64 ^ ODD
    })
}

/// The greatest keys of all dimensions.
#[derive(Debug)]
pub(crate) struct Rankings {
    of: [Ranking; Dimension::ALL.len()],
}

impl Default for Rankings {
    fn default() -> Rankings {
        let random = RandomState::new();
        Rankings { of: Dimension::ALL.map(|dimension| Ranking::of(dimension, random.hash_one(dimension))) }
    }
}

impl Rankings {
    /// Adds a part of the changes to all dimensions.
    pub(crate) fn add_all(&mut self, changes: &Changes) {
        changes.iter().for_each(|change| self.add(&change));
    }

    /// Adds the packets of a flow to all dimensions.
    fn add(&mut self, named: &NamedChange<'_>) {
        let change = named.change;
        let [sent, received] = change.amounts;
        let mut amount = sent;
        amount.add(received);
        let keys = ChangeKeys::of(named);
        let whole = Part { amount, first: sent, state: 0 };
        let swapped = |is_swapped: bool| Part { first: if is_swapped { received } else { sent }, ..whole };
        let nothing = || (Key::default(), 0);
        for (dimension, key, part) in [
            (Dimension::Pair, keys.pair.0, swapped(keys.pair.1)),
            (Dimension::Service, keys.service.0, swapped(keys.service.1)),
            (Dimension::Name, keys.name, whole),
            (Dimension::Segment, keys.segment, whole),
            (Dimension::Interface, keys.interface, whole),
        ] {
            self.of[dimension as usize].add_part(key, &part, nothing);
        }
        let of_flow = Part { state: change.state.into(), ..whole };
        let described = || (flow_name(named), change.began_ns);
        self.of[Dimension::Flow as usize].add_part(keys.flow, &of_flow, described);
        let [from, to] = keys.hosts;
        for (sender, receiver, amount) in [(from, to, sent), (to, from, received)] {
            if amount.packets > 0 {
                let part = Part { amount, ..Part::default() };
                self.of[Dimension::HostOut as usize].add_part(sender, &part, nothing);
                self.of[Dimension::HostIn as usize].add_part(receiver, &part, nothing);
            }
        }
    }

    /// The tables so far, and begins anew.
    pub(crate) fn take(&mut self) -> Tables {
        std::array::from_fn(|at| self.of[at].take())
    }
}

/// The application of a flow and the name that was asked for.
fn flow_name(named: &NamedChange<'_>) -> Key {
    match (named.application, named.name) {
        ("", "") => Key::default(),
        (application, name) => Key::name(&[application, name].join(" ")),
    }
}
