//! A reader of pcapng sections that are complete in memory, for one buffer of sections after another.
//!
//! ```text
//! set_buffer (or refill) -> advance: true -> batch -> advance: true -> batch ... advance: false -> set_buffer (or refill)
//! ```

use std::ops::Range;

use tapline_packet::{BATCH_MAX, Batch, Interface, Record};

use crate::read::pcapng::{Keep, Parser};
use crate::read::{ParseOutput, Stop, Window};

/// Lends the packets of sections in memory, in batches. Interfaces with the same description are one interface, in
/// whichever section they come: the table grows only with new descriptions.
pub struct SectionReader {
    bytes: Vec<u8>,
    /// The unread part of `bytes`: from here to `end`.
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

    /// Fills the reader's buffer again, which saves an allocation: `fill` is given the buffer with its old contents,
    /// and leaves one or more complete sections in it.
    ///
    /// # Errors
    /// The error of `fill`; the reader then holds no section.
    pub fn refill<E>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.begin();
        let filled = fill(&mut self.bytes);
        if filled.is_err() {
            self.bytes.clear();
        }
        self.end = self.bytes.len();
        filled
    }

    /// Replaces the buffer by another one, with complete sections in the range `place`.
    /// [`take_buffer`](Self::take_buffer) returns it.
    pub fn set_buffer(&mut self, bytes: Vec<u8>, place: Range<usize>) {
        self.begin();
        self.end = place.end.min(bytes.len());
        self.at = place.start.min(self.end);
        self.bytes = bytes;
    }

    /// Returns the buffer, for which the records of its batches hold offsets. The reader is empty afterwards.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.begin();
        std::mem::take(&mut self.bytes)
    }

    fn begin(&mut self) {
        self.records.clear();
        (self.at, self.end) = (0, 0);
        self.parser.forget_remarks();
    }

    /// Ends the last batch and parses the next; `false` at the end of the sections.
    ///
    /// # Errors
    /// The fault in the sections, as a clause for a message. Packets before it have been lent by then; the bytes
    /// behind it are skipped.
    pub fn advance(&mut self) -> Result<bool, String> {
        self.records.clear();
        let mut window = Window { bytes: &mut self.bytes[..self.end], at: self.at };
        let mut found = ParseOutput {
            interfaces: &mut self.interfaces,
            records: &mut self.records,
            records_max: BATCH_MAX,
        };
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

    /// Lends the packets found before the fault; the next call meets the fault again and returns it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Section, blocks};
    use tapline_packet::{InterfaceId, LinkType, Meta, Packet};

    /// A section with a packet, which says much of itself: in short pieces, so that they would fill the last room.
    fn section() -> Vec<u8> {
        let mut bytes = Vec::new();
        let comments = vec!["a".to_owned(); 2000];
        blocks::section_header(&mut bytes, &Section { comments, ..Section::default() });
        let interface = Interface::new("eth0", LinkType::ETHERNET);
        blocks::interface(&mut bytes, &interface, 0);
        let meta = Meta { wire_len: 3, interface: InterfaceId(0), ..Meta::default() };
        blocks::packet(&mut bytes, &Packet { data: &[1, 2, 3], meta: &meta }, &interface, 0, &[]);
        bytes
    }

    #[test]
    fn any_number_of_sections_is_read() {
        let mut reader = SectionReader::new();
        let section = section();
        for number in 0..2000 {
            reader.set_buffer(section.clone(), 0..usize::MAX);
            assert_eq!(reader.advance(), Ok(true), "section {number}");
            assert_eq!((reader.batch().len(), reader.interfaces().len()), (1, 1));
            assert_eq!(reader.advance(), Ok(false));
        }
    }
}
