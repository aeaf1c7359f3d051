//! Tokens to the tree.
//!
//! ```text
//! filter := chain?
//! chain  := item ((and|or) item)*            -- left to right; a list of ids if it begins with an id
//! item   := not item | ( chain ) | qualifiers item | id | relation | protocol | primitive | modifier
//! ```
//!
//! Parentheses can hold a filter (`(tcp or udp)`), ids that take the qualifiers before them (`port (80 or 443)`), or
//! a number (`(ip[0] + 1) * 4 = 20`). So an item is parsed first, and then shows which of these it is; the text around
//! it accepts it or not. Source of the grammar: `grammar.y` of libpcap.

mod arith;
mod modifier;
mod primitive;
mod wlan;

use crate::ast::{Arith, Ast, BoolOp, Direction, Expr, ExprKind, Id, IdKind, Keyword, Protocol, Qualifiers};
use crate::display::equivalent_of_display_filter;
use crate::lex::{Lexer, SYNTAX, Symbol, Token, is_form, is_word_in_lower_case};
use tapline_syntax::{Error, Span};

/// The deepest nesting of parentheses, `not` and operators. Far deeper than people write, far less than the stack
/// holds.
pub const DEPTH_MAX: usize = 500;

/// Parses the text of a filter.
///
/// Takes time in proportion to the length of the text, and stack in proportion to its nesting, at most
/// [`DEPTH_MAX`] levels.
///
/// # Errors
/// If the text is not a filter: where, and what was expected there. For a display filter of Wireshark, the filter to write
/// instead.
pub fn parse(text: &str) -> Result<Ast, Error> {
    parse_whole(text).map_err(|error| {
        match equivalent_of_display_filter(text).filter(|ours| parse_whole(ours).is_ok()) {
            Some(ours) => error.hint(format!("this is a display filter of Wireshark; write: {ours}")),
            None => error,
        }
    })
}

fn parse_whole(text: &str) -> Result<Ast, Error> {
    let mut parser = Parser::new(text);
    if parser.peek()? == Token::End {
        return Ok(Ast { root: None });
    }
    let item = parser.chain()?;
    let root = parser.as_filter(item)?;
    match parser.peek()? {
        Token::End => Ok(Ast { root: Some(root) }),
        Token::Symbol(Symbol::RightParen) => Err(parser.syntax("this parenthesis closes nothing")),
        _ => Err(parser.syntax("'and', 'or' or the end was expected here")),
    }
}

/// The kind of an item, known after it was parsed.
enum Item {
    /// Part of a filter, complete in itself.
    Filter(Expr),
    /// One or more ids that need the qualifiers before them.
    Ids(Expr),
    /// A number: an id or the start of arithmetic, as the text around it decides.
    Number(u32, Span),
    /// Arithmetic that is more than a number.
    Arith(Arith, Span),
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Result<(Token<'a>, Span), Error>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let next = lexer.next_token();
        Parser { lexer, next, depth: 0 }
    }

