//! Updates of BGP (RFC 4271, 4.3; RFC 4760): withdrawn routes, attributes, routes.
//!
//! ```text
//! withdrawn <2> | attributes <2> | routes
//! attribute = flags 1, type 1, length 1 or 2, value
//! route     = [path 4], bits 1, as many bytes of the prefix as are needed
//! ```

mod family;

use std::net::IpAddr;

use super::{FAMILIES, SUBSEQUENT_FAMILIES};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;
use family::{reachable, unreachable_routes};

const ATTRIBUTES: &[(u8, &str)] = &[
    (1, "Origin"),
    (2, "AS Path"),
    (17, "AS4 Path"),
    (3, "Next Hop"),
    (4, "Multi Exit Discriminator"),
    (5, "Local Preference"),
    (6, "Atomic Aggregate"),
    (7, "Aggregator"),
    (18, "Aggregator4"),
    (8, "Community"),
    (9, "Originator ID"),
    (10, "Cluster List"),
    (11, "DPA"),
    (12, "Advertisers"),
    (13, "RCID Path / Cluster ID"),
    (14, "Multi-Protocol Reach NLRI"),
    (15, "Multi-Protocol Unreach NLRI"),
    (16, "Extended Community"),
    (22, "PMSI Tunnel"),
    (23, "Tunnel Encapsulation"),
    (24, "Traffic Engineering"),
    (25, "IPv6 Extended Community"),
    (26, "Accumulated IGP Metric"),
    (27, "PE Distinguisher Label"),
    (28, "Entropy Label"),
    (32, "Large Community"),
    (128, "Attribute Set"),
    (255, "Reserved for development"),
];

const ORIGINS: &[(u8, &str)] = &[(0, "IGP"), (1, "EGP"), (2, "Incomplete")];
const AS4_PATH: u8 = 17;
const LARGE_COMMUNITIES: u8 = 32;

/// Brackets around a path segment, by its type: set, sequence, and both within a confederation.
const SEGMENTS: [(&str, &str); 5] = [("?", "?"), ("{ ", "}"), ("", ""), ("( ", ")"), ("({ ", "})")];

const EXTENDED_FLAGS: &[(u32, &str)] = &[(0x8000, "vendor-specific"), (0x4000, "non-transitive")];

const EXTENDED: &[(u16, &str)] = &[
    (0x0002, "target"),
    (0x0102, "target"),
    (0x0202, "target"),
    (0x0003, "origin"),
    (0x0103, "origin"),
    (0x0203, "origin"),
    (0x4004, "link-BW"),
    (0x0005, "ospf-domain"),
    (0x0105, "ospf-domain"),
    (0x0205, "ospf-domain"),
    (0x8005, "ospf-domain"),
    (0x0306, "ospf-route-type"),
    (0x8000, "ospf-route-type"),
    (0x030c, "encapsulation"),
    (0x0107, "ospf-router-id"),
    (0x8001, "ospf-router-id"),
    (0x800a, "layer2-info"),
    (0x8800, "eigrp-general-route (flag, tag)"),
    (0x8801, "eigrp-route-metric (AS, delay)"),
    (0x8802, "eigrp-route-metric (reliability, nexthop, bandwidth)"),
    (0x8803, "eigrp-route-metric (load, MTU)"),
    (0x8804, "eigrp-external-route (remote-AS, remote-ID)"),
    (0x8805, "eigrp-external-route (remote-proto, remote-metric)"),
    (0x0009, "source-AS"),
    (0x010b, "vrf-route-import"),
    (0x000a, "l2vpn-id"),
    (0xf10a, "l2vpn-id"),
];

/// Types of tunnels (RFC 9012).
const TUNNELS: [&str; 18] = [
    "unknown encaps",
    "L2TPv3 over IP",
    "GRE",
    "Transmit Tunnel",
    "IPsec",
    "IP in IP with IPsec",
    "MPLS in IP with IPsec",
    "IP in IP",
    "VXLAN",
    "NVGRE",
    "MPLS",
    "MPLS in GRE",
    "VXLAN GPE",
    "MPLS in UDP",
    "IPv6",
    "SR TE",
    "Bare",
    "SR",
];

/// An update behind its header; a length that makes no sense ends it with the mark of a cut.
pub(super) fn print(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    if print_parts(cx, body)?.is_none() {
        cx.cut();
    }
    Ok(())
}

