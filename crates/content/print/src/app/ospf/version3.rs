//! OSPF, version 3 (RFC 5340): `OSPFv3, Hello, length 36`; with `-v` the packet's fields, with `-vv` advertisements.
//!
//! ```text
//! version 1 | type 1 | length 2 | router 4 | area 4 | checksum 2 | instance 1 | 0 1
//! hello    = interface 4, priority 1, options 3, interval 2, dead 2, designated 4, backup 4, neighbors 4 each
//! database = options 4, MTU 2, 0 1, flags 1, sequence 4, headers
//! request  = (0 2, type 2, identifier 4, router 4)*      update = count 4, advertisements
//! header   = age 2, type 2, identifier 4, router 4, sequence 4, checksum 2, length 2
//! prefix   = bits 1, options 1, metric 2, as many words of the prefix as are needed
//! trailers: link-local signaling = checksum 2, length 2, ...
//!           authentication       = type 2, length 2, 0 2, association 2, sequence 8, digest
//! ```

use super::advertisement::grace;
use super::{LINK_STATE_HEADER_LEN, PACKETS, engineering};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const HEADER_LEN: usize = 16;
const SIGNALING_LEN: usize = 4;
const AUTHENTICATION_LEN: usize = 16;

const OPTIONS: &[(u32, &str)] = &[
    (0x0001, "V6"),
    (0x0002, "External"),
    (0x0004, "Deprecated"),
    (0x0008, "NSSA"),
    (0x0010, "Router"),
    (0x0020, "Demand Circuit"),
    (0x0100, "AFs Support"),
    (LOCAL_SIGNALING, "LLS"),
    (0x0400, "Authentication Trailer"),
];
const LOCAL_SIGNALING: u32 = 0x0200;

const ROUTER_FLAGS: &[(u32, &str)] = &[
    (0x01, "ABR"),
    (0x02, "External"),
    (0x04, "Virtual-Link Endpoint"),
    (0x08, "Deprecated"),
    (0x10, "NSSA Translator"),
];

const EXTERNAL_FLAGS: &[(u32, &str)] =
    &[(0x8000_0000, "External Type 2"), (FORWARDING, "Forwarding"), (TAG, "Tag")];
const FORWARDING: u32 = 0x0200_0000;
const TAG: u32 = 0x0100_0000;

const DATABASE_FLAGS: &[(u32, &str)] =
    &[(0x04, "Init"), (0x02, "More"), (0x01, "Master"), (0x10, "IPv6 MTU")];

const PREFIX_OPTIONS: &[(u32, &str)] = &[
    (0x01, "No Unicast"),
    (0x02, "Local address"),
    (0x04, "Deprecated"),
    (0x08, "Propagate"),
    (0x10, "Down"),
    (0x20, "N-bit"),
];

const LINK_STATES: &[(u16, &str)] = &[
    (1, "Router"),
    (2, "Network"),
    (3, "Inter-Area Prefix"),
    (4, "Inter-Area Router"),
    (5, "External"),
    (6, "Deprecated"),
    (7, "NSSA"),
    (8, "Link"),
    (9, "Intra-Area Prefix"),
    (10, "Intra-Area TE"),
    (11, "Grace"),
    (12, "Router Information"),
    (13, "Inter-AS-TE"),
    (14, "Layer 1 VPN"),
];

/// Flooding scopes of an advertisement.
const SCOPES: &[(u16, &str)] = &[(LINK_LOCAL, "Link Local"), (AREA, "Area Local"), (DOMAIN, "Domain Wide")];
const LINK_LOCAL: u16 = 0x0000;
const AREA: u16 = 0x2000;
const DOMAIN: u16 = 0x4000;

const ROUTER: u16 = 1 | AREA;
const NETWORK: u16 = 2 | AREA;
const INTER_AREA_PREFIX: u16 = 3 | AREA;
const EXTERNAL: u16 = 5 | DOMAIN;
const LINK: u16 = 8 | LINK_LOCAL;
const INTRA_AREA_PREFIX: u16 = 9 | AREA;
const INTRA_AREA_ENGINEERING: u16 = 10 | LINK_LOCAL;
const GRACE: u16 = 11 | LINK_LOCAL;

