//! The values of SNMP messages in BER (X.690): the part of ASN.1 that the Internet's management needs (RFC 2578).
//!
//! ```text
//! identifier 1 (class 2 bits, constructed 1, tag 5; tag 31: more bytes of 7 bits) | length | contents
//! length < 128: itself; else 0x80 + count, and count bytes
//! ```

use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::text::Text;

/// A value could not be read; the reason has been printed.
pub(super) struct Stop;

impl From<Cut> for Stop {
    fn from(_: Cut) -> Stop {
        Stop
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Octets,
    Null,
    ObjectId,
    Integer(i32),
    Unsigned(u64),
    String,
    Sequence,
    Address,
    /// A message of SNMP, by its tag.
    Pdu(usize),
    /// No such object, no such instance, end of the view.
    Exception(usize),
    /// A message or exception without a name.
    Any,
}

/// A value and where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'p> {
    pub(super) kind: Kind,
    /// The contents, all captured.
    pub(super) contents: Span<'p>,
    /// The bytes behind the value.
    pub(super) rest: Span<'p>,
}

const UNIVERSAL: [&str; 18] = [
    "U-0",
    "Boolean",
    "Integer",
    "Bitstring",
    "String",
    "Null",
    "ObjID",
    "ObjectDes",
    "U-8",
    "U-9",
    "U-10",
    "U-11",
    "U-12",
    "U-13",
    "U-14",
    "U-15",
    "Sequence",
    "Set",
];
const APPLICATION: [&str; 7] = ["IpAddress", "Counter", "Gauge", "TimeTicks", "Opaque", "C-5", "Counter64"];
/// Messages, by their tag.
pub(super) const CONTEXT: [&str; 9] = [
    "GetRequest",
    "GetNextRequest",
    "GetResponse",
    "SetRequest",
    "Trap",
    "GetBulk",
    "Inform",
    "V2Trap",
    "Report",
];
const PRIVATE: [&str; 1] = ["P-0"];
const EXCEPTIONS: [&str; 3] = ["noSuchObject", "noSuchInstance", "endOfMibView"];

/// Names of tags by class. tcpdump prints every class as `x`: the name is lost in a macro.
const CLASSES: [&[&str]; 4] = [&UNIVERSAL, &APPLICATION, &CONTEXT, &PRIVATE];

/// The first bytes of a value.
struct Head {
    class: usize,
    constructed: bool,
    tag: usize,
    header_len: usize,
    length: usize,
}

/// The next value of `span`, which ends with its enclosing value.
pub(super) fn parse<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Value<'p>, Stop> {
    let head = match parse_head(cx, span) {
        Ok(head) => head?,
        Err(Cut) => {
            cx.cut();
            return Err(Stop);
        }
    };
    let names = CLASSES[head.class];
    let form = if head.constructed { 'C' } else { 'P' };
    let Some(tag_name) = names.get(head.tag) else {
        put!(cx, "[id?{form}/x/{}]", head.tag);
        return Err(Stop);
    };
    let after = span.skip(head.header_len);
    if after.need(head.length).is_err() {
        cx.cut();
        return Err(Stop);
    }
    let contents = after.limit(head.length);
    let kind = match (head.constructed, head.class, head.tag) {
        (false, 0, 2) => Kind::Integer(integer(cx, contents.data)?),
        (false, 0, 4) => Kind::String,
        (false, 0, 5) => Kind::Null,
        (false, 0, 6) => Kind::ObjectId,
        (false, 0, _) => {
            put!(cx, "[P/U/{tag_name}]");
            Kind::Octets
        }
        (false, 1, 0) => Kind::Address,
        (false, 1, 1..=3) => Kind::Unsigned(u64::from(unsigned(contents.data) as u32)),
        (false, 1, 6) => Kind::Unsigned(unsigned(contents.data)),
        (false, 1, _) => {
            put!(cx, "[P/A/{tag_name}]");
            Kind::Octets
        }
        (false, 2, tag @ 0..=2) => Kind::Exception(tag),
        (false, 2, _) => Kind::Any,
        (false, ..) => {
            put!(cx, "[P/x/{tag_name}]");
            Kind::Octets
        }
        (true, 0, 16) => Kind::Sequence,
        (true, 0, _) => {
            put!(cx, "C/U/{tag_name}");
            Kind::Octets
        }
        (true, 2, tag) => Kind::Pdu(tag),
        (true, ..) => {
            put!(cx, "C/x/{tag_name}");
            Kind::Octets
        }
    };
    Ok(Value { kind, contents, rest: after.skip(head.length) })
}

