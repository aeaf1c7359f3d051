//! DNS messages. Names are as in zone files, without escapes, with a dot at the end.

use tapline_dissect::dns::flag;
use tapline_dissect::dns::name::{self, NamePart};

use super::walk::Walk;
use super::write::Writer;
use crate::app::dns::tables::{self, OPERATIONS, RESPONSES, TYPES};
use crate::bytes::{Cut, Printed, Span};
use crate::context::lookup;

/// Types that have a name here and none in tcpdump's text (IANA, "Domain Name System Parameters").
const MORE_TYPES: &[(u16, &str)] = &[
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (53, "SMIMEA"),
    (55, "HIP"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (61, "OPENPGPKEY"),
    (62, "CSYNC"),
    (63, "ZONEMD"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (257, "CAA"),
];

/// Maximum number of listed records in a section.
const RECORDS_MAX: u16 = 512;

const FLAGS: [(&str, u16); 6] = [
    ("authoritative", flag::AUTHORITATIVE),
    ("truncated", flag::TRUNCATED),
    ("recursion_desired", flag::RECURSION_DESIRED),
    ("recursion_available", flag::RECURSION_AVAILABLE),
    ("authentic_data", flag::AUTHENTIC_DATA),
    ("checking_disabled", flag::CHECKING_DISABLED),
];

/// One message; `multicast` has a meaning of its own for the top bit of classes (RFC 6762, 10.2).
pub(super) fn message(walk: &mut Walk, span: Span<'_>, multicast: bool) -> Printed {
    walk.layer("dns", |json| {
        json.number_field("id", span.u16(0)?);
        let flags = span.u16(2)?;
        json.boolean_field("response", flags & flag::RESPONSE != 0);
        let (operation, code) = (flags >> 11 & 15, flags & 15);
        json.number_field("opcode", operation);
        json.text_field("opcode_name", name_of(OPERATIONS[usize::from(operation)], b"query"));
        json.number_field("rcode", code);
        json.text_field("rcode_name", name_of(RESPONSES[usize::from(code)], b"NoError"));
        for (name, bit) in FLAGS {
            json.boolean_field(name, flags & bit != 0);
        }
        let counts = [span.u16(4)?, span.u16(6)?, span.u16(8)?, span.u16(10)?];
        let mut reader = Reader { message: span, at: 12, multicast };
        for (index, name) in ["questions", "answers", "authorities", "additionals"].into_iter().enumerate() {
            let entry = if index == 0 { Reader::question } else { Reader::record };
            json.array_field(name, |json| reader.section(json, counts[index], entry))?;
            if counts[index] > RECORDS_MAX {
                // The place of the next section is not known.
                json.boolean_field("records_truncated", true);
                break;
            }
        }
        Ok(())
    })
}

/// Our tables have a space before each name, and none for usual values.
fn name_of<'n>(name: &'n str, usual: &'n [u8]) -> &'n [u8] {
    match name.trim_start() {
        "" => usual,
        name => name.as_bytes(),
    }
}

struct Reader<'p> {
    message: Span<'p>,
    at: usize,
    multicast: bool,
}

impl Reader<'_> {
    fn section(
        &mut self,
        json: &mut Writer,
        count: u16,
        entry: impl Fn(&mut Self, &mut Writer) -> Printed,
    ) -> Printed {
        for _ in 0..count.min(RECORDS_MAX) {
            json.object(|json| entry(self, json))?;
        }
        Ok(())
    }

    /// Name, type and class, which both kinds of entries begin with; the type.
    fn head(&mut self, json: &mut Writer) -> Result<u16, Cut> {
        self.at = write_name(json, "name", self.message, self.at)?;
        let (kind, class) = (self.message.u16(self.at)?, self.message.u16(self.at + 2)?);
        json.number_field("type", kind);
        if let Some(name) = lookup(TYPES, kind).or_else(|| lookup(MORE_TYPES, kind)) {
            json.text_field("type_name", name.as_bytes());
        }
        let class = if self.multicast && kind != tables::OPT { class & 0x7fff } else { class };
        json.number_field("class", class);
        Ok(kind)
    }

    fn question(&mut self, json: &mut Writer) -> Printed {
        self.head(json)?;
        self.at += 4;
        Ok(())
    }

    fn record(&mut self, json: &mut Writer) -> Printed {
        let kind = self.head(json)?;
        json.number_field("ttl", self.message.u32(self.at + 4)?);
        let length = usize::from(self.message.u16(self.at + 8)?);
        self.at += 10;
        self.message.need(self.at + length)?;
        self.data(json, kind, length)?;
        self.at += length;
        Ok(())
    }

    /// The data as `data`: an address, a name, texts, or the bytes in hexadecimal.
    fn data(&self, json: &mut Writer, kind: u16, length: usize) -> Printed {
        let Reader { message, at, .. } = *self;
        match (kind, length) {
            (tables::A, 4) | (tables::AAAA, 16) => json.address_field("data", message.bytes(at, length)?),
            (tables::NS | tables::CNAME | tables::PTR | tables::DNAME, _) => {
                write_name(json, "data", message, at)?;
            }
            (tables::MX, 3..) => {
                json.number_field("preference", message.u16(at)?);
                write_name(json, "data", message, at + 2)?;
            }
            (tables::SRV, 7..) => {
                json.number_field("priority", message.u16(at)?);
                json.number_field("weight", message.u16(at + 2)?);
                json.number_field("port", message.u16(at + 4)?);
                write_name(json, "data", message, at + 6)?;
            }
            (tables::SOA, _) => {
                let at = write_name(json, "data", message, at)?;
                let at = write_name(json, "mailbox", message, at)?;
                for (index, name) in
                    ["serial", "refresh", "retry", "expire", "minimum"].into_iter().enumerate()
                {
                    json.number_field(name, message.u32(at + index * 4)?);
                }
            }
            (tables::TXT, _) => {
                let bytes = message.bytes(at, length)?;
                json.array_field("data", |json| write_texts(json, bytes));
            }
            _ => {
                let bytes = message.bytes(at, length)?;
                json.bytes_field("data", bytes);
            }
        }
        Ok(())
    }
}

/// Strings, each with its length before it.
fn write_texts(json: &mut Writer, mut bytes: &[u8]) {
    while let Some((&length, rest)) = bytes.split_first() {
        let (text, after) = rest.split_at(usize::from(length).min(rest.len()));
        json.text(text);
        bytes = after;
    }
}

/// Writes the name at `at` as a string. Returns the start of the rest. A name that makes no sense ends the message.
/// One that is longer than names may be is cut, and a key behind it says so.
fn write_name(json: &mut Writer, key: &'static str, message: Span<'_>, at: usize) -> Result<usize, Cut> {
    let mut is_cut = false;
    let end = json.string_field(key, |part| {
        name::walk(message.data, at, |piece| match piece {
            NamePart::Label(label) => part.bytes(label),
            NamePart::Bits { bits, .. } => part.hex(bits),
            NamePart::Dot => part.bytes(b"."),
            NamePart::TooLong => is_cut = true,
        })
    });
    if is_cut {
        let flag = match key {
            "mailbox" => "mailbox_truncated",
            "data" => "data_truncated",
            _ => "name_truncated",
        };
        json.boolean_field(flag, true);
    }
    end.map_err(|_| Cut)
}
