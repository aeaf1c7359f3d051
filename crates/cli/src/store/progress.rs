//! How far a command is, on a terminal.

use std::io::{self, IsTerminal, Write};

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
