//! Errors of serving metrics.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Errors of serving metrics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// The address could be reached from other hosts.
    #[error(
        "{address} is not an address of this host alone: metrics have neither a password nor TLS. Listen at 127.0.0.1, [::1] \
         or a Unix socket, and put a proxy with TLS in front"
    )]
    Public { address: SocketAddr },
    /// The text is not an address.
    #[error(
        "{text:?} is not an address: 127.0.0.1:9477, [::1]:9477 or the path of a Unix socket (/run/tapline/metrics.sock)"
    )]
    Address { text: String },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        address: String,
        /// The error of bind(2) or listen(2).
        source: io::Error,
    },
    /// Another process listens at the socket.
    #[error("{} belongs to a process that listens there", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        source: io::Error,
    },
    /// The wait for connections failed.
    #[error("cannot wait for connections: {0}")]
    Wait(io::Error),
}
