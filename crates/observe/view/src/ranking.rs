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
//! amount of a row is the key's amount since it has its place, so rows and others add up to the whole; its possible
//! amount before is its error. A cell bounds the possible amount of each key without a row, in bytes and in packets.

use tapline_sys::memory;

use crate::dimension::{KEY_WORDS, Key};
use crate::table::{Amount, Row, Table, both_states};

/// Places of a set.
const WAYS: usize = 8;
/// Sets: four places for each row that a file has.
const SETS: usize = 4 * crate::layout::ROWS_MAX / WAYS;

/// Cells of a set: the more there are, the fewer keys that are not among the greatest get a place for a moment.
const CELLS: usize = 64;
/// Bytes of a unit of cells: a bound is exact for the shortest packets, and up to 256 GiB.
const UNIT: u64 = 64;
/// A cell whose bound does not fit is bounded by the possible amount of any key without a row.
const WIDE: [u32; 2] = [u32::MAX; 2];

/// The greatest keys of one dimension, whose keys differ in the first `WORDS` words alone.
#[derive(Debug)]
pub struct Ranking<const WORDS: usize = KEY_WORDS> {
    sets: Vec<Set>,
    keys: Vec<[u64; WORDS]>,
    counts: Vec<Counts>,
    /// The most that each row's key can have had, side by side for each set: a full set is searched for its least.
    at_most: Vec<Amount>,
    /// The cell of each row's key.
    cells_of: Vec<u16>,
    /// The most packets that any key of a cell can have had which has no row, and the most bytes, in units of 64.
    cells: Vec<[u32; 2]>,
    /// Names of rows. Most are empty: they have memory once there is one.
    names: Vec<Key>,
    /// The place of the last key of [`add_often`](Self::add_often).
    last: usize,
    others: Amount,
    others_flows: u64,
    /// The most that any key of a wide cell can have had.
    wide: Amount,
    seed: u64,
}

/// All that most keys touch of a full set: a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set {
    /// A part of the hash of each row's key; 0 for a free place.
    tags: [u32; WAYS],
    /// In a full set a lower bound of the least bytes in `at_most`, else 0.
    least: u64,
}

/// The counts of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    amount: Amount,
    first: Amount,
    flows: u64,
    state: u64,
    error: Amount,
    began_ns: i64,
}

/// The amount that one flow adds to a key of a ranking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RankingAmount {
    pub(crate) amount: Amount,
    /// The part of it that the row's first side sent.
    pub(crate) first: Amount,
    pub(crate) state: u64,
}

impl Ranking {
    /// No key yet. `seed` should be random, so that a sender cannot choose keys of one set.
    pub fn new(seed: u64) -> Ranking {
        Ranking::with_seed(seed)
    }

    /// Adds packets and bytes of a key: one flow's.
    pub fn add(&mut self, key: Key, amount: Amount) {
        let hash = hash(&key.0, self.seed);
        self.add_part(&key.0, hash, &RankingAmount { amount, ..RankingAmount::default() }, nothing);
    }
}

/// The name and the begin of a row that has neither.
pub(crate) fn nothing() -> (Key, i64) {
    (Key::default(), 0)
}

impl<const WORDS: usize> Ranking<WORDS> {
    pub(crate) fn with_seed(seed: u64) -> Ranking<WORDS> {
        Ranking {
            sets: vec![Set::default(); SETS],
            keys: vec![[0; WORDS]; SETS * WAYS],
            counts: vec![Counts::default(); SETS * WAYS],
            at_most: vec![Amount::default(); SETS * WAYS],
            cells_of: vec![0; SETS * WAYS],
            cells: vec![[0; 2]; SETS * CELLS],
            names: Vec::new(),
            last: 0,
            others: Amount::default(),
            others_flows: 0,
            wide: Amount::default(),
            seed,
        }
    }

    /// Prefetches the memory that a key without a row needs.
    pub(crate) fn ask_for(&self, hash: u64) {
        memory::prefetch_element(&self.cells, cell_of(hash));
    }

    /// Adds a part of a key that is often the same as before: many flows in turn are of one interface, segment or service.
    pub(crate) fn add_often(&mut self, key: &[u64; WORDS], part: &RankingAmount) {
        if self.tag(self.last) != 0 && self.has_key(self.last, key) {
            return self.count(self.last, part);
        }
        let place = self.add_part(key, hash(key, self.seed), part, nothing);
        self.last = place.unwrap_or(self.last);
    }

    /// Adds a part of a key with this hash; `new` gives the name and the begin of a row that is not there yet. Returns the
    /// key's place, if it has one.
    pub(crate) fn add_part(
        &mut self,
        key: &[u64; WORDS],
        hash: u64,
        part: &RankingAmount,
        new: impl FnOnce() -> (Key, i64),
    ) -> Option<usize> {
        let found = self.find(set_of(hash), tag_of(hash), key);
        let place = found.or_else(|| self.new_place(key, hash, part.amount, new));
        match place {
            Some(place) => self.count(place, part),
            None => {
                self.others.add(part.amount);
                self.others_flows += 1;
            }
        }
        place
    }

    /// A place for a key that has none. `None` if it may have had no more than the least row of its set; then the bound of
    /// its cell grows by `amount`.
    fn new_place(
        &mut self,
        key: &[u64; WORDS],
        hash: u64,
        amount: Amount,
        new: impl FnOnce() -> (Key, i64),
    ) -> Option<usize> {
        let (set, cell) = (set_of(hash), cell_of(hash));
        let error = self.bound(cell);
        let mut with_it = error;
        with_it.add(amount);
        let Some(place) = self.make_room(set, with_it) else {
            self.set_bound(cell, with_it);
            return None;
        };
        self.sets[set].tags[place % WAYS] = tag_of(hash);
        self.begin(place, key, (cell, error), new());
        Some(place)
    }

