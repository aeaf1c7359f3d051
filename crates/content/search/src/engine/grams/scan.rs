//! The first step: which lookups may have hit a piece.
//!
//! ```text
//! haystack ──every STRIDE bytes──► Q bytes ──fold──► multiply ──top bits──► slot ──► 0 or 1
//!
//! Sparse   a byte a slot, 16 KiB: 8 slots are ORed, one branch for all; for few pieces
//! Dense    a bit a slot, 32 or 256 KiB: each lookup writes its place and advances by the bit, no branch; for many
//! ```
//!
//! A hit may be false, a miss never is. The loops are made for each (q, stride) so that all offsets in a block are
//! constants: a lookup is then 3 to 9 instructions.

use super::shape::Shape;
use std::fmt::Debug;

/// Pieces up to which the small table has few false hits.
pub(crate) const SPARSE_MAX: usize = 256;
/// Lookups of a block; the loop over them is unrolled.
const LOOKUPS: usize = 16;
/// Bytes that are read for a lookup, whatever its Q.
const READ: usize = 8;
/// Places are kept as 16 bits from the start of a fill.
const SPAN_MAX: usize = 1 << 15;

/// Places of lookups that hit, relative to where the fill began.
pub(crate) struct Hits {
    places: [u16; 256],
    len: u8,
}

impl Default for Hits {
    fn default() -> Hits {
        Hits { places: [0; 256], len: 0 }
    }
}

impl Hits {
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.places[..usize::from(self.len)].iter().map(|place| usize::from(*place))
    }

    /// Whether another block fits.
    fn has_room(&self) -> bool {
        usize::from(self.len) + LOOKUPS < 256
    }
}

/// Looks up a haystack, a stretch at a time.
pub(crate) trait Scan: Debug + Send + Sync {
    /// Looks up from `at`, a multiple of the stride, until the hits are many or the haystack ends. Returns how far it
    /// came: the next `at`.
    fn fill(&self, haystack: &[u8], at: usize, hits: &mut Hits) -> usize;

    /// Bytes of the table.
    fn memory(&self) -> usize;
}

/// A scan for this shape, with the pieces in its table.
pub(crate) fn build(
    shape: Shape,
    fold: bool,
    grams: impl ExactSizeIterator<Item = u64>,
) -> Option<Box<dyn Scan>> {
    macro_rules! shapes {
        ($(($q:literal, $stride:literal)),*) => {
            match (shape.q, shape.stride) {
                $(($q, $stride) => Some(sized::<$q, $stride>(fold, grams)),)*
                _ => None,
            }
        };
    }
    shapes!((1, 1), (2, 1), (3, 1), (4, 1), (4, 2), (4, 3), (4, 4), (6, 3), (6, 4), (6, 5), (6, 8))
}

/// Picks the table by the number of pieces.
fn sized<const Q: usize, const STRIDE: usize>(
    fold: bool,
    grams: impl ExactSizeIterator<Item = u64>,
) -> Box<dyn Scan> {
    match grams.len() {
        0..=SPARSE_MAX => folding::<Q, STRIDE, Sparse>(fold, grams),
        257..=6000 => folding::<Q, STRIDE, Dense<4096>>(fold, grams),
        _ => folding::<Q, STRIDE, Dense<32768>>(fold, grams),
    }
}

fn folding<const Q: usize, const STRIDE: usize, T: Table>(
    fold: bool,
    grams: impl Iterator<Item = u64>,
) -> Box<dyn Scan> {
    if fold {
        Box::new(Loop::<Q, STRIDE, true, T>::new(grams))
    } else {
        Box::new(Loop::<Q, STRIDE, false, T>::new(grams))
    }
}

/// A table, and the loop over a block that suits it.
trait Table: Debug + Default + Send + Sync + 'static {
    /// Bits of a slot's number.
    const BITS: u32;
    fn set(&mut self, slot: usize);
    /// Adds the lookups that hit to `hits`; `slots` gives the slot of the n-th, `place` its place.
    fn block(&self, slot: impl Fn(usize) -> usize, place: impl Fn(usize) -> u16, hits: &mut Hits);
}

#[derive(Debug)]
struct Sparse(Box<[u8; 1 << 14]>);

impl Default for Sparse {
    fn default() -> Sparse {
        Sparse(Box::new([0; 1 << 14]))
    }
}

impl Table for Sparse {
    const BITS: u32 = 14;

    fn set(&mut self, slot: usize) {
        self.0[slot] = 1;
    }

