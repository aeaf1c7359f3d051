//! `type`, `subtype` and `dir` of 802.11 frames.
//!
//! ```text
//! byte 0:  subtype (4 bits) | type (2 bits) | version (2 bits)
//! byte 1:  ... | from DS | to DS
//! ```
//!
//! Source: IEEE 802.11-2020, 9.2.4.1; the names are those of pcap-filter(7).

use super::Parser;
use super::primitive::{find, known};
use crate::ast::{Keyword, WlanField};
use crate::lex::Token;
use tapline_syntax::{Error, Span};

const TYPE_MASK: u32 = 0x0c;
const SUBTYPE_MASK: u32 = 0xf0;
const DIR_MASK: u32 = 0x03;

const MANAGEMENT: u32 = 0x00;
const CONTROL: u32 = 0x04;
const DATA: u32 = 0x08;

impl<'a> Parser<'a> {
    pub(super) fn wlan(&mut self, keyword: Keyword) -> Result<(WlanField, Span), Error> {
        self.advance();
        match keyword {
            Keyword::Type => self.wlan_type(),
            Keyword::Subtype => self.wlan_subtype_alone(),
            _ => self.wlan_dir(),
        }
    }

    fn wlan_type(&mut self) -> Result<(WlanField, Span), Error> {
        let (kind, end) = self.wlan_value(TYPE_MASK, "type", |name| find(&TYPES, name), &TYPES)?;
        if self.take(Token::Keyword(Keyword::Subtype))?.is_none() {
            return Ok((WlanField::Type { value: kind, mask: TYPE_MASK }, end));
        }
        let table = subtypes(kind).unwrap_or(&[]);
        let (subtype, end) = self.wlan_value(SUBTYPE_MASK, "subtype", |name| find(table, name), table)?;
        Ok((WlanField::Type { value: kind | subtype, mask: TYPE_MASK | SUBTYPE_MASK }, end))
    }

    /// A subtype without its type is looked up by name: among management, then control, then data frames.
    fn wlan_subtype_alone(&mut self) -> Result<(WlanField, Span), Error> {
        let Token::Name(name) = self.peek()? else {
            return Err(
                self.syntax("the name of a subtype was expected here; a number needs its type before it")
            );
        };
        let span = self.advance();
        let value = [MANAGEMENT, CONTROL, DATA]
            .into_iter()
            .find_map(|kind| find(subtypes(kind)?, name).map(|subtype| kind | subtype))
            .ok_or_else(|| {
                Error::at(span, "unknown 802.11 type name").hint("such as beacon, ack or qos-data")
            })?;
        Ok((WlanField::Type { value, mask: TYPE_MASK | SUBTYPE_MASK }, span))
    }

    fn wlan_dir(&mut self) -> Result<(WlanField, Span), Error> {
        let span = self.here();
        let value = match self.peek()? {
            Token::Number(number) if number & !DIR_MASK == 0 => Ok(number),
            Token::Number(number) => Err(format!("invalid 802.11 direction value 0x{number:x}")),
            Token::Name(name) => find(&DIRECTIONS, name).ok_or_else(|| "unknown 802.11 direction".to_owned()),
            _ => {
                return Err(
                    self.syntax("a direction was expected here: nods, tods, fromds, dstods or 0 to 3")
                );
            }
        };
        let value = value.map_err(|message| Error::at(span, message).hint(known(&DIRECTIONS)))?;
        Ok((WlanField::Dir(value), self.advance()))
    }

    fn wlan_value(
        &mut self,
        mask: u32,
        what: &str,
        lookup: impl Fn(&str) -> Option<u32>,
        table: &[(&str, u32)],
    ) -> Result<(u32, Span), Error> {
        let span = self.here();
        let value = match self.peek()? {
            Token::Number(number) if number & !mask == 0 => Ok(number),
            Token::Number(number) => Err(format!("invalid 802.11 {what} value 0x{number:02x}")),
            Token::Name(name) => lookup(name).ok_or_else(|| format!("unknown 802.11 {what} name \"{name}\"")),
            _ => return Err(self.syntax(&format!("an 802.11 {what} was expected here, by number or name"))),
        };
        let value = value.map_err(|message| Error::at(span, message).hint(known(table)))?;
        Ok((value, self.advance()))
    }
}

const TYPES: [(&str, u32); 5] =
    [("data", DATA), ("mgt", MANAGEMENT), ("management", MANAGEMENT), ("ctl", CONTROL), ("control", CONTROL)];

const DIRECTIONS: [(&str, u32); 4] = [("nods", 0), ("tods", 1), ("fromds", 2), ("dstods", 3)];

fn subtypes(kind: u32) -> Option<&'static [(&'static str, u32)]> {
    match kind {
        MANAGEMENT => Some(&MANAGEMENT_SUBTYPES),
        CONTROL => Some(&CONTROL_SUBTYPES),
        DATA => Some(&DATA_SUBTYPES),
        _ => None,
    }
}

const MANAGEMENT_SUBTYPES: [(&str, u32); 20] = [
    ("assocreq", 0x00),
    ("assoc-req", 0x00),
    ("assocresp", 0x10),
    ("assoc-resp", 0x10),
    ("reassocreq", 0x20),
    ("reassoc-req", 0x20),
    ("reassocresp", 0x30),
    ("reassoc-resp", 0x30),
    ("probereq", 0x40),
    ("probe-req", 0x40),
    ("proberesp", 0x50),
    ("probe-resp", 0x50),
    ("beacon", 0x80),
    ("atim", 0x90),
    ("disassoc", 0xa0),
    ("disassociation", 0xa0),
    ("auth", 0xb0),
    ("authentication", 0xb0),
    ("deauth", 0xc0),
    ("deauthentication", 0xc0),
];

const CONTROL_SUBTYPES: [(&str, u32); 8] = [
    ("bar", 0x80),
    ("ba", 0x90),
    ("ps-poll", 0xa0),
    ("rts", 0xb0),
    ("cts", 0xc0),
    ("ack", 0xd0),
    ("cf-end", 0xe0),
    ("cf-end-ack", 0xf0),
];

const DATA_SUBTYPES: [(&str, u32); 15] = [
    ("data", 0x00),
    ("data-cf-ack", 0x10),
    ("data-cf-poll", 0x20),
    ("data-cf-ack-poll", 0x30),
    ("null", 0x40),
    ("cf-ack", 0x50),
    ("cf-poll", 0x60),
    ("cf-ack-poll", 0x70),
    ("qos-data", 0x80),
    ("qos-data-cf-ack", 0x90),
    ("qos-data-cf-poll", 0xa0),
    ("qos-data-cf-ack-poll", 0xb0),
    ("qos", 0xc0),
    ("qos-cf-poll", 0xe0),
    ("qos-cf-ack-poll", 0xf0),
];
