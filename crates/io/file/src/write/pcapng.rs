//! Encoding the pcapng format. The layout is in `read/pcapng/mod.rs`; numbers are in this machine's byte order.
//!
//! ```text
//! section header, interface description*, (packet | interface description | statistics)*, statistics*
//! ```
//!
//! Times are nanoseconds, whatever the input's unit was. An interface is described before its first packet; more may be
//! described while packets are written.

use tapline_packet::{Direction, Interface, LinkType, Meta, Packet, PacketType, Timestamp};

use super::frame::Frame;
use crate::byte_order::ByteOrder;
use crate::read::pcapng::option::{self, Options};
use crate::read::pcapng::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, SECTION_HEADER,
    SIMPLE_PACKET,
};
use crate::section::{self, InterfaceStatistics, Section};

/// Fixed part of an enhanced packet block, with its block header.
const PACKET_HEADER_LEN: usize = 28;

/// The resolution that we write: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// The comment of a packet whose block must have a time where the packet has none.
const UNTIMED: &str = "the time of this packet is unknown";

/// A section of unknown length.
const LENGTH_UNKNOWN: u64 = u64::MAX;

/// Appends a section header.
pub(crate) fn section_header(buffer: &mut Vec<u8>, section: &Section) {
    let block = Block::begin(buffer, SECTION_HEADER);
    buffer.extend_from_slice(&BYTE_ORDER_MAGIC.to_ne_bytes());
    buffer.extend_from_slice(&1u16.to_ne_bytes());
    buffer.extend_from_slice(&0u16.to_ne_bytes());
    buffer.extend_from_slice(&LENGTH_UNKNOWN.to_ne_bytes());
    let mut options = OptionList::begin(buffer);
    options.text(option::SECTION_HARDWARE, &section.hardware);
    options.text(option::SECTION_OS, &section.os);
    options.text(option::SECTION_APPLICATION, &section.application);
    for comment in &section.comments {
        options.text(option::COMMENT, comment);
    }
    for (code, value) in &section.options {
        options.value(*code, value);
    }
    options.end();
    block.end(buffer);
}

/// Appends an interface description; `snap_len` is the snap length if the interface has none.
pub(crate) fn interface_description(buffer: &mut Vec<u8>, interface: &Interface, snap_len: u32) {
    let block = Block::begin(buffer, INTERFACE_DESCRIPTION);
    let snap_len = limit(interface, snap_len);
    buffer.extend_from_slice(&interface.link_type.0.to_ne_bytes());
    buffer.extend_from_slice(&0u16.to_ne_bytes());
    buffer.extend_from_slice(&snap_len.to_ne_bytes());
    let mut options = OptionList::begin(buffer);
    options.text(option::IF_NAME, &interface.name);
    options.text(option::IF_DESCRIPTION, &interface.description);
    if let Some(speed) = interface.speed {
        options.value(option::IF_SPEED, &speed.to_ne_bytes());
    }
    options.value(option::IF_TSRESOL, &[NANOSECONDS]);
    if !interface.filter.is_empty() {
        options.value(option::IF_FILTER, &[&[0], interface.filter.as_bytes()].concat());
    }
    if let Some(len) = interface.fcs_len {
        options.value(option::IF_FCS_LEN, &[len]);
    }
    for (code, value) in &interface.options {
        options.value(*code, value);
    }
    options.end();
    block.end(buffer);
}

/// The most bytes of an interface's packet, 0 for no limit. `snap_len` counts where the interface gives none.
pub(crate) fn limit(interface: &Interface, snap_len: u32) -> u32 {
    if interface.snap_len == 0 { snap_len } else { interface.snap_len }
}

/// Appends an enhanced packet block of `limit` bytes of the packet at most, 0 for no limit. `options` are those the
/// packet had, in this machine's byte order.
#[inline]
pub(crate) fn packet(
    buffer: &mut Vec<u8>,
    packet: &Packet<'_>,
    link_type: LinkType,
    limit: u32,
    options: &[u8],
) {
    if is_simple(packet, limit, options) {
        return simple_packet(buffer, packet);
    }
    // A frame of three parts goes to the stack in words and is read in wider ones, before they are there: by perf a
    // tenth of the time in which packets of 60 bytes are recorded.
    if packet.meta.vlan.is_none() {
        let cap_len = if limit == 0 { packet.data.len() } else { packet.data.len().min(limit as usize) };
        let write = |buffer: &mut Vec<u8>| buffer.extend_from_slice(&packet.data[..cap_len]);
        return packet_block(buffer, packet, (cap_len, packet.meta.wire_len), options, write);
    }
    let frame = Frame::new(packet, link_type, limit);
    let write = |buffer: &mut Vec<u8>| frame.write(buffer);
    packet_block(buffer, packet, (frame.len(), frame.wire_len), options, write);
}

