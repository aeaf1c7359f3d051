//! The log of a store: one JSON line for each thing that happened to its segments.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::error::Error;
use crate::files;
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
    /// Holds that were made and not released.
    pub(crate) held: BTreeSet<String>,
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
            (Some("recycled" | "expired"), Some(number), _) => drop(history.deleted.insert(number)),
            (Some("held"), _, Some(name)) => drop(history.held.insert(name.to_owned())),
            (Some("released"), _, Some(name)) => drop(history.held.remove(name)),
            _ => {}
        }
    }
    history
}

impl Catalog {
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
