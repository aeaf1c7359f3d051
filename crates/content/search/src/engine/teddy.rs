//! Few keys: a SIMD search for the next place where any of them occurs, then every key is tried at that place.
//!
//! ```text
//! haystack  . . . . . . a . . . .        leftmost-first: no key starts before a
//!           └─ next ────┘└─ next ───     at a: each key with that first byte is compared
//! ```
//!
//! The SIMD search reports matches that do not overlap, but its leftmost start is right: starting again one byte
//! behind it, nothing is missed and nothing is reported twice.

use super::{SearchEngine, Set};
use crate::Error;
use crate::keys::{Keys, Sink};
use aho_corasick::Span;
use aho_corasick::packed::{Config, MatchKind, Searcher};
use std::ops::ControlFlow;

#[derive(Debug)]
pub(crate) struct Teddy {
    searcher: Searcher,
}

impl Teddy {
    pub(crate) fn new(keys: &Keys) -> Result<Teddy, Error> {
        if keys.fold {
            return Err(SearchEngine::Teddy.unfit("it respects case: let no pattern ignore it"));
        }
        let searcher =
            Config::new().match_kind(MatchKind::LeftmostFirst).builder().extend(keys.iter()).build();
        let unfit =
            || SearchEngine::Teddy.unfit("it takes up to 64 patterns, on a processor with SSSE3 or NEON");
        Ok(Teddy { searcher: searcher.ok_or_else(unfit)? })
    }

    pub(crate) fn memory(&self) -> usize {
        self.searcher.memory_usage()
    }

    pub(crate) fn search(&self, set: &Set, haystack: &[u8], sink: Sink<'_>) -> ControlFlow<()> {
        let mut span = Span { start: 0, end: haystack.len() };
        while let Some(found) = self.searcher.find_in(haystack, span) {
            let start = found.start();
            for key in with_first_byte(&set.keys, haystack[start]) {
                if set.keys.is_at(key, haystack, start) {
                    set.report(key, haystack, start, sink)?;
                }
            }
            span.start = start + 1;
        }
        ControlFlow::Continue(())
    }
}

/// Keys are sorted, so those that begin alike are neighbours.
fn with_first_byte(keys: &Keys, byte: u8) -> impl Iterator<Item = usize> + '_ {
    (0..keys.len())
        .skip_while(move |key| keys.bytes(*key)[0] < byte)
        .take_while(move |key| keys.bytes(*key)[0] == byte)
}
