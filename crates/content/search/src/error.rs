//! Errors about a set of patterns: the fault, its place, and the mend.

use crate::pattern::{BYTES_MAX, PATTERN_LEN_MAX, PATTERNS_MAX};

/// The reason that a set of patterns was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to search for.
    #[error("no patterns: give at least one")]
    NoPatterns,
    /// A pattern without bytes would match everywhere.
    #[error("pattern {id} is empty: give it a byte, or remove it")]
    Empty {
        /// The pattern.
        id: u32,
    },
    /// A pattern is longer than [`PATTERN_LEN_MAX`].
    #[error("pattern {id} has {len} bytes, {PATTERN_LEN_MAX} are allowed: search for a part of it")]
    TooLong {
        /// The pattern.
        id: u32,
        /// Length in bytes.
        len: usize,
    },
    /// More patterns than [`PATTERNS_MAX`].
    #[error("{count} patterns, {PATTERNS_MAX} are allowed: make several sets")]
    TooMany {
        /// Number of patterns.
        count: usize,
    },
    /// More bytes than [`BYTES_MAX`] in all patterns together.
    #[error("with pattern {id} the set has more than {BYTES_MAX} bytes: make several sets")]
    TooManyBytes {
        /// The pattern that passes the limit.
        id: u32,
    },
    /// Two patterns have one id, so matches could not be distinguished.
    #[error("two patterns have the id {id}: give each its own")]
    SameId {
        /// The id.
        id: u32,
    },
    /// An engine was asked for that cannot search this set.
    #[error("engine {engine} cannot search these patterns: {reason}")]
    Unfit {
        /// The engine's name.
        engine: &'static str,
        /// The reason, and the remedy.
        reason: String,
    },
    /// A line of a pattern list does not follow the format.
    #[error("line {line}, byte {column}: {reason}")]
    List {
        /// The line, from 1.
        line: u32,
        /// The byte in the line, from 1.
        column: usize,
        /// The fault, and what to write instead.
        reason: &'static str,
    },
    /// A library refused the set.
    #[error("{engine}: {reason}")]
    Build {
        /// The engine's name.
        engine: &'static str,
        /// The library's words.
        reason: String,
    },
}
