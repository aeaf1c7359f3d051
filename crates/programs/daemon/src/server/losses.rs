//! Losses of captures, told while the server runs.

use std::time::Instant;

use super::Server;
use crate::journal::JournalEntry;
use crate::loss_watch::LossWatch;
use crate::{Capture, CaptureTotals};

/// A taker of entries of the journal.
type TellEntry = Box<dyn FnMut(&JournalEntry) + Send>;

/// The losses that were told, and where they are told.
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
    /// Has entries of the journal told to `tell`, with their fields.
    pub fn on_entry(&mut self, tell: impl FnMut(&JournalEntry) + Send + 'static) {
        self.losses.on_entry = Some(Box::new(tell));
    }

    /// Tells of packets that captures have lost since they were last told of.
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
