//! Errors with a capture file.

use std::fmt;
use std::io;

/// A position in a file: a byte, counted from 0, of the file itself or of the data that it unpacks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The byte.
    pub offset: u64,
    /// Whether the file is compressed, so that the byte is one of the unpacked data.
    pub is_unpacked: bool,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.is_unpacked { " of the unpacked data" } else { "" };
        write!(f, "byte {}{of}", self.offset)
    }
}

fn beyond(place: &FilePosition) -> String {
    if place.offset == 0 { String::new() } else { format!(" beyond {place}") }
}

/// Error while a capture file is opened or read. Packets before the fault have been lent by then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open {name}: {source}")]
    Open {
        /// The file.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The system failed to read on.
    #[error("cannot read {name} on from {place}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The end of the bytes read.
        place: FilePosition,
        /// The system's answer.
        source: io::Error,
    },
    /// The compressed data are damaged or end early.
    #[error("{name}: the {format} data cannot be unpacked beyond {place}: {source}")]
    Unpack {
        /// The file.
        name: String,
        /// gzip, zstd or lz4.
        format: &'static str,
        /// The end of what could be unpacked.
        place: FilePosition,
        /// The result of the decoder.
        source: io::Error,
    },
    /// The file holds nothing.
    #[error("{name} is empty: not even a file header is in it")]
    Empty {
        /// The file.
        name: String,
    },
    /// The file is of another kind.
    #[error("{name} is not a capture file that we can read: {looks_like}")]
    NotACapture {
        /// The file.
        name: String,
        /// The format that it seems to have.
        looks_like: String,
    },
    /// The file ends in the middle of something.
    #[error(
        "{name} is cut short: it ends at {place}, in the {item} that begins at byte {item_offset}; \
         {missing} bytes are missing"
    )]
    Truncated {
        /// The file.
        name: String,
        /// Whether it is a regular file, which no writer completes.
        is_file: bool,
        /// The end of the file.
        place: FilePosition,
        /// The incomplete item: a file header, a packet header, packet data, a block.
        item: &'static str,
        /// The beginning of the item.
        item_offset: u64,
        /// Number of bytes that are missing.
        missing: u64,
    },
    /// The file is of a version of its format, or uses a part of it, that cannot be read.
    #[error("{name} cannot be read{}: {what}", beyond(place))]
    Unsupported {
        /// The file.
        name: String,
        /// The beginning of the unknown item.
        place: FilePosition,
        /// The version or part, and what can be read.
        what: String,
        /// The message in libpcap's words.
        libpcap: String,
    },
    /// The file contradicts its format.
    #[error("{name} is damaged at {place}: {reason}")]
    Corrupt {
        /// The file.
        name: String,
        /// The beginning of the damaged item.
        place: FilePosition,
        /// The fault.
        reason: String,
        /// The captured length of a packet, if that is the fault: more than its link type allows.
        cap_len: Option<u32>,
    },
    /// `--shift` would move the time of a packet out of the years 1970 to 2262.
    #[error("packet {packet} cannot be moved in time so far: its time would not be between 1970 and 2262")]
    Shift {
        /// The number of the packet, from 1.
        packet: u64,
    },
}

/// Error while packets are written. The file contains whole records only, up to the fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file or its directory cannot be opened.
    #[error("cannot create {name}: {source}")]
    Create {
        /// The file.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No space is left, or the user's quota is used up.
    #[error(
        "cannot write to {name}: the disk is full: what did not fit is lost, and counted; what was written before can be read"
    )]
    DiskFull {
        /// The file.
        name: String,
    },
    /// The file has the length that the process (`RLIMIT_FSIZE`) or the file system allows.
    #[error(
        "cannot write to {name}: it is as long as a file may be (ulimit -f, or the file system): what did not fit is lost, and counted; what was written before can be read"
    )]
    FileTooLarge {
        /// The file.
        name: String,
    },
    /// The reader of the pipe has gone.
    #[error("{name}: the reader has gone (broken pipe)")]
    BrokenPipe {
        /// The stream.
        name: String,
    },
    /// Another failure of the system.
    #[error("cannot write to {name}: {source}")]
    Write {
        /// The file.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The settings contradict each other.
    #[error("{0}")]
    Options(String),
}
