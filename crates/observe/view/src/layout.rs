//! Layout of a view file: `docs/format/view.md` in constants. Offsets are in words of 8 bytes.

use crate::dimension::Dimension;

/// The most rows of a table.
pub const ROWS_MAX: usize = 256;
/// Seconds in the ring.
pub const SECONDS: usize = 3600;

/// The most addresses of this host in a file.
pub const OWN_MAX: usize = 128;

pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"TAPLVIEW");
pub(crate) const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
pub(crate) const VERSION: u64 = 1;

pub(crate) const HEADER_WORDS: usize = 512;
pub(crate) const SECOND_WORDS: usize = 64;
pub(crate) const ROW_WORDS: usize = 32;
pub(crate) const COPY_HEAD_WORDS: usize = 128;
pub(crate) const TABLE_HEAD_WORDS: usize = 16;
pub(crate) const TABLE_WORDS: usize = TABLE_HEAD_WORDS + ROWS_MAX * ROW_WORDS;
pub(crate) const COPY_WORDS: usize = COPY_HEAD_WORDS + Dimension::ALL.len() * TABLE_WORDS;
pub(crate) const COPIES: usize = 2;
pub(crate) const FILE_WORDS: usize = HEADER_WORDS + SECONDS * SECOND_WORDS + COPIES * COPY_WORDS;

const _: () = assert!(FILE_WORDS * 8 == 2_899_968, "docs/format/view.md tells the length");

/// Places in the header.
pub(crate) mod header {
    use std::ops::Range;

    pub(crate) const MAGIC: usize = 0;
    pub(crate) const BYTE_ORDER: usize = 1;
    pub(crate) const VERSION: usize = 2;
    pub(crate) const PROCESS: usize = 3;
    pub(crate) const CREATED: usize = 4;
    pub(crate) const TABLES: usize = 5;
    pub(crate) const ROWS: usize = 6;
    pub(crate) const SECONDS: usize = 7;
    pub(crate) const ROW_WORDS: usize = 8;
    pub(crate) const SECOND_WORDS: usize = 9;
    pub(crate) const PUBLISHED: usize = 10;
    pub(crate) const IS_LIVE: usize = 11;
    pub(crate) const SAMPLING: usize = 12;
    pub(crate) const OWN_COUNT: usize = 13;
    pub(crate) const TITLE: Range<usize> = 16..32;
    /// Two words for each address.
    pub(crate) const OWN: Range<usize> = 32..288;
}

/// The place of second `n`.
pub(crate) fn second_at(n: u64) -> usize {
    HEADER_WORDS + (n % SECONDS as u64) as usize * SECOND_WORDS
}

/// The place of the copy that has second `n`.
pub(crate) fn copy_at(n: u64) -> usize {
    HEADER_WORDS + SECONDS * SECOND_WORDS + (n % COPIES as u64) as usize * COPY_WORDS
}
