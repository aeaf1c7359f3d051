//! The log of a store: one JSON line for each thing that happened to its segments.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::{Value, json};
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::error::Error;
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
    let opened = disk::open_regular(&path, OpenOptions::new().create(true).append(true));
    // One write for each line: two processes may add some at the same time.
    let written = opened.and_then(|mut log| log.write_all(format!("{event}\n").as_bytes()));
    written.map_err(Error::file("write to", &path))
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
