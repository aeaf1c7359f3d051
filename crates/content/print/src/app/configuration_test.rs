//! Ethernet configuration testing protocol: frames that a station sends back, or on to another.
//!
//! ```text
//! octets to skip 2 | skipped | function 2: 1 reply, 2 forward | receipt 2, or address 6 | data      little-endian
//! ```
//!
//! Source: The Ethernet, version 2.0, chapter 8 (DEC, Intel, Xerox; 1982).

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

/// A frame that makes no sense from here on.
struct Invalid<'p>(Span<'p>);

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "loopback";
    cx.text("Loopback");
    match frame(cx, span)? {
        Ok(rest) => rest.need(rest.length),
        Err(Invalid(rest)) => {
            cx.invalid();
            rest.need(rest.length)
        }
    }
}

/// The data at the end.
fn frame<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Result<Span<'p>, Invalid<'p>>, Cut> {
    if span.length < 2 {
        return Ok(Err(Invalid(span)));
    }
    let skipped = usize::from(span.u16_le(0)?);
    put!(cx, ", skipCount {skipped}");
    cx.text(if skipped.is_multiple_of(8) { "" } else { " (bogus)" });
    let rest = span.skip(2);
    if skipped > rest.length {
        return Ok(Err(Invalid(rest)));
    }
    rest.need(skipped)?;
    let message = rest.skip(skipped);
    if message.length < 2 {
        return Ok(Err(Invalid(message)));
    }
    let function = message.u16_le(0)?;
    let body = message.skip(2);
    let data = match function {
        1 => {
            cx.text(", Reply");
            if body.length < 2 {
                return Ok(Err(Invalid(body)));
            }
            put!(cx, ", receipt number {}", body.u16_le(0)?);
            body.skip(2)
        }
        2 => {
            cx.text(", Forward Data");
            if body.length < 6 {
                return Ok(Err(Invalid(body)));
            }
            let address = body.bytes(0, 6)?;
            cx.text(", forwarding address ");
            cx.mac(address);
            body.skip(6)
        }
        _ => {
            put!(cx, ",  invalid ({function})");
            return Ok(Ok(body));
        }
    };
    put!(cx, ", data ({} octets)", data.length);
    Ok(Ok(data))
}
