//! Outputs other than files and lines: a count, and standard output whose errors are reported.

mod count;

pub(crate) use count::CountOutput;

use std::fs::File;
use std::io::{self, Write};

use anyhow::{Context, Result};
use tapline_sys::standard_output;

/// Name in messages.
const NAME: &str = "standard output";

/// Standard output, for packets as lines.
pub(crate) fn standard() -> Result<File> {
    standard_output::file().context(NAME)
}

/// Writes a command's answer to standard output.
///
/// # Errors If it could not be written; the error has a kind of its own if the reader has gone.
pub(crate) fn tell(text: &str) -> Result<()> {
    standard_output::check().context(NAME)?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(NAME)
}
