//! FDDI (ISO 9314-2): a frame control byte before the addresses, and LLC behind them.
//!
//! ```text
//! | frame control 1 | destination 6 | source 6 | LLC frame |
//! frame control: class 1 bit, address length 1, format 2, control 4
//! ```

use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HEADER_LEN: usize = 13;
const LLC_ASYNCHRONOUS: u8 = 0x50;
const STATION_MANAGEMENT: u8 = 0x40;

/// Prints a frame; how many bytes its headers have.
pub(crate) fn frame(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    cx.protocol = "fddi";
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(span.captured());
    }
    let control = span.u8(0)?;
    if cx.options.link_header {
        print_header(cx, span)?;
    }
    let rest = span.skip(HEADER_LEN);
    let mut llc_len = 0;
    match control & 0xf0 {
        LLC_ASYNCHRONOUS => {
            let llc = app::llc(cx, rest, Some(span.array(7)?), Some(span.array(1)?))?;
            if !llc.known {
                cx.unknown(rest.with_length(rest.captured()));
            }
            llc_len = llc.header_len;
        }
        STATION_MANAGEMENT => cx.text("<SMT printer not yet implemented>"),
        _ => {
            if !cx.options.link_header {
                print_header(cx, span)?;
            }
            cx.unknown(rest.with_length(rest.captured()));
        }
    }
    Ok(HEADER_LEN + llc_len)
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if !cx.options.quiet {
        print_control(cx, span.u8(0)?);
    }
    cx.mac(span.bytes(7, 6)?);
    cx.text(" > ");
    cx.mac(span.bytes(1, 6)?);
    put!(cx, ", length {}: ", span.length);
    Ok(())
}

fn print_control(cx: &mut Context<'_>, control: u8) {
    let name = match (control, control & 0xf0) {
        (0x40, _) => return cx.text("void "),
        (0x80, _) => return cx.text("nrt "),
        (0xc0, _) => return cx.text("rt "),
        (0x41, _) => return cx.text("info "),
        (0x4f, _) => return cx.text("nsa "),
        (0xc2, _) => return cx.text("beacon "),
        (0xc3, _) => return cx.text("claim "),
        (_, 0xc0) => "mac",
        (_, 0x40) => "smt",
        (_, 0x50) => "async",
        (_, 0xd0) => "sync",
        (_, 0x60) => "imp_async",
        (_, 0xe0) => "imp_sync",
        _ => return put!(cx, "{control:02x} "),
    };
    put!(cx, "{name}{:x} ", control & 0x0f);
}
