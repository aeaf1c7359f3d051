//! RIP, versions 1 (RFC 1058) and 2 (RFC 2453).
//!
//! ```text
//! command 1 | version 1 | zero 2 | entries of 20
//! entry = family 2, tag 2, address 4, mask 4, next hop 4, metric 4;   family FFFF: authentication of type tag
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::link::loopback::FAMILIES;
use crate::text::Text;

const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 20;

const TRACE_OFF: u8 = 4;
const POLL: u8 = 5;
const POLL_ENTRY: u8 = 6;

const COMMANDS: &[(u8, &str)] = &[
    (1, "Request"),
    (2, "Response"),
    (3, "Trace on"),
    (TRACE_OFF, "Trace off"),
    (POLL, "Poll"),
    (POLL_ENTRY, "Poll Entry"),
];

/// One message: `RIPv2, Response, length: 84`; with `-v` its routes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "rip";
    if span.captured() < HEADER_LEN || span.length < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    let (command, version) = (span.u8(0)?, span.u8(1)?);
    cx.text(if cx.verbose() > 0 { "\n\tRIP" } else { "RIP" });
    put!(cx, "v{version}");
    if version == 0 {
        cx.hex_lines("\n\t", span);
        return Ok(());
    }
    match lookup(COMMANDS, command) {
        Some(name) => put!(cx, ", {name}, length: {}", span.length),
        None => put!(cx, ", unknown command ({command}), length: {}", span.length),
    }
    if cx.verbose() == 0 {
        return Ok(());
    }
    match (command, version) {
        (1 | 2, 1 | 2) => {
            let more = if version == 2 { " or less" } else { "" };
            put!(cx, ", routes: {}{more}", span.length / ENTRY_LEN);
            // Entries that were not captured are missing as those that are not there.
            let captured = span.length.min(span.captured());
            print_entries(cx, span.with_length(captured).skip(HEADER_LEN), version)?;
        }
        (1 | 2, _) => cx.text(", unknown version"),
        (TRACE_OFF | POLL | POLL_ENTRY, _) => {}
        _ if cx.verbose() == 1 => cx.hex_lines("\n\t", span),
        _ => {}
    }
    if cx.verbose() > 1 {
        cx.hex_lines("\n\t", span);
    }
    Ok(())
}

fn print_entries(cx: &mut Context<'_>, mut rest: Span<'_>, version: u8) -> Printed {
    while rest.length > 0 {
        let length = match version {
            1 => print_entry_1(cx, rest)?,
            _ if rest.length < 4 => None,
            _ if rest.u16(0)? == 0xffff => print_authentication(cx, rest)?,
            _ => print_entry_2(cx, rest)?,
        };
        let Some(length) = length else {
            cx.cut();
            return Ok(());
        };
        if length > rest.length {
            put!(cx, " [remaining entries length {} < {length}]", rest.length);
            cx.invalid();
            return Ok(());
        }
        rest = rest.skip(length);
    }
    Ok(())
}

/// The length of an entry; `None` if it is cut.
fn print_entry_1(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    if span.length < ENTRY_LEN {
        return Ok(None);
    }
    let family = span.u16(0)?;
    if !matches!(family, 0 | 2) {
        cx.text("\n\t AFI ");
        print_family(cx, family);
        cx.text(", ");
        cx.hex_lines("\n\t  ", span.skip(4).with_length(ENTRY_LEN - 4));
    } else if span.u16(2)? != 0 || span.u64(8)? != 0 {
        cx.hex_lines("\n\t  ", span.limit(ENTRY_LEN));
    } else {
        cx.text(if family == 0 { "\n\t  AFI 0, " } else { "\n\t  " });
        cx.host(span.array::<4>(4)?.into());
        put!(cx, ", metric: {}", span.u32(16)?);
    }
    Ok(Some(ENTRY_LEN))
}

fn print_family(cx: &mut Context<'_>, family: u16) {
    match lookup(FAMILIES, family.into()) {
        Some(name) => cx.text(name),
        None => put!(cx, "Unknown ({family})"),
    }
}

fn print_entry_2(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    let family = span.u16(0)?;
    if !matches!(family, 0 | 2) {
        cx.text("\n\t  AFI ");
        print_family(cx, family);
        cx.hex_lines("\n\t  ", span.skip(4).with_length(ENTRY_LEN - 4));
        return Ok(Some(ENTRY_LEN));
    }
    if span.length < ENTRY_LEN {
        return Ok(None);
    }
    cx.text(if family == 0 { "\n\t  AFI 0, " } else { "\n\t  AFI IPv4, " });
    let start = cx.out.len();
    cx.host(span.array::<4>(4)?.into());
    pad_left(cx, start, 15);
    let mask = span.u32(8)?;
    // -1 is what tcpdump shows for a mask that is not a prefix.
    let prefix_len = if mask.leading_ones() == mask.count_ones() { mask.count_ones() as i32 } else { -1 };
    put!(cx, "/{prefix_len:<2}, tag 0x{:04x}, metric: {}, next-hop: ", span.u16(2)?, span.u32(16)?);
    match span.array::<4>(12)? {
        [0, 0, 0, 0] => cx.text("self"),
        hop => cx.host(hop.into()),
    }
    Ok(Some(ENTRY_LEN))
}

/// Moves the text printed since `start` to the right edge of a field.
pub(super) fn pad_left(cx: &mut Context<'_>, start: usize, width: usize) {
    let missing = width.saturating_sub(cx.out.len() - start);
    cx.out.extend(std::iter::repeat_n(b' ', missing));
    cx.out[start..].rotate_right(missing);
}

/// A password, a keyed digest's header, or its trailer (RFC 4822), which goes to the end.
fn print_authentication(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
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
        3 => return Ok(None),
        kind => {
            match kind {
                1 => cx.text("\n\t  Auth trailer:"),
                _ => put!(cx, "\n\t  Unknown ({kind}) Authentication data:"),
            }
            cx.hex_lines("\n\t  ", rest);
            return Ok(Some(span.length));
        }
    }
    Ok(Some(ENTRY_LEN))
}
