//! Router renumbering (RFC 2894).
//!
//! ```text
//! | type, code, checksum 4 | sequence 4 | segment 1 | flags 1 | max delay 2 | reserved 4 |
//! match: | code 1 | length 1 | ordinal 1 | match length 1 | min 1 | max 1 | reserved 2 | prefix 16 |
//! use:   | use length 1 | keep length 1 | mask 1 | flags 1 | valid 4 | preferred 4 | flags 1, reserved 3 | prefix 16 |
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HEADER_LEN: usize = 16;
const MATCH_LEN: usize = 24;
const USE_LEN: usize = 32;
const COMMAND: u8 = 0;

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    let code = span.u8(1)?;
    match code {
        COMMAND => cx.text(", command"),
        1 => cx.text(", result"),
        255 => cx.text(", sequence number reset"),
        _ => put!(cx, ", code-#{code}"),
    }
    put!(cx, ", seq={}", span.u32(4)?);
    if cx.verbose() > 0 {
        print_fields(cx, span)?;
    }
    if code == COMMAND {
        return command(cx, span.skip(HEADER_LEN));
    }
    Ok(())
}

fn print_fields(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.text("[");
    let flags = span.u8(9)?;
    if flags != 0 {
        for (bit, letter) in [(0x80, "T"), (0x40, "R"), (0x20, "A"), (0x10, "S"), (0x08, "P")] {
            if flags & bit != 0 {
                cx.text(letter);
            }
        }
        cx.text(",");
    }
    put!(cx, "seg={},maxdelay={}", span.u8(8)?, span.u16(10)?);
    let reserved = span.u32(12)?;
    if reserved != 0 {
        put!(cx, "rsvd=0x{reserved:x}");
    }
    cx.text("]");
    Ok(())
}

fn command(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.captured() < MATCH_LEN {
        cx.cut();
        return Ok(());
    }
    let gap = if cx.verbose() > 1 { "\n\t" } else { " " };
    cx.text(gap);
    cx.text("match(");
    match span.u8(0)? {
        1 => cx.text("add"),
        2 => cx.text("change"),
        3 => cx.text("setglobal"),
        code => put!(cx, "#{code}"),
    }
    if cx.verbose() > 0 {
        put!(cx, ",ord={},min={},max={}", span.u8(2)?, span.u8(4)?, span.u8(5)?);
    }
    cx.text(",");
    cx.ipv6(span.array(8)?);
    put!(cx, "/{})", span.u8(3)?);
    // tcpdump takes 3 units of the length for this part and 4 for each use.
    let uses = i32::from(span.u8(1)?) - 3;
    if uses % 4 != 0 {
        cx.cut();
        return Ok(());
    }
    let mut rest = span.skip(MATCH_LEN);
    for _ in 0..(uses / 4).max(0) {
        if rest.captured() < USE_LEN {
            cx.cut();
            return Ok(());
        }
        cx.text(gap);
        print_use(cx, rest)?;
        rest = rest.skip(USE_LEN);
    }
    Ok(())
}

fn print_use(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.text("use(");
    let flags = span.u8(12)?;
    if flags != 0 {
        cx.text(if flags & 0x80 != 0 { "V" } else { "" });
        cx.text(if flags & 0x40 != 0 { "P" } else { "" });
        cx.text(",");
    }
    if cx.verbose() > 0 {
        put!(cx, "mask=0x{:x},raflags=0x{:x},", span.u8(2)?, span.u8(3)?);
        for (name, seconds) in [("vltime", span.u32(4)?), ("pltime", span.u32(8)?)] {
            match seconds {
                u32::MAX => put!(cx, "{name}=infty,"),
                _ => put!(cx, "{name}={seconds},"),
            }
        }
    }
    cx.ipv6(span.array(16)?);
    put!(cx, "/{}/{})", span.u8(0)?, span.u8(1)?);
    Ok(())
}
