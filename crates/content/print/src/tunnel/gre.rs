//! GRE (RFC 2784, 2890; with source routes RFC 1701), and PPTP's version of it (RFC 2637).
//!
//! ```text
//! 0: C R K S s recur 3 | 0 ... version 3 | protocol 2 | [checksum 2, offset 2] | [key 4] | [sequence 4] | [routes]
//! 1:     K S           | A ... version 3 | 0x880b     | payload length 2, call 2 | [sequence 4] | [acknowledgment 4]
//! route = address family 2, offset 1, length 1, addresses; all zero ends them
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put, put_bits};
use crate::link::{self, ethertype};
use crate::net;
use crate::text::Text;

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const ACKNOWLEDGMENT: u16 = 0x0080;

const FLAGS: &[(u32, &str)] = &[
    (CHECKSUM as u32, "checksum present"),
    (ROUTING as u32, "routing present"),
    (KEY as u32, "key present"),
    (SEQUENCE as u32, "sequence# present"),
    (0x0800, "source routing present"),
    (ACKNOWLEDGMENT as u32, "ack present"),
];

const WCCP: u16 = 0x883e;
const PPP: u16 = 0x880b;

/// The reason that a header ends before its payload.
enum Stop {
    Cut,
    /// A length that is too short for a field.
    Invalid,
}

impl From<Cut> for Stop {
    fn from(_: Cut) -> Stop {
        Stop::Cut
    }
}

/// The header and its payload: `GREv0, length 88: IP ...`.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "gre";
    match print_version(cx, span) {
        Ok(()) => Ok(()),
        Err(Stop::Cut) => Err(Cut),
        Err(Stop::Invalid) => {
            cx.cut();
            Ok(())
        }
    }
}

fn print_version(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), Stop> {
    let mut fields = Fields { span, start: span.length };
    let flags = fields.u16()?;
    put!(cx, "GREv{}", flags & 7);
    match flags & 7 {
        0 => print_0(cx, fields, flags),
        1 => print_1(cx, fields, flags),
        _ => {
            cx.text(" ERROR: unknown-version");
            Ok(())
        }
    }
}

/// Takes one field after the other from the start of a header.
struct Fields<'p> {
    span: Span<'p>,
    /// Length of the packet with the header.
    start: usize,
}

impl Fields<'_> {
    fn take(&mut self, count: usize) -> Result<Span<'_>, Stop> {
        if self.span.length < count {
            return Err(Stop::Invalid);
        }
        let field = self.span;
        field.need(count)?;
        self.span = field.skip(count);
        Ok(field)
    }

    fn u16(&mut self) -> Result<u16, Stop> {
        Ok(self.take(2)?.u16(0)?)
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        Ok(self.take(4)?.u32(0)?)
    }
}

fn print_flags(cx: &mut Context<'_>, flags: u16) {
    if cx.verbose() > 0 {
        cx.text(", Flags [");
        put_bits(cx, FLAGS, "none", ", ", u32::from(flags));
        cx.text("]");
    }
}

fn print_0(cx: &mut Context<'_>, mut fields: Fields<'_>, flags: u16) -> Result<(), Stop> {
    print_flags(cx, flags);
    let protocol = fields.u16()?;
    if flags & (CHECKSUM | ROUTING) != 0 {
        let sum = fields.u16()?;
        if cx.verbose() > 0 {
            put!(cx, ", sum {sum:#x}");
        }
        put!(cx, ", off {:#x}", fields.u16()?);
    }
    if flags & KEY != 0 {
        put!(cx, ", key={:#x}", fields.u32()?);
    }
    if flags & SEQUENCE != 0 {
        put!(cx, ", seq {}", fields.u32()?);
    }
    if flags & ROUTING != 0 {
        print_routes(cx, &mut fields)?;
    }
    print_end(cx, protocol, fields.start);
    print_demarcation(cx);
    print_payload(cx, protocol, fields.span)
}

