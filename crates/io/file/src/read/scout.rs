//! Packets from the middle of a file, parsed before it is known that a record begins there.
//!
//! ```text
//! piece of a file  |..rest of a record|record|record|record|record|..begin of a record|
//!                  ^ search           ^ likely start: a chain of plausible headers      up to SEARCH_LEN from the start
//! ```
//!
//! It is a guess, and data may contain anything, also capture files. The parser that comes from the beginning of the
//! file decides: the records are good if it meets the first of them, and if it knows the same facts by then. Both
//! parsers do the same with the same bytes, and the scout changes none.

use std::ops::Range;

use tapline_packet::{Interface, Record};

use super::{Parser, Window, pcap, pcapng};

/// The bytes in which the start of a record is searched for. Where packets are longer, a piece has so few records that
/// parsing ahead gains little.
const SEARCH_LEN: usize = 4096;

/// The records in a row that make a start likely.
pub(super) const CHAIN_LEN: usize = 4;

/// A parser for the middle of a file.
#[derive(Debug)]
pub(crate) struct Scout {
    parser: FormatScout,
    facts: u64,
}

#[derive(Debug)]
enum FormatScout {
    Pcap { parser: pcap::Parser, snap_len: u32 },
    Pcapng(Box<pcapng::Parser>),
}

impl Parser {
    /// A parser for the middle of the file, as far as its facts are known; `None` for formats and variants that are
    /// parsed from the beginning alone.
    pub(crate) fn scout(&self, interfaces: &[Interface]) -> Option<Scout> {
        let parser = match self {
            Parser::Pcap(parser) => {
                let snap_len = interfaces.first().map_or(0, |interface| interface.snap_len);
                parser.is_plain().then(|| FormatScout::Pcap { parser: parser.clone(), snap_len })
            }
            Parser::Pcapng(parser) => parser.scout().map(|parser| FormatScout::Pcapng(Box::new(parser))),
            Parser::Erf(_) => None,
        };
        Some(Scout { parser: parser?, facts: self.facts() })
    }
}

impl Scout {
    /// The facts that the scout knows: see [`Parser::facts`].
    pub(crate) fn facts(&self) -> u64 {
        self.facts
    }

    /// Adds the records of the window from the first likely start on, as far as they are plain packets and whole.
    /// Returns their bytes, or `None` if no start is likely. `offset` is the place of the window's first byte in the
    /// file.
    pub(crate) fn parse(
        &self,
        mut window: Window<'_>,
        offset: u64,
        records: &mut Vec<Record>,
    ) -> Option<Range<usize>> {
        let until = window.bytes.len().min(window.at + SEARCH_LEN);
        let start = match &self.parser {
            FormatScout::Pcap { parser, snap_len } => {
                (window.at..until).find(|&at| parser.is_likely_start(window.bytes, at, *snap_len))
            }
            FormatScout::Pcapng(parser) => {
                let first = window.at + pcapng::padding(offset);
                (first..until).step_by(4).find(|&at| parser.is_likely_start(window.bytes, at))
            }
        }?;
        window.at = start;
        match &self.parser {
            FormatScout::Pcap { parser, .. } => parser.parse_likely(&mut window, records),
            FormatScout::Pcapng(parser) => parser.parse_likely(&mut window, records),
        }
        Some(start..window.at)
    }
}
