//! What can go wrong between a reader and its daemon.

use std::io;
use std::path::PathBuf;

/// What can go wrong between a reader and its daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answers at the socket.
    #[error(
        "no daemon at {}: {source}; start one (tapline serve), or name its socket (TAPLINE_SOCKET)", path.display()
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What connect(2) said.
        source: io::Error,
    },
    /// The daemon refuses, in its words.
    #[error("the daemon: {text}")]
    Refused {
        /// Why, and what to do.
        text: String,
    },
    /// The connection ended.
    #[error("the daemon closed the connection")]
    Closed,
    /// The other end says what the protocol does not have.
    #[error("the other end does not keep to the protocol: {what}")]
    Protocol {
        /// What it was.
        what: String,
    },
    /// The daemon is gone, and all that it had stored for us was read.
    #[error("{name}: the daemon is gone; all that it had stored was read")]
    DaemonGone {
        /// The capture.
        name: String,
    },
    /// A daemon was there again, but captures something else under this name.
    #[error("{name}: the daemon is there again, but serves other interfaces under this name; start anew")]
    OtherInterfaces {
        /// The capture.
        name: String,
    },
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
    pub(crate) fn protocol(what: impl Into<String>) -> Error {
        Error::Protocol { what: what.into() }
    }
}
