//! Matches in TCP streams, across segments.
//!
//! ```text
//! tail: last bytes of the stream     new bytes of a segment
//! |---------------|--------------------------------------|
//!        ^ from: behind the last match that was reported
//! ```
//!
//! A match that ends with the last byte may go on in the next segment: in files it is reported then. On interfaces it
//! is reported at once.

use std::collections::HashMap;

use regex::bytes::Match;
use serde_json::json;
use tapline_graph::grouped;
use tapline_packet::Packet;
use tapline_packet::headers::Headers;
use tapline_stream::{Account, Event, Limits, PacketFate, Reassembler, Stream};

use super::super::lines::{endpoint, local_ns, universal_ns};
use super::{SHOWN_MAX, Search};
use crate::escape::plain_json;

/// Bytes of a stream that are searched again with those that follow: the longest match across segments.
const TAIL_LEN: usize = 4096;
/// Memory for the tails of all streams, in bytes.
const TAILS_MAX: usize = 64 << 20;

/// Streams, with their last bytes.
pub(super) struct Streams {
    reassembler: Reassembler,
    tails: Tails,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams { reassembler: Reassembler::new(Limits::default()), tails: Tails::default() }
    }

    /// Takes a packet. `is_live` says that matches are reported at once.
    pub(super) fn push(
        &mut self,
        headers: &Headers,
        packet: Packet<'_>,
        is_live: bool,
        search: &mut Search,
    ) -> PacketFate {
        let Streams { reassembler, tails } = self;
        tails.is_live = is_live;
        reassembler.push(headers, packet, &mut |stream, event| tails.take(stream, event, search))
    }

    pub(super) fn tick(&mut self, now_ns: i64, search: &mut Search) {
        let Streams { reassembler, tails } = self;
        reassembler.tick(now_ns, &mut |stream, event| tails.take(stream, event, search));
    }

    pub(super) fn finish(&mut self, search: &mut Search) {
        let Streams { reassembler, tails } = self;
        reassembler.finish(&mut |stream, event| tails.take(stream, event, search));
    }

    /// The account of every byte.
    pub(super) fn account(&self) -> &Account {
        self.reassembler.account()
    }

    /// Segments that were searched without those before them.
    pub(super) fn alone(&self) -> u64 {
        self.tails.alone
    }
}

/// By connection, and whether it is the client's stream.
type Key = (u64, bool);

#[derive(Default)]
struct Tails {
    known: HashMap<Key, Tail>,
    bytes: usize,
    alone: u64,
    is_live: bool,
    scratch: Vec<u8>,
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    /// The search goes on here.
    from: usize,
    /// The time of the last segment.
    time_ns: Option<i64>,
}

impl Tails {
    fn take(&mut self, stream: &Stream, event: Event<'_>, search: &mut Search) {
        let key = (stream.connection, stream.is_from_client);
        match event {
            Event::Segment(piece) if piece.len > 0 => self.segment(key, stream, piece.bytes(), search),
            Event::Segment(_) => {}
            Event::Gap { .. } | Event::End(_) => self.end(key, stream, search),
            Event::Forgotten => {
                [true, false].into_iter().for_each(|is_client| drop(self.remove((key.0, is_client))))
            }
        }
    }

    fn remove(&mut self, key: Key) -> Option<Tail> {
        let tail = self.known.remove(&key)?;
        self.bytes -= tail.bytes.len();
        Some(tail)
    }

    /// The bytes that follow are not known, or there are none: a match does not go on.
    fn end(&mut self, key: Key, stream: &Stream, search: &mut Search) {
        if let Some(tail) = self.remove(key) {
            let text = Text { bytes: &tail.bytes, new_at: tail.bytes.len(), earlier_ns: tail.time_ns };
            search.stream(stream, &text, tail.from, true);
        }
    }

    fn segment(&mut self, key: Key, stream: &Stream, bytes: &[u8], search: &mut Search) {
        let mut all = std::mem::take(&mut self.scratch);
        all.clear();
        let tail = self.remove(key).unwrap_or_default();
        all.extend_from_slice(&tail.bytes);
        all.extend_from_slice(bytes);
        let kept = all.len().min(TAIL_LEN);
        let has_room = self.bytes + kept <= TAILS_MAX;
        let text = Text { bytes: &all, new_at: tail.bytes.len(), earlier_ns: tail.time_ns };
        let from = search.stream(stream, &text, tail.from, self.is_live || !has_room);
        let start = all.len() - kept;
        if has_room {
            // The byte before the first that is searched shows whether a line or a word begins there.
            let from = from.saturating_sub(start).max(usize::from(start > 0));
            self.bytes += kept;
            self.known.insert(key, Tail { bytes: all[start..].to_vec(), from, time_ns: stream.time_ns });
        } else {
            self.alone += 1;
        }
        self.scratch = all;
    }
}

/// Bytes of a stream.
struct Text<'a> {
    bytes: &'a [u8],
    /// New bytes begin here.
    new_at: usize,
    /// The time of the bytes before the new ones.
    earlier_ns: Option<i64>,
}

impl Search {
    /// Reports matches from `from` on, and returns where to go on. Unless `is_final`, a match that ends with the last
    /// byte is left for later.
    fn stream(&mut self, stream: &Stream, text: &Text<'_>, mut from: usize, is_final: bool) -> usize {
        let len = text.bytes.len();
        let mut shown = 0;
        let mut at = from;
        while at <= len
            && let Some(found) = self.regex.find_at(text.bytes, at)
        {
            if found.is_empty() {
                at = found.end() + 1;
                continue;
            }
            // Longer ones would lose their beginning.
            if found.end() == len && !is_final && len - found.start() < TAIL_LEN {
                return found.start();
            }
            (at, from) = (found.end(), found.end());
            self.matched += 1;
            shown += 1;
            if shown <= SHOWN_MAX {
                self.show_match(stream, text, found);
            }
        }
        from
    }

    fn show_match(&mut self, stream: &Stream, text: &Text<'_>, found: Match<'_>) {
        let offset = (stream.offset + found.start() as u64).saturating_sub(text.new_at as u64);
        let time_ns = if found.end() <= text.new_at { text.earlier_ns } else { stream.time_ns };
        let tuple = &stream.tuple;
        if self.style.json {
            let object = json!({
                "time": universal_ns(time_ns),
                "src": tuple.src.to_string(),
                "dst": tuple.dst.to_string(),
                "src_port": tuple.src_port,
                "dst_port": tuple.dst_port,
                "stream": stream.connection,
                "offset": offset,
                "match": String::from_utf8_lossy(found.as_bytes()),
            });
            return self.lines.add(&plain_json(&format!("{object}\n")));
        }
        let head = format!(
            "{} {} > {}: stream {}, byte {}",
            local_ns(time_ns, "%H:%M:%S.%6f"),
            endpoint((tuple.src, tuple.src_port)),
            endpoint((tuple.dst, tuple.dst_port)),
            stream.connection,
            grouped(offset)
        );
        let text = format!("{}\n{}", self.style.dimmed(&head), self.style.excerpt(text.bytes, found));
        self.lines.add(&text);
    }
}
