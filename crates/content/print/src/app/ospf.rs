//! OSPF, version 2 (RFC 2328): `OSPFv2, Hello, length 52`; with `-v` the packet's fields.
//!
//! ```text
//! version 1 | type 1 | length 2 | router 4 | area 4 | checksum 2 | authentication type 2 | authentication 8
//! hello    = mask 4, interval 2, options 1, priority 1, dead 4, designated 4, backup 4, neighbors 4 each
//! database = MTU 2, options 1, flags 1, sequence 4, headers
//! request  = (type 4, identifier 4, router 4)*      acknowledgment = headers      update = count 4, advertisements
//! ```

mod advertisement;
mod engineering;
pub(crate) mod version3;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const HEADER_LEN: usize = 24;
const LINK_STATE_HEADER_LEN: usize = 20;

const CRYPTOGRAPHIC: u16 = 2;
const DIGEST_LEN: usize = 16;

/// The option that announces link-local signaling.
const LOCAL_SIGNALING: u8 = 0x10;

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

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ospf2";
    // The digest of cryptographic authentication follows the packet and does not count (RFC 2328, D.4.3).
    let span = match span.u16(14)? {
        CRYPTOGRAPHIC => Span {
            data: &span.data[..span.data.len().saturating_sub(DIGEST_LEN)],
            length: span.length.saturating_sub(DIGEST_LEN),
        },
        _ => span,
    };
    let (version, kind) = (span.u8(0)?, span.u8(1)?);
    match lookup(PACKETS, kind) {
        Some(name) => put!(cx, "OSPFv{version}, {name}, length {}", span.length),
        None => put!(cx, "OSPFv{version}, unknown LS-type {kind}, length {}", span.length),
    }
    if cx.verbose() == 0 || lookup(PACKETS, kind).is_none() {
        return Ok(());
    }
    let length = usize::from(span.u16(2)?);
    if length != span.length {
        put!(cx, " [len {length}]");
    }
    cx.ipv4_after("\n\tRouter-ID ", span, 4)?;
    match span.u32(8)? {
        0 => cx.text(", Backbone Area"),
        _ => cx.ipv4_after(", Area ", span, 8)?,
    }
    if !print_authentication(cx, span)? {
        return Ok(());
    }
    if version != 2 {
        put!(cx, " ospf [version {version}]");
        return Ok(());
    }
    let body = span.skip(HEADER_LEN).with_length(length.min(span.length).saturating_sub(HEADER_LEN));
    match kind {
        1 => print_hello(cx, body)?,
        2 => print_database(cx, body)?,
        3 => print_requests(cx, body)?,
        4 => print_update(cx, body)?,
        // tcpdump looks for headers up to the end of what was captured.
        _ => print_headers(cx, body.with_length(usize::MAX))?,
    }
    if span.length > length {
        print_local_signaling(cx, span, length)?;
    }
    Ok(())
}

