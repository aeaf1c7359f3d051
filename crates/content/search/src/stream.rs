//! Patterns across the borders of packets: the state of one flow.
//!
//! ```text
//! stream   . . . . . . . . . . | . . . . . . . . . | . . .
//!                     tail ────┘ piece ────────────┘ next
//!
//! tail + the piece's first bytes   searched: what begins in the tail and ends in the piece
//! piece                            searched: what lies in it
//! ```
//!
//! The tail is one byte shorter than the longest pattern, so nothing ends in a piece that began before the tail.

use crate::{Match, Patterns};

/// One occurrence in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamMatch {
    /// Offset of its first byte from the start of the stream.
    pub start: u64,
    /// The pattern's id.
    pub id: u32,
    /// Offset behind its last byte.
    pub end: u64,
}

/// The state of one flow between pieces: at most [`StreamState::bytes_max`] bytes on the heap, none before the first
/// piece.
///
/// Feeding pieces in order gives the matches of the whole, each once, with the piece in which it ends. All pieces
/// must be searched with the same patterns.
///
/// ```
/// use tapline_search::{Pattern, Patterns, StreamState};
/// let patterns = Patterns::new(vec![Pattern::new(9, "needle")])?;
/// let (mut stream, mut ends) = (StreamState::new(), Vec::new());
/// for piece in ["hay nee", "dle hay"] {
///     stream.push(&patterns, piece.as_bytes(), |found| ends.push(found.end));
/// }
/// assert_eq!(ends, [10]);
/// # Ok::<(), tapline_search::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    tail: Vec<u8>,
    /// Offset of the next piece.
    position: u64,
}

impl StreamState {
    /// At the start of a flow.
    pub fn new() -> StreamState {
        StreamState::default()
    }

    /// The most heap memory that a stream of these patterns takes, in bytes: less than two of the longest pattern.
    pub fn bytes_max(patterns: &Patterns) -> usize {
        2 * (patterns.len_max() - 1)
    }

    /// Bytes of the stream so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Searches the next piece. Matches come in no order.
    pub fn push(&mut self, patterns: &Patterns, piece: &[u8], mut found: impl FnMut(StreamMatch)) {
        let keep = patterns.len_max() - 1;
        self.search_border(patterns, &piece[..piece.len().min(keep)], &mut found);
        let origin = self.position;
        patterns.for_each(piece, |each| found(at(origin, each)));
        self.keep_tail(piece, keep);
        self.position += piece.len() as u64;
    }

    /// Bytes of the stream were lost: nothing matches across them, and offsets go on behind them.
    pub fn skip(&mut self, bytes: u64) {
        self.tail.clear();
        self.position += bytes;
    }

    fn search_border(&mut self, patterns: &Patterns, head: &[u8], found: &mut impl FnMut(StreamMatch)) {
        let border = self.tail.len();
        if border == 0 || head.is_empty() {
            return;
        }
        // The pieces of a flow are mostly longer than its tail: room for both is made once.
        self.tail.reserve_exact(head.len());
        self.tail.extend_from_slice(head);
        let origin = self.position - border as u64;
        patterns.for_each(&self.tail, |each| {
            if each.start < border && each.end > border {
                found(at(origin, each));
            }
        });
        self.tail.truncate(border);
    }

    fn keep_tail(&mut self, piece: &[u8], keep: usize) {
        let new = &piece[piece.len().saturating_sub(keep)..];
        let old = self.tail.len().min(keep - new.len());
        self.tail.drain(..self.tail.len() - old);
        self.tail.reserve_exact(new.len());
        self.tail.extend_from_slice(new);
    }
}

fn at(origin: u64, found: Match) -> StreamMatch {
    StreamMatch { start: origin + found.start as u64, id: found.id, end: origin + found.end as u64 }
}
