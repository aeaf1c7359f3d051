//! IKE, versions 1 (RFC 2409) and 2 (RFC 7296), by the header; and what shares its second port (RFC 3948).
//!
//! ```text
//! initiator 8 | responder 8 | next payload 1 | version 1 | exchange 1 | flags 1 | message 4 | length 4
//! port 4500: FF alone keeps an address translation alive; four zero bytes go before IKE; anything else is ESP
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net::ipsec;
use crate::text::Text;

const HEADER_LEN: usize = 28;

const EXCHANGES: &[(u8, &str)] = &[
    (0, "none"),
    (1, "base"),
    (2, "ident"),
    (3, "auth"),
    (4, "agg"),
    (5, "inf"),
    (32, "oakley-quick"),
    (33, "oakley-newgroup"),
];

const EXCHANGES_2: &[(u8, &str)] = &[(34, "ikev2_init"), (35, "ikev2_auth"), (36, "child_sa"), (37, "inf2")];

/// A message on port 500.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "isakmp";
    span.need(HEADER_LEN)?;
    let version = span.u8(17)?;
    cx.text("isakmp");
    let message = span.u32(20)?;
    if cx.verbose() > 0 {
        put!(cx, " {}.{} msgid {message:08x}", version >> 4, version & 15);
    }
    cx.text(": ");
    match version >> 4 {
        1 => print_1(cx, span, message)?,
        2 => print_2(cx, span, message)?,
        _ => {}
    }
    Ok(())
}

fn print_1(cx: &mut Context<'_>, span: Span<'_>, message: u32) -> Printed {
    let (exchange, flags) = (span.u8(18)?, span.u8(19)?);
    match message {
        0 => cx.text("phase 1"),
        _ => cx.text("phase 2/others"),
    }
    // Who began is told by cookies seen before; without them, by the responder's being empty. tcpdump remembers.
    cx.text(if span.u64(8)? == 0 || message != 0 { " I " } else { " R " });
    match lookup(EXCHANGES, exchange) {
        Some(name) => cx.text(name),
        None => put!(cx, "#{exchange}"),
    }
    if flags & 3 != 0 {
        cx.text("[");
        cx.text(if flags & 1 != 0 { "E" } else { "" });
        cx.text(if flags & 2 != 0 { "C" } else { "" });
        cx.text("]");
    }
    Ok(())
}

fn print_2(cx: &mut Context<'_>, span: Span<'_>, message: u32) -> Printed {
    let (exchange, flags) = (span.u8(18)?, span.u8(19)?);
    cx.text(if message == 0 { "parent_sa " } else { "child_sa  " });
    match lookup(EXCHANGES_2, exchange) {
        Some(name) => cx.text(name),
        None => put!(cx, "#{exchange}"),
    }
    if flags != 0 {
        cx.text("[");
        cx.text(if flags & 0x08 != 0 { "I" } else { "" });
        cx.text(if flags & 0x10 != 0 { "V" } else { "" });
        cx.text(if flags & 0x20 != 0 { "R" } else { "" });
        cx.text("]");
    }
    Ok(())
}

/// A packet on port 4500.
pub(crate) fn print_traversal(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "isakmp_rfc3948";
    let first = span.u8(0)?;
    if span.length == 1 && first == 0xff {
        cx.text("isakmp-nat-keep-alive");
        return Ok(());
    }
    if span.length < 4 {
        cx.cut();
        return Ok(());
    }
    if span.u32(0)? == 0 {
        cx.text("NONESP-encap: ");
        return print(cx, span.skip(4));
    }
    cx.text("UDP-encap: ");
    ipsec::encapsulation(cx, span)
}