/// Whether a packet without a time can be a simple packet block, which has none either: of interface 0, without
/// metadata, and with as many bytes as the block's reader will take to be captured (draft, section 4.4).
#[inline]
fn is_simple(packet: &Packet<'_>, limit: u32, options: &[u8]) -> bool {
    let Meta { is_untimed, interface, wire_len, vlan, direction, drops_before, .. } = *packet.meta;
    let expected = if limit == 0 { wire_len } else { wire_len.min(limit) };
    is_untimed
        && interface.0 == 0
        && vlan.is_none()
        && direction == Direction::Unknown
        && drops_before == 0
        && options.is_empty()
        && packet.data.len() == expected as usize
}

/// Appends a simple packet block.
fn simple_packet(buffer: &mut Vec<u8>, packet: &Packet<'_>) {
    let block = Block::begin(buffer, SIMPLE_PACKET);
    buffer.extend_from_slice(&packet.meta.wire_len.to_ne_bytes());
    buffer.extend_from_slice(packet.data);
    buffer.extend_from_slice(&[0; 3][..packet.data.len().wrapping_neg() % 4]);
    block.end(buffer);
}

/// Appends the block of a packet with these lengths, captured and on the wire; `write` appends the captured bytes.
#[inline(always)]
fn packet_block(
    buffer: &mut Vec<u8>,
    packet: &Packet<'_>,
    (cap_len, wire_len): (usize, u32),
    options: &[u8],
    write: impl FnOnce(&mut Vec<u8>),
) {
    let padding = cap_len.wrapping_neg() % 4;
    let nanos = packet.meta.timestamp.as_nanos().max(0) as u64;
    let mut header = [0; PACKET_HEADER_LEN];
    let numbers = [
        ENHANCED_PACKET,
        (PACKET_HEADER_LEN + cap_len + padding + 4) as u32,
        packet.meta.interface.0,
        (nanos >> 32) as u32,
        nanos as u32,
        cap_len as u32,
        wire_len,
    ];
    for (field, number) in header.chunks_exact_mut(4).zip(numbers) {
        field.copy_from_slice(&number.to_ne_bytes());
    }
    let block = Block { start: buffer.len() };
    buffer.extend_from_slice(&header);
    write(buffer);
    buffer.extend_from_slice(&[0; 3][..padding]);
    let Meta { direction, drops_before, is_untimed, .. } = *packet.meta;
    if options.is_empty() && direction == Direction::Unknown && drops_before == 0 && !is_untimed {
        buffer.extend_from_slice(&numbers[1].to_ne_bytes());
    } else {
        packet_options(buffer, packet.meta, options);
        block.end(buffer);
    }
}

/// The packet's metadata as options, and the options that it had. The packet's own flags and drop count are the source
/// of its metadata, and contain more; they stay as they were.
fn packet_options(buffer: &mut Vec<u8>, meta: &Meta, kept: &[u8]) {
    let kept = Options::new(ByteOrder::NATIVE, kept);
    let has = |wanted: u16| kept.clone().any(|(code, _)| code == wanted);
    let (has_flags, has_drop_count) = (has(option::EPB_FLAGS), has(option::EPB_DROP_COUNT));
    let mut options = OptionList::begin(buffer);
    for (code, value) in kept {
        options.value(code, value);
    }
    if !has_flags && meta.direction != Direction::Unknown {
        options.value(option::EPB_FLAGS, &flags(meta).to_ne_bytes());
    }
    if !has_drop_count && meta.drops_before > 0 {
        options.value(option::EPB_DROP_COUNT, &meta.drops_before.to_ne_bytes());
    }
    if meta.is_untimed {
        options.text(option::COMMENT, UNTIMED);
    }
    options.end();
}

