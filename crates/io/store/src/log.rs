//! The log of a store: one JSON line for each thing that happened to its segments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::error::Error;
use crate::files;
use crate::index::{Index, Summary};
use crate::layout::{NUMBER_MAX, Paths};

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_nanos(tapline_sys::clock::realtime_ns())
}

/// Adds a line: an object, to which the time is added.
///
/// # Errors
/// [`Error::File`]. Recorders go on all the same; what deletes by order does not.
pub(crate) fn append(paths: &Paths, event: Value) -> Result<(), Error> {
    add(paths, event, false)
}

/// Adds a line that is on the disk before this returns: a segment that is gone without its line, after a power failure
/// too, was removed by somebody else.
///
/// # Errors
/// As [`append`].
pub(crate) fn append_synced(paths: &Paths, event: Value) -> Result<(), Error> {
    add(paths, event, true)
}

fn add(paths: &Paths, mut event: Value, syncs: bool) -> Result<(), Error> {
    event["time_ns"] = now().as_nanos().into();
    let path = paths.log();
    let opened = files::open_or_make(&path, OpenOptions::new().append(true));
    // One write for each line: two processes may add some at the same time.
    let written = opened.and_then(|mut log| {
        log.write_all(format!("{event}\n").as_bytes())?;
        if syncs { log.sync_data() } else { Ok(()) }
    });
    written.map_err(Error::file("write to", &path))
}

/// The longest log that is read, in bytes: lines of some million segments.
const LOG_LEN_MAX: u64 = 256 << 20;

/// Segments and holds by the lines of the log.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Segments that recorders began.
    pub(crate) begun: BTreeSet<u64>,
    /// Segments that recorders deleted.
    pub(crate) deleted: BTreeSet<u64>,
    /// Segments that were sealed and not deleted. The log of an earlier version has no counts: its segments are not here.
    pub(crate) sealed: BTreeMap<u64, Sealed>,
    /// Holds that were made and not released.
    pub(crate) held: BTreeSet<String>,
}

/// Contents of a segment when it was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) chunks: u64,
    /// The least and the greatest time of its packets.
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

impl Sealed {
    pub(crate) fn of(summary: &Summary) -> Sealed {
        Sealed { chunks: summary.chunks.into(), first: summary.first, last: summary.last }
    }

    fn parse(event: &Value) -> Option<Sealed> {
        let time = |key: &str| event[key].as_i64().map(Timestamp::from_nanos);
        Some(Sealed { chunks: event["chunks"].as_u64()?, first: time("first_ns")?, last: time("last_ns")? })
    }

    /// The log's line.
    pub(crate) fn event(&self, segment: u64) -> Value {
        let Sealed { chunks, first, last } = self;
        let (first, last) = (first.as_nanos(), last.as_nanos());
        json!({ "event": "sealed", "segment": segment, "chunks": chunks, "first_ns": first, "last_ns": last })
    }
}

/// Reads the history of a store; empty without a log. Lines that do not parse are passed over.
pub(crate) fn history(paths: &Paths) -> History {
    let opened = disk::open_regular(&paths.log(), OpenOptions::new().read(true));
    let lines = opened.into_iter().flat_map(|file| BufReader::new(file.take(LOG_LEN_MAX)).split(b'\n'));
    let mut history = History::default();
    for line in lines.map_while(Result::ok) {
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
        let number = event["segment"].as_u64().filter(|number| *number <= NUMBER_MAX);
        match (event["event"].as_str(), number, event["hold"].as_str()) {
            (Some("begun"), Some(number), _) => drop(history.begun.insert(number)),
            (Some("recycled" | "expired"), Some(number), _) => {
                history.deleted.insert(number);
                history.sealed.remove(&number);
            }
            (Some("sealed"), Some(number), _) => {
                history.sealed.extend(Sealed::parse(&event).map(|sealed| (number, sealed)));
            }
            (Some("held"), _, Some(name)) => drop(history.held.insert(name.to_owned())),
            (Some("released"), _, Some(name)) => drop(history.held.remove(name)),
            _ => {}
        }
    }
    history
}

impl Catalog {
    /// Contents of a segment when it was sealed: by the log, else by an index that is whole.
    pub(crate) fn sealed(&self, number: u64, history: &History) -> Option<Sealed> {
        let by_index = || self.index(number).filter(Index::is_whole).map(|index| Sealed::of(&index.summary));
        history.sealed.get(&number).copied().or_else(by_index)
    }

    /// Chunks that a segment had when it was sealed; 0 if that is unknown.
    pub(crate) fn sealed_chunks(&self, number: u64, history: &History) -> u64 {
        self.sealed(number, history).map_or(0, |sealed| sealed.chunks)
    }

    /// Notes files whose packets were recorded, and how many each had.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn note_import(&self, files: impl IntoIterator<Item = (String, u64)>) -> Result<(), Error> {
        files.into_iter().try_for_each(|(file, packets)| {
            append(&self.paths, json!({ "event": "imported", "file": file, "packets": packets }))
        })
    }
}
