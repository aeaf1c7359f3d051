//! ARP and RARP (RFC 826, RFC 903), inverse ARP (RFC 2390).
//!
//! ```text
//! | hardware 2 | protocol 2 | hlen 1 | plen 1 | operation 2 | sender hw | sender proto | target hw | target proto |
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::link::ethertype;
use crate::text::Text;

const HEADER_LEN: usize = 8;

const HARDWARE: &[(u16, &str)] = &[
    (1, "Ethernet"),
    (6, "TokenRing"),
    (7, "ArcNet"),
    (15, "FrameRelay"),
    (23, "Strip"),
    (24, "IEEE 1394"),
    (19, "ATM"),
    (32, "InfiniBand"),
];

const OPERATIONS: &[(u16, &str)] = &[
    (1, "Request"),
    (2, "Reply"),
    (3, "Reverse Request"),
    (4, "Reverse Reply"),
    (8, "Inverse Request"),
    (9, "Inverse Reply"),
    (10, "NACK Reply"),
];

/// Prints an ARP packet.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "arp";
    let arp = Arp::parse(span)?;
    if !cx.options.link_header {
        cx.text("ARP, ");
    }
    if !arp.is_ip() || arp.hardware_len == 0 || cx.verbose() > 0 {
        arp.print_formats(cx);
        if cx.verbose() == 0 {
            print_length(cx, span);
            return Ok(());
        }
        cx.text(", ");
    }
    arp.print_operation(cx);
    if !arp.print_addresses(cx)? {
        cx.hex_and_ascii(span.with_length(span.captured()));
        return Ok(());
    }
    print_length(cx, span);
    Ok(())
}

fn print_length(cx: &mut Context<'_>, span: Span<'_>) {
    cx.text(", length ");
    cx.dec(span.length);
}

struct Arp<'p> {
    span: Span<'p>,
    hardware: u16,
    protocol: u16,
    hardware_len: usize,
    protocol_len: usize,
    operation: u16,
}

impl<'p> Arp<'p> {
    /// The header, with all addresses captured.
    fn parse(span: Span<'p>) -> Result<Arp<'p>, Cut> {
        let arp = Arp {
            span,
            hardware: span.u16(0)?,
            protocol: span.u16(2)?,
            hardware_len: usize::from(span.u8(4)?),
            protocol_len: usize::from(span.u8(5)?),
            operation: span.u16(6)?,
        };
        span.need(arp.target_protocol_at() + arp.protocol_len)?;
        Ok(arp)
    }

    fn has_ip_type(&self) -> bool {
        matches!(self.protocol, ethertype::IPV4 | ethertype::TRAIL)
    }

    fn is_ip(&self) -> bool {
        self.has_ip_type() && self.protocol_len == 4
    }

    fn target_hardware_at(&self) -> usize {
        HEADER_LEN + self.hardware_len + self.protocol_len
    }

    fn target_protocol_at(&self) -> usize {
        self.target_hardware_at() + self.hardware_len
    }

    fn print_formats(&self, cx: &mut Context<'_>) {
        match lookup(HARDWARE, self.hardware) {
            Some(name) => cx.text(name),
            None => put!(cx, "Unknown Hardware ({})", self.hardware),
        }
        put!(cx, " (len {}), ", self.hardware_len);
        match ethertype::name(self.protocol) {
            Some(name) => cx.text(name),
            None => put!(cx, "Unknown Protocol (0x{:04x})", self.protocol),
        }
        put!(cx, " (len {})", self.protocol_len);
    }

    fn print_operation(&self, cx: &mut Context<'_>) {
        match lookup(OPERATIONS, self.operation) {
            Some(name) => cx.text(name),
            None => put!(cx, "Unknown ({})", self.operation),
        }
        cx.text(" ");
    }

    /// Whether the operation is one whose addresses make a sentence.
    fn print_addresses(&self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        match self.operation {
            1 => self.print_request(cx)?,
            2 => {
                self.print_ip(cx, HEADER_LEN + self.hardware_len)?;
                cx.text(" is-at ");
                self.print_hardware(cx, HEADER_LEN)?;
            }
            3 | 8 => {
                cx.text("who-is ");
                self.print_hardware(cx, self.target_hardware_at())?;
                cx.text(" tell ");
                self.print_hardware(cx, HEADER_LEN)?;
            }
            4 => {
                self.print_hardware(cx, self.target_hardware_at())?;
                cx.text(" at ");
                self.print_ip(cx, self.target_protocol_at())?;
            }
            9 => {
                self.print_hardware(cx, HEADER_LEN)?;
                cx.text(" at ");
                self.print_ip(cx, HEADER_LEN + self.hardware_len)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn print_request(&self, cx: &mut Context<'_>) -> Printed {
        cx.text("who-has ");
        self.print_ip(cx, self.target_protocol_at())?;
        let target = self.span.bytes(self.target_hardware_at(), self.hardware_len)?;
        if target.iter().any(|&b| b != 0) {
            cx.text(" (");
            self.print_hardware(cx, self.target_hardware_at())?;
            cx.text(")");
        }
        cx.text(" tell ");
        self.print_ip(cx, HEADER_LEN + self.hardware_len)
    }

    fn print_ip(&self, cx: &mut Context<'_>, at: usize) -> Printed {
        if !self.has_ip_type() {
            cx.text("<wrong proto type>");
        } else if self.protocol_len != 4 {
            cx.text("<wrong len>");
        } else {
            cx.host(IpAddr::from(self.span.array::<4>(at)?));
        }
        Ok(())
    }

    fn print_hardware(&self, cx: &mut Context<'_>, at: usize) -> Printed {
        match self.span.bytes(at, self.hardware_len)? {
            [] => cx.text("<empty>"),
            address => cx.mac(address),
        }
        Ok(())
    }
}
