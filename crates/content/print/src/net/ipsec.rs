//! IPsec: authentication (AH, RFC 4302), encrypted payload (ESP, RFC 4303), compression (IPComp, RFC 3173).
//!
//! ```text
//! AH:     | next header 1 | words 1 | reserved 2 | index 4 | sequence 4 | integrity check value |
//! ESP:    | index 4 | sequence 4 | encrypted ... |
//! IPComp: | next header 1 | flags 1 | index 2 | compressed ... |
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::net::{self, Ip};
use crate::text::Text;

const AH_FIXED_LEN: usize = 12;

/// Prints an authentication header and the packet that it protects.
pub(crate) fn authentication(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "ah";
    cx.text("AH(");
    let words = span.u8(1)?;
    // The length field counts 4-byte words, without the first two.
    let header_len = (usize::from(words) + 2) * 4;
    if cx.verbose() > 0 {
        put!(cx, "length={words}({header_len}-bytes),");
    }
    let reserved = span.u16(2)?;
    if reserved != 0 {
        put!(cx, "reserved=0x{reserved:x}[MustBeZero],");
    }
    put!(cx, "spi=0x{:08x},", span.u32(4)?);
    put!(cx, "seq=0x{:x},", span.u32(8)?);
    cx.text("icv=0x");
    for at in AH_FIXED_LEN..header_len {
        let byte = span.u8(at)?;
        cx.hex(byte, 2);
    }
    cx.text("): ");
    span.need(header_len)?;
    // Bounded: each header is at least 8 of the captured bytes, and nesting is counted.
    let next = span.u8(0)?;
    cx.nested(|cx| net::ip_protocol(cx, span.skip(header_len), next, ip))
}

/// Prints the head of an encrypted payload.
pub(crate) fn encapsulation(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "esp";
    if span.captured() < 8 {
        cx.cut();
        return Ok(());
    }
    put!(cx, "ESP(spi=0x{:08x},seq=0x{:x}), length {}", span.u32(0)?, span.u32(4)?, span.length);
    Ok(())
}

/// Prints the head of a compressed payload.
pub(crate) fn compression(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ipcomp";
    cx.text("IPComp(");
    if span.captured() < 4 {
        cx.cut();
        return Ok(());
    }
    put!(cx, "cpi=0x{:04x})", span.u16(2)?);
    Ok(())
}
