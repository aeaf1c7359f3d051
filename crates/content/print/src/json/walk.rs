//! The way through a packet, from header to header, while its JSON is written.
//!
//! ```text
//! packet object:  record fields, layer, layer, ..., inner object, protocols, truncated, malformed
//! inner object:   layer, layer, ..., inner object
//! ```
//!
//! Within one object each key occurs once. A protocol that would appear a second time opens an `inner` object.

use super::write::Writer;
use crate::bytes::{Printed, Span};

/// Maximum nesting depth of `inner` objects. Deeper headers count as payload.
const DEPTH_MAX: u8 = 8;

/// Maximum number of names in `protocols`.
const PROTOCOLS_MAX: usize = 40;

/// Writes the layers of one packet.
pub(super) struct Walk<'w, 'o> {
    pub(super) json: &'w mut Writer<'o>,
    protocols: [&'static str; PROTOCOLS_MAX],
    count: usize,
    depth: u8,
    malformed: Option<&'static str>,
    truncated: Option<&'static str>,
    /// Whether there are more layers than `protocols` has room for.
    has_more: bool,
}

impl<'w, 'o> Walk<'w, 'o> {
    /// At the start of a packet whose object is open.
    pub(super) fn new(json: &'w mut Writer<'o>) -> Walk<'w, 'o> {
        let protocols = [""; PROTOCOLS_MAX];
        Walk { json, protocols, count: 0, depth: 0, malformed: None, truncated: None, has_more: false }
    }

    /// The object of one protocol; `body` writes its fields and may give up where the bytes end.
    pub(super) fn layer<T, E>(
        &mut self,
        name: &'static str,
        body: impl FnOnce(&mut Writer<'o>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.visit(name);
        let result = self.json.object_field(name, body);
        if result.is_err() {
            self.truncated = Some(name);
        }
        result
    }

    /// As [`layer`](Self::layer), with an array of objects.
    pub(super) fn layers<T, E>(
        &mut self,
        name: &'static str,
        body: impl FnOnce(&mut Writer<'o>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.visit(name);
        let result = self.json.array_field(name, body);
        if result.is_err() {
            self.truncated = Some(name);
        }
        result
    }

    /// Writes a packet in a tunnel or a quoted one as an object of its own, unless it is nested too deeply.
    pub(super) fn inner(&mut self, span: Span<'_>, body: impl FnOnce(&mut Self) -> Printed) -> Printed {
        if self.depth == DEPTH_MAX {
            self.json.boolean_field("inner_truncated", true);
            self.payload(span);
            return Ok(());
        }
        self.depth += 1;
        self.json.open_object("inner");
        let result = body(self);
        self.json.close_object();
        self.depth -= 1;
        result
    }

    /// Ends the decoding: writes the number of bytes on the wire that are left.
    pub(super) fn payload(&mut self, span: Span<'_>) {
        self.json.number_field("payload_length", span.length as u64);
    }

    /// Notes that the header of `name` contradicts itself; the bytes behind it are not decoded.
    pub(super) fn malformed(&mut self, name: &'static str) {
        self.malformed = Some(name);
    }

    /// The keys that close the packet's object.
    pub(super) fn finish(self) {
        let Walk { json, protocols, count, malformed, truncated, has_more, .. } = self;
        json.array_field("protocols", |json| {
            protocols[..count].iter().for_each(|name| json.text(name.as_bytes()));
        });
        if has_more {
            json.boolean_field("protocols_truncated", true);
        }
        for (key, name) in [("truncated", truncated), ("malformed", malformed)] {
            if let Some(name) = name {
                json.text_field(key, name.as_bytes());
            }
        }
    }

    fn visit(&mut self, name: &'static str) {
        match self.protocols.get_mut(self.count) {
            Some(slot) => {
                *slot = name;
                self.count += 1;
            }
            None => self.has_more = true,
        }
    }
}
