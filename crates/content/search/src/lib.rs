//! Many byte patterns at once over packet payloads.
//!
//! ```text
//! pattern list --parse--> [Pattern] --Patterns::new--> keys + engine
//!                                                        │
//! payload, batch of payloads, pieces of a flow ──────────┴──► every (id, start, end)
//! ```
//!
//! | engine | chosen for | implementation |
//! |---|---|---|
//! | [`SearchEngine::Single`] | 1 pattern, case-sensitive | memchr's `memmem` |
//! | [`SearchEngine::Teddy`] | few patterns, case-sensitive | aho-corasick's SIMD search, each place then checked exactly |
//! | [`SearchEngine::Grams`] | all others | a table of the patterns' 4 or 6 byte pieces, looked up every few bytes |
//! | [`SearchEngine::Automaton`] | many patterns of 1 to 3 bytes; and the fallback of `Grams` when traffic is made to slow it | daachorse |
//!
//! Whatever the engine, the meaning is that of [`find_all_naive`]: all occurrences of all patterns, overlapping ones
//! too. `docs/search.md` has the figures by which the engines are chosen.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod horspool;
mod keys;
mod list;
mod naive;
mod pattern;
mod patterns;
mod stream;

pub use engine::SearchEngine;
pub use error::Error;
pub use horspool::Horspool;
pub use list::parse_list;
pub use naive::find_all_naive;
pub use pattern::{BYTES_MAX, Match, PATTERN_LEN_MAX, PATTERNS_MAX, Pattern};
pub use patterns::Patterns;
pub use stream::{StreamMatch, StreamState};
