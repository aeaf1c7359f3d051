//! The second step: finds the keys that have the piece that a lookup hit, and checks whether they occur there.
//!
//! ```text
//! piece ──hash──► slot ──starts──► entries of the slot: (piece, key, offset of the piece in the key)
//! ```

use super::super::Set;
use super::shape::Shape;
use crate::keys::{Keys, Sink};
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

/// Windows that are tried in a long key.
const WINDOWS_MAX: usize = 64;

/// All pieces of a tier.
#[derive(Debug)]
pub(crate) struct Pieces {
    mask: u64,
    /// 0x20 in each byte of a piece if letters are folded.
    fold: u64,
    shift: u32,
    /// The start of each slot's entries; one more than there are slots.
    starts: Vec<u32>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    gram: u64,
    key: u32,
    /// Offset of the piece in the key.
    offset: u16,
}

/// Work that lookups may still do on this haystack, in comparisons of 32 bytes.
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) fn for_bytes(len: usize) -> Budget {
        Budget(256 + len / 2)
    }
}

impl Pieces {
    /// The pieces of `members`, and the offset of each one's window.
    pub(crate) fn new(keys: &Keys, shape: Shape, members: &[usize]) -> (Pieces, Vec<u16>) {
        let mask = shape.mask();
        let fold = if keys.fold { 0x2020_2020_2020_2020 & mask } else { 0 };
        let mut pieces = Pieces { mask, fold, shift: 0, starts: Vec::new(), entries: Vec::new() };
        let mut crowd = Crowd::default();
        let mut offsets = Vec::with_capacity(members.len());
        for key in members {
            let grams = pieces.grams_of(keys.bytes(*key), shape);
            let offset = crowd.best_window(&grams, shape);
            for (index, gram) in grams.iter().enumerate().skip(offset).take(usize::from(shape.stride)) {
                crowd.add(*gram);
                pieces.entries.push(Entry { gram: *gram, key: *key as u32, offset: index as u16 });
            }
            offsets.push(offset as u16);
        }
        pieces.index();
        (pieces, offsets)
    }

    /// All pieces of the part of a key where its window may be.
    fn grams_of(&self, key: &[u8], shape: Shape) -> Vec<u64> {
        let last = (WINDOWS_MAX + usize::from(shape.stride)).min(key.len() + 1 - usize::from(shape.q));
        (0..last).filter_map(|at| self.gram(key, at)).collect()
    }

    /// Sorts the entries by slot.
    fn index(&mut self) {
        let slots = (self.entries.len() * 2).next_power_of_two().max(2);
        self.shift = 64 - slots.trailing_zeros();
        let shift = self.shift;
        self.entries
            .sort_unstable_by_key(|entry| (slot(entry.gram, shift), entry.gram, entry.key, entry.offset));
        self.starts = vec![0; slots + 1];
        for entry in &self.entries {
            self.starts[slot(entry.gram, shift) + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
    }

    /// Each piece, folded, as often as it occurs.
    pub(crate) fn grams(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.entries.iter().map(|entry| entry.gram)
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.entries)
    }

    /// The piece at `at`, folded; none if it would pass the end.
    #[inline]
    fn gram(&self, bytes: &[u8], at: usize) -> Option<u64> {
        if let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            return Some(u64::from_le_bytes(*eight) & self.mask | self.fold);
        }
        let mut eight = [0; 8];
        let rest = bytes.get(at..)?;
        eight[..rest.len()].copy_from_slice(rest);
        let is_whole = rest.len() >= self.mask.count_ones() as usize / 8;
        is_whole.then(|| u64::from_le_bytes(eight) & self.mask | self.fold)
    }

    fn slot_entries(&self, gram: u64) -> Range<usize> {
        let slot = slot(gram, self.shift);
        self.starts[slot] as usize..self.starts[slot + 1] as usize
    }

    /// Takes the cost of the entries at a lookup from the budget, or says that it does not suffice.
    #[inline]
    pub(crate) fn afford(&self, keys: &Keys, haystack: &[u8], lookup: usize, budget: &mut Budget) -> bool {
        let Some(gram) = self.gram(haystack, lookup) else { return true };
        let entries = &self.entries[self.slot_entries(gram)];
        let mut cost = entries.len();
        if cost > budget.0 {
            return false;
        }
        let with_gram = entries.iter().filter(|entry| entry.gram == gram);
        cost += with_gram.map(|entry| keys.bytes(entry.key as usize).len() / 32).sum::<usize>();
        let rest = budget.0.checked_sub(cost);
        budget.0 = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Reports the keys that have the piece at `lookup` and occur there.
    #[inline]
    pub(crate) fn verify(
        &self,
        set: &Set,
        haystack: &[u8],
        lookup: usize,
        sink: Sink<'_>,
    ) -> ControlFlow<()> {
        let Some(gram) = self.gram(haystack, lookup) else { return ControlFlow::Continue(()) };
        for entry in &self.entries[self.slot_entries(gram)] {
            if entry.gram != gram {
                continue;
            }
            let Some(start) = lookup.checked_sub(usize::from(entry.offset)) else { continue };
            if set.keys.is_at(entry.key as usize, haystack, start) {
                set.report(entry.key as usize, haystack, start, sink)?;
            }
        }
        ControlFlow::Continue(())
    }
}

#[inline]
fn slot(gram: u64, shift: u32) -> usize {
    (gram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}

/// Number of keys that use each piece so far.
#[derive(Default)]
struct Crowd(HashMap<u64, u32>);

impl Crowd {
    fn add(&mut self, gram: u64) {
        *self.0.entry(gram).or_default() += 1;
    }

    /// The window whose pieces cost least: rare in traffic, and used by few other keys.
    fn best_window(&self, grams: &[u64], shape: Shape) -> usize {
        let stride = usize::from(shape.stride);
        let costs: Vec<f32> = grams.iter().map(|gram| self.cost(*gram, shape)).collect();
        let windows = costs.windows(stride).map(|window| window.iter().sum::<f32>());
        windows.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(offset, _)| offset)
    }

    fn cost(&self, gram: u64, shape: Shape) -> f32 {
        let users = self.0.get(&gram).copied().unwrap_or(0);
        let bytes = &gram.to_le_bytes()[..usize::from(shape.q)];
        let probability: f32 = bytes.iter().map(|byte| frequency(*byte)).product();
        // Not zero for the rarest: someone may send just that piece.
        (probability + 1e-7) * (1 + users) as f32
    }
}

/// The rough frequency of a byte in traffic that is half text and half arbitrary bytes.
fn frequency(byte: u8) -> f32 {
    match byte.to_ascii_lowercase() {
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b' ' => 0.05,
        0 => 0.03,
        b'a'..=b'z' => 0.015,
        b'0'..=b'9' | b'/' | b'.' | b'-' | b'=' | b'\r' | b'\n' => 0.008,
        0xff => 0.01,
        _ => 0.003,
    }
}
