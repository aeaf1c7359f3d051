//! IKE, versions 1 (RFC 2408, RFC 2409) and 2 (RFC 7296); and the protocols that share its second port (RFC 3948).
//!
//! ```text
//! initiator 8 | responder 8 | next payload 1 | version 1 | exchange 1 | flags 1 | message 4 | length 4 | payloads
//! payload  = next payload 1 | flags 1 | length 2, with this header | contents
//! port 4500: FF alone keeps an address translation alive; four zero bytes go before IKE; anything else is ESP
//! ```
//!
//! Text: `isakmp: phase 1 I ident`; with `-v` each payload on a line of its own, in parentheses.

mod attribute;
mod initiators;
mod version1;
mod version2;

pub(crate) use initiators::Initiators;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::net::{Ip, ipsec};
use crate::text::Text;
use initiators::End;

const HEADER_LEN: usize = 28;
/// The header that all payloads share.
const PAYLOAD_HEADER_LEN: usize = 4;

/// Maximum nesting depth of payloads before the rest is left as it is.
const DEPTH_MAX: usize = 16;

const ENCRYPTED: u8 = 0x01;
const COMMIT: u8 = 0x02;

/// The offset in the message at which the text of a payload ended; `None` if its bytes ended too early, which the text
/// says.
type PayloadEnd = Result<Option<usize>, Cut>;

/// Names of exchanges, by their number; empty where there is none.
#[rustfmt::skip]
const EXCHANGES: [&str; 38] = [
    "none", "base", "ident", "auth", "agg", "inf", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "",
    "", "", "", "", "", "", "", "", "", "", "oakley-quick", "oakley-newgroup", "ikev2_init", "ikev2_auth",
    "child_sa", "inf2",
];

/// Names of payloads, by their number.
#[rustfmt::skip]
const PAYLOADS: [&str; 49] = [
    "none", "sa", "p", "t", "ke", "id", "cert", "cr", "hash", "sig", "nonce", "n", "d", "vid", "pay14", "pay15",
    "pay16", "pay17", "pay18", "pay19", "pay20", "pay21", "pay22", "pay23", "pay24", "pay25", "pay26", "pay27",
    "pay28", "pay29", "pay30", "pay31", "pay32", "v2sa", "v2ke", "v2IDi", "v2IDr", "v2cert", "v2cr", "v2auth",
    "v2nonce", "v2n", "v2d", "v2vid", "v2TSi", "v2TSr", "v2e", "v2cp", "v2eap",
];

const PROTOCOLS: [&str; 5] = ["", "isakmp", "ipsec-ah", "ipsec-esp", "ipcomp"];

/// The name of a number, or `#number`.
fn print_name(cx: &mut Context<'_>, names: &[&str], number: impl Into<usize>) {
    let number = number.into();
    match names.get(number) {
        Some(name) if !name.is_empty() => cx.text(name),
        _ => put!(cx, "#{number}"),
    }
}

/// Bytes in hexadecimal. `false`, and nothing printed, if they were not captured.
fn print_hex(cx: &mut Context<'_>, message: Span<'_>, at: usize, length: usize) -> bool {
    let Ok(bytes) = message.bytes(at, length) else { return false };
    bytes.iter().for_each(|&byte| cx.hex(byte, 2));
    true
}

