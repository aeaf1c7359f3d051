//! Tests that have a word of their own.
//!
//! ```text
//! primitive := [protocol] broadcast | [protocol] multicast | less n | greater n | byte n (= < > & |) n
//!            | inbound | outbound | ifindex n
//!            | (vlan mpls pppoes geneve vxlan) [n] | pppoed | llc [name]
//!            | ifname name | ruleset name | rulenum n | subrulenum n | reason (n | name) | action name
//!            | lane metac bcc oam oamf4 oamf4ec oamf4sc sc ilmic connectmsg metaconnect
//!            | (vpi vci) values | fisu lssu msu | (sio opc dpc sls) values       -- and these with h before
//! values    := n | relop n | ( n (or n)* )
//! n         := number | ( n )               -- parentheses only after vlan and its like
//! ```

use super::Parser;
use crate::ast::{
    AtmField, AtmType, ByteOp, Keyword, LlcType, Mtp2Format, Mtp2Type, Mtp3Field, PfField, Primitive,
    Protocol, Relop,
};
use crate::lex::{Symbol, Token};
use tapline_syntax::{Error, Span};

impl<'a> Parser<'a> {
    /// The primitive whose word is next, and the place of its last token.
    pub(super) fn primitive(
        &mut self,
        protocol: Option<Protocol>,
        keyword: Keyword,
    ) -> Result<(Primitive, Span), Error> {
        let word = self.here();
        if let Keyword::Type | Keyword::Subtype | Keyword::Dir = keyword {
            return self.wlan(keyword).map(|(field, end)| (Primitive::Wlan(field), end));
        }
        self.advance_over_primitive(keyword)?;
        Ok(match keyword {
            Keyword::Broadcast => (Primitive::Broadcast(protocol), word),
            Keyword::Multicast => (Primitive::Multicast(protocol), word),
            Keyword::Inbound => (Primitive::Inbound, word),
            Keyword::Outbound => (Primitive::Outbound, word),
            Keyword::Pppoed => (Primitive::Pppoed, word),
            Keyword::Less => self.with_number(Primitive::Less, "a length was expected here")?,
            Keyword::Greater => self.with_number(Primitive::Greater, "a length was expected here")?,
            Keyword::Ifindex => {
                self.with_number(Primitive::IfIndex, "the index of an interface was expected here")?
            }
            Keyword::Byte => self.byte()?,
            Keyword::Vlan => self.with_optional(Primitive::Vlan, word)?,
            Keyword::Mpls => self.with_optional(Primitive::Mpls, word)?,
            Keyword::Pppoes => self.with_optional(Primitive::Pppoes, word)?,
            Keyword::Geneve => self.with_optional(Primitive::Geneve, word)?,
            Keyword::Vxlan => self.with_optional(Primitive::Vxlan, word)?,
            Keyword::Llc => self.llc(word)?,
            Keyword::Vpi => self.atm_field(AtmField::Vpi)?,
            Keyword::Vci => self.atm_field(AtmField::Vci)?,
            _ => return self.pf_atm_or_ss7(keyword, word),
        })
    }

    /// Takes the word, unless it only makes sense after another.
    fn advance_over_primitive(&mut self, keyword: Keyword) -> Result<(), Error> {
        if keyword == Keyword::Mask {
            return Err(self.syntax("'mask' goes after an address: net 192.0.2.0 mask 255.255.255.0"));
        }
        self.advance();
        Ok(())
    }

    fn pf_atm_or_ss7(&mut self, keyword: Keyword, word: Span) -> Result<(Primitive, Span), Error> {
        if let Some(kind) = AtmType::of_name(keyword.name()) {
            return Ok((Primitive::Atm(kind), word));
        }
        if let Some((kind, link)) = on_link(keyword.name(), Mtp2Type::of_name) {
            return Ok((Primitive::Mtp2(kind, link), word));
        }
        if let Some((field, link)) = on_link(keyword.name(), Mtp3Field::of_name) {
            let (values, end) = self.values()?;
            return Ok((Primitive::Mtp3(field, link, values), end));
        }
        self.pf(keyword).map(|(field, end)| (Primitive::Pf(field), end))
    }

