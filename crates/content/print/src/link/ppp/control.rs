//! Control protocols: LCP (RFC 1661), IPCP (RFC 1332), IPV6CP (RFC 5072), CCP (RFC 1962), BACP (RFC 2125).
//!
//! ```text
//! | code 1 | id 1 | length 2 | options (type 1, length 1, value)..., or a magic number and data |
//! ```

use std::net::IpAddr;

use super::{BACP, CCP, CHAP, EAP, IPCP, IPV6CP, LCP, LQM, PAP, SPAP, SPAP_OLD, name};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: usize = 4;

const CODES: [&str; 16] = [
    "Vendor-Extension",
    "Conf-Request",
    "Conf-Ack",
    "Conf-Nack",
    "Conf-Reject",
    "Term-Request",
    "Term-Ack",
    "Code-Reject",
    "Prot-Reject",
    "Echo-Request",
    "Echo-Reply",
    "Disc-Req",
    "Ident",
    "Time-Rem",
    "Reset-Req",
    "Reset-Ack",
];

const LCP_OPTIONS: [&str; 31] = [
    "Vend-Ext",
    "MRU",
    "ACCM",
    "Auth-Prot",
    "Qual-Prot",
    "Magic-Num",
    "deprecated(6)",
    "PFC",
    "ACFC",
    "FCS-Alt",
    "SDP",
    "Num-Mode",
    "deprecated(12)",
    "Call-Back",
    "deprecated(14)",
    "deprecated(15)",
    "deprecated(16)",
    "MRRU",
    "12-Bit seq #",
    "End-Disc",
    "Proprietary",
    "DCE-Id",
    "MP+",
    "Link-Disc",
    "LCP-Auth-Opt",
    "COBS",
    "Prefix-elision",
    "Multilink-header-Form",
    "I18N",
    "SDL-over-SONET/SDH",
    "PPP-Muxing",
];

const IPCP_OPTIONS: &[(u8, &str)] = &[
    (1, "IP-Addrs"),
    (2, "IP-Comp"),
    (3, "IP-Addr"),
    (4, "Home-Addr"),
    (129, "Pri-DNS"),
    (130, "Pri-NBNS"),
    (131, "Sec-DNS"),
    (132, "Sec-NBNS"),
];

const CCP_OPTIONS: &[(u8, &str)] = &[
    (0, "OUI"),
    (1, "Pred-1"),
    (2, "Pred-2"),
    (3, "Puddle"),
    (16, "HP-PPC"),
    (17, "Stac-LZS"),
    (18, "MPPC"),
    (19, "Gand-FZA"),
    (20, "V.42bis"),
    (21, "BSD-Comp"),
    (23, "LZS-DCP"),
    (24, "MVRCA"),
    (25, "DEC"),
    (26, "Deflate"),
    (255, "Reserved"),
];

/// Prints a packet of a control protocol; its contents only with `-v`.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, protocol: u16) -> Printed {
    let title = name(protocol).unwrap_or("unknown");
    put!(cx, "{title}, ");
    if span.length < HEADER_LEN {
        put!(cx, "[|{title}]");
        return Ok(());
    }
    let (code, id) = (span.u8(0)?, span.u8(1)?);
    let meaning = CODES.get(usize::from(code)).copied().unwrap_or("Unknown Opcode");
    put!(cx, "{meaning} (0x{code:02x}), id {id}, length {}", span.length + 2);
    if cx.verbose() == 0 {
        return Ok(());
    }
    let length = usize::from(span.u16(2)?);
    if length < HEADER_LEN {
        put!(cx, "\n\tencoded length {length} (< 4))");
        return Ok(());
    }
    if length > span.length {
        put!(cx, "\n\tencoded length {length} (> packet length {}))", span.length);
        return Ok(());
    }
    put!(cx, "\n\tencoded length {length} (=Option(s) length {})", length - HEADER_LEN);
    if length == HEADER_LEN {
        return Ok(());
    }
    if cx.verbose() > 1 {
        print_head(cx, span, protocol);
    }
    contents(cx, span, protocol, code, length)
}

/// The first bytes with the protocol number before them, which a shortened header may not have had.
fn print_head(cx: &mut Context<'_>, span: Span<'_>, protocol: u16) {
    let mut head = [0; 6];
    head[..2].copy_from_slice(&protocol.to_be_bytes());
    let captured = span.captured().min(HEADER_LEN);
    head[2..2 + captured].copy_from_slice(&span.data[..captured]);
    cx.hex_lines("\n\t", Span::whole(&head[..2 + captured]));
}

