//! TFTP (RFC 1350, options RFC 2347).
//!
//! ```text
//! 1 read, 2 write   file NUL mode NUL (option NUL value NUL)*
//! 3 data, 4 ack     block 2
//! 5 error           code 2, message NUL
//! 6 options         (option NUL value NUL)*
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const OPERATIONS: &[(u16, &str)] =
    &[(1, "RRQ"), (2, "WRQ"), (3, "DATA"), (4, "ACK"), (5, "ERROR"), (6, "OACK")];

const ERRORS: &[(u16, &str)] = &[
    (0, "EUNDEF"),
    (1, "ENOTFOUND"),
    (2, "EACCESS"),
    (3, "ENOSPACE"),
    (4, "EBADOP"),
    (5, "EBADID"),
    (6, "EEXISTS"),
    (7, "ENOUSER"),
];

/// One packet: `TFTP, length 22, RRQ "file" octet`.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "tftp";
    put!(cx, "TFTP, length {}", span.length);
    if fields(cx, span).is_err() {
        cx.cut();
    }
    Ok(())
}

fn fields(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let span = span.limit(span.length);
    let operation = span.u16(0)?;
    let Some(name) = lookup(OPERATIONS, operation) else {
        put!(cx, ", tftp-#{operation}");
        return Ok(());
    };
    put!(cx, ", {name}");
    match operation {
        1 | 2 => request(cx, span),
        6 => options(cx, span, 2),
        3 | 4 => {
            put!(cx, " block {}", span.u16(2)?);
            Ok(())
        }
        _ => error(cx, span),
    }
}

fn request(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    more(span, 2)?;
    cx.text(" \"");
    let mode = string(cx, span, 2);
    cx.text("\"");
    let mode = mode?;
    more(span, mode)?;
    cx.text(" ");
    let at = string(cx, span, mode)?;
    options(cx, span, at)
}

fn options(cx: &mut Context<'_>, span: Span<'_>, mut at: usize) -> Printed {
    while at < span.length {
        if span.u8(at)? != 0 {
            cx.text(" ");
        }
        at = string(cx, span, at)?;
    }
    Ok(())
}

fn error(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let code = span.u16(2)?;
    match lookup(ERRORS, code) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " tftp-err-#{code} \""),
    }
    more(span, 4)?;
    cx.text(" \"");
    let end = string(cx, span, 4);
    cx.text("\"");
    end.map(|_| ())
}

/// Checks that bytes follow on the wire; printing them shows whether they were captured.
fn more(span: Span<'_>, at: usize) -> Printed {
    if span.length > at { Ok(()) } else { Err(Cut) }
}

/// The string at `at` up to its NUL. Returns the start of the rest.
fn string(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> Result<usize, Cut> {
    let rest = span.data.get(at..).unwrap_or(&[]);
    let len = rest.iter().position(|&byte| byte == 0);
    cx.visible_until_nul(rest);
    len.map(|len| at + len + 1).ok_or(Cut)
}
