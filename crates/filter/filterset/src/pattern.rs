//! Patterns: cells of bytes with required values, without filter text.
//!
//! ```text
//! pattern := cell*                        all must match
//! cell    := place mask value             as many bytes of the packet as mask and value have
//! place   := offset from the packet's first byte, or past the IPv4 header that starts at a byte
//! ```
//!
//! PathFinder (Bailey and others, OSDI 1994) describes filters in this way. A cell matches only if its bytes were captured.

use super::condition::Condition;
use super::disjunct::Conjunction;
use super::field::{BitField, Origin};
use super::filter::Filter;

/// Cells that must all match.
///
/// ```
/// use tapline_filterset::HeaderPattern;
/// // TCP over IPv4 in Ethernet, no later fragment: `ip proto 6 and ip[6:2] & 0x1fff = 0`.
/// let tcp = HeaderPattern::new()
///     .cell(12, &[0xff; 2], &[0x08, 0x00])?
///     .cell(20, &[0x1f, 0xff], &[0, 0])?
///     .cell(23, &[0xff], &[6])?;
/// assert_eq!(tcp.filter().constants().len(), 3);
/// # Ok::<(), tapline_filterset::PatternError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct HeaderPattern {
    cells: Conjunction,
}

/// The reason that a cell cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Mask and value are of different lengths, or empty.
    #[error("a cell has a mask and a value of the same length, one byte or more")]
    Lengths,
    /// More than 256 bytes in all.
    #[error("a pattern looks at {} bytes at most", HeaderPattern::LEN_MAX)]
    TooLong,
    /// The value has bits that the mask hides.
    #[error("the value has bits where the mask has none: no packet would match")]
    Hidden,
    /// Another cell requires other values of the same bytes.
    #[error("another cell requires other values of the same bytes: no packet would match")]
    Contradiction,
    /// The cell is past the 32 bits that offsets have.
    #[error("the cell ends past the largest offset")]
    TooFar,
}

impl HeaderPattern {
    /// The most bytes that a pattern looks at.
    pub const LEN_MAX: usize = 256;

    /// Matches every packet.
    pub fn new() -> HeaderPattern {
        HeaderPattern::default()
    }

    /// Adds a cell at `offset` bytes from the packet's first one: the bytes under `mask` must be `value`.
    ///
    /// # Errors
    /// [`PatternError`] if no packet could match, or the cell is too large.
    pub fn cell(mut self, offset: u32, mask: &[u8], value: &[u8]) -> Result<HeaderPattern, PatternError> {
        if mask.len() != value.len() || mask.is_empty() {
            return Err(PatternError::Lengths);
        }
        let len: usize = self.cells.parts.iter().map(|(part, _)| usize::from(part.width)).sum();
        if len + mask.len() > HeaderPattern::LEN_MAX {
            return Err(PatternError::TooLong);
        }
        if mask.iter().zip(value).any(|(mask, value)| value & !mask != 0) {
            return Err(PatternError::Hidden);
        }
        offset.checked_add(mask.len() as u32).ok_or(PatternError::TooFar)?;
        for (at, len) in pieces(mask.len()) {
            let number =
                |bytes: &[u8]| bytes[at..at + len].iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
            let part = BitField {
                origin: Origin::Start,
                offset: offset + at as u32,
                width: len as u8,
                mask: number(mask),
            };
            let cell = Conjunction::of(part, Condition::equal(number(value), true));
            self.cells = self.cells.and(&cell).ok_or(PatternError::Contradiction)?;
        }
        Ok(self)
    }

    /// The filter that accepts the matching packets.
    pub fn filter(&self) -> Filter {
        Filter::of(self.cells.clone(), |_| "cell")
    }
}

/// Words, then a half, then a byte, as the parts of texts are.
fn pieces(len: usize) -> impl Iterator<Item = (usize, usize)> {
    let words = len / 4;
    let half = (len % 4 >= 2).then_some((4 * words, 2));
    let byte = (len % 2 == 1).then_some((len - 1, 1));
    (0..words).map(|word| (4 * word, 4)).chain(half).chain(byte)
}
