//! Errors of view files.

use std::io;
use std::path::{Path, PathBuf};

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
    /// A folder or file that the system refuses, or that its process emptied at the end.
    #[error(transparent)]
    File(#[from] tapline_meters::Error),
    /// A file that is not a view, or not of this version or machine.
    #[error("{} cannot be read as a view: {reason}", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let of_file = tapline_meters::Error::io(action, path);
        move |source| of_file(source).into()
    }
}
