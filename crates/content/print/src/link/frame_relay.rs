//! Frame relay: the address of Q.922, and the headers of RFC 2427 or Cisco's framing behind it.
//!
//! ```text
//! | DLCI 6 bits, C/R, more | DLCI 4, FECN, BECN, DE, more | [DLCI 7, more] | [DLCI 6, control, last] |
//! | 0x03 | [0 padding] | network layer protocol 1 | payload          or, Cisco's:  | EtherType 2 | payload
//! FRF.15 (0xb1): | begin, end, control, sequence 4 bits, interface | sequence 1 |
//! ```

use super::{ethertype, ppp, q933};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::llc::{self, iso};
use crate::net::{self, ipv4, ipv6};
use crate::text::Text;

/// Unnumbered information: the control byte that RFC 2427 demands.
const UNNUMBERED: u8 = 0x03;
const LAST: u8 = 0x01;

const FLAGS: &[(u32, &str)] =
    &[(0x0200_0000, "C!"), (0x2_0000, "DE"), (0x4_0000, "BECN"), (0x8_0000, "FECN"), (0x2, "sdlcore")];

/// Bits of the first byte of a fragment's header (FRF.12, FRF.15, FRF.16).
pub(super) const FRAGMENT_FLAGS: &[(u32, &str)] = &[(0x80, "Begin"), (0x40, "End"), (0x20, "Control")];

struct Address {
    len: usize,
    dlci: u32,
    flags: u32,
}

/// Reasons that an address cannot be read.
enum Fault {
    Cut,
    Invalid,
}

impl From<Cut> for Fault {
    fn from(_: Cut) -> Fault {
        Fault::Cut
    }
}

impl Address {
    fn read(span: Span<'_>) -> Result<Address, Fault> {
        let span = span.limit(span.length);
        let first = span.u8(0)?;
        if first & LAST != 0 {
            return Err(Fault::Invalid);
        }
        let second = span.u8(1)?;
        let mut dlci = u32::from(first & 0xfc) << 2 | u32::from(second >> 4);
        let mut flags = u32::from(first & 2) << 24 | u32::from(second & 0x0e) << 16;
        if second & LAST != 0 {
            return Ok(Address { len: 2, dlci, flags });
        }
        let mut len = 3;
        let mut last = span.u8(2)?;
        if last & LAST == 0 {
            dlci = dlci << 7 | u32::from(last >> 1);
            len = 4;
            last = span.u8(3)?;
        }
        if last & LAST == 0 {
            return Err(Fault::Invalid);
        }
        flags |= u32::from(last & 2);
        dlci = dlci << 6 | u32::from(last >> 2);
        Ok(Address { len, dlci, flags })
    }

    /// `protocol` is a network layer protocol up to 255, above that an EtherType; `len` is the length of the header.
    fn print(&self, cx: &mut Context<'_>, len: usize, length: usize, protocol: u16) {
        let dlci = self.dlci;
        if cx.options.quiet {
            put!(cx, "Q.922, DLCI {dlci}, length {length}: ");
            return;
        }
        put!(cx, "Q.922, hdr-len {len}, DLCI {dlci}, Flags [");
        put_bits(cx, FLAGS, "none", ", ", self.flags);
        match u8::try_from(protocol) {
            Ok(number) => {
                let name = lookup(iso::NETWORK_PROTOCOLS, number).unwrap_or("unknown");
                put!(cx, "], NLPID {name} (0x{number:02x}), length {length}: ");
            }
            Err(_) => {
                let name = ethertype::name(protocol).unwrap_or("unknown");
                put!(cx, "], cisco-ethertype {name} (0x{protocol:04x}), length {length}: ");
            }
        }
    }
}

