//! The layout of the two kinds of shared memory, in words of 8 bytes: `docs/format/ring.md`.
//!
//! ```text
//! position := sequence * length of a block + offset        sequence mod blocks = the block's place
//! ```

use crate::Error;

/// Bytes of the header of both kinds of memory.
#[cfg(not(loom))]
pub(crate) const HEADER_LEN: usize = 4096;
/// All that is used of it: a model pays for each word.
#[cfg(loom)]
pub(crate) const HEADER_LEN: usize = 512;
pub(crate) const HEADER_WORDS: usize = HEADER_LEN / 8;
/// Records begin at multiples of this; it is also the length of their metadata.
pub(crate) const LINE_LEN: usize = 64;
pub(crate) const LINE_WORDS: usize = LINE_LEN / 8;
/// Bytes of a block's head.
pub(crate) const BLOCK_HEAD_LEN: usize = 128;
/// In place of a record: nothing more in this block.
pub(crate) const BLOCK_END: u64 = u64::MAX;
/// The default length of a block in bytes.
pub const BLOCK_LEN_DEFAULT: u32 = 1 << 20;

pub(crate) const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
pub(crate) const VERSION: u64 = 1;
pub(crate) const BUFFER_MAGIC: u64 = u64::from_ne_bytes(*b"TAPLPBUF");
pub(crate) const INDEX_MAGIC: u64 = u64::from_ne_bytes(*b"TAPLIBUF");

/// Words of both headers that have the same meaning.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const BYTE_ORDER: usize = 1;
    pub(crate) const VERSION: usize = 2;
    pub(crate) const HEADER_LEN: usize = 3;
}

/// Words of a PBuf's header.
pub(crate) mod buffer {
    pub(crate) const BLOCK_LEN: usize = 4;
    pub(crate) const BLOCKS: usize = 5;
    pub(crate) const GENERATION: usize = 6;
    pub(crate) const LINK_TYPE: usize = 7;
    pub(crate) const SNAP_LEN: usize = 8;
    pub(crate) const CREATED: usize = 9;
    pub(crate) const WORKER: usize = 10;
    pub(crate) const HEAD: usize = 16;
    pub(crate) const STATE: usize = 17;
    pub(crate) const WATERMARK: usize = 18;
    pub(crate) const RECORDS: usize = 19;
    pub(crate) const BYTES: usize = 20;
    pub(crate) const NOT_STORED: usize = 21;
    pub(crate) const PASSED_OVER: usize = 22;
    pub(crate) const SOURCE: usize = 32;

    pub(crate) const RUNNING: u64 = 1;
    pub(crate) const CLOSED: u64 = 2;
}

/// Words of a block's head.
pub(crate) mod block {
    pub(crate) const SEQUENCE: usize = 0;
    pub(crate) const FIRST_TIME: usize = 1;
    pub(crate) const LAST_TIME: usize = 2;
    pub(crate) const RECORDS: usize = 3;
    pub(crate) const BYTES: usize = 4;
    pub(crate) const USED: usize = 5;
    pub(crate) const LOST_BEFORE: usize = 6;
    pub(crate) const FIRST_NUMBER: usize = 7;
}

/// Words of an IBuf's header.
pub(crate) mod index {
    pub(crate) const ENTRIES: usize = 4;
    pub(crate) const GENERATION: usize = 5;
    pub(crate) const READER: usize = 6;
    pub(crate) const HEAD: usize = 16;
    pub(crate) const INDEX_FULL: usize = 17;
    pub(crate) const STANDING: usize = 18;
    pub(crate) const BYTES: usize = 19;
    pub(crate) const WRITER_SLEEPS: usize = 20;
    pub(crate) const PAST: usize = 21;
    pub(crate) const DELIVERED: usize = 32;
    pub(crate) const OVERWRITTEN: usize = 33;
    pub(crate) const DAMAGED: usize = 34;
    pub(crate) const HELD: usize = 35;
    pub(crate) const TURN: usize = 36;
    pub(crate) const WAITING: usize = 40;
    pub(crate) const WAKE_AT_BYTES: usize = 41;
    pub(crate) const WAKE_AFTER_NS: usize = 42;
    pub(crate) const SEEN: usize = 43;
    pub(crate) const WAKE_AT_PACKETS: usize = 44;

    /// Value of `PAST`: no packet of the past is still to come.
    pub(crate) const PRESENT: u64 = i64::MAX as u64;

    pub(crate) const AWAKE: u64 = 0;
    pub(crate) const ON_FUTEX: u64 = 1;
    pub(crate) const ON_BELL: u64 = 2;
}