/// `None` where lengths do not fit.
fn print_parts(cx: &mut Context<'_>, body: Span<'_>) -> Result<Option<()>, Cut> {
    let Some((withdrawn, rest)) = counted(body)? else { return Ok(None) };
    if withdrawn.length > 1 {
        cx.text("\n\t  Withdrawn routes:");
        if !print_routes(cx, withdrawn)? {
            return Ok(None);
        }
    }
    let Some((attributes, routes)) = counted(rest)? else { return Ok(None) };
    if attributes.length == 0 && routes.length == 0 && withdrawn.length == 0 {
        cx.text("\n\t  End-of-Rib Marker (empty NLRI)");
        return Ok(Some(()));
    }
    if !print_attributes(cx, attributes)? {
        return Ok(None);
    }
    if routes.length > 0 {
        cx.text("\n\t  Updated routes:");
        if !print_routes(cx, routes)? {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// A part with two bytes of length before it, and the rest behind it.
fn counted(span: Span<'_>) -> Result<Option<(Span<'_>, Span<'_>)>, Cut> {
    if span.length < 2 {
        return Ok(None);
    }
    let length = usize::from(span.u16(0)?);
    let rest = span.skip(2);
    if rest.length < length {
        return Ok(None);
    }
    Ok(Some((rest.limit(length), rest.skip(length))))
}

/// Whether each route has the number of its path before it (RFC 7911), guessed from the bytes.
fn has_paths(routes: &[u8], bits_max: u8) -> bool {
    if routes.len() < 5 {
        return false;
    }
    let walk = |extra: usize, least: u8| {
        let mut at = 0;
        while at < routes.len() {
            match routes.get(at + extra) {
                Some(bits) if *bits > bits_max || *bits < least => return false,
                Some(bits) => at += extra + 1 + usize::from(*bits).div_ceil(8),
                None => return at + extra <= routes.len(),
            }
        }
        at == routes.len()
    };
    walk(4, 0) && !walk(0, 1)
}

/// Routes of IPv4 and their paths. `false` if the last one is cut.
fn print_routes(cx: &mut Context<'_>, routes: Span<'_>) -> Result<bool, Cut> {
    let with_paths = has_paths(routes.data, 32);
    let mut rest = routes;
    while rest.length > 0 {
        let mut path = None;
        if with_paths {
            if rest.length < 4 {
                return Ok(false);
            }
            path = Some(rest.u32(0)?);
            rest = rest.skip(4);
        }
        if let Some(is_whole) = print_route(cx, &mut rest, "\n\t    ", false, path)? {
            return Ok(is_whole);
        }
    }
    Ok(true)
}

/// Prints a route and its path. `Some` if it is the last one: `false` if it is cut.
fn print_route(
    cx: &mut Context<'_>,
    rest: &mut Span<'_>,
    indent: &str,
    is_v6: bool,
    path: Option<u32>,
) -> Result<Option<bool>, Cut> {
    match prefix(cx, *rest, indent, is_v6)? {
        Prefix::Printed(length) => *rest = rest.skip(length),
        Prefix::Cut => return Ok(Some(false)),
        Prefix::Illegal => {
            cx.text("\n\t    (illegal prefix length)");
            return Ok(Some(true));
        }
    }
    if let Some(path) = path {
        put!(cx, "   Path Id: {path}");
    }
    Ok(None)
}

enum Prefix {
    /// The number of printed bytes.
    Printed(usize),
    Cut,
    Illegal,
}

fn prefix(cx: &mut Context<'_>, span: Span<'_>, indent: &str, is_v6: bool) -> Result<Prefix, Cut> {
    if span.length < 1 {
        return Ok(Prefix::Cut);
    }
    let bits = span.u8(0)?;
    if bits > if is_v6 { 128 } else { 32 } {
        return Ok(Prefix::Illegal);
    }
    let length = usize::from(bits).div_ceil(8);
    if span.length < 1 + length {
        return Ok(Prefix::Cut);
    }
    let bytes = span.bytes(1, length)?;
    cx.text(indent);
    print_prefix(cx, bytes, bits, is_v6);
    Ok(Prefix::Printed(1 + length))
}

/// A prefix whose bits past its length are cleared.
fn print_prefix(cx: &mut Context<'_>, bytes: &[u8], bits: u8, is_v6: bool) {
    let byte_at = |index: usize| {
        let byte = bytes.get(index).copied().unwrap_or(0);
        let left = usize::from(bits).saturating_sub(index * 8).min(8);
        byte & (0xff00_u16 >> left) as u8
    };
    if is_v6 {
        cx.host(IpAddr::from(std::array::from_fn::<u8, 16, _>(byte_at)));
    } else {
        cx.host(IpAddr::from(std::array::from_fn::<u8, 4, _>(byte_at)));
    }
    put!(cx, "/{bits}");
}

/// `false` if a length does not fit.
fn print_attributes(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length > 0 {
        if rest.length < 2 {
            cx.text("\n\t  [path attrs too short]");
            break;
        }
        let (flags, kind) = (rest.u8(0)?, rest.u8(1)?);
        rest = rest.skip(2);
        // A bit says that the length takes two bytes.
        let size = if flags & 0x10 != 0 { 2 } else { 1 };
        if rest.length < size {
            cx.text("\n\t  [path attrs too short]");
            break;
        }
        let length = if size == 2 { usize::from(rest.u16(0)?) } else { usize::from(rest.u8(0)?) };
        rest = rest.skip(size);
        put!(
            cx,
            "\n\t  {} ({kind}), length: {length}",
            lookup(ATTRIBUTES, kind).unwrap_or("Unknown Attribute")
        );
        if flags != 0 {
            cx.text(", Flags [");
            for (bit, letter) in [(0x80, "O"), (0x40, "T"), (0x20, "P"), (0x10, "E")] {
                cx.text(if flags & bit != 0 { letter } else { "" });
            }
            if flags & 15 != 0 {
                put!(cx, "+{:x}", flags & 15);
            }
            cx.text("]: ");
        }
        if rest.length < length {
            cx.text(" [path attrs too short]");
            break;
        }
        let value = rest.limit(length);
        if !print_attribute(cx, kind, value)? {
            return Ok(false);
        }
        // tcpdump counts the length of large communities down, and shows none of their bytes.
        if cx.verbose() > 1 && length > 0 && (kind != LARGE_COMMUNITIES || !length.is_multiple_of(12)) {
            cx.hex_lines("\n\t    ", value);
        }
        rest = rest.skip(length);
    }
    Ok(true)
}

/// `false` if the value is cut.
fn print_attribute(cx: &mut Context<'_>, kind: u8, value: Span<'_>) -> Result<bool, Cut> {
    let length = value.length;
    let fits = match kind {
        1 => length == 1,
        2 | AS4_PATH => length.is_multiple_of(2),
        3 | 4 | 5 | 9 => length == 4,
        6 => length == 0,
        7 => matches!(length, 6 | 8),
        18 => length == 8,
        8 | 10 => length.is_multiple_of(4),
        16 => length.is_multiple_of(8),
        32 => length != 0 && length.is_multiple_of(12),
        _ => true,
    };
    if !fits {
        cx.text("invalid len");
        return Ok(true);
    }
    match kind {
        1 => cx.text(lookup(ORIGINS, value.u8(0)?).unwrap_or("Unknown Origin Typecode")),
        2 | AS4_PATH if length == 0 => cx.text("empty"),
        2 | AS4_PATH => return print_path(cx, kind, value),
        3 | 9 => cx.ipv4_after("", value, 0)?,
        4 | 5 => put!(cx, "{}", value.u32(0)?),
        6 => {}
        7 | 18 => {
            let (system, at) = if length == 6 { (u32::from(value.u16(0)?), 2) } else { (value.u32(0)?, 4) };
            put!(cx, " AS #{system}, origin ");
            cx.ipv4_after("", value, at)?;
        }
        8 => print_communities(cx, value)?,
        10 => {
            for at in (0..length).step_by(4) {
                cx.ipv4_after(if at > 0 { ", " } else { "" }, value, at)?;
            }
        }
        14 => return reachable(cx, value),
        15 => return unreachable_routes(cx, value),
        16 => {
            for at in (0..length).step_by(8) {
                print_extended(cx, value.skip(at))?;
            }
        }
        26 => return accumulated_metric(cx, value),
        32 => {
            cx.text("\n\t    ");
            for at in (0..length).step_by(12) {
                cx.text(if at > 0 { ", " } else { "" });
                put!(cx, "{}:{}:{}", value.u32(at)?, value.u32(at + 4)?, value.u32(at + 8)?);
            }
        }
        _ => {
            put!(cx, "\n\t    no Attribute {kind} decoder");
            if cx.verbose() == 1 {
                cx.hex_lines("\n\t    ", value);
            }
        }
    }
    Ok(true)
}

/// Numbers of autonomous systems have 2 bytes if the segments fit the attribute so, else 4.
fn system_len(kind: u8, value: Span<'_>) -> Result<usize, Cut> {
    let mut at = 0;
    while kind != AS4_PATH && at < value.length {
        if !matches!(value.u8(at)?, 1..=4) {
            return Ok(4);
        }
        at += 2 + usize::from(value.u8(at + 1)?) * 2;
    }
    Ok(if kind != AS4_PATH && at == value.length { 2 } else { 4 })
}

fn print_path(cx: &mut Context<'_>, kind: u8, value: Span<'_>) -> Result<bool, Cut> {
    let size = system_len(kind, value)?;
    let mut at = 0;
    while at < value.length {
        let (open, close) = SEGMENTS.get(usize::from(value.u8(at)?)).copied().unwrap_or(SEGMENTS[0]);
        cx.text(open);
        let count = usize::from(value.u8(at + 1)?);
        at += 2;
        for _ in 0..count {
            if value.bytes(at, size).is_err() {
                return Ok(false);
            }
            let system = if size == 2 { u32::from(value.u16(at)?) } else { value.u32(at)? };
            put!(cx, "{system} ");
            at += size;
        }
        cx.text(close);
    }
    Ok(true)
}

fn print_communities(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    for at in (0..value.length).step_by(4) {
        match value.u32(at)? {
            0xffff_ff01 => cx.text(" NO_EXPORT"),
            0xffff_ff02 => cx.text(" NO_ADVERTISE"),
            0xffff_ff03 => cx.text(" NO_EXPORT_SUBCONFED"),
            community => {
                put!(cx, "{}:{}", community >> 16, community & 0xffff);
                cx.text(if at + 4 < value.length { ", " } else { "" });
            }
        }
    }
    Ok(())
}

fn print_extended(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let kind = value.u16(0)?;
    let name = lookup(EXTENDED, kind).unwrap_or("unknown extd community typecode");
    put!(cx, "\n\t    {name} (0x{kind:04x}), Flags [");
    put_bits(cx, EXTENDED_FLAGS, "none", ", ", u32::from(kind));
    cx.text("]: ");
    match kind {
        0x0002 | 0x0003 | 0x000a => {
            put!(cx, "{}:{} (= ", value.u16(2)?, value.u32(4)?);
            cx.ipv4_after("", value, 4)?;
            cx.text(")");
        }
        0x0102 | 0x0103 | 0xf10a | 0x010b => {
            cx.ipv4_after("", value, 2)?;
            put!(cx, ":{}", value.u16(6)?);
        }
        0x0202 | 0x0203 => put!(cx, "{}:{}", value.u32(2)?, value.u16(6)?),
        0x4004 => {
            let bits = value.u32(4)?;
            put!(cx, "bandwidth: ");
            crate::app::megabits(cx, bits);
        }
        0x0005 | 0x0105 | 0x0205 | 0x8005 | 0x0107 | 0x8001 => cx.ipv4_after("", value, 2)?,
        0x0306 | 0x8000 => {
            const TYPES: &[(u8, &str)] = &[
                (1, "Router"),
                (2, "Network"),
                (3, "Summary"),
                (5, "External"),
                (7, "NSSA External"),
                (129, "MPLS-VPN Sham"),
            ];
            let kind = value.u8(6)?;
            cx.ipv4_after("area:", value, 2)?;
            match lookup(TYPES, kind) {
                Some(name) => put!(cx, ", router-type:{name}"),
                None => put!(cx, ", router-type:unknown (0x{kind:02x})"),
            }
            cx.text(", metric-type:");
            cx.text(if value.u8(7)? & 1 != 0 { "E2" } else { "" });
            cx.text(if matches!(kind, 5 | 7) { "E1" } else { "" });
        }
        0x0009 => put!(cx, "AS {}", value.u16(2)?),
        0x030c => {
            let tunnel = usize::from(value.u16(6)?);
            put!(cx, "Tunnel type: {}", TUNNELS.get(tunnel).copied().unwrap_or("unknown encaps"));
        }
        _ => value.bytes(2, 6)?.iter().for_each(|&byte| cx.hex(byte, 2)),
    }
    Ok(())
}

/// A metric that grows along the way (RFC 7311).
fn accumulated_metric(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length >= 3 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u16(1)?));
        put!(cx, "\n\t    {} TLV ({kind}), length {length}", if kind == 1 { "AIGP" } else { "Unknown" });
        if length < 3 || rest.length < length || (kind == 1 && length < 11) {
            return Ok(false);
        }
        let value = rest.skip(3).limit(length - 3);
        if kind == 1 {
            put!(cx, ", metric {}", value.u64(0)?);
        } else if cx.verbose() == 1 {
            cx.hex_lines("\n\t      ", value);
        }
        rest = rest.skip(length);
    }
    Ok(true)
}
