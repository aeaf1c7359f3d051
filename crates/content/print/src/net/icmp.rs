//! ICMP (RFC 792, RFC 950, RFC 1191, RFC 1256) and its extensions (RFC 4884, RFC 4950).
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | depends on the type 4 | quoted packet, times, addresses ... |
//! ```

use std::net::IpAddr;

use crate::bytes::{Printed, Span};
use crate::checksum;
use crate::context::{Context, lookup, put};
use crate::names::PortKind;
use crate::net::{Ip, ipv4, protocol};
use crate::text::Text;

mod extension;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const SOURCE_QUENCH: u8 = 4;
const REDIRECT: u8 = 5;
const ECHO: u8 = 8;
const ROUTER_ADVERTISEMENT: u8 = 9;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
const TIMESTAMP: u8 = 13;
const TIMESTAMP_REPLY: u8 = 14;
const MASK_REPLY: u8 = 18;

/// Offset of the quoted packet.
const QUOTE_AT: usize = 8;

const NAMES: &[(u8, &str)] = &[
    (ECHO_REPLY, "echo reply"),
    (SOURCE_QUENCH, "source quench"),
    (ECHO, "echo request"),
    (10, "router solicitation"),
    (TIMESTAMP, "time stamp request"),
    (TIMESTAMP_REPLY, "time stamp reply"),
    (15, "information request"),
    (16, "information reply"),
    (17, "address mask request"),
];

/// Prints an ICMP message.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "icmp";
    let kind = span.u8(0)?;
    let code = span.u8(1)?;
    // The text comes after fields that may be cut; then nothing of it is shown.
    let start = cx.out.len();
    cx.text("ICMP ");
    if let Err(cut) = print_meaning(cx, span, kind, code) {
        cx.out.truncate(start);
        return Err(cut);
    }
    cx.text(", length ");
    cx.dec(span.length);
    if cx.verbose() > 0 {
        print_checksum(cx, span, ip)?;
        print_quote(cx, span, kind)?;
        cx.protocol = "icmp";
        extension::print(cx, span, kind)?;
    }
    Ok(())
}

fn print_meaning(cx: &mut Context<'_>, span: Span<'_>, kind: u8, code: u8) -> Printed {
    match kind {
        ECHO | ECHO_REPLY => {
            cx.text(if kind == ECHO { "echo request" } else { "echo reply" });
            cx.text(", id ");
            cx.dec(span.u16(4)?);
            cx.text(", seq ");
            cx.dec(span.u16(6)?);
        }
        UNREACHABLE => unreachable(cx, span, code)?,
        REDIRECT => redirect(cx, span, code)?,
        ROUTER_ADVERTISEMENT => router_advertisement(cx, span)?,
        TIME_EXCEEDED => {
            span.need(QUOTE_AT + 20)?;
            match code {
                0 => cx.text("time exceeded in-transit"),
                1 => cx.text("ip reassembly time exceeded"),
                _ => put!(cx, "time exceeded-#{code}"),
            }
        }
        PARAMETER_PROBLEM if code != 0 => put!(cx, "parameter problem - code {code}"),
        PARAMETER_PROBLEM => put!(cx, "parameter problem - octet {}", span.u8(4)?),
        MASK_REPLY => put!(cx, "address mask is 0x{:08x}", span.u32(8)?),
        TIMESTAMP => put!(cx, "time stamp query id {} seq {}", span.u16(4)?, span.u16(6)?),
        TIMESTAMP_REPLY => timestamp_reply(cx, span)?,
        _ => match lookup(NAMES, kind) {
            Some(name) => cx.text(name),
            None => put!(cx, "type-#{kind}"),
        },
    }
    Ok(())
}

/// The destination of the quoted packet.
fn quoted_destination(span: Span<'_>) -> Result<IpAddr, crate::bytes::Cut> {
    span.array::<4>(QUOTE_AT + 16).map(IpAddr::from)
}

fn unreachable(cx: &mut Context<'_>, span: Span<'_>, code: u8) -> Printed {
    let destination = quoted_destination(span)?;
    let (before, after) = match code {
        0 => ("net ", " unreachable"),
        1 => ("host ", " unreachable"),
        2 => {
            cx.host(destination);
            put!(cx, " protocol {} unreachable", span.u8(QUOTE_AT + 9)?);
            return Ok(());
        }
        3 => return unreachable_port(cx, span, destination),
        4 => return fragmentation_needed(cx, span, destination),
        5 => ("", " unreachable - source route failed"),
        6 => ("net ", " unreachable - unknown"),
        7 => ("host ", " unreachable - unknown"),
        8 => ("", " unreachable - source host isolated"),
        9 => ("net ", " unreachable - admin prohibited"),
        10 => ("host ", " unreachable - admin prohibited"),
        11 => ("net ", " unreachable - tos prohibited"),
        12 => ("host ", " unreachable - tos prohibited"),
        13 => ("host ", " unreachable - admin prohibited filter"),
        14 => ("host ", " unreachable - host precedence violation"),
        15 => ("host ", " unreachable - precedence cutoff"),
        _ => {
            cx.host(destination);
            put!(cx, " unreachable - #{code}");
            return Ok(());
        }
    };
    cx.text(before);
    cx.host(destination);
    cx.text(after);
    Ok(())
}