    fn with_number(&mut self, make: fn(u32) -> Primitive, hint: &str) -> Result<(Primitive, Span), Error> {
        self.number(hint).map(|(number, end)| (make(number), end))
    }

    /// Parses a number that may be left out, and may be in parentheses.
    fn with_optional(
        &mut self,
        make: fn(Option<u32>) -> Primitive,
        word: Span,
    ) -> Result<(Primitive, Span), Error> {
        match self.peek()? {
            Token::Number(_) | Token::Symbol(Symbol::LeftParen) => {
                self.number_in_parens().map(|(number, end)| (make(Some(number)), end))
            }
            _ => Ok((make(None), word)),
        }
    }

    fn number_in_parens(&mut self) -> Result<(u32, Span), Error> {
        let mut open = 0;
        while self.take(Token::Symbol(Symbol::LeftParen))?.is_some() {
            open += 1;
        }
        let (number, mut end) = self.number("a number was expected here")?;
        for _ in 0..open {
            end = self.expect(Symbol::RightParen, "')' was expected here, to match the '(' before")?;
        }
        Ok((number, end))
    }

    fn name(&mut self, hint: &str) -> Result<(&'a str, Span), Error> {
        match self.peek()? {
            Token::Name(name) => Ok((name, self.advance())),
            _ => Err(self.syntax(hint)),
        }
    }

    fn byte(&mut self) -> Result<(Primitive, Span), Error> {
        let (index, _) = self.number("the offset of the byte was expected here")?;
        let op = match self.peek()? {
            Token::Symbol(Symbol::Equal) => ByteOp::Equal,
            Token::Symbol(Symbol::Less) => ByteOp::Less,
            Token::Symbol(Symbol::Greater) => ByteOp::Greater,
            Token::Symbol(Symbol::Ampersand) => ByteOp::And,
            Token::Symbol(Symbol::Bar) => ByteOp::Or,
            _ => return Err(self.syntax("one of = < > & | was expected here")),
        };
        self.advance();
        let (value, end) = self.number("a value was expected here, 0 to 255")?;
        Ok((Primitive::Byte(index, op, value), end))
    }

    fn llc(&mut self, word: Span) -> Result<(Primitive, Span), Error> {
        match self.peek()? {
            Token::Name(name) => {
                let span = self.here();
                let kind = llc_type(name).ok_or_else(|| {
                    Error::at(span, format!("unknown LLC type name \"{name}\""))
                        .hint("known: i s u rr rnr rej ui ua disc dm sabme test xid frmr")
                })?;
                Ok((Primitive::Llc(Some(kind)), self.advance()))
            }
            Token::Keyword(Keyword::Rulenum) => {
                Ok((Primitive::Llc(Some(LlcType::Supervisory(RNR))), self.advance()))
            }
            _ => Ok((Primitive::Llc(None), word)),
        }
    }

    fn pf(&mut self, keyword: Keyword) -> Result<(PfField, Span), Error> {
        match keyword {
            Keyword::Ifname => self
                .name("the name of an interface was expected here")
                .map(|(n, end)| (PfField::Ifname(n.into()), end)),
            Keyword::Ruleset => self
                .name("the name of a rule set was expected here")
                .map(|(n, end)| (PfField::Ruleset(n.into()), end)),
            Keyword::Rulenum => self
                .number("the number of a rule was expected here")
                .map(|(n, end)| (PfField::Rulenum(n), end)),
            Keyword::Subrulenum => self
                .number("the number of a rule was expected here")
                .map(|(n, end)| (PfField::Subrulenum(n), end)),
            Keyword::Reason => self.pf_reason(),
            Keyword::Action => self.pf_action(),
            _ => Err(self.syntax("a test was expected here")),
        }
    }

    fn pf_reason(&mut self) -> Result<(PfField, Span), Error> {
        if let Token::Number(number) = self.peek()? {
            return Ok((PfField::Reason(number), self.advance()));
        }
        let (name, span) = self.name("a reason was expected here, by number or name")?;
        let code = find(&PF_REASONS, name).ok_or_else(|| {
            Error::at(span, format!("unknown PF reason \"{name}\"")).hint(known(&PF_REASONS))
        })?;
        Ok((PfField::Reason(code), span))
    }

