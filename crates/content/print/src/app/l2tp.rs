//! L2TP, version 2 (RFC 2661): ` l2tp:[L](1/2) {...}` with the PPP frame in braces; control messages by their header.
//!
//! ```text
//! T L 0 0 S 0 O P 0000 version 4 | [L: length 2] | tunnel 2 | session 2 | [S: sent 2, received 2] | [O: offset 2]
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::link;
use crate::text::Text;

const CONTROL: u16 = 0x8000;
const LENGTH: u16 = 0x4000;
const SEQUENCE: u16 = 0x0800;
const OFFSET: u16 = 0x0200;
const PRIORITY: u16 = 0x0100;

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "l2tp";
    let flags = span.u16(0)?;
    match flags & 0x0f {
        1 => {
            cx.text(" l2f:");
            return Ok(());
        }
        2 => cx.text(" l2tp:"),
        _ => {
            cx.text(" Unknown Version, neither L2F(1) nor L2TP(2)");
            return Ok(());
        }
    }
    cx.text("[");
    for (bit, letter) in [(CONTROL, "T"), (LENGTH, "L"), (SEQUENCE, "S"), (OFFSET, "O"), (PRIORITY, "P")] {
        cx.text(if flags & bit != 0 { letter } else { "" });
    }
    cx.text("]");
    let mut at = 2;
    let mut length = span.length;
    if flags & LENGTH != 0 {
        length = usize::from(span.u16(at)?);
        at += 2;
    }
    let (tunnel, session) = (span.u16(at)?, span.u16(at + 2)?);
    put!(cx, "({tunnel}/{session})");
    at += 4;
    if flags & SEQUENCE != 0 {
        put!(cx, "Ns={},", span.u16(at)?);
        put!(cx, "Nr={}", span.u16(at + 2)?);
        at += 4;
    }
    if flags & OFFSET != 0 {
        at += 2 + usize::from(span.u16(at)?);
    }
    if length > span.length {
        put!(cx, " Length {length} larger than packet");
    } else if length < at {
        put!(cx, " Length {length} smaller than header length");
    } else if flags & CONTROL == 0 {
        cx.text(" {");
        link::ppp::print(cx, span.limit(length).skip(at))?;
        cx.text("}");
    } else if length == at {
        cx.text(" ZLB");
    }
    Ok(())
}
