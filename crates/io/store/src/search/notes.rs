//! Notes on the answer to a search: why it is empty, and that packets may be missing.

use tapline_syntax::units::grouped;

use super::{REACH, SearchAccount, Window};
use crate::catalog::Catalog;
use crate::layout::named;
use crate::moments::shown;
use crate::recordings::RecordingGap;

impl Catalog {
    /// Notes on the answer to a search, without its [warnings](SearchAccount::warnings), a line each. `found` is the
    /// number of packets found, `follows` says that the search follows the recording.
    pub fn search_notes(
        &self,
        window: Window,
        account: &SearchAccount,
        follows: bool,
        found: u64,
    ) -> Vec<String> {
        let is_at_end = account.segments_left + account.chunks_left == 0;
        let mut notes = of_account(account);
        notes.extend(self.second_files());
        notes.extend(gap_lines(&self.recording_gaps(window)));
        match found {
            0 if is_at_end && !follows => notes.push(self.nothing(window, account)),
            _ => notes.extend(self.beginning(window)),
        }
        notes
    }

    /// Names segments with two files.
    fn second_files(&self) -> Option<String> {
        let doubled = self.doubled().ok()?;
        let path = self.stray_path(*doubled.first()?)?;
        let more = match doubled.len() - 1 {
            0 => String::new(),
            more => format!(", nor are those of {} more", grouped(more as u64)),
        };
        let (first, path) = (doubled[0], named(&path));
        Some(format!(
            "segment {first} has two files: {} was not searched{more} (tapline store verify names them)",
            path.display()
        ))
    }

    /// Explains an answer without packets.
    fn nothing(&self, window: Window, account: &SearchAccount) -> String {
        let Ok(Some((first, last))) = self.span() else {
            return "nothing found: the store has no packets".to_owned();
        };
        let covers = format!("the store has packets from {} to {}", shown(first), shown(last));
        if window.from > last {
            return format!("nothing found: nothing was recorded in this time yet; {covers}");
        }
        if window.to <= first {
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

    /// Notes that the window begins before the packets do.
    fn beginning(&self, window: Window) -> Option<String> {
        let oldest = *self.numbers().ok()?.first()?;
        let first = self.first_of(oldest)?;
        let is_early = window.from != Window::ALL.from && window.from < first;
        (is_early && oldest > 1).then(|| format!("{}: the store begins at {}", self.before(), shown(first)))
    }

    /// The fate of older packets: numbers of segments are never used twice.
    fn before(&self) -> &'static str {
        match self.numbers().ok().and_then(|numbers| numbers.first().copied()) {
            Some(1) => "nothing was recorded before",
            _ => "older packets have made room for newer ones",
        }
    }
}

/// Gaps that have a line of their own.
const GAPS_TOLD_MAX: usize = 8;

/// Shorter gaps have no line.
const GAP_MIN_NS: i64 = 1_000_000_000;

/// Lines about times in which no recorder ran.
pub fn gap_lines(gaps: &[RecordingGap]) -> Vec<String> {
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
