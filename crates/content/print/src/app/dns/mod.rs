//! DNS (RFC 1035), multicast DNS (RFC 6762), and EDNS (RFC 6891).
//!
//! ```text
//! [length 2 over TCP] id 2, flags 2, counts 4 x 2 | questions | answers | authorities | additionals
//! question = name, type 2, class 2
//! record   = name, type 2, class 2, time to live 4, length 2, data
//! flags    = QR, opcode 4, AA, TC, RD | RA, Z, AD, CD, rcode 4
//! ```
//!
//! Text: `12345+ A? example.com. (29)` asks, `12345 1/0/0 A 192.0.2.1 (45)` answers; with `-v` the names of the
//! answers, with `-vv` the question and the other sections of an answer.

mod options;
pub(crate) mod tables;

use crate::app::relative_time;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;
use tables::{CLASSES, OPERATIONS, RESPONSES, TYPES};
use tapline_dissect::dns::name::{self, NameFault, NamePart};
use tapline_dissect::dns::{HEADER_LEN, Header, flag};

/// The transport of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// UDP port 53.
    Udp,
    /// TCP port 53: two bytes of length go before it.
    Tcp,
    /// UDP port 5353: the top bit of classes has a meaning of its own.
    Multicast,
}

/// Bits that a question leaves at zero.
const ODD_IN_QUESTIONS: u16 = 0x06cf;

const INVERSE_QUERY: u8 = 1;

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, carrier: Carrier) -> Printed {
    cx.protocol = "domain";
    let Some(message) = message_of(cx, span, carrier)? else { return Ok(()) };
    if message.length < HEADER_LEN {
        put!(cx, "domain [length {} < {HEADER_LEN}]", message.length);
        cx.invalid();
        return Ok(());
    }
    let mut reader = Reader { message, at: HEADER_LEN, multicast: carrier == Carrier::Multicast };
    match reader.print(cx) {
        Ok(()) => put!(cx, " ({})", message.length),
        Err(Cut) => cx.cut(),
    }
    Ok(())
}

/// The message without the length that TCP puts before it; `None` if it is not all of one message.
fn message_of<'p>(cx: &mut Context<'_>, span: Span<'p>, carrier: Carrier) -> Result<Option<Span<'p>>, Cut> {
    if carrier != Carrier::Tcp {
        return Ok(Some(span));
    }
    if span.length < 2 {
        put!(cx, " [DNS over TCP: length {} < 2]", span.length);
        cx.invalid();
        return Ok(None);
    }
    let length = usize::from(span.u16(0)?);
    let message = span.skip(2);
    if length != message.length {
        put!(cx, " [prefix length({length}) != length({})]", message.length);
        cx.invalid();
        return Ok(None);
    }
    cx.text(" ");
    Ok(Some(message))
}

/// Goes through a message from section to section.
struct Reader<'p> {
    message: Span<'p>,
    at: usize,
    multicast: bool,
}

