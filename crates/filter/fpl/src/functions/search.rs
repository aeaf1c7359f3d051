//! Searches in packets: `EXTERN(name, input, output)` returns whether a pattern occurs, and where.
//!
//! ```text
//! input    0 where to begin in the packet, 1 how many bytes to look at; cut at the packet's end
//! output   0 the pattern's identifier, 1 the byte of the packet where it begins; as before if nothing is found
//! value    1 if a pattern was found, else 0
//! ```

use tapline_search::{Horspool, Patterns};

use crate::function::{Call, External};

/// A search for any of many patterns, which a program calls by `name`.
///
/// The engine is the one that suits the set; Aho-Corasick's automaton is one of them.
pub fn aho_corasick(name: impl Into<String>, patterns: Patterns) -> External {
    External::new(name, 2, 2, move |call| {
        let (start, data) = stretch(call);
        tell(call, patterns.find(data).map(|found| (found.id.into(), start + found.start as u64)))
    })
}

/// A search for one pattern by Boyer, Moore and Horspool's algorithm. Its identifier is 0.
pub fn horspool(name: impl Into<String>, pattern: Horspool) -> External {
    External::new(name, 2, 2, move |call| {
        let (start, data) = stretch(call);
        tell(call, pattern.find(data).map(|at| (0, start + at as u64)))
    })
}

/// The start of the search, and the bytes from there on.
fn stretch<'a>(call: &Call<'a>) -> (u64, &'a [u8]) {
    let packet = call.packet().data;
    let number = |cell| usize::try_from(call.input(cell)).unwrap_or(usize::MAX);
    let data = packet.get(number(0)..).unwrap_or_default();
    (call.input(0), &data[..number(1).min(data.len())])
}

fn tell(call: &Call<'_>, found: Option<(u64, u64)>) -> u64 {
    if let Some((pattern, at)) = found {
        call.set_output(0, pattern);
        call.set_output(1, at);
    }
    found.is_some().into()
}
