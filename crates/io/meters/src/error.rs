//! Errors of meters and measurements. None stops a capture: its meters are then private, or the reader has none.

use std::io;
use std::path::PathBuf;

use tapline_sys::SyscallError;

/// Meters that could not be made or read, measurements that mean nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// No folder took the file.
    #[error("no folder for the meters: {}; set TAPLINE_RUN_DIR to one that can be written to", .tried.join("; "))]
    NoFolder {
        /// Each folder and the problem with it.
        tried: Vec<String>,
    },
    /// The folder belongs to others, or others may write to it.
    #[error("{} is not a folder of ours alone; remove it, or set TAPLINE_RUN_DIR", .path.display())]
    ForeignFolder { path: PathBuf },
    /// A file or folder that the system refuses.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The operation: `create`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// A file that could not be mapped.
    #[error("cannot map {}: {source}", .path.display())]
    Map {
        path: PathBuf,
        /// The call.
        source: SyscallError,
    },
    /// The file is not a file of meters, or not of this version or machine.
    #[error("{} cannot be read as meters: {reason}", .path.display())]
    Foreign {
        path: PathBuf,
        /// The fault and its place.
        reason: String,
    },
    /// The file of a saved run does not have the written form.
    #[error("this is not a profile as --json writes it: {reason}")]
    Profile {
        /// The fault and its place.
        reason: String,
    },
    /// Something to be measured that did not do its work.
    #[error("{task} did {found} where {expected} was to be done: its cost would mean nothing")]
    Work {
        /// The measured task.
        task: String,
        /// Expected amount of work.
        expected: u64,
        /// Amount of work done.
        found: u64,
    },
    /// A file that is shorter than it says: its process has ended.
    #[error("{} is cut short: its process has ended", .path.display())]
    Ended { path: PathBuf },
}

impl Error {
    /// The error of a file or folder.
    pub fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}
