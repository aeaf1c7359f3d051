//! The distinct strings that engines search for, and the patterns of each.
//!
//! ```text
//! patterns             keys                members, in order
//! 1 "Get"  nocase  ┐
//! 2 "GET"          ├─  "get"  ──────────►  1 | 3 "Get", 2 "GET"
//! 3 "Get"          ┘                       always | where the bytes are equal, sorted by bytes
//! 4 "x"                "x"    ──────────►  4
//! ```
//!
//! If any pattern of the set ignores case, keys are in small letters and engines fold the haystack; members that
//! respect case are checked when their key was found. Otherwise keys are the patterns' bytes.

use crate::{Match, Pattern};
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

/// The receiver of each match; may end the search.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Match) -> ControlFlow<()>;

/// All keys of a set.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Whether letters are folded.
    pub(crate) fold: bool,
    /// All keys' bytes, one after the other.
    bytes: Vec<u8>,
    spans: Vec<Span>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Span {
    bytes: Range<u32>,
    /// Members that match wherever the key does.
    always: Range<u32>,
    /// Members whose bytes must be equal: from the end of `always` to here.
    exact_end: u32,
}

#[derive(Debug)]
struct Member {
    id: u32,
    /// Place among the patterns.
    index: u32,
}

impl Keys {
    /// Patterns that passed [`check`](crate::pattern::check).
    pub(crate) fn new(patterns: &[Pattern]) -> Keys {
        let fold = patterns.iter().any(|pattern| pattern.nocase);
        let mut groups: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let key = if fold { pattern.bytes.to_ascii_lowercase() } else { pattern.bytes.clone() };
            groups.entry(key).or_default().push(index as u32);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_unstable();
        let mut keys = Keys { fold, bytes: Vec::new(), spans: Vec::new(), members: Vec::new() };
        for (key, indices) in groups {
            keys.push(&key, indices, patterns);
        }
        keys
    }

    fn push(&mut self, key: &[u8], mut indices: Vec<u32>, patterns: &[Pattern]) {
        let of = |index: &u32| &patterns[*index as usize];
        let is_exact = |index: &u32| self.fold && !of(index).nocase;
        indices.sort_by_cached_key(|index| (is_exact(index), of(index).bytes.clone(), of(index).id));
        let first_exact = indices.partition_point(|index| !is_exact(index)) as u32;
        let (start, member) = (self.bytes.len() as u32, self.members.len() as u32);
        self.bytes.extend_from_slice(key);
        self.spans.push(Span {
            bytes: start..self.bytes.len() as u32,
            always: member..member + first_exact,
            exact_end: member + indices.len() as u32,
        });
        self.members.extend(indices.iter().map(|index| Member { id: of(index).id, index: *index }));
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn bytes(&self, key: usize) -> &[u8] {
        let Range { start, end } = self.spans[key].bytes;
        &self.bytes[start as usize..end as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|key| self.bytes(key))
    }

    /// Whether `key` occurs at `start`.
    pub(crate) fn is_at(&self, key: usize, haystack: &[u8], start: usize) -> bool {
        let bytes = self.bytes(key);
        let Some(window) = haystack.get(start..start + bytes.len()) else { return false };
        if self.fold { window.eq_ignore_ascii_case(bytes) } else { window == bytes }
    }

    /// Reports all patterns of a key that occurs at `start`.
    pub(crate) fn report(
        &self,
        key: usize,
        patterns: &[Pattern],
        haystack: &[u8],
        start: usize,
        sink: Sink<'_>,
    ) -> ControlFlow<()> {
        let span = &self.spans[key];
        let end = start + span.bytes.len();
        let mut tell = |member: &Member| sink(Match { id: member.id, start, end });
        for member in &self.members[span.always.start as usize..span.always.end as usize] {
            tell(member)?;
        }
        // Sorted, so that a set with a thousand spellings of one word costs ten comparisons, not a thousand.
        let exact = &self.members[span.always.end as usize..span.exact_end as usize];
        let bytes = |member: &Member| patterns[member.index as usize].bytes.as_slice();
        let window = &haystack[start..end];
        let first = exact.partition_point(|member| bytes(member) < window);
        exact[first..].iter().take_while(|member| bytes(member) == window).try_for_each(tell)
    }

    /// Memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + size_of_val(&*self.spans) + size_of_val(&*self.members)
    }
}
