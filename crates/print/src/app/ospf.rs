//! OSPF, version 2 (RFC 2328): `OSPFv2, Hello, length 52`; with `-v` the packet's fields.
//!
//! ```text
//! version 1 | type 1 | length 2 | router 4 | area 4 | checksum 2 | authentication type 2 | authentication 8
//! hello    = mask 4, interval 2, options 1, priority 1, dead 4, designated 4, backup 4, neighbors 4 each
//! database = MTU 2, options 1, flags 1, sequence 4, headers
//! request  = (type 4, identifier 4, router 4)*      acknowledgment = headers      update = count 4, advertisements
//! header   = age 2, options 1, type 1, identifier 4, router 4, sequence 4, checksum 2, length 2
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const HEADER_LEN: usize = 24;
const LINK_STATE_HEADER_LEN: usize = 20;

const CRYPTOGRAPHIC: u16 = 2;
const DIGEST_LEN: usize = 16;

const PACKETS: &[(u8, &str)] =
    &[(1, "Hello"), (2, "Database Description"), (3, "LS-Request"), (4, "LS-Update"), (5, "LS-Ack")];

const OPTIONS: &[(u32, &str)] = &[
    (0x01, "MultiTopology"),
    (0x02, "External"),
    (0x04, "Multicast"),
    (0x08, "NSSA"),
    (0x10, "LLS"),
    (0x20, "Demand Circuit"),
    (0x40, "Opaque"),
    (0x80, "Up/Down"),
];

const DATABASE_FLAGS: &[(u32, &str)] =
    &[(0x04, "Init"), (0x02, "More"), (0x01, "Master"), (0x08, "OOBResync")];

const LINK_STATES: &[(u32, &str)] = &[
    (1, "Router"),
    (2, "Network"),
    (3, "Summary"),
    (4, "ASBR Summary"),
    (5, "External"),
    (6, "Multicast Group"),
    (7, "NSSA"),
    (9, "Link Local Opaque"),
    (10, "Area Local Opaque"),
    (11, "Domain Wide Opaque"),
];

const AUTHENTICATIONS: &[(u16, &str)] = &[(0, "none"), (1, "simple"), (2, "MD5")];

/// One packet.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ospf2";
    // The digest of cryptographic authentication follows the packet and does not count (RFC 2328, D.4.3).
    let span = match span.u16(14)? {
        CRYPTOGRAPHIC => span.limit(span.length.saturating_sub(DIGEST_LEN)),
        _ => span,
    };
    let (version, kind) = (span.u8(0)?, span.u8(1)?);
    match lookup(PACKETS, kind) {
        Some(name) => put!(cx, "OSPFv{version}, {name}, length {}", span.length),
        None => put!(cx, "OSPFv{version}, unknown LS-type {kind}, length {}", span.length),
    }
    if cx.verbose() == 0 || version != 2 || lookup(PACKETS, kind).is_none() {
        return Ok(());
    }
    if print_fields(cx, span, kind).is_err() {
        cx.cut();
    }
    Ok(())
}

fn print_fields(cx: &mut Context<'_>, span: Span<'_>, kind: u8) -> Printed {
    let length = usize::from(span.u16(2)?);
    if length != span.length {
        put!(cx, " [len {length}]");
    }
    cx.text("\n\tRouter-ID ");
    cx.host(span.array::<4>(4)?.into());
    match span.array::<4>(8)? {
        [0, 0, 0, 0] => cx.text(", Backbone Area"),
        area => {
            cx.text(", Area ");
            cx.ipv4(area);
        }
    }
    print_authentication(cx, span)?;
    let body = span.limit(length.min(span.length)).skip(HEADER_LEN);
    match kind {
        1 => print_hello(cx, body),
        2 => {
            print_options(cx, body.u8(2)?);
            cx.text(", DD Flags [");
            put_bits(cx, DATABASE_FLAGS, "none", ", ", u32::from(body.u8(3)?));
            put!(cx, "], MTU: {}, Sequence: 0x{:08x}", body.u16(0)?, body.u32(4)?);
            print_headers(cx, body.skip(8))
        }
        3 => print_requests(cx, body),
        4 => print_update(cx, body),
        _ => print_headers(cx, body),
    }
}

