//! A set of patterns, ready to search.

use crate::engine::{SearchEngine, Searcher, Set};
use crate::keys::Keys;
use crate::pattern::check;
use crate::{Error, Match, Pattern};
use std::ops::ControlFlow;

/// Thousands of patterns, searched at once. May be shared between threads.
///
/// All occurrences count, overlapping ones too; [`find_all_naive`](crate::find_all_naive) defines that.
///
/// ```
/// use tapline_search::{Pattern, Patterns};
/// let patterns = Patterns::new(vec![Pattern::nocase(1, "user-agent:"), Pattern::new(2, b"\x90\x90\x90\x90")])?;
/// let found = patterns.find(b"GET / HTTP/1.1\r\nUser-Agent: x\r\n").unwrap();
/// assert_eq!((found.id, found.start, found.end), (1, 16, 27));
/// # Ok::<(), tapline_search::Error>(())
/// ```
#[derive(Debug)]
pub struct Patterns {
    set: Set,
    searcher: Searcher,
    len_max: usize,
}

impl Patterns {
    /// A set with the engine that suits it.
    ///
    /// # Errors
    /// Limits that are passed, ids that occur twice, an empty pattern or none.
    pub fn new(patterns: Vec<Pattern>) -> Result<Patterns, Error> {
        Patterns::build(patterns, Searcher::choose)
    }

    /// A set with an engine of the caller's choice: for comparisons.
    ///
    /// # Errors
    /// As [`Patterns::new`], and [`Error::Unfit`] if that engine cannot search this set.
    pub fn with_engine(patterns: Vec<Pattern>, engine: SearchEngine) -> Result<Patterns, Error> {
        Patterns::build(patterns, |set| Searcher::new(engine, set))
    }

    /// A set from a pattern list (`docs/search.md`); each pattern's id is its line.
    ///
    /// # Errors
    /// [`Error::List`] with line and byte; then as [`Patterns::new`].
    pub fn from_list(text: &[u8]) -> Result<Patterns, Error> {
        Patterns::new(crate::parse_list(text)?)
    }

    fn build(
        patterns: Vec<Pattern>,
        searcher: impl FnOnce(&Set) -> Result<Searcher, Error>,
    ) -> Result<Patterns, Error> {
        check(&patterns)?;
        let len_max = patterns.iter().map(|pattern| pattern.bytes.len()).max().unwrap_or(0);
        let set = Set { keys: Keys::new(&patterns), patterns };
        Ok(Patterns { searcher: searcher(&set)?, set, len_max })
    }

    /// The patterns, as they were given.
    pub fn patterns(&self) -> &[Pattern] {
        &self.set.patterns
    }

    /// The longest pattern's length, in bytes.
    pub fn len_max(&self) -> usize {
        self.len_max
    }

    /// The engine that searches this set.
    pub fn engine(&self) -> SearchEngine {
        self.searcher.engine()
    }

    /// Memory that the tables take, in bytes, as far as it is known.
    pub fn memory(&self) -> usize {
        self.searcher.memory() + self.set.keys.memory()
    }

    /// Whether any pattern occurs. Ends at the first one that is met.
    pub fn is_match(&self, haystack: &[u8]) -> bool {
        self.search(haystack, &mut |_| ControlFlow::Break(())).is_break()
    }

    /// The first occurrence: the smallest start; where several start, the smallest id.
    pub fn find(&self, haystack: &[u8]) -> Option<Match> {
        let met = self.try_for_each(haystack, ControlFlow::Break).break_value()?;
        // Engines report in an order of their own. Any match before `met` lies, start by start, in this part.
        let part = &haystack[..haystack.len().min(met.start + self.len_max)];
        let mut first = met;
        self.for_each(part, |found| first = first.min(found));
        Some(first)
    }

    /// Every occurrence, in an order that depends on the engine.
    pub fn for_each(&self, haystack: &[u8], mut found: impl FnMut(Match)) {
        let _ = self.search(haystack, &mut |each| {
            found(each);
            ControlFlow::Continue(())
        });
    }

    /// As [`for_each`](Patterns::for_each), until `found` ends it with a value.
    pub fn try_for_each<B>(
        &self,
        haystack: &[u8],
        mut found: impl FnMut(Match) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut value = None;
        let _ = self.search(haystack, &mut |each| match found(each) {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(given) => {
                value = Some(given);
                ControlFlow::Break(())
            }
        });
        value.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    /// Every occurrence, sorted by start, then id.
    pub fn find_all(&self, haystack: &[u8]) -> Vec<Match> {
        let mut all = Vec::new();
        self.for_each(haystack, |found| all.push(found));
        all.sort_unstable();
        all
    }

    /// Number of occurrences.
    pub fn count(&self, haystack: &[u8]) -> u64 {
        let mut count = 0;
        self.for_each(haystack, |_| count += 1);
        count
    }

    /// Calls `hit` with the index of each payload in which any pattern occurs.
    pub fn for_each_matching_payload<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a [u8]>,
        mut hit: impl FnMut(usize),
    ) {
        for (index, payload) in payloads.into_iter().enumerate() {
            if self.searcher.search(&self.set, payload, &mut |_| ControlFlow::Break(())).is_break() {
                hit(index);
            }
        }
    }

    /// Calls `found` with the index of a payload and a match in it, for every match in all payloads.
    pub fn for_each_in<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a [u8]>,
        mut found: impl FnMut(usize, Match),
    ) {
        for (index, payload) in payloads.into_iter().enumerate() {
            let _ = self.searcher.search(&self.set, payload, &mut |each| {
                found(index, each);
                ControlFlow::Continue(())
            });
        }
    }

    fn search(&self, haystack: &[u8], sink: crate::keys::Sink<'_>) -> ControlFlow<()> {
        self.searcher.search(&self.set, haystack, sink)
    }
}
