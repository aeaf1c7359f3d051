//! What can go wrong with a store.

use std::io;
use std::path::{Path, PathBuf};

/// Why a store cannot be opened, written or read. Each text names the place and, where there is one, the mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of the store cannot be opened, read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried: "open", "write to".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The directory holds no store.
    #[error("{} is no store: it has no store.toml (tapline record --to makes one)", path.display())]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// `store.toml` cannot be understood.
    #[error("{}: {reason}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process writes to this store.
    #[error(
        "{} is being recorded to, or changed, by another process: one at a time; end that one first",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A setting is out of range.
    #[error("{0}")]
    Setting(String),
    /// The disk has less room than the store is to have.
    #[error(
        "{}: {wanted} bytes are to be reserved for segments and indexes, and {free} are free; give a smaller --size",
        path.display()
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// Bytes still to be reserved.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// No file can become the next segment: those that there were have failed.
    #[error("{}: no file is left for another segment; packets are lost until one is", path.display())]
    NoSegment {
        /// The directory.
        path: PathBuf,
    },
    /// Holds keep all segments but the newest.
    #[error(
        "{}: all segments but the newest are on hold; packets are lost until a hold is released (tapline store hold) or --size is larger",
        path.display()
    )]
    AllHeld {
        /// The directory.
        path: PathBuf,
    },
    /// The thread that writes is gone.
    #[error("the thread that writes the store ended early")]
    Thread,
}

impl Error {
    /// What the system said of a file.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { action, path, source }
    }
}
