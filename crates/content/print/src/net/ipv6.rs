//! IPv6 and its extension headers (RFC 8200).
//!
//! ```text
//! | version 4b, class 8b, flow label 20b | payload length 2 | next header 1 | hop limit 1 | source 16 | destination 16 |
//! | next header 1 | length 1, in units of 8 bytes after the first 8 | options or addresses ... |    any number of times
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::net::{self, Ip, protocol};
use crate::text::Text;

mod mobility;
mod options;
mod routing;

const HEADER_LEN: usize = 40;
const FRAGMENT_LEN: usize = 8;

/// Prints an IPv6 packet.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.nested(|cx| packet(cx, span))
}

fn packet(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ip6";
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    if span.length < HEADER_LEN {
        put!(cx, "truncated-ip6 {}", span.length);
        return Ok(());
    }
    if !cx.options.link_header {
        cx.text("IP6 ");
    }
    let version = span.u8(0)? >> 4;
    if version != 6 {
        put!(cx, "version error: {version} != 6");
        return Ok(());
    }
    let payload_len = usize::from(span.u16(4)?);
    let total = if payload_len == 0 { span.length } else { payload_len + HEADER_LEN };
    if span.length < total {
        put!(cx, "truncated-ip6 - {} bytes missing!", total - span.length);
    }
    if cx.verbose() > 0 {
        print_fields(cx, span)?;
    }
    Chain::new(span, total, payload_len)?.print(cx)
}

/// `(class 0x00, flowlabel 0x00000, hlim 64, next-header TCP (6) payload length: 20) `.
fn print_fields(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let flow = span.u32(0)?;
    cx.text("(");
    if flow & 0x0ff0_0000 != 0 {
        cx.text("class 0x");
        cx.hex((flow >> 20) & 0xff, 2);
        cx.text(", ");
    }
    if flow & 0x000f_ffff != 0 {
        cx.text("flowlabel 0x");
        cx.hex(flow & 0x000f_ffff, 5);
        cx.text(", ");
    }
    cx.text("hlim ");
    cx.dec(span.u8(7)?);
    let next = span.u8(6)?;
    cx.text(", next-header ");
    cx.text(protocol::name(next).unwrap_or("unknown"));
    cx.text(" (");
    cx.dec(next);
    cx.text(") payload length: ");
    cx.dec(span.u16(4)?);
    cx.text(") ");
    Ok(())
}

/// The result of printing an extension header.
enum Step {
    /// The next header follows after this many bytes.
    Next(usize),
    /// All is said.
    Done,
}

/// A walk along the chain of headers.
struct Chain<'p> {
    packet: Span<'p>,
    ip: Ip,
    payload_len: usize,
    /// The offset of the next header.
    at: usize,
    next: u8,
    jumbo: Option<usize>,
    hop_by_hop_seen: bool,
    extended: bool,
}

impl<'p> Chain<'p> {
    fn new(span: Span<'p>, total: usize, payload_len: usize) -> Result<Chain<'p>, Cut> {
        let packet = span.limit(total);
        let destination = IpAddr::from(packet.array::<16>(24)?);
        let next = packet.u8(6)?;
        let ip = Ip {
            source: IpAddr::from(packet.array::<16>(8)?),
            destination,
            final_destination: routing::final_destination(packet).unwrap_or(destination),
            ttl: packet.u8(7)?,
            fragmented: false,
            protocol: next,
        };
        Ok(Chain {
            packet,
            ip,
            payload_len,
            at: HEADER_LEN,
            next,
            jumbo: None,
            hop_by_hop_seen: false,
            extended: false,
        })
    }

    fn print(&mut self, cx: &mut Context<'_>) -> Printed {
        if !protocol::prints_addresses(self.next) {
            cx.host(self.ip.source);
            cx.text(" > ");
            cx.host(self.ip.destination);
            cx.text(": ");
        }
        loop {
            let header = self.packet.skip(self.at);
            let step = match self.next {
                protocol::HOP_BY_HOP => self.hop_by_hop(cx, header)?,
                protocol::DESTINATION_OPTIONS => options::destination(cx, header)?,
                protocol::FRAGMENT => self.fragment(cx, header)?,
                protocol::MOBILITY | protocol::MOBILITY_OLD => {
                    mobility::print(cx, header)?;
                    return Ok(());
                }
                protocol::ROUTING => routing::print(cx, header)?,
                _ => return self.payload(cx),
            };
            let Step::Next(advance) = step else { return Ok(()) };
            self.extended = true;
            cx.protocol = "ip6";
            if self.packet.length < self.at + advance {
                cx.cut();
                return Ok(());
            }
            self.next = header.u8(0)?;
            self.at += advance;
            if self.at > self.packet.captured() {
                return Ok(());
            }
        }
    }

    fn hop_by_hop(&mut self, cx: &mut Context<'_>, header: Span<'p>) -> Result<Step, Cut> {
        if self.hop_by_hop_seen {
            cx.text("[The Hop-by-Hop Options header was already found]");
            cx.invalid();
            return Ok(Step::Done);
        }
        if self.extended {
            cx.text("[The Hop-by-Hop Options header don't follow the IPv6 header]");
            cx.invalid();
            return Ok(Step::Done);
        }
        self.hop_by_hop_seen = true;
        let (step, jumbo) = options::hop_by_hop(cx, header, self.payload_len)?;
        self.jumbo = jumbo;
        if self.payload_len == 0 && jumbo.is_none() {
            cx.text("[No valid Jumbo Payload Hop-by-Hop option found]");
            cx.invalid();
            return Ok(Step::Done);
        }
        Ok(step)
    }

    fn fragment(&mut self, cx: &mut Context<'_>, header: Span<'p>) -> Result<Step, Cut> {
        cx.protocol = "frag6";
        let offset = header.u16(2)? & 0xfff8;
        cx.text("frag (");
        if cx.verbose() > 0 {
            cx.text("0x");
            cx.hex(header.u32(4)?, 8);
            cx.text(":");
        }
        let rest = (HEADER_LEN + self.payload_len).wrapping_sub(self.at + FRAGMENT_LEN);
        put!(cx, "{offset}|{rest})");
        if offset != 0 {
            return Ok(Step::Done);
        }
        cx.text(" ");
        self.ip.fragmented = true;
        if self.packet.captured() <= self.at + FRAGMENT_LEN {
            return Ok(Step::Done);
        }
        Ok(Step::Next(FRAGMENT_LEN))
    }

    fn payload(&mut self, cx: &mut Context<'_>) -> Printed {
        let packet = match self.jumbo {
            Some(length) => {
                let total = length.saturating_add(HEADER_LEN);
                if self.packet.length < total {
                    put!(cx, "truncated-ip6 - {} bytes missing!", total - self.packet.length);
                }
                self.packet.limit(total)
            }
            None if self.payload_len == 0 && self.extended => {
                cx.cut();
                return Ok(());
            }
            None if self.payload_len == 0 => self.packet.limit(HEADER_LEN),
            None => self.packet,
        };
        net::ip_protocol(cx, packet.skip(self.at), self.next, &self.ip)
    }
}
