//! The pcapng format (draft-ietf-opsawg-pcapng).
//!
//! ```text
//! file    = section+                      each in the byte order of its writer
//! section = section-header block*
//! block   = type u32, length u32, body, padding to 4, length u32 again
//!
//! 0x0a0d0d0a section header     byte-order magic u32, major u16, minor u16, section length i64, options
//! 1 interface description       link type u16, reserved u16, snap length u32, options
//! 6 enhanced packet             interface u32, time (high, low) u32*2, captured u32, wire u32, data, options
//! 3 simple packet               wire u32, data                      (interface 0, no time)
//! 2 packet (obsolete)           interface u16, drops u16, time u32*2, captured u32, wire u32, data, options
//! 5 interface statistics        interface u32, time u32*2, options
//! any other                     copied for a writer that asks, else skipped by its length without being held
//! option  = code u16, length u16, value, padding to 4; code 0 ends the list
//! ```
//!
//! Limits: a block that we look into has at most [`BLOCK_LEN_MAX`] bytes or what its link type needs, as in libpcap. A
//! file has at most [`INTERFACES_MAX`] interfaces, described in as much text and options as [`Room`] has; a reader of
//! packets alone keeps 32 bytes for each interface of a section, at most [`SECTION_INTERFACES_MAX`].

mod ahead;
mod clock;
mod known;
pub(crate) mod option;
mod packet;
mod room;
mod section;

use std::collections::HashSet;

use tapline_packet::{Interface, InterfaceId, LinkType, Resolution};

pub(crate) use self::ahead::padding;
use self::clock::Clock;
use self::known::Known;
use self::option::Options;
pub(crate) use self::room::Room;
use super::pseudo_header::PseudoHeader;
use super::{Fault, ParseOutput, Stop, Window};
use crate::byte_order::ByteOrder;
use crate::copied::{BlockQueue, CopiedBlock, Fate};
use crate::section::{InterfaceStatistics, Section};

/// The type of a section header, the same in both byte orders.
pub(crate) const SECTION_HEADER_TYPE: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
pub(crate) const SIMPLE_PACKET: u32 = 3;
pub(crate) const INTERFACE_STATISTICS: u32 = 5;
pub(crate) const ENHANCED_PACKET: u32 = 6;

pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Type and two lengths.
const BLOCK_LEN_MIN: u32 = 12;
pub(crate) const BLOCK_HEADER_LEN: usize = 8;
const TRAILER_LEN: usize = 4;

/// Bytes of the fixed parts, with the block header.
const SECTION_HEADER_LEN: usize = 24;
const INTERFACE_HEADER_LEN: usize = 16;
const STATISTICS_HEADER_LEN: usize = 20;

/// The longest block that is held as a whole, unless the link type has longer packets (libpcap's
/// `INITIAL_MAX_BLOCKSIZE`).
pub(crate) const BLOCK_LEN_MAX: u32 = 16 << 20;

/// Room for a packet block's headers and options, in addition to its data (libpcap's `MAX_BLOCKSIZE_FOR_SNAPLEN`).
const PACKET_BLOCK_EXTRA: u32 = 131_072 + 32;

/// The most interfaces that a file may describe, those of all sections together.
pub(crate) const INTERFACES_MAX: usize = 1 << 16;

/// The most interfaces that a section may describe to a reader of packets alone.
const SECTION_INTERFACES_MAX: usize = 1 << 20;

/// Sections whose facts are kept.
const SECTIONS_MAX: usize = 4096;

/// Interface statistics that are kept in addition to two of each interface.
const STATISTICS_MORE: usize = 4096;

/// Contents of a file, other than packets, that a parser keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Sections, interfaces and their statistics.
    All,
    /// Link types only: packets with the link type of the first interface have id 0, all others id 1. A batch begins
    /// and ends with packets between which no block changes what later ones mean, and an interface ends a walk.
    LinkTypes,
}

