//! CHAP (RFC 1994) and PAP (RFC 1334).
//!
//! ```text
//! | code 1 | id 1 | length 2 | value size 1 | value | name |       or | message |
//! ```

use super::put_characters;
use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HEADER_LEN: usize = 4;

/// Prints a CHAP packet.
pub(super) fn challenge(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if !head(cx, "CHAP", "chap", ["Challenge", "Response", "Success", "Fail"], span)? {
        return Ok(());
    }
    let length = usize::from(span.u16(2)?);
    match span.u8(0)? {
        1 | 2 => {
            if span.length < HEADER_LEN + 1 {
                return Ok(());
            }
            let size = usize::from(span.u8(4)?);
            if span.length < HEADER_LEN + 1 + size {
                return Ok(());
            }
            cx.text(", Value ");
            for byte in span.bytes(5, size)? {
                cx.hex(*byte, 2);
            }
            put_characters(cx, ", Name ", span, 5 + size, length.saturating_sub(5 + size))
        }
        3 | 4 => put_characters(cx, ", Msg ", span, 4, length.saturating_sub(HEADER_LEN)),
        _ => Ok(()),
    }
}

/// `false` if the packet is too short for a header, and the text says so.
fn head(
    cx: &mut Context<'_>,
    name: &str,
    mark: &str,
    codes: [&str; 4],
    span: Span<'_>,
) -> Result<bool, crate::bytes::Cut> {
    if span.length < 1 {
        put!(cx, "[|{mark}]");
        return Ok(false);
    }
    let code = span.u8(0)?;
    if span.length < HEADER_LEN {
        put!(cx, "[|{mark} 0x{code:02x}]");
        return Ok(false);
    }
    let meaning = usize::from(code).checked_sub(1).and_then(|i| codes.get(i)).copied();
    put!(cx, "{name}, {} (0x{code:02x})", meaning.filter(|m| !m.is_empty()).unwrap_or("unknown"));
    put!(cx, ", id {}", span.u8(1)?);
    Ok(true)
}

/// Prints a PAP packet.
pub(super) fn password(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if !head(cx, "PAP", "pap", ["Auth-Req", "Auth-ACK", "Auth-NACK", ""], span)? {
        return Ok(());
    }
    let length = usize::from(span.u16(2)?);
    if length > span.length {
        put!(cx, ", length {length} > packet size");
        return Ok(());
    }
    if length < HEADER_LEN {
        put!(cx, ", length {length} < PAP header length");
        return Ok(());
    }
    let (code, min) = match span.u8(0)? {
        1 => (1, 6),
        code @ (2 | 3) => (code, 5),
        _ => return Ok(()),
    };
    if length < min {
        cx.text("[|pap]");
        return Ok(());
    }
    let first = usize::from(span.u8(4)?);
    if length < 5 + first {
        return Ok(());
    }
    if code != 1 {
        return put_characters(cx, ", Msg ", span, 5, first);
    }
    put_characters(cx, ", Peer ", span, 5, first)?;
    if length < 6 + first {
        return Ok(());
    }
    let second = usize::from(span.u8(5 + first)?);
    if length < 6 + first + second {
        return Ok(());
    }
    put_characters(cx, ", Name ", span, 6 + first, second)
}
