//! Why a daemon does not start, or a capture ends.

use std::path::PathBuf;

/// Why a daemon does not start, or a capture ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rules cannot be read.
    #[error("{}: {source}", path.display())]
    Rules {
        /// The file.
        path: PathBuf,
        /// Line, column, and what is wrong there.
        source: toml::de::Error,
    },
    /// The rules make no sense.
    #[error("{}: {what}", path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// What, and what to do.
        what: String,
    },
    /// A file or socket.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// Another daemon has the socket.
    #[error("{}: another daemon listens there; stop it, or use another socket (--socket)", path.display())]
    SocketTaken {
        /// The socket.
        path: PathBuf,
    },
    /// Its interfaces have different link types.
    #[error(
        "capture {capture:?}: {first} has link type {first_type}, {other} has {other_type}; a buffer has one: make two captures of them"
    )]
    LinkTypes {
        /// Its name.
        capture: String,
        /// One interface.
        first: String,
        /// Its link type.
        first_type: String,
        /// Another.
        other: String,
        /// Its link type.
        other_type: String,
    },
    /// No interface is there yet.
    #[error("capture {capture:?}: no interface that is meant is there")]
    NoInterface {
        /// Its name.
        capture: String,
    },
    /// A filter of the rules.
    #[error("capture {capture:?}: {text}")]
    Filter {
        /// Its name.
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
