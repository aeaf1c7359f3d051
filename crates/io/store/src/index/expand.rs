//! From flows to keys: each key with the slots of all flows that have it, within the budget.
//!
//! ```text
//! flows --> key: slots of one flow, shared, or of several, joined
//! too long?  pairs and flows go from the slots that cost the most, then from all; then high ports, addresses, everything
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Builder;
use super::builder::Flows;
use super::slots::{Slots, count, each, encode, words};
use crate::keys::{Group, OpenKeys, WAYS, WAYS_ALL, open_key};

/// Bytes of a key in the file: the key, its set's number, its part of the buckets.
const KEY_COST: f64 = 6.5;
/// In which order the budget gives groups up.
const ORDER: [Group; 4] = [Group::Flows, Group::Ports, Group::Addresses, Group::Kinds];
/// All groups, by their numbers.
const GROUPS: [Group; 4] = [Group::Kinds, Group::Addresses, Group::Ports, Group::Flows];

/// Keys by number, and the sets that they refer to.
pub(super) struct Draft {
    /// Each key, ascending, and its set: a slot, or the number of slots and up.
    pub(super) keys: Vec<(u64, u32)>,
    /// Where each set begins in `bytes`; the top bit says that it is a bit set.
    pub(super) starts: Vec<u32>,
    pub(super) bytes: Vec<u8>,
    /// Slots that are open, by [`OpenKeys`].
    pub(super) open: [Slots; WAYS],
}

impl Draft {
    /// Approximate length of the file in bytes, without the parts that do not depend on keys.
    fn len(&self) -> usize {
        (self.keys.len() as f64 * KEY_COST) as usize + self.starts.len() * 4 + self.bytes.len()
    }
}

/// Makes the keys of a segment of which `slots` are used, in at most about `budget` bytes.
pub(super) fn expand(builder: &mut Builder, slots: u32, budget: usize) -> Draft {
    builder.flows.settle();
    let mut expansion = Expansion::new(builder, slots);
    let mut draft = expansion.draft();
    for group in ORDER {
        if draft.len() <= budget {
            break;
        }
        // Where that is not enough the group goes from all slots: a set that has lost some of its slots need not be
        // shorter.
        expansion.shed_costliest(group, draft.len() - budget);
        draft = expansion.draft();
        if draft.len() > budget {
            expansion.shed(group, 0..slots);
            draft = expansion.draft();
        }
    }
    draft
}

/// A key's set: of a flow, or one that was joined of several.
#[derive(Clone, Copy)]
enum Source {
    Flow(u32),
    Joined(u32),
}

/// Sets of slots of flows, and of several flows together.
struct Sets<'a> {
    flows: &'a Flows,
    /// Words of a set that the used slots take: of a segment that is not full the others are empty.
    len: usize,
    joined: Vec<u64>,
}

impl Sets<'_> {
    fn words(&self, source: Source) -> &[u64] {
        match source {
            Source::Flow(flow) => &self.flows.set(flow as usize)[..self.len],
            Source::Joined(at) => &self.joined[at as usize * self.len..][..self.len],
        }
    }

    /// Adds the slots of a flow to a set.
    fn join(&mut self, source: &mut Source, flow: usize) {
        let (flows, len) = (self.flows, self.len);
        let more = &flows.set(flow)[..len];
        match *source {
            Source::Flow(first) => {
                let words = &flows.set(first as usize)[..len];
                if words == more {
                    return;
                }
                let at = self.joined.len() / len;
                self.joined.extend(words.iter().zip(more).map(|(one, other)| one | other));
                *source = Source::Joined(at as u32);
            }
            Source::Joined(at) => {
                let words = &mut self.joined[at as usize * len..][..len];
                words.iter_mut().zip(more).for_each(|(one, other)| *one |= other);
            }
        }
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct Through(u64);

impl Hasher for Through {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        // The upper bits are a key's group, which a table would see first.
        self.0 = number.rotate_left(23);
    }
}

type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Through>>;

/// All keys of a segment, without those that the budget dropped.
struct Expansion<'a> {
    sets: Sets<'a>,
    /// By key, ascending.
    sources: Vec<(u64, Source)>,
    slots: u32,
    open: [Slots; WAYS],
}

