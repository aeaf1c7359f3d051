//! Link state advertisements of OSPF (RFC 2328, appendix A.4; RFC 5250).
//!
//! ```text
//! header   = age 2, options 1, type 1, identifier 4, router 4, sequence 4, checksum 2, length 2
//! router   = flags 1, 0, count 2, (identifier 4, data 4, type 1, metrics 1, metric 2, (topology 1, 0, metric 2)*)*
//! network  = mask 4, router 4 each          summary = mask 4, (topology 1, metric 3)*
//! external = mask 4, (topology 1, metric 3, forward 4, tag 4)*
//! ```

use super::engineering;
use super::{LINK_STATE_HEADER_LEN, LINK_STATES, OPTIONS};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const ROUTER_FLAGS: &[(u32, &str)] =
    &[(0x01, "ABR"), (0x02, "ASBR"), (0x04, "Virtual"), (0x08, "Wildcard"), (0x10, "Nt"), (0x80, "Host")];

const TOPOLOGIES: &[(u32, &str)] = &[(0, "default"), (1, "multicast"), (2, "management")];

const OPAQUE_TYPES: &[(u32, &str)] =
    &[(1, "Traffic Engineering"), (GRACE, "Graceful restart"), (ROUTER_INFORMATION, "Router Information")];
const GRACE: u32 = 3;
const ROUTER_INFORMATION: u32 = 4;
const TRAFFIC_ENGINEERING: u32 = 1;

const ROUTER_CAPABILITIES: &[(u32, &str)] = &[
    (1, "Reserved"),
    (2, "Reserved"),
    (4, "Reserved"),
    (8, "Reserved"),
    (16, "graceful restart capable"),
    (32, "graceful restart helper"),
    (64, "Stub router support"),
    (128, "Traffic engineering"),
    (256, "p2p over LAN"),
    (512, "path computation server"),
];

const GRACE_PARTS: &[(u16, &str)] =
    &[(1, "Grace Period"), (2, "Graceful restart Reason"), (3, "IPv4 interface address")];
const GRACE_REASONS: [&str; 4] =
    ["Unknown", "Software Restart", "Software Reload/Upgrade", "Control Processor Switch"];

/// The header of an advertisement; the length that it gives, `None` if that is too short for it.
pub(super) fn print_header(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    let length = usize::from(span.u16(18)?);
    if length < LINK_STATE_HEADER_LEN {
        put!(cx, "\n\t    Bogus length {length} < header ({LINK_STATE_HEADER_LEN})");
        return Ok(None);
    }
    let body_len = length - LINK_STATE_HEADER_LEN;
    cx.ipv4_after("\n\t  Advertising Router ", span, 8)?;
    put!(cx, ", seq 0x{:08x}, age {}s, length {body_len}", span.u32(12)?, span.u16(0)?);
    let kind = u32::from(span.u8(3)?);
    put!(cx, "\n\t    {} LSA ({kind}), ", lookup(LINK_STATES, kind).unwrap_or("unknown"));
    let identifier = span.u32(4)?;
    match kind {
        9..=11 => {
            let (name, kind, number) = opaque(identifier);
            put!(cx, "Opaque-Type {name} LSA ({kind}), Opaque-ID {number}");
        }
        _ => cx.ipv4_after("LSA-ID: ", span, 4)?,
    }
    cx.text("\n\t    Options: [");
    put_bits(cx, OPTIONS, "none", ", ", u32::from(span.u8(2)?));
    cx.text("]");
    Ok(Some(length))
}

/// The identifier of an opaque advertisement is a type, with a name, and a number (RFC 5250).
pub(super) fn opaque(identifier: u32) -> (&'static str, u32, u32) {
    let kind = identifier >> 24;
    (lookup(OPAQUE_TYPES, kind).unwrap_or("unknown"), kind, identifier & 0xff_ffff)
}

