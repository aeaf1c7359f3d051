//! Linux cooked capture, versions 1 and 2.
//!
//! ```text
//! 1: | packet type 2 | hardware 2 | address length 2 | address 8 | protocol 2 | payload |
//! 2: | protocol 2 | 0, 0 | interface 4 | hardware 2 | packet type 1 | address length 1 | address 8 | payload |
//! ```

use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::link::ethernet::print_tag;
use crate::link::ethertype::{self, LENGTH_MAX};
use crate::net;
use crate::text::Text;

const VERSION_1_LEN: usize = 16;
const VERSION_2_LEN: usize = 20;
/// Frames of 802.3 without and with an LLC header.
const NOVELL: u16 = 0x0001;
const LLC: u16 = 0x0004;

/// Fields of both versions of the header.
struct Header {
    interface: Option<u32>,
    packet_type: u16,
    address_len: u16,
    address: [u8; 6],
    protocol: u16,
    length: usize,
}

/// Prints a packet of version 1.
pub(super) fn version_1(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "sll";
    span.need(VERSION_1_LEN)?;
    let header = Header {
        interface: None,
        packet_type: span.u16(0)?,
        address_len: span.u16(4)?,
        address: span.array(6)?,
        protocol: span.u16(14)?,
        length: span.length,
    };
    payload(cx, span, VERSION_1_LEN, &header)
}

/// Prints a packet of version 2.
pub(super) fn version_2(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "sll2";
    span.need(VERSION_2_LEN)?;
    let header = Header {
        interface: Some(span.u32(4)?),
        packet_type: u16::from(span.u8(10)?),
        address_len: u16::from(span.u8(11)?),
        address: span.array(12)?,
        protocol: span.u16(0)?,
        length: span.length,
    };
    // An index means nothing away from the host that captured; its name there is not known.
    put!(cx, "{:<5} {:<3} ", "?", header.packet_type_name());
    payload(cx, span, VERSION_2_LEN, &header)
}

impl Header {
    fn packet_type_name(&self) -> &'static str {
        ["In", "B", "M", "P", "Out"].get(usize::from(self.packet_type)).copied().unwrap_or("?")
    }

    fn print(&self, cx: &mut Context<'_>) {
        match self.interface {
            None => put!(cx, "{:>3} ", self.packet_type_name()),
            Some(index) => put!(cx, "ifindex {index} "),
        }
        if self.address_len == 6 {
            cx.mac(&self.address);
            cx.text(" ");
        }
        if cx.options.quiet {
            return;
        }
        match self.protocol {
            NOVELL => cx.text("802.3"),
            LLC => cx.text("802.2"),
            protocol => {
                let name = if protocol <= LENGTH_MAX { None } else { ethertype::name(protocol) };
                put!(cx, "ethertype {} (0x{protocol:04x})", name.unwrap_or("Unknown"));
            }
        }
        put!(cx, ", length {}: ", self.length);
    }
}

fn payload(cx: &mut Context<'_>, span: Span<'_>, header_len: usize, header: &Header) -> Printed {
    if cx.options.link_header {
        header.print(cx);
    }
    let mut rest = span.skip(header_len);
    let mut total = header_len;
    let mut protocol = header.protocol;
    while protocol == ethertype::VLAN {
        if rest.captured() < 4 {
            cx.protocol = "vlan";
            cx.cut();
            cx.link_header_len += total + rest.captured();
            return Ok(());
        }
        protocol = vlan(cx, rest)?;
        rest = rest.skip(4);
        total += 4;
    }
    if protocol > LENGTH_MAX {
        if !net::ethertype(cx, rest, protocol)? {
            if !cx.options.link_header {
                header.print(cx);
            }
            cx.unknown(rest.with_length(rest.captured()));
        }
    } else if protocol == LLC {
        let llc = app::llc(cx, rest, None, None)?;
        if llc.known {
            total += llc.header_len;
        } else {
            cx.unknown(rest.with_length(rest.captured()));
        }
    } else {
        cx.unknown(rest.with_length(rest.captured()));
    }
    cx.link_header_len += total;
    Ok(())
}

/// Prints a tag; the protocol behind it.
fn vlan(cx: &mut Context<'_>, rest: Span<'_>) -> Result<u16, Cut> {
    if cx.options.link_header {
        print_tag(cx, rest.u16(0)?);
        cx.text(", ");
    }
    let mut protocol = rest.u16(2)?;
    if protocol <= LENGTH_MAX {
        protocol = LLC;
    }
    if !cx.options.quiet {
        put!(cx, "ethertype {}, ", ethertype::name(protocol).unwrap_or("Unknown"));
    }
    Ok(protocol)
}
