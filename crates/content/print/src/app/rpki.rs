//! RPKI to router (RFC 6810): prefixes and the networks that may announce them, from a validating cache.
//!
//! ```text
//! version 1 | type 1 | session or error 2 | length 4, with this header | by type
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: u32 = 8;

const TYPES: &[(u8, &str)] = &[
    (0, "Serial Notify"),
    (1, "Serial Query"),
    (2, "Reset Query"),
    (3, "Cache Response"),
    (4, "IPV4 Prefix"),
    (6, "IPV6 Prefix"),
    (7, "End of Data"),
    (8, "Cache Reset"),
    (10, "Error Report"),
];

const ERRORS: &[(u16, &str)] = &[
    (0, "Corrupt Data"),
    (1, "Internal Error"),
    (2, "No Data Available"),
    (3, "Invalid Request"),
    (4, "Unsupported Protocol Version"),
    (5, "Unsupported PDU Type"),
    (6, "Withdrawal of Unknown Record"),
    (7, "Duplicate Announcement Received"),
];

/// The messages of a segment.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "rpki_rtr";
    if cx.verbose() == 0 {
        cx.text(", RPKI-RTR");
        return Ok(());
    }
    let mut rest = span;
    while rest.length > 0 {
        let length = message(cx, rest, rest.length as u32, false)?;
        rest = rest.skip(length as usize);
    }
    Ok(())
}

/// A message within `limit` bytes; how many it has.
fn message(cx: &mut Context<'_>, span: Span<'_>, limit: u32, quoted: bool) -> Result<u32, Cut> {
    let version = span.u8(0)?;
    if version != 0 {
        put!(cx, "\n\tRPKI-RTRv{version} (unknown)");
        return Ok(limit);
    }
    if limit < HEADER_LEN {
        put!(cx, "({limit} bytes is too few to decode)");
        return invalid(cx, span, limit);
    }
    span.need(HEADER_LEN as usize)?;
    let (kind, length) = (span.u8(1)?, span.u32(4)?);
    let name = lookup(TYPES, kind).unwrap_or("Unknown");
    put!(cx, "\n\tRPKI-RTRv{version}, {name} PDU ({kind}), length: {length}");
    let expected = match kind {
        0 | 1 | 7 => Some(HEADER_LEN + 4),
        2 | 3 | 8 => Some(HEADER_LEN),
        4 => Some(20),
        6 => Some(32),
        _ => None,
    };
    let fits = length >= HEADER_LEN && length <= limit && expected.is_none_or(|expected| length == expected);
    if !fits {
        return invalid(cx, span, limit);
    }
    let indent = if quoted { "\n\t    " } else { "\n\t  " };
    let session = span.u16(2)?;
    match kind {
        0 | 1 | 7 => {
            let serial = span.u32(8)?;
            put!(cx, "{indent}Session ID: 0x{session:04x}, Serial: {serial}");
        }
        2 | 8 => {}
        3 => put!(cx, "{indent}Session ID: 0x{session:04x}"),
        4 => {
            let (address, origin) = (span.array::<4>(12)?, span.u32(16)?);
            prefix(cx, span, indent, "IPv4", address.into(), origin)?;
        }
        6 => {
            let (address, origin) = (span.array::<16>(12)?, span.u32(28)?);
            prefix(cx, span, indent, "IPv6", address.into(), origin)?;
        }
        10 => {
            if !report(cx, span, length, quoted)? {
                return invalid(cx, span, limit);
            }
        }
        _ => span.need(length as usize)?,
    }
    if cx.verbose() > 1 || lookup(TYPES, kind).is_none() {
        cx.hex_lines("\n\t  ", span.with_length(length as usize));
    }
    Ok(length)
}

fn invalid(cx: &mut Context<'_>, span: Span<'_>, limit: u32) -> Result<u32, Cut> {
    cx.invalid();
    span.need(limit as usize)?;
    Ok(limit)
}

fn prefix(
    cx: &mut Context<'_>,
    span: Span<'_>,
    indent: &str,
    name: &str,
    address: std::net::IpAddr,
    origin: u32,
) -> Printed {
    let [flags, length, length_max] = span.array(8)?;
    put!(cx, "{indent}{name} Prefix ");
    cx.host(address);
    put!(cx, "/{length}-{length_max}, origin-as {origin}, flags 0x{flags:02x}");
    Ok(())
}

/// An error, the message that caused it, and a text. `false` if its lengths make no sense.
///
/// Lengths add up in 32 bits, so a great one may wrap around to the front; nothing is read past the captured bytes.
fn report(cx: &mut Context<'_>, span: Span<'_>, length: u32, quoted: bool) -> Result<bool, Cut> {
    let mut at = HEADER_LEN + 4;
    if length < at {
        return Ok(false);
    }
    let (code, quoted_len) = (span.u16(2)?, span.u32(8)?);
    let indent = if quoted { "\n\t    " } else { "\n\t  " };
    let name = lookup(ERRORS, code).unwrap_or("Unknown");
    put!(cx, "{indent}Error code: {name} ({code}), Encapsulated PDU length: {quoted_len}");
    if quoted_len != 0 {
        let end = at.wrapping_add(quoted_len);
        if length < end {
            return Ok(false);
        }
        if quoted {
            span.need(end as usize)?;
        } else {
            cx.text("\n\t    -----encapsulated PDU-----");
            message(cx, span.skip(at as usize), quoted_len, true)?;
        }
        at = end;
    }
    if length < at.wrapping_add(4) {
        return Ok(false);
    }
    let text_len = span.u32(at as usize)?;
    at = at.wrapping_add(4);
    if text_len != 0 {
        if length < at.wrapping_add(text_len) {
            return Ok(false);
        }
        put!(cx, "{indent}Error text: ");
        let text = span.skip(at as usize);
        cx.visible_all(&text.data[..text.captured().min(text_len as usize)]);
        text.need(text_len as usize)?;
    }
    Ok(true)
}