/// `false` if the authentication is of an unknown type, which ends the text.
fn print_authentication(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    let kind = span.u16(14)?;
    span.need(HEADER_LEN)?;
    put!(cx, ", Authentication Type: {} ({kind})", lookup(AUTHENTICATIONS, kind).unwrap_or("unknown"));
    match kind {
        0 => {}
        1 => {
            cx.text("\n\tSimple text password: ");
            cx.visible_until_nul(span.bytes(16, 8)?);
        }
        CRYPTOGRAPHIC => {
            put!(cx, "\n\tKey-ID: {}, Auth-Length: {}", span.u8(18)?, span.u8(19)?);
            put!(cx, ", Crypto Sequence Number: 0x{:08x}", span.u32(20)?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn print_options(cx: &mut Context<'_>, options: u8) {
    cx.text("\n\tOptions [");
    put_bits(cx, OPTIONS, "none", ", ", u32::from(options));
    cx.text("]");
}

fn print_hello(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    print_options(cx, body.u8(6)?);
    let (hello, dead, priority) = (body.u16(4)?, body.u32(8)?, body.u8(7)?);
    put!(cx, "\n\t  Hello Timer {hello}s, Dead Timer {dead}s");
    cx.ipv4_after(", Mask ", body, 0)?;
    put!(cx, ", Priority {priority}");
    if body.u32(12)? != 0 {
        cx.ipv4_after("\n\t  Designated Router ", body, 12)?;
    }
    if body.u32(16)? != 0 {
        cx.ipv4_after(", Backup Designated Router ", body, 16)?;
    }
    if body.length > 20 {
        cx.text("\n\t  Neighbor List:");
    }
    for at in (20..body.length).step_by(4) {
        cx.ipv4_after("\n\t    ", body, at)?;
    }
    Ok(())
}

fn print_database(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    print_options(cx, body.u8(2)?);
    let flags = body.u8(3)?;
    cx.text(", DD Flags [");
    put_bits(cx, DATABASE_FLAGS, "none", ", ", u32::from(flags));
    cx.text("]");
    let unit = body.u16(0)?;
    if unit != 0 {
        put!(cx, ", MTU: {unit}");
    }
    put!(cx, ", Sequence: 0x{:08x}", body.u32(4)?);
    print_headers(cx, body.skip(8))
}

fn print_requests(cx: &mut Context<'_>, mut body: Span<'_>) -> Printed {
    while body.length > 0 {
        body.need(12)?;
        let kind = body.u32(0)?;
        cx.ipv4_after("\n\t  Advertising Router: ", body, 8)?;
        put!(cx, ", {} LSA ({kind})", lookup(LINK_STATES, kind).unwrap_or("unknown"));
        match kind {
            9..=11 => {
                let (name, kind, number) = advertisement::opaque(body.u32(4)?);
                put!(cx, ", Opaque-Type: {name} LSA ({kind}), Opaque-ID: {number}");
            }
            _ => cx.ipv4_after(", LSA-ID: ", body, 4)?,
        }
        body = body.skip(12);
    }
    Ok(())
}

fn print_headers(cx: &mut Context<'_>, mut body: Span<'_>) -> Printed {
    while body.length > 0 && advertisement::print_header(cx, body)?.is_some() {
        body = body.skip(LINK_STATE_HEADER_LEN);
    }
    Ok(())
}

fn print_update(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    let count = body.u32(0)?;
    put!(cx, ", {count} LSA{}", if count == 1 { "" } else { "s" });
    let mut rest = body.skip(4);
    // Each advertisement takes at least 20 of the captured bytes.
    for number in 1..=count {
        put!(cx, "\n\t  LSA #{number}");
        let Some(length) = advertisement::print(cx, rest)? else { return Err(Cut) };
        rest = rest.skip(length);
    }
    Ok(())
}

/// Link-local signaling behind hellos and database descriptions whose options announce it (RFC 5613).
///
/// ```text
/// checksum 2 | words 2 | (type 2, length 2, value)*
/// ```
fn print_local_signaling(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Printed {
    const EXTENDED_OPTIONS: u16 = 1;
    const AUTHENTICATION: u16 = 2;
    let options = match span.u8(1)? {
        1 => span.u8(HEADER_LEN + 6)?,
        2 => span.u8(HEADER_LEN + 2)?,
        _ => return Ok(()),
    };
    if options & LOCAL_SIGNALING == 0 {
        return Ok(());
    }
    let digest_len = if span.u16(14)? == CRYPTOGRAPHIC { usize::from(span.u8(19)?) } else { 0 };
    let start = length + digest_len;
    if start >= span.length {
        cx.text("\n\t[LLS truncated]");
        return Ok(());
    }
    put!(cx, "\n\t  LLS: checksum: 0x{:04x}", span.u16(start)?);
    put!(cx, ", length: {}", span.u16(start + 2)?);
    let mut at = start + 4;
    while at < span.length {
        let kind = span.u16(at)?;
        let name =
            lookup(&[(EXTENDED_OPTIONS, "Extended Options"), (AUTHENTICATION, "MD5 Authentication")], kind);
        put!(cx, "\n\t    {} ({kind})", name.unwrap_or("Unknown TLV"));
        let mut length = usize::from(span.u16(at + 2)?);
        put!(cx, ", length: {length}");
        let wanted = match kind {
            EXTENDED_OPTIONS => 4,
            AUTHENTICATION => 20,
            _ => length,
        };
        if length != wanted {
            put!(cx, " [should be {wanted}]");
            length = wanted;
        }
        at += 4;
        match kind {
            EXTENDED_OPTIONS => {
                let options = span.u32(at)?;
                put!(cx, "\n\t      Options: 0x{options:08x} [");
                put_bits(cx, &[(1, "LSDB resync"), (2, "Restart")], "?", ", ", options);
                cx.text("]");
            }
            AUTHENTICATION => put!(cx, "\n\t      Sequence number: 0x{:08x}", span.u32(at)?),
            _ => {}
        }
        at += length;
    }
    Ok(())
}
