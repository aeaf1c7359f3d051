//! Reports losses of captures while the server runs.

use std::time::Instant;

use super::Server;
use crate::journal::JournalEntry;
use crate::loss_watch::LossWatch;
use crate::{Capture, CaptureTotals};

/// A taker of entries of the journal.
type TellEntry = Box<dyn FnMut(&JournalEntry) + Send>;

/// The losses that were reported, and the receiver of reports.
pub(super) struct LossNews {
    watch: LossWatch,
    /// Where entries of the journal go; without it they are lines of the log.
    on_entry: Option<TellEntry>,
}

impl LossNews {
    pub(super) fn new() -> LossNews {
        LossNews { watch: LossWatch::new(Instant::now()), on_entry: None }
    }
}

impl Server {
    /// Sets the receiver of journal entries with their fields.
    pub fn on_entry(&mut self, tell: impl FnMut(&JournalEntry) + Send + 'static) {
        self.losses.on_entry = Some(Box::new(tell));
    }

    /// Reports packets that captures have lost since the last report.
    pub(super) fn tell_losses(&mut self, log: &mut dyn FnMut(&str)) {
        let LossNews { watch, on_entry } = &mut self.losses;
        if !watch.is_due(Instant::now()) {
            return;
        }
        let totals: Vec<CaptureTotals> = self.captures.iter().map(Capture::account).collect();
        for entry in watch.news(&totals) {
            match on_entry {
                Some(tell) => tell(&entry),
                None => log(&entry.message),
            }
        }
    }
}
