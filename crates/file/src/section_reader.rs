//! Sections of pcapng that lie in memory as a whole, one after the other.
//!
//! ```text
//! refill, or put (one section or more) -> advance -> batch -> advance -> batch ... -> false -> refill
//! ```

use std::ops::Range;

use tapline_packet::{BATCH_MAX, Batch, Interface, Record};

use crate::read::pcapng::{Keep, Parser};
use crate::read::{Found, Stop, Window};

/// Lends the packets of sections in memory. Interfaces that sections describe alike are one interface, whenever they
/// come again: the table grows only with interfaces that are new.
pub struct SectionReader {
    bytes: Vec<u8>,
    /// The bytes that are to be read.
    at: usize,
    end: usize,
    parser: Parser,
    interfaces: Vec<Interface>,
    records: Vec<Record>,
}

impl Default for SectionReader {
    fn default() -> SectionReader {
        SectionReader::new()
    }
}

impl SectionReader {
    /// A reader without a section.
    pub fn new() -> SectionReader {
        SectionReader {
            bytes: Vec::new(),
            at: 0,
            end: 0,
            parser: Parser::new(Keep::All),
            interfaces: Vec::new(),
            records: Vec::with_capacity(BATCH_MAX),
        }
    }

    /// Puts other bytes in place of those that were read: `fill` gets the buffer as it was left.
    ///
    /// # Errors
    /// What `fill` says; the reader then holds no section.
    pub fn refill<E>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.begin();
        let filled = fill(&mut self.bytes);
        if filled.is_err() {
            self.bytes.clear();
        }
        self.end = self.bytes.len();
        filled
    }

    /// Takes sections at a place in a buffer in place of those that were read. Gives that buffer with
    /// [`take`](Self::take).
    pub fn put(&mut self, bytes: Vec<u8>, place: Range<usize>) {
        self.begin();
        self.end = place.end.min(bytes.len());
        self.at = place.start.min(self.end);
        self.bytes = bytes;
    }

    /// The buffer, in which the records of batches point; nothing is left to be read.
    pub fn take(&mut self) -> Vec<u8> {
        self.begin();
        std::mem::take(&mut self.bytes)
    }

    fn begin(&mut self) {
        self.records.clear();
        (self.at, self.end) = (0, 0);
        self.parser.forget_remarks();
    }

    /// Gives the last batch back and parses the next. `false` at the end of the bytes.
    ///
    /// # Errors
    /// The contradiction, as a clause; packets before it have been lent by then. The rest of the bytes is given up.
    pub fn advance(&mut self) -> Result<bool, String> {
        self.records.clear();
        let mut window = Window { bytes: &mut self.bytes[..self.end], at: self.at };
        let mut found = Found { interfaces: &mut self.interfaces, records: &mut self.records };
        let parsed = self.parser.parse(&mut window, &mut found);
        self.at = window.at;
        match parsed {
            Ok(Stop::Full) => Ok(true),
            Ok(Stop::Need { .. }) if self.at >= self.end => Ok(!self.records.is_empty()),
            Ok(Stop::Need { item, .. }) => self.give_up(format!("the bytes end in a {item}")),
            Err(fault) => self.give_up(fault.reason),
        }
    }

    /// The batch that the last [`advance`](Self::advance) found.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    /// Keeps the packets of the batch for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Record) -> bool) {
        self.records.retain(keep);
    }

    /// The interfaces of all sections so far. The table only grows.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Lends what was found before the fault, and tells of the fault the next time.
    fn give_up(&mut self, reason: String) -> Result<bool, String> {
        match self.records.is_empty() {
            true => {
                self.at = self.end;
                Err(reason)
            }
            false => Ok(true),
        }
    }
}