/// The guarantee of a reader, as its writer last gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Nothing is kept for it.
    Lossy,
    /// Unread packets stay, within its credit.
    Leased,
    /// The writer waits for it.
    Lossless,
    /// Lossy, since it lagged by more bytes than its credit, or its writer's caller would not wait any longer.
    LossyByBytes,
    /// Lossy, since it left packets unread for longer than its credit.
    LossyByTime,
    /// The reader held blocks against the rules; nothing that it holds counts.
    Refused,
}

impl Guarantee {
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Guarantee::Lossy => 1,
            Guarantee::Leased => 2,
            Guarantee::Lossless => 3,
            Guarantee::LossyByBytes => 4,
            Guarantee::LossyByTime => 5,
            Guarantee::Refused => 6,
        }
    }

    /// An unknown number promises nothing.
    pub(crate) fn from_word(word: u64) -> Guarantee {
        match word {
            2 => Guarantee::Leased,
            3 => Guarantee::Lossless,
            4 => Guarantee::LossyByBytes,
            5 => Guarantee::LossyByTime,
            6 => Guarantee::Refused,
            _ => Guarantee::Lossy,
        }
    }

    /// Whether unread packets are kept for it.
    pub fn keeps_unread(self) -> bool {
        matches!(self, Guarantee::Leased | Guarantee::Lossless)
    }
}

/// The division of a PBuf into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    block_shift: u32,
    blocks_shift: u32,
}

/// A position taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) sequence: u64,
    /// The block's place in the buffer.
    pub(crate) slot: usize,
    /// In the block, in bytes.
    pub(crate) offset: usize,
}

impl Geometry {
    const BLOCK_LEN: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
    const BLOCKS: std::ops::RangeInclusive<u64> = 4..=1 << 20;

    pub(crate) fn new(block_len: u64, blocks: u64) -> Result<Geometry, Error> {
        let power = |what, value: u64, range: std::ops::RangeInclusive<u64>| {
            if value.is_power_of_two() && range.contains(&value) {
                Ok(value.trailing_zeros())
            } else {
                Err(Error::Size { what, value, least: *range.start(), most: *range.end() })
            }
        };
        let block_shift = power("length of a block", block_len, Geometry::BLOCK_LEN)?;
        let blocks_shift = power("number of blocks", blocks, Geometry::BLOCKS)?;
        Ok(Geometry { block_shift, blocks_shift })
    }

    /// Smaller than any that is allowed, for models.
    #[cfg(test)]
    pub(crate) fn tiny(block_len: u64, blocks: u64) -> Geometry {
        Geometry { block_shift: block_len.trailing_zeros(), blocks_shift: blocks.trailing_zeros() }
    }

    pub(crate) fn block_len(self) -> usize {
        1 << self.block_shift
    }

    pub(crate) fn blocks(self) -> usize {
        1 << self.blocks_shift
    }

    /// Bytes of all blocks.
    pub(crate) fn blocks_len(self) -> u64 {
        1 << (self.block_shift + self.blocks_shift)
    }

    /// Bytes of the whole file.
    pub(crate) fn file_len(self) -> u64 {
        HEADER_LEN as u64 + self.blocks_len()
    }

    /// The most bytes that a packet may have, so that its record fits into a block.
    pub(crate) fn cap_len_max(self) -> u32 {
        (self.block_len() - BLOCK_HEAD_LEN - LINE_LEN) as u32
    }

    #[inline]
    pub(crate) fn slot(self, sequence: u64) -> usize {
        (sequence & ((1 << self.blocks_shift) - 1)) as usize
    }

    #[inline]
    pub(crate) fn place(self, position: u64) -> BlockPosition {
        let sequence = position >> self.block_shift;
        let offset = (position & ((1 << self.block_shift) - 1)) as usize;
        BlockPosition { sequence, slot: self.slot(sequence), offset }
    }

    #[inline]
    pub(crate) fn position(self, sequence: u64, offset: usize) -> u64 {
        (sequence << self.block_shift) + offset as u64
    }

    /// The first word of a block.
    #[inline]
    pub(crate) fn block_word(self, slot: usize) -> usize {
        HEADER_WORDS + (slot << (self.block_shift - 3))
    }
}

/// Bytes of a record with `cap_len` captured bytes.
#[inline]
pub(crate) fn record_len(cap_len: u32) -> usize {
    LINE_LEN + (cap_len as usize).next_multiple_of(LINE_LEN)
}

/// Entries that an index may have.
pub(crate) const ENTRIES: std::ops::RangeInclusive<u64> = 16..=1 << 24;

/// Bytes of an IBuf with `entries` entries.
pub(crate) fn index_len(entries: u64) -> u64 {
    HEADER_LEN as u64 + 16 * entries
}
