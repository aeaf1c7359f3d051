//! MPLS label stacks (RFC 3032).
//!
//! ```text
//! | label 20b | traffic class 3b | bottom of stack 1b | time to live 8b | ... until the bottom, then the payload |
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::llc::iso;
use crate::net::{ipv4, ipv6};
use crate::text::Text;

const LABEL_LEN: usize = 4;

/// Prints a label stack and its payload.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "mpls";
    cx.text("MPLS");
    let mut rest = span;
    let mut first = true;
    let label = loop {
        if rest.length < LABEL_LEN {
            cx.invalid();
            return Ok(());
        }
        let entry = rest.u32(0)?;
        print_entry(cx, entry, first);
        first = false;
        rest = rest.skip(LABEL_LEN);
        if entry & 0x100 != 0 {
            break entry >> 12;
        }
    };
    payload(cx, rest, label)
}

fn print_entry(cx: &mut Context<'_>, entry: u32, first: bool) {
    let verbose = cx.verbose() > 0;
    cx.text(if verbose && !first { "\n\t" } else { " " });
    let label = entry >> 12;
    put!(cx, "(label {label}");
    if verbose {
        match label {
            0 => cx.text(" (IPv4 explicit NULL)"),
            1 => cx.text(" (router alert)"),
            2 => cx.text(" (IPv6 explicit NULL)"),
            3 => cx.text(" (implicit NULL)"),
            4..16 => cx.text(" (rsvd)"),
            _ => {}
        }
    }
    put!(cx, ", tc {}", (entry >> 9) & 7);
    if entry & 0x100 != 0 {
        cx.text(", [S]");
    }
    put!(cx, ", ttl {})", entry & 0xff);
}

/// Labels do not name the payload behind them; the first byte decides.
fn payload(cx: &mut Context<'_>, span: Span<'_>, label: u32) -> Printed {
    let first = match label {
        0 | 3 => 0x45,
        2 => 0x60,
        _ if span.length == 0 => return Ok(()),
        _ => span.u8(0)?,
    };
    let gap = if cx.verbose() > 0 { "\n\t" } else { " " };
    match first {
        0x45..=0x4f => {
            cx.text(gap);
            ipv4::print(cx, span)
        }
        0x60..=0x6f => {
            cx.text(gap);
            ipv6::print(cx, span)
        }
        0x81..=0x83 if !matches!(label, 0 | 2 | 3) => {
            cx.text(gap);
            iso::print(cx, span)
        }
        _ if cx.options.hex.shows_hex() || cx.options.quiet => Ok(()),
        _ => cx.hex_and_ascii_to_end(span),
    }
}
