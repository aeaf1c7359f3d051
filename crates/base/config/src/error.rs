//! Errors of configurations: each names its place, and the mend.

use std::io;
use std::path::PathBuf;

use crate::layer::Origin;

/// Errors of configurations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A file that others could have written.
    #[error("{}: {why}; options in it could be anybody's: chown and chmod it, or remove it", path.display())]
    Untrusted {
        path: PathBuf,
        /// The users with a right to write it.
        why: String,
    },
    /// The text of a file is not TOML.
    #[error("{}:{line}: {what}", path.display())]
    Syntax {
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The parser's words.
        what: String,
    },
    /// A table, an option, or a value that there is not.
    #[error("{origin}: {what}")]
    Unknown {
        /// The place.
        origin: Origin,
        /// The fault, and the nearest name.
        what: String,
    },
    /// A profile that no file has.
    #[error("there is no profile {name:?}{nearest}")]
    NoProfile {
        /// Name of the key.
        name: String,
        /// The nearest one, in words; empty if none is near.
        nearest: String,
    },
    /// Two values that exclude each other.
    #[error("{first_origin}: {first} cannot be together with {second} ({second_origin})")]
    Conflict {
        /// The option.
        first: String,
        /// Origin of the first.
        first_origin: Origin,
        /// The other one.
        second: String,
        /// Origin of the second.
        second_origin: Origin,
    },
}

impl Error {
    /// Whether this user may not look at the file.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Error::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}
