//! Payloads of EtherTypes: IPv4, IPv6 and its extension headers, MPLS, ARP; and payloads of IP protocol numbers.

use tapline_packet::numbers::ethertype;
use tapline_packet::numbers::ip_protocol::{self, FRAGMENT, MOBILITY, NONE, ROUTING};

use super::walk::Walk;
use super::write::Writer;
use super::{control, link, transport, tunnel};
use crate::bytes::{Cut, Printed, Span};

/// Maximum number of decoded labels of an MPLS stack.
const LABELS_MAX: usize = 16;

/// Maximum number of decoded extension headers of an IPv6 packet.
const EXTENSIONS_MAX: usize = 16;

pub(super) fn by_ethertype(walk: &mut Walk, ethertype: u16, span: Span<'_>) -> Printed {
    match ethertype {
        ethertype::IPV4 => ipv4(walk, span),
        ethertype::IPV6 => ipv6(walk, span),
        ethertype::ARP | ethertype::REVERSE_ARP => link::arp(walk, span),
        ethertype::MPLS | ethertype::MPLS_MULTICAST => mpls(walk, span),
        ethertype::PPPOE_SESSION => tunnel::pppoe(walk, span),
        ethertype::PTP => control::ptp(walk, span),
        ethertype::TRANSPARENT_BRIDGING => walk.inner(span, |walk| link::ethernet(walk, span, None)),
        _ => {
            walk.payload(span);
            Ok(())
        }
    }
}

/// IP of either version, by its first nibble.
pub(super) fn raw(walk: &mut Walk, span: Span<'_>) -> Printed {
    match span.u8(0).map(|byte| byte >> 4) {
        Ok(4) => ipv4(walk, span),
        Ok(6) => ipv6(walk, span),
        _ => {
            walk.payload(span);
            Ok(())
        }
    }
}

/// IPv4 (RFC 791).
pub(super) fn ipv4(walk: &mut Walk, span: Span<'_>) -> Printed {
    let next = walk.layer("ipv4", |json| ipv4_fields(json, span))?;
    let Some(Next { header_len, total_len, protocol, fragment }) = next else {
        walk.malformed("ipv4");
        return Ok(());
    };
    // A total length of 0 is what segmentation offload leaves: the frame's length holds.
    let total_len = if total_len == 0 { span.length } else { total_len.min(span.length) };
    let rest = span.limit(total_len).skip(header_len);
    if fragment {
        walk.payload(rest);
        return Ok(());
    }
    by_protocol(walk, protocol, rest)
}

/// Fields of an IPv4 header that its payload needs.
struct Next {
    header_len: usize,
    total_len: usize,
    protocol: u8,
    /// Not the first fragment, so that no header follows.
    fragment: bool,
}

/// The header; `None` if its lengths contradict each other.
fn ipv4_fields(json: &mut Writer, span: Span<'_>) -> Result<Option<Next>, Cut> {
    let header_len = usize::from(span.u8(0)? & 15) * 4;
    let total_len = span.u16(2)?;
    json.address_field("src", span.bytes(12, 4)?);
    json.address_field("dst", span.bytes(16, 4)?);
    json.number_field("version", span.u8(0)? >> 4);
    json.number_field("header_length", header_len as u64);
    json.number_field("dscp", span.u8(1)? >> 2);
    json.number_field("ecn", span.u8(1)? & 3);
    json.number_field("total_length", total_len);
    json.number_field("id", span.u16(4)?);
    let fragment = span.u16(6)?;
    json.boolean_field("dont_fragment", fragment & 0x4000 != 0);
    json.boolean_field("more_fragments", fragment & 0x2000 != 0);
    json.number_field("fragment_offset", (fragment & 0x1fff) * 8);
    json.number_field("ttl", span.u8(8)?);
    let protocol = span.u8(9)?;
    json.number_field("protocol", protocol);
    json.hex_field("checksum", span.u16(10)?, 4);
    if header_len < 20 || (total_len != 0 && usize::from(total_len) < header_len) {
        return Ok(None);
    }
    if header_len > 20 {
        json.bytes_field("options", span.bytes(20, header_len - 20)?);
    }
    Ok(Some(Next {
        header_len,
        total_len: usize::from(total_len),
        protocol,
        fragment: fragment & 0x1fff != 0,
    }))
}

/// IPv6 (RFC 8200).
pub(super) fn ipv6(walk: &mut Walk, span: Span<'_>) -> Printed {
    let after = walk.layer("ipv6", |json| ipv6_fields(json, span))?;
    match after.protocol {
        // No next header, or a later fragment: no header follows.
        NONE => walk.payload(after.rest),
        _ if after.fragment => walk.payload(after.rest),
        protocol => return by_protocol(walk, protocol, after.rest),
    }
    Ok(())
}

/// The payload behind an IPv6 header and its extensions.
struct After<'p> {
    protocol: u8,
    rest: Span<'p>,
    /// Not the first fragment.
    fragment: bool,
}

