//! Errors of view files.

use std::io;
use std::path::{Path, PathBuf};

use tapline_sys::SyscallError;

/// A view file that could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No folder took the file.
    #[error("no folder for the view: {}; set TAPLINE_RUN_DIR to one that can be written to", .tried.join("; "))]
    NoFolder {
        /// Each folder and the problem with it.
        tried: Vec<String>,
    },
    /// A folder or file of the kind that meters and views share.
    #[error(transparent)]
    Folder(#[from] tapline_meters::Error),
    /// A file that the system refuses.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The operation: `open`, `write to`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that could not be mapped.
    #[error("cannot map {}: {source}", .path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The call.
        source: SyscallError,
    },
    /// A file that is not a view, or not of this version or machine.
    #[error("{} cannot be read as a view: {reason}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        reason: String,
    },
    /// A file that is shorter than it says: its process has ended.
    #[error("{} is cut short: its process has ended", .path.display())]
    Ended {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}