/// `false` ends the packet with the mark of a cut.
type Whole = Result<bool, Cut>;

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ospf3";
    let (version, kind) = (span.u8(0)?, span.u8(1)?);
    let Some(name) = lookup(PACKETS, kind) else {
        put!(cx, "OSPFv{version}, unknown packet type ({kind}), length {}", span.length);
        return Ok(());
    };
    put!(cx, "OSPFv{version}, {name}, length {}", span.length);
    if cx.verbose() == 0 {
        return Ok(());
    }
    let length = usize::from(span.u16(2)?);
    if length > span.length {
        put!(cx, " [len {length}]");
        return Ok(());
    }
    cx.ipv4_after("\n\tRouter-ID ", span, 4)?;
    match span.u32(8)? {
        0 => cx.text(", Backbone Area"),
        _ => cx.ipv4_after(", Area ", span, 8)?,
    }
    let instance = span.u8(14)?;
    if instance != 0 {
        put!(cx, ", Instance {instance}");
    }
    if version != 3 {
        return Ok(());
    }
    let body = span.skip(HEADER_LEN).with_length(length.saturating_sub(HEADER_LEN));
    if !print_body(cx, kind, body)? || !print_trailers(cx, kind, body, span.skip(length))? {
        cx.cut();
    }
    Ok(())
}

fn print_body(cx: &mut Context<'_>, kind: u8, body: Span<'_>) -> Whole {
    match kind {
        1 => print_hello(cx, body)?,
        2 => {
            print_options(cx, "\n\tOptions [", body.u32(0)?);
            cx.text(", DD Flags [");
            put_bits(cx, DATABASE_FLAGS, "none", ", ", u32::from(body.u8(7)?));
            put!(cx, "], MTU {}, DD-Sequence 0x{:08x}", body.u16(4)?, body.u32(8)?);
            if cx.verbose() > 1 {
                return print_headers(cx, body.skip(12));
            }
        }
        _ if cx.verbose() < 2 => {}
        3 => {
            for at in (0..body.length).step_by(12) {
                let Ok(request) = body.bytes(at, 12) else { return Ok(false) };
                let request = Span::whole(request);
                cx.ipv4_after("\n\t  Advertising Router ", request, 8)?;
                print_kind(cx, request, 2, 4)?;
            }
        }
        4 => return print_update(cx, body),
        _ => return print_headers(cx, body),
    }
    Ok(true)
}

fn print_options(cx: &mut Context<'_>, title: &str, options: u32) {
    cx.text(title);
    put_bits(cx, OPTIONS, "none", ", ", options);
    cx.text("]");
}

fn print_hello(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    print_options(cx, "\n\tOptions [", body.u32(4)?);
    let (hello, dead, priority) = (body.u16(8)?, body.u16(10)?, body.u8(4)?);
    put!(cx, "\n\t  Hello Timer {hello}s, Dead Timer {dead}s");
    cx.ipv4_after(", Interface-ID ", body, 0)?;
    put!(cx, ", Priority {priority}");
    if body.u32(12)? != 0 {
        cx.ipv4_after("\n\t  Designated Router ", body, 12)?;
    }
    if body.u32(16)? != 0 {
        cx.ipv4_after(", Backup Designated Router ", body, 16)?;
    }
    if cx.verbose() > 1 {
        cx.text("\n\t  Neighbor List:");
        for at in (20..body.length).step_by(4) {
            cx.ipv4_after("\n\t    ", body, at)?;
        }
    }
    Ok(())
}

/// Type, scope and identifier of an advertisement.
fn print_kind(cx: &mut Context<'_>, span: Span<'_>, kind_at: usize, identifier_at: usize) -> Printed {
    let kind = span.u16(kind_at)?;
    let number = kind & 0x1fff;
    span.bytes(identifier_at, 4)?;
    put!(cx, "\n\t    {} LSA ({number})", lookup(LINK_STATES, number).unwrap_or("Unknown"));
    put!(cx, ", {} Scope", lookup(SCOPES, kind & 0x6000).unwrap_or("Unknown"));
    cx.text(if kind & 0x8000 != 0 { ", transitive" } else { "" });
    cx.ipv4_after(", LSA-ID ", span, identifier_at)
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>) -> Whole {
    if span.length < LINK_STATE_HEADER_LEN {
        return Ok(false);
    }
    let (age, sequence, length) = (span.u16(0)?, span.u32(12)?, usize::from(span.u16(18)?));
    cx.ipv4_after("\n\t  Advertising Router ", span, 8)?;
    // A length below that of the header wraps in tcpdump.
    put!(cx, ", seq 0x{sequence:08x}, age {age}s, length {}", length.wrapping_sub(LINK_STATE_HEADER_LEN));
    print_kind(cx, span, 2, 4)?;
    Ok(true)
}