/// Reads blocks.
#[derive(Debug)]
pub(crate) struct Parser {
    keep: Keep,
    /// The memory that is left for text and options.
    room: Room,
    order: ByteOrder,
    /// Sections and interfaces that the file has described so far.
    pub(crate) facts: u64,
    /// The interfaces of this section, by its own numbers.
    interfaces: Vec<SectionInterface>,
    /// Interfaces of all sections, to recognize them again.
    known: Known,
    /// Bytes of the current block that are still to be passed over, and how many it had.
    skip: u64,
    skipped: u64,
    /// Blocks whose length is not a multiple of 4, and the length of the first.
    pub(crate) odd_blocks: u64,
    odd_len: u32,
    block_len_max: u32,
    /// Queue of the blocks without packets, for a copy of the file.
    pub(crate) copies: Option<BlockQueue>,
    pub(crate) sections: Vec<Section>,
    /// The room that they take.
    sections_len: usize,
    pub(crate) statistics: Vec<InterfaceStatistics>,
}

#[derive(Clone, Copy, Debug)]
struct SectionInterface {
    id: InterfaceId,
    clock: Clock,
    snap_len: u32,
    link_type: LinkType,
    pseudo_header: Option<PseudoHeader>,
}

/// A block's place in the window.
#[derive(Clone, Copy)]
struct Block {
    kind: u32,
    len: usize,
}

impl Parser {
    /// A parser in front of the first section header.
    pub(crate) fn new(keep: Keep) -> Parser {
        Parser {
            keep,
            room: Room::default(),
            order: ByteOrder::NATIVE,
            facts: 0,
            interfaces: Vec::new(),
            known: Known::default(),
            skip: 0,
            skipped: 0,
            odd_blocks: 0,
            odd_len: 0,
            block_len_max: BLOCK_LEN_MAX,
            copies: None,
            sections: Vec::new(),
            sections_len: 0,
            statistics: Vec::new(),
        }
    }

    /// Drops what sections and statistics said so far: a reader of many sections need not keep it.
    pub(crate) fn forget_remarks(&mut self) {
        (self.skip, self.skipped) = (0, 0);
        self.sections.clear();
        self.room.give_back(std::mem::take(&mut self.sections_len));
        self.statistics.clear();
    }