impl Reader<'_> {
    fn print(&mut self, cx: &mut Context<'_>) -> Printed {
        let header = Header::parse(self.message.data).ok_or(Cut)?;
        if header.has(flag::RESPONSE) { self.response(cx, header) } else { self.request(cx, header) }
    }

    fn response(&mut self, cx: &mut Context<'_>, header: Header) -> Printed {
        cx.dec(header.id);
        cx.text(OPERATIONS[usize::from(header.opcode())]);
        print_response_code(cx, response_code(self.message, header));
        cx.text(if header.has(flag::AUTHORITATIVE) { "*" } else { "" });
        cx.text(if header.has(flag::RECURSION_AVAILABLE) { "" } else { "-" });
        cx.text(if header.has(flag::TRUNCATED) { "|" } else { "" });
        cx.text(if header.has(flag::AUTHENTIC_DATA) { "$" } else { "" });
        if header.questions != 1 {
            put!(cx, " [{}q]", header.questions);
        }
        for index in 0..header.questions {
            if index > 0 {
                cx.text(",");
            }
            if cx.verbose() > 1 {
                cx.text(" q:");
                self.question(cx)?;
            } else {
                self.at = skip_name(self.message, self.at)? + 4;
            }
        }
        put!(cx, " {}/{}/{}", header.answers, header.authorities, header.additionals);
        self.section(cx, "", header.answers, true)?;
        self.other_sections(cx, header)
    }

    fn request(&mut self, cx: &mut Context<'_>, header: Header) -> Printed {
        cx.dec(header.id);
        cx.text(OPERATIONS[usize::from(header.opcode())]);
        cx.text(if header.has(flag::RECURSION_DESIRED) { "+" } else { "" });
        cx.text(if header.has(flag::CHECKING_DISABLED) { "%" } else { "" });
        if header.has(ODD_IN_QUESTIONS) {
            put!(cx, " [b2&3={:#x}]", header.flags);
        }
        print_counts(cx, header);
        for index in 0..header.questions {
            if index > 0 && self.at >= self.message.captured() {
                return Err(Cut);
            }
            self.question(cx)?;
        }
        if cx.verbose() > 1 {
            self.section(cx, "", header.answers, true)?;
        }
        self.other_sections(cx, header)
    }

    fn other_sections(&mut self, cx: &mut Context<'_>, header: Header) -> Printed {
        if cx.verbose() < 2 {
            return Ok(());
        }
        self.section(cx, " ns:", header.authorities, false)?;
        self.section(cx, " ar:", header.additionals, false)
    }

    /// A section of records. The first of the answers is looked for even where no byte is left.
    fn section(&mut self, cx: &mut Context<'_>, title: &str, count: u16, first_anyway: bool) -> Printed {
        for index in 0..count {
            let anyway = first_anyway && index == 0;
            if !anyway && self.at >= self.message.captured() {
                return Err(Cut);
            }
            cx.text(if index == 0 { title } else { "," });
            self.record(cx)?;
        }
        Ok(())
    }

    fn question(&mut self, cx: &mut Context<'_>) -> Printed {
        let name_at = self.at;
        let at = skip_name(self.message, name_at)?;
        self.message.need(at + 4)?;
        cx.text(" ");
        print_type(cx, self.message.u16(at)?);
        let class = self.message.u16(at + 2)?;
        self.class(cx, class);
        if self.multicast {
            cx.text(if class & 0x8000 != 0 { " (QU)" } else { " (QM)" });
        }
        cx.text("? ");
        self.at = print_name(cx, self.message, name_at)? + 4;
        Ok(())
    }

    fn record(&mut self, cx: &mut Context<'_>) -> Printed {
        if cx.verbose() > 0 {
            cx.text(" ");
            self.at = print_name(cx, self.message, self.at)?;
        } else if let Ok(at) = skip_name(self.message, self.at) {
            self.at = at;
        } else {
            self.at = usize::MAX;
        }
        // As tcpdump has it: a record whose fixed part is missing ends the section without a word.
        let Ok(fixed) = self.message.array::<10>(self.at) else {
            self.at = self.message.captured();
            return Ok(());
        };
        let fixed = Span::whole(&fixed);
        let (kind, class, length) = (fixed.u16(0)?, fixed.u16(2)?, usize::from(fixed.u16(8)?));
        if kind != tables::OPT {
            self.class(cx, class);
        }
        if self.multicast && class & 0x8000 != 0 {
            cx.text(" (Cache flush)");
        }
        if kind != tables::OPT && cx.verbose() > 2 {
            cx.text(" [");
            relative_time(cx, fixed.u32(4)?);
            cx.text("]");
        }
        cx.text(" ");
        print_type(cx, kind);
        self.at += 10;
        self.message.need(self.at + length)?;
        let class = if self.multicast { class & 0x7fff } else { class };
        self.data(cx, kind, class, fixed.u16(6)?, length)?;
        self.at += length;
        Ok(())
    }

    /// The class, unless it is the Internet's.
    fn class(&self, cx: &mut Context<'_>, class: u16) {
        let class = if self.multicast { class & 0x7fff } else { class };
        if class == 1 {
            return;
        }
        match lookup(CLASSES, class) {
            Some(name) => put!(cx, " {name}"),
            None => put!(cx, " (Class {class})"),
        }
    }

    fn data(&self, cx: &mut Context<'_>, kind: u16, class: u16, flags: u16, length: usize) -> Printed {
        let Reader { message, at, .. } = *self;
        match kind {
            tables::A => {
                cx.text(" ");
                cx.ipv4(message.array(at)?);
            }
            tables::AAAA => {
                cx.text(" ");
                cx.ipv6(message.array(at)?);
            }
            tables::NS | tables::CNAME | tables::PTR | tables::DNAME => {
                cx.text(" ");
                print_name(cx, message, at)?;
            }
            tables::SOA if cx.verbose() > 0 => return print_start_of_authority(cx, message, at),
            tables::MX => {
                cx.text(" ");
                let preference = message.u16(at)?;
                print_name(cx, message, at + 2)?;
                put!(cx, " {preference}");
            }
            tables::TXT => return print_strings(cx, message, at, length),
            tables::SRV => return print_service(cx, message, at),
            tables::A6 => return print_a6(cx, message, at),
            tables::OPT => return options::print(cx, message, at, length, class, flags),
            tables::URI => print_uri(cx, message, at, length)?,
            tables::UNSPECA => cx.visible_all(message.bytes(at, length)?),
            tables::TSIG if cx.verbose() > 0 => return print_signature(cx, message, at),
            _ => {}
        }
        Ok(())
    }
}

