//! When a store was recorded to, and what each recording lost behind its last chunk (docs/format/store.md,
//! "Recordings").
//!
//! ```text
//! begun   a recorder opened the store
//! ended   it wrote its last chunk; counts that no chunk has
//! broken  written by the next recorder: the one before was killed, or power failed
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::error::Error;
use crate::files;
use crate::log::now;
use crate::recorder::WRITES_MAX;
use crate::search::Window;
use crate::walk::Walk;

/// Bytes of the file that are read, from its end: some thousand recordings.
const LEN_MAX: u64 = 1 << 20;

/// A recording of a store, by the file `recordings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingEntry {
    /// When the recorder opened the store, by the wall clock.
    pub from: Timestamp,
    /// When it ended; `None` while it goes on. Of a broken one: when its last chunk was closed.
    pub to: Option<Timestamp>,
    /// Whether its packets came from interfaces, so that their times are those of the wall clock.
    pub is_live: bool,
    /// Whether the recorder was killed, or power failed: it lost packets since its last chunk, and nobody knows how many.
    pub is_broken: bool,
    /// The last chunk whose head a broken recording wrote; 0 if unknown.
    pub last_chunk: u64,
    /// Packets that it lost behind its last chunk.
    pub rest: Rest,
}

/// Counts of a recording that no chunk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// The number of the segment that the recording ended in.
    pub segment: u64,
    /// Packets lost before they reached the recorder.
    pub lost: u64,
    /// Whether `lost` may be more than it says.
    pub lost_unknown: bool,
    /// Packets that the recorder took and could not write.
    pub dropped: u64,
    /// Packets left out by wish.
    pub cut: u64,
    /// The least time of these packets, in nanoseconds since 1970.
    pub first_ns: i64,
    /// The greatest.
    pub last_ns: i64,
}

/// A time in which no recorder of interfaces ran, between two that did or behind the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingGap {
    /// When the recording before ended.
    pub from: Timestamp,
    /// When the next one began; `None` if there is none.
    pub to: Option<Timestamp>,
    /// Whether the recording before was broken off.
    pub is_broken: bool,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Begun {
        time_ns: i64,
        live: bool,
    },
    Ended {
        time_ns: i64,
        #[serde(flatten)]
        rest: Rest,
    },
    Broken {
        time_ns: i64,
        #[serde(default)]
        chunk: u64,
    },
}

impl RecordingEntry {
    /// Whether this recorder may have been writing a chunk of this number when it was killed.
    pub(crate) fn may_have_torn(&self, number: u64) -> bool {
        let first = self.last_chunk.saturating_sub(WRITES_MAX as u64) + 1;
        self.is_broken && (first..=self.last_chunk).contains(&number)
    }

    /// Packets that it lost behind its last chunk, of the times of a window.
    pub fn lost_within(&self, window: Window) -> u64 {
        let Rest { lost, dropped, first_ns, last_ns, .. } = self.rest;
        let [first, last] = [first_ns, last_ns].map(Timestamp::from_nanos);
        if window.overlaps(first, last) { lost.saturating_add(dropped) } else { 0 }
    }
}

impl Catalog {
    /// The recordings of the store in their order; of a long history the last ones. Empty for a store of a version that
    /// did not note them.
    pub fn recordings(&self) -> Vec<RecordingEntry> {
        let mut entries = read(self);
        let Some(last) = entries.last_mut().filter(|last| last.to.is_none() && !last.is_broken) else {
            return entries;
        };
        if !self.is_recorded() {
            last.is_broken = true;
            let (number, closed) = self.last_head(last.from);
            (last.last_chunk, last.to) = (number, Some(closed));
        }
        entries
    }

    /// Times within a window in which no recorder of interfaces ran. The time behind the last recording is among them
    /// if the window has a bound, or that recording was broken off.
    pub fn recording_gaps(&self, window: Window) -> Vec<RecordingGap> {
        gaps(&self.recordings(), window, now())
    }

    /// The number of the last chunk, and when it was closed: not before `from`.
    fn last_head(&self, from: Timestamp) -> (u64, Timestamp) {
        let head = |number: u64| {
            let file = disk::open_regular(&self.segment_path(number), OpenOptions::new().read(true)).ok()?;
            let mut walk = Walk::new(&file, self.id, number, self.segment_len).ok()?;
            std::iter::from_fn(|| walk.next()).last().map(|found| (found.head.number, found.head.closed))
        };
        let found = self.numbers().unwrap_or_default().into_iter().rev().find_map(head);
        found.map_or((0, from), |(number, closed)| (number, closed.max(from)))
    }

    /// Notes that a recorder begins, and that the one before did not end, if it did not.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn note_begun(&self, now: Timestamp, is_live: bool) -> Result<(), Error> {
        // The lock is ours: one that has not ended is broken.
        let broken = read(self).pop().filter(|last| last.to.is_none() && !last.is_broken);
        if let Some(broken) = broken {
            let (chunk, closed) = self.last_head(broken.from);
            append(self, &Line::Broken { time_ns: closed.as_nanos(), chunk })?;
        }
        append(self, &Line::Begun { time_ns: now.as_nanos(), live: is_live })
    }

    /// Notes that a recorder ends.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn note_ended(&self, now: Timestamp, rest: Rest) -> Result<(), Error> {
        append(self, &Line::Ended { time_ns: now.as_nanos(), rest })
    }
}