    /// Walks the window until the batch is full or a block is not there as a whole.
    pub(crate) fn parse(
        &mut self,
        window: &mut Window<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<Stop, Fault> {
        // Whether a block was read that says what later ones mean.
        let mut is_told = false;
        while !found.is_full() {
            if let Some(stop) = self.pass_over(window) {
                return Ok(stop);
            }
            if self.keep == Keep::All {
                self.enhanced_packets(window, found)?;
                if found.is_full() {
                    break;
                }
            }
            let rest = window.rest();
            if rest.len() < BLOCK_HEADER_LEN {
                return Ok(Stop::need("block header", BLOCK_HEADER_LEN));
            }
            if rest[..4] == SECTION_HEADER_TYPE {
                let Some(magic) = rest.get(8..12) else { return Ok(Stop::need("section header", 12)) };
                self.order = byte_order(magic)?;
            }
            let block = self.block(rest)?;
            if self.ends_batch(block.kind, is_told, found) {
                return Ok(Stop::Full);
            }
            if !is_read(block.kind) {
                let written_len = self.order.u32(rest, 4);
                match self.copy(block, window) {
                    Some(stop) => return Ok(stop),
                    None => {
                        self.count_odd(written_len);
                        continue;
                    }
                }
            }
            if rest.len() < block.len {
                return Ok(Stop::need(block_name(block.kind), block.len));
            }
            self.check_trailer(&rest[..block.len])?;
            self.count_odd(self.order.u32(rest, 4));
            self.read(block, window, found)?;
            window.at += block.len;
            is_told |= tells(block.kind);
            if self.keep == Keep::LinkTypes && block.kind == INTERFACE_DESCRIPTION {
                return Ok(Stop::Full);
            }
        }
        Ok(Stop::Full)
    }

    /// Reads Enhanced Packet Blocks up to one of another kind, or one that needs a second look: nearly all blocks of
    /// nearly all files, so without the questions that other blocks need.
    #[inline]
    fn enhanced_packets(&self, window: &mut Window<'_>, found: &mut ParseOutput<'_>) -> Result<(), Fault> {
        while !found.is_full() {
            let rest = window.rest();
            let Some(header) = rest.get(..BLOCK_HEADER_LEN) else { break };
            let len = self.order.u32(header, 4);
            let is_usual = self.order.u32(header, 0) == ENHANCED_PACKET
                && (BLOCK_LEN_MIN..=self.block_len_max).contains(&len)
                && len.is_multiple_of(4);
            let Some(block) = rest.get(..len as usize).filter(|_| is_usual) else { break };
            if self.check_trailer(block).is_err() {
                break;
            }
            let end = window.at + len as usize;
            found.records.push(self.enhanced(&mut window.bytes[..end - TRAILER_LEN], window.at)?);
            window.at = end;
        }
        Ok(())
    }

    /// Counts a block if its length breaks the rule that it is a multiple of 4 (draft, section 3.1).
    #[inline]
    fn count_odd(&mut self, len: u32) {
        if !len.is_multiple_of(4) {
            self.odd_len = if self.odd_blocks == 0 { len } else { self.odd_len };
            self.odd_blocks += 1;
        }
    }

    /// A sentence about blocks that break a rule of the format and were read all the same.
    pub(crate) fn remark(&self) -> Option<String> {
        let (count, len) = (self.odd_blocks, self.odd_len);
        let blocks = if count == 1 { "1 block has".to_owned() } else { format!("{count} blocks have") };
        (count > 0).then(|| {
            format!(
                "{blocks} a length that is not a multiple of 4, the first one {len}; read as if padding counted \
                 (other programs may refuse the file)"
            )
        })
    }

    /// Makes the next byte the start of a block, whatever was skipped.
    pub(crate) fn restart(&mut self) {
        (self.skip, self.skipped) = (0, 0);
    }

    /// Whether the batch, or the walk before one, ends with this block: so that each batch can be read again from its
    /// first byte, and so that a block is between the same packets in a copy.
    fn ends_batch(&self, kind: u32, is_told: bool, found: &ParseOutput<'_>) -> bool {
        if self.keep == Keep::LinkTypes {
            return match tells(kind) {
                true => !found.records.is_empty(),
                false => is_told && is_read(kind),
            };
        }
        let is_copied = !is_read(kind) || kind == SECTION_HEADER;
        self.copies.is_some() && is_copied && !found.records.is_empty()
    }

    /// Copies a block that is not looked into, or begins to pass over it; `Some` if it is not there as a whole.
    fn copy(&mut self, block: Block, window: &mut Window<'_>) -> Option<Stop> {
        let Some(copies) = &self.copies else {
            (self.skip, self.skipped) = (block.len as u64, 0);
            return None;
        };
        let fate =
            Fate::of_kind(block.kind).or((block.len > BLOCK_LEN_MAX as usize).then_some(Fate::TooLong));
        if let Some(fate) = fate {
            copies.leave_out(fate);
            (self.skip, self.skipped) = (block.len as u64, 0);
            return None;
        }
        let rest = window.rest();
        let Some(bytes) = rest.get(..block.len) else { return Some(Stop::need("block", block.len)) };
        let read = match self.check_trailer(bytes) {
            Ok(()) => CopiedBlock::read(self.order, block.kind, bytes),
            Err(_) => Err(Fate::Damaged),
        };
        match read {
            Ok(raw) => copies.push(CopiedBlock::Other(raw)),
            Err(fate) => copies.leave_out(fate),
        }
        window.at += block.len;
        None
    }

    /// Skips the rest of a block that is not read; `Some` if it ends beyond the window.
    fn pass_over(&mut self, window: &mut Window<'_>) -> Option<Stop> {
        let len = self.skip.min(window.rest().len() as u64);
        window.at += len as usize;
        self.skip -= len;
        self.skipped += len;
        (self.skip > 0).then_some(Stop::Need { item: "block", consumed: self.skipped, len: self.skip })
    }

    fn block(&self, rest: &[u8]) -> Result<Block, Fault> {
        let kind = self.order.u32(rest, 0);
        let len = self.order.u32(rest, 4);
        if len < BLOCK_LEN_MIN {
            return Err(Fault::new(format!("a block has length {len}; the least is {BLOCK_LEN_MIN}")));
        }
        if is_read(kind) && len > self.block_len_max {
            let max = self.block_len_max;
            return Err(Fault::new(format!("{} of {len} bytes; at most {max} make sense", block_name(kind))));
        }
        // Lengths that leave the padding out are in the wild; the trailer tells whether that is what happened.
        Ok(Block { kind, len: len as usize + (len.wrapping_neg() % 4) as usize })
    }

    fn check_trailer(&self, block: &[u8]) -> Result<(), Fault> {
        let (head, tail) = (self.order.u32(block, 4), self.order.u32(block, block.len() - TRAILER_LEN));
        if head != tail {
            return Err(Fault::new(format!("a block's length is {head} at its start and {tail} at its end")));
        }
        Ok(())
    }

    fn read(
        &mut self,
        block: Block,
        window: &mut Window<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<(), Fault> {
        let (start, end) = (window.at, window.at + block.len - TRAILER_LEN);
        match block.kind {
            SECTION_HEADER => self.section(&window.bytes[start..end]),
            INTERFACE_DESCRIPTION => self.interface(&window.bytes[start..end], found.interfaces),
            INTERFACE_STATISTICS => {
                self.interface_statistics(&window.bytes[start..end], found.interfaces.len())
            }
            _ => {
                let record = match block.kind {
                    ENHANCED_PACKET => self.enhanced(&mut window.bytes[..end], start)?,
                    PACKET => self.obsolete(&mut window.bytes[..end], start)?,
                    _ => self.simple(&mut window.bytes[..end], start)?,
                };
                found.records.push(record);
                Ok(())
            }
        }
    }

    fn section(&mut self, block: &[u8]) -> Result<(), Fault> {
        self.facts += 1;
        need(block, SECTION_HEADER_LEN, "section header")?;
        let (major, minor) = (self.order.u16(block, 12), self.order.u16(block, 14));
        // 1.2 was written by mistake and means 1.0 (libpcap reads it so).
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(Fault::unsupported(
                format!("this is version {major}.{minor} of pcapng; 1.0 can be read"),
                format!("unsupported pcapng savefile version {major}.{minor}"),
            ));
        }
        if self.keep == Keep::LinkTypes {
            self.interfaces.clear();
            return Ok(());
        }
        self.interfaces.clear();
        self.known.begin_section();
        if self.sections.len() < SECTIONS_MAX {
            let before = self.room;
            let section = Section::parse(self.order, &block[SECTION_HEADER_LEN..], &mut self.room);
            self.sections_len += self.room.taken_since(before);
            if let Some(copies) = &self.copies {
                copies.push(CopiedBlock::Section(section.clone()));
            }
            self.sections.push(section);
        }
        Ok(())
    }

    fn interface(&mut self, block: &[u8], all: &mut Vec<Interface>) -> Result<(), Fault> {
        self.facts += 1;
        need(block, INTERFACE_HEADER_LEN, "interface description")?;
        let link_type = LinkType::from_dlt(self.order.u16(block, 8));
        let snap_len = self.order.u32(block, 12);
        let options = &block[INTERFACE_HEADER_LEN..];
        let resolution = option::resolution(self.order, options);
        let id = match self.keep {
            Keep::All => self.table_entry(link_type, snap_len, options, all)?,
            Keep::LinkTypes => self.link_type_entry(link_type, snap_len, resolution, all)?,
        };
        let packets_max = link_type.snap_len_max().saturating_add(PACKET_BLOCK_EXTRA);
        self.block_len_max = self.block_len_max.max(packets_max);
        self.interfaces.push(SectionInterface {
            id,
            clock: Clock::new(resolution, option::time_offset(self.order, options)),
            snap_len,
            link_type,
            pseudo_header: PseudoHeader::to_swap(self.order, link_type),
        });
        Ok(())
    }

    /// The number of the section's next interface in the file's table.
    ///
    /// An interface that a section before described in the same words is the same interface, as often as that section
    /// did: files that were put together, or written in pieces between which interfaces come and go, keep one table.
    fn table_entry(
        &mut self,
        link_type: LinkType,
        snap_len: u32,
        options: &[u8],
        all: &mut Vec<Interface>,
    ) -> Result<InterfaceId, Fault> {
        let room = self.room;
        let Some(mut interface) = option::interface(self.order, link_type, options, &mut self.room) else {
            let max = Room::MAX;
            return Err(Fault::new(format!("the file describes its interfaces in more than {max} bytes")));
        };
        interface.snap_len = snap_len;
        if let Some(id) = self.known.again(&interface, all) {
            self.room = room;
            return Ok(id);
        }
        if all.len() == INTERFACES_MAX {
            return Err(Fault::new(format!("the file describes more than {INTERFACES_MAX} interfaces")));
        }
        let id = InterfaceId(all.len() as u32);
        self.known.add(&interface, id);
        all.push(interface);
        Ok(id)
    }

    /// One of two entries: the first interface's for all of its link type, and that of the first one of another link
    /// type for the rest.
    fn link_type_entry(
        &self,
        link_type: LinkType,
        snap_len: u32,
        resolution: Resolution,
        all: &mut Vec<Interface>,
    ) -> Result<InterfaceId, Fault> {
        if self.interfaces.len() == SECTION_INTERFACES_MAX {
            let max = SECTION_INTERFACES_MAX;
            return Err(Fault::new(format!("a section describes more than {max} interfaces")));
        }
        let id = usize::from(all.first().is_some_and(|first| first.link_type != link_type));
        if all.len() == id {
            all.push(Interface { snap_len, resolution, ..Interface::new("", link_type) });
        }
        Ok(InterfaceId(id as u32))
    }

    fn interface_statistics(&mut self, block: &[u8], interfaces: usize) -> Result<(), Fault> {
        need(block, STATISTICS_HEADER_LEN, "interface statistics")?;
        let interface = self.known(self.order.u32(block, 8))?;
        let clock = |high: u32, low: u32| interface.clock.timestamp(high, low);
        let taken = clock(self.order.u32(block, 12), self.order.u32(block, 16));
        let options = Options::new(self.order, &block[STATISTICS_HEADER_LEN..]);
        if self.keep == Keep::All {
            let statistics = InterfaceStatistics::parse(interface.id, taken, options, clock);
            self.statistics.push(statistics);
            self.thin_statistics(2 * interfaces + STATISTICS_MORE);
        }
        Ok(())
    }

    /// Drops statistics if there are more than `max`, but keeps the last of each interface.
    fn thin_statistics(&mut self, max: usize) {
        if self.statistics.len() <= max {
            return;
        }
        let mut seen = HashSet::new();
        self.statistics.reverse();
        self.statistics.retain(|statistics| seen.insert(statistics.interface));
        self.statistics.reverse();
    }

    #[inline]
    fn known(&self, number: u32) -> Result<&SectionInterface, Fault> {
        self.interfaces.get(number as usize).ok_or_else(|| {
            let count = self.interfaces.len();
            Fault::new(format!("a block names interface {number}; the section has described {count} so far"))
        })
    }
}

/// Whether blocks of this type are looked into.
fn is_read(kind: u32) -> bool {
    matches!(
        kind,
        SECTION_HEADER
            | INTERFACE_DESCRIPTION
            | PACKET
            | SIMPLE_PACKET
            | INTERFACE_STATISTICS
            | ENHANCED_PACKET
    )
}

/// Whether a block says what later ones mean.
fn tells(kind: u32) -> bool {
    matches!(kind, SECTION_HEADER | INTERFACE_DESCRIPTION)
}

fn block_name(kind: u32) -> &'static str {
    match kind {
        SECTION_HEADER => "section header",
        INTERFACE_DESCRIPTION => "interface description",
        INTERFACE_STATISTICS => "interface statistics",
        _ => "packet block",
    }
}

/// The byte order that makes `magic` read as [`BYTE_ORDER_MAGIC`].
fn byte_order(magic: &[u8]) -> Result<ByteOrder, Fault> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.u32(magic, 0) == BYTE_ORDER_MAGIC)
        .ok_or_else(|| {
            Fault::new(format!("a section header has the byte-order magic {magic:02x?}, which is none"))
        })
}

#[inline]
fn need(block: &[u8], len: usize, what: &str) -> Result<(), Fault> {
    if block.len() < len {
        return Err(Fault::new(format!("a {what} block is too short for its fixed part of {len} bytes")));
    }
    Ok(())
}

/// The resolution that an `if_tsresol` byte gives.
fn resolution(byte: u8) -> Resolution {
    match byte & 0x80 {
        0 => Resolution::Decimal(byte),
        _ => Resolution::Binary(byte & 0x7f),
    }
}
