//! VXLAN (RFC 7348) and its generic protocol extension (draft-ietf-nvo3-vxlan-gpe).
//!
//! ```text
//! flags 1 (0x08: the identifier is valid) | reserved 3 | network identifier 3 | reserved 1 | Ethernet frame
//! flags 1 (also 0x04: next protocol) | reserved 2 | next protocol 1 | network identifier 3 | reserved 1 | payload
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put, put_bits};
use crate::text::Text;
use crate::{link, net};

const HEADER_LEN: usize = 8;
const VALID: u8 = 0x08;
const NEXT_PROTOCOL: u8 = 0x04;

const GPE_FLAGS: &[(u32, &str)] = &[(0x08, "I"), (0x04, "P"), (0x01, "O")];

/// `VXLAN, flags [I] (0x08), vni 5`, and the frame on the next line.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "vxlan";
    cx.text("VXLAN");
    if span.length < HEADER_LEN {
        cx.invalid();
        return Ok(());
    }
    let flags = span.u8(0)?;
    let valid = flags & VALID != 0;
    put!(cx, ", flags [{}] (0x{flags:02x}), ", if valid { "I" } else { "invalid" });
    let identifier = span.u24(4)?;
    put!(cx, "vni {identifier}\n");
    span.need(HEADER_LEN)?;
    link::ethernet::print(cx, span.skip(HEADER_LEN))
}

/// `VXLAN-GPE, flags [IP], vni 5: IP ...`.
pub(crate) fn print_gpe(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "vxlan_gpe";
    cx.text("VXLAN-GPE");
    if span.length < HEADER_LEN {
        put!(cx, " [length {} < {HEADER_LEN}]", span.length);
        cx.invalid();
        return Ok(());
    }
    let flags = span.u8(0)?;
    cx.text(", flags [");
    put_bits(cx, GPE_FLAGS, "none", "", u32::from(flags));
    cx.text("], ");
    let next = span.u8(3)?;
    put!(cx, "vni {}", span.u24(4)?);
    span.need(HEADER_LEN)?;
    cx.text(if cx.verbose() == 0 { ": " } else { "\n    " });
    let payload = span.skip(HEADER_LEN);
    match next {
        _ if flags & NEXT_PROTOCOL == 0 => {}
        1 => return net::ipv4::print(cx, payload),
        2 => return net::ipv6::print(cx, payload),
        3 => return link::ethernet::print(cx, payload),
        5 => return link::mpls::print(cx, payload),
        _ => {}
    }
    cx.text("ERROR: unknown-next-protocol");
    cx.invalid();
    Ok(())
}