fn print_authentication(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let kind = span.u16(14)?;
    span.need(HEADER_LEN)?;
    put!(cx, ", Authentication Type: {} ({kind})", lookup(AUTHENTICATIONS, kind).unwrap_or("unknown type"));
    match kind {
        1 => {
            cx.text("\n\tSimple text password: ");
            cx.visible_until_nul(span.bytes(16, 8)?);
        }
        2 => {
            put!(cx, "\n\tKey-ID: {}, Auth-Length: {}", span.u8(18)?, span.u8(19)?);
            put!(cx, ", Crypto Sequence Number: 0x{:08x}", span.u32(20)?);
        }
        _ => {}
    }
    Ok(())
}

fn print_options(cx: &mut Context<'_>, options: u8) {
    cx.text("\n\tOptions [");
    put_bits(cx, OPTIONS, "none", ", ", u32::from(options));
    cx.text("]");
}

fn print_hello(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    print_options(cx, body.u8(6)?);
    put!(cx, "\n\t  Hello Timer {}s, Dead Timer {}s, Mask ", body.u16(4)?, body.u32(8)?);
    cx.ipv4(body.array(0)?);
    put!(cx, ", Priority {}", body.u8(7)?);
    let designated = body.array::<4>(12)?;
    if designated != [0; 4] {
        cx.text("\n\t  Designated Router ");
        cx.host(designated.into());
    }
    let backup = body.array::<4>(16)?;
    if backup != [0; 4] {
        cx.text(", Backup Designated Router ");
        cx.host(backup.into());
    }
    let mut rest = body.skip(20);
    if rest.length > 0 {
        cx.text("\n\t  Neighbor List:");
    }
    while rest.length > 0 {
        let neighbor = rest.array::<4>(0)?;
        cx.text("\n\t    ");
        cx.host(neighbor.into());
        rest = rest.skip(4);
    }
    Ok(())
}

fn print_requests(cx: &mut Context<'_>, mut body: Span<'_>) -> Printed {
    while body.length > 0 {
        let kind = body.u32(0)?;
        cx.text("\n\t  Advertising Router: ");
        cx.host(body.array::<4>(8)?.into());
        put!(cx, ", {} LSA ({kind}), LSA-ID: ", lookup(LINK_STATES, kind).unwrap_or("unknown"));
        cx.host(body.array::<4>(4)?.into());
        body = body.skip(12);
    }
    Ok(())
}

fn print_headers(cx: &mut Context<'_>, mut body: Span<'_>) -> Printed {
    while body.length > 0 {
        if print_header(cx, body)?.is_none() {
            break;
        }
        body = body.skip(LINK_STATE_HEADER_LEN);
    }
    Ok(())
}

/// Each advertisement by its header alone.
fn print_update(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    let count = body.u32(0)?;
    put!(cx, ", {count} LSA{}", if count == 1 { "" } else { "s" });
    let mut rest = body.skip(4);
    while rest.length > 0 {
        let Some(length) = print_header(cx, rest)? else { break };
        rest = rest.skip(length);
    }
    Ok(())
}

/// The header of an advertisement; the length that it gives, `None` if that is too short for it.
fn print_header(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, crate::bytes::Cut> {
    let length = usize::from(span.u16(18)?);
    if length < LINK_STATE_HEADER_LEN {
        put!(cx, "\n\t    Bogus length {length} < header ({LINK_STATE_HEADER_LEN})");
        return Ok(None);
    }
    cx.text("\n\t  Advertising Router ");
    cx.host(span.array::<4>(8)?.into());
    let body_len = length - LINK_STATE_HEADER_LEN;
    put!(cx, ", seq 0x{:08x}, age {}s, length {body_len}", span.u32(12)?, span.u16(0)?);
    let kind = u32::from(span.u8(3)?);
    put!(cx, "\n\t    {} LSA ({kind}), ", lookup(LINK_STATES, kind).unwrap_or("unknown"));
    let identifier = span.u32(4)?;
    match kind {
        9..=11 => print_opaque(cx, identifier),
        _ => {
            cx.text("LSA-ID: ");
            cx.host(identifier.to_be_bytes().into());
        }
    }
    cx.text("\n\t    Options: [");
    put_bits(cx, OPTIONS, "none", ", ", u32::from(span.u8(2)?));
    cx.text("]");
    Ok(Some(length))
}

/// The identifier of an opaque advertisement is a type and a number (RFC 5250).
fn print_opaque(cx: &mut Context<'_>, identifier: u32) {
    const TYPES: &[(u32, &str)] =
        &[(1, "Traffic Engineering"), (3, "Graceful restart"), (4, "Router Information")];
    let kind = identifier >> 24;
    let name = lookup(TYPES, kind).unwrap_or("unknown");
    put!(cx, "Opaque-Type {name} LSA ({kind}), Opaque-ID {}", identifier & 0xff_ffff);
}
