//! Sets of filters: one pass gives each packet those that match.
//!
//! ```text
//!                  plan.rs          layout.rs    table.rs
//! packet --------> which tables? -> key ------> entries ----> check the rest ----> Matches
//!                                                  ^
//! Filter: alternatives -> keys of a layout --------+    (disjunct.rs, needs.rs, filter.rs)
//! ```
//!
//! Filters that look at the same bits and differ in their constants share a table: one lookup, however many they are.
//! A part that several tables compare is read once (`plan.rs`). Conditions other than equality to constants are
//! checked on the packets that a lookup found, by the filter's own program if need be. So the answer for each filter
//! is the one that its program gives when it is run alone.
//!
//! ```
//! use tapline_filter::Options;
//! use tapline_filterset::{Filter, FilterSet, Matches, MatchPolicy};
//! use tapline_packet::{Batch, Meta, Record, Selection};
//!
//! let mut set = FilterSet::new(MatchPolicy::All);
//! let arp = set.insert(Filter::compile("arp", &Options::default())?, 0);
//! let long = set.insert(Filter::compile("greater 40", &Options::default())?, 0);
//!
//! let frame = [[0xff; 12].as_slice(), &[0x08, 0x06], &[0; 28]].concat();
//! let meta = Meta { wire_len: 42, ..Meta::default() };
//! let records = [Record { cap_len: 42, meta, ..Record::default() }];
//! let (mut selection, mut matches) = (Selection::none(), Matches::new());
//! selection.select_all(1);
//!
//! set.classify(&Batch::new(&frame, &records), &selection, &mut matches);
//! assert_eq!(matches.of(0), [arp.index(), long.index()]);
//! set.remove(arp)?;
//! set.classify(&Batch::new(&frame, &records), &selection, &mut matches);
//! assert_eq!(matches.of(0), [long.index()]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod broad;
mod condition;
mod disjunct;
mod field;
mod filter;
mod five_tuple;
mod fragments;
mod layout;
mod matches;
mod needs;
mod pattern;
mod plan;
mod replica;
mod shape;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use tapline_packet::{Batch, LinkType, Packet, Selection};

pub use filter::{Constant, ConstantError, Filter, FilterFactory, interpreted};
pub use five_tuple::FiveTuples;
pub use fragments::{FragmentCounts, FragmentLimits, FragmentOutcome, LateReport};
pub use matches::Matches;
pub use pattern::{HeaderPattern, PatternError};
pub use replica::{LAG_MAX, Replica, SetUpdater};
pub use tapline_packet::FiveTuple;

use fragments::Fragments;
use layout::Layout;
use matches::Probe;
use plan::{Plan, Step, Tables};
use shape::{Entry, Shape};
use table::Table;

/// The most layouts in a set. Alternatives beyond are evaluated one by one, on each packet;
/// [`FilterSet::unmerged_count`] counts them.
pub const LAYOUTS_MAX: usize = 256;

/// Lookups that are gathered before they are made, so that they wait for memory together.
const PROBES_AT_ONCE: usize = 64;

/// The matching filters of a packet that are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// All matching filters.
    #[default]
    All,
    /// The one with the least priority number; among equals the one that was inserted first.
    First,
}

/// A filter's place in its set. It stays the same when the filter is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterId {
    index: u32,
    generation: u32,
}

impl FilterId {
    /// A small number, unique among the filters of the set: for arrays indexed by filter. It is used again after the
    /// filter is removed.
    pub fn index(self) -> u32 {
        self.index
    }
}

/// Reason for which a set was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The filter was removed before, or is of another set.
    #[error("no filter with this id is in the set")]
    NoSuchFilter,
    /// The place of IP headers on this link type is not known.
    #[error("fragments cannot be followed on link type {0:?}")]
    FragmentsOn(LinkType),
    /// The constants of the filter cannot be exchanged.
    #[error(transparent)]
    ConstantError(#[from] ConstantError),
}

/// Many filters, evaluated in one pass. See the [module](self) for how.
#[derive(Debug)]
pub struct FilterSet {
    mode: MatchPolicy,
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
    inserted: u64,
    unmerged: usize,
    shapes: Vec<Option<Shape>>,
    by_layout: HashMap<Arc<Layout>, u16>,
    plan: Plan,
    plan_is_old: bool,
    /// Tables that lost their last entry, to be removed unless the same change fills them again.
    emptied: Vec<u16>,
    fragments: Option<Fragments>,
}