    /// A second parser at the same place, to look ahead with.
    fn fork(&self) -> Parser<'a> {
        Parser { lexer: self.lexer.clone(), next: self.next.clone(), depth: self.depth }
    }

    fn peek(&self) -> Result<Token<'a>, Error> {
        self.next.as_ref().map(|(token, _)| *token).map_err(Clone::clone)
    }

    /// The place of the next token.
    fn here(&self) -> Span {
        match &self.next {
            Ok((_, span)) => *span,
            Err(error) => error.span.unwrap_or_default(),
        }
    }

    /// Takes the next token. At a lexical error it stays where it is, so that the error is found again.
    fn advance(&mut self) -> Span {
        let span = self.here();
        if self.next.is_ok() {
            self.next = self.lexer.next_token();
        }
        span
    }

    fn take(&mut self, wanted: Token<'a>) -> Result<Option<Span>, Error> {
        Ok(if self.peek()? == wanted { Some(self.advance()) } else { None })
    }

    fn expect(&mut self, symbol: Symbol, hint: &str) -> Result<Span, Error> {
        self.take(Token::Symbol(symbol))?.ok_or_else(|| self.syntax(hint))
    }

    fn number(&mut self, hint: &str) -> Result<(u32, Span), Error> {
        match self.peek()? {
            Token::Number(number) => Ok((number, self.advance())),
            _ => Err(self.syntax(hint)),
        }
    }

    /// A syntax error at the next token, or the lexical error there.
    fn syntax(&self, hint: &str) -> Error {
        match &self.next {
            Ok((_, span)) => Error::at(*span, SYNTAX).hint(hint),
            Err(error) => error.clone(),
        }
    }

    /// Runs `inner` one level deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep(self.here()));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn chain(&mut self) -> Result<Item, Error> {
        let first = self.item()?;
        let Some(joint) = self.joint()? else { return Ok(first) };
        let of_ids = matches!(first, Item::Ids(_) | Item::Number(..));
        let first = self.as_part(first)?;
        let mut rest = Vec::new();
        let mut joint = Some(joint);
        while let Some(with) = joint {
            let item = self.item()?;
            if of_ids && !matches!(item, Item::Ids(_) | Item::Number(..)) {
                return Err(mixed_list(&first, item.span()));
            }
            rest.push((with, self.as_part(item)?));
            joint = self.joint()?;
        }
        let span = rest.last().map_or(first.span, |(_, last)| first.span.to(last.span));
        let chain = Expr { kind: ExprKind::Chain(Box::new(first), rest), span };
        Ok(if of_ids { Item::Ids(chain) } else { Item::Filter(chain) })
    }

    fn joint(&mut self) -> Result<Option<BoolOp>, Error> {
        let joint = match self.peek()? {
            Token::Symbol(Symbol::And) => BoolOp::And,
            Token::Symbol(Symbol::Or) => BoolOp::Or,
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(joint))
    }

    /// A part of a chain: a filter or ids, but no number without a comparison.
    fn as_part(&self, item: Item) -> Result<Expr, Error> {
        match item {
            Item::Filter(expr) | Item::Ids(expr) => Ok(expr),
            Item::Number(number, span) => Ok(Expr { kind: ExprKind::Id(Id::Number(number)), span }),
            Item::Arith(..) => Err(self.syntax("a number must be compared with another: = != < <= > >=")),
        }
    }

    /// A filter that needs nothing before it.
    fn as_filter(&self, item: Item) -> Result<Expr, Error> {
        match item {
            Item::Filter(expr) => Ok(expr),
            Item::Ids(expr) => Err(unqualified(&expr)),
            Item::Number(number, span) if self.peek()? == Token::End => {
                Err(unqualified(&Expr { kind: ExprKind::Id(Id::Number(number)), span }))
            }
            Item::Number(..) | Item::Arith(..) => {
                Err(self.syntax("a number must be compared with another: = != < <= > >="))
            }
        }
    }

    fn item(&mut self) -> Result<Item, Error> {
        match self.peek()? {
            Token::Symbol(Symbol::Not) => self.deeper(Parser::not),
            Token::Symbol(Symbol::LeftParen) => self.deeper(Parser::group),
            Token::Number(_) | Token::Symbol(Symbol::Minus) | Token::Keyword(Keyword::Len) => {
                self.arith_item()
            }
            Token::Name(name) => Ok(self.id(Id::Name(name.to_owned()))),
            Token::Ipv4(text) => self.ipv4(text),
            Token::Ipv6(address) => self.ipv6(address),
            Token::Mac(address) => Ok(self.id(Id::Mac(address))),
            Token::Mac8(address) => Ok(self.id(Id::Mac8(address))),
            Token::Protocol(protocol) => self.protocol_item(protocol),
            Token::Modifier(word) => self.deeper(|parser| parser.modifier(word)),
            Token::Keyword(keyword) => {
                let start = self.here();
                self.keyword_item(None, keyword, start)
            }
            Token::End => Err(self.syntax("the text ends where a test was expected")),
            Token::Symbol(_) => Err(self.syntax("a test was expected here")),
        }
    }

    fn not(&mut self) -> Result<Item, Error> {
        let start = self.advance();
        let item = self.item()?;
        let of_ids = matches!(item, Item::Ids(_) | Item::Number(..));
        let inner = self.as_part(item)?;
        let span = start.to(inner.span);
        let not = Expr { kind: ExprKind::Not(Box::new(inner)), span };
        Ok(if of_ids { Item::Ids(not) } else { Item::Filter(not) })
    }

    fn group(&mut self) -> Result<Item, Error> {
        let start = self.advance();
        let item = self.chain()?;
        let end = self.expect(Symbol::RightParen, "')' was expected here, to match the '(' before")?;
        let span = start.to(end);
        let group = |inner| Expr { kind: ExprKind::Group(Box::new(inner)), span };
        match item {
            Item::Filter(expr) => Ok(Item::Filter(group(expr))),
            Item::Ids(expr) => Ok(Item::Ids(group(expr))),
            Item::Number(number, _) => self.after_operand(Arith::Number(number), span),
            Item::Arith(arith, _) => self.after_operand(arith, span),
        }
    }

    fn protocol_item(&mut self, protocol: Protocol) -> Result<Item, Error> {
        let start = self.advance();
        match self.peek()? {
            Token::Symbol(Symbol::LeftBracket) => {
                let load = self.load(protocol, start)?;
                self.after_operand(load.0, load.1)
            }
            Token::Keyword(keyword) if goes_with_protocol(keyword) => {
                self.keyword_item(Some(protocol), keyword, start)
            }
            _ => Ok(Item::Filter(Expr { kind: ExprKind::Protocol(protocol), span: start })),
        }
    }

    fn keyword_item(
        &mut self,
        protocol: Option<Protocol>,
        keyword: Keyword,
        start: Span,
    ) -> Result<Item, Error> {
        if direction(keyword).is_some() || id_kind(keyword).is_some() {
            return self.qualified(protocol, start);
        }
        let primitive = self.primitive(protocol, keyword)?;
        Ok(Item::Filter(Expr { kind: ExprKind::Primitive(primitive.0), span: start.to(primitive.1) }))
    }

    fn qualified(&mut self, protocol: Option<Protocol>, start: Span) -> Result<Item, Error> {
        let direction = self.direction()?;
        let kind = match self.peek()? {
            Token::Keyword(keyword) => {
                id_kind(keyword).filter(|kind| direction.is_none() || kind.may_have_direction())
            }
            _ => None,
        };
        if kind.is_some() {
            self.advance();
        }
        let qualifiers = Qualifiers { protocol, direction, kind };
        if self.peek()? == Token::End {
            return Err(self.syntax(expected_id(kind)));
        }
        let item = self.deeper(Parser::item)?;
        match item {
            Item::Filter(expr) => Err(Error::at(expr.span, SYNTAX).hint(expected_id(kind))),
            Item::Arith(_, span) => Err(Error::at(span, SYNTAX).hint(expected_id(kind))),
            item => {
                let inner = self.as_part(item)?;
                let span = start.to(inner.span);
                Ok(Item::Filter(Expr { kind: ExprKind::Qualified(qualifiers, Box::new(inner)), span }))
            }
        }
    }

    /// `src`, `src or dst`, `addr1`.
    fn direction(&mut self) -> Result<Option<Direction>, Error> {
        let Token::Keyword(keyword) = self.peek()? else { return Ok(None) };
        let Some(first) = direction(keyword) else { return Ok(None) };
        self.advance();
        let both = match (first, self.peek()?) {
            (Direction::Src | Direction::Dst, Token::Symbol(Symbol::Or)) => Direction::SrcOrDst,
            (Direction::Src | Direction::Dst, Token::Symbol(Symbol::And)) => Direction::SrcAndDst,
            _ => return Ok(Some(first)),
        };
        self.advance();
        let other = if first == Direction::Src { Keyword::Dst } else { Keyword::Src };
        match self.take(Token::Keyword(other))? {
            Some(_) => Ok(Some(both)),
            None => {
                Err(self
                    .syntax("after 'src or' comes 'dst', after 'dst or' comes 'src'; the same with 'and'"))
            }
        }
    }

    fn id(&mut self, id: Id) -> Item {
        let span = self.advance();
        Item::Ids(Expr { kind: ExprKind::Id(id), span })
    }

    fn ipv4(&mut self, text: &str) -> Result<Item, Error> {
        let start = self.advance();
        let address = text.to_owned();
        if self.take(Token::Symbol(Symbol::Slash))?.is_some() {
            let (len, end) = self.number("the length of the prefix was expected here, 0 to 32")?;
            return Ok(ids(Id::Ipv4Prefix(address, len), start.to(end)));
        }
        if self.take(Token::Keyword(Keyword::Mask))?.is_some() {
            let Token::Ipv4(mask) = self.peek()? else {
                return Err(self.syntax("a mask was expected here, such as 255.255.255.0"));
            };
            let end = self.advance();
            return Ok(ids(Id::Ipv4Mask(address, mask.to_owned()), start.to(end)));
        }
        Ok(ids(Id::Ipv4(address), start))
    }

    fn ipv6(&mut self, address: std::net::Ipv6Addr) -> Result<Item, Error> {
        let start = self.advance();
        if self.take(Token::Symbol(Symbol::Slash))?.is_some() {
            let (len, end) = self.number("the length of the prefix was expected here, 0 to 128")?;
            return Ok(ids(Id::Ipv6Prefix(address, len), start.to(end)));
        }
        Ok(ids(Id::Ipv6(address), start))
    }
}