    /// Whether a place has this key. Word by word: keys are too short for a call that compares memory.
    fn has_key(&self, place: usize, key: &[u64; WORDS]) -> bool {
        let known = &self.keys[place];
        (0..WORDS).all(|word| known[word] == key[word])
    }

    fn tag(&self, place: usize) -> u32 {
        self.sets[place / WAYS].tags[place % WAYS]
    }

    fn count(&mut self, place: usize, part: &RankingAmount) {
        self.at_most[place].add(part.amount);
        let counts = &mut self.counts[place];
        counts.amount.add(part.amount);
        counts.first.add(part.first);
        counts.flows += 1;
        counts.state = both_states(counts.state, part.state);
    }

    /// Gives a place to a key that counted nothing so far; `error` is its possible amount before.
    fn begin(
        &mut self,
        place: usize,
        key: &[u64; WORDS],
        (cell, error): (usize, Amount),
        (name, began_ns): (Key, i64),
    ) {
        (self.at_most[place], self.cells_of[place]) = (error, cell as u16);
        self.keys[place] = *key;
        self.counts[place] = Counts { error, began_ns, ..Counts::default() };
        if self.names.is_empty() && is_empty(&name) {
            return;
        }
        self.names.resize(SETS * WAYS, Key::default());
        self.names[place] = name;
    }

    /// The place of a key in its set.
    fn find(&self, set: usize, tag: u32, key: &[u64; WORDS]) -> Option<usize> {
        let tags = &self.sets[set].tags;
        // Without a branch for each way.
        let same = (0..WAYS).fold(0_u32, |same, way| same | u32::from(tags[way] == tag) << way);
        let mut rest = same;
        while rest != 0 {
            let place = set * WAYS + rest.trailing_zeros() as usize;
            if self.has_key(place, key) {
                return Some(place);
            }
            rest &= rest - 1;
        }
        None
    }

    /// A place for a key that can have this amount with its addition: in a full set the least row is replaced. `None`
    /// if the key's possible amount is not greater than that.
    #[inline]
    fn make_room(&mut self, set: usize, with_it: Amount) -> Option<usize> {
        let least = self.sets[set].least;
        if least != 0 && with_it.bytes <= least {
            return None;
        }
        self.replace(set, with_it)
    }

    #[inline(never)]
    fn replace(&mut self, set: usize, with_it: Amount) -> Option<usize> {
        if let Some(free) = self.sets[set].tags.iter().position(|tag| *tag == 0) {
            return Some(set * WAYS + free);
        }
        let (place, at_most) = self.least_of(set);
        self.sets[set].least = at_most.bytes;
        if with_it.bytes <= at_most.bytes {
            return None;
        }
        let gone = &self.counts[place];
        self.others.add(gone.amount);
        self.others_flows += gone.flows;
        let cell = self.cells_of[place].into();
        self.set_bound(cell, self.bound(cell).max(at_most));
        Some(place)
    }

    /// The most that a key of this cell can have had which has no row.
    fn bound(&self, cell: usize) -> Amount {
        match self.cells[cell] {
            WIDE => self.wide,
            [packets, units] => Amount { packets: packets.into(), bytes: u64::from(units) * UNIT },
        }
    }

    /// Makes a cell bound keys that can have this amount; at least its bound so far.
    fn set_bound(&mut self, cell: usize, at_most: Amount) {
        let narrow = |number: u64| u32::try_from(number).ok();
        let fitting = narrow(at_most.packets).zip(narrow(at_most.bytes.div_ceil(UNIT)));
        self.cells[cell] = match fitting {
            Some((packets, units)) => [packets, units],
            None => WIDE,
        };
        if self.cells[cell] == WIDE {
            self.wide = self.wide.max(at_most);
        }
    }

    /// The place of a full set whose key can have had least, and the most that it can have had.
    fn least_of(&self, set: usize) -> (usize, Amount) {
        let places = (set * WAYS..(set + 1) * WAYS).map(|place| (place, self.at_most[place]));
        places.min_by_key(|(_, at_most)| (at_most.bytes, at_most.packets)).unwrap_or_default()
    }

    /// The row of a place that is taken.
    fn row(&self, place: usize) -> Row {
        let Counts { amount, first, flows, state, error, began_ns } = self.counts[place];
        let (key, name) = (Key::of_words(&self.keys[place]), self.names.get(place));
        Row { key, name: name.copied().unwrap_or_default(), amount, first, error, flows, began_ns, state }
    }

    /// The most that any key without a row can have had.
    fn missing(&self) -> Amount {
        (0..self.cells.len()).fold(self.wide, |most, cell| most.max(self.bound(cell)))
    }

    /// Takes all rows so far, in no order, and starts again.
    pub fn take(&mut self) -> Table {
        let used = (0..SETS * WAYS).filter(|&place| self.tag(place) != 0);
        let rows = used.map(|place| self.row(place)).collect();
        let missing = self.missing();
        self.sets.fill(Set::default());
        self.cells.fill([0; 2]);
        self.wide = Amount::default();
        Table {
            rows,
            others: std::mem::take(&mut self.others),
            others_flows: std::mem::take(&mut self.others_flows),
            missing,
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
pub(crate) fn hash(words: &[u64], seed: u64) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    words.iter().fold(seed, |hash, word| {
        let product = u128::from(hash ^ word) * u128::from(ODD ^ seed | 1);
        (product >> 64) as u64 ^ product as u64 ^ ODD
    })
}