fn unreachable_port(cx: &mut Context<'_>, span: Span<'_>, destination: IpAddr) -> Printed {
    let quoted_header_len = usize::from(span.u8(QUOTE_AT)? & 0x0f) * 4;
    let port = span.u16(QUOTE_AT + quoted_header_len + 2)?;
    let number = span.u8(QUOTE_AT + 9)?;
    cx.host(destination);
    let kind = match number {
        protocol::TCP => PortKind::Tcp,
        protocol::UDP => PortKind::Udp,
        _ => {
            put!(cx, " protocol {number} port {port} unreachable");
            return Ok(());
        }
    };
    cx.text(if kind == PortKind::Tcp { " tcp port " } else { " udp port " });
    cx.port(kind, port);
    cx.text(" unreachable");
    Ok(())
}

fn fragmentation_needed(cx: &mut Context<'_>, span: Span<'_>, destination: IpAddr) -> Printed {
    let mtu = span.u16(6)?;
    cx.host(destination);
    cx.text(" unreachable - need to frag");
    if mtu != 0 {
        put!(cx, " (mtu {mtu})");
    }
    Ok(())
}

fn redirect(cx: &mut Context<'_>, span: Span<'_>, code: u8) -> Printed {
    let destination = quoted_destination(span)?;
    let gateway = IpAddr::from(span.array::<4>(4)?);
    match code {
        0 | 1 => cx.text("redirect "),
        2 | 3 => cx.text("redirect-tos "),
        _ => put!(cx, "redirect-#{code} "),
    }
    cx.host(destination);
    cx.text(match code {
        0 | 2 => " to net ",
        1 | 3 => " to host ",
        _ => " to ",
    });
    cx.host(gateway);
    Ok(())
}

/// `| count 1 | words an entry 1 | lifetime 2 | (address 4, preference 4)... |` from the fifth byte on.
fn router_advertisement(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let (count, words, lifetime) = (span.u8(4)?, span.u8(5)?, span.u16(6)?);
    cx.text("router advertisement lifetime ");
    match lifetime {
        0..60 => put!(cx, "{lifetime}"),
        60..3600 => put!(cx, "{}:{:02}", lifetime / 60, lifetime % 60),
        _ => put!(cx, "{}:{:02}:{:02}", lifetime / 3600, lifetime % 3600 / 60, lifetime % 60),
    }
    put!(cx, " {count}:");
    if words != 2 {
        put!(cx, " [size {words}]");
        return Ok(());
    }
    for index in 0..usize::from(count) {
        let at = QUOTE_AT + index * 8;
        let preference = span.u32(at + 4)?;
        cx.text(" {");
        cx.host(IpAddr::from(span.array::<4>(at)?));
        put!(cx, " {preference}}}");
    }
    Ok(())
}

fn timestamp_reply(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    span.need(20)?;
    put!(cx, "time stamp reply id {} seq {}: org ", span.u16(4)?, span.u16(6)?);
    print_time_of_day(cx, span.u32(8)?);
    cx.text(", recv ");
    print_time_of_day(cx, span.u32(12)?);
    cx.text(", xmit ");
    print_time_of_day(cx, span.u32(16)?);
    Ok(())
}

/// Milliseconds since midnight.
fn print_time_of_day(cx: &mut Context<'_>, millis: u32) {
    let seconds = millis / 1000;
    put!(cx, "{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, millis % 1000);
}

fn print_checksum(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    if ip.fragmented || span.captured() < span.length {
        return Ok(());
    }
    let computed = checksum::internet(span.bytes(0, span.length)?);
    if computed != 0 {
        let field = span.u16(2)?;
        put!(cx, " (wrong icmp cksum {field:x} (->{:x})!)", checksum::should_be(field, computed));
    }
    Ok(())
}

/// The packet that an error is about, on a line of its own.
fn print_quote(cx: &mut Context<'_>, span: Span<'_>, kind: u8) -> Printed {
    if !matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM) {
        return Ok(());
    }
    cx.text("\n\t");
    let quote = span.skip(QUOTE_AT);
    // Extensions may follow the quote, which must not be taken for a part of it.
    let length = usize::from(quote.u16(2)?);
    ipv4::print(cx, Span { data: &quote.data[..length.min(quote.captured())], length })
}
