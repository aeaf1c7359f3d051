//! OpenFlow, versions 1.0 and 1.3; of other versions the header.
//!
//! ```text
//! version 1 | type 1 | length 2, with this header | transaction 4 | body
//! ```
//!
//! Sources: OpenFlow Switch Specification 1.0.0 and 1.3.5 (Open Networking Foundation).

mod v1_0;
mod v1_3;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;
use crate::{hexdump, names};

const HEADER_LEN: u16 = 8;

const VERSIONS: [&str; 6] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"];
const VERSION_1_0: u8 = 1;
const VERSION_1_3: u8 = 4;

/// Experimenters of the Open Networking Foundation.
const EXPERIMENTERS: &[(u32, &str)] = &[
    (0x4f4e_4600, "ONF Extensions"),
    (0xff00_0001, "Budapest University of Technology and Economics"),
    (0xff00_0002, "NoviFlow"),
    (0xff00_0003, "L3+ Extensions, Vendor Neutral"),
    (0xff00_0004, "L4-L7 Extensions"),
    (0xff00_0005, "Wireless and Mobility Extensions"),
    (0xff00_0006, "Forwarding Abstractions Extensions"),
    (0xff00_0007, "Optical Transport Extensions"),
    (0xff00_0008, "Network Benchmarking Lab, NCTU"),
    (0xff00_0009, "Mobile Packet Core Extensions"),
    (0xff00_000a, "MPLS-TP OpenFlow Extensions for SPTN"),
];

/// Prints a body.
type Printer = fn(&mut Context<'_>, Span<'_>) -> PartResult;

/// The length of a body.
#[derive(Clone, Copy)]
enum Length {
    Exactly(usize),
    AtLeast(usize),
}

/// A type of message.
struct Message {
    name: &'static str,
    length: Length,
    /// `None` where nothing but the header is shown.
    print: Option<Printer>,
}

/// A part that makes no sense: its rest is skipped.
struct Invalid<'p>(Span<'p>);

/// The outcome of printing a part.
type PartResult = Result<(), Cut>;

/// Ends a part that makes no sense: all of it must have been captured for the text to go on.
fn settle(cx: &mut Context<'_>, outcome: Result<Result<(), Invalid<'_>>, Cut>) -> PartResult {
    match outcome? {
        Ok(()) => Ok(()),
        Err(Invalid(rest)) => {
            cx.invalid();
            rest.need(rest.length)
        }
    }
}

/// The messages of a segment.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "openflow";
    cx.text(": OpenFlow");
    let mut rest = span;
    while rest.length != 0 {
        let Some((body_len, body)) = header(cx, rest)? else { return Ok(()) };
        let message = body.0;
        print_body(cx, message.with_length(body_len), body.1)?;
        if body_len > message.length {
            break;
        }
        rest = message.skip(body_len);
    }
    Ok(())
}

/// The bytes behind a header, and the message that they belong to.
type Body<'p> = (Span<'p>, Option<&'static Message>);

/// Prints a header; its body's length, and where the body begins. `None` ends the text.
fn header<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Option<(usize, Body<'p>)>, Cut> {
    let version = span.u8(0)?;
    match VERSIONS.get(usize::from(version).wrapping_sub(1)) {
        Some(name) => put!(cx, "\n\tversion {name}"),
        None => put!(cx, "\n\tversion unknown (0x{version:02x})"),
    }
    if span.length < 2 {
        return partial(cx, span.skip(1));
    }
    let kind = span.u8(1)?;
    let messages: &[Message] = match version {
        VERSION_1_0 => &v1_0::MESSAGES,
        VERSION_1_3 => &v1_3::MESSAGES,
        _ => &[],
    };
    let message = messages.get(usize::from(kind));
    match message {
        Some(Message { name, .. }) => put!(cx, ", type {name}"),
        None => put!(cx, ", type unknown (0x{kind:02x})"),
    }
    if span.length < 4 {
        return partial(cx, span.skip(2));
    }
    let length = span.u16(2)?;
    put!(cx, ", length {length}{}", if length < HEADER_LEN { " (too short!)" } else { "" });
    if span.length < 8 {
        return partial(cx, span.skip(4));
    }
    put!(cx, ", xid 0x{:08x}", span.u32(4)?);
    let rest = span.skip(8);
    if length < HEADER_LEN {
        settle(cx, Ok(Err(Invalid(rest))))?;
        return Ok(None);
    }
    Ok(Some((usize::from(length - HEADER_LEN), (rest, message))))
}

