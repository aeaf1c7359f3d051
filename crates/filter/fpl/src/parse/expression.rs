//! Expressions, by precedence climbing.

use super::{Parser, is_reserved};
use crate::ast::{Expr, ExprKind, Operator, Piece, Unary, Unit};
use crate::lex::Token;
use tapline_syntax::{Error, Span};

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Result<Expr, Error> {
        self.deeper(|parser| parser.operators(1))
    }

    /// Operators that bind at least as tightly as `level`.
    fn operators(&mut self, level: u8) -> Result<Expr, Error> {
        let start = self.span;
        let mut parenthesised = self.is_symbol("(");
        let mut left = self.unary()?;
        // A row such as a + b + c + ... grows the tree to the left; its depth counts as nesting does.
        let outer = self.depth;
        while let Some(operator) = self.operator().filter(|operator| operator.precedence() >= level) {
            if operator.is_relation()
                && matches!(&left.kind, ExprKind::Binary(inner, ..) if inner.is_relation())
                && !parenthesised
            {
                return Err(Error::at(self.span, "comparisons do not follow one another")
                    .hint("use parentheses, or join two comparisons with &&"));
            }
            self.advance()?;
            let right = self.deeper(|parser| parser.operators(operator.precedence() + 1))?;
            let kind = ExprKind::Binary(operator, Box::new(left), Box::new(right));
            left = Expr { kind, span: self.since(start) };
            parenthesised = false;
            self.depth += 1;
        }
        self.depth = outer;
        Ok(left)
    }

    fn operator(&self) -> Option<Operator> {
        match self.token {
            Token::Symbol(symbol) => Operator::of_name(symbol),
            _ => None,
        }
    }

    fn unary(&mut self) -> Result<Expr, Error> {
        let start = self.span;
        let operator = match self.token {
            Token::Symbol("-") => Some(Unary::Minus),
            Token::Symbol("~") => Some(Unary::Complement),
            Token::Symbol("!") => Some(Unary::Not),
            Token::Symbol("+") => None,
            Token::Symbol(symbol @ ("++" | "--")) => {
                return Err(Error::at(self.span, format!("'{symbol}' inside of an expression"))
                    .hint(format!("'{symbol}' is a statement of its own: R[0]{symbol};")));
            }
            _ => return self.primary(),
        };
        self.advance()?;
        let operand = self.deeper(Self::unary)?;
        let Some(operator) = operator else { return Ok(operand) };
        Ok(Expr { kind: ExprKind::Unary(operator, Box::new(operand)), span: self.since(start) })
    }

    pub(super) fn primary(&mut self) -> Result<Expr, Error> {
        let start = self.span;
        let kind = match self.token {
            Token::Number(value) => {
                self.advance()?;
                ExprKind::Number(value)
            }
            Token::Symbol("(") => return self.parenthesised(),
            Token::Name(word) => self.deeper(|parser| parser.named(word))?,
            _ => return Err(self.unexpected("a number, a register, a packet field or '('")),
        };
        Ok(Expr { kind, span: self.since(start) })
    }

    fn parenthesised(&mut self) -> Result<Expr, Error> {
        let start = self.span;
        self.expect_symbol("(")?;
        let mut inner = self.expression()?;
        self.expect_symbol(")")?;
        inner.span = self.since(start);
        Ok(inner)
    }

    fn named(&mut self, word: &str) -> Result<ExprKind, Error> {
        match word {
            "R" => self.subscript().map(ExprKind::Register),
            "M" | "MEM" => self.subscript().map(ExprKind::Cell),
            "PKT" => self.packet(),
            "HASH" => self.hash(),
            "EXTERN" => self.external(),
            _ if let Some(piece) = Piece::from_name(word) => self.cast(piece),
            _ if is_reserved(word) => Err(self.unexpected("a number, a register, a packet field or '('")),
            _ => self.reference(),
        }
    }

    /// The current word and the index in brackets behind it.
    fn subscript(&mut self) -> Result<Box<Expr>, Error> {
        self.advance()?;
        self.expect_symbol("[")?;
        let index = self.expression()?;
        self.expect_symbol("]")?;
        Ok(Box::new(index))
    }

    fn reference(&mut self) -> Result<ExprKind, Error> {
        let name = self.name()?;
        let mut arguments = Vec::new();
        if self.take_symbol("(")? && !self.take_symbol(")")? {
            loop {
                arguments.push(self.expression()?);
                if !self.take_symbol(",")? {
                    break;
                }
            }
            self.expect_symbol(")")?;
        }
        Ok(ExprKind::Name(name.text, arguments))
    }

    fn cast(&mut self, piece: Piece) -> Result<ExprKind, Error> {
        self.advance()?;
        self.expect_symbol("(")?;
        let value = self.expression()?;
        self.expect_symbol(")")?;
        Ok(ExprKind::Cast(piece, Box::new(value)))
    }

    fn hash(&mut self) -> Result<ExprKind, Error> {
        self.advance()?;
        self.expect_symbol("(")?;
        let start = self.expression()?;
        self.expect_symbol(",")?;
        let len = self.expression()?;
        self.expect_symbol(",")?;
        let mask = self.expression()?;
        self.expect_symbol(")")?;
        Ok(ExprKind::Hash(Box::new([start, len, mask])))
    }

    fn external(&mut self) -> Result<ExprKind, Error> {
        self.advance()?;
        self.expect_symbol("(")?;
        let name = self.name()?;
        self.expect_symbol(",")?;
        let input = self.expression()?;
        self.expect_symbol(",")?;
        let output = self.expression()?;
        self.expect_symbol(")")?;
        Ok(ExprKind::Extern(name, Box::new([input, output])))
    }

    fn packet(&mut self) -> Result<ExprKind, Error> {
        self.advance()?;
        self.expect_symbol(".")?;
        let name = self.name()?;
        if !self.is_symbol("[") {
            return self.field(name.text, name.span);
        }
        let Some(unit) = Unit::from_name(&name.text) else {
            return Err(Error::at(name.span, format!("'{}' is not a unit of packet bytes", name.text))
                .hint("units are B, W, DW, QW, and signed SB, SW, SDW, SQW"));
        };
        self.expect_symbol("[")?;
        let offset = Box::new(self.expression()?);
        self.expect_symbol("]")?;
        let piece = if self.take_symbol(".")? { Some(self.piece(unit)?) } else { None };
        Ok(ExprKind::Bytes(unit, offset, piece))
    }

    fn field(&self, name: String, span: Span) -> Result<ExprKind, Error> {
        if Unit::from_name(&name).is_some() {
            let message = format!("'{name}' lacks its offset");
            return Err(
                Error::at(span, message).hint(format!("PKT.{name}[0] is the first one of the packet"))
            );
        }
        Ok(ExprKind::Field(name))
    }

    fn piece(&mut self, unit: Unit) -> Result<(Piece, Box<Expr>), Error> {
        let name = self.name()?;
        if unit.signed {
            return Err(Error::at(name.span, "a piece of a signed number").hint(
                "the piece alone decides about the sign: leave the S out before the bracket, write it here",
            ));
        }
        let piece = Piece::from_name(&name.text).filter(|piece| piece.bits < unit.bytes * 8);
        let Some(piece) = piece else {
            let fitting = ["U1", "U4", "U8", "U16", "U32"];
            let fits = |name: &&&str| Piece::from_name(name).is_some_and(|piece| piece.bits < unit.bytes * 8);
            let known: Vec<&str> = fitting.iter().filter(fits).copied().collect();
            return Err(Error::at(
                name.span,
                format!("'{}' is not a piece of {} bits", name.text, unit.bytes * 8),
            )
            .hint(format!("pieces are {}, signed with S for U", known.join(", "))));
        };
        self.expect_symbol("[")?;
        let index = self.expression()?;
        self.expect_symbol("]")?;
        Ok((piece, Box::new(index)))
    }
}