fn print_type(cx: &mut Context<'_>, kind: u16) {
    match lookup(TYPES, kind) {
        Some(name) => cx.text(name),
        None => put!(cx, "Type{kind}"),
    }
}

/// Prints the counts of a question that are unusual.
fn print_counts(cx: &mut Context<'_>, header: Header) {
    let inverse = header.opcode() == INVERSE_QUERY;
    let Header { questions, answers, authorities, additionals, .. } = header;
    let (usual_questions, usual_answers) = if inverse { (0, 1) } else { (1, 0) };
    let mut counts = [(answers, usual_answers, "a"), (questions, usual_questions, "q")];
    if inverse {
        counts.swap(0, 1);
    }
    for (count, usual, name) in counts {
        if count != usual {
            put!(cx, " [{count}{name}]");
        }
    }
    for (count, name) in [(authorities, "n"), (additionals, "au")] {
        if count != 0 {
            put!(cx, " [{count}{name}]");
        }
    }
}

/// The code of the header, with the upper bits that an OPT record carries (RFC 6891, 6.1.3).
fn response_code(message: Span<'_>, header: Header) -> u16 {
    header.flags & 15 | extended_code(message, header).unwrap_or(0)
}

/// The upper bits, if all records up to the OPT record were captured.
fn extended_code(message: Span<'_>, header: Header) -> Result<u16, Cut> {
    let mut at = HEADER_LEN;
    for _ in 0..header.questions {
        at = skip_name(message, at)? + 4;
    }
    let before = u32::from(header.answers) + u32::from(header.authorities);
    for index in 0..before + u32::from(header.additionals) {
        at = skip_name(message, at)?;
        if index >= before && message.u16(at)? == tables::OPT {
            return Ok(u16::from(message.u8(at + 4)?) << 4);
        }
        at += 10 + usize::from(message.u16(at + 8)?);
    }
    Ok(0)
}

fn print_response_code(cx: &mut Context<'_>, code: u16) {
    match RESPONSES.get(usize::from(code)) {
        Some(name) => cx.text(name),
        None => put!(cx, " Resp{code}"),
    }
}

/// The offset behind the name at `at`.
fn skip_name(message: Span<'_>, at: usize) -> Result<usize, Cut> {
    name::skip(message.data, at).ok_or(Cut)
}

