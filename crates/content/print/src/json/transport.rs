//! TCP, UDP, SCTP; ICMP, ICMPv6, IGMP.

use super::walk::Walk;
use super::write::Writer;
use super::{application, network};
use crate::app::sctp::CHUNKS;
use crate::bytes::{Cut, Printed, Span};
use crate::context::lookup;

const TCP_FLAGS: [(u16, &[u8]); 9] = [
    (0x01, b"fin"),
    (0x02, b"syn"),
    (0x04, b"rst"),
    (0x08, b"psh"),
    (0x10, b"ack"),
    (0x20, b"urg"),
    (0x40, b"ece"),
    (0x80, b"cwr"),
    (0x100, b"ae"),
];

/// TCP (RFC 9293) and the payload of its segment.
pub(super) fn tcp(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (ports, header_len) = walk.layer("tcp", |json| tcp_fields(json, span))?;
    if header_len < 20 || header_len > span.length {
        walk.malformed("tcp");
        return Ok(());
    }
    let payload = span.skip(header_len);
    walk.payload(payload);
    if payload.length > 0 {
        application::tcp(walk, payload, ports)?;
    }
    Ok(())
}

fn tcp_fields(json: &mut Writer, span: Span<'_>) -> Result<((u16, u16), usize), Cut> {
    let ports = (span.u16(0)?, span.u16(2)?);
    json.number_field("src_port", ports.0);
    json.number_field("dst_port", ports.1);
    json.number_field("seq", span.u32(4)?);
    json.number_field("ack", span.u32(8)?);
    let word = span.u16(12)?;
    let header_len = usize::from(word >> 12) * 4;
    json.number_field("header_length", header_len as u64);
    json.array_field("flags", |json| {
        for (bit, name) in TCP_FLAGS {
            if word & bit != 0 {
                json.text(name);
            }
        }
    });
    json.number_field("window", span.u16(14)?);
    json.hex_field("checksum", span.u16(16)?, 4);
    json.number_field("urgent", span.u16(18)?);
    if header_len > 20 {
        json.array_field("options", |json| tcp_options(json, span.skip(20).limit(header_len - 20)))?;
    }
    Ok((ports, header_len))
}

/// The options up to the end of the list, or to one whose length makes no sense.
fn tcp_options(json: &mut Writer, mut span: Span<'_>) -> Printed {
    while span.length > 0 {
        let kind = span.u8(0)?;
        let length = if kind <= 1 { 1 } else { usize::from(span.u8(1)?) };
        if length == 0 || length > span.length || (kind > 1 && length < 2) {
            break;
        }
        let value = span.bytes(0, length)?;
        json.object(|json| tcp_option(json, kind, Span::whole(value).skip(2)))?;
        if kind == 0 {
            break;
        }
        span = span.skip(length);
    }
    Ok(())
}

fn tcp_option(json: &mut Writer, kind: u8, value: Span<'_>) -> Printed {
    json.number_field("kind", kind);
    match (kind, value.length) {
        (0, _) => json.text_field("name", b"end"),
        (1, _) => json.text_field("name", b"nop"),
        (2, 2) => {
            json.text_field("name", b"mss");
            json.number_field("value", value.u16(0)?);
        }
        (3, 1) => {
            json.text_field("name", b"window_scale");
            json.number_field("value", value.u8(0)?);
        }
        (4, 0) => json.text_field("name", b"sack_permitted"),
        (5, _) => {
            json.text_field("name", b"sack");
            json.array_field("blocks", |json| sack_blocks(json, value))?;
        }
        (8, 8) => {
            json.text_field("name", b"timestamp");
            json.number_field("value", value.u32(0)?);
            json.number_field("echo", value.u32(4)?);
        }
        _ => {
            json.bytes_field("data", value.data);
        }
    }
    Ok(())
}

/// Left and right edges.
fn sack_blocks(json: &mut Writer, mut value: Span<'_>) -> Printed {
    while value.length >= 8 {
        let (left, right) = (value.u32(0)?, value.u32(4)?);
        json.array(|json| {
            json.number(left);
            json.number(right);
        });
        value = value.skip(8);
    }
    Ok(())
}

/// UDP (RFC 768) and the payload of its datagram.
pub(super) fn udp(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (ports, length) = walk.layer("udp", |json| {
        let ports = (span.u16(0)?, span.u16(2)?);
        json.number_field("src_port", ports.0);
        json.number_field("dst_port", ports.1);
        let length = span.u16(4)?;
        json.number_field("length", length);
        json.hex_field("checksum", span.u16(6)?, 4);
        Ok((ports, usize::from(length)))
    })?;
    // 0 is a jumbogram (RFC 2675).
    let length = if length == 0 { span.length } else { length.min(span.length) };
    if length < 8 {
        walk.malformed("udp");
        return Ok(());
    }
    let payload = span.limit(length).skip(8);
    walk.payload(payload);
    if payload.length > 0 {
        application::udp(walk, payload, ports)?;
    }
    Ok(())
}