fn print_1(cx: &mut Context<'_>, mut fields: Fields<'_>, flags: u16) -> Result<(), Stop> {
    print_flags(cx, flags);
    let protocol = fields.u16()?;
    if flags & KEY != 0 {
        put!(cx, ", call {}", fields.u32()? & 0xffff);
    }
    if flags & SEQUENCE != 0 {
        put!(cx, ", seq {}", fields.u32()?);
    }
    if flags & ACKNOWLEDGMENT != 0 {
        put!(cx, ", ack {}", fields.u32()?);
    }
    if flags & SEQUENCE == 0 {
        cx.text(", no-payload");
    }
    print_end(cx, protocol, fields.start);
    if flags & SEQUENCE == 0 {
        return Ok(());
    }
    print_demarcation(cx);
    match protocol {
        PPP => link::ppp::print(cx, fields.span)?,
        _ => put!(cx, "gre-proto-{protocol:#x}"),
    }
    Ok(())
}

fn print_end(cx: &mut Context<'_>, protocol: u16, length: usize) {
    if cx.options.link_header {
        let name = ethertype::name(protocol).unwrap_or("unknown");
        put!(cx, ", proto {name} (0x{protocol:04x})");
    }
    put!(cx, ", length {length}");
}

fn print_demarcation(cx: &mut Context<'_>) {
    cx.text(if cx.verbose() == 0 { ": " } else { "\n\t" });
}

fn print_payload(cx: &mut Context<'_>, protocol: u16, span: Span<'_>) -> Result<(), Stop> {
    match protocol {
        // Keep-alives that Cisco's routers send to themselves through the tunnel.
        0 => cx.text("keep-alive"),
        WCCP => return print_wccp(cx, span),
        0x0800 => net::ipv4::print(cx, span)?,
        0x86dd => net::ipv6::print(cx, span)?,
        0x8847 | 0x8848 => link::mpls::print(cx, span)?,
        0x6558 => link::ethernet::print(cx, span)?,
        0x00fe => crate::llc::iso::print(cx, span)?,
        0x2000 => crate::llc::cdp::print(cx, span)?,
        _ => put!(cx, "gre-proto-{protocol:#x}"),
    }
    Ok(())
}

/// Redirected web traffic: IPv4, or a redirect header of 4 bytes and IPv4.
fn print_wccp(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), Stop> {
    cx.text("wccp ");
    let mut fields = Fields { span, start: 0 };
    if span.length < 1 {
        return Err(Stop::Invalid);
    }
    if span.u8(0)? >> 4 != 4 {
        let [flags, service, alternate, primary] = fields.u32()?.to_be_bytes();
        let bit = |mask: u8| u8::from(flags & mask != 0);
        put!(cx, "T:{} A:{} U:{} ", bit(0x80), bit(0x40), bit(0x20));
        put!(cx, "SId:{service} Alt:{alternate} Pri:{primary}: ");
    }
    net::ipv4::print(cx, fields.span)?;
    Ok(())
}

fn print_routes(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Result<(), Stop> {
    loop {
        let head = fields.u32()?;
        let (family, offset, length) = (head >> 16, (head >> 8 & 0xff) as u8, (head & 0xff) as u8);
        if family == 0 && length == 0 {
            return Ok(());
        }
        match family {
            0x0800 => print_route(cx, fields, "ip", 4, offset, length)?,
            0xfffe => print_route(cx, fields, "asn", 2, offset, length)?,
            _ => put!(cx, ", (rtaf={family:#x})"),
        }
        fields.take(usize::from(length))?;
    }
}

/// The hops of one route, `size` bytes each; `*` marks the next one.
fn print_route(
    cx: &mut Context<'_>,
    fields: &Fields<'_>,
    name: &str,
    size: u8,
    offset: u8,
    length: u8,
) -> Result<(), Stop> {
    put!(cx, ", (rtaf={name}");
    let fault = if !offset.is_multiple_of(size) {
        put!(cx, ", badoffset={offset}");
        true
    } else if !length.is_multiple_of(size) {
        put!(cx, ", badlength={length}");
        true
    } else if offset >= length {
        put!(cx, ", badoff/len={offset}/{length}");
        true
    } else {
        fields.span.length < usize::from(length)
    };
    if !fault {
        for at in (0..usize::from(length)).step_by(usize::from(size)) {
            cx.text(if at == usize::from(offset) { " *" } else { " " });
            match size {
                4 => cx.ipv4(fields.span.array(at)?),
                _ => cx.hex(fields.span.u16(at)?, 1),
            }
        }
    }
    cx.text(")");
    if fault { Err(Stop::Invalid) } else { Ok(()) }
}