fn partial<'p>(cx: &mut Context<'_>, rest: Span<'_>) -> Result<Option<(usize, Body<'p>)>, Cut> {
    cx.text(" (end of TCP payload)");
    rest.need(rest.length)?;
    Ok(None)
}

fn print_body(cx: &mut Context<'_>, body: Span<'_>, message: Option<&Message>) -> PartResult {
    let Some(Message { length, print, .. }) = message else { return body.need(body.length) };
    let valid = match *length {
        Length::Exactly(length) => body.length == length,
        Length::AtLeast(length) => body.length >= length,
    };
    match print {
        _ if !valid => settle(cx, Ok(Err(Invalid(body)))),
        Some(print) if cx.verbose() > 0 => print(cx, body),
        _ => body.need(body.length),
    }
}

/// The name of a vendor or experimenter: an organization's below 2^24, above that the foundation's.
fn vendor_name(vendor: u32) -> &'static str {
    let name = match vendor >> 24 {
        0 => names::organization(vendor),
        _ => lookup(EXPERIMENTERS, vendor),
    };
    name.unwrap_or("unknown")
}

/// The names of bits in parentheses, and whether others are set that have no meaning.
fn put_bitmap(cx: &mut Context<'_>, table: &[(u32, &str)], value: u32, known: u32) {
    if value & known != 0 {
        cx.text(" (");
        put_bits(cx, table, "", ", ", value);
        cx.text(")");
    }
    if value & !known != 0 {
        cx.text(" (bogus)");
    }
}

/// The sum of a table's bits.
fn bits(table: &[(u32, &str)]) -> u32 {
    table.iter().fold(0, |sum, (bit, _)| sum | bit)
}

/// `name 0x00000000 (BITS)`, where all bits that have a meaning have a name.
fn put_word(cx: &mut Context<'_>, fields: &mut Fields<'_>, name: &str, table: &[(u32, &str)]) -> PartResult {
    put_bits_of(cx, fields, name, table, bits(table))
}

/// `name 0x00000000 (BITS)`; the bits of `known` have a meaning.
fn put_bits_of(
    cx: &mut Context<'_>,
    fields: &mut Fields<'_>,
    name: &str,
    table: &[(u32, &str)],
    known: u32,
) -> PartResult {
    let value = fields.u32()?;
    put!(cx, "{name} 0x{value:08x}");
    put_bitmap(cx, table, value, known);
    Ok(())
}

