//! Errors of the page's server and its history.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A server that cannot begin, or a history that cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// The address is taken, or not one of this host.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// An address that others reach, without TLS in front.
    #[error(
        "{address} can be reached by other hosts, and this server speaks plain HTTP: listen on 127.0.0.1 and use ssh -L, give it a certificate (--certificate, --key), or put a proxy with TLS in front and say --behind-proxy"
    )]
    Open { address: SocketAddr },
    /// A certificate or its key.
    #[error("certificate {}: {why}", .path.display())]
    Certificate {
        path: PathBuf,
        /// The fault, and its remedy.
        why: String,
    },
    /// The runtime of the server.
    #[error("cannot wait for connections: {0}")]
    Runtime(io::Error),
    /// The history.
    #[error("history {}: {}", .path.display(), Error::line(.source))]
    History {
        /// Path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A file that cannot be a history.
    #[error("history {}: {why}", .path.display())]
    HistoryFile {
        path: PathBuf,
        /// The fault, and its remedy.
        why: String,
    },
    /// A history that another process writes.
    #[error(
        "history {}: {} writes it already: name another file (--history FILE), or keep none (--no-history)",
        .path.display(), process(*.holder)
    )]
    HistoryHeld {
        /// Path of the file.
        path: PathBuf,
        /// The process, if it has written its number.
        holder: Option<u32>,
    },
    /// A file of events that cannot be read.
    #[error(
        "events {}: {source}", .path.display()
    )]
    Events { path: PathBuf, source: io::Error },
    /// Buckets that could not be written.
    #[error(
        "history {}: {}: {waiting} minutes, hours and days wait in memory, {given_up} found no room there",
        .path.display(), Error::line(.source)
    )]
    Unwritten {
        /// The file of the history.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
        /// Buckets that wait for the next write.
        waiting: usize,
        /// Buckets that were given up since the first write that failed.
        given_up: u64,
    },
    /// A second of a later time than now.
    #[error(
        "history {}: seconds of packets that are of the future are not kept: is the clock wrong, or is it a file?", .path.display()
    )]
    Future {
        /// The file of the history.
        path: PathBuf,
    },
    /// A history of another version.
    #[error(
        "history {}: it has version {version}; this program knows version 1: name another file (--history FILE)",
        .path.display()
    )]
    HistoryVersion {
        /// Path of the file.
        path: PathBuf,
        /// The version that it has.
        version: i64,
    },
}

fn process(number: Option<u32>) -> String {
    number.map_or_else(|| "another process".to_owned(), |number| format!("process {number}"))
}

impl Error {
    /// The message of SQLite in one line, without the text of the statement.
    pub(crate) fn line(error: &rusqlite::Error) -> String {
        let text = match error {
            rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
            rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
            _ => error.to_string(),
        };
        text.lines().next().unwrap_or_default().to_owned()
    }

    pub(crate) fn history(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::History { path, source }
    }
}
