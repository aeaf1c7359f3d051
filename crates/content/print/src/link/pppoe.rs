//! PPP over Ethernet (RFC 2516).
//!
//! ```text
//! | version 4b, type 4b | code 1 | session 2 | length 2 | tags (type 2, length 2, value)... or a PPP packet |
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::link::ppp;
use crate::text::Text;

const HEADER_LEN: usize = 6;
const SESSION_DATA: u8 = 0;
const INITIATION: u8 = 0x09;
/// Longest initiation that leaves room for a relay's tag (RFC 2516, 5.1).
const INITIATION_MAX: usize = 1484 - HEADER_LEN;
/// Characters of a tag that are shown.
const TAG_MAX: usize = 79;

const CODES: &[(u8, &str)] =
    &[(0x09, "PADI"), (0x07, "PADO"), (0x19, "PADR"), (0x65, "PADS"), (0xa7, "PADT"), (SESSION_DATA, "")];

const TAGS: &[(u16, &str)] = &[
    (0x0000, "EOL"),
    (0x0101, "Service-Name"),
    (0x0102, "AC-Name"),
    (0x0103, "Host-Uniq"),
    (0x0104, "AC-Cookie"),
    (0x0105, "Vendor-Specific"),
    (0x0110, "Relay-Session-ID"),
    (0x0120, "PPP-Max-Payload"),
    (0x0201, "Service-Name-Error"),
    (0x0202, "AC-System-Error"),
    (0x0203, "Generic-Error"),
];

/// Prints a PPPoE packet.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "pppoe";
    if span.length < HEADER_LEN {
        put!(cx, " (length {} < {HEADER_LEN})", span.length);
        cx.invalid();
        return Ok(());
    }
    span.need(HEADER_LEN)?;
    let first = span.u8(0)?;
    if first >> 4 != 1 {
        put!(cx, " [ver {}]", first >> 4);
    }
    if first & 0x0f != 1 {
        put!(cx, " [type {}]", first & 0x0f);
    }
    let code = span.u8(1)?;
    cx.text("PPPoE ");
    match lookup(CODES, code) {
        Some(name) => cx.text(name),
        None => put!(cx, "PAD-{code:x}"),
    }
    let length = print_lengths(cx, span, code)?;
    let payload = span.skip(HEADER_LEN).with_length(length);
    if code != SESSION_DATA {
        return print_tags(cx, payload);
    }
    cx.text(" ");
    ppp::print(cx, payload)
}

/// Prints the problem with the length. Returns the payload's length, limited to the present bytes.
fn print_lengths(cx: &mut Context<'_>, span: Span<'_>, code: u8) -> Result<usize, Cut> {
    let rest = span.length - HEADER_LEN;
    let length = usize::from(span.u16(4)?);
    if code == INITIATION && length > INITIATION_MAX {
        put!(cx, " [len {length}!]");
    }
    if length > rest {
        put!(cx, " [len {length} > {rest}!]");
    }
    let session = span.u16(2)?;
    if session != 0 {
        put!(cx, " [ses 0x{session:x}]");
    }
    Ok(length.min(rest))
}

fn print_tags(cx: &mut Context<'_>, payload: Span<'_>) -> Printed {
    let mut rest = payload;
    while rest.length > 0 {
        let kind = rest.u16(0)?;
        let length = usize::from(rest.u16(2)?);
        let value = rest.bytes(4, length);
        cx.text(" [");
        match lookup(TAGS, kind) {
            Some(name) => cx.text(name),
            None => put!(cx, "TAG-0x{kind:x}"),
        }
        if length > 0 {
            let Ok(value) = value else {
                // The name was already written; a cut value has no mark of its own.
                let name = cx.out.iter().rposition(|&b| b == b'[').unwrap_or(cx.out.len());
                cx.out.truncate(name.saturating_sub(1));
                return Err(Cut);
            };
            print_tag_value(cx, value);
        }
        cx.text("]");
        if kind == 0 {
            break;
        }
        rest = rest.skip(4 + length);
    }
    Ok(())
}

/// As characters if most of them are printable, otherwise in hexadecimal.
fn print_tag_value(cx: &mut Context<'_>, value: &[u8]) {
    let shown = &value[..value.len().min(TAG_MAX)];
    let printable = shown.iter().filter(|b| (32..127).contains(*b)).count();
    if printable > shown.len() - printable {
        cx.text(" \"");
        cx.out.extend(shown.iter().map(|&b| if (32..127).contains(&b) { b } else { b'.' }));
        cx.text("\"");
    } else {
        cx.text(" 0x");
        for byte in value {
            put!(cx, "{byte:02X}");
        }
    }
}
