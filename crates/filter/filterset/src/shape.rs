//! Alternatives of filters that look at the same bits: their table, and their common requirements.

use std::sync::Arc;

use tapline_packet::Packet;

use crate::field::BitField;
use crate::layout::{Layout, WORDS_MAX};
use crate::matches::{self, Probe};
use crate::plan::{Guard, NUMBERS_MAX};
use crate::table::Table;
use crate::{Slot, filter};

/// Maximum number of entries of a table that the plan holds in its place: the plan is rebuilt with each change of
/// them.
const PLANNED_MAX: usize = 1024;

/// All alternatives that look at the same bits.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) layout: Arc<Layout>,
    pub(super) table: Table,
    /// The conditions that all entries share; set with the first one, weakened by others.
    pub(super) guards: Option<Vec<Guard>>,
    pub(super) entries: usize,
}

/// An entry of a table: the index of the filter, the alternative, and whether a check is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) alternative: u8,
    /// The key is all.
    pub(super) settled: bool,
    /// Nothing of the alternative is in the key.
    pub(super) unseen: bool,
}

impl Entry {
    fn number(self) -> u64 {
        u64::from(self.slot)
            | u64::from(self.alternative) << 32
            | u64::from(self.settled) << 40
            | u64::from(self.unseen) << 41
    }

    #[inline]
    pub(super) fn of(number: u64) -> Entry {
        Entry {
            slot: number as u32,
            alternative: (number >> 32) as u8,
            settled: number >> 40 & 1 != 0,
            unseen: number >> 41 & 1 != 0,
        }
    }

    /// The range that is left to check, if a range is all that is left.
    pub(super) fn bounds(self, slots: &[Slot]) -> Option<(BitField, filter::Bounds)> {
        let filter = slots[self.slot as usize].filter.as_ref().filter(|_| !self.unseen)?;
        filter.alternatives[usize::from(self.alternative)].bounds()
    }
}

impl Shape {
    /// Adds an alternative. Says whether the plan changes with it.
    pub(super) fn file(&mut self, entry: Entry, alternative: &filter::Alternative) -> bool {
        let was_planned = self.is_planned();
        let changes_guards = self.file_in_table(entry, alternative);
        changes_guards || was_planned || self.is_planned()
    }

    /// Returns whether the guards change with it.
    fn file_in_table(&mut self, entry: Entry, alternative: &filter::Alternative) -> bool {
        let number = entry.number();
        if entry.unseen {
            self.table.insert(&[], number);
        } else {
            alternative.keys().for_each(|key| self.table.insert(key, number));
        }
        self.entries += 1;
        let Some(guards) = &mut self.guards else {
            let few =
                alternative.numbers().filter(|(_, numbers)| numbers.len() <= NUMBERS_MAX && !entry.unseen);
            self.guards =
                Some(few.map(|(part, numbers)| Guard { part, numbers: numbers.to_vec() }).collect());
            return true;
        };
        let before = guards.len();
        if entry.unseen {
            guards.clear();
        }
        let mut wider = false;
        guards.retain_mut(|guard| match alternative.numbers().find(|(part, _)| *part == guard.part) {
            Some((_, numbers)) => guard.widen(numbers, &mut wider),
            None => false,
        });
        wider || guards.len() != before
    }

    /// Takes an alternative out. Says whether the plan changes with it.
    pub(super) fn unfile(&mut self, entry: Entry, alternative: &filter::Alternative) -> bool {
        let number = entry.number();
        if entry.unseen {
            self.table.remove(&[], number);
        } else {
            alternative.keys().for_each(|key| self.table.remove(key, number));
        }
        self.entries -= 1;
        self.is_planned()
    }

    /// Whether the plan asks for all that the key is made of, and holds the entries.
    pub(super) fn is_planned(&self) -> bool {
        let is_covered =
            |guards: &Vec<Guard>| self.layout.is_covered_by(guards.iter().map(|guard| guard.part));
        self.entries <= PLANNED_MAX && self.guards.as_ref().is_some_and(is_covered)
    }

    /// The entries under these values of the parts.
    pub(super) fn entries_of(&self, values: &[(BitField, u32)]) -> impl Iterator<Item = Entry> {
        let key = self.layout.key(values);
        let found = key.map_or(&[][..], |key| {
            let key = &key[..self.layout.words()];
            self.table.find(self.table.hash(key), key)
        });
        found.iter().map(|number| Entry::of(Table::number(*number)))
    }

    /// Notes the lookup of a packet, if its bytes are there.
    #[inline]
    pub(super) fn probe(&self, packet: Packet<'_>, index: usize, shape: u16, scratch: &mut matches::Scratch) {
        let mut key = [0; WORDS_MAX];
        if self.layout.read(packet, &mut key).is_some() {
            let key = &key[..self.layout.words()];
            let hash = self.table.hash(key);
            if !self.table.may_have(hash) {
                return;
            }
            let probe = Probe { hash, key: scratch.keys.len() as u32, shape, packet: index as u8 };
            scratch.probes.push(probe);
            scratch.keys.extend_from_slice(key);
        }
    }
}