impl Item {
    fn span(&self) -> Span {
        match self {
            Item::Filter(expr) | Item::Ids(expr) => expr.span,
            Item::Number(_, span) | Item::Arith(_, span) => *span,
        }
    }
}

impl IdKind {
    fn may_have_direction(self) -> bool {
        !matches!(self, IdKind::Proto | IdKind::Protochain | IdKind::Gateway)
    }
}

fn ids(id: Id, span: Span) -> Item {
    Item::Ids(Expr { kind: ExprKind::Id(id), span })
}

fn too_deep(span: Span) -> Error {
    Error::at(span, format!("the filter nests deeper than {DEPTH_MAX} levels"))
        .hint("write it with fewer parentheses, or as several filters")
}

fn unqualified(expr: &Expr) -> Error {
    let hint = match first_id(expr) {
        Some(Id::Name(name)) if is_word_in_lower_case(name) => {
            "the words of the language are in lower case".into()
        }
        Some(Id::Name(name)) if is_form(name) => {
            format!("'{name}' needs parentheses: {name}(...); if it is a host, write host before it")
        }
        Some(Id::Name(name)) => {
            format!("'{name}' is not a word of the language; if it is a host, write host before it")
        }
        _ => "say what this is: host, net, port, portrange, proto, or ether host".into(),
    };
    Error::at(expr.span, SYNTAX).hint(hint)
}

