//! Sources that several threads read at once.
//!
//! ```text
//! thread 0 --read--> piece 0             piece 3 ...     together the pieces are the source, in the order of their
//! thread 1 --read-->    piece 1, piece 2         ...     numbers; which thread gets which is left to chance
//! ```

use std::time::Duration;

use tapline_packet::{Interface, Record};

use crate::{Advance, Error, Source};

/// The greatest capacity of a buffer that is kept for further pieces.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Frees a buffer that a very long packet has made long. Kept for further pieces, it would make one after the other as
/// long.
pub fn free_long_buffer(bytes: &mut Vec<u8>) {
    if bytes.capacity() > KEPT_LEN_MAX {
        *bytes = Vec::new();
    }
}

/// Packets of a piece of a source, with the memory that they are in.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// Number of the piece, from 0 on without a gap.
    pub number: u64,
    /// Packets of the source before this piece.
    pub start: u64,
    /// Memory that the records point into.
    pub bytes: Vec<u8>,
    /// Any number of packets, in the source's order.
    pub records: Vec<Record>,
    /// Interfaces that the source knew at the end of the piece.
    pub interfaces: usize,
    /// Progress of the source at the end of the piece: bytes read and bytes in all.
    pub progress: Option<(u64, u64)>,
}

/// A source in pieces.
pub trait PieceReader: Send + Sync {
    /// Finds the next piece, and takes the memory of the former one that `piece` holds. Each piece comes once, to one
    /// of the threads that call. Waits for at most `wait` if other threads work on all pieces that may be begun.
    ///
    /// # Errors
    /// The fault that ended the source, to one of the threads; all packets before it are in pieces that came earlier.
    fn read(&self, piece: &mut Piece, wait: Duration) -> Result<Advance, Error>;

    /// Interfaces behind the first `known`.
    fn interfaces_from(&self, known: usize) -> Vec<Interface>;

    /// Calls `look` with the source that is behind the pieces, for its account, its events and its progress. Packets
    /// count as delivered by those who lend them.
    fn look(&self, look: &mut dyn FnMut(&mut dyn Source));
}