/// An advertisement; where the next one starts, `None` if its length makes no sense.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    let Some(length) = print_header(cx, span)? else { return Ok(None) };
    let body = span.skip(LINK_STATE_HEADER_LEN).with_length(length - LINK_STATE_HEADER_LEN);
    let shows_bytes = match span.u8(3)? {
        1 => router(cx, body)?,
        2 => network(cx, body)?,
        3 => {
            cx.ipv4_after("\n\t    Mask ", body, 0)?;
            metrics(cx, body)?
        }
        4 => metrics(cx, body)?,
        5 | 7 => external(cx, body)?,
        6 => group(cx, body)?,
        9..=11 => match span.u32(4)? >> 24 {
            ROUTER_INFORMATION => router_information(cx, body)?,
            GRACE => grace(cx, body)?,
            TRAFFIC_ENGINEERING => engineering::print(cx, body)?,
            _ => {
                if cx.verbose() == 1 {
                    cx.hex_lines("\n\t    ", body);
                }
                true
            }
        },
        _ => true,
    };
    if shows_bytes && cx.verbose() > 1 {
        cx.hex_lines("\n\t    ", body);
    }
    Ok(Some(length))
}

fn topology(number: u32) -> &'static str {
    lookup(TOPOLOGIES, number).unwrap_or("Unknown")
}

/// `false` if a link is of an unknown type, which ends the advertisement.
fn router(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    let flags = body.u8(0)?;
    cx.text("\n\t    Router LSA Options: [");
    put_bits(cx, ROUTER_FLAGS, "none", ", ", u32::from(flags));
    cx.text("]");
    let count = body.u16(2)?;
    let mut rest = body.skip(4);
    rest.need(12)?;
    for _ in 0..count {
        rest.need(12)?;
        let (name, data) = match rest.u8(8)? {
            1 => ("Neighbor Router-ID", "Interface Address"),
            2 => ("Neighbor Network-ID", "Interface Address"),
            3 => ("Stub Network", "Mask"),
            4 => ("Virtual Link: Neighbor Router-ID", "Interface Address"),
            kind => {
                put!(cx, "\n\t      Unknown Router Link Type ({kind})");
                return Ok(false);
            }
        };
        put!(cx, "\n\t      {name}: ");
        cx.ipv4_after("", rest, 0)?;
        put!(cx, ", {data}: ");
        cx.ipv4_after("", rest, 4)?;
        let others = usize::from(rest.u8(9)?);
        for index in 0..=others {
            let at = 8 + index * 4;
            // The first metric is that of the default topology.
            let kind = if index == 0 { 0 } else { u32::from(rest.u8(at)?) };
            put!(cx, "\n\t\ttopology {} ({kind}), metric {}", topology(kind), rest.u16(at + 2)?);
        }
        rest = rest.skip(12 + others * 4);
    }
    Ok(true)
}

fn network(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    cx.ipv4_after("\n\t    Mask ", body, 0)?;
    cx.text("\n\t    Connected Routers:");
    for at in (4..body.length).step_by(4) {
        cx.ipv4_after("\n\t      ", body, at)?;
    }
    Ok(true)
}

fn metrics(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    body.need(8)?;
    for at in (4..body.length).step_by(4) {
        let metric = body.u32(at)?;
        let kind = (metric >> 24) & 0x7f;
        put!(cx, "\n\t\ttopology {} ({kind}) metric {}", topology(kind), metric & 0xff_ffff);
    }
    Ok(true)
}

fn external(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    cx.ipv4_after("\n\t    Mask ", body, 0)?;
    body.need(8)?;
    for at in (4..body.length).step_by(12) {
        let metric = body.u32(at)?;
        let kind = (metric >> 24) & 0x7f;
        let class = if metric >> 31 != 0 { 2 } else { 1 };
        put!(cx, "\n\t\ttopology {} ({kind}), type {class}, metric", topology(kind));
        match metric & 0xff_ffff {
            0xff_ffff => cx.text(" infinite"),
            metric => put!(cx, " {metric}"),
        }
        if body.u32(at + 4)? != 0 {
            cx.ipv4_after(", forward ", body, at + 4)?;
        }
        if body.u32(at + 8)? != 0 {
            cx.ipv4_after(", tag ", body, at + 8)?;
        }
    }
    Ok(true)
}