fn print_headers(cx: &mut Context<'_>, mut rest: Span<'_>) -> Whole {
    while rest.length > 0 {
        if !print_header(cx, rest)? {
            return Ok(false);
        }
        rest = rest.skip(LINK_STATE_HEADER_LEN);
    }
    Ok(true)
}

fn print_update(cx: &mut Context<'_>, body: Span<'_>) -> Whole {
    let mut left = body.u32(0)?;
    let mut rest = body.skip(4);
    // Each advertisement takes at least 20 bytes.
    while rest.length > 0 && left > 0 {
        if !print_header(cx, rest)? {
            return Ok(false);
        }
        let length = usize::from(rest.u16(18)?);
        if length < LINK_STATE_HEADER_LEN || length > rest.length {
            return Ok(false);
        }
        let value = rest.skip(LINK_STATE_HEADER_LEN).with_length(length - LINK_STATE_HEADER_LEN);
        if !print_advertisement(cx, rest.u16(2)?, value)? {
            return Ok(false);
        }
        rest = rest.skip(length);
        left -= 1;
    }
    Ok(true)
}

fn print_advertisement(cx: &mut Context<'_>, kind: u16, value: Span<'_>) -> Whole {
    let least = match kind {
        ROUTER | NETWORK | INTER_AREA_PREFIX | EXTERNAL | LINK | INTRA_AREA_PREFIX => 4,
        _ => 0,
    };
    if value.length < least {
        return Ok(false);
    }
    match kind {
        ROUTER => {
            print_options(cx, "\n\t      Options [", value.u32(0)?);
            cx.text(", RLA-Flags [");
            put_bits(cx, ROUTER_FLAGS, "none", ", ", u32::from(value.u8(0)?));
            cx.text("]");
            print_links(cx, value.skip(4))
        }
        NETWORK => {
            print_options(cx, "\n\t      Options [", value.u32(0)?);
            cx.text("\n\t      Connected Routers:");
            for at in (4..value.length).step_by(4) {
                if value.length < at + 4 {
                    return Ok(false);
                }
                cx.ipv4_after("\n\t\t", value, at)?;
            }
            Ok(true)
        }
        INTER_AREA_PREFIX => {
            put!(cx, ", metric {}", value.u32(0)? & 0xff_ffff);
            print_prefixes(cx, value.skip(4), u32::MAX)
        }
        EXTERNAL => print_external(cx, value),
        LINK => print_link(cx, value),
        INTRA_AREA_PREFIX => {
            value.need(12)?;
            print_kind(cx, value, 2, 4)?;
            if value.length < 6 {
                return Ok(false);
            }
            let count = value.u16(0)?;
            put!(cx, "\n\t      Prefixes {count}:");
            // tcpdump leaves six bytes of the header in the length.
            let rest = value.skip(12).with_length(value.length - 6);
            print_prefixes(cx, rest, u32::from(count))
        }
        GRACE => grace(cx, value),
        INTRA_AREA_ENGINEERING => engineering::print(cx, value),
        _ => {
            cx.hex_lines("\n\t      ", value);
            Ok(true)
        }
    }
}

fn print_links(cx: &mut Context<'_>, mut rest: Span<'_>) -> Whole {
    while rest.length > 0 {
        if rest.length < 16 || rest.captured() < 16 {
            return Ok(false);
        }
        let neighbor = match rest.u8(0)? {
            1 => "\n\t      Neighbor Router-ID ",
            2 => "\n\t      Neighbor Network-ID ",
            4 => "\n\t      Virtual Link: Neighbor Router-ID ",
            kind => {
                put!(cx, "\n\t      Unknown Router Links Type 0x{kind:02x}");
                return Ok(true);
            }
        };
        cx.ipv4_after(neighbor, rest, 12)?;
        cx.ipv4_after("\n\t      Neighbor Interface-ID ", rest, 8)?;
        cx.ipv4_after(", Interface ", rest, 4)?;
        put!(cx, ", metric {}", rest.u16(2)?);
        rest = rest.skip(16);
    }
    Ok(true)
}

/// A prefix; how many bytes it takes, `None` if it is cut.
fn print_prefix(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    if span.length < 4 || span.captured() < 4 {
        return Ok(None);
    }
    let (bits, options, metric) = (span.u8(0)?, span.u8(1)?, span.u16(2)?);
    let length = usize::from(bits).div_ceil(32) * 4;
    if length > 16 {
        put!(cx, " bogus prefixlen /{bits}");
        return Ok(None);
    }
    if span.length < 4 + length {
        return Ok(None);
    }
    let bytes = span.bytes(4, length)?;
    let prefix: [u8; 16] = std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0));
    cx.text("\n\t\t");
    cx.host(prefix.into());
    put!(cx, "/{bits}");
    if options != 0 {
        cx.text(", Options [");
        put_bits(cx, PREFIX_OPTIONS, "none", ", ", u32::from(options));
        cx.text("]");
    }
    put!(cx, ", metric {metric}");
    Ok(Some(4 + length))
}

