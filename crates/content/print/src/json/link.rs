//! Link layers: Ethernet with its tags, LLC and SNAP, cooked captures, loopback, raw IP; ARP.

use tapline_packet::numbers::ethertype::{self, is_shown_as_vlan};
use tapline_packet::{LinkType, VlanTag};

use super::walk::Walk;
use super::write::Writer;
use super::{control, network, serial, wireless};
use crate::bytes::{Cut, Printed, Span};

/// Maximum number of decoded tags in a row; the rest is payload.
const TAGS_MAX: usize = 8;

/// A packet from its first byte on. `stripped` is the tag that is no longer among its bytes.
pub(super) fn packet(walk: &mut Walk, span: Span<'_>, link_type: LinkType, stripped: Option<VlanTag>) {
    // A cut is noted by the layer in which it happens; there is nothing more to do about it here.
    let _: Printed = match link_type {
        LinkType::ETHERNET => ethernet(walk, span, stripped),
        LinkType::RAW | LinkType(12 | 14) => network::raw(walk, span),
        LinkType(228) => network::ipv4(walk, span),
        LinkType(229) => network::ipv6(walk, span),
        LinkType::NULL | LinkType(108) => loopback(walk, span),
        LinkType(105) => wireless::frame(walk, span),
        LinkType(127) => wireless::radiotap(walk, span),
        LinkType(239) => nflog(walk, span),
        LinkType(9 | 50) => ppp(walk, span),
        LinkType::LINUX_SLL => cooked(walk, span),
        LinkType::LINUX_SLL2 => cooked2(walk, span),
        LinkType::PPP_PPPD => ppp(walk, span),
        _ => serial::packet(walk, span, link_type),
    };
}

/// Ethernet, type or length form.
pub(super) fn ethernet(walk: &mut Walk, span: Span<'_>, stripped: Option<VlanTag>) -> Printed {
    let kind = walk.layer("eth", |json| {
        json.mac_field("dst", span.bytes(0, 6)?);
        json.mac_field("src", span.bytes(6, 6)?);
        let kind = span.u16(12)?;
        match kind {
            ethertype::MIN.. => json.hex_field("type", kind, 4),
            _ => json.number_field("length", kind),
        }
        Ok(kind)
    })?;
    tagged(walk, kind, span.skip(14), stripped)
}

/// Walks the header by the number in the place of an EtherType: an EtherType, or the length of an LLC frame.
fn by_kind(walk: &mut Walk, kind: u16, span: Span<'_>) -> Printed {
    match kind {
        ethertype::MIN.. => network::by_ethertype(walk, kind, span),
        length => llc(walk, span.limit(usize::from(length).min(span.length))),
    }
}

/// Writes the payload behind the addresses, after a switch's tag.
pub(super) fn behind_addresses(walk: &mut Walk, kind: u16, span: Span<'_>) -> Printed {
    tagged(walk, kind, span, None)
}

/// Writes a payload that may begin with VLAN tags: a stripped one, then those among the bytes, outermost first.
fn tagged(walk: &mut Walk, kind: u16, span: Span<'_>, stripped: Option<VlanTag>) -> Printed {
    if stripped.is_none() && !is_shown_as_vlan(kind) {
        return by_kind(walk, kind, span);
    }
    let (kind, span) = walk.layers("vlan", |json| tags(json, kind, span, stripped))?;
    if is_shown_as_vlan(kind) {
        walk.json.boolean_field("vlan_truncated", true);
        walk.payload(span);
        return Ok(());
    }
    by_kind(walk, kind, span)
}

/// The tags. Returns the rest.
fn tags<'p>(
    json: &mut Writer,
    mut kind: u16,
    mut span: Span<'p>,
    stripped: Option<VlanTag>,
) -> Result<(u16, Span<'p>), Cut> {
    if let Some(VlanTag { tpid, tci }) = stripped {
        tag(json, tpid, tci);
    }
    for _ in 0..TAGS_MAX {
        if !is_shown_as_vlan(kind) {
            break;
        }
        tag(json, kind, span.u16(0)?);
        kind = span.u16(2)?;
        span = span.skip(4);
    }
    Ok((kind, span))
}

fn tag(json: &mut Writer, tpid: u16, tci: u16) {
    json.object(|json| {
        json.hex_field("tpid", tpid, 4);
        json.number_field("id", tci & 0x0fff);
        json.number_field("priority", tci >> 13);
        json.boolean_field("drop_eligible", tci & 0x1000 != 0);
    });
}

