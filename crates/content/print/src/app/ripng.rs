//! RIPng (RFC 2080): ` ripng-resp 1: 2001:db8::/32 (1)`.
//!
//! ```text
//! command 1 | version 1 | zero 2 | entries of 20: prefix 16, tag 2, prefix length 1, metric 1 (255: a next hop)
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 20;
const NEXT_HOP: u8 = 0xff;
const INFINITY: u8 = 16;

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ripng";
    let version = span.u8(1)?;
    if version != 1 {
        put!(cx, " [vers {version}]");
        cx.invalid();
        return Ok(());
    }
    match span.u8(0)? {
        1 => print_entries(cx, span, "req"),
        2 => print_entries(cx, span, "resp"),
        command => {
            put!(cx, " ripng-{command} ?? {}", span.length);
            cx.invalid();
            Ok(())
        }
    }
}

fn print_entries(cx: &mut Context<'_>, span: Span<'_>, name: &str) -> Printed {
    if span.length < HEADER_LEN {
        cx.invalid();
        return Ok(());
    }
    let entries = span.skip(HEADER_LEN);
    let count = entries.length / ENTRY_LEN;
    if name == "req" && count == 1 && entries.u8(19)? == INFINITY && entries.bytes(0, 16)? == [0; 16] {
        cx.text(" ripng-req dump");
        return Ok(());
    }
    if count * ENTRY_LEN == entries.length {
        put!(cx, " ripng-{name} {count}:");
    } else {
        put!(cx, " ripng-{name} {count}[{}]:", span.length);
    }
    for index in 0..count {
        let entry = entries.skip(index * ENTRY_LEN);
        cx.text(if cx.verbose() > 1 { "\n\t" } else { " " });
        if entry.u8(19)? == NEXT_HOP {
            cx.text("(");
            cx.host(entry.array::<16>(0)?.into());
            cx.text(")");
            continue;
        }
        cx.host(entry.array::<16>(0)?.into());
        put!(cx, "/{}", entry.u8(18)?);
        let tag = entry.u16(16)?;
        if tag != 0 {
            put!(cx, " [{tag}]");
        }
        put!(cx, " ({})", entry.u8(19)?);
    }
    if count * ENTRY_LEN != entries.length {
        cx.invalid();
    }
    Ok(())
}
