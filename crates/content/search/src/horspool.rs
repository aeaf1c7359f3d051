//! One pattern, by Boyer, Moore and Horspool: compare from the right, skip by the last byte.
//!
//! ```text
//! haystack  . . . . . x . . .        x: the byte under the pattern's end
//! pattern   p a t t e r n            n != x: shift until the last x of "patter" stands under x,
//!                                    or by the whole length if there is none
//! ```
//!
//! R. N. Horspool, "Practical fast searching in strings", 1980. The worst case is haystack times pattern: for hostile
//! traffic use [`Patterns`](crate::Patterns), which is linear.

use crate::{Error, PATTERN_LEN_MAX};

/// A single pattern and its table of shifts.
#[derive(Clone, Debug)]
pub struct Horspool {
    pattern: Vec<u8>,
    /// The shift of the pattern for each byte under its end: 1 to its length.
    shifts: [u16; 256],
}

impl Horspool {
    /// Prepares the search.
    ///
    /// # Errors
    /// [`Error::Empty`] and [`Error::TooLong`], with id 0.
    ///
    /// ```
    /// let search = tapline_search::Horspool::new("needle")?;
    /// assert_eq!(search.find(b"in a haystack a needle"), Some(16));
    /// # Ok::<(), tapline_search::Error>(())
    /// ```
    pub fn new(pattern: impl Into<Vec<u8>>) -> Result<Horspool, Error> {
        let pattern = pattern.into();
        let len = pattern.len();
        let Some(last) = len.checked_sub(1) else { return Err(Error::Empty { id: 0 }) };
        if len > PATTERN_LEN_MAX {
            return Err(Error::TooLong { id: 0, len });
        }
        let mut shifts = [len as u16; 256];
        for (index, byte) in pattern[..last].iter().enumerate() {
            shifts[usize::from(*byte)] = (last - index) as u16;
        }
        Ok(Horspool { pattern, shifts })
    }

    /// The pattern.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// Offset of the first occurrence.
    pub fn find(&self, haystack: &[u8]) -> Option<usize> {
        self.find_from(haystack, 0)
    }

    /// Offset of the first occurrence that starts at `from` or behind.
    pub fn find_from(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let len = self.pattern.len();
        let mut start = from;
        loop {
            let window = haystack.get(start..start.checked_add(len)?)?;
            if window == self.pattern {
                return Some(start);
            }
            start += usize::from(self.shifts[usize::from(window[len - 1])]);
        }
    }

    /// Offsets of all occurrences, overlapping ones too, in rising order.
    pub fn find_all<'a>(&'a self, haystack: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        std::iter::successors(self.find(haystack), move |start| self.find_from(haystack, start + 1))
    }

    /// Whether the pattern occurs.
    pub fn is_match(&self, haystack: &[u8]) -> bool {
        self.find(haystack).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, find_all_naive};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn matches_equal_the_plain_search(
            pattern in prop::collection::vec(b'a'..b'd', 1..6),
            haystack in prop::collection::vec(b'a'..b'd', 0..200),
        ) {
            let expected = find_all_naive(&[Pattern::new(0, pattern.clone())], &haystack);
            let search = Horspool::new(pattern).unwrap();
            let starts: Vec<usize> = search.find_all(&haystack).collect();
            prop_assert_eq!(search.is_match(&haystack), !expected.is_empty());
            prop_assert_eq!(starts, expected.iter().map(|found| found.start).collect::<Vec<_>>());
        }
    }

    #[test]
    fn borders() {
        let search = Horspool::new("ab").unwrap();
        assert_eq!(search.find(b"ab"), Some(0));
        assert_eq!(search.find(b"xxab"), Some(2));
        assert_eq!(search.find(b"a"), None);
        assert_eq!(search.find_from(b"ab", usize::MAX), None);
        assert_eq!(Horspool::new("").unwrap_err(), Error::Empty { id: 0 });
        assert!(Horspool::new(vec![0; PATTERN_LEN_MAX]).is_ok());
        assert!(Horspool::new(vec![0; PATTERN_LEN_MAX + 1]).is_err());
    }
}
