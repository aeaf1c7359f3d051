//! IP over InfiniBand (RFC 4391), as Linux captures it: the global routing header, then the encapsulation header.
//!
//! ```text
//! | global routing header 40 | EtherType 2 | 0 2 | payload |
//! ```

use super::ethertype;
use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::net;
use crate::text::Text;

const HEADER_LEN: usize = 44;
const TYPE: usize = 40;

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ipoib";
    if span.captured() < HEADER_LEN {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    let kind = span.u16(TYPE)?;
    if cx.options.link_header {
        cx.text("IPOIB");
        print_header(cx, kind, span.length);
    }
    cx.link_header_len += HEADER_LEN;
    let rest = span.skip(HEADER_LEN);
    if !net::ethertype(cx, rest, kind)? {
        if !cx.options.link_header {
            print_header(cx, kind, span.length);
        }
        cx.unknown(rest.with_length(rest.captured()));
    }
    Ok(())
}

fn print_header(cx: &mut Context<'_>, kind: u16, length: usize) {
    put!(cx, ", ethertype {}", ethertype::name(kind).unwrap_or("Unknown"));
    if !cx.options.quiet {
        put!(cx, " (0x{kind:04x})");
    }
    put!(cx, ", length {length}: ");
}
