//! The system's libhs: it takes the patterns as they are, each with its own case.

use super::{Engine, Set};
use crate::Error;
use crate::keys::Sink;
use crate::pattern::{Match, Pattern};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use tapline_sys::vectorscan::{Literal, LiteralSet, Scratch};

/// The longest stretch of one scan; the library takes lengths of 32 bits.
const SCAN_MAX: usize = 1 << 30;

#[derive(Debug)]
pub(crate) struct Vectorscan {
    literals: LiteralSet,
    len_max: usize,
    /// Scratch that no thread has now. Taken and given back once a batch.
    spare: Mutex<Vec<Scratch>>,
}

/// Scratch, until it is dropped.
pub(crate) struct Loan<'a> {
    scratch: Option<Scratch>,
    owner: &'a Vectorscan,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut spare = self.owner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.extend(self.scratch.take());
    }
}

impl Vectorscan {
    pub(crate) fn new(patterns: &[Pattern]) -> Result<Vectorscan, Error> {
        let literals =
            patterns.iter().map(|pattern| Literal { bytes: &pattern.bytes, nocase: pattern.nocase });
        let literals: Vec<Literal<'_>> = literals.collect();
        let refused = |error: tapline_sys::vectorscan::VectorscanError| Error::Build {
            engine: Engine::Vectorscan.name(),
            reason: error.to_string(),
        };
        let literals = LiteralSet::new(&literals).map_err(refused)?;
        let scratch = literals.scratch().map_err(refused)?;
        let len_max = patterns.iter().map(|pattern| pattern.bytes.len()).max().unwrap_or(0);
        Ok(Vectorscan { literals, len_max, spare: Mutex::new(vec![scratch]) })
    }

    pub(crate) fn memory(&self) -> usize {
        self.literals.memory()
    }

    /// Scratch of this thread's own.
    ///
    /// # Panics
    /// If there is no memory for another one.
    pub(crate) fn lend(&self) -> Loan<'_> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let scratch = spare.or_else(|| self.literals.scratch().ok());
        assert!(scratch.is_some(), "no memory for the scratch of a scan");
        Loan { scratch, owner: self }
    }

    pub(crate) fn search(
        &self,
        loan: &mut Loan<'_>,
        set: &Set,
        haystack: &[u8],
        sink: Sink<'_>,
    ) -> ControlFlow<()> {
        let mut from = 0;
        loop {
            let to = haystack.len().min(from + SCAN_MAX);
            // What ends in this stretch may begin before it.
            let origin = from.saturating_sub(self.len_max - 1);
            self.scan(loan, set, &haystack[origin..to], &mut |id, start, end| {
                let found = Match { id, start: origin + start, end: origin + end };
                if found.end > from { sink(found) } else { ControlFlow::Continue(()) }
            })?;
            from = to;
            if from == haystack.len() {
                return ControlFlow::Continue(());
            }
        }
    }

    fn scan(
        &self,
        loan: &mut Loan<'_>,
        set: &Set,
        stretch: &[u8],
        found: &mut dyn FnMut(u32, usize, usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(scratch) = &mut loan.scratch else { return ControlFlow::Continue(()) };
        let scanned = self.literals.scan(scratch, stretch, &mut |number, end| {
            let pattern = &set.patterns[number];
            found(pattern.id, end - pattern.bytes.len(), end)
        });
        // Its errors are a length, which SCAN_MAX excludes, and a scratch of another set, which a loan excludes.
        scanned.expect("the scratch is of this set, the stretch within the limit")
    }
}
