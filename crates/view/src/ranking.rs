//! The greatest keys among many, in fixed memory.
//!
//! ```text
//! hash of the key --> one of 128 sets of 8 places, and one of 64 cells of the set
//!                       there            add to it
//!                       a place is free  take it
//!                       none is          cell + amount is at most the least row: to others, and the cell grows by it
//!                                        else the least row gives way: its amount goes to others, its cell holds at
//!                                        least what it had; the new key may have had what its own cell holds
//! ```
//!
//! That is filtered space-saving (Homem and Carvalho, Finding top-k elements in data streams, 2010) in each set. The
//! amount of a row is what the key had since it has its place, so rows and others add up to all that was added; what it
//! may have had before is its error. A cell bounds what each key without a row can have had, in bytes and in packets.

use std::hash::{BuildHasher, RandomState};

use tapline_sys::memory;

use crate::change::Change;
use crate::dimension::{ChangeKeys, Dimension, KEY_WORDS, Key};
use crate::table::{Amount, Row, Table, Tables, both_states};

/// Places of a set.
const WAYS: usize = 8;
/// Sets: four places for each row that a file has.
const SETS: usize = 4 * crate::layout::ROWS_MAX / WAYS;

/// Cells of a set: the more there are, the fewer keys that are not among the greatest get a place for a moment.
const CELLS: usize = 64;
/// Bytes of a unit of cells: a bound is exact for the shortest packets, and up to 256 GiB.
const UNIT: u64 = 64;
/// A cell whose bound does not fit is bounded by what any key without a row can have.
const WIDE: [u32; 2] = [u32::MAX; 2];

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
    /// The cell of each row's key.
    cells_of: Vec<u16>,
    /// The most packets that any key of a cell can have had which has no row, and the most bytes, in units of 64.
    cells: Vec<[u32; 2]>,
    /// For each full set a lower bound of the least bytes in `at_most`.
    least: Vec<u64>,
    /// The place of the last key of [`add_often`](Self::add_often).
    last: usize,
    /// Words of a key that can differ from 0.
    key_words: usize,
    others: Amount,
    others_flows: u64,
    /// The most that any key without a row can have had.
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
            cells_of: vec![0; SETS * WAYS],
            cells: vec![[0; 2]; SETS * CELLS],
            least: vec![0; SETS],
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
        let hash = self.hash(&key);
        self.add_part((key, hash), &Part { amount, ..Part::default() }, || (Key::default(), 0));
    }

    fn hash(&self, key: &Key) -> u64 {
        hash(&key.0[..self.key_words], self.seed)
    }

    /// Asks for the memory that a key without a row needs. Returns the key with its hash.
    fn ask_for(&self, key: Key) -> (Key, u64) {
        let hash = self.hash(&key);
        memory::prefetch_element(&self.cells, cell_of(hash));
        memory::prefetch_element(&self.at_most, set_of(hash) * WAYS);
        (key, hash)
    }

    /// Adds a part of a key that is often the same as before: many flows in turn are of one interface, segment or service.
    fn add_often(&mut self, key: Key, part: &Part) {
        if self.tags[self.last] != 0 && self.is_key(self.last, &key) {
            return self.count(self.last, part);
        }
        let hash = self.hash(&key);
        let place = self.add_part((key, hash), part, || (Key::default(), 0));
        self.last = place.unwrap_or(self.last);
    }

    /// Adds a part of a key with this hash; `new` gives the name and the begin of a row that is not there yet. Returns the
    /// key's place, if it has one.
    fn add_part(
        &mut self,
        (key, hash): (Key, u64),
        part: &Part,
        new: impl FnOnce() -> (Key, i64),
    ) -> Option<usize> {
        let place = self.find(set_of(hash) * WAYS, tag_of(hash), &key);
        let place = place.or_else(|| self.new_place((key, hash), part.amount, new));
        match place {
            Some(place) => self.count(place, part),
            None => {
                self.others.add(part.amount);
                self.others_flows += 1;
            }
        }
        place
    }

    fn count(&mut self, place: usize, part: &Part) {
        self.at_most[place].add(part.amount);
        let counts = &mut self.counts[place];
        counts.amount.add(part.amount);
        counts.first.add(part.first);
        counts.flows += 1;
        counts.state = both_states(counts.state, part.state);
    }

    /// A place for a key that has none, unless it can have had no more than the least of its set.
    fn new_place(
        &mut self,
        (key, hash): (Key, u64),
        amount: Amount,
        new: impl FnOnce() -> (Key, i64),
    ) -> Option<usize> {
        let cell = cell_of(hash);
        let error = self.bound(cell);
        let place = self.make_room(set_of(hash), cell, amount)?;
        (self.tags[place], self.at_most[place], self.cells_of[place]) = (tag_of(hash), error, cell as u16);
        let (name, began_ns) = new();
        self.keys[place] = key;
        self.counts[place] = Counts { error, began_ns, ..Counts::default() };
        if !(is_empty(&name) && is_empty(&self.names[place])) {
            self.names[place] = name;
        }
        Some(place)
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

    /// A place for a new key with this amount: of a full set the least gives way. `None` if the key can have had no more
    /// than that; then its cell has the amount.
    fn make_room(&mut self, set: usize, cell: usize, amount: Amount) -> Option<usize> {
        let first = set * WAYS;
        if self.least[set] == 0
            && let Some(free) = (first..first + WAYS).find(|&place| self.tags[place] == 0)
        {
            return Some(free);
        }
        let mut with_it = self.bound(cell);
        with_it.add(amount);
        if with_it.bytes > self.least[set] {
            let (place, at_most) = self.least_of(set);
            self.least[set] = at_most.bytes;
            if with_it.bytes > at_most.bytes {
                let gone = &self.counts[place];
                self.others.add(gone.amount);
                self.others_flows += gone.flows;
                self.raise(self.cells_of[place].into(), at_most);
                return Some(place);
            }
        }
        self.raise(cell, with_it);
        None
    }

    /// The most that a key of this cell can have had which has no row.
    fn bound(&self, cell: usize) -> Amount {
        match self.cells[cell] {
            WIDE => self.missing,
            [packets, units] => Amount { packets: packets.into(), bytes: u64::from(units) * UNIT },
        }
    }

    /// Has a cell bound keys that can have had so much.
    fn raise(&mut self, cell: usize, at_most: Amount) {
        let bound = self.bound(cell).max(at_most);
        self.missing = self.missing.max(bound);
        let narrow = |number: u64| u32::try_from(number).ok();
        self.cells[cell] = narrow(bound.packets)
            .zip(narrow(bound.bytes.div_ceil(UNIT)))
            .map_or(WIDE, |(packets, units)| [packets, units]);
        // The cell may say a little more.
        self.missing = self.missing.max(self.bound(cell));
    }

    /// The place of a full set whose key can have had least, and the most that it can have had.
    fn least_of(&self, set: usize) -> (usize, Amount) {
        let places = (set * WAYS..(set + 1) * WAYS).map(|place| (place, self.at_most[place]));
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
        self.cells.fill([0; 2]);
        self.least.fill(0);
        Table {
            rows,
            others: std::mem::take(&mut self.others),
            others_flows: std::mem::take(&mut self.others_flows),
            missing: std::mem::take(&mut self.missing),
        }
    }
}

