//! Errors between a reader and its daemon.

use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::printable_lines;

/// Errors between a reader and its daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No process answers at the socket.
    #[error(
        "no daemon at {}: {source}; start one (tapline serve), or name its socket (TAPLINE_SOCKET)", path.display()
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The error of connect(2).
        source: io::Error,
    },
    /// The daemon refuses, in its words.
    #[error("the daemon: {text}")]
    Refused {
        /// The reason, and the remedy.
        text: String,
    },
    /// The connection ended.
    #[error("the daemon closed the connection")]
    Closed,
    /// The other end sent a message that the protocol does not have.
    #[error("the other end does not keep to the protocol: {what}")]
    Protocol {
        /// The value that was found.
        what: String,
    },
    /// The daemon is gone, and all that it had stored for us was read.
    #[error("the daemon is gone; all that it had stored was read")]
    DaemonGone,
    /// The daemon is there and does not answer.
    #[error("the daemon does not answer: it is stopped, or hangs (tapline status)")]
    Silent,
    /// The wait for the daemon was ended from this side.
    #[error("the wait for the daemon's answer was ended")]
    Interrupted,
    /// The socket is there, and we may not open it.
    #[error(
        "the daemon's socket {}: {source}; the daemon's rules decide which users may open it (mode, group)", path.display()
    )]
    NotAllowed {
        /// The socket.
        path: PathBuf,
        /// The error of connect(2).
        source: io::Error,
    },
    /// A daemon was there again, but captures something else under this name.
    #[error("the daemon restarted with another link type for this capture; restart the reader")]
    OtherInterfaces,
    /// The daemon does not answer the question for interfaces.
    #[error("it is of an older version; restart it with this one")]
    NoInterfaces,
    /// The daemon is of a version without groups of readers.
    #[error("the daemon knows no groups of readers: it is of an older version; read tap:NAME, or restart it")]
    NoGroups,
    /// The socket failed.
    #[error("the daemon's socket: {0}")]
    Socket(#[from] io::Error),
    /// A buffer cannot be read.
    #[error(transparent)]
    Ring(#[from] tapline_ring::Error),
}

impl From<tapline_sys::SyscallError> for Error {
    fn from(error: tapline_sys::SyscallError) -> Error {
        Error::Socket(error.source)
    }
}

impl Error {
    /// The error if no process answers at a socket.
    pub(crate) fn unreachable(path: &Path, source: io::Error) -> Error {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NotAllowed { path, source },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Silent,
            _ => Error::NoDaemon { path, source },
        }
    }

    /// Adapts the error to a socket that waits only for a while.
    pub(crate) fn of_waiting(self) -> Error {
        match self {
            Error::Socket(error) if error.kind() == io::ErrorKind::WouldBlock => Error::Silent,
            other => other,
        }
    }

    /// Text of the other end may be a part, so it is cut and made safe for a terminal.
    pub(crate) fn protocol(what: impl Into<String>) -> Error {
        const LEN_MAX: usize = 300;
        Error::Protocol { what: printable_lines(&what.into()).chars().take(LEN_MAX).collect() }
    }
}
