//! IPv4 (RFC 791).
//!
//! ```text
//! | version 4b, words 4b | tos 1 | length 2 | id 2 | flags 3b, offset 13b | ttl 1 | protocol 1 | checksum 2 |
//! | source 4 | destination 4 | options, 0 to 40 |
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::checksum;
use crate::context::{Context, put};
use crate::net::{self, Ip, protocol};
use crate::text::Text;

mod options;

const HEADER_LEN: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;
const DONT_FRAGMENT: u16 = 0x4000;
const RESERVED: u16 = 0x8000;
const OFFSET_MASK: u16 = 0x1fff;

/// Prints an IPv4 packet.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.nested(|cx| packet(cx, span))
}

fn packet(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ip";
    let first = span.u8(0)?;
    if first >> 4 != 4 {
        print_wrong_version(cx, first >> 4);
        return Ok(());
    }
    if !cx.options.link_header {
        cx.text("IP ");
    }
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    if span.length < HEADER_LEN {
        put!(cx, "truncated-ip {}", span.length);
        return Ok(());
    }
    let header_len = usize::from(first & 0x0f) * 4;
    if header_len < HEADER_LEN {
        put!(cx, "bad-hlen {header_len}");
        return Ok(());
    }
    let Some(total) = total_length(cx, span, header_len)? else { return Ok(()) };
    datagram(cx, span.limit(total), header_len)
}

fn print_wrong_version(cx: &mut Context<'_>, version: u8) {
    match version {
        6 => cx.text("IP6, wrong link-layer encapsulation"),
        _ => put!(cx, "IP{version}"),
    }
    cx.invalid();
}

/// The datagram's length as its header has it. `None`, and said so, if it is shorter than the header.
fn total_length(cx: &mut Context<'_>, span: Span<'_>, header_len: usize) -> Result<Option<usize>, Cut> {
    let total = usize::from(span.u16(2)?);
    if span.length < total {
        cx.text("truncated-ip - ");
        cx.dec(total - span.length);
        cx.text(" bytes missing! ");
    }
    if total < header_len {
        put!(cx, "bad-len {total}");
        return Ok(None);
    }
    Ok(Some(total))
}

/// A datagram that ends where its header says.
fn datagram(cx: &mut Context<'_>, span: Span<'_>, header_len: usize) -> Printed {
    let header = span.data;
    if cx.verbose() > 0 && !print_fields(cx, span, header_len)? {
        print_addresses(cx, span)?;
        cx.cut();
        return Ok(());
    }
    let fragment = span.u16(6)?;
    let number = span.u8(9)?;
    if fragment & OFFSET_MASK != 0 {
        return later_fragment(cx, span, number);
    }
    if !protocol::prints_addresses(number) {
        print_addresses(cx, span)?;
    }
    if span.captured() < header_len {
        put!(cx, " [remaining caplen({}) < header length({header_len})]", header.len());
        return Err(Cut);
    }
    let destination = IpAddr::from(span.array::<4>(16)?);
    let ip = Ip {
        source: IpAddr::from(span.array::<4>(12)?),
        destination,
        final_destination: options::final_destination(&header[HEADER_LEN..header_len]).unwrap_or(destination),
        ttl: span.u8(8)?,
        fragmented: fragment & MORE_FRAGMENTS != 0,
        protocol: number,
    };
    net::ip_protocol(cx, span.skip(header_len), number, &ip)
}

fn print_addresses(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.host(IpAddr::from(span.array::<4>(12)?));
    cx.text(" > ");
    cx.host(IpAddr::from(span.array::<4>(16)?));
    cx.text(": ");
    Ok(())
}

/// A fragment other than the first, which has no transport header.
fn later_fragment(cx: &mut Context<'_>, span: Span<'_>, number: u8) -> Printed {
    print_addresses(cx, span)?;
    cx.out.pop();
    protocol::print_unknown(cx, number);
    Ok(())
}

/// `(tos 0x0, ttl 64, ...)` and a new line. `false` if the options were cut.
fn print_fields(cx: &mut Context<'_>, span: Span<'_>, header_len: usize) -> Result<bool, Cut> {
    print_tos(cx, span.u8(1)?);
    let ttl = span.u8(8)?;
    if ttl > 0 {
        cx.text(", ttl ");
        cx.dec(ttl);
    }
    cx.text(", id ");
    cx.dec(span.u16(4)?);
    print_fragment(cx, span.u16(6)?);
    print_protocol(cx, span.u8(9)?);
    cx.text(", length ");
    cx.dec(span.u16(2)?);
    let whole = print_options(cx, span, header_len)?;
    if cx.options.verify_checksums && span.captured() >= header_len {
        print_checksum(cx, span.bytes(0, header_len)?, span.u16(10)?);
    }
    cx.text(")\n    ");
    Ok(whole)
}

fn print_tos(cx: &mut Context<'_>, tos: u8) {
    cx.text("(tos 0x");
    cx.hex(tos, 1);
    cx.text(["", ",ECT(1)", ",ECT(0)", ",CE"][usize::from(tos & 3)]);
}

fn print_fragment(cx: &mut Context<'_>, fragment: u16) {
    cx.text(", offset ");
    cx.dec((fragment & OFFSET_MASK) * 8);
    cx.text(", flags [");
    let start = cx.out.len();
    for (bit, name) in [(MORE_FRAGMENTS, "+"), (DONT_FRAGMENT, "DF"), (RESERVED, "rsvd")] {
        if fragment & bit != 0 {
            if cx.out.len() > start {
                cx.text(", ");
            }
            cx.text(name);
        }
    }
    if cx.out.len() == start {
        cx.text("none");
    }
    cx.text("]");
}

fn print_protocol(cx: &mut Context<'_>, number: u8) {
    cx.text(", proto ");
    cx.text(protocol::name(number).unwrap_or("unknown"));
    cx.text(" (");
    cx.dec(number);
    cx.text(")");
}

/// `false` if they were cut.
fn print_options(cx: &mut Context<'_>, span: Span<'_>, header_len: usize) -> Result<bool, Cut> {
    if header_len == HEADER_LEN {
        return Ok(true);
    }
    cx.text(", options (");
    let whole = options::print(cx, span.skip(HEADER_LEN), header_len - HEADER_LEN)?;
    if !whole {
        cx.text(" [truncated-option]");
    }
    cx.text(")");
    Ok(whole)
}

fn print_checksum(cx: &mut Context<'_>, header: &[u8], field: u16) {
    let computed = checksum::internet(header);
    if computed != 0 {
        put!(cx, ", bad cksum {field:x} (->{:x})!", checksum::should_be(field, computed));
    }
}
