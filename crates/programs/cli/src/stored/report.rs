//! The account of a search, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tapline_graph::grouped;
use tapline_store::SearchAccount;

/// Rows about a search, like those of the account.
pub(crate) fn search_text(account: &SearchAccount) -> String {
    let mut text = format!("{:<44}{:>16}{:>16}\n", "search", "segments", "chunks");
    let mut row = |name: &str, segments: Option<u64>, chunks: Option<u64>| {
        let shown = |count: Option<u64>| count.map_or(String::new(), grouped);
        let line = format!("  {name:<42}{:>16}{:>16}", shown(segments), shown(chunks));
        let _ = writeln!(text, "{}", line.trim_end());
    };
    let looked_into = account.segments_indexed + account.segments_walked;
    row("there", Some(account.segments), Some(account.chunks));
    row("passed over by time", Some(account.segments_by_time), Some(account.chunks_by_time));
    row("passed over by roll-up", Some(account.segments_by_roll_up), None);
    row("passed over by index", Some(account.segments_by_keys), Some(account.chunks_by_keys));
    row("gone meanwhile", Some(account.segments_gone), Some(account.chunks_gone));
    row("looked into, read", Some(looked_into), Some(account.chunks_read));
    if account.segments_unreadable > 0 {
        row("not to be read", Some(account.segments_unreadable), None);
    }
    if account.segments_missing > 0 {
        row("missing, not deleted by a recorder", Some(account.segments_missing), None);
    }
    if account.segments_walked > 0 {
        row("of these without an index", Some(account.segments_walked), None);
    }
    if account.segments_left + account.chunks_left > 0 {
        row("not come to", Some(account.segments_left), Some(account.chunks_left));
    }
    if account.chunks_unfinished > 0 {
        row("being written", None, Some(account.chunks_unfinished));
    }
    if account.chunks_damaged + account.places_damaged > 0 {
        row("damaged", None, Some(account.chunks_damaged + account.places_damaged));
    }
    if account.late > 0 {
        let _ = writeln!(text, "  {} packets come after newer ones", grouped(account.late));
    }
    let _ = writeln!(
        text,
        "  {} bytes of chunks and {} bytes of indexes were read; {}",
        grouped(account.bytes_read),
        grouped(account.index_bytes),
        if account.is_balanced() { "every chunk is accounted for" } else { "NOT BALANCED" }
    );
    text
}

pub(crate) fn search_json(account: &SearchAccount) -> Value {
    let mut value = json!(account);
    value["lost_is_at_least"] = account.is_lost_at_least().into();
    value["balanced"] = account.is_balanced().into();
    value
}