    fn pf_action(&mut self) -> Result<(PfField, Span), Error> {
        let (name, span) = self.name("an action was expected here, such as pass or block")?;
        let code = find(&PF_ACTIONS, name).ok_or_else(|| {
            Error::at(span, format!("unknown PF action \"{name}\"")).hint(known(&PF_ACTIONS))
        })?;
        Ok((PfField::Action(code), span))
    }

    fn atm_field(&mut self, field: AtmField) -> Result<(Primitive, Span), Error> {
        self.values().map(|(values, end)| (Primitive::AtmField(field, values), end))
    }

    /// `5`, `> 5`, `(5 or 6)`.
    fn values(&mut self) -> Result<(Vec<(Relop, u32)>, Span), Error> {
        const VALUE: &str = "a value was expected here";
        if self.take(Token::Symbol(Symbol::LeftParen))?.is_none() {
            let op = self.relop()?.unwrap_or(Relop::Equal);
            return self.number(VALUE).map(|(number, end)| (vec![(op, number)], end));
        }
        let mut values = vec![(Relop::Equal, self.number(VALUE)?.0)];
        while self.take(Token::Symbol(Symbol::Or))?.is_some() {
            values.push((Relop::Equal, self.number(VALUE)?.0));
        }
        let end = self.expect(Symbol::RightParen, "'or' or ')' was expected here")?;
        Ok((values, end))
    }
}

/// The control byte of a Receiver Not Ready (IEEE 802.2).
const RNR: u8 = 0x05;

fn llc_type(name: &str) -> Option<LlcType> {
    Some(match name.to_ascii_lowercase().as_str() {
        "i" => LlcType::I,
        "s" => LlcType::S,
        "u" => LlcType::U,
        "rr" => LlcType::Supervisory(0x01),
        "rnr" => LlcType::Supervisory(RNR),
        "rej" => LlcType::Supervisory(0x09),
        "ui" => LlcType::Unnumbered(0x03),
        "ua" => LlcType::Unnumbered(0x63),
        "disc" => LlcType::Unnumbered(0x43),
        "dm" => LlcType::Unnumbered(0x0f),
        "sabme" => LlcType::Unnumbered(0x6f),
        "test" => LlcType::Unnumbered(0xe3),
        "xid" => LlcType::Unnumbered(0xaf),
        "frmr" => LlcType::Unnumbered(0x87),
        _ => return None,
    })
}

/// `PFRES_*` of OpenBSD's and FreeBSD's `pfvar.h`, as far as they agree.
const PF_REASONS: [(&str, u32); 15] = [
    ("match", 0),
    ("bad-offset", 1),
    ("fragment", 2),
    ("short", 3),
    ("normalize", 4),
    ("memory", 5),
    ("bad-timestamp", 6),
    ("congestion", 7),
    ("ip-option", 8),
    ("proto-cksum", 9),
    ("state-mismatch", 10),
    ("state-insert", 11),
    ("state-limit", 12),
    ("src-limit", 13),
    ("synproxy", 14),
];

/// `PF_*` of the same file.
const PF_ACTIONS: [(&str, u32); 13] = [
    ("pass", 0),
    ("accept", 0),
    ("drop", 1),
    ("block", 1),
    ("scrub", 2),
    ("noscrub", 3),
    ("nat", 4),
    ("nonat", 5),
    ("binat", 6),
    ("nobinat", 7),
    ("rdr", 8),
    ("nordr", 9),
    ("synproxy-drop", 10),
];

/// The value of a name, in any case.
pub(super) fn find(table: &[(&str, u32)], name: &str) -> Option<u32> {
    table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

pub(super) fn known(table: &[(&str, u32)]) -> String {
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    format!("known: {}", names.join(" "))
}

/// A word of a link of SS7, or the same behind an `h` on one of high speed.
fn on_link<T>(word: &str, of_name: fn(&str) -> Option<T>) -> Option<(T, Mtp2Format)> {
    Mtp2Format::ALL.into_iter().find_map(|link| Some((of_name(word.strip_prefix(link.name())?)?, link)))
}
