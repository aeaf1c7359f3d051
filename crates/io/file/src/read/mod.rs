//! The common part of the three formats: a parser walks a window and leaves records.

use tapline_packet::{Interface, Record};

use crate::error::{Error, FilePosition};

pub(crate) mod detect;
pub(crate) mod erf;
pub(crate) mod pcap;
pub(crate) mod pcapng;
mod pseudo_header;
mod scout;

pub(crate) use scout::Scout;

/// A parser of one format. It keeps the facts that a file states once (byte order, interfaces) and walks the window in
/// between.
pub(crate) enum Parser {
    Pcap(pcap::Parser),
    Pcapng(Box<pcapng::Parser>),
    Erf(erf::Parser),
}

/// A stretch of the file in the buffer.
pub(crate) struct Window<'a> {
    /// The whole buffer, up to the last byte that came.
    pub(crate) bytes: &'a mut [u8],
    /// The next byte to parse: an index into `bytes`.
    pub(crate) at: usize,
}

impl Window<'_> {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}

/// Packets and interfaces found so far.
pub(crate) struct ParseOutput<'a> {
    pub(crate) interfaces: &'a mut Vec<Interface>,
    pub(crate) records: &'a mut Vec<Record>,
    /// The walk ends with so many records.
    pub(crate) records_max: usize,
}

impl ParseOutput<'_> {
    fn is_full(&self) -> bool {
        self.records.len() >= self.records_max
    }
}

/// Reason for which a parser stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The batch is full, or ends here for another reason.
    Full,
    /// The item at the window's `at` is not there as a whole.
    Need {
        /// The item's name.
        item: &'static str,
        /// Number of its bytes that were consumed before, as they need not be contiguous.
        consumed: u64,
        /// Bytes that it needs, counted from `at`; at least one more than are there.
        len: u64,
    },
}

impl Stop {
    fn need(item: &'static str, len: usize) -> Stop {
        Stop::Need { item, consumed: 0, len: len as u64 }
    }
}

/// A contradiction in the file, in the item at the window's `at`.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) reason: String,
    /// The captured length that a packet claims, if that is the fault.
    pub(crate) cap_len: Option<u32>,
    /// libpcap's message for a version or kind that is not supported.
    pub(crate) unsupported: Option<String>,
}

impl Fault {
    pub(crate) fn new(reason: String) -> Fault {
        Fault { reason, cap_len: None, unsupported: None }
    }

    /// A version or kind that is not read, in our words and in those of libpcap.
    pub(crate) fn unsupported(reason: String, libpcap: String) -> Fault {
        Fault { reason, cap_len: None, unsupported: Some(libpcap) }
    }

    /// The error for a fault in the file of this name.
    pub(crate) fn in_file(self, name: &str, place: FilePosition) -> Error {
        let (name, Fault { reason, cap_len, unsupported }) = (name.to_owned(), self);
        match unsupported {
            Some(libpcap) => Error::Unsupported { name, place, what: reason, libpcap },
            None => Error::Corrupt { name, place, reason, cap_len },
        }
    }
}

impl Parser {
    /// The length of the shortest item.
    pub(crate) fn item_len_min(&self) -> usize {
        match self {
            Parser::Pcap(parser) => parser.record_header_len(),
            Parser::Pcapng(_) => pcapng::BLOCK_HEADER_LEN,
            Parser::Erf(_) => erf::HEADER_LEN,
        }
    }

    /// Drops an unfinished item, as the next byte is the first of another.
    pub(crate) fn restart(&mut self) {
        if let Parser::Pcapng(parser) = self {
            parser.restart();
        }
    }

    /// Number of the facts that the file has stated so far, and by which later items are read.
    pub(crate) fn facts(&self) -> u64 {
        match self {
            Parser::Pcapng(parser) => parser.facts,
            Parser::Pcap(_) | Parser::Erf(_) => 0,
        }
    }

    /// Walks the window until the batch is full or an item is not there as a whole.
    pub(crate) fn parse(
        &mut self,
        window: &mut Window<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<Stop, Fault> {
        match self {
            Parser::Pcap(parser) => parser.parse(window, found),
            Parser::Pcapng(parser) => parser.parse(window, found),
            Parser::Erf(parser) => parser.parse(window, found),
        }
    }
}