/// Prints the name at `at` and returns the offset behind it. A name that makes no sense ends the message as a cut does.
pub(crate) fn print_name(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> Result<usize, Cut> {
    let end = name::walk(message.data, at, |piece| match piece {
        NamePart::Label(label) => cx.visible_all(label),
        NamePart::Bits { count, bits } => print_bits(cx, count, bits),
        NamePart::Dot => cx.text("."),
        NamePart::TooLong => cx.text("<DOMAIN NAME TOO LONG>"),
    });
    end.map_err(|fault| {
        match fault {
            NameFault::Cut => {}
            NameFault::Pointer => cx.text("<BAD PTR>"),
            NameFault::LabelKind => cx.text("<BAD LABEL TYPE>"),
            NameFault::Element(kind) => put!(cx, "<ELT {kind}>"),
        }
        Cut
    })
}

/// `\[x1f/5]`.
fn print_bits(cx: &mut Context<'_>, count: usize, bits: &[u8]) {
    cx.text("\\[x");
    for (index, byte) in bits.iter().enumerate() {
        match count - index * 8 {
            1..=4 => cx.hex(byte >> 4, 1),
            left @ 5..=7 => cx.hex(byte & (0xff << (8 - left)), 2),
            _ => cx.hex(*byte, 2),
        }
    }
    put!(cx, "/{count}]");
}

fn print_start_of_authority(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> Printed {
    cx.text(" ");
    let mailbox = print_name(cx, message, at)?;
    cx.text(" ");
    let numbers = print_name(cx, message, mailbox)?;
    message.need(numbers + 20)?;
    for index in 0..5 {
        cx.text(" ");
        cx.dec(message.u32(numbers + index * 4)?);
    }
    Ok(())
}

fn print_strings(cx: &mut Context<'_>, message: Span<'_>, mut at: usize, length: usize) -> Printed {
    let end = at + length;
    while at < end {
        cx.text(" \"");
        let length = usize::from(message.u8(at)?);
        let captured = message.data.get(at + 1..).unwrap_or(&[]);
        cx.visible_all(&captured[..length.min(captured.len())]);
        message.need(at + 1 + length)?;
        cx.text("\"");
        at += 1 + length;
    }
    Ok(())
}

/// `host:port priority weight` (RFC 2782).
fn print_service(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> Printed {
    cx.text(" ");
    message.need(at + 6)?;
    print_name(cx, message, at + 6)?;
    put!(cx, ":{} {} {}", message.u16(at + 4)?, message.u16(at)?, message.u16(at + 2)?);
    Ok(())
}

/// A prefix length, the rest of an address, and the name of the owner of the prefix (RFC 2874, historic).
fn print_a6(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> Printed {
    let prefix_len = message.u8(at)?;
    if prefix_len > 128 {
        put!(cx, " {prefix_len}(bad plen)");
        return Ok(());
    }
    let skipped = usize::from(prefix_len / 8);
    if prefix_len < 128 {
        let mut address = [0; 16];
        address[skipped..].copy_from_slice(message.bytes(at + 1, 16 - skipped)?);
        put!(cx, " {prefix_len} ");
        cx.ipv6(address);
    }
    if prefix_len > 0 {
        cx.text(" ");
        print_name(cx, message, at + 17 - skipped)?;
    }
    Ok(())
}

/// Priority, weight and the rest of the record (RFC 7553).
fn print_uri(cx: &mut Context<'_>, message: Span<'_>, at: usize, length: usize) -> Printed {
    let target = message.bytes(at + 4, length.checked_sub(4).ok_or(Cut)?)?;
    put!(cx, " {} {} ", message.u16(at)?, message.u16(at + 2)?);
    cx.visible_all(target);
    Ok(())
}

/// A transaction signature (RFC 8945): its algorithm and its lengths, not the signature.
fn print_signature(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> Printed {
    cx.text(" ");
    let mut at = print_name(cx, message, at)? + 6;
    for name in ["fudge", "maclen", "origid", "error", "otherlen"] {
        let value = message.u16(at)?;
        put!(cx, " {name}={value}");
        at += 2 + if name == "maclen" { usize::from(value) } else { 0 };
    }
    Ok(())
}