/// A place for a filter.
#[derive(Debug)]
struct Slot {
    generation: u32,
    priority: u32,
    /// The number of the insertion.
    order: u64,
    filter: Option<Arc<Filter>>,
    /// The tables that hold each alternative.
    shapes: Vec<u16>,
}

const _: () = assert!(disjunct::DISJUNCTS_MAX <= 1 << 8, "an alternative's number is a byte");

impl FilterSet {
    /// A set without filters.
    pub fn new(mode: MatchPolicy) -> FilterSet {
        FilterSet {
            mode,
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
            inserted: 0,
            unmerged: 0,
            shapes: Vec::new(),
            by_layout: HashMap::new(),
            plan: Plan::default(),
            plan_is_old: false,
            emptied: Vec::new(),
            fragments: None,
        }
    }

    /// Number of filters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of tables, one for each layout of fields. The cost of a packet grows with it.
    pub fn table_count(&self) -> usize {
        self.shapes.iter().flatten().count()
    }

    /// Number of alternatives that are evaluated on every packet, because [`LAYOUTS_MAX`] was reached.
    pub fn unmerged_count(&self) -> usize {
        self.unmerged
    }

    /// The filter with an id.
    pub fn get(&self, id: FilterId) -> Option<&Arc<Filter>> {
        self.slot(id).ok().and_then(|slot| slot.filter.as_ref())
    }

