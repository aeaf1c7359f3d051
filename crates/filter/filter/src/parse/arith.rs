//! Numbers and their comparison.
//!
//! ```text
//! relation := arith relop arith
//! arith    := operand (op arith)*
//! operand  := number | len | protocol [ arith ] | protocol [ arith : size ] | - arith | ( arith )
//! op, from loose to tight: |   &   << >>   + -   * /
//! ```
//!
//! `%` and `^` have no place in that order: libpcap's grammar declares none for them. Each takes all that follows as
//! its right operand, and is itself taken by any operator before it: `10 % 4 + 1` is 10 % 5, `2 * 3 ^ 1` is 2 * 2.

use super::{DEPTH_MAX, Item, Parser, too_deep};
use crate::ast::{Arith, ArithOp, Expr, ExprKind, Keyword, Protocol, Relop};
use crate::lex::{Symbol, Token};
use tapline_syntax::{Error, Span};

/// The precedence of an operator; `None` for the two without a place.
fn tightness(op: ArithOp) -> Option<u8> {
    match op {
        ArithOp::Or => Some(1),
        ArithOp::And => Some(2),
        ArithOp::ShiftLeft | ArithOp::ShiftRight => Some(3),
        ArithOp::Add | ArithOp::Sub => Some(4),
        ArithOp::Mul | ArithOp::Div => Some(5),
        ArithOp::Mod | ArithOp::Xor => None,
    }
}

/// Tighter than each operator between two operands.
const SIGN: u8 = 6;

impl Parser<'_> {
    /// An item that starts as a number does.
    pub(super) fn arith_item(&mut self) -> Result<Item, Error> {
        let (operand, span) = self.operand()?;
        self.after_operand(operand, span)
    }

    /// Goes on after the first operand, as far as arithmetic and a comparison reach.
    pub(super) fn after_operand(&mut self, operand: Arith, span: Span) -> Result<Item, Error> {
        let (left, span) = self.operators(operand, span, 0)?;
        let Some(op) = self.relop()? else {
            return Ok(match left {
                Arith::Number(number) => Item::Number(number, span),
                left => Item::Arith(left, span),
            });
        };
        let (right, end) = self.arith(0)?;
        Ok(Item::Filter(Expr { kind: ExprKind::Relation(left, op, right), span: span.to(end) }))
    }

    /// Arithmetic of operators that bind at least as tightly as `loosest`.
    pub(super) fn arith(&mut self, loosest: u8) -> Result<(Arith, Span), Error> {
        let (left, span) = self.operand()?;
        self.operators(left, span, loosest)
    }

    fn operators(&mut self, left: Arith, start: Span, loosest: u8) -> Result<(Arith, Span), Error> {
        let (mut left, mut span) = (left, start);
        let mut height = self.depth;
        while let Some(op) = self.operator()? {
            let right_loosest = match tightness(op) {
                None => 0,
                Some(tightness) if tightness >= loosest => tightness + 1,
                Some(_) => break,
            };
            height += 1;
            if height > DEPTH_MAX {
                return Err(too_deep(self.here()));
            }
            self.advance();
            let (right, end) = self.deeper(|parser| parser.arith(right_loosest))?;
            span = span.to(end);
            left = Arith::Binary { op, left: Box::new(left), right: Box::new(right), span };
        }
        Ok((left, span))
    }

    fn operand(&mut self) -> Result<(Arith, Span), Error> {
        match self.peek()? {
            Token::Number(number) => Ok((Arith::Number(number), self.advance())),
            Token::Keyword(Keyword::Len) => Ok((Arith::Len, self.advance())),
            Token::Symbol(Symbol::Minus) => {
                let start = self.advance();
                let (inner, end) = self.deeper(|parser| parser.arith(SIGN))?;
                Ok((Arith::Negate(Box::new(inner)), start.to(end)))
            }
            Token::Symbol(Symbol::LeftParen) => {
                let start = self.advance();
                let (inner, _) = self.deeper(|parser| parser.arith(0))?;
                let end =
                    self.expect(Symbol::RightParen, "')' was expected here, to match the '(' before")?;
                Ok((inner, start.to(end)))
            }
            Token::Protocol(protocol) => {
                let start = self.advance();
                self.load(protocol, start)
            }
            _ => {
                Err(self
                    .syntax("a number was expected here: digits, len, or bytes of a header such as ip[0:2]"))
            }
        }
    }

    /// `[index]` or `[index:size]` after a protocol.
    pub(super) fn load(&mut self, protocol: Protocol, start: Span) -> Result<(Arith, Span), Error> {
        self.expect(Symbol::LeftBracket, "'[' was expected here: the offset of the bytes, as in ip[0]")?;
        let (index, _) = self.deeper(|parser| parser.arith(0))?;
        let size = match self.take(Token::Symbol(Symbol::Colon))? {
            Some(_) => self.number("the number of bytes was expected here: 1, 2 or 4")?.0,
            None => 1,
        };
        let end = self.expect(Symbol::RightBracket, "']' was expected here")?;
        let span = start.to(end);
        Ok((Arith::Load { protocol, index: Box::new(index), size, span }, span))
    }

    fn operator(&mut self) -> Result<Option<ArithOp>, Error> {
        let Token::Symbol(symbol) = self.peek()? else { return Ok(None) };
        Ok(Some(match symbol {
            Symbol::Plus => ArithOp::Add,
            Symbol::Minus => ArithOp::Sub,
            Symbol::Star => ArithOp::Mul,
            Symbol::Slash => ArithOp::Div,
            Symbol::Percent => ArithOp::Mod,
            Symbol::Ampersand => ArithOp::And,
            Symbol::Bar => ArithOp::Or,
            Symbol::Caret => ArithOp::Xor,
            Symbol::ShiftLeft => ArithOp::ShiftLeft,
            Symbol::ShiftRight => ArithOp::ShiftRight,
            _ => return Ok(None),
        }))
    }

    /// Takes an operator of comparison.
    pub(super) fn relop(&mut self) -> Result<Option<Relop>, Error> {
        let op = match self.peek()? {
            Token::Symbol(Symbol::Equal) => Relop::Equal,
            Token::Symbol(Symbol::NotEqual) => Relop::NotEqual,
            Token::Symbol(Symbol::Greater) => Relop::Greater,
            Token::Symbol(Symbol::GreaterEqual) => Relop::GreaterEqual,
            Token::Symbol(Symbol::Less) => Relop::Less,
            Token::Symbol(Symbol::LessEqual) => Relop::LessEqual,
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(op))
    }
}