    #[inline(always)]
    fn block(&self, slot: impl Fn(usize) -> usize, place: impl Fn(usize) -> u16, hits: &mut Hits) {
        for half in 0..2 {
            let lookups = half * (LOOKUPS / 2)..(half + 1) * (LOOKUPS / 2);
            let any = lookups.clone().fold(0, |any, lookup| any | self.0[slot(lookup)]);
            if any != 0 {
                for lookup in lookups {
                    hits.places[usize::from(hits.len)] = place(lookup);
                    hits.len = hits.len.wrapping_add(self.0[slot(lookup)]);
                }
            }
        }
    }
}

#[derive(Debug)]
struct Dense<const WORDS: usize>(Box<[u64; WORDS]>);

impl<const WORDS: usize> Default for Dense<WORDS> {
    fn default() -> Dense<WORDS> {
        Dense(Box::new([0; WORDS]))
    }
}

impl<const WORDS: usize> Table for Dense<WORDS> {
    const BITS: u32 = WORDS.trailing_zeros() + 6;

    fn set(&mut self, slot: usize) {
        self.0[slot >> 6] |= 1 << (slot & 63);
    }

    #[inline(always)]
    fn block(&self, slot: impl Fn(usize) -> usize, place: impl Fn(usize) -> u16, hits: &mut Hits) {
        for lookup in 0..LOOKUPS {
            let slot = slot(lookup);
            let hit = self.0[(slot >> 6) % WORDS] >> (slot & 63) & 1;
            hits.places[usize::from(hits.len)] = place(lookup);
            hits.len = hits.len.wrapping_add(hit as u8);
        }
    }
}

/// The scan for one shape and one kind of table.
#[derive(Debug)]
struct Loop<const Q: usize, const STRIDE: usize, const FOLD: bool, T> {
    table: T,
}

impl<const Q: usize, const STRIDE: usize, const FOLD: bool, T: Table> Loop<Q, STRIDE, FOLD, T> {
    /// Bytes from one block to the next.
    const BLOCK: usize = LOOKUPS * STRIDE;

    fn new(grams: impl Iterator<Item = u64>) -> Self {
        let mut table = T::default();
        for gram in grams {
            table.set(Self::slot(&gram.to_le_bytes()));
        }
        Loop { table }
    }

    /// The slot of the first Q of `bytes`, of which there are [`READ`].
    #[inline(always)]
    fn slot(bytes: &[u8]) -> usize {
        let hash = if Q <= 4 {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[..4]);
            let folded = if FOLD { u32::from_le_bytes(four) | 0x2020_2020 } else { u32::from_le_bytes(four) };
            (folded << (32 - 8 * Q.min(4))).wrapping_mul(0x9e37_79b1)
        } else {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[..8]);
            let eight = u64::from_le_bytes(eight);
            let folded = if FOLD { eight | 0x2020_2020_2020_2020 } else { eight };
            ((folded << (64 - 8 * Q)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
        };
        (hash >> (32 - T::BITS)) as usize
    }

    /// Looks up whole blocks. Returns the offset behind the last.
    #[inline(always)]
    fn blocks(&self, haystack: &[u8], at: usize, hits: &mut Hits) -> usize {
        let mut next = at;
        while let Some(block) = haystack.get(next..next + Self::BLOCK + READ) {
            if !hits.has_room() || next - at > SPAN_MAX {
                break;
            }
            let first = (next - at) as u16;
            let slot = |lookup: usize| Self::slot(&block[lookup * STRIDE..lookup * STRIDE + READ]);
            self.table.block(slot, |lookup| first + (lookup * STRIDE) as u16, hits);
            next += Self::BLOCK;
        }
        next
    }
}

impl<const Q: usize, const STRIDE: usize, const FOLD: bool, T: Table> Scan for Loop<Q, STRIDE, FOLD, T> {
    fn fill(&self, haystack: &[u8], at: usize, hits: &mut Hits) -> usize {
        hits.len = 0;
        let next = self.blocks(haystack, at, hits);
        if next > at {
            return next;
        }
        // Less than a block and a read: the rest, followed by zeros. Their hits are false and found out.
        let rest = &haystack[at..];
        let mut padded = [0; 2 * LOOKUPS * 8 + READ];
        padded[..rest.len()].copy_from_slice(rest);
        let blocks = rest.len().div_ceil(Self::BLOCK) * Self::BLOCK + READ;
        self.blocks(&padded[..blocks], 0, hits);
        haystack.len()
    }

    fn memory(&self) -> usize {
        (1 << T::BITS) / if T::BITS == Sparse::BITS { 1 } else { 8 }
    }
}
