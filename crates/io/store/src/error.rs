//! Errors of opening, recording, searching and changing a store.

use std::io;
use std::path::{Path, PathBuf};

use crate::layout::named;

/// An error of a store. The message names the file or directory and, where there is a remedy, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// A file or directory of the store cannot be opened, read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The verb of the message: "open", "read", "write to".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The process lacks the rights to record to the store.
    #[error(
        "cannot {action} {}: {source}; the recorder runs as user {user}: give the store to that user (chown -R {user} {})",
        path.display(),
        root.display()
    )]
    Access {
        /// The verb of the message: "read", "write to", "make files in".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The store's directory.
        root: PathBuf,
        /// The user ID of the process.
        user: u32,
        /// The error of the system call.
        source: io::Error,
    },
    /// The hold is in force, but the store's log does not have it.
    #[error("the hold {name} is in force, but not in the log: {source}")]
    NotLogged {
        /// The name of the hold.
        name: String,
        /// The error of writing to the log.
        source: Box<Error>,
    },
    /// The directory has no `store.toml`.
    #[error("{} is not a store: it has no store.toml (tapline record --to makes one)", path.display())]
    NoStore { path: PathBuf },
    /// `store.toml` is not valid, or the store has a layout of another version.
    #[error("{}: {reason}", path.display())]
    Description {
        path: PathBuf,
        /// The key or syntax that is not valid.
        reason: String,
    },
    /// Another process holds the store's lock: a recorder, or a command that changes segments.
    #[error(
        "{} is being recorded to, or changed, by another process: one at a time; end that one first",
        path.display()
    )]
    Locked { path: PathBuf },
    /// A setting, name or filter of the caller is not valid; the text is the whole message.
    #[error("{0}")]
    Setting(String),
    /// The file system has less free space than the store still needs.
    #[error(
        "{}: {wanted} bytes are to be reserved for {purpose}, and {free} are free; give a smaller --size",
        path.display()
    )]
    NoRoom {
        path: PathBuf,
        /// The files that the bytes are for: "segments", "indexes and roll-ups".
        purpose: &'static str,
        /// Bytes still to be reserved.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// No file can become the next segment: there is no reserved file, and no segment but the newest.
    #[error("{}: no file is left for another segment; packets are lost until one is", path.display())]
    NoSegment { path: PathBuf },
    /// The disk is full, and the segments that may be deleted do not have the room of a new one: none is deleted.
    #[error(
        "{}: the disk is full: a segment takes {wanted} bytes and {free} are free; the compressed segments that may be \
         deleted have {deletable}, which is too little, so none is: make room on the disk",
        path.display()
    )]
    Crowded {
        path: PathBuf,
        /// Bytes of a segment.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that deleting segments would make free.
        deletable: u64,
    },
    /// The disk is full, and segments that were deleted made no room: no more are deleted until some is free.
    #[error(
        "{}: the disk is full: a segment takes {wanted} bytes and {free} are free; segments that were deleted made no \
         room, as another program took or keeps it, so no more are deleted: make room on the disk",
        path.display()
    )]
    VainDeletions {
        path: PathBuf,
        /// Bytes of a segment.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A file that the recorder did not make has the name of the next segment.
    #[error(
        "{}: another file has the name of the next segment; packets are lost until it is moved away",
        path.display()
    )]
    NameTaken { path: PathBuf },
    /// The number of the newest segment is so high that no recording can count on from it.
    #[error(
        "{}: no segment can follow one of this number; if it is not of this store, move it away",
        path.display()
    )]
    LastNumber {
        /// The segment.
        path: PathBuf,
    },
    /// The file system has no room for the chunks that an erasure writes.
    #[error(
        "{}: the disk has no room for {wanted} bytes that are to be written over packets; no chunk of these was changed: \
         free as much and give the same command again",
        path.display()
    )]
    NoRoomToErase {
        /// The file `rewrite`, which was removed.
        path: PathBuf,
        /// Bytes that it needs.
        wanted: u64,
    },
    /// An erasure stopped while it wrote chunks.
    #[error(
        "cannot write to {}: {source}; the chunks that were not written are kept in the file rewrite: `tapline store \
         repair` writes them",
        path.display()
    )]
    ErasureStopped {
        /// The segment.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Holds keep all segments but the newest, so that none can be recycled.
    #[error(
        "{}: all segments but the newest are on hold; packets are lost until a hold is released (tapline store release) or --size is larger",
        path.display()
    )]
    AllHeld { path: PathBuf },
    /// The writing thread has ended before the recording did; packets can no longer be written.
    #[error("the thread that writes the store ended early")]
    Thread,
}

impl Error {
    /// Whether this process lacks the right to a file of the store.
    pub fn is_denied(&self) -> bool {
        matches!(self, Error::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether a file has no room on the disk.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::File { source, .. } if is_full(source))
    }

    /// Makes an [`Error::File`] of an [`io::Error`], for `map_err`.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = named(path);
        move |source| Error::File { action, path, source }
    }
}

/// Whether the disk, or a quota, has no more room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
