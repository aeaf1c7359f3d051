//! The log of a store: one JSON line for each thing that happened to its segments.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::error::Error;
use crate::files;
use crate::layout::Paths;

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_nanos(tapline_sys::clock::realtime_ns())
}

/// Adds a line: an object, to which the time is added.
///
/// # Errors
/// [`Error::File`]. Recorders go on all the same; what deletes by order does not.
pub(crate) fn append(paths: &Paths, mut event: Value) -> Result<(), Error> {
    event["time_ns"] = now().as_nanos().into();
    let path = paths.log();
    let opened = files::open_or_make(&path, OpenOptions::new().append(true));
    // One write for each line: two processes may add some at the same time.
    let written = opened.and_then(|mut log| log.write_all(format!("{event}\n").as_bytes()));
    written.map_err(Error::file("write to", &path))
}

/// The longest log that is read, in bytes: lines of some million segments.
const LOG_LEN_MAX: u64 = 256 << 20;

/// The numbers of segments that recorders deleted, by the log; empty without a log. Lines that do not parse are passed
/// over.
pub(crate) fn deleted_segments(paths: &Paths) -> HashSet<u64> {
    let opened = disk::open_regular(&paths.log(), OpenOptions::new().read(true));
    let number = |line: Vec<u8>| {
        let event: Value = serde_json::from_slice(&line).ok()?;
        let is_deletion = matches!(event["event"].as_str(), Some("recycled" | "expired"));
        event["segment"].as_u64().filter(|_| is_deletion)
    };
    let lines = opened.into_iter().flat_map(|file| BufReader::new(file.take(LOG_LEN_MAX)).split(b'\n'));
    lines.map_while(Result::ok).filter_map(number).collect()
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
