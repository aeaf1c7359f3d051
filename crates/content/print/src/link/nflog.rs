//! Linux netfilter log.
//!
//! ```text
//! | family 1 | version 1 | resource 2 | (length 2, type 2, value, padding to 4)... | the packet is the value of type 9 |
//! ```
//!
//! Lengths and types are in the byte order of the host that captured; little-endian is assumed, as tcpdump does on
//! such a host.

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::net::{ipv4, ipv6};

const HEADER_LEN: usize = 4;
const TLV_LEN: usize = 4;
const PAYLOAD: u16 = 9;
const INET: u8 = 2;
const INET6: u8 = 10;

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "nflog";
    span.need(HEADER_LEN)?;
    let family = span.u8(0)?;
    let version = span.u8(1)?;
    cx.link_header_len += HEADER_LEN;
    if version != 0 {
        put!(cx, "version {version} (unknown)");
        return Ok(());
    }
    if cx.options.link_header {
        print_header(cx, span, span.length)?;
    }
    let mut rest = span.skip(HEADER_LEN);
    let payload = loop {
        let length = usize::from(rest.u16_le(0)?);
        let kind = rest.u16_le(2)?;
        let padded = length.next_multiple_of(4);
        if length < TLV_LEN || padded > rest.length {
            cx.cut();
            return Ok(());
        }
        if kind == PAYLOAD {
            cx.link_header_len += TLV_LEN;
            break rest.skip(TLV_LEN);
        }
        rest = rest.skip(padded);
        cx.link_header_len += padded;
    };
    match family {
        INET => ipv4::print(cx, payload),
        INET6 => ipv6::print(cx, payload),
        _ => {
            if !cx.options.link_header {
                print_header(cx, span, payload.length + HEADER_LEN)?;
            }
            cx.unknown(payload.with_length(payload.captured()));
            Ok(())
        }
    }
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Printed {
    let family = span.u8(0)?;
    put!(cx, "version {}, resource ID {}", span.u8(1)?, span.u16(2)?);
    let name = match family {
        INET => Some("IPv4"),
        INET6 => Some("IPv6"),
        _ => None,
    };
    match (cx.options.quiet, name) {
        (false, _) => put!(cx, ", family {} ({family})", name.unwrap_or("Unknown")),
        (true, Some(name)) => put!(cx, ", {name}"),
        (true, None) => put!(cx, ", Unknown NFLOG (0x{family:02x})"),
    }
    put!(cx, ", length {length}: ");
    Ok(())
}
