//! Output of the commands: their progress and their answers.

use std::io::{self, IsTerminal, Write};

use crate::escape::{plain_json, plain_lines};

/// Prints an answer, as text or as JSON. Names of holds, files and interfaces, and reasons, are the text of others: in it
/// nothing steers a terminal.
pub(super) fn print(text: &str, is_json: bool) -> io::Result<()> {
    let text = if is_json { plain_json(text) } else { plain_lines(text) };
    io::stdout().write_all(text.as_bytes())
}

/// A line on standard error that is written over.
pub(super) struct ProgressLine {
    is_shown: bool,
    unit: &'static str,
}

impl ProgressLine {
    pub(super) fn new(unit: &'static str) -> ProgressLine {
        ProgressLine { is_shown: io::stderr().is_terminal(), unit }
    }

    pub(super) fn tell(&self, done: u64, all: u64) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r{done} of {all} {}\x1b[K", self.unit);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
