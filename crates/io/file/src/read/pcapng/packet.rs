//! Packets of blocks of three types.

use tapline_packet::{Direction, Meta, PacketType, Record, Timestamp};

use super::option::{self, Options, to_native};
use super::{Parser, SectionInterface, need};
use crate::byte_order::ByteOrder;
use crate::read::Fault;

/// Bytes of the fixed parts, with the block header.
const ENHANCED_HEADER_LEN: usize = 28;
const SIMPLE_HEADER_LEN: usize = 12;

/// The drop count of an obsolete packet block that says "unknown".
const DROPS_UNKNOWN: u16 = 0xffff;

impl Parser {
    #[inline(always)]
    pub(super) fn enhanced(&self, bytes: &mut [u8], start: usize) -> Result<Record, Fault> {
        let block = &bytes[start..];
        need(block, ENHANCED_HEADER_LEN, "enhanced packet")?;
        let interface = self.known(self.order.u32(block, 8))?;
        let timestamp = interface.clock.timestamp(self.order.u32(block, 12), self.order.u32(block, 16));
        let (cap_len, wire_len) = (self.order.u32(block, 20), self.order.u32(block, 24));
        let meta = Meta { timestamp, wire_len, interface: interface.id, ..Meta::default() };
        self.packet(bytes, start + ENHANCED_HEADER_LEN, cap_len, interface, meta)
    }

    pub(super) fn obsolete(&self, bytes: &mut [u8], start: usize) -> Result<Record, Fault> {
        let block = &bytes[start..];
        need(block, ENHANCED_HEADER_LEN, "packet block")?;
        let interface = self.known(u32::from(self.order.u16(block, 8)))?;
        let drops = self.order.u16(block, 10);
        let timestamp = interface.clock.timestamp(self.order.u32(block, 12), self.order.u32(block, 16));
        let (cap_len, wire_len) = (self.order.u32(block, 20), self.order.u32(block, 24));
        let drops_before = if drops == DROPS_UNKNOWN { 0 } else { u64::from(drops) };
        let meta = Meta { timestamp, wire_len, interface: interface.id, drops_before, ..Meta::default() };
        self.packet(bytes, start + ENHANCED_HEADER_LEN, cap_len, interface, meta)
    }

    pub(super) fn simple(&self, bytes: &mut [u8], start: usize) -> Result<Record, Fault> {
        let block = &bytes[start..];
        need(block, SIMPLE_HEADER_LEN, "simple packet")?;
        let interface = self.known(0)?;
        let wire_len = self.order.u32(block, 8);
        let there = (block.len() - SIMPLE_HEADER_LEN) as u32;
        let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        // The block does not say what was captured: the least of what can be (draft, section 4.4).
        let cap_len = wire_len.min(snap_len).min(there);
        check_cap_len(cap_len, interface)?;
        let offset = start + SIMPLE_HEADER_LEN;
        swap_pseudo_header(bytes, offset, cap_len, interface);
        let meta = Meta {
            timestamp: Timestamp::EPOCH,
            is_untimed: true,
            wire_len,
            interface: interface.id,
            ..Meta::default()
        };
        Ok(Record { offset, cap_len, options_len: 0, meta })
    }

    /// Parses data and options, from `offset` to the end of `bytes`.
    #[inline(always)]
    fn packet(
        &self,
        bytes: &mut [u8],
        offset: usize,
        cap_len: u32,
        interface: &SectionInterface,
        mut meta: Meta,
    ) -> Result<Record, Fault> {
        check_cap_len(cap_len, interface)?;
        let there = bytes.len() - offset;
        if cap_len as usize > there {
            return Err(Fault::new(format!(
                "a packet of {cap_len} bytes does not fit its block, which has room for {there}"
            )));
        }
        swap_pseudo_header(bytes, offset, cap_len, interface);
        let padded = (cap_len as usize).next_multiple_of(4).min(there);
        let options = &mut bytes[offset + padded..];
        let options_len = options.len() as u32;
        if options_len > 0 {
            to_native(self.order, options);
            read_packet_options(options, &mut meta);
        }
        Ok(Record { offset, cap_len, options_len, meta })
    }
}

#[inline]
fn check_cap_len(cap_len: u32, interface: &SectionInterface) -> Result<(), Fault> {
    let max = interface.link_type.snap_len_max();
    if cap_len > max {
        let link_type = interface.link_type;
        let reason =
            format!("a packet has {cap_len} captured bytes; link type {link_type} has at most {max}");
        return Err(Fault { cap_len: Some(cap_len), ..Fault::new(reason) });
    }
    Ok(())
}

#[inline]
fn swap_pseudo_header(bytes: &mut [u8], offset: usize, cap_len: u32, interface: &SectionInterface) {
    if let Some(pseudo_header) = interface.pseudo_header {
        pseudo_header.swap(&mut bytes[offset..offset + cap_len as usize]);
    }
}

/// `epb_flags` and `epb_dropcount`, the options of a packet that everyone needs.
fn read_packet_options(options: &[u8], meta: &mut Meta) {
    for (code, value) in Options::new(ByteOrder::NATIVE, options) {
        match (code, value.len()) {
            (option::EPB_FLAGS, 4) => read_flags(ByteOrder::NATIVE.u32(value, 0), meta),
            (option::EPB_DROP_COUNT, 8) => meta.drops_before = ByteOrder::NATIVE.u64(value, 0),
            _ => {}
        }
    }
}

/// Bits 0-1: direction; bits 2-4: how the packet was addressed.
fn read_flags(flags: u32, meta: &mut Meta) {
    meta.direction = match flags & 3 {
        1 => Direction::In,
        2 => Direction::Out,
        _ => Direction::Unknown,
    };
    meta.packet_type = match (flags >> 2) & 7 {
        2 => PacketType::Multicast,
        3 => PacketType::Broadcast,
        4 => PacketType::OtherHost,
        _ if meta.direction == Direction::Out => PacketType::Outgoing,
        _ => PacketType::Host,
    };
}