/// An error: type 2, code 2, data. The names of codes are listed by the type's number.
fn put_error(
    cx: &mut Context<'_>,
    span: Span<'_>,
    types: &[(u32, &'static str)],
    codes: &[&[(u32, &'static str)]],
) -> PartResult {
    let mut fields = Fields::new(span);
    let kind = fields.u16()?;
    cx.text("\n\t type ");
    put_name(cx, types, kind, INVALID_4);
    let code = fields.u16()?;
    cx.text(", code ");
    put_name(cx, codes.get(usize::from(kind)).copied().unwrap_or(&[]), code, INVALID_4);
    data(cx, fields.rest)
}

/// The form of a number without a name.
#[derive(Clone, Copy)]
enum Otherwise {
    Decimal,
    Hex(usize),
    /// A word, and the number in hexadecimal with this many digits.
    Word(&'static str, usize),
}

const INVALID_2: Otherwise = Otherwise::Word("invalid", 2);
const INVALID_4: Otherwise = Otherwise::Word("invalid", 4);

fn put_name(
    cx: &mut Context<'_>,
    table: &[(u32, &'static str)],
    value: impl Into<u32>,
    otherwise: Otherwise,
) {
    let value = value.into();
    match (lookup(table, value), otherwise) {
        (Some(name), _) => cx.text(name),
        (None, Otherwise::Decimal) => put!(cx, "{value}"),
        (None, Otherwise::Hex(digits)) => put!(cx, "0x{value:0digits$x}"),
        (None, Otherwise::Word(word, digits)) => put!(cx, "{word} (0x{value:0digits$x})"),
    }
}

/// Bytes of any meaning, from `-vv` on with their content.
fn data(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    if span.length == 0 {
        return Ok(());
    }
    put!(cx, "\n\t data ({} octets)", span.length);
    if cx.verbose() >= 2 {
        let shown = &span.data[..span.length.min(span.captured())];
        hexdump::hex_and_ascii(cx.out, b"\n\t  ", shown, 0);
    }
    span.need(span.length)
}

/// An Ethernet frame, from `-vvv` on decoded.
fn frame(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    if span.length == 0 {
        return Ok(());
    }
    put!(cx, "\n\t data ({} octets)", span.length);
    if cx.verbose() < 3 {
        return span.need(span.length);
    }
    cx.text(", frame decoding below\n");
    cx.nested_less_verbose(3, |cx| crate::link::ethernet::frame(cx, span.limit(span.length), "").map(drop))
}

/// Reads fields one after the other.
struct Fields<'p> {
    rest: Span<'p>,
}

impl<'p> Fields<'p> {
    fn new(rest: Span<'p>) -> Fields<'p> {
        Fields { rest }
    }

    fn u8(&mut self) -> Result<u8, Cut> {
        let value = self.rest.u8(0)?;
        self.pass(1);
        Ok(value)
    }

    fn u16(&mut self) -> Result<u16, Cut> {
        let value = self.rest.u16(0)?;
        self.pass(2);
        Ok(value)
    }

    fn u32(&mut self) -> Result<u32, Cut> {
        let value = self.rest.u32(0)?;
        self.pass(4);
        Ok(value)
    }

    fn u64(&mut self) -> Result<u64, Cut> {
        let value = self.rest.u64(0)?;
        self.pass(8);
        Ok(value)
    }

    /// `", name value"`.
    fn put_u16(&mut self, cx: &mut Context<'_>, name: &str) -> PartResult {
        let value = self.u16()?;
        put!(cx, "{name} {value}");
        Ok(())
    }

    fn put_u32(&mut self, cx: &mut Context<'_>, name: &str) -> PartResult {
        let value = self.u32()?;
        put!(cx, "{name} {value}");
        Ok(())
    }

    fn put_u64(&mut self, cx: &mut Context<'_>, name: &str) -> PartResult {
        let value = self.u64()?;
        put!(cx, "{name} {value}");
        Ok(())
    }

    /// Bytes that may not have been captured.
    fn pass(&mut self, count: usize) {
        self.rest = self.rest.skip(count);
    }

    /// Bytes that must have been captured.
    fn padding(&mut self, count: usize) -> PartResult {
        self.rest.need(count)?;
        self.pass(count);
        Ok(())
    }

    fn mac(&mut self, cx: &mut Context<'_>, name: &str) -> PartResult {
        let address: [u8; 6] = self.rest.array(0)?;
        cx.text(name);
        cx.mac(&address);
        self.pass(6);
        Ok(())
    }

    fn ipv4(&mut self, cx: &mut Context<'_>, name: &str) -> PartResult {
        let address: [u8; 4] = self.rest.array(0)?;
        cx.text(name);
        cx.host(address.into());
        self.pass(4);
        Ok(())
    }

    /// Characters padded with NUL, between quotes.
    fn quoted(&mut self, cx: &mut Context<'_>, name: &str, count: usize) -> PartResult {
        put!(cx, "{name} '");
        cx.characters(self.rest, count, true)?;
        cx.text("'");
        self.pass(count);
        Ok(())
    }

    fn left(&self) -> usize {
        self.rest.length
    }
}