/// `epb_flags`: bits 0-1 direction, bits 2-4 how the packet was addressed.
fn flags(meta: &Meta) -> u32 {
    let direction = match meta.direction {
        Direction::Unknown => 0,
        Direction::In => 1,
        Direction::Out => 2,
    };
    let addressed = match meta.packet_type {
        PacketType::Host => 1,
        PacketType::Multicast => 2,
        PacketType::Broadcast => 3,
        PacketType::OtherHost => 4,
        PacketType::Outgoing => 0,
    };
    direction | addressed << 2
}

/// Appends an interface statistics block.
pub(crate) fn interface_statistics(buffer: &mut Vec<u8>, statistics: &InterfaceStatistics) {
    let block = Block::begin(buffer, INTERFACE_STATISTICS);
    buffer.extend_from_slice(&statistics.interface.0.to_ne_bytes());
    buffer.extend_from_slice(&time(statistics.taken));
    let mut options = OptionList::begin(buffer);
    let times = [(section::START_TIME, statistics.start), (section::END_TIME, statistics.end)];
    for (code, at) in times {
        if let Some(at) = at {
            options.value(code, &time(at));
        }
    }
    let counts = [
        (section::RECEIVED, statistics.received),
        (section::DROPPED, statistics.dropped),
        (section::FILTER_ACCEPTED, statistics.filter_accepted),
        (section::OS_DROPPED, statistics.os_dropped),
        (section::DELIVERED, statistics.delivered),
    ];
    for (code, count) in counts {
        if let Some(count) = count {
            options.value(code, &count.to_ne_bytes());
        }
    }
    options.end();
    block.end(buffer);
}

/// The length of the block at the start of `records`, which this module wrote, and whether it is a packet.
pub(crate) fn block_len(records: &[u8]) -> Option<(usize, bool)> {
    let kind = u32::from_ne_bytes(*records.first_chunk()?);
    let len = u32::from_ne_bytes(*records.get(4..)?.first_chunk()?);
    Some((len as usize, matches!(kind, ENHANCED_PACKET | SIMPLE_PACKET)))
}

/// The upper half, then the lower one.
fn time(at: Timestamp) -> [u8; 8] {
    let nanos = at.as_nanos().max(0) as u64;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&((nanos >> 32) as u32).to_ne_bytes());
    bytes[4..].copy_from_slice(&(nanos as u32).to_ne_bytes());
    bytes
}

/// A block that is being written.
struct Block {
    start: usize,
}

impl Block {
    fn begin(buffer: &mut Vec<u8>, kind: u32) -> Block {
        let start = buffer.len();
        buffer.extend_from_slice(&kind.to_ne_bytes());
        buffer.extend_from_slice(&[0; 4]);
        Block { start }
    }

    /// Writes the length behind and in front.
    fn end(self, buffer: &mut Vec<u8>) {
        let len = (buffer.len() + 4 - self.start) as u32;
        buffer.extend_from_slice(&len.to_ne_bytes());
        buffer[self.start + 4..self.start + 8].copy_from_slice(&len.to_ne_bytes());
    }
}

/// A list of options that is being written. An empty list is nothing at all.
struct OptionList<'a> {
    buffer: &'a mut Vec<u8>,
    is_empty: bool,
}

impl OptionList<'_> {
    fn begin(buffer: &mut Vec<u8>) -> OptionList<'_> {
        OptionList { buffer, is_empty: true }
    }

    /// Text, unless it is empty; cut where the format's 16 bits of length end.
    fn text(&mut self, code: u16, text: &str) {
        let end = (0..=text.len().min(u16::MAX.into())).rev().find(|&end| text.is_char_boundary(end));
        let text = &text[..end.unwrap_or(0)];
        if !text.is_empty() {
            self.value(code, text.as_bytes());
        }
    }

    /// Any value; one that is too long for the format is left out.
    fn value(&mut self, code: u16, value: &[u8]) {
        let Ok(len) = u16::try_from(value.len()) else { return };
        self.buffer.extend_from_slice(&code.to_ne_bytes());
        self.buffer.extend_from_slice(&len.to_ne_bytes());
        self.buffer.extend_from_slice(value);
        self.buffer.extend_from_slice(&[0; 3][..value.len().wrapping_neg() % 4]);
        self.is_empty = false;
    }

    fn end(self) {
        if !self.is_empty {
            self.buffer.extend_from_slice(&[0; 4]);
        }
    }
}