/// Prefixes up to a count; `u32::MAX` for all that are there.
fn print_prefixes(cx: &mut Context<'_>, mut rest: Span<'_>, count: u32) -> Whole {
    let mut printed = 0;
    while printed < count && (count != u32::MAX || rest.length > 0) {
        let Some(length) = print_prefix(cx, rest)? else { return Ok(false) };
        rest = rest.skip(length);
        printed += 1;
    }
    Ok(true)
}

fn print_external(cx: &mut Context<'_>, value: Span<'_>) -> Whole {
    let flags = value.u32(0)?;
    cx.text("\n\t     Flags [");
    put_bits(cx, EXTERNAL_FLAGS, "none", ", ", flags);
    put!(cx, "] metric {}", flags & 0xff_ffff);
    let prefix = value.skip(4);
    let Some(length) = print_prefix(cx, prefix)? else { return Ok(false) };
    let mut rest = prefix.skip(length);
    if flags & FORWARDING != 0 {
        if rest.length < 16 {
            return Ok(false);
        }
        let address = rest.array::<16>(0)?;
        cx.text(" forward ");
        cx.host(address.into());
        rest = rest.skip(16);
    }
    if flags & TAG != 0 {
        if rest.length < 4 {
            return Ok(false);
        }
        cx.ipv4_after(" tag ", rest, 0)?;
        rest = rest.skip(4);
    }
    if prefix.u8(2)? != 0 {
        if rest.length < 4 {
            return Ok(false);
        }
        cx.ipv4_after(" RefLSID: ", rest, 0)?;
    }
    Ok(true)
}

fn print_link(cx: &mut Context<'_>, value: Span<'_>) -> Whole {
    if value.captured() < 4 {
        return Ok(false);
    }
    print_options(cx, "\n\t      Options [", value.u32(0)?);
    if value.length < 24 {
        return Ok(false);
    }
    let (address, count) = (value.array::<16>(4)?, value.u32(20)?);
    put!(cx, "\n\t      Priority {}, Link-local address ", value.u8(0)?);
    cx.host(address.into());
    put!(cx, ", Prefixes {count}:");
    print_prefixes(cx, value.skip(24), count)
}

/// Prints the bytes behind the packet in the datagram: signaling if the options announce it, then authentication.
fn print_trailers(cx: &mut Context<'_>, kind: u8, body: Span<'_>, mut rest: Span<'_>) -> Whole {
    let options = match kind {
        1 => body.u32(4)?,
        2 => body.u32(0)?,
        _ => 0,
    };
    if options & LOCAL_SIGNALING != 0 && rest.length > 0 {
        if rest.length < SIGNALING_LEN {
            return Ok(false);
        }
        put!(cx, "\n\tLLS Checksum 0x{:04x}", rest.u16(0)?);
        let length = usize::from(rest.u16(2)?);
        put!(cx, ", Data Length {length}");
        if length < SIGNALING_LEN || length > rest.length || rest.captured() < length {
            return Ok(false);
        }
        rest = rest.skip(length);
    }
    if rest.length == 0 {
        return Ok(true);
    }
    if rest.length < AUTHENTICATION_LEN {
        return Ok(false);
    }
    match rest.u16(0)? {
        1 => cx.text("\n\tAuthentication Type HMAC"),
        kind => put!(cx, "\n\tAuthentication Type unknown (0x{kind:04x})"),
    }
    let length = usize::from(rest.u16(2)?);
    put!(cx, ", Length {length}");
    if length < AUTHENTICATION_LEN || length > rest.length {
        return Ok(false);
    }
    put!(cx, ", SAID {}", rest.u16(6)?);
    put!(cx, ", CSN 0x{:08x}", rest.u32(8)?);
    put!(cx, ":{:08x}", rest.u32(12)?);
    let digest = rest.skip(AUTHENTICATION_LEN).with_length(length - AUTHENTICATION_LEN);
    if digest.captured() < digest.length {
        return Ok(false);
    }
    if cx.verbose() > 1 {
        cx.hex_lines("\n\tAuthentication Data ", digest);
    }
    Ok(true)
}
