//! Node information queries (RFC 4620).
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | query type 2 | flags 2 | nonce 8 | name or addresses ... |
//! ```

use std::net::IpAddr;

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HEADER_LEN: usize = 16;
const QUERY: u8 = 139;

const NO_OPERATION: u16 = 0;
const SUPPORTED_TYPES: u16 = 1;
const NAME: u16 = 2;
const ADDRESSES: u16 = 3;

/// Flags of node addresses (RFC 4620, 6.3); anycast is an experiment of KAME.
const ADDRESS_FLAGS: [(u16, &str); 7] =
    [(0x40, "a"), (0x20, "G"), (0x10, "S"), (0x08, "L"), (0x04, "C"), (0x02, "A"), (0x01, "T")];

/// Prints a query or a reply.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.u8(0)? == QUERY { query(cx, span) } else { reply(cx, span) }
}

fn query(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.captured() == 12 {
        cx.text(" who-are-you request");
        return Ok(());
    }
    cx.text(" node information query");
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    cx.text(" (");
    let kind = span.u16(4)?;
    print_kind(cx, kind, span.u16(6)?, 6);
    if matches!(kind, NO_OPERATION | SUPPORTED_TYPES) {
        if span.captured() != HEADER_LEN && cx.verbose() > 0 {
            cx.text(", invalid len");
        }
    } else if span.captured() == HEADER_LEN {
        cx.text(", 03 draft");
    } else {
        subject(cx, span)?;
    }
    cx.text(")");
    Ok(())
}

fn print_kind(cx: &mut Context<'_>, kind: u16, flags: u16, known_flags: usize) {
    match kind {
        NO_OPERATION => cx.text("noop"),
        SUPPORTED_TYPES => {
            cx.text("supported qtypes");
            if flags != 0 {
                put!(cx, " [{}]", if flags & 1 != 0 { "C" } else { "" });
            }
        }
        NAME => cx.text("DNS name"),
        ADDRESSES => {
            cx.text("node addresses");
            print_address_flags(cx, flags, known_flags);
        }
        _ => cx.text("unknown"),
    }
}

fn print_address_flags(cx: &mut Context<'_>, flags: u16, known: usize) {
    if flags == 0 {
        return;
    }
    cx.text(" [");
    for (bit, letter) in ADDRESS_FLAGS.iter().take(known) {
        if flags & bit != 0 {
            cx.text(letter);
        }
    }
    cx.text("]");
}

/// Prints the subject of a query, whose form the code gives.
fn subject(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let value = span.skip(HEADER_LEN);
    match span.u8(1)? {
        0 => match value.array::<16>(0) {
            Ok(address) if value.captured() == 16 => {
                cx.text(", subject=");
                cx.host(IpAddr::from(address));
            }
            Ok(_) if cx.verbose() > 0 => cx.text(", invalid subject len"),
            _ => {}
        },
        1 => {
            cx.text(", subject=DNS name");
            name(cx, value)?;
        }
        2 => match value.array::<4>(0) {
            Ok(address) if value.captured() == 4 => {
                cx.text(", subject=");
                cx.host(IpAddr::from(address));
            }
            Ok(_) if cx.verbose() > 0 => cx.text(", invalid subject len"),
            _ => {}
        },
        _ => cx.text(", unknown subject"),
    }
    Ok(())
}

/// A name as one counted string (the third draft), or as DNS writes it, without compression.
fn name(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let first = usize::from(value.u8(0)?);
    if first + 1 == value.captured() {
        if cx.verbose() > 0 {
            cx.text(", 03 draft");
        }
        cx.text(", \"");
        cx.visible_all(&value.data[1..]);
        cx.text("\"");
        return Ok(());
    }
    cx.text(", \"");
    labels(cx, value.data);
    cx.text("\"");
    Ok(())
}

fn labels(cx: &mut Context<'_>, mut rest: &[u8]) {
    while let Some((&length, after)) = rest.split_first() {
        if length == 0 {
            match after {
                [] => cx.text("."),
                [0] => {}
                _ => cx.text("???"),
            }
            return;
        }
        let Some((label, after)) = after.split_at_checked(usize::from(length)) else {
            cx.text("???");
            return;
        };
        cx.visible_all(label);
        if after.len() > 1 && after[0] != 0 {
            cx.text(".");
        }
        rest = after;
    }
}

fn reply(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.length > span.captured() || span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    cx.text(" node information reply (");
    let code = span.u8(1)?;
    let start = cx.out.len();
    match code {
        0 if cx.verbose() > 0 => cx.text("success"),
        1 => cx.text("refused"),
        2 => cx.text("unknown"),
        _ => {}
    }
    if code != 0 {
        if matches!(code, 1 | 2) && span.captured() != HEADER_LEN && cx.verbose() > 0 {
            cx.text(", invalid length");
        }
        cx.text(")");
        return Ok(());
    }
    if cx.out.len() > start {
        cx.text(", ");
    }
    answer(cx, span)?;
    cx.text(")");
    Ok(())
}

fn answer(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let flags = span.u16(6)?;
    match span.u16(4)? {
        NO_OPERATION => {
            cx.text("noop");
            if span.captured() != HEADER_LEN && cx.verbose() > 0 {
                cx.text(", invalid length");
            }
        }
        NAME => {
            cx.text("DNS name");
            name(cx, span.skip(HEADER_LEN + 4))?;
            if flags & 1 != 0 {
                put!(cx, " [TTL={}]", span.u32(HEADER_LEN)?);
            }
        }
        ADDRESSES => {
            cx.text("node addresses");
            for entry in span.data[HEADER_LEN..].chunks_exact(20) {
                let address: [u8; 16] = std::array::from_fn(|i| entry[4 + i]);
                cx.text(" ");
                cx.host(IpAddr::from(address));
                put!(cx, "({})", u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]));
            }
            print_address_flags(cx, flags, ADDRESS_FLAGS.len());
        }
        kind => print_kind(cx, kind, flags, ADDRESS_FLAGS.len()),
    }
    Ok(())
}
