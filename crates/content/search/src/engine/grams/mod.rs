//! A table of the keys' pieces, looked up every few bytes: any set, fast where nothing matches.
//!
//! ```text
//! key        c o n t e n t - t y p e           a window of q + stride - 1 bytes is chosen where pieces are rare
//!                    └─t-typ─┘                 q = 4, stride = 3: its pieces are "t-ty", "-typ", "type"
//!
//! haystack   . . . . c o n t e n t - t y p e . .
//! lookups    0     3     6     9     12            every stride bytes: exactly one of them hits a piece of the window
//! ```
//!
//! 1. [`scan`]: at each lookup the hash of q bytes is tested against a table that fits the first or second cache.
//!    Lookups do not depend on each other, so they overlap in the processor; nothing branches on a hit.
//! 2. [`pieces`]: each hit is looked up exactly; each key that has this piece is compared with the haystack.
//!
//! An occurrence is found through one lookup only, so it is reported once and nothing is carried on between lookups.
//! Sets with short and long keys are split into up to three tiers, each with a shape (q, stride) of its own.
//!
//! The idea of looking up blocks of several bytes is that of Wu and Manber (1994), the one of testing small tables
//! without dependencies that of DFC (Choi et al., NSDI 2016); sampling the haystack instead of every byte is ours to
//! combine: all shifts of the window are in the table instead.
//!
//! **Hostile traffic.** A sender who knows the patterns can send pieces without matches. Work beyond a budget (half a
//! comparison a byte) hands the payload to the [`Automaton`], whose cost has a bound; matches reported before are not
//! repeated.

mod pieces;
mod scan;
mod shape;

use super::automaton::Automaton;
use super::{SearchEngine, Set};
use crate::Error;
use crate::keys::{Keys, Sink};
use pieces::{Budget, Pieces};
use scan::{Hits, Scan};
use shape::Shape;
use std::ops::ControlFlow;

pub(crate) use shape::cost;

#[derive(Debug)]
pub(crate) struct Grams {
    tiers: Vec<Tier>,
    /// The place of each key's window.
    places: Vec<WindowPosition>,
    fallback: Automaton,
}

/// Keys of similar length.
#[derive(Debug)]
struct Tier {
    shape: Shape,
    scan: Box<dyn Scan>,
    pieces: Pieces,
}

#[derive(Clone, Copy, Debug)]
struct WindowPosition {
    tier: u8,
    /// Offset of the window's first byte in the key.
    offset: u16,
}

/// A tier and a lookup in it that was not done any more.
struct Interrupted {
    tier: usize,
    lookup: usize,
}

impl Grams {
    pub(crate) fn new(keys: &Keys) -> Result<Grams, Error> {
        let mut grams = Grams { tiers: Vec::new(), places: Vec::new(), fallback: Automaton::new(keys)? };
        grams.places.resize(keys.len(), WindowPosition { tier: 0, offset: 0 });
        for (shape, members) in shape::tiers(keys) {
            let (pieces, offsets) = Pieces::new(keys, shape, &members);
            for (key, offset) in members.iter().zip(offsets) {
                grams.places[*key] = WindowPosition { tier: grams.tiers.len() as u8, offset };
            }
            let scan = scan::build(shape, keys.fold, pieces.grams()).ok_or_else(|| {
                SearchEngine::Grams
                    .unfit(format!("no scan for pieces of {} bytes every {}", shape.q, shape.stride))
            })?;
            grams.tiers.push(Tier { shape, scan, pieces });
        }
        Ok(grams)
    }

    pub(crate) fn memory(&self) -> usize {
        let tier = |tier: &Tier| tier.scan.memory() + tier.pieces.memory();
        self.tiers.iter().map(tier).sum::<usize>() + size_of_val(&*self.places) + self.fallback.memory()
    }

    pub(crate) fn search(&self, set: &Set, haystack: &[u8], sink: Sink<'_>) -> ControlFlow<()> {
        let mut hits = Hits::default();
        let mut budget = Budget::for_bytes(haystack.len());
        for (number, tier) in self.tiers.iter().enumerate() {
            let mut at = 0;
            while at < haystack.len() {
                let from = at;
                at = tier.scan.fill(haystack, from, &mut hits);
                for lookup in hits.iter().map(|hit| from + hit) {
                    if !tier.pieces.afford(&set.keys, haystack, lookup, &mut budget) {
                        let place = Interrupted { tier: number, lookup };
                        return self.finish(set, haystack, &place, sink);
                    }
                    tier.pieces.verify(set, haystack, lookup, sink)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Reports the matches that the lookups from `place` on would have found.
    #[cold]
    fn finish(&self, set: &Set, haystack: &[u8], place: &Interrupted, sink: Sink<'_>) -> ControlFlow<()> {
        self.fallback.search(&set.keys, haystack, |key, start| {
            if self.is_open(key, start, place) {
                set.report(key, haystack, start, sink)
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    /// Whether the lookup that finds `key` at `start` had not been done.
    fn is_open(&self, key: usize, start: usize, interrupted: &Interrupted) -> bool {
        let WindowPosition { tier, offset } = self.places[key];
        let stride = usize::from(self.tiers[usize::from(tier)].shape.stride);
        let lookup = (start + usize::from(offset)).next_multiple_of(stride);
        (usize::from(tier), lookup) >= (interrupted.tier, interrupted.lookup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Match, Pattern, find_all_naive};

    fn set(count: u32) -> Set {
        let bytes = |id: u32| [b"abcdef".as_slice(), &[b'0' + (id % 10) as u8]].concat();
        let patterns = |id: u32| Pattern::new(id, bytes(id));
        let patterns: Vec<Pattern> = (0..count).map(patterns).collect();
        Set { keys: Keys::new(&patterns), patterns }
    }

    fn runs_out(grams: &Grams, set: &Set, haystack: &[u8]) -> bool {
        let (tier, mut budget) = (&grams.tiers[0], Budget::for_bytes(haystack.len()));
        let mut lookups = (0..haystack.len()).step_by(usize::from(tier.shape.stride));
        lookups.any(|lookup| !tier.pieces.afford(&set.keys, haystack, lookup, &mut budget))
    }

    #[test]
    fn pieces_without_matches_use_the_budget_up() {
        let set = set(10);
        let grams = Grams::new(&set.keys).unwrap();
        let haystack = [b"abcdef3.".as_slice(), &b"abcdef.".repeat(400), b"abcdef7"].concat();
        assert!(runs_out(&grams, &set, &haystack));
        assert!(!runs_out(&grams, &set, &b"nothing of it. ".repeat(200)));
        let mut found: Vec<Match> = Vec::new();
        let _ = grams.search(&set, &haystack, &mut |each| {
            found.push(each);
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        assert_eq!(found, find_all_naive(&set.patterns, &haystack));
        assert_eq!(found.len(), 2);
    }
}