/// Maximum number of listed chunks of an SCTP packet.
const CHUNKS_MAX: usize = 256;

/// SCTP (RFC 9260).
pub(super) fn sctp(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("sctp", |json| {
        json.number_field("src_port", span.u16(0)?);
        json.number_field("dst_port", span.u16(2)?);
        json.hex_field("verification_tag", span.u32(4)?, 8);
        json.hex_field("checksum", span.u32(8)?, 8);
        if json.array_field("chunks", |json| sctp_chunks(json, span.skip(12)))? {
            json.boolean_field("chunks_truncated", true);
        }
        Ok(())
    })
}

/// Whether there are more chunks than are listed.
fn sctp_chunks(json: &mut Writer, mut span: Span<'_>) -> Result<bool, Cut> {
    for _ in 0..CHUNKS_MAX {
        if span.length < 4 {
            return Ok(false);
        }
        let length = json.object(|json| sctp_chunk(json, span))?;
        if length < 4 {
            return Ok(false);
        }
        span = span.skip(length.next_multiple_of(4));
    }
    Ok(span.length >= 4)
}

/// One chunk; its length.
fn sctp_chunk(json: &mut Writer, span: Span<'_>) -> Result<usize, Cut> {
    let (kind, length) = (span.u8(0)?, span.u16(2)?);
    json.number_field("type", kind);
    if let Some(name) = lookup(CHUNKS, kind) {
        json.text_field("name", name.as_bytes());
    }
    json.hex_field("flags", span.u8(1)?, 2);
    json.number_field("length", length);
    match kind {
        0 if length >= 16 => {
            json.number_field("tsn", span.u32(4)?);
            json.number_field("stream", span.u16(8)?);
            json.number_field("stream_seq", span.u16(10)?);
            json.number_field("payload_protocol", span.u32(12)?);
        }
        1 | 2 if length >= 20 => {
            json.hex_field("initiate_tag", span.u32(4)?, 8);
            json.number_field("window", span.u32(8)?);
            json.number_field("outbound_streams", span.u16(12)?);
            json.number_field("inbound_streams", span.u16(14)?);
            json.number_field("initial_tsn", span.u32(16)?);
        }
        3 if length >= 16 => {
            json.number_field("cumulative_tsn", span.u32(4)?);
            json.number_field("window", span.u32(8)?);
        }
        _ => {}
    }
    Ok(usize::from(length))
}

/// ICMP (RFC 792). The packet that an error message quotes is an object of its own.
pub(super) fn icmp(walk: &mut Walk, span: Span<'_>) -> Printed {
    let kind = walk.layer("icmp", |json| {
        let kind = icmp_head(json, span)?;
        match kind {
            0 | 8 | 13..=18 => {
                json.number_field("id", span.u16(4)?);
                json.number_field("seq", span.u16(6)?);
            }
            3 => json.number_field("mtu", span.u16(6)?),
            5 => json.address_field("gateway", span.bytes(4, 4)?),
            _ => {}
        }
        Ok(kind)
    })?;
    let rest = span.skip(8);
    match kind {
        3..=5 | 11 | 12 => walk.inner(rest, |walk| network::ipv4(walk, rest)),
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// Type, code, checksum; the type.
fn icmp_head(json: &mut Writer, span: Span<'_>) -> Result<u8, Cut> {
    let kind = span.u8(0)?;
    json.number_field("type", kind);
    json.number_field("code", span.u8(1)?);
    json.hex_field("checksum", span.u16(2)?, 4);
    Ok(kind)
}

/// ICMPv6 (RFC 4443) with neighbour discovery (RFC 4861).
pub(super) fn icmpv6(walk: &mut Walk, span: Span<'_>) -> Printed {
    let kind = walk.layer("icmpv6", |json| {
        let kind = icmp_head(json, span)?;
        match kind {
            128 | 129 => {
                json.number_field("id", span.u16(4)?);
                json.number_field("seq", span.u16(6)?);
            }
            2 => json.number_field("mtu", span.u32(4)?),
            130..=132 => json.address_field("group", span.bytes(8, 16)?),
            134 => {
                json.number_field("hop_limit", span.u8(4)?);
                json.number_field("router_lifetime", span.u16(6)?);
            }
            135..=137 => json.address_field("target", span.bytes(8, 16)?),
            _ => {}
        }
        Ok(kind)
    })?;
    let rest = span.skip(8);
    match kind {
        1..=4 => walk.inner(rest, |walk| network::ipv6(walk, rest)),
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// IGMP, versions 1 to 3 (RFC 1112, 2236, 3376).
pub(super) fn igmp(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("igmp", |json| {
        let kind = span.u8(0)?;
        json.hex_field("type", kind, 2);
        json.number_field("max_response", span.u8(1)?);
        json.hex_field("checksum", span.u16(2)?, 4);
        match kind {
            0x11 | 0x12 | 0x16 | 0x17 => json.address_field("group", span.bytes(4, 4)?),
            0x22 => json.number_field("records", span.u16(6)?),
            _ => {}
        }
        Ok(())
    })
}