fn mixed_list(first: &Expr, span: Span) -> Error {
    match first_id(first) {
        Some(Id::Name(name)) if is_word_in_lower_case(name) => unqualified(first),
        _ => Error::at(span, SYNTAX)
            .hint("a list that begins with an address, a port or a name can only go on with such"),
    }
}

fn first_id(expr: &Expr) -> Option<&Id> {
    let mut expr = expr;
    loop {
        match &expr.kind {
            ExprKind::Id(id) => return Some(id),
            ExprKind::Chain(inner, _)
            | ExprKind::Not(inner)
            | ExprKind::Group(inner)
            | ExprKind::Qualified(_, inner) => expr = inner,
            _ => return None,
        }
    }
}

fn expected_id(kind: Option<IdKind>) -> &'static str {
    match kind {
        None | Some(IdKind::Host) => "the name or address of a host was expected here",
        Some(IdKind::Net) => "a network was expected here, such as 192.0.2.0/24",
        Some(IdKind::Port) => "the name or number of a port was expected here",
        Some(IdKind::Portrange) => "two ports with a hyphen were expected here, such as 8000-8080",
        Some(IdKind::Proto | IdKind::Protochain) => {
            "the number or name of a protocol was expected here; before names that are words of the \
             language goes a backslash: \\tcp"
        }
        Some(IdKind::Gateway) => "the name of a gateway was expected here",
    }
}

fn direction(keyword: Keyword) -> Option<Direction> {
    Some(match keyword {
        Keyword::Src => Direction::Src,
        Keyword::Dst => Direction::Dst,
        Keyword::Addr1 => Direction::Addr1,
        Keyword::Addr2 => Direction::Addr2,
        Keyword::Addr3 => Direction::Addr3,
        Keyword::Addr4 => Direction::Addr4,
        Keyword::Ra => Direction::Ra,
        Keyword::Ta => Direction::Ta,
        _ => return None,
    })
}

fn id_kind(keyword: Keyword) -> Option<IdKind> {
    Some(match keyword {
        Keyword::Host => IdKind::Host,
        Keyword::Net => IdKind::Net,
        Keyword::Port => IdKind::Port,
        Keyword::Portrange => IdKind::Portrange,
        Keyword::Proto => IdKind::Proto,
        Keyword::Protochain => IdKind::Protochain,
        Keyword::Gateway => IdKind::Gateway,
        _ => return None,
    })
}

/// Whether a protocol may come before the word, as in `ip broadcast`.
fn goes_with_protocol(keyword: Keyword) -> bool {
    let primitive = matches!(
        keyword,
        Keyword::Broadcast | Keyword::Multicast | Keyword::Type | Keyword::Subtype | Keyword::Dir
    );
    primitive || direction(keyword).is_some() || id_kind(keyword).is_some()
}

#[cfg(test)]
mod tests;