/// The identifier and the length. The outer error is a cut, the inner one has been explained.
fn parse_head(cx: &mut Context<'_>, span: Span<'_>) -> Result<Result<Head, Stop>, Cut> {
    if span.length < 1 {
        cx.text("[nothing to parse]");
        return Ok(Err(Stop));
    }
    let first = span.u8(0)?;
    let mut at = 1;
    let mut tag = usize::from(first & 0x1f);
    if tag == 0x1f {
        tag = 0;
        loop {
            let byte = span.u8(at)?;
            if at >= span.length {
                cx.text("[Xtagfield?]");
                return Ok(Err(Stop));
            }
            at += 1;
            // Tags of more than 8 bits have no meaning here; tcpdump keeps as many.
            tag = (tag << 7 | usize::from(byte & 0x7f)) & 0xff;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    if at >= span.length {
        cx.text("[no asnlen]");
        return Ok(Err(Stop));
    }
    let mut length = u32::from(span.u8(at)?);
    at += 1;
    if length & 0x80 != 0 {
        let count = length & 0x7f;
        let left = span.length - at;
        if left < count as usize {
            put!(cx, "[asnlen? {left}<{count}]");
            return Ok(Err(Stop));
        }
        length = 0;
        for &byte in span.bytes(at, count as usize)? {
            length = length << 8 | u32::from(byte);
        }
        at += count as usize;
    }
    let left = span.length - at;
    if left < length as usize {
        put!(cx, "[len{left}<asnlen{length}]");
        return Ok(Err(Stop));
    }
    let (class, constructed) = (usize::from(first >> 6), first & 0x20 != 0);
    Ok(Ok(Head { class, constructed, tag, header_len: at, length: length as usize }))
}

/// Two's complement; of more than four bytes the last ones count.
fn integer(cx: &mut Context<'_>, contents: &[u8]) -> Result<i32, Stop> {
    let Some(first) = contents.first() else {
        cx.text("[asnlen=0]");
        return Err(Stop);
    };
    let start = if first & 0x80 != 0 { -1 } else { 0 };
    Ok(contents.iter().fold(start, |value: i32, &byte| value << 8 | i32::from(byte)))
}

fn unsigned(contents: &[u8]) -> u64 {
    contents.iter().fold(0, |value: u64, &byte| value << 8 | u64::from(byte))
}

/// A value as text.
pub(super) fn print(cx: &mut Context<'_>, value: &Value<'_>) {
    let contents = value.contents.data;
    match value.kind {
        Kind::Octets => print_octets(cx, contents),
        Kind::Null => {}
        Kind::ObjectId => print_object_id(cx, contents),
        Kind::Integer(number) => put!(cx, "{number}"),
        Kind::Unsigned(number) => cx.dec(number),
        Kind::String => print_string(cx, contents),
        Kind::Sequence => put!(cx, "Seq({})", contents.len()),
        Kind::Address => print_address(cx, contents),
        Kind::Exception(tag) => put!(cx, "[{}]", EXCEPTIONS[tag]),
        Kind::Pdu(tag) => put!(cx, "{}({})", CONTEXT[tag], contents.len()),
        Kind::Any => cx.text("[BE_ANY!?]"),
    }
}

/// `_01_02`.
pub(super) fn print_octets(cx: &mut Context<'_>, contents: &[u8]) {
    for &byte in contents {
        cx.text("_");
        cx.hex(byte, 2);
    }
}

/// Characters in quotes, or `01_02` if one is not printable.
pub(super) fn print_string(cx: &mut Context<'_>, contents: &[u8]) {
    if contents.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        cx.text("\"");
        cx.raw(contents);
        cx.text("\"");
        return;
    }
    for (index, &byte) in contents.iter().enumerate() {
        cx.text(if index > 0 { "_" } else { "" });
        cx.hex(byte, 2);
    }
}

/// `.1.3.6.1`: numbers of 7 bits a byte, the first of them two in one.
fn print_object_id(cx: &mut Context<'_>, contents: &[u8]) {
    let mut number = 0_u32;
    let mut first = true;
    for &byte in contents {
        number = number << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if first {
            let root = (number / 40).min(2);
            put!(cx, ".{root}");
            number -= root * 40;
            first = false;
        }
        cx.text(".");
        cx.dec(number);
        number = 0;
    }
}

fn print_address(cx: &mut Context<'_>, contents: &[u8]) {
    if contents.len() != 4 {
        cx.text("[inetaddr len!=4]");
    }
    for (index, &byte) in contents.iter().enumerate() {
        cx.text(if index > 0 { "." } else { "" });
        cx.dec(byte);
    }
}
