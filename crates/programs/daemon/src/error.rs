//! Errors of a daemon at its start and in its captures.

use std::path::PathBuf;

/// Error of a daemon at its start, or of a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// The rules cannot be read.
    #[error("{}: {source}", path.display())]
    Rules {
        path: PathBuf,
        /// Line, column, and the fault there.
        source: toml::de::Error,
    },
    /// The rules make no sense.
    #[error("{}: {what}", path.display())]
    Senseless {
        path: PathBuf,
        /// The fault, and what to do.
        what: String,
    },
    /// A file or socket.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or socket.
        path: PathBuf,
        source: std::io::Error,
    },
    /// Another daemon has the socket.
    #[error("{}: another daemon listens there; stop it, or use another socket (--socket)", path.display())]
    SocketTaken {
        /// The socket.
        path: PathBuf,
    },
    /// The interfaces of a capture have different link types.
    #[error(
        "capture {capture:?}: {first} has link type {first_type}, {other} has {other_type}; a buffer has one: make two captures of them"
    )]
    LinkTypes {
        /// Name of the capture.
        capture: String,
        /// One interface.
        first: String,
        /// Link type of `first`.
        first_type: String,
        /// Another.
        other: String,
        /// Link type of `other`.
        other_type: String,
    },
    /// No interface is there yet.
    #[error("capture {capture:?}: none of its interfaces exists")]
    NoInterface {
        /// Name of the capture.
        capture: String,
    },
    /// A filter of the rules.
    #[error("capture {capture:?}: {text}")]
    Filter {
        /// Name of the capture.
        capture: String,
        /// The fault.
        text: String,
    },
    /// A buffer cannot be made.
    #[error(transparent)]
    Ring(#[from] tapline_ring::Error),
    /// The system refuses.
    #[error(transparent)]
    System(#[from] std::io::Error),
}
