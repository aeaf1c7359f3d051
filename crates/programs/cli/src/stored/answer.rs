//! A search of a store, for people and for machines.

use std::sync::Arc;

use serde_json::{Value, json};
use tapline_packet::Timestamp;
use tapline_store::{Catalog, RecordingGap, SearchReport, Window};

use super::search_json;

/// A search that was begun.
pub(crate) struct StoreSearch {
    pub(super) catalog: Arc<Catalog>,
    pub(super) window: Window,
    /// Whether the search follows the recording.
    pub(super) follows: bool,
    /// Progress of the search.
    pub(crate) report: SearchReport,
}

impl StoreSearch {
    /// Whether packets may be missing because chunks or segments could not be read.
    pub(crate) fn is_answered_in_part(&self) -> bool {
        self.report.get().unread() > 0
    }

    /// Notes on the answer in addition to the warnings of the search, a line each; `found` is the number of packets
    /// found.
    pub(crate) fn notes(&self, found: u64) -> Vec<String> {
        self.catalog.search_notes(self.window, &self.report.get(), self.follows, found)
    }

    /// Account, times and notes for machines.
    pub(crate) fn to_json(&self, notes: &[String]) -> Value {
        let account = self.report.get();
        let mut search = search_json(&account);
        let warnings = account.warnings(&self.catalog.root().display().to_string());
        let nanoseconds = |at: Timestamp, none: Timestamp| (at != none).then(|| at.as_nanos());
        search["from_ns"] = json!(nanoseconds(self.window.from, Window::ALL.from));
        search["to_ns"] = json!(nanoseconds(self.window.to, Window::ALL.to));
        let gaps = self.catalog.recording_gaps(self.window);
        search["unrecorded"] = gaps.iter().map(gap_json).collect();
        search["notes"] = json!(warnings.iter().chain(notes).collect::<Vec<_>>());
        search
    }
}

/// A gap for machines.
pub(crate) fn gap_json(gap: &RecordingGap) -> Value {
    json!({
        "from_ns": gap.from.as_nanos(),
        "to_ns": gap.to.map(Timestamp::as_nanos),
        "broken_off": gap.is_broken,
    })
}