/// The first 10 bytes of the rest of the message, and the last 20.
fn print_some(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> bool {
    cx.text(" data=(");
    let end = message.captured();
    if at > end {
        return false;
    }
    let first = (end - at).min(10);
    let last = end.saturating_sub(20).max(at + first);
    print_hex(cx, message, at, first);
    cx.text("...");
    print_hex(cx, message, last, end - last);
    cx.text(")");
    true
}

/// ` len=N`, and at `-vvv` the bytes behind the payload's header. `false` if that was not captured.
fn print_whole(cx: &mut Context<'_>, message: Span<'_>, at: usize, length: usize, name: &str) -> bool {
    put!(cx, " {name}={}", length - PAYLOAD_HEADER_LEN);
    print_contents(cx, message, at, length, PAYLOAD_HEADER_LEN)
}

/// At `-vvv` a payload behind its first `header_len` bytes. `false` if it was not captured.
fn print_contents(
    cx: &mut Context<'_>,
    message: Span<'_>,
    at: usize,
    length: usize,
    header_len: usize,
) -> bool {
    if cx.verbose() <= 2 || length <= header_len {
        return true;
    }
    cx.text(" ");
    print_hex(cx, message, at + header_len, length - header_len)
}

/// ` [|payload]`.
fn cut_in(cx: &mut Context<'_>, payload: impl Into<usize>) -> Option<usize> {
    cx.text(" [|");
    print_name(cx, &PAYLOADS, payload);
    cx.text("]");
    None
}

fn start_line(cx: &mut Context<'_>, depth: usize) {
    cx.text("\n");
    (0..depth).for_each(|_| cx.text("    "));
    cx.text("(");
}

/// Prints one payload: message, its number, where it starts, its length, the depth of its line.
type PayloadPrinter<'f> = &'f mut dyn FnMut(&mut Context<'_>, Span<'_>, Payload) -> PayloadEnd;

/// A payload in a message.
#[derive(Clone, Copy, Debug)]
struct Payload {
    kind: u8,
    at: usize,
    /// With its header; more than 4.
    length: usize,
    depth: usize,
}

/// Prints a chain of payloads, the first of which is of a kind; where it ends.
fn print_chain(
    cx: &mut Context<'_>,
    message: Span<'_>,
    (mut kind, mut at): (u8, usize),
    depth: usize,
    print: PayloadPrinter<'_>,
) -> PayloadEnd {
    if depth >= DEPTH_MAX {
        cx.text(" [nested too deep]");
        return Ok(None);
    }
    // Each payload is at least 5 bytes of the message.
    while kind != 0 {
        let length = match message.u16(at + 2) {
            Ok(length) if message.bytes(at, usize::from(length)).is_ok() => usize::from(length),
            _ => return Ok(cut_in(cx, kind)),
        };
        start_line(cx, depth + 1);
        let end = if length <= PAYLOAD_HEADER_LEN {
            None
        } else {
            print(cx, message, Payload { kind, at, length, depth: depth + 1 })?
        };
        cx.text(")");
        let Some(end) = end else { return Ok(None) };
        kind = message.u8(at)?;
        at = end;
    }
    Ok(Some(at))
}

/// A message on port 500.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "isakmp";
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    let version = span.u8(17)?;
    cx.text("isakmp");
    if cx.verbose() > 0 {
        put!(cx, " {}.{} msgid {:08x}", version >> 4, version & 15, span.u32(20)?);
    }
    if cx.verbose() > 1 {
        put!(cx, " cookie {:016x}->{:016x}", span.u64(0)?, span.u64(8)?);
    }
    cx.text(":");
    match version >> 4 {
        1 => print_1(cx, span, ip)?,
        2 => print_2(cx, span)?,
        _ => {}
    }
    Ok(())
}

fn print_1(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    let flags = span.u8(19)?;
    cx.text(if span.u32(20)? == 0 { " phase 1" } else { " phase 2/others" });
    let side = side(cx.initiators, span.u64(0)?, span.u64(8)?, ip);
    cx.text(side);
    print_name(cx, &EXCHANGES, span.u8(18)?);
    if flags != 0 {
        cx.text("[");
        cx.text(if flags & ENCRYPTED != 0 { "E" } else { "" });
        cx.text(if flags & COMMIT != 0 { "C" } else { "" });
        cx.text("]");
    }
    print_body(cx, span, flags, |cx, first| version1::print(cx, span, first))
}

/// The end that sent a message, with spaces around its letter.
fn side(initiators: &mut Initiators, initiator: u64, responder: u64, ip: &Ip) -> &'static str {
    if !initiators.knows(initiator) {
        if responder != 0 {
            return " ? ";
        }
        initiators.enter(initiator, ip.source, ip.destination);
        return " I ";
    }
    match initiators.end(initiator, ip.source) {
        Some(End::Initiator) => " I ",
        Some(End::Responder) => " R ",
        None => " ? ",
    }
}

fn print_2(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let flags = span.u8(19)?;
    cx.text(if span.u32(20)? == 0 { " parent_sa " } else { " child_sa  " });
    print_name(cx, &EXCHANGES, span.u8(18)?);
    if flags != 0 {
        cx.text("[");
        cx.text(if flags & 0x08 != 0 { "I" } else { "" });
        cx.text(if flags & 0x10 != 0 { "V" } else { "" });
        cx.text(if flags & 0x20 != 0 { "R" } else { "" });
        cx.text("]");
    }
    print_body(cx, span, flags, |cx, first| version2::print(cx, span, first))
}

/// At `-v` the payloads, unless they are encrypted, and a length that is not that of the datagram.
fn print_body(
    cx: &mut Context<'_>,
    span: Span<'_>,
    flags: u8,
    print: impl FnOnce(&mut Context<'_>, (u8, usize)) -> PayloadEnd,
) -> Printed {
    if cx.verbose() == 0 {
        return Ok(());
    }
    cx.text(":");
    let first = span.u8(16)?;
    if flags & ENCRYPTED != 0 {
        cx.text(" [encrypted ");
        print_name(cx, &PAYLOADS, first);
        cx.text("]");
    } else {
        print(cx, (first, HEADER_LEN))?;
    }
    let length = span.u32(24)?;
    if length as usize != span.length {
        put!(cx, " (len mismatch: isakmp {length}/ip {})", span.length);
    }
    Ok(())
}

/// A packet on port 4500.
pub(crate) fn print_traversal(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "isakmp_rfc3948";
    if span.length == 1 && span.u8(0)? == 0xff {
        cx.text("isakmp-nat-keep-alive");
        return Ok(());
    }
    if span.length < 4 {
        cx.cut();
        return Ok(());
    }
    if span.u32(0)? == 0 {
        cx.text("NONESP-encap: ");
        return print(cx, span.skip(4), ip);
    }
    cx.text("UDP-encap: ");
    ipsec::encapsulation(cx, span)
}
