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
//! its error.

use std::hash::{BuildHasher, RandomState};

use tapline_flow::{Endpoint, FlowChange};

use crate::dimension::{ChangeKeys, Dimension, Key};
use crate::table::{Amount, Row, Table, Tables, both_states};

/// Places of a set.
const WAYS: usize = 8;
/// Sets: four places for each row that a file has.
const SETS: usize = 4 * crate::layout::ROWS_MAX / WAYS;

/// The greatest keys of one dimension.
#[derive(Debug)]
pub struct Ranking {
    rows: Vec<Row>,
    /// A part of the hash of each row's key; 0 for a free place.
    tags: Vec<u32>,
    others: Amount,
    others_flows: u64,
    /// The most that gave way.
    missing: Amount,
    seed: u64,
}

/// The part of a change that a ranking adds.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    amount: Amount,
    first: Amount,
    name: Key,
    began_ns: i64,
    state: u64,
}

impl Ranking {
    /// No key yet. `seed` should be random, so that a sender cannot choose keys of one set.
    pub fn new(seed: u64) -> Ranking {
        Ranking {
            rows: vec![Row::default(); SETS * WAYS],
            tags: vec![0; SETS * WAYS],
            others: Amount::default(),
            others_flows: 0,
            missing: Amount::default(),
            seed,
        }
    }

    /// Adds packets and bytes of a key: one flow's.
    pub fn add(&mut self, key: Key, amount: Amount) {
        self.add_part(key, &Part { amount, ..Part::default() });
    }

    fn add_part(&mut self, key: Key, part: &Part) {
        let hash = hash(&key, self.seed);
        let (set, tag) = ((hash as usize % SETS) * WAYS, (hash >> 32) as u32 | 1);
        let place = self.find(set, tag, &key).unwrap_or_else(|| {
            let (place, error) = self.make_room(set);
            self.tags[place] = tag;
            let (name, began_ns) = (part.name, part.began_ns);
            self.rows[place] = Row { key, name, error, began_ns, ..Row::default() };
            place
        });
        let row = &mut self.rows[place];
        row.amount.add(part.amount);
        row.first.add(part.first);
        row.flows += 1;
        row.state = both_states(row.state, part.state);
    }

    /// The place of a key in its set.
    fn find(&self, set: usize, tag: u32, key: &Key) -> Option<usize> {
        (set..set + WAYS).find(|&place| self.tags[place] == tag && self.rows[place].key == *key)
    }

    /// A place for a new key, and the most that the key can have had before: of a full set the least gives way.
    fn make_room(&mut self, set: usize) -> (usize, Amount) {
        if let Some(free) = (set..set + WAYS).find(|&place| self.tags[place] == 0) {
            return (free, Amount::default());
        }
        let (place, at_most) = self.least(set);
        let gone = self.rows[place];
        self.others.add(gone.amount);
        self.others_flows += gone.flows;
        self.missing = self.missing.max(at_most);
        (place, at_most)
    }

    /// The place of a full set whose key can have had least, and the most that it can have had.
    fn least(&self, set: usize) -> (usize, Amount) {
        let at_most = |place: usize| {
            let mut at_most = self.rows[place].amount;
            at_most.add(self.rows[place].error);
            (place, at_most)
        };
        let places = (set..set + WAYS).map(at_most);
        places.min_by_key(|(_, at_most)| (at_most.bytes, at_most.packets)).unwrap_or_default()
    }

    /// All rows so far, in no order, and begins anew.
    pub fn take(&mut self) -> Table {
        let used = self.tags.iter_mut().zip(&self.rows).filter(|(tag, _)| **tag != 0);
        let rows = used.map(|(tag, row)| {
            *tag = 0;
            *row
        });
        Table {
            rows: rows.collect(),
            others: std::mem::take(&mut self.others),
            others_flows: std::mem::take(&mut self.others_flows),
            missing: std::mem::take(&mut self.missing),
        }
    }
}

/// A hash of a key, by multiplying its words into each other.
fn hash(key: &Key, seed: u64) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    key.0.iter().fold(seed, |hash, word| {
        let product = u128::from(hash ^ word) * u128::from(ODD ^ seed | 1);
        (product >> 64) as u64 ^ product as u64 ^ ODD
    })
}

/// The greatest keys of all dimensions.
#[derive(Debug)]
pub struct Rankings {
    of: [Ranking; Dimension::ALL.len()],
}

impl Default for Rankings {
    fn default() -> Rankings {
        let random = RandomState::new();
        Rankings { of: Dimension::ALL.map(|dimension| Ranking::new(random.hash_one(dimension))) }
    }
}

impl Rankings {
    /// Adds the packets of a flow to all dimensions.
    pub fn add(&mut self, change: &FlowChange) {
        let [from, to] = &change.endpoints;
        let amount = Amount { packets: change.packets(), bytes: change.bytes() };
        let sent = amount_of(from);
        let received = amount_of(to);
        let keys = ChangeKeys::of(change);
        let whole = |first: Amount| Part { amount, first, ..Part::default() };
        let swapped = |(key, is_swapped): (Key, bool)| (key, whole(if is_swapped { received } else { sent }));
        for (dimension, (key, part)) in [
            (Dimension::Pair, swapped(keys.pair)),
            (Dimension::Service, swapped(keys.service)),
            (Dimension::Name, (keys.name, whole(sent))),
            (Dimension::Segment, (keys.segment, whole(sent))),
            (Dimension::Interface, (keys.interface, whole(sent))),
            (Dimension::Flow, (keys.flow, of_flow(change, whole(sent)))),
        ] {
            self.of[dimension as usize].add_part(key, &part);
        }
        for (side, other, amount) in [(from, to, sent), (to, from, received)] {
            if amount.packets > 0 {
                let part = Part { amount, ..Part::default() };
                self.of[Dimension::HostOut as usize].add_part(Key::host(side.address), &part);
                self.of[Dimension::HostIn as usize].add_part(Key::host(other.address), &part);
            }
        }
    }

    /// The tables so far, and begins anew.
    pub fn take(&mut self) -> Tables {
        std::array::from_fn(|at| self.of[at].take())
    }
}

fn amount_of(side: &Endpoint) -> Amount {
    Amount { packets: side.packets, bytes: side.bytes }
}

/// What a row of a flow has besides.
fn of_flow(change: &FlowChange, part: Part) -> Part {
    let [from, to] = &change.endpoints;
    let end = change.end_reason.map_or(0, |reason| reason as u64);
    let words = [change.application.unwrap_or_default(), change.name.as_deref().unwrap_or_default()];
    let name =
        if words.iter().all(|word| word.is_empty()) { Key::default() } else { Key::name(&words.join(" ")) };
    Part {
        name,
        began_ns: change.began.as_nanos(),
        state: u64::from(from.tcp_flags) | u64::from(to.tcp_flags) << 8 | end << 16,
        ..part
    }
}
