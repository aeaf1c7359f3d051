//! Any set, in time that does not depend on the traffic: an overlapping Aho-Corasick automaton.
//!
//! Each byte of the haystack costs one transition (and a bounded number of failures on average), each occurrence one
//! step along the chain of outputs.

use super::SearchEngine;
use crate::Error;
use crate::keys::Keys;
use daachorse::DoubleArrayAhoCorasick;
use std::ops::ControlFlow;

pub(crate) struct Automaton {
    /// The automaton, whose values are keys.
    inner: DoubleArrayAhoCorasick<u32>,
    /// Length of the longest key.
    len_max: usize,
}

/// Bytes of a haystack that are folded at a time.
const STRETCH_MAX: usize = 1 << 16;

/// Processor cycles a byte, as measured on half text, half random bytes.
pub(crate) fn cost(keys: &Keys) -> f32 {
    match keys.len() {
        0..=64 => 4.0,
        65..=1024 => 10.0,
        _ => 20.0,
    }
}

impl Automaton {
    pub(crate) fn new(keys: &Keys) -> Result<Automaton, Error> {
        let numbered = keys.iter().zip(0..);
        let inner = DoubleArrayAhoCorasick::with_values(numbered).map_err(|error| Error::Build {
            engine: SearchEngine::Automaton.name(),
            reason: error.to_string(),
        })?;
        let len_max = keys.iter().map(<[u8]>::len).max().unwrap_or(1);
        Ok(Automaton { inner, len_max })
    }

    pub(crate) fn memory(&self) -> usize {
        self.inner.heap_bytes()
    }

    /// Reports each key and its start, in the order of ends. Folding takes memory: one allocation a call.
    pub(crate) fn search(
        &self,
        keys: &Keys,
        haystack: &[u8],
        mut found: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut tell = |origin: usize, stretch: &[u8], from: usize| {
            let mut matches = self.inner.find_overlapping_iter(stretch);
            matches.try_for_each(|each| match origin + each.end() > from {
                true => found(each.value() as usize, origin + each.start()),
                false => ControlFlow::Continue(()),
            })
        };
        if !keys.fold {
            return tell(0, haystack, 0);
        }
        // Folding a copy and searching that is up to six times faster than folding byte by byte on the way.
        let mut folded = Vec::with_capacity(haystack.len().min(STRETCH_MAX + self.len_max));
        for from in (0..haystack.len()).step_by(STRETCH_MAX) {
            // A match that ends in this stretch may begin before it.
            let origin = from.saturating_sub(self.len_max - 1);
            let to = haystack.len().min(from + STRETCH_MAX);
            folded.clear();
            folded.extend_from_slice(&haystack[origin..to]);
            folded.make_ascii_lowercase();
            tell(origin, &folded, from)?;
        }
        ControlFlow::Continue(())
    }
}

impl std::fmt::Debug for Automaton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Automaton").field("states", &self.inner.num_states()).finish()
    }
}
