//! Modifiers, which libpcap does not have.
//!
//! ```text
//! modifier := (scoped | extensions | anyvlan) ( chain )
//!           | inner ( [kind [n] ,] chain )
//!           | fragment ( [first | later] )
//! kind     := gre | vxlan | geneve | gtp | ipip | erspan
//! ```
//!
//! The content of a modifier is a filter of its own: qualifiers before the modifier do not apply to its ids.

use super::{Item, Parser};
use crate::ast::{Expr, ExprKind, Fragments, Keyword, Modifier, Primitive, TunnelKind, TunnelSelector};
use crate::lex::{ModifierWord, Symbol, Token};
use tapline_syntax::{Error, Span};

impl Parser<'_> {
    /// The modifier whose word is next.
    pub(super) fn modifier(&mut self, word: ModifierWord) -> Result<Item, Error> {
        let start = self.advance();
        self.expect(Symbol::LeftParen, "'(' was expected here")?;
        let modifier = match word {
            ModifierWord::Scoped => Modifier::Scoped,
            ModifierWord::Extensions => Modifier::Extensions,
            ModifierWord::AnyVlan => Modifier::AnyVlan,
            ModifierWord::Inner => Modifier::Inner(self.tunnel()?),
            ModifierWord::Fragment => return self.fragment(start),
        };
        let item = self.chain()?;
        let inner = self.as_filter(item)?;
        let end = self.expect(Symbol::RightParen, "')' was expected here, to match the '(' before")?;
        Ok(Item::Filter(Expr { kind: ExprKind::Modified(modifier, Box::new(inner)), span: start.to(end) }))
    }

    /// `gre,` or `vxlan 42,` if that comes next: without the comma it is part of the filter.
    fn tunnel(&mut self) -> Result<Option<TunnelSelector>, Error> {
        let mut ahead = self.fork();
        let Some(kind) = ahead.tunnel_kind()? else { return self.no_kind() };
        let id = match ahead.peek() {
            Ok(Token::Number(number)) => Some((number, ahead.advance())),
            _ => None,
        };
        if ahead.peek() != Ok(Token::Symbol(Symbol::Comma)) {
            return if ahead.goes_on_without_comma(kind) { Ok(None) } else { Err(ahead.no_comma(kind)) };
        }
        ahead.advance();
        *self = ahead;
        let tunnel = TunnelSelector { kind, id: id.map(|(number, _)| number) };
        match id {
            Some((number, span)) => check_id(kind, number, span).map(|()| Some(tunnel)),
            None => Ok(Some(tunnel)),
        }
    }

    /// Whether the kind before may be a test: `inner(vxlan 42 and tcp)` looks for VXLAN within a tunnel.
    fn goes_on_without_comma(&self, kind: TunnelKind) -> bool {
        let is_test = matches!(kind, TunnelKind::Vxlan | TunnelKind::Geneve);
        let next = [Symbol::And, Symbol::Or, Symbol::RightParen].map(Token::Symbol);
        is_test && self.peek().is_ok_and(|token| token == Token::End || next.contains(&token))
    }

    fn no_comma(&self, kind: TunnelKind) -> Error {
        let kind = kind.name();
        self.syntax(&format!("behind the kind of tunnel come a comma and a filter: inner({kind}, ...)"))
    }

    /// The next word is not a kind of tunnel. A comma behind it shows that it was meant to be one.
    fn no_kind(&self) -> Result<Option<TunnelSelector>, Error> {
        let mut ahead = self.fork();
        ahead.advance();
        match ahead.peek() {
            Ok(Token::Symbol(Symbol::Comma)) => {
                let known = TunnelKind::NAMES.join(", ");
                Err(self.syntax(&format!("this is not a kind of tunnel: {known}")))
            }
            _ => Ok(None),
        }
    }

    fn tunnel_kind(&mut self) -> Result<Option<TunnelKind>, Error> {
        let kind = match self.peek()? {
            Token::Keyword(Keyword::Vxlan) => TunnelKind::Vxlan,
            Token::Keyword(Keyword::Geneve) => TunnelKind::Geneve,
            Token::Name(name) => match TunnelKind::of_name(name) {
                Some(kind) => kind,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(kind))
    }

    fn fragment(&mut self, start: Span) -> Result<Item, Error> {
        let which = match self.peek()? {
            Token::Name("first") => Fragments::First,
            Token::Name("later") => Fragments::Later,
            Token::Symbol(Symbol::RightParen) => Fragments::Any,
            _ => return Err(self.syntax("'first', 'later' or ')' was expected here")),
        };
        if which != Fragments::Any {
            self.advance();
        }
        let end = self.expect(Symbol::RightParen, "')' was expected here, to match the '(' before")?;
        let kind = ExprKind::Primitive(Primitive::Fragment(which));
        Ok(Item::Filter(Expr { kind, span: start.to(end) }))
    }
}

/// The largest number of a tunnel; 0 if such tunnels have none.
fn id_max(kind: TunnelKind) -> u32 {
    match kind {
        TunnelKind::Gre | TunnelKind::Gtp => u32::MAX,
        TunnelKind::Vxlan | TunnelKind::Geneve => 0x00ff_ffff,
        TunnelKind::Erspan => 0x3ff,
        TunnelKind::Ipip => 0,
    }
}

fn check_id(kind: TunnelKind, id: u32, span: Span) -> Result<(), Error> {
    match id_max(kind) {
        0 => Err(Error::at(span, "ipip tunnels have no number").hint("leave it out: inner(ipip, ...)")),
        max if id > max => {
            Err(Error::at(span, format!("{} number {id} greater than maximum {max}", kind.name())))
        }
        _ => Ok(()),
    }
}