/// Prints a packet of the link type FRELAY.
pub(super) fn link(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "fr";
    if span.captured() < 4 {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    cx.link_header_len += print(cx, span)?;
    Ok(())
}

/// Prints a frame; how many bytes its header has.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    cx.protocol = "fr";
    let address = match Address::read(span) {
        Ok(address) => address,
        Err(Fault::Invalid) => {
            cx.text("Q.922, invalid address");
            return Ok(0);
        }
        Err(Fault::Cut) => {
            cx.cut();
            return Ok(0);
        }
    };
    match behind_address(cx, span, &address) {
        Ok(Some(header_len)) => Ok(header_len),
        Ok(None) => {
            cx.cut();
            Ok(0)
        }
        Err(cut) => Err(cut),
    }
}

/// `None` if the header goes past the frame.
fn behind_address(cx: &mut Context<'_>, span: Span<'_>, address: &Address) -> Result<Option<usize>, Cut> {
    let frame = span.limit(span.length);
    let Ok(control) = frame.u8(address.len) else { return Ok(None) };
    if control != UNNUMBERED && address.dlci != 0 {
        if let Ok(kind) = frame.u16(address.len) {
            if cx.options.link_header {
                address.print(cx, address.len, span.length, kind);
            }
            if net::ethertype(cx, span.skip(address.len + 2), kind)? {
                return Ok(Some(address.len + 2));
            }
        }
        put!(cx, "UI {control:02x}! ");
    }
    let Ok(next) = frame.u8(address.len + 1) else { return Ok(None) };
    // Padding makes the header's length even; only an address of three bytes needs it.
    let padded = next == 0;
    match (padded, address.len) {
        (true, 3) => {}
        (true, _) => cx.text("Pad! "),
        (false, 3) => cx.text("No pad! "),
        (false, _) => {}
    }
    let header_len = address.len + if padded { 3 } else { 2 };
    let Ok(protocol) = frame.u8(header_len - 1) else { return Ok(None) };
    if cx.options.link_header {
        address.print(cx, address.len, span.length, u16::from(protocol));
    }
    payload(cx, span, address, header_len, protocol)?;
    Ok(Some(header_len))
}

fn payload(
    cx: &mut Context<'_>,
    span: Span<'_>,
    address: &Address,
    header_len: usize,
    protocol: u8,
) -> Printed {
    let rest = span.skip(header_len);
    match protocol {
        0xcc => ipv4::print(cx, rest),
        0x8e => ipv6::print(cx, rest),
        // These printers want the protocol's byte too.
        0x81..=0x83 => iso::print(cx, span.skip(header_len - 1)),
        0x80 => {
            if !llc::print_snap(cx, rest, None, None, 0)? {
                if !cx.options.link_header {
                    address.print(cx, header_len, span.length, u16::from(protocol));
                }
                if !cx.options.hex.shows_hex() && !cx.options.quiet {
                    cx.hex_and_ascii_to_end(span)?;
                }
            }
            Ok(())
        }
        0x08 => q933::print(cx, rest),
        0xb1 => fragment(cx, rest),
        0xcf => ppp::print(cx, rest),
        _ => {
            if !cx.options.link_header {
                address.print(cx, address.len, span.length, u16::from(protocol));
            }
            if cx.options.hex.shows_hex() {
                return Ok(());
            }
            cx.hex_and_ascii_to_end(rest)
        }
    }
}

/// A fragment's header (FRF.15).
fn fragment(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.length < 2 {
        cx.cut();
        return Ok(());
    }
    let (first, second) = (span.u8(0)?, span.u8(1)?);
    put!(cx, "FRF.15, seq 0x{:03x}, Flags [", sequence(first, second));
    put_bits(cx, FRAGMENT_FLAGS, "none", ", ", u32::from(first & 0xe0));
    let model = if first & 1 != 0 { "Interface" } else { "End-to-End" };
    put!(cx, "],{model} Fragmentation, length {}", span.length);
    Ok(())
}

/// The number of a fragment: four bits of the first byte, all of the second.
pub(super) fn sequence(first: u8, second: u8) -> u16 {
    u16::from(first & 0x1e) << 7 | u16::from(second)
}
