//! Extensions behind the packet that an ICMP error quotes (RFC 4884).
//!
//! ```text
//! | type, code, checksum 4 | 0 | length 1 | 0, 0 | quote 128 | version 4b, 0 | checksum 2 | objects |
//! object: | length 2, with this header | class 1 | type 1 | value |
//! ```

use crate::bytes::{Printed, Span};
use crate::checksum;
use crate::context::{Context, put};
use crate::text::Text;

/// Offset of the extensions: behind a quote that is padded to 128 bytes.
const EXTENSION_AT: usize = 8 + 128;
/// Messages up to this length are too short for extensions.
const MESSAGE_MIN: usize = 156 - 20;
const HEADER_LEN: usize = 4;
const OBJECT_HEADER_LEN: usize = 4;
const VERSION: u8 = 2;
const LABEL_STACK: u8 = 1;

/// Prints extensions, if the message is of a type that has them and there are any.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, kind: u8) -> Printed {
    if !matches!(kind, super::UNREACHABLE | super::TIME_EXCEEDED | super::PARAMETER_PROBLEM)
        || span.length <= MESSAGE_MIN
    {
        return Ok(());
    }
    if span.need(EXTENSION_AT + HEADER_LEN + 1).is_err() {
        cx.cut();
        return Ok(());
    }
    let extension = span.skip(EXTENSION_AT);
    let whole = extension.data.get(..extension.length);
    // Many routers leave the length field empty; then the checksum tells whether this is an extension at all.
    if span.u8(5)? == 0
        && let Some(bytes) = whole
        && checksum::internet(bytes) != 0
    {
        return Ok(());
    }
    let version = extension.u8(0)? >> 4;
    put!(cx, "\n\tICMP Multi-Part extension v{version}");
    if version != VERSION {
        cx.text(" packet not supported");
        return Ok(());
    }
    if let Some(bytes) = whole {
        let verdict = if checksum::internet(bytes) == 0 { "" } else { "in" };
        put!(cx, ", checksum 0x{:04x} ({verdict}correct), length {}", extension.u16(2)?, bytes.len());
    }
    objects(cx, extension.skip(HEADER_LEN))
}

fn objects(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    while rest.length > OBJECT_HEADER_LEN {
        if rest.need(OBJECT_HEADER_LEN).is_err() {
            cx.cut();
            return Ok(());
        }
        let length = usize::from(rest.u16(0)?);
        let (class, kind) = (rest.u8(2)?, rest.u8(3)?);
        let name = match class {
            LABEL_STACK => "MPLS Stack Entry",
            2 => "Interface Identification",
            _ => "unknown",
        };
        put!(cx, "\n\t  {name} Object ({class}), Class-Type: {kind}, length {length}");
        rest = rest.skip(OBJECT_HEADER_LEN);
        if class == 0 || length < OBJECT_HEADER_LEN {
            return Ok(());
        }
        let value_len = length - OBJECT_HEADER_LEN;
        if class == LABEL_STACK && kind == 1 {
            label(cx, rest.u32(0)?);
        } else {
            cx.hex_lines("\n\t    ", rest.with_length(value_len));
        }
        if rest.length < value_len {
            return Ok(());
        }
        rest = rest.skip(value_len);
    }
    Ok(())
}

fn label(cx: &mut Context<'_>, entry: u32) {
    put!(cx, "\n\t    label {}, tc {}", entry >> 12, (entry >> 9) & 7);
    if entry & 0x100 != 0 {
        cx.text(", [S]");
    }
    put!(cx, ", ttl {}", entry & 0xff);
}
