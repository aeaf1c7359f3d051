//! The identification line of SSH (RFC 4253, 4.2): `SSH-2.0-software comments CR LF`.

use crate::bytes::{Cut, Span};
use crate::context::Context;
use crate::text::Text;

/// `: SSH: SSH-2.0-...`; nothing where the payload is anything else.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), Cut> {
    cx.protocol = "ssh";
    if let Some(line) = identification(span)? {
        cx.text(": SSH: ");
        cx.raw(line);
    }
    Ok(())
}

/// The line without its end, if the payload starts with one.
fn identification(span: Span<'_>) -> Result<Option<&[u8]>, Cut> {
    for (index, expected) in b"SSH-".iter().enumerate() {
        if span.u8(index)? != *expected {
            return Ok(None);
        }
    }
    for at in 4..span.length {
        match span.u8(at)? {
            b'\n' => return span.bytes(0, at).map(Some),
            b'\r' if at + 1 < span.length && span.u8(at + 1)? == b'\n' => return span.bytes(0, at).map(Some),
            0x20..0x7f => {}
            _ => break,
        }
    }
    Ok(None)
}
