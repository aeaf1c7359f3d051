//! Notes on the answer to a search: why it is empty, and that packets may be missing.

use std::sync::Arc;

use serde_json::{Value, json};
use tapline_graph::grouped;
use tapline_packet::Timestamp;
use tapline_store::moments::shown;
use tapline_store::{Catalog, REACH, RecordingGap, SearchAccount, SearchReport, Window};

use super::search_json;

/// A search that was begun.
pub(crate) struct Asked {
    pub(super) catalog: Arc<Catalog>,
    pub(super) window: Window,
    /// It goes on with what is recorded meanwhile.
    pub(super) follows: bool,
    /// How far it is.
    pub(crate) report: SearchReport,
}

impl Asked {
    /// Whether packets may be missing because chunks or segments could not be read.
    pub(crate) fn is_answered_in_part(&self) -> bool {
        self.report.get().unread() > 0
    }

    /// Notes on the answer besides the warnings of the search, a line each; `found` is the number of packets found.
    pub(crate) fn notes(&self, found: u64) -> Vec<String> {
        let account = self.report.get();
        let is_at_end = account.segments_left + account.chunks_left == 0;
        let mut notes = of_account(&account);
        notes.extend(gap_lines(&self.catalog.recording_gaps(self.window)));
        match found {
            0 if is_at_end && !self.follows => notes.push(self.nothing(&account)),
            _ => notes.extend(self.beginning()),
        }
        notes
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

    /// Why nothing was found.
    fn nothing(&self, account: &SearchAccount) -> String {
        let Ok(Some((first, last))) = self.catalog.span() else {
            return "nothing found: the store has no packets".to_owned();
        };
        let covers = format!("the store has packets from {} to {}", shown(first), shown(last));
        if self.window.from > last {
            return format!("nothing found: nothing was recorded in this time yet; {covers}");
        }
        if self.window.to <= first {
            return format!("nothing found: {}; {covers}", self.before());
        }
        if account.packets == 0 && account.chunks_by_keys + account.segments_by_keys > 0
            || account.segments_by_roll_up > 0 && account.chunks_read == 0
        {
            return format!("nothing found: by the indexes no packet of this time can match; {covers}");
        }
        if account.packets == 0 {
            return format!("nothing found: nothing was recorded in this time; {covers}");
        }
        format!(
            "nothing found: {} packets were looked at, and none matches; {covers}",
            grouped(account.packets)
        )
    }

    /// That the times asked for begin before the packets do.
    fn beginning(&self) -> Option<String> {
        let oldest = *self.catalog.numbers().ok()?.first()?;
        let first = self.catalog.first_of(oldest)?;
        let is_early = self.window.from != Window::ALL.from && self.window.from < first;
        (is_early && oldest > 1).then(|| format!("{}: the store begins at {}", self.before(), shown(first)))
    }

    /// The fate of older packets: numbers of segments are never used twice.
    fn before(&self) -> &'static str {
        match self.catalog.numbers().ok().and_then(|numbers| numbers.first().copied()) {
            Some(1) => "nothing was recorded before",
            _ => "older packets have made room for newer ones",
        }
    }
}

/// Gaps that have a line of their own.
const GAPS_TOLD_MAX: usize = 8;

/// A gap that people are told of has a second at least.
const GAP_MIN_NS: i64 = 1_000_000_000;

/// Lines about times in which no recorder ran.
pub(crate) fn gap_lines(gaps: &[RecordingGap]) -> Vec<String> {
    let is_told =
        |gap: &&RecordingGap| gap.is_broken || gap.to.is_none_or(|to| to.since(gap.from) >= GAP_MIN_NS);
    let told: Vec<&RecordingGap> = gaps.iter().filter(is_told).collect();
    let line = |gap: &&RecordingGap| {
        let until = gap.to.map_or("on".to_owned(), |to| format!("to {}", shown(to)));
        let why = if gap.is_broken {
            ": the recorder was killed, or power failed, and packets that it had not written are lost"
        } else {
            ""
        };
        format!("nothing was recorded from {} {until}{why}", shown(gap.from))
    };
    let mut lines: Vec<String> = told.iter().take(GAPS_TOLD_MAX).map(line).collect();
    if let Some(more @ 1..) = told.len().checked_sub(GAPS_TOLD_MAX) {
        lines.push(format!(
            "nothing was recorded in {} more gaps: tapline store status has them",
            grouped(more as u64)
        ));
    }
    lines
}

/// A gap for machines.
pub(crate) fn gap_json(gap: &RecordingGap) -> Value {
    json!({
        "from_ns": gap.from.as_nanos(),
        "to_ns": gap.to.map(Timestamp::as_nanos),
        "broken_off": gap.is_broken,
    })
}

/// Notes on losses, on chunks that were recycled meanwhile, and on packets out of order.
fn of_account(account: &SearchAccount) -> Vec<String> {
    let mut notes = Vec::new();
    if account.lost > 0 {
        let at_least = if account.is_lost_at_least() { "at least " } else { "" };
        let packets = grouped(account.lost);
        notes.push(format!("lost while these times were recorded: {at_least}{packets} packets"));
    }
    if account.losses_unknown > 0 {
        notes.push(
            "not known: how many packets were lost where a recorder was killed or its source does not count"
                .to_owned(),
        );
    }
    if account.segments_gone + account.chunks_gone > 0 {
        notes.push(format!(
            "recycled before the search came to them: {} segments, {} chunks",
            grouped(account.segments_gone),
            grouped(account.chunks_gone)
        ));
    }
    if account.late > 0 {
        notes.push(format!(
            "packets not in the order of time: {}, recorded more than {REACH} MiB behind newer ones",
            grouped(account.late)
        ));
    }
    notes
}
