//! The search in its plainest form: the oracle of every engine.

use crate::{Match, Pattern};

/// Every occurrence of every pattern, sorted by start, then id: each pattern tried at each offset.
///
/// ```
/// use tapline_search::{Match, Pattern, find_all_naive};
/// let patterns = [Pattern::new(1, "aa"), Pattern::nocase(2, "AB")];
/// let found = find_all_naive(&patterns, b"aaab");
/// let starts: Vec<_> = found.iter().map(|found| (found.id, found.start)).collect();
/// assert_eq!(starts, [(1, 0), (1, 1), (2, 2)]);
/// ```
pub fn find_all_naive(patterns: &[Pattern], haystack: &[u8]) -> Vec<Match> {
    let mut found = Vec::new();
    for pattern in patterns.iter().filter(|pattern| !pattern.bytes.is_empty()) {
        let len = pattern.bytes.len();
        for (start, window) in haystack.windows(len).enumerate() {
            let equal = if pattern.nocase {
                window.eq_ignore_ascii_case(&pattern.bytes)
            } else {
                window == pattern.bytes
            };
            if equal {
                found.push(Match { id: pattern.id, start, end: start + len });
            }
        }
    }
    found.sort_unstable();
    found
}
