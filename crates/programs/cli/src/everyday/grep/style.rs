//! Payloads and matches as text, with colours.

use regex::bytes::{Match, Regex};

use super::super::lines::printable;
use super::SHOWN_MAX;

/// Bytes that are shown on each side of a match.
const AROUND: usize = 80;

/// The layout of packets and matches.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) json: bool,
    pub(super) ascii: bool,
    pub(super) hex: bool,
    pub(super) is_colored: bool,
}

impl Style {
    /// The line of a packet or of a place in a stream.
    pub(super) fn dimmed(self, head: &str) -> String {
        if self.is_colored { format!("\x1b[2m{head}\x1b[0m") } else { head.to_owned() }
    }

    fn marked(self, bytes: &[u8]) -> String {
        let text = printable(bytes);
        if self.is_colored { format!("\x1b[1;31m{text}\x1b[0m") } else { text }
    }

    /// The line around a match.
    pub(super) fn excerpt(self, bytes: &[u8], found: Match<'_>) -> String {
        let (start, end) = line_around(bytes, found);
        let (before, behind) = (&bytes[start..found.start()], &bytes[found.end()..end]);
        let behind = printable(behind.trim_ascii_end());
        format!("    {}{}{behind}\n", printable(before), self.marked(found.as_bytes()))
    }

    /// The lines around the first matches.
    pub(super) fn excerpts(self, payload: &[u8], regex: &Regex) -> String {
        let mut text = String::new();
        let mut end = 0;
        for found in regex.find_iter(payload).take(SHOWN_MAX) {
            // A line with several matches is shown once.
            if found.start() >= end {
                text += &self.excerpt(payload, found);
                end = line_around(payload, found).1.max(found.end());
            }
        }
        text
    }

    /// The whole payload, line by line. Matches of `regex` are marked.
    pub(super) fn whole(self, payload: &[u8], regex: Option<&Regex>) -> String {
        let payload = payload.strip_suffix(b"\n").unwrap_or(payload);
        let lines = payload.split(|byte| *byte == b'\n').map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mut text = String::from("    ");
            let mut at = 0;
            for found in
                regex.iter().flat_map(|regex| regex.find_iter(line)).filter(|found| !found.is_empty())
            {
                text += &printable(&line[at..found.start()]);
                text += &self.marked(found.as_bytes());
                at = found.end();
            }
            text + printable(&line[at..]).as_str() + "\n"
        });
        lines.collect()
    }
}

/// The line in which a match begins, within [`AROUND`] bytes of it.
fn line_around(bytes: &[u8], found: Match<'_>) -> (usize, usize) {
    let from = found.start().saturating_sub(AROUND);
    let to = (found.end() + AROUND).min(bytes.len());
    let is_end = |byte: &u8| *byte == b'\n';
    let start = bytes[from..found.start()].iter().rposition(is_end).map_or(from, |at| from + at + 1);
    let end = bytes[found.end()..to].iter().position(is_end).map_or(to, |at| found.end() + at);
    (start, end)
}
