//! RIP, versions 1 (RFC 1058) and 2 (RFC 2453).
//!
//! ```text
//! command 1 | version 1 | zero 2 | entries of 20
//! entry = family 2, tag 2, address 4, mask 4, next hop 4, metric 4;   family FFFF: authentication of type tag
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 20;

const COMMANDS: &[(u8, &str)] = &[
    (1, "Request"),
    (2, "Response"),
    (3, "Trace on"),
    (4, "Trace off"),
    (6, "Triggered Request"),
    (7, "Triggered Response"),
    (8, "Triggered Acknowledgement"),
    (9, "Update Request"),
    (10, "Update Response"),
    (11, "Update Acknowledge"),
];

/// One message: `RIPv2, Response, length: 84`; with `-v` its routes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "rip";
    cx.text(if cx.verbose() > 0 { "\n\tRIP" } else { "RIP" });
    if span.length < HEADER_LEN {
        put!(cx, " [packet length {} < {HEADER_LEN}]", span.length);
        cx.invalid();
        return span.need(span.length);
    }
    let version = span.u8(1)?;
    put!(cx, "v{version}");
    if !matches!(version, 1 | 2) {
        cx.text(" [version != 1 && version != 2]");
        cx.invalid();
        return span.need(span.length);
    }
    let command = span.u8(0)?;
    match lookup(COMMANDS, command) {
        Some(name) => put!(cx, ", {name}, length: {}", span.length),
        None => put!(cx, ", unknown command ({command}), length: {}", span.length),
    }
    span.need(HEADER_LEN)?;
    if cx.verbose() == 0 {
        return Ok(());
    }
    let entries = span.skip(HEADER_LEN);
    match command {
        1 | 2 => {
            let more = if version == 2 { " or less" } else { "" };
            put!(cx, ", routes: {}{more}", entries.length / ENTRY_LEN);
            if !print_entries(cx, entries, version)? {
                cx.invalid();
                return Ok(());
            }
        }
        _ if lookup(COMMANDS, command).is_none() && cx.verbose() == 1 => cx.hex_lines("\n\t", entries),
        _ => {}
    }
    if cx.verbose() > 1 {
        // What is left behind the entries: nothing, unless they were not looked at.
        let rest = if matches!(command, 1 | 2) { entries.skip(entries.length) } else { entries };
        cx.hex_lines("\n\t", rest);
    }
    Ok(())
}

/// `false` if the last one is too short.
fn print_entries(cx: &mut Context<'_>, mut rest: Span<'_>, version: u8) -> Result<bool, Cut> {
    while rest.length > 0 {
        if rest.length < if version == 1 { ENTRY_LEN } else { 4 } {
            put!(
                cx,
                " [remaining data length {} < {}]",
                rest.length,
                if version == 1 { ENTRY_LEN } else { 4 }
            );
            return Ok(false);
        }
        let length = match (rest.u16(0)?, version) {
            (_, 1) => print_entry_1(cx, rest)?,
            (0xffff, _) => print_authentication(cx, rest)?,
            _ => print_entry_2(cx, rest)?,
        };
        if length > rest.length {
            put!(cx, " [remaining entries length {} < {length}]", rest.length);
            return Ok(false);
        }
        rest = rest.skip(length);
    }
    Ok(true)
}

fn print_entry_1(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    span.need(ENTRY_LEN)?;
    let family = span.u16(0)?;
    if !matches!(family, 0 | 2) {
        put!(cx, "\n\t AFI Unknown ({family}), ");
        cx.hex_lines("\n\t  ", span.skip(4).limit(ENTRY_LEN - 4));
    } else if span.u16(2)? != 0 || span.u64(8)? != 0 {
        cx.hex_lines("\n\t  ", span.limit(ENTRY_LEN));
    } else {
        cx.text(if family == 0 { "\n\t  AFI 0, " } else { "\n\t  " });
        cx.host(span.array::<4>(4)?.into());
        put!(cx, ", metric: {}", span.u32(16)?);
    }
    Ok(ENTRY_LEN)
}

fn print_entry_2(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    let family = span.u16(0)?;
    if !matches!(family, 0 | 2) {
        put!(cx, "\n\t  AFI Unknown ({family})");
        cx.hex_lines("\n\t  ", span.skip(4).limit(ENTRY_LEN - 4));
        return Ok(ENTRY_LEN);
    }
    if span.length < ENTRY_LEN {
        return Ok(ENTRY_LEN);
    }
    cx.text(if family == 0 { "\n\t  AFI 0, " } else { "\n\t  AFI IPv4, " });
    let start = cx.out.len();
    cx.host(span.array::<4>(4)?.into());
    pad_left(cx, start, 15);
    let mask = span.u32(8)?;
    // -1 is what tcpdump shows for a mask that is no prefix.
    let prefix_len = if mask.leading_ones() == mask.count_ones() { mask.count_ones() as i32 } else { -1 };
    put!(cx, "/{prefix_len:<2}, tag 0x{:04x}, metric: {}, next-hop: ", span.u16(2)?, span.u32(16)?);
    match span.array::<4>(12)? {
        [0, 0, 0, 0] => cx.text("self"),
        hop => cx.host(hop.into()),
    }
    Ok(ENTRY_LEN)
}

/// Moves what was printed since `start` to the right edge of a field.
fn pad_left(cx: &mut Context<'_>, start: usize, width: usize) {
    let missing = width.saturating_sub(cx.out.len() - start);
    cx.out.extend(std::iter::repeat_n(b' ', missing));
    cx.out[start..].rotate_right(missing);
}

/// A password, a keyed digest's header, or its trailer (RFC 4822), which goes to the end.
fn print_authentication(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    let rest = span.skip(4);
    match span.u16(2)? {
        2 => {
            cx.text("\n\t  Simple Text Authentication data: ");
            cx.visible_until_nul(rest.bytes(0, 16)?);
        }
        3 if rest.length >= 16 => {
            put!(cx, "\n\t  Auth header: Packet Len {}, Key-ID {},", rest.u16(0)?, rest.u8(2)?);
            put!(cx, " Auth Data Len {}, SeqNo {},", rest.u8(3)?, rest.u32(4)?);
            put!(cx, " MBZ {}, MBZ {}", rest.u32(8)?, rest.u32(12)?);
        }
        3 => return Ok(ENTRY_LEN),
        kind => {
            match kind {
                1 => cx.text("\n\t  Auth trailer:"),
                _ => put!(cx, "\n\t  Unknown ({kind}) Authentication data:"),
            }
            cx.hex_lines("\n\t  ", rest);
            return Ok(span.length);
        }
    }
    Ok(ENTRY_LEN)
}
