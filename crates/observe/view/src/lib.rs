//! The greatest hosts, pairs, services, names and flows of each second, in a file that others read meanwhile.
//!
//! ```text
//! Journal --Ranker: a queue--> its thread: a bounded table for each dimension, rows + others = metered
//! Second  ---------------------> |
//!                                ViewFile::contribute --> PID.view --> Reader
//!                                several workers: TableSum
//! ```
//!
//! `docs/format/view.md` has the file. A [`Ranking`] has room for a fixed number of keys: where it is full the least
//! key gives way, its packets go to *others*, and the key that took its place says how much it may have had before.
#![forbid(unsafe_code)]

mod change;
mod dimension;
mod error;
mod layout;
mod mirror;
mod names;
mod ranker;
mod ranking;
mod rankings;
mod reader;
mod second;
mod table;
mod writer;

pub use dimension::{Dimension, Key, KeyValue, Segment};
pub use error::Error;
pub use layout::{OWN_MAX, ROWS_MAX, SECONDS};
pub use ranker::{Ranker, ReadOwn};
pub use ranking::Ranking;
pub use reader::{Process, Reader, Reading};
pub use second::Second;
pub use table::{Amount, Row, Table, TableSum, Tables};
pub use writer::ViewFile;
