//! Outputs besides files and lines: a count; and standard output with its failures reported.

mod count;

pub(crate) use count::CountOutput;

use std::fs::File;
use std::io::{self, Write};

use anyhow::{Context, Result};
use tapline_sys::standard_output;

/// Its name in messages.
const NAME: &str = "standard output";

/// Standard output, for packets as lines.
pub(crate) fn standard() -> Result<File> {
    standard_output::file().context(NAME)
}

/// Writes to standard output what a command found out.
///
/// # Errors
/// If it could not be written; a reader that has gone is told apart by its kind.
pub(crate) fn tell(text: &str) -> Result<()> {
    standard_output::check().context(NAME)?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(NAME)
}
