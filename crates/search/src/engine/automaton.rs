//! Any set, in time that does not depend on the traffic: an overlapping Aho-Corasick automaton.
//!
//! Each byte of the haystack costs one transition (and a bounded number of failures on average), each occurrence one
//! step along the chain of outputs.

use super::Engine;
use crate::Error;
use crate::keys::Keys;
use daachorse::DoubleArrayAhoCorasick;
use std::ops::ControlFlow;

pub(crate) struct Automaton {
    /// Its values are keys.
    inner: DoubleArrayAhoCorasick<u32>,
}

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
        let inner = DoubleArrayAhoCorasick::with_values(numbered)
            .map_err(|error| Error::Build { engine: Engine::Automaton.name(), reason: error.to_string() })?;
        Ok(Automaton { inner })
    }

    pub(crate) fn memory(&self) -> usize {
        self.inner.heap_bytes()
    }

    /// Tells of each key and where it starts, in the order of ends.
    pub(crate) fn search(
        &self,
        keys: &Keys,
        haystack: &[u8],
        mut found: impl FnMut(usize, usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if keys.fold {
            let folded = haystack.iter().map(u8::to_ascii_lowercase);
            let mut matches = self.inner.find_overlapping_iter_from_iter(folded);
            return matches.try_for_each(|each| found(each.value() as usize, each.start()));
        }
        let mut matches = self.inner.find_overlapping_iter(haystack);
        matches.try_for_each(|each| found(each.value() as usize, each.start()))
    }
}

impl std::fmt::Debug for Automaton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Automaton").field("states", &self.inner.num_states()).finish()
    }
}
