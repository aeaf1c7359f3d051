//! Broadcom's switch tags, behind the addresses of an Ethernet frame or before the frame.
//!
//! ```text
//! ingress:  | opcode 3 bits = 1, ... | shaper 1, class 3, encapsulation 2 bits | ports 9 bits |
//! egress:   | opcode 3 bits = 0, ... | client 1 | reason 1 | class 3 bits, port 5 |
//! ```
//!
//! Source: Linux, `net/dsa/tag_brcm.c`.

use super::ethernet;
use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};

const TAG_LEN: usize = 4;

const ENCAPSULATIONS: [&str; 4] = ["None", "Untag", "Header", "Reserved"];

const REASONS: &[(u8, &str)] = &[
    (1, "mirror"),
    (2, "MAC learning"),
    (4, "switching"),
    (8, "prot term"),
    (16, "prot snoop"),
    (32, "exception"),
];

/// Prints a frame with the tag between its addresses and its type.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "brcm-tag";
    cx.link_header_len += ethernet::switched(cx, span, TAG_LEN, print_tag)?;
    Ok(())
}

/// Prints a frame with the tag before it.
pub(super) fn print_prepended(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "brcm-tag-prepend";
    span.need(TAG_LEN)?;
    cx.link_header_len += TAG_LEN;
    if cx.options.link_header {
        print_tag(cx, span)?;
    }
    cx.link_header_len += ethernet::frame(cx, span.skip(TAG_LEN), "")?;
    Ok(())
}

fn print_tag(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let [first, second, third, fourth] = span.array(0)?;
    put!(cx, "BRCM tag OP: {}", if first != 0 { "IG" } else { "EG" });
    if first & 0x20 != 0 {
        let ports = u16::from_be_bytes([third, fourth]) & 0x1ff;
        let encapsulation = ENCAPSULATIONS[usize::from(second & 3)];
        put!(cx, ", TC: {}, TE: {encapsulation}, TS: {}", second >> 2 & 7, second >> 7);
        put!(cx, ", DST map: 0x{ports:04x}, ");
    } else {
        let reason = lookup(REASONS, third).unwrap_or("reserved");
        put!(cx, ", CID: {second}, RC: {reason}, TC: {}, port: {}, ", fourth >> 5, fourth & 0x1f);
    }
    Ok(())
}