fn contents(cx: &mut Context<'_>, span: Span<'_>, protocol: u16, code: u8, length: usize) -> Printed {
    let body = span.skip(HEADER_LEN).with_length(length - HEADER_LEN);
    match code {
        0 if length >= 11 => {
            magic(cx, body)?;
            put!(cx, " Vendor: Unknown ({})", body.u24(4)?);
        }
        1..=4 => options(cx, body, protocol)?,
        8 if length >= 6 => {
            let rejected = body.u16(0)?;
            put!(cx, "\n\t  Rejected {} Protocol (0x{rejected:04x})", name(rejected).unwrap_or("unknown"));
            if length > 6 {
                cx.text("\n\t  Rejected Packet");
                cx.hex_lines("\n\t    ", body.skip(2).with_length(length - 2));
            }
        }
        9..=11 if length >= 8 => {
            magic(cx, body)?;
            if length > 8 {
                cx.text("\n\t  -----trailing data-----");
                body.need(length - HEADER_LEN)?;
                cx.hex_lines("\n\t  ", body.skip(4));
            }
        }
        12 if length >= 8 => {
            magic(cx, body)?;
            if length > 8 {
                cx.text("\n\t  Message\n\t    ");
                print_message(cx, body.skip(4), length - HEADER_LEN, protocol);
            }
        }
        13 if length >= 12 => {
            magic(cx, body)?;
            put!(cx, ", Seconds-Remaining {}s", body.u32(4)?);
        }
        0 | 5..=13 => {}
        _ if cx.verbose() <= 1 => cx.hex_lines("\n\t  ", span.with_length(length)),
        _ => {}
    }
    Ok(())
}

/// The text of an identification. The count takes in the magic number too, so that it often ends in a mark.
fn print_message(cx: &mut Context<'_>, text: Span<'_>, length: usize, protocol: u16) {
    let shown = &text.data[..length.min(text.captured())];
    if !cx.visible_until_nul(shown) && shown.len() < length {
        put!(cx, "[|{}]", name(protocol).unwrap_or("unknown"));
    }
}

fn magic(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    put!(cx, "\n\t  Magic-Num 0x{:08x}", body.u32(0)?);
    Ok(())
}

fn options(cx: &mut Context<'_>, body: Span<'_>, protocol: u16) -> Printed {
    let mut rest = body;
    while rest.length > 0 {
        if rest.length + HEADER_LEN < 2 || rest.captured() < 2 {
            return mark(cx, protocol);
        }
        let used = option(cx, rest, protocol)?;
        if used == 0 {
            return Ok(());
        }
        if used > rest.length {
            put!(cx, " [remaining options length {} < {used}]", rest.length);
            cx.invalid();
            return Ok(());
        }
        rest = rest.skip(used);
    }
    Ok(())
}

fn mark(cx: &mut Context<'_>, protocol: u16) -> Printed {
    cx.text(match protocol {
        LCP => "[|lcp]",
        IPCP => "[|ipcp]",
        IPV6CP => "[|ip6cp]",
        CCP => "[|ccp]",
        _ => "[|bacp]",
    });
    Ok(())
}

/// Prints an option and returns its number of bytes; 0 ends the list.
fn option(cx: &mut Context<'_>, rest: Span<'_>, protocol: u16) -> Result<usize, Cut> {
    let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
    let title = match protocol {
        LCP => LCP_OPTIONS.get(usize::from(kind)).copied(),
        IPCP => Some(lookup(IPCP_OPTIONS, kind).unwrap_or("unknown")),
        IPV6CP => Some(if kind == 1 { "Interface-ID" } else { "unknown" }),
        CCP => Some(lookup(CCP_OPTIONS, kind).unwrap_or("Unknown")),
        BACP => Some(if kind == 1 { "Favored-Peer" } else { "Unknown" }),
        _ => return Ok(0),
    };
    let Some(title) = title else {
        put!(cx, "\n\tunknown LCP option 0x{kind:02x}");
        return Ok(if length < 2 { 0 } else { length });
    };
    put!(cx, "\n\t  {title} Option (0x{kind:02x}), length {length}");
    if length < 2 {
        cx.text(" (length bogus, should be >= 2)");
        return Ok(0);
    }
    let value = rest.with_length(length).skip(2);
    let known = match protocol {
        LCP => lcp_value(cx, rest, value, kind)?,
        IPCP => ipcp_value(cx, value, kind)?,
        IPV6CP => ipv6cp_value(cx, value, kind)?,
        CCP => ccp_value(cx, value, kind)?,
        _ => bacp_value(cx, value, kind)?,
    };
    match known {
        Known::Bogus => return Ok(length),
        Known::No if cx.verbose() < 2 => cx.hex_lines("\n\t    ", value),
        _ => {}
    }
    if cx.verbose() > 1 {
        cx.hex_lines("\n\t    ", value);
    }
    Ok(length)
}

