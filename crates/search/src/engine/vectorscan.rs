//! The system's libhs: it takes the patterns as they are, each with its own case.
//!
//! The library picks its code by the processor, and some of it has been wrong: 5.4.9 lost matches on an EPYC with AVX-512 VBMI, whatever
//! platform it compiled for. So it is tried on texts with known answers before it is trusted.

use super::{Engine, Set};
use crate::Error;
use crate::find_all_naive;
use crate::keys::Sink;
use crate::pattern::{Match, Pattern};
use std::ops::ControlFlow;
use std::sync::{Mutex, OnceLock, PoisonError};
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

/// Whether the library finds on this processor what is there.
static IS_SOUND: OnceLock<bool> = OnceLock::new();

/// The longest text that it is tried on: three vectors of the widest processors.
const TRIAL_LEN: usize = 192;

impl Vectorscan {
    /// # Errors
    /// [`Error::Build`]: libhs refuses the set, or is wrong on this processor.
    pub(crate) fn new(patterns: &[Pattern]) -> Result<Vectorscan, Error> {
        let built = Vectorscan::untried(patterns)?;
        match IS_SOUND.get_or_init(is_sound) {
            true => Ok(built),
            false => Err(Error::Build {
                engine: Engine::Vectorscan.name(),
                reason: "this libhs loses matches on this processor: update it, or use another engine".into(),
            }),
        }
    }

    fn untried(patterns: &[Pattern]) -> Result<Vectorscan, Error> {
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

/// Words in each other, cut off or whole, at many places of texts of all lengths.
fn is_sound() -> bool {
    let word = b"a-longer-needle";
    let parts = [0..15, 9..15, 9..13, 13..15].into_iter().zip(0..);
    let patterns: Vec<Pattern> = parts.map(|(part, id)| Pattern::new(id, &word[part])).collect();
    let Ok(searcher) = Vectorscan::untried(&patterns) else { return false };
    let mut loan = searcher.lend();
    let Some(scratch) = &mut loan.scratch else { return false };
    let mut finds_all = |text: &[u8]| {
        let mut found = Vec::new();
        let scanned = searcher.literals.scan(scratch, text, &mut |number, end| {
            let pattern = &patterns[number];
            found.push(Match { id: pattern.id, start: end - pattern.bytes.len(), end });
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        scanned.is_ok() && found == find_all_naive(&patterns, text)
    };
    (0..TRIAL_LEN).all(|len| {
        (0..len).step_by(3).all(|at| {
            let mut text = vec![b'.'; len];
            let word = &word[..word.len().min(len - at)];
            text[at..at + word.len()].copy_from_slice(word);
            finds_all(&text)
        })
    })
}
