//! The engines, and which one a set of patterns gets.
//!
//! ```text
//! one key, case kept ─► Single      up to 32, case kept ─► Teddy
//! else: cost of Grams by the keys' lengths < cost of Automaton ? Grams : Automaton
//! ```
//!
//! Every engine finds keys ([`Keys`](crate::keys::Keys)) and reports each occurrence once, in an order of its own.

mod automaton;
mod grams;
mod single;
mod teddy;

use crate::Error;
use crate::keys::{Keys, Sink};
use crate::pattern::Pattern;
use automaton::Automaton;
use grams::Grams;
use single::Single;
use std::ops::ControlFlow;
use teddy::Teddy;

/// The algorithm that searches a set. All give the same matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SearchEngine {
    /// memchr's `memmem`: one case-sensitive pattern.
    Single,
    /// aho-corasick's SIMD search: up to 64 case-sensitive patterns, on processors that have SSSE3 or NEON.
    Teddy,
    /// Our table of pieces: any set.
    Grams,
    /// An overlapping Aho-Corasick automaton: any set.
    Automaton,
}

impl SearchEngine {
    /// The name in messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            SearchEngine::Single => "memmem",
            SearchEngine::Teddy => "teddy",
            SearchEngine::Grams => "grams",
            SearchEngine::Automaton => "automaton",
        }
    }

    /// The error of an engine that cannot search a set.
    pub(crate) fn unfit(self, reason: impl Into<String>) -> Error {
        Error::Unfit { engine: self.name(), reason: reason.into() }
    }
}

impl std::fmt::Display for SearchEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Patterns and their keys: the data that an engine needs in addition to its own tables.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) keys: Keys,
}

impl Set {
    /// Reports a key that occurs at `start`.
    pub(crate) fn report(
        &self,
        key: usize,
        haystack: &[u8],
        start: usize,
        sink: Sink<'_>,
    ) -> ControlFlow<()> {
        self.keys.report(key, &self.patterns, haystack, start, sink)
    }
}

/// An engine with its tables.
#[derive(Debug)]
pub(crate) enum Searcher {
    Single(Single),
    Teddy(Teddy),
    Grams(Box<Grams>),
    Automaton(Automaton),
}

/// Up to here Teddy is faster than Grams (`docs/search.md`).
const TEDDY_MAX: usize = 32;

impl Searcher {
    /// The fastest engine for this set.
    pub(crate) fn choose(set: &Set) -> Result<Searcher, Error> {
        let (keys, keeps_case) = (&set.keys, !set.keys.fold);
        if keeps_case && keys.len() == 1 {
            return Searcher::new(SearchEngine::Single, set);
        }
        if keeps_case
            && keys.len() <= TEDDY_MAX
            && let Ok(teddy) = Searcher::new(SearchEngine::Teddy, set)
        {
            return Ok(teddy);
        }
        let engine = if grams::cost(keys) < automaton::cost(keys) {
            SearchEngine::Grams
        } else {
            SearchEngine::Automaton
        };
        Searcher::new(engine, set)
    }

    pub(crate) fn new(engine: SearchEngine, set: &Set) -> Result<Searcher, Error> {
        Ok(match engine {
            SearchEngine::Single => Searcher::Single(Single::new(&set.keys)?),
            SearchEngine::Teddy => Searcher::Teddy(Teddy::new(&set.keys)?),
            SearchEngine::Grams => Searcher::Grams(Box::new(Grams::new(&set.keys)?)),
            SearchEngine::Automaton => Searcher::Automaton(Automaton::new(&set.keys)?),
        })
    }

    pub(crate) fn engine(&self) -> SearchEngine {
        match self {
            Searcher::Single(_) => SearchEngine::Single,
            Searcher::Teddy(_) => SearchEngine::Teddy,
            Searcher::Grams(_) => SearchEngine::Grams,
            Searcher::Automaton(_) => SearchEngine::Automaton,
        }
    }

    /// Memory of the tables, in bytes, as far as it is known.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Searcher::Single(_) => 0,
            Searcher::Teddy(teddy) => teddy.memory(),
            Searcher::Grams(grams) => grams.memory(),
            Searcher::Automaton(automaton) => automaton.memory(),
        }
    }

    /// Reports every occurrence in `haystack`, in any order, until the sink ends it.
    pub(crate) fn search(&self, set: &Set, haystack: &[u8], sink: Sink<'_>) -> ControlFlow<()> {
        match self {
            Searcher::Single(single) => single.search(set, haystack, sink),
            Searcher::Teddy(teddy) => teddy.search(set, haystack, sink),
            Searcher::Grams(grams) => grams.search(set, haystack, sink),
            Searcher::Automaton(automaton) => {
                automaton.search(&set.keys, haystack, |key, start| set.report(key, haystack, start, sink))
            }
        }
    }
}