    /// The id of the filter that has this index now.
    pub fn id(&self, index: u32) -> Option<FilterId> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.filter.is_some())?;
        Some(FilterId { index, generation: slot.generation })
    }

    /// Adds a filter. `priority` counts under [`MatchPolicy::First`] only: the least number wins.
    ///
    /// Takes time in proportion to the filter's alternatives and their constants, not to the set. When a layout
    /// appears or vanishes the plan is rebuilt, in proportion to the number of layouts.
    pub fn insert(&mut self, filter: impl Into<Arc<Filter>>, priority: u32) -> FilterId {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            let shapes = Vec::new();
            self.slots.push(Slot { generation: 0, priority: 0, order: 0, filter: None, shapes });
        }
        self.inserted += 1;
        self.len += 1;
        let slot = &mut self.slots[index as usize];
        (slot.priority, slot.order) = (priority, self.inserted);
        let generation = slot.generation;
        self.file(index, filter.into());
        self.finish_plan();
        FilterId { index, generation }
    }

    /// Removes a filter and returns it.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn remove(&mut self, id: FilterId) -> Result<Arc<Filter>, SetError> {
        self.slot(id)?;
        let filter = self.unfile(id.index).ok_or(SetError::NoSuchFilter)?;
        self.slots[id.index as usize].generation += 1;
        self.free.push(id.index);
        self.len -= 1;
        self.finish_plan();
        Ok(filter)
    }

    /// Replaces a filter by another one with the same id and priority, and returns the old one.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn replace(&mut self, id: FilterId, filter: impl Into<Arc<Filter>>) -> Result<Arc<Filter>, SetError> {
        self.slot(id)?;
        let old = self.unfile(id.index).ok_or(SetError::NoSuchFilter)?;
        self.file(id.index, filter.into());
        self.finish_plan();
        Ok(old)
    }

    /// Changes constants of a filter: pairs of an index in [`Filter::constants`] and the new number. No compiler
    /// runs.
    ///
    /// # Errors
    /// If the filter is not in the set, or its constants cannot be exchanged; it stays as it was.
    pub fn set_constants(&mut self, id: FilterId, changes: &[(usize, u32)]) -> Result<(), SetError> {
        let filter = self.slot(id)?.filter.as_ref().ok_or(SetError::NoSuchFilter)?;
        let filter = filter.with(changes)?;
        self.replace(id, filter).map(|_| ())
    }

    /// Writes the filters that match each selected packet to `matches`.
    ///
    /// No memory is allocated once `matches` has grown to the needs of the batches; there is no lock, and no system
    /// call.
    ///
    /// # Panics
    /// If `selection` holds an index that the batch does not have.
    pub fn classify(&mut self, batch: &Batch<'_>, selection: &Selection, matches: &mut Matches) {
        matches.clear();
        match self.fragments.take() {
            None => self.look_up(batch, selection.iter(), matches),
            Some(mut fragments) => {
                fragments.classify(self, batch, selection, matches);
                self.fragments = Some(fragments);
            }
        }
    }

    fn slot(&self, id: FilterId) -> Result<&Slot, SetError> {
        let slot = self.slots.get(id.index as usize);
        slot.filter(|slot| slot.generation == id.generation && slot.filter.is_some())
            .ok_or(SetError::NoSuchFilter)
    }

    /// Rebuilds the plan, if the change needs that: a change is complete when it returns.
    fn finish_plan(&mut self) {
        while let Some(at) = self.emptied.pop() {
            let place = &mut self.shapes[usize::from(at)];
            if let Some(shape) = place.take_if(|shape| shape.entries == 0) {
                self.by_layout.remove(&shape.layout);
                self.plan_is_old = true;
            }
        }
        if std::mem::take(&mut self.plan_is_old) {
            self.plan = Plan::new(Tables { shapes: &self.shapes, slots: &self.slots });
        }
    }

    /// Files the alternatives of a filter in a free slot.
    fn file(&mut self, index: u32, filter: Arc<Filter>) {
        let mut shapes = std::mem::take(&mut self.slots[index as usize].shapes);
        shapes.clear();
        for (number, alternative) in filter.alternatives.iter().enumerate() {
            let (shape, unseen) = self.shape_for(&alternative.layout);
            self.unmerged += usize::from(unseen);
            let settled = alternative.check.is_none() && !unseen;
            let entry = Entry { slot: index, alternative: number as u8, settled, unseen };
            if let Some(found) = &mut self.shapes[usize::from(shape)] {
                self.plan_is_old |= found.file(entry, alternative);
            }
            shapes.push(shape);
        }
        let slot = &mut self.slots[index as usize];
        (slot.filter, slot.shapes) = (Some(filter), shapes);
    }

    /// Empties a slot.
    fn unfile(&mut self, index: u32) -> Option<Arc<Filter>> {
        let slot = &mut self.slots[index as usize];
        let filter = slot.filter.take()?;
        for (number, (alternative, shape)) in filter.alternatives.iter().zip(&slot.shapes).enumerate() {
            let Some(found) = &mut self.shapes[usize::from(*shape)] else { continue };
            let unseen = found.layout != alternative.layout;
            self.unmerged -= usize::from(unseen);
            let settled = alternative.check.is_none() && !unseen;
            let entry = Entry { slot: index, alternative: number as u8, settled, unseen };
            self.plan_is_old |= found.unfile(entry, alternative);
            if found.entries == 0 {
                self.emptied.push(*shape);
            }
        }
        Some(filter)
    }

    /// The table for a layout; if there are too many, the one that every packet is looked up in.
    fn shape_for(&mut self, layout: &Arc<Layout>) -> (u16, bool) {
        if let Some(shape) = self.by_layout.get(layout) {
            return (*shape, false);
        }
        // The last one is for all that are too many.
        if self.by_layout.len() + 1 < LAYOUTS_MAX {
            return (self.new_shape(layout), false);
        }
        let all = Arc::new(Layout::default());
        let unseen = **layout != *all;
        match self.by_layout.get(&all) {
            Some(shape) => (*shape, unseen),
            None => (self.new_shape(&all), unseen),
        }
    }

    fn new_shape(&mut self, layout: &Arc<Layout>) -> u16 {
        let shape =
            Shape { layout: Arc::clone(layout), table: Table::new(layout.words()), guards: None, entries: 0 };
        let at = match self.shapes.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.shapes.push(None);
                self.shapes.len() - 1
            }
        };
        self.shapes[at] = Some(shape);
        self.by_layout.insert(Arc::clone(layout), at as u16);
        self.plan_is_old = true;
        at as u16
    }

    /// Looks packets up, without regard to fragments.
    fn look_up(&self, batch: &Batch<'_>, packets: impl Iterator<Item = usize>, matches: &mut Matches) {
        let mut scratch = std::mem::take(&mut matches.scratch);
        for index in packets {
            let (packet, mark, gathered) = (batch.packet(index), matches.mark(), scratch.probes.len());
            self.plan.walk(packet, |step| match step {
                Step::Found(slots) => slots.iter().for_each(|slot| matches.push(*slot)),
                Step::Candidates(entries) => self.ask(entries, packet, matches),
                Step::Table(shape) => {
                    if let Some(found) = &self.shapes[usize::from(shape)] {
                        found.probe(packet, index, shape, &mut scratch);
                    }
                }
            });
            if scratch.probes.len() == gathered {
                let len = self.settle(matches.since(mark));
                matches.finish(index, mark, len);
                continue;
            }
            scratch.found.extend(matches.since(mark).iter().map(|slot| (index as u8, *slot)));
            matches.finish(index, mark, 0);
            if scratch.probes.len() >= PROBES_AT_ONCE {
                self.make_probes(batch, &mut scratch, matches);
            }
        }
        self.make_probes(batch, &mut scratch, matches);
        matches.scratch = scratch;
    }

    /// Makes the gathered lookups; those of one packet are adjacent.
    fn make_probes(&self, batch: &Batch<'_>, scratch: &mut matches::Scratch, matches: &mut Matches) {
        self.touch(scratch);
        let mut found = scratch.found.iter().peekable();
        for probes in scratch.probes.chunk_by(|a, b| a.packet == b.packet) {
            let index = usize::from(probes[0].packet);
            let (packet, mark) = (batch.packet(index), matches.mark());
            while let Some((_, slot)) = found.next_if(|(packet, _)| *packet == probes[0].packet) {
                matches.push(*slot);
            }
            for probe in probes {
                self.make(*probe, &scratch.keys, packet, matches);
            }
            let len = self.settle(matches.since(mark));
            matches.finish(index, mark, len);
        }
        scratch.probes.clear();
        scratch.keys.clear();
        scratch.found.clear();
    }

    /// Reads the slots where lookups begin, so that the waits for memory overlap.
    fn touch(&self, scratch: &matches::Scratch) {
        let mut all = 0;
        for probe in &scratch.probes {
            if let Some(shape) = &self.shapes[usize::from(probe.shape)] {
                all ^= shape.table.touch(probe.hash);
            }
        }
        std::hint::black_box(all);
    }

    #[inline]
    fn make(&self, probe: Probe, keys: &[u64], packet: Packet<'_>, matches: &mut Matches) {
        let Some(shape) = &self.shapes[usize::from(probe.shape)] else { return };
        let key = &keys[probe.key as usize..][..shape.layout.words()];
        for number in shape.table.find(probe.hash, key) {
            let entry = Entry::of(Table::number(*number));
            if entry.settled || self.accepts(entry, packet) {
                matches.push(entry.slot);
            }
        }
    }

    #[inline(never)]
    fn ask(&self, entries: &[Entry], packet: Packet<'_>, matches: &mut Matches) {
        for entry in entries {
            if self.accepts(*entry, packet) {
                matches.push(entry.slot);
            }
        }
    }

    fn accepts(&self, entry: Entry, packet: Packet<'_>) -> bool {
        let Some(filter) = &self.slots[entry.slot as usize].filter else { return false };
        let alternative = &filter.alternatives[usize::from(entry.alternative)];
        let program = filter.program.as_deref();
        if entry.unseen {
            alternative.accepts_unseen(packet, program)
        } else {
            alternative.accepts(packet, program)
        }
    }

    /// Sorts the filters found for a packet; returns the number to be kept.
    #[inline]
    fn settle(&self, found: &mut [u32]) -> usize {
        if found.len() < 2 { found.len() } else { self.settle_several(found) }
    }

    fn settle_several(&self, found: &mut [u32]) -> usize {
        match (found.len(), self.mode) {
            (_, MatchPolicy::First) => {
                let first = found.iter().copied().min_by_key(|slot| {
                    let slot = &self.slots[*slot as usize];
                    (slot.priority, slot.order)
                });
                found[0] = first.unwrap_or(found[0]);
                1
            }
            (len, MatchPolicy::All) => {
                found.sort_unstable();
                let mut kept = 1;
                for read in 1..len {
                    found[kept] = found[read];
                    kept += usize::from(found[read] != found[kept - 1]);
                }
                kept
            }
        }
    }
}