/// The result of printing an option's value.
enum Known {
    Yes,
    No,
    /// The length does not fit, and the text says so.
    Bogus,
}

fn bogus(cx: &mut Context<'_>, text: &str) -> Result<Known, Cut> {
    put!(cx, " (length bogus, should be {text})");
    Ok(Known::Bogus)
}

fn lcp_value(cx: &mut Context<'_>, option: Span<'_>, value: Span<'_>, kind: u8) -> Result<Known, Cut> {
    match (kind, value.length) {
        (0, ..4) => return bogus(cx, ">= 6"),
        (0, _) => put!(cx, ": Vendor: Unknown ({})", value.u24(0)?),
        (1 | 17 | 23, length) if length != 2 => return bogus(cx, "= 4"),
        (1 | 17, _) => put!(cx, ": {}", value.u16(0)?),
        (23, _) => put!(cx, ": 0x{:04x}", value.u16(0)?),
        (2 | 5, length) if length != 4 => return bogus(cx, "= 6"),
        (2 | 5, _) => put!(cx, ": 0x{:08x}", value.u32(0)?),
        (3 | 4, ..2) => return bogus(cx, ">= 4"),
        (3, length) => authentication_protocol(cx, option, value, length + 2)?,
        (4, _) => cx.text(if value.u16(0)? == LQM { ": LQR" } else { ": unknown" }),
        (7 | 8, _) => {}
        (13 | 19, 0) => return bogus(cx, ">= 3"),
        (13, _) => {
            let operation = value.u8(0)?;
            let names: &[(u8, &str)] = &[
                (0, "UserAuth"),
                (1, "DialString"),
                (2, "LocalID"),
                (3, "E.164"),
                (4, "X.500"),
                (6, "CBCP"),
            ];
            put!(
                cx,
                ": : Callback Operation {} ({operation})",
                lookup(names, operation).unwrap_or("Unknown")
            );
        }
        (19, _) => return endpoint(cx, value),
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}

fn authentication_protocol(
    cx: &mut Context<'_>,
    option: Span<'_>,
    value: Span<'_>,
    length: usize,
) -> Printed {
    let protocol = value.u16(0)?;
    match name(protocol) {
        Some(name) => put!(cx, ": {name}"),
        None => cx.text(": Unknown Auth Proto (0x04x)"),
    }
    match protocol {
        CHAP => match value.u8(2)? {
            5 => cx.text(", MD5"),
            128 => cx.text(", MS-CHAPv1"),
            129 => cx.text(", MS-CHAPv2"),
            algorithm => put!(cx, ", Unknown Auth Alg {algorithm}"),
        },
        PAP | EAP | SPAP | SPAP_OLD => {}
        _ => cx.hex_lines("\n\t", option.with_length(length)),
    }
    Ok(())
}

/// Endpoint discriminator of multilink PPP (RFC 1990).
fn endpoint(cx: &mut Context<'_>, value: Span<'_>) -> Result<Known, Cut> {
    match (value.u8(0)?, value.length) {
        (0, _) => cx.text(": Null"),
        (1, _) => cx.text(": Local"),
        (2, 5) => {
            cx.text(": IPv4 ");
            cx.host(IpAddr::from(value.array::<4>(1)?));
        }
        (2, _) => return bogus(cx, "= 7"),
        (3, 7) => {
            cx.text(": MAC ");
            cx.mac(value.bytes(1, 6)?);
        }
        (3, _) => return bogus(cx, "= 9"),
        (4, _) => cx.text(": Magic-Num-Block"),
        (5, _) => cx.text(": PSNDN"),
        (class, _) => put!(cx, ": Unknown class {class}"),
    }
    Ok(Known::Yes)
}

fn ipcp_value(cx: &mut Context<'_>, value: Span<'_>, kind: u8) -> Result<Known, Cut> {
    match (kind, value.length) {
        (1, 8) => {
            cx.text(": src ");
            cx.host(IpAddr::from(value.array::<4>(0)?));
            cx.text(", dst ");
            cx.host(IpAddr::from(value.array::<4>(4)?));
        }
        (1, _) => return bogus(cx, "= 10"),
        (2, ..2) => return bogus(cx, ">= 4"),
        (2, length) => {
            let protocol = value.u16(0)?;
            let title = match protocol {
                0x2d => "VJ-Comp",
                0x61 => "IP Header Compression",
                _ => "Unknown",
            };
            put!(cx, ": {title} (0x{protocol:02x}):");
            if protocol == 0x61 {
                if length < 12 {
                    return bogus(cx, ">= 14");
                }
                header_compression(cx, value)?;
            }
        }
        (3 | 4 | 129..=132, 4) => {
            cx.text(": ");
            cx.host(IpAddr::from(value.array::<4>(0)?));
        }
        (3 | 4 | 129..=132, _) => return bogus(cx, "= 6"),
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}

fn header_compression(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    put!(
        cx,
        "\n\t    TCP Space {}, non-TCP Space {}, maxPeriod {}, maxTime {}, maxHdr {}",
        value.u16(2)?,
        value.u16(4)?,
        value.u16(6)?,
        value.u16(8)?,
        value.u16(10)?
    );
    let mut rest = value.skip(12);
    if rest.length == 0 {
        return Ok(());
    }
    put!(cx, "\n\t      Suboptions, length {}", rest.length);
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        if kind == 0 || length == 0 {
            break;
        }
        let title = match kind {
            1 => "RTP-Compression",
            2 => "Enhanced RTP-Compression",
            _ => "Unknown",
        };
        put!(cx, "\n\t\t{title} Suboption #{kind}, length {length}");
        if rest.length < length {
            put!(cx, " [remaining suboptions length {} < {length}]", rest.length);
            cx.invalid();
            break;
        }
        rest = rest.skip(length);
    }
    Ok(())
}

fn ipv6cp_value(cx: &mut Context<'_>, value: Span<'_>, kind: u8) -> Result<Known, Cut> {
    match (kind, value.length) {
        (1, 8) => put!(
            cx,
            ": {:04x}:{:04x}:{:04x}:{:04x}",
            value.u16(0)?,
            value.u16(2)?,
            value.u16(4)?,
            value.u16(6)?
        ),
        (1, _) => return bogus(cx, "= 10"),
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}

fn ccp_value(cx: &mut Context<'_>, value: Span<'_>, kind: u8) -> Result<Known, Cut> {
    match (kind, value.length) {
        (21, 0) => return bogus(cx, ">= 3"),
        (21, _) => {
            let bits = value.u8(0)?;
            put!(cx, ": Version: {}, Dictionary Bits: {}", bits >> 5, bits & 0x1f);
        }
        (24 | 26, ..2) => return bogus(cx, ">= 4"),
        (24, _) => {
            let bits = value.u8(0)?;
            let enabled = if bits & 0x20 != 0 { "Enabled" } else { "Disabled" };
            put!(
                cx,
                ": Features: {}, PxP: {enabled}, History: {}, #CTX-ID: {}",
                bits >> 6,
                bits & 0x1f,
                value.u8(1)?
            );
        }
        (26, _) => {
            let (method, check) = (value.u8(0)?, value.u8(1)?);
            let title = if method & 0x0f == 8 { "zlib" } else { "unknown" };
            put!(
                cx,
                ": Window: {}K, Method: {title} (0x{:x}), MBZ: {}, CHK: {}",
                method >> 4,
                method & 0x0f,
                check >> 2,
                check & 3
            );
        }
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}

fn bacp_value(cx: &mut Context<'_>, value: Span<'_>, kind: u8) -> Result<Known, Cut> {
    match (kind, value.length) {
        (1, 4) => put!(cx, ": Magic-Num 0x{:08x}", value.u32(0)?),
        (1, _) => return bogus(cx, "= 6"),
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}
