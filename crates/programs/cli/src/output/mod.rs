//! Outputs other than files and lines: a count, and standard output whose errors are reported.

mod count;

pub(crate) use count::CountOutput;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tapline_file::{FileCreator, FileWriter, Section, WriteOptions};
use tapline_packet::Interface;
use tapline_stages::FileOutput;
use tapline_sys::standard_output;

use crate::clock_error;
use crate::session::clocks;

/// Name in messages.
const NAME: &str = "standard output";

/// Standard output, for packets as lines.
pub(crate) fn standard() -> Result<File> {
    standard_output::file().context(NAME)
}

/// A capture file. Interfaces that are captured get the time of its start.
pub(crate) fn file(
    options: WriteOptions,
    path: &Path,
    interfaces: &[Interface],
    is_live: bool,
    files: Box<dyn FileCreator>,
) -> Result<FileOutput> {
    let now = clocks();
    let writer = FileWriter::create(options, interfaces, now, files)?;
    Ok(FileOutput::new(writer, &path.display().to_string(), is_live.then_some(now.wall)))
}

/// The section header of a pcapng file: what made its packets, and the state of the clock that gave live ones the time
/// stamps that `-j` names.
pub(crate) fn section(origin: &str, is_live: bool, stamps: Option<&str>) -> Section {
    let writer = concat!("tapline ", env!("CARGO_PKG_VERSION"));
    let clock = is_live.then(|| clock_error::comment(stamps));
    let comments = [format!("{writer}, {origin}")].into_iter().chain(clock).collect();
    Section { comments, ..Section::of_this_machine(writer) }
}

/// Writes a line about the work to standard error. A reader that is gone stops no work.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "tapline: {line}");
}

/// Writes a command's answer to standard output.
///
/// # Errors If it could not be written; the error has a kind of its own if the reader has gone.
pub(crate) fn tell(text: &str) -> Result<()> {
    standard_output::check().context(NAME)?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(NAME)
}