fn ipv6_fields<'p>(json: &mut Writer, span: Span<'p>) -> Result<After<'p>, Cut> {
    let first = span.u32(0)?;
    json.address_field("src", span.bytes(8, 16)?);
    json.address_field("dst", span.bytes(24, 16)?);
    json.number_field("version", first >> 28);
    json.number_field("dscp", first >> 22 & 0x3f);
    json.number_field("ecn", first >> 20 & 3);
    json.number_field("flow_label", first & 0xf_ffff);
    let payload_len = span.u16(4)?;
    json.number_field("payload_length", payload_len);
    let next_header = span.u8(6)?;
    json.number_field("next_header", next_header);
    json.number_field("hop_limit", span.u8(7)?);
    let rest = span.skip(40);
    // 0 is a jumbogram (RFC 2675) or what segmentation offload leaves.
    let length = if payload_len == 0 { rest.length } else { usize::from(payload_len).min(rest.length) };
    let after = After { protocol: next_header, rest: rest.limit(length), fragment: false };
    if !is_extension(next_header) {
        return Ok(after);
    }
    let after = json.array_field("extensions", |json| extensions(json, after))?;
    if is_extension(after.protocol) && !after.fragment {
        json.boolean_field("extensions_truncated", true);
    }
    Ok(after)
}

/// Hop-by-hop, routing, fragment, destination options, mobility: headers with a length and a next header of their
/// own.
fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        ip_protocol::HOP_BY_HOP | ROUTING | FRAGMENT | ip_protocol::DESTINATION_OPTIONS | MOBILITY
    )
}

fn extensions<'p>(json: &mut Writer, mut after: After<'p>) -> Result<After<'p>, Cut> {
    for _ in 0..EXTENSIONS_MAX {
        if !is_extension(after.protocol) || after.fragment {
            break;
        }
        after = json.object(|json| extension(json, after.protocol, after.rest))?;
    }
    Ok(after)
}

fn extension<'p>(json: &mut Writer, protocol: u8, span: Span<'p>) -> Result<After<'p>, Cut> {
    json.number_field("type", protocol);
    let next = span.u8(0)?;
    json.number_field("next_header", next);
    if protocol == FRAGMENT {
        let fragment = span.u16(2)?;
        json.number_field("fragment_offset", fragment & 0xfff8);
        json.boolean_field("more_fragments", fragment & 1 != 0);
        json.number_field("id", span.u32(4)?);
        return Ok(After { protocol: next, rest: span.skip(8), fragment: fragment & 0xfff8 != 0 });
    }
    let length = (usize::from(span.u8(1)?) + 1) * 8;
    json.number_field("length", length as u64);
    if matches!(protocol, ROUTING | MOBILITY) {
        json.number_field("kind", span.u8(2)?);
    }
    span.need(length)?;
    // Mobility headers end the chain (RFC 6275): their next header is "none".
    Ok(After { protocol: next, rest: span.skip(length), fragment: false })
}

/// An MPLS label stack (RFC 3032). The first nibble behind it selects the protocol, as all decoders guess it.
fn mpls(walk: &mut Walk, span: Span<'_>) -> Printed {
    let rest = walk.layers("mpls", |json| labels(json, span))?;
    match rest {
        Some(rest) => raw(walk, rest),
        None => {
            walk.json.boolean_field("mpls_truncated", true);
            Ok(())
        }
    }
}

/// The labels. Returns the rest behind the bottom one, `None` if there are more labels than are listed.
fn labels<'p>(json: &mut Writer, mut span: Span<'p>) -> Result<Option<Span<'p>>, Cut> {
    for _ in 0..LABELS_MAX {
        let entry = span.u32(0)?;
        let bottom = entry & 0x100 != 0;
        json.object(|json| {
            json.number_field("label", entry >> 12);
            json.number_field("traffic_class", entry >> 9 & 7);
            json.boolean_field("bottom", bottom);
            json.number_field("ttl", entry & 0xff);
        });
        span = span.skip(4);
        if bottom {
            return Ok(Some(span));
        }
    }
    Ok(None)
}

/// By IP protocol number.
pub(super) fn by_protocol(walk: &mut Walk, protocol: u8, span: Span<'_>) -> Printed {
    match protocol {
        ip_protocol::ICMP => transport::icmp(walk, span),
        ip_protocol::IGMP => transport::igmp(walk, span),
        ip_protocol::IPV4 => walk.inner(span, |walk| ipv4(walk, span)),
        ip_protocol::TCP => transport::tcp(walk, span),
        ip_protocol::UDP => transport::udp(walk, span),
        ip_protocol::IPV6 => walk.inner(span, |walk| ipv6(walk, span)),
        ip_protocol::GRE => tunnel::gre(walk, span),
        ip_protocol::ESP => esp(walk, span),
        ip_protocol::AH => ah(walk, span),
        ip_protocol::ICMPV6 => transport::icmpv6(walk, span),
        ip_protocol::SCTP => transport::sctp(walk, span),
        _ => {
            walk.payload(span);
            Ok(())
        }
    }
}

/// Encapsulating security payload (RFC 4303): the rest is encrypted.
fn esp(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("esp", |json| {
        json.hex_field("spi", span.u32(0)?, 8);
        json.number_field("sequence", span.u32(4)?);
        Ok(())
    })?;
    walk.payload(span.skip(8));
    Ok(())
}

/// Authentication header (RFC 4302). The protected packet goes into an object of its own, as it may be another such
/// header.
fn ah(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (next, length) = walk.layer("ah", |json| {
        let next = span.u8(0)?;
        let length = (usize::from(span.u8(1)?) + 2) * 4;
        json.number_field("next_header", next);
        json.number_field("length", length as u64);
        json.hex_field("spi", span.u32(4)?, 8);
        json.number_field("sequence", span.u32(8)?);
        Ok((next, length))
    })?;
    let rest = span.skip(length);
    walk.inner(rest, |walk| by_protocol(walk, next, rest))
}