fn gaps(entries: &[RecordingEntry], window: Window, now: Timestamp) -> Vec<RecordingGap> {
    let mut gaps = Vec::new();
    // Clocks are set back: a gap begins behind all recordings before it.
    let mut before: Option<(Timestamp, bool)> = None;
    for entry in entries.iter().filter(|entry| entry.is_live) {
        if let Some((from, is_broken)) = before.filter(|(from, _)| *from < entry.from) {
            gaps.push(RecordingGap { from, to: Some(entry.from), is_broken });
        }
        let Some(to) = entry.to else {
            before = None;
            continue;
        };
        if before.is_none_or(|(latest, _)| latest < to) {
            before = Some((to, entry.is_broken));
        }
    }
    if let Some((from, is_broken)) = before.filter(|(_, is_broken)| *is_broken || window != Window::ALL) {
        gaps.push(RecordingGap { from, to: None, is_broken });
    }
    // A moment more than is in the window is none of it.
    gaps.retain(|gap| gap.from < now && window.overlaps(gap.from, gap.to.unwrap_or(now).plus_nanos(-1)));
    gaps
}

fn append(catalog: &Catalog, line: &Line) -> Result<(), Error> {
    let path = catalog.paths.recordings();
    let write = || {
        let mut file = files::open_or_make(&path, OpenOptions::new().append(true))?;
        let text = serde_json::to_string(line)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_data()
    };
    write().map_err(Error::file("write to", &path))
}

fn read(catalog: &Catalog) -> Vec<RecordingEntry> {
    let opened = disk::open_regular(&catalog.paths.recordings(), OpenOptions::new().read(true));
    parse(&opened.and_then(read_end).unwrap_or_default())
}

/// The lines in the last [`LEN_MAX`] bytes.
fn read_end(mut file: File) -> std::io::Result<Vec<u8>> {
    let from = file.metadata()?.len().saturating_sub(LEN_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LEN_MAX).read_to_end(&mut bytes)?;
    if from > 0 {
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        bytes.drain(..line);
    }
    Ok(bytes)
}

/// Lines that do not parse are passed over.
fn parse(bytes: &[u8]) -> Vec<RecordingEntry> {
    let mut entries: Vec<RecordingEntry> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()) {
        let open = entries.last_mut().filter(|last| last.to.is_none());
        match (line, open) {
            (Line::Begun { time_ns, live }, open) => {
                if let Some(open) = open {
                    (open.to, open.is_broken) = (Some(open.from), true);
                }
                let from = Timestamp::from_nanos(time_ns);
                entries.push(RecordingEntry {
                    from,
                    to: None,
                    is_live: live,
                    is_broken: false,
                    last_chunk: 0,
                    rest: Rest::default(),
                });
            }
            (Line::Ended { time_ns, rest }, Some(open)) => {
                (open.to, open.rest) = (Some(Timestamp::from_nanos(time_ns)), rest);
            }
            (Line::Broken { time_ns, chunk }, Some(open)) => {
                open.last_chunk = chunk;
                (open.to, open.is_broken) = (Some(Timestamp::from_nanos(time_ns)), true);
            }
            (Line::Ended { .. } | Line::Broken { .. }, None) => {}
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    fn entry(from: i64, to: Option<i64>, is_live: bool, is_broken: bool) -> RecordingEntry {
        let (from, to, rest) = (at(from), to.map(at), Rest::default());
        RecordingEntry { from, to, is_live, is_broken, last_chunk: 0, rest }
    }

    #[test]
    fn gaps_lie_between_recordings_of_interfaces() {
        let entries = [
            entry(0, Some(10), true, false),
            // A file has times of its own.
            entry(12, Some(13), false, false),
            entry(20, Some(30), true, true),
            // The clock was set back.
            entry(25, Some(28), true, false),
            entry(40, Some(50), true, false),
        ];
        let of = |from: i64, to: Option<i64>, is_broken| RecordingGap {
            from: at(from),
            to: to.map(at),
            is_broken,
        };
        let inner = [of(10, Some(20), false), of(30, Some(40), true)];
        assert_eq!(gaps(&entries, Window::ALL, at(90)), inner);
        let window = |from, to| Window { from: at(from), to: at(to) };
        assert_eq!(gaps(&entries, window(0, 90), at(90)), [&inner[..], &[of(50, None, false)]].concat());
        assert_eq!(gaps(&entries, window(15, 30), at(90)), inner[..1]);
        assert_eq!(gaps(&entries, window(20, 30), at(90)), []);
        let going_on = [entry(0, Some(10), true, false), entry(20, None, true, false)];
        assert_eq!(gaps(&going_on, window(0, 90), at(90)), inner[..1]);
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let lines =
            b"{\"event\":\"ended\",\"time_ns\":1}\nx\n{\"event\":\"begun\",\"time_ns\":5,\"live\":true}\n\
            \xff\n{\"event\":\"begun\",\"time_ns\":7,\"live\":false}\n{\"event\":\"broken\",\"time_ns\":9}\n\
            {\"event\":\"begun\",\"time_ns\":10";
        let parsed = parse(lines);
        let of = |from, to, is_live| RecordingEntry {
            from: Timestamp::from_nanos(from),
            to: Some(Timestamp::from_nanos(to)),
            is_live,
            is_broken: true,
            last_chunk: 0,
            rest: Rest::default(),
        };
        assert_eq!(parsed, [of(5, 5, true), of(7, 9, false)]);
    }
}
