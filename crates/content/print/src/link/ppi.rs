//! Per-packet information (CACE's PPI): fields about a packet, then the packet with the link type that the header
//! names.
//!
//! ```text
//! | version 1 | flags 1 | length 2, with this header | DLT 4 | fields | packet |      all little-endian
//! ```

use tapline_packet::LinkType;

use super::by_type;
use crate::bytes::{Printed, Span};
use crate::context::{Context, put};

const HEADER_LEN: usize = 8;
const LENGTH_MAX: u16 = 65_532;

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ppi";
    if span.captured() < HEADER_LEN {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    let length = span.u16_le(2)?;
    if usize::from(length) < HEADER_LEN || length > LENGTH_MAX {
        put!(cx, " [length {length} < {HEADER_LEN} or > 65532]");
        cx.invalid();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    if span.captured() < usize::from(length) {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    let link_type = link_type(span.u32_le(4)?);
    if cx.options.link_header {
        print_header(cx, span, link_type)?;
    }
    let rest = span.skip(usize::from(length));
    cx.link_header_len += usize::from(length);
    let mut known = false;
    if let Some(link_type) = link_type {
        cx.nested(|cx| by_type(cx, rest, link_type).map(|printed| known = printed))?;
    }
    if !known {
        if !cx.options.link_header {
            print_header(cx, span, link_type)?;
        }
        cx.unknown(rest.with_length(rest.captured()));
    }
    Ok(())
}

/// The header has DLT numbers: it cannot name types that have only a LINKTYPE number.
fn link_type(dlt: u32) -> Option<LinkType> {
    let dlt = u16::try_from(dlt).ok()?;
    Some(LinkType::from_dlt(dlt)).filter(|link_type| link_type.dlt() == dlt)
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>, link_type: Option<LinkType>) -> Printed {
    let name = link_type.and_then(LinkType::name).unwrap_or("UNKNOWN");
    if cx.options.quiet {
        put!(cx, "{name}");
    } else {
        let (version, dlt, length) = (span.u8(0)?, span.u32_le(4)?, span.u16_le(2)?);
        put!(cx, "V.{version} DLT {name} ({dlt}) len {length}");
    }
    put!(cx, ", length {}: ", span.length);
    Ok(())
}
