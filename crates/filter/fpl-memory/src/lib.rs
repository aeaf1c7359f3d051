//! Memory of FPL programs as files: read and changed by other processes while the program runs.
//! `docs/format/memory.md` has the layout and the protocol.
//!
//! ```text
//! program --M[i]--> cells <--read(2)-- Peer::snapshot
//!    ^                                 Peer::change --order--> posted
//! SharedCells::begin: orders are carried out between two batches, so no count is lost
//! ```

#![forbid(unsafe_code)]

mod layout;
mod owner;
mod peer;

pub use owner::SharedCells;
pub use peer::{Order, Peer, Snapshot};

use std::io;
use std::path::PathBuf;

/// The reason for which a file of cells cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// A call of the system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// The attempt, as a verb.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another kind of file.
    #[error("{} is not a file of cells, or of another version: {what}", path.display())]
    WrongFile {
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// Another process has it.
    #[error("{} is the memory of a program that runs: name another file", path.display())]
    InUse { path: PathBuf },
    /// The cell does not exist.
    #[error("there is no cell {cell}: {cells} cells count from 0")]
    NoCell {
        /// The requested cell.
        cell: u64,
        /// The number of cells.
        cells: u64,
    },
    /// The owner does not carry out orders.
    #[error("the program that has {} did not carry the order out within {seconds} s: it is stopped, or waits", path.display())]
    NotDone {
        path: PathBuf,
        /// The time.
        seconds: u64,
    },
}

impl Error {
    fn system(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::System { action, path, source }
    }
}

#[cfg(test)]
mod tests;
