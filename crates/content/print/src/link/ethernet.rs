//! Ethernet and its VLAN tags.
//!
//! ```text
//! | destination 6 | source 6 | [ TPID 2 | tag 2 ]... | type or length 2 | payload
//! ```

use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::link::ethertype::{self, LENGTH_MAX};
use crate::net;
use crate::text::Text;

/// Bytes of a header without tags.
const HEADER_LEN: usize = 14;
const ADDRESSES_LEN: usize = 12;

/// Prints a frame within another packet.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.nested(|cx| frame(cx, span, "").map(drop))
}

/// Prints a frame; how many bytes its headers have.
pub(crate) fn frame(cx: &mut Context<'_>, span: Span<'_>, encapsulation: &str) -> Result<usize, Cut> {
    cx.protocol = "ether";
    if span.captured() < HEADER_LEN || span.length < HEADER_LEN {
        cx.cut();
        return Ok(span.captured().min(span.length));
    }
    cx.text(encapsulation);
    let frame = Frame { addresses: span.array(0)?, length: span.length };
    if cx.options.link_header {
        frame.print_addresses(cx);
    }
    after_addresses(cx, span.skip(ADDRESSES_LEN), &frame)
}

/// Prints a frame with a switch's tag of `tag_len` bytes behind the addresses; how many bytes all headers have.
pub(super) fn switched(
    cx: &mut Context<'_>,
    span: Span<'_>,
    tag_len: usize,
    print_tag: impl FnOnce(&mut Context<'_>, Span<'_>) -> Printed,
) -> Result<usize, Cut> {
    if span.captured() < HEADER_LEN + tag_len {
        cx.cut();
        return Ok(span.captured());
    }
    let frame = Frame { addresses: span.array(0)?, length: span.length };
    if cx.options.link_header {
        frame.print_addresses(cx);
    }
    print_tag(cx, span.skip(ADDRESSES_LEN))?;
    Ok(tag_len + after_addresses(cx, span.skip(ADDRESSES_LEN + tag_len), &frame)?)
}

/// Fields of a frame that are printed only if its payload turns out to be unknown.
struct Frame {
    addresses: [u8; ADDRESSES_LEN],
    length: usize,
}

impl Frame {
    fn destination(&self) -> [u8; 6] {
        std::array::from_fn(|i| self.addresses[i])
    }

    fn source(&self) -> [u8; 6] {
        std::array::from_fn(|i| self.addresses[6 + i])
    }

    fn print_addresses(&self, cx: &mut Context<'_>) {
        cx.mac(&self.source());
        cx.text(" > ");
        cx.mac(&self.destination());
        cx.text(", ");
    }

    fn print_length(&self, cx: &mut Context<'_>) {
        cx.text(", length ");
        cx.dec(self.length);
        cx.text(": ");
    }
}

fn print_type(cx: &mut Context<'_>, ethertype: u16) {
    let name = ethertype::name(ethertype);
    if cx.options.quiet {
        match name {
            Some(name) => cx.text(name),
            None => put!(cx, "Unknown Ethertype (0x{ethertype:04x})"),
        }
        return;
    }
    cx.text("ethertype ");
    cx.text(name.unwrap_or("Unknown"));
    cx.text(" (0x");
    cx.hex(ethertype, 4);
    cx.text(")");
}

/// From the first type or length field on; how many bytes all headers have.
fn after_addresses(cx: &mut Context<'_>, span: Span<'_>, frame: &Frame) -> Result<usize, Cut> {
    let mut header_len = HEADER_LEN;
    let mut length_shown = false;
    let mut kind = span.u16(0)?;
    let mut rest = span.skip(2);
    while ethertype::is_shown_as_vlan(kind) {
        if rest.captured() < 4 || rest.length < 4 {
            cx.protocol = "vlan";
            cx.cut();
            return Ok(header_len + rest.captured().min(rest.length));
        }
        if cx.options.link_header {
            print_type(cx, kind);
            end_of_type(cx, frame, &mut length_shown);
            print_tag(cx, rest.u16(0)?);
            cx.text(", ");
        }
        kind = rest.u16(2)?;
        rest = rest.skip(4);
        header_len += 4;
    }
    if kind <= LENGTH_MAX {
        return Ok(header_len + ieee802_3(cx, rest, kind, frame, length_shown)?);
    }
    if kind == ethertype::JUMBO {
        return Ok(header_len + llc(cx, rest, frame)?);
    }
    if cx.options.link_header {
        print_type(cx, kind);
        end_of_type(cx, frame, &mut length_shown);
    }
    if !net::ethertype(cx, rest, kind)? {
        if !cx.options.link_header {
            frame.print_addresses(cx);
            print_type(cx, kind);
            frame.print_length(cx);
        }
        cx.unknown(rest.with_length(rest.captured()));
    }
    Ok(header_len)
}

/// The frame's length after its first type; after later ones only a comma.
fn end_of_type(cx: &mut Context<'_>, frame: &Frame, length_shown: &mut bool) {
    if *length_shown {
        cx.text(", ");
    } else {
        frame.print_length(cx);
        *length_shown = true;
    }
}

/// `vlan 7, p 3, DEI`: priority and drop eligibility in between.
pub(crate) fn print_tag(cx: &mut Context<'_>, tci: u16) {
    cx.text("vlan ");
    cx.dec(tci & 0x0fff);
    cx.text(", p ");
    cx.dec(tci >> 13);
    if tci & 0x1000 != 0 {
        cx.text(", DEI");
    }
}

/// A payload with a length before it instead of a type. The frame may be padded past that length.
fn ieee802_3(
    cx: &mut Context<'_>,
    rest: Span<'_>,
    length: u16,
    frame: &Frame,
    length_shown: bool,
) -> Result<usize, Cut> {
    let payload = rest.limit(rest.length.min(usize::from(length)));
    if cx.options.link_header {
        cx.text("802.3");
        if !length_shown {
            cx.text(", length ");
            cx.dec(payload.length);
            cx.text(": ");
        }
    }
    llc(cx, payload, frame)
}

fn llc(cx: &mut Context<'_>, payload: Span<'_>, frame: &Frame) -> Result<usize, Cut> {
    let llc = app::llc(cx, payload, Some(frame.source()), Some(frame.destination()))?;
    if !llc.known {
        cx.unknown(payload.with_length(payload.captured()));
    }
    Ok(llc.header_len)
}
