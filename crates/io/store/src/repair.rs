//! Indexes and roll-ups made again from chunks alone; a left `rewrite` finished. Nothing else is touched.

use crate::catalog::Catalog;
use crate::check::{IndexCondition, complete_roll_ups, segment_state};
use crate::erase::rewrite;
use crate::error::Error;
use crate::index::rollup::{self, RollUp};
use crate::index::{Builder, IndexOptions};
use crate::lock;
use crate::log::{History, history};
use crate::restore::{Restored, index_options};

/// Result of a repair: each segment and each roll-up is in one count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Segments of the store.
    pub segments: u64,
    /// Segments whose index was intact.
    pub intact: u64,
    /// Segments whose index was made again.
    pub made: u64,
    /// Not to be read.
    pub unreadable: u64,
    /// Chunks in the segments whose index was made.
    pub chunks: u64,
    /// Packets in those chunks.
    pub packets: u64,
    /// Chunks that are gone or not as they were written, and places that hold none, in the segments whose index was made: no
    /// index has them.
    pub damaged: u64,
    /// Bytes of the indexes made.
    pub index_bytes: u64,
    /// Roll-ups that there should be.
    pub roll_ups: u64,
    /// Roll-ups that were made again.
    pub roll_ups_made: u64,
    /// Chunks that an erasure which was killed had not written yet.
    pub rewritten: u64,
    /// Segments that could not be read, and why.
    pub refused: Vec<String>,
}

impl Repaired {
    /// Whether each segment is in one place.
    pub fn is_balanced(&self) -> bool {
        self.segments == self.intact + self.made + self.unreadable
    }
}

/// Makes missing and damaged indexes and roll-ups again. `progress` gets the number of segments done and of all; it
/// stops the work by `false`.
///
/// # Errors [`Error::Locked`] while a recorder runs; [`Error::File`] if a file cannot be written.
pub fn repair(catalog: &Catalog, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repaired, Error> {
    let _lock = lock::take(&catalog.paths)?;
    let mut repaired = Repaired { rewritten: rewrite::finish(catalog)?, ..Repaired::default() };
    let numbers = catalog.numbers()?;
    let mut history = history(&catalog.paths);
    let mut index = Builder::new(catalog.segment_len(), IndexOptions::default());
    for (done, &number) in numbers.iter().enumerate() {
        if !progress(done as u64, numbers.len() as u64) {
            break;
        }
        repaired.segments += 1;
        match segment_state(catalog, number, &history) {
            Some(IndexCondition::Whole) => repaired.intact += 1,
            Some(IndexCondition::Missing | IndexCondition::Damaged | IndexCondition::Different) => {
                repaired.make(catalog, number, &mut index, &mut history)?;
            }
            None => repaired.unreadable += 1,
        }
    }
    for number in complete_roll_ups(catalog, &numbers) {
        repaired.roll_ups += 1;
        if !RollUp::read(catalog, number).is_some_and(|roll_up| roll_up.is_whole()) {
            rollup::write(catalog, number, &history)?;
            repaired.roll_ups_made += 1;
        }
    }
    Ok(repaired)
}

impl Repaired {
    fn make(
        &mut self,
        catalog: &Catalog,
        number: u64,
        index: &mut Builder,
        history: &mut History,
    ) -> Result<(), Error> {
        index.clear_for(index_options(catalog, number));
        let sealed = catalog.sealed_chunks(number, history);
        let restored = match Restored::read(catalog, number, sealed, Some(&mut *index)) {
            Ok(restored) => restored,
            Err(error) => {
                self.unreadable += 1;
                self.refused.push(error.to_string());
                return Ok(());
            }
        };
        let summary = &restored.contents.summary;
        self.made += 1;
        self.chunks += u64::from(summary.chunks);
        self.packets += summary.packets;
        self.damaged += restored.damaged;
        self.index_bytes += restored.seal(catalog, number, index, history)?;
        Ok(())
    }
}