/// IEEE 802.2, with SNAP and the spanning tree.
pub(super) fn llc(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (dsap, ssap, control) = walk.layer("llc", |json| {
        let (dsap, ssap, control) = (span.u8(0)?, span.u8(1)?, span.u8(2)?);
        json.hex_field("dsap", dsap, 2);
        json.hex_field("ssap", ssap, 2);
        // Unnumbered frames have one byte of control, the others two (IEEE 802.2, 5.2).
        match control & 3 {
            3 => json.hex_field("control", control, 2),
            _ => json.hex_field("control", span.u16_le(2)?, 4),
        }
        Ok((dsap, ssap, control))
    })?;
    let rest = span.skip(if control & 3 == 3 { 3 } else { 4 });
    match (dsap, ssap & 0xfe, control) {
        (0xaa, 0xaa, 3) => snap(walk, rest),
        (0x42, 0x42, 3) => spanning_tree(walk, rest),
        (0x06, 0x06, 3) => network::ipv4(walk, rest),
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// Walks SNAP (IEEE 802), and the protocol that it names.
pub(super) fn snap(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (oui, protocol) = walk.layer("snap", |json| {
        let (oui, protocol) = (span.u24(0)?, span.u16(3)?);
        json.hex_field("oui", oui, 6);
        json.hex_field("protocol", protocol, 4);
        Ok((oui, protocol))
    })?;
    let rest = span.skip(5);
    match (oui, protocol) {
        // Encapsulated Ethernet (RFC 1042), and Cisco's bridges.
        (0x00_0000 | 0x00_00f8, _) => network::by_ethertype(walk, protocol, rest),
        (0x00_000c, 0x0111) => control::udld(walk, rest),
        // Per-VLAN spanning tree.
        (0x00_000c, 0x010b) => spanning_tree(walk, rest),
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// Bridge protocol data units (IEEE 802.1D, 9.3; 802.1Q, 14).
fn spanning_tree(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("stp", |json| {
        json.number_field("version", span.u8(2)?);
        let kind = span.u8(3)?;
        json.hex_field("type", kind, 2);
        if kind == 0x80 {
            return Ok(());
        }
        json.hex_field("flags", span.u8(4)?, 2);
        json.object_field("root", |json| bridge(json, span.skip(5)))?;
        json.number_field("root_path_cost", span.u32(13)?);
        json.object_field("bridge", |json| bridge(json, span.skip(17)))?;
        json.hex_field("port", span.u16(25)?, 4);
        for (name, at) in [("message_age", 27), ("max_age", 29), ("hello_time", 31), ("forward_delay", 33)] {
            let value = f64::from(span.u16(at)?) / 256.0;
            json.fraction_field(name, value);
        }
        Ok(())
    })
}

fn bridge(json: &mut Writer, span: Span<'_>) -> Printed {
    json.number_field("priority", span.u16(0)?);
    json.mac_field("mac", span.bytes(2, 6)?);
    Ok(())
}

/// Maximum number of skipped attributes of an NFLOG packet.
const ATTRIBUTES_MAX: usize = 64;

/// Linux's NFLOG: family 1, version 1, resource 2, (length 2 with this header, type 2, value, padding to 4)*. The
/// payload is of type 9; lengths and types are in the byte order of the host, which is little-endian nearly everywhere.
fn nflog(walk: &mut Walk, span: Span<'_>) -> Printed {
    let family = walk.layer("nflog", |json| {
        let family = span.u8(0)?;
        json.number_field("family", family);
        json.number_field("resource", span.u16(2)?);
        Ok(family)
    })?;
    let mut rest = span.skip(4);
    for _ in 0..ATTRIBUTES_MAX {
        let (Ok(length), Ok(kind)) = (rest.u16_le(0), rest.u16_le(2)) else { return Ok(()) };
        let length = usize::from(length);
        if length < 4 {
            walk.malformed("nflog");
            return Ok(());
        }
        if kind & 0x7fff == 9 {
            let payload = rest.skip(4).limit((length - 4).min(rest.length.saturating_sub(4)));
            return match family {
                2 => network::ipv4(walk, payload),
                10 => network::ipv6(walk, payload),
                _ => {
                    walk.payload(payload);
                    Ok(())
                }
            };
        }
        rest = rest.skip(length.next_multiple_of(4));
    }
    if rest.length >= 4 {
        walk.json.boolean_field("nflog_truncated", true);
    }
    Ok(())
}

/// PPP (RFC 1661), with the address and control bytes of HDLC (RFC 1662) or without.
pub(super) fn ppp(walk: &mut Walk, span: Span<'_>) -> Printed {
    let header_len = if span.data.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
    let (protocol, protocol_len) = walk.layer("ppp", |json| {
        let first = span.u8(header_len)?;
        // An odd first byte is a protocol number of one byte.
        let compressed = first & 1 != 0;
        let protocol = if compressed { u16::from(first) } else { span.u16(header_len)? };
        json.hex_field("protocol", protocol, 4);
        Ok((protocol, if compressed { 1 } else { 2 }))
    })?;
    ppp_payload(walk, protocol, span.skip(header_len + protocol_len))
}

/// The packet behind a protocol number of PPP.
pub(super) fn ppp_payload(walk: &mut Walk, protocol: u16, rest: Span<'_>) -> Printed {
    match protocol {
        0x0021 => network::ipv4(walk, rest),
        0x0057 => network::ipv6(walk, rest),
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// Linux cooked capture, version 1: addresses of up to 8 bytes.
fn cooked(walk: &mut Walk, span: Span<'_>) -> Printed {
    let protocol = walk.layer("sll", |json| {
        json.number_field("packet_type", span.u16(0)?);
        json.number_field("hardware_type", span.u16(2)?);
        let len = usize::from(span.u16(4)?).min(8);
        json.mac_field("src", span.bytes(6, len)?);
        let protocol = span.u16(14)?;
        json.hex_field("protocol", protocol, 4);
        Ok(protocol)
    })?;
    after_cooked(walk, protocol, span.skip(16))
}

/// Linux cooked capture, version 2.
fn cooked2(walk: &mut Walk, span: Span<'_>) -> Printed {
    let protocol = walk.layer("sll2", |json| {
        let protocol = span.u16(0)?;
        json.hex_field("protocol", protocol, 4);
        json.number_field("interface_index", span.u32(4)?);
        json.number_field("hardware_type", span.u16(8)?);
        json.number_field("packet_type", span.u8(10)?);
        let len = usize::from(span.u8(11)?).min(8);
        json.mac_field("src", span.bytes(12, len)?);
        Ok(protocol)
    })?;
    after_cooked(walk, protocol, span.skip(20))
}

fn after_cooked(walk: &mut Walk, protocol: u16, span: Span<'_>) -> Printed {
    match protocol {
        // `LINUX_SLL_P_802_2`: an LLC frame; 1 is raw IPX, which we do not decode.
        4 => llc(walk, span),
        ethertype::MIN.. => tagged(walk, protocol, span, None),
        _ => {
            walk.payload(span);
            Ok(())
        }
    }
}

/// BSD loopback. The address family is in the writer's byte order: its high half is zero.
fn loopback(walk: &mut Walk, span: Span<'_>) -> Printed {
    let family = walk.layer("loopback", |json| {
        let value = span.u32(0)?;
        let family = if value > 0xffff { value.swap_bytes() } else { value };
        json.number_field("family", family);
        Ok(family)
    })?;
    let rest = span.skip(4);
    match family {
        2 => network::ipv4(walk, rest),
        // AF_INET6 of Linux, NetBSD, FreeBSD and macOS.
        10 | 24 | 28 | 30 => network::ipv6(walk, rest),
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// ARP and RARP (RFC 826), for any length of addresses.
pub(super) fn arp(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("arp", |json| {
        json.number_field("hardware_type", span.u16(0)?);
        json.hex_field("protocol_type", span.u16(2)?, 4);
        let (hardware, protocol) = (usize::from(span.u8(4)?), usize::from(span.u8(5)?));
        let operation = span.u16(6)?;
        json.number_field("operation", operation);
        if let Some(name) = arp_operation(operation) {
            json.text_field("operation_name", name.as_bytes());
        }
        let target = 8 + hardware + protocol;
        json.mac_field("sender_mac", span.bytes(8, hardware)?);
        json.address_field("sender_ip", span.bytes(8 + hardware, protocol)?);
        json.mac_field("target_mac", span.bytes(target, hardware)?);
        json.address_field("target_ip", span.bytes(target + hardware, protocol)?);
        Ok(())
    })
}

fn arp_operation(operation: u16) -> Option<&'static str> {
    Some(match operation {
        1 => "request",
        2 => "reply",
        3 => "reverse_request",
        4 => "reverse_reply",
        8 => "inverse_request",
        9 => "inverse_reply",
        _ => return None,
    })
}