impl Expansion<'_> {
    fn new(builder: &Builder, slots: u32) -> Expansion<'_> {
        let flows = &builder.flows;
        let mut sets = Sets { flows, len: words(slots).max(1), joined: Vec::new() };
        let mut by_key: ByNumber<Source> =
            HashMap::with_capacity_and_hasher(flows.keys_len() / 2, Default::default());
        for flow in 0..flows.len() {
            for &key in flows.keys(flow) {
                let source = by_key.entry(key).or_insert(Source::Flow(flow as u32));
                sets.join(source, flow);
            }
        }
        let mut open = builder.open.clone();
        for way in [OpenKeys::All, OpenKeys::Inner, OpenKeys::Names] {
            // Packets say so by a key.
            if let Some(source) = by_key.remove(&open_key(way)) {
                each(sets.words(source)).for_each(|slot| open[way as usize].insert(slot));
            }
        }
        let mut sources: Vec<_> = by_key.into_iter().collect();
        sources.sort_unstable_by_key(|(key, _)| *key);
        Expansion { sets, sources, slots, open }
    }

    /// The keys without those of open slots: such a slot is read for every question.
    fn draft(&self) -> Draft {
        let mut draft = Draft {
            keys: Vec::with_capacity(self.sources.len()),
            starts: Vec::new(),
            bytes: Vec::new(),
            open: self.open.clone(),
        };
        let mut known: ByNumber<u32> = HashMap::default();
        let mut words = vec![0; self.sets.len];
        let kept = GROUPS.map(|group| self.kept(group));
        for &(key, source) in &self.sources {
            let kept = &kept[Group::of(key) as usize];
            // A group that no slot keeps: its sets, which are far away in memory, are not looked at.
            if kept.iter().all(|word| *word == 0) {
                continue;
            }
            self.keep(source, kept, &mut words);
            let number = match count(&words) {
                0 => continue,
                1 => each(&words).next().unwrap_or(0),
                _ => draft.number(&words, self.slots, &mut known),
            };
            draft.keys.push((key, number));
        }
        for (way, slots) in WAYS_ALL.into_iter().zip(&self.open) {
            // Of all or none the head says enough.
            if (1..self.slots).contains(&slots.count()) {
                let words = &slots.words()[..self.sets.len];
                let number = draft.number(words, self.slots, &mut known);
                let key = open_key(way);
                let at = draft.keys.partition_point(|(before, _)| *before < key);
                draft.keys.insert(at, (key, number));
            }
        }
        draft
    }

    /// The used slots in which keys of a group are kept: those that are not open.
    fn kept(&self, group: Group) -> Vec<u64> {
        let (way, all) = (&self.open[group.way() as usize], &self.open[OpenKeys::All as usize]);
        let used = Slots::all(self.slots);
        let words = used.words().iter().zip(way.words()).zip(all.words());
        words.map(|((used, way), all)| used & !way & !all).chain([0]).take(self.sets.len).collect()
    }

    /// The slots of a key's set that are kept.
    fn keep(&self, source: Source, kept: &[u64], words: &mut [u64]) {
        for ((word, set), kept) in words.iter_mut().zip(self.sets.words(source)).zip(kept) {
            *word = set & kept;
        }
    }

    fn shed(&mut self, group: Group, slots: impl IntoIterator<Item = u32>) {
        let open = &mut self.open[group.way() as usize];
        slots.into_iter().for_each(|slot| open.insert(slot));
    }

    /// Drops a group in as many slots as have `excess` bytes of it, those with the most first.
    fn shed_costliest(&mut self, group: Group, excess: usize) {
        let costs = self.costs(group);
        let mut by_cost: Vec<u32> = (0..self.slots).filter(|slot| costs[*slot as usize] > 0.0).collect();
        by_cost.sort_unstable_by(|one, other| costs[*other as usize].total_cmp(&costs[*one as usize]));
        let mut left = excess as f64 * 1.05;
        let enough = by_cost.iter().take_while(|slot| {
            let is_needed = left > 0.0;
            left -= costs[**slot as usize];
            is_needed
        });
        let slots: Vec<u32> = enough.copied().collect();
        self.shed(group, slots);
    }

    /// Bytes that the keys of a group cost in each slot. A key's bytes are divided among its slots.
    fn costs(&self, group: Group) -> Vec<f64> {
        let mut costs = vec![0.0; self.sets.len * 64];
        let mut words = vec![0; self.sets.len];
        let kept = self.kept(group);
        for &(_, source) in self.sources.iter().filter(|(key, _)| Group::of(*key) == group) {
            self.keep(source, &kept, &mut words);
            let slots = count(&words);
            if slots > 0 {
                each(&words).for_each(|slot| costs[slot as usize] += KEY_COST / f64::from(slots));
            }
        }
        costs
    }
}

impl Draft {
    /// The number of a set, the one that it has already if there is an equal one.
    fn number(&mut self, words: &[u64], slots: u32, known: &mut ByNumber<u32>) -> u32 {
        let hash = words.iter().fold(0_u64, |hash, word| {
            let product = u128::from(hash ^ word ^ 0x243f_6a88_85a3_08d3) * 0x1319_8a2e_0370_7345;
            product as u64 ^ (product >> 64) as u64
        });
        let from = self.bytes.len();
        let is_bit_set = encode(words, slots, &mut self.bytes);
        if let Some(&number) = known.get(&hash)
            && self.is_equal(number, from, is_bit_set)
        {
            self.bytes.truncate(from);
            return number + slots;
        }
        let number = self.starts.len() as u32;
        self.starts.push(from as u32 | u32::from(is_bit_set) << 31);
        known.insert(hash, number);
        number + slots
    }

    /// Whether a set is the same as the one whose bytes begin at `from`.
    fn is_equal(&self, number: u32, from: usize, is_bit_set: bool) -> bool {
        let start = |at: usize| self.starts.get(at).map_or(from, |start| (start & !(1 << 31)) as usize);
        let at = number as usize;
        self.starts[at] >> 31 == u32::from(is_bit_set)
            && self.bytes[start(at)..start(at + 1)] == self.bytes[from..]
    }
}
