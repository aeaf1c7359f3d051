use std::io;
use std::path::PathBuf;

use crate::FILE_MAX;

/// A file of places that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// A list of files that names none.
    #[error("no file of places is named: give a CSV or MMDB file")]
    Empty,
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Open {
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A directory, a pipe or a device.
    #[error("{} is not a regular file: name a CSV or MMDB file", file.display())]
    Kind { file: PathBuf },
    /// More bytes than a file may have.
    #[error("{} has more than {FILE_MAX} bytes, the most of a file of places", file.display())]
    Size { file: PathBuf },
    /// A mistake in a line of a text file.
    #[error("{}:{line}: {what}", file.display())]
    Line {
        file: PathBuf,
        /// Number of the line, from 1 on.
        line: u64,
        /// The mistake, and its mend.
        what: String,
    },
    /// An MMDB file that is damaged, or of something else than places.
    #[error("{}: {what}", file.display())]
    Database {
        file: PathBuf,
        /// The mistake, and its mend.
        what: String,
    },
}