/// Vertices that forward to a multicast group (RFC 1584).
fn group(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    for at in (0..body.length).step_by(8) {
        match body.u32(at)? {
            1 => cx.ipv4_after("\n\t    Router Router-ID ", body, at + 4)?,
            2 => cx.ipv4_after("\n\t    Network Designated Router ", body, at + 4)?,
            kind => put!(cx, "\n\t    unknown VertexType ({kind})"),
        }
    }
    Ok(true)
}

/// Type and length of a part; `None` if not even those fit, which has been said.
pub(super) fn part_head(cx: &mut Context<'_>, rest: Span<'_>) -> Result<Option<(u16, usize)>, Cut> {
    rest.need(4)?;
    if rest.length < 4 {
        put!(cx, "\n\t    Remaining LS length {} < 4", rest.length);
        return Ok(None);
    }
    Ok(Some((rest.u16(0)?, usize::from(rest.u16(2)?))))
}

/// The bytes of a part that is not known.
fn print_unknown(cx: &mut Context<'_>, value: Span<'_>) {
    if cx.verbose() == 1 {
        cx.hex_lines("\n\t      ", value);
    }
}

/// Capabilities of a router (RFC 7770).
fn router_information(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length > 0 {
        let Some((kind, length)) = part_head(cx, rest)? else { return Ok(false) };
        let name = if kind == 1 { "Router Capabilities" } else { "unknown" };
        put!(cx, "\n\t    {name} TLV ({kind}), length: {length}, value: ");
        let left = rest.length - 4;
        if length > left {
            put!(cx, "\n\t    Bogus length {length} > remaining LS length {left}");
            return Ok(false);
        }
        let value = rest.skip(4).with_length(length);
        value.need(length)?;
        match kind {
            1 if length != 4 => {
                put!(cx, "\n\t    Bogus length {length} != 4");
                return Ok(false);
            }
            1 => {
                cx.text("Capabilities: ");
                put_bits(cx, ROUTER_CAPABILITIES, "Unknown", ", ", value.u32(0)?);
            }
            _ => print_unknown(cx, value),
        }
        rest = rest.skip(4 + length);
    }
    Ok(true)
}

/// The period in which a router restarts (RFC 3623).
pub(super) fn grace(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length > 0 {
        let Some((kind, length)) = part_head(cx, rest)? else { return Ok(false) };
        let name = lookup(GRACE_PARTS, kind).unwrap_or("unknown");
        put!(cx, "\n\t    {name} TLV ({kind}), length {length}, value: ");
        let left = rest.length - 4;
        if length > left {
            put!(cx, "\n\t    Bogus length {length} > {left}");
            return Ok(false);
        }
        if kind == 0 || length == 0 {
            return Ok(false);
        }
        let value = rest.skip(4).with_length(length);
        if value.need(length).is_err() {
            return Ok(false);
        }
        let wanted = match kind {
            1 | 3 => 4,
            2 => 1,
            _ => length,
        };
        if length != wanted {
            put!(cx, "\n\t    Bogus length {length} != {wanted}");
            return Ok(false);
        }
        print_grace_part(cx, kind, value)?;
        rest = rest.skip(4 + length.next_multiple_of(4));
    }
    Ok(true)
}

fn print_grace_part(cx: &mut Context<'_>, kind: u16, value: Span<'_>) -> Printed {
    match kind {
        1 => put!(cx, "{}s", value.u32(0)?),
        2 => {
            let reason = value.u8(0)?;
            let name = GRACE_REASONS.get(usize::from(reason)).copied().unwrap_or("Unknown");
            put!(cx, "{name} ({reason})");
        }
        3 => cx.ipv4_after("", value, 0)?,
        _ => print_unknown(cx, value),
    }
    Ok(())
}
