//! Patterns and their matches.

use crate::Error;
use std::collections::HashSet;

/// The most patterns of a set.
pub const PATTERNS_MAX: usize = 1 << 18;
/// The greatest length of a pattern, in bytes. A [`StreamState`](crate::StreamState) keeps up to twice that.
pub const PATTERN_LEN_MAX: usize = 4096;
/// The most bytes of all patterns of a set together.
pub const BYTES_MAX: usize = 1 << 24;

/// A string of bytes to search for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The number by which matches name it; unique within a set.
    pub id: u32,
    /// The bytes to find, 1 to [`PATTERN_LEN_MAX`].
    pub bytes: Vec<u8>,
    /// The 26 letters of ASCII match in either case.
    pub nocase: bool,
}

impl Pattern {
    /// Matches exactly these bytes.
    pub fn new(id: u32, bytes: impl Into<Vec<u8>>) -> Pattern {
        Pattern { id, bytes: bytes.into(), nocase: false }
    }

    /// Matches these bytes, letters of ASCII in either case.
    pub fn nocase(id: u32, bytes: impl Into<Vec<u8>>) -> Pattern {
        Pattern { id, bytes: bytes.into(), nocase: true }
    }
}

/// One occurrence of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    /// Offset of its first byte.
    pub start: usize,
    /// The pattern's id.
    pub id: u32,
    /// Offset behind its last byte.
    pub end: usize,
}

/// Holds the set against the limits.
pub(crate) fn check(patterns: &[Pattern]) -> Result<(), Error> {
    match patterns.len() {
        0 => return Err(Error::NoPatterns),
        count if count > PATTERNS_MAX => return Err(Error::TooMany { count }),
        _ => (),
    }
    let mut ids = HashSet::with_capacity(patterns.len());
    let mut bytes = 0;
    for Pattern { id, bytes: own, .. } in patterns {
        let (id, len) = (*id, own.len());
        bytes += len;
        match () {
            () if len == 0 => return Err(Error::Empty { id }),
            () if len > PATTERN_LEN_MAX => return Err(Error::TooLong { id, len }),
            () if bytes > BYTES_MAX => return Err(Error::TooManyBytes { id }),
            () if !ids.insert(id) => return Err(Error::SameId { id }),
            () => (),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_the_pattern() {
        let long = |id| Pattern::new(id, vec![0; PATTERN_LEN_MAX]);
        assert_eq!(check(&[]), Err(Error::NoPatterns));
        assert_eq!(check(&[Pattern::new(7, "")]), Err(Error::Empty { id: 7 }));
        assert_eq!(check(&[Pattern::new(7, "a"), Pattern::new(7, "b")]), Err(Error::SameId { id: 7 }));
        assert_eq!(check(&[long(1)]), Ok(()));
        let too_long = Pattern::new(3, vec![0; PATTERN_LEN_MAX + 1]);
        assert_eq!(check(&[too_long]), Err(Error::TooLong { id: 3, len: PATTERN_LEN_MAX + 1 }));
        let fitting = (BYTES_MAX / PATTERN_LEN_MAX) as u32;
        let many: Vec<Pattern> = (0..=fitting).map(long).collect();
        assert_eq!(check(&many), Err(Error::TooManyBytes { id: fitting }));
        let more: Vec<Pattern> = (0..=PATTERNS_MAX as u32).map(|id| Pattern::new(id, "a")).collect();
        assert_eq!(check(&more), Err(Error::TooMany { count: PATTERNS_MAX + 1 }));
    }

    #[test]
    fn errors_name_the_mend() {
        let text = Error::TooLong { id: 3, len: 5000 }.to_string();
        assert_eq!(text, "pattern 3 has 5000 bytes, 4096 are allowed: search for a part of it");
    }
}