fn set_of(hash: u64) -> usize {
    hash as usize % SETS
}

fn cell_of(hash: u64) -> usize {
    set_of(hash) * CELLS + hash as usize / SETS % CELLS
}

/// A part of a hash, and not 0.
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
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
    /// Adds the packets of a flow to all dimensions.
    pub(crate) fn add(&mut self, change: &Change<'_>) {
        let [sent, received] = change.amounts;
        let mut amount = sent;
        amount.add(received);
        let keys = ChangeKeys::of(change);
        let whole = Part { amount, first: sent, state: 0 };
        let swapped = |is_swapped: bool| Part { first: if is_swapped { received } else { sent }, ..whole };
        let nothing = || (Key::default(), 0);
        // Each key's memory is on its way before the first is used.
        let ask_for = |dimension: Dimension, key: Key| self.of[dimension as usize].ask_for(key);
        let [from, to] = keys.hosts;
        let [from, to] = [(from, to), (to, from)].map(|(sender, receiver)| {
            (ask_for(Dimension::HostOut, sender), ask_for(Dimension::HostIn, receiver))
        });
        let flow = ask_for(Dimension::Flow, keys.flow);
        let pair = ask_for(Dimension::Pair, keys.pair.0);
        for (dimension, key, part) in [
            (Dimension::Service, keys.service.0, swapped(keys.service.1)),
            (Dimension::Name, keys.name, whole),
            (Dimension::Segment, keys.segment, whole),
            (Dimension::Interface, keys.interface, whole),
        ] {
            self.of[dimension as usize].add_often(key, &part);
        }
        self.of[Dimension::Pair as usize].add_part(pair, &swapped(keys.pair.1), nothing);
        let of_flow = Part { state: change.state.into(), ..whole };
        let described = || (flow_name(change), change.fields.began_ns);
        self.of[Dimension::Flow as usize].add_part(flow, &of_flow, described);
        for ((sender, receiver), amount) in [(from, sent), (to, received)] {
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
fn flow_name(change: &Change<'_>) -> Key {
    match (change.application, change.name) {
        ("", "") => Key::default(),
        (application, name) => Key::name(&[application, name].join(" ")),
    }
}
