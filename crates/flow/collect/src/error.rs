//! Errors of a collector.

use std::io;
use std::path::PathBuf;

/// Errors of a collector. Each text says what happened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// The file of templates cannot be opened, read or written.
    #[error("templates in {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The file is not a file of templates.
    #[error("{}: line {line}: {what}: give another file, or delete this one", path.display())]
    Line {
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The fault.
        what: &'static str,
    },
}
