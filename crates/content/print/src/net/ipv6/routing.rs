//! Routing headers: source routes (types 0 and 2), segment routing (type 4, RFC 8754).
//!
//! ```text
//! | next header 1 | length 1 | type 1 | segments left 1 | reserved 4, or last entry 1, flags 1, tag 2 | addresses 16... |
//! ```

use std::net::IpAddr;

use super::{FRAGMENT_LEN, HEADER_LEN, Step};
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::net::protocol;
use crate::text::Text;

const ADDRESSES_AT: usize = 8;
const SOURCE_ROUTE: u8 = 0;
const MOBILE: u8 = 2;
const SEGMENTS: u8 = 4;

/// Prints a routing header.
pub(super) fn print(cx: &mut Context<'_>, header: Span<'_>) -> Result<Step, Cut> {
    cx.protocol = "rt6";
    let length = header.u8(1)?;
    put!(cx, "RT6 (len={length}");
    let kind = header.u8(2)?;
    put!(cx, ", type={kind}");
    if kind == SOURCE_ROUTE {
        cx.text(" [Deprecated]");
    }
    put!(cx, ", segleft={}", header.u8(3)?);
    match kind {
        SOURCE_ROUTE | MOBILE => {
            let reserved = header.u32(4)?;
            if reserved != 0 || cx.verbose() > 0 {
                put!(cx, ", rsv=0x{reserved:x}");
            }
        }
        SEGMENTS => {
            put!(cx, ", last-entry={}", header.u8(4)?);
            let flags = header.u8(5)?;
            if flags != 0 || cx.verbose() > 0 {
                put!(cx, ", flags=0x{flags:x}");
            }
            put!(cx, ", tag={:x}", header.u16(6)?);
        }
        _ => {
            cx.text(" (unknown type)");
            cx.invalid();
            return Ok(Step::Done);
        }
    }
    if length % 2 == 1 {
        put!(cx, " (invalid length {length})");
        cx.invalid();
        return Ok(Step::Done);
    }
    print_addresses(cx, header, usize::from(length / 2))?;
    cx.text(") ");
    Ok(Step::Next((usize::from(length) + 1) * 8))
}

fn print_addresses(cx: &mut Context<'_>, header: Span<'_>, count: usize) -> Result<(), Cut> {
    for index in 0..count {
        let address = header.array::<16>(ADDRESSES_AT + index * 16)?;
        put!(cx, ", [{index}]");
        cx.host(IpAddr::from(address));
    }
    Ok(())
}

/// The last address of the routing header, if there is one: checksums cover that address (RFC 8200, 8.1).
pub(super) fn final_destination(packet: Span<'_>) -> Option<IpAddr> {
    let mut at = HEADER_LEN;
    let mut next = packet.u8(6).ok()?;
    loop {
        let header = packet.skip(at);
        at += match next {
            protocol::HOP_BY_HOP
            | protocol::DESTINATION_OPTIONS
            | protocol::MOBILITY
            | protocol::MOBILITY_OLD => (usize::from(header.u8(1).ok()?) + 1) * 8,
            protocol::FRAGMENT => FRAGMENT_LEN,
            protocol::ROUTING => return last_hop(header),
            _ => return None,
        };
        next = header.u8(0).ok()?;
    }
}

fn last_hop(header: Span<'_>) -> Option<IpAddr> {
    let count = usize::from(header.u8(1).ok()?) / 2;
    if header.u8(1).ok()? % 2 == 1 {
        return None;
    }
    let index = match header.u8(2).ok()? {
        SOURCE_ROUTE | MOBILE => count.checked_sub(1)?,
        // Segments are listed from the last to the first.
        SEGMENTS => 0,
        _ => return None,
    };
    header.array::<16>(ADDRESSES_AT + index * 16).ok().map(IpAddr::from)
}
