//! Expressions: signs decided, constants computed.

use super::{At, Frame, Meaning, Resolver, argument_of, ensure_arity};
use crate::ast::{self, ExprKind, Name, Operator, Piece, Unary, Unit};
use crate::field;
use crate::tree::{Arithmetic, Expr, Kind, Relation, Sign, low_bits, sign_extend};
use tapline_ir::{Binary, Width};
use tapline_syntax::{Error, Span};

impl<'a> Resolver<'a> {
    pub(super) fn expr(&mut self, expr: &'a ast::Expr, frame: At<'a, '_>) -> Result<Expr, Error> {
        self.deeper(expr.span, |resolver| resolver.shallow(expr, frame))
    }

    fn shallow(&mut self, expr: &'a ast::Expr, frame: At<'a, '_>) -> Result<Expr, Error> {
        let span = expr.span;
        let unsigned = |kind| Expr { kind, sign: Sign::Unsigned, span };
        Ok(match &expr.kind {
            ExprKind::Number(value) => constant(*value, Sign::Literal, span),
            ExprKind::Name(name, arguments) => self.reference(name, arguments, span, frame)?,
            ExprKind::Register(index) => unsigned(Kind::Register(self.register_number(index, frame)?)),
            ExprKind::Cell(index) => unsigned(Kind::Cell(Box::new(self.cell_index(index, span, frame)?))),
            ExprKind::Bytes(unit, offset, piece) => self.bytes(*unit, offset, piece.as_ref(), span, frame)?,
            ExprKind::Field(name) => unsigned(self.field(name, span)?),
            ExprKind::Unary(operator, operand) => {
                let operand = self.expr(operand, frame)?;
                self.unary(*operator, operand, span)?
            }
            ExprKind::Binary(operator, left, right) => {
                let (left, right) = (self.expr(left, frame)?, self.expr(right, frame)?);
                self.binary(*operator, left, right, span)?
            }
            ExprKind::Cast(piece, value) => cast(*piece, self.expr(value, frame)?, span),
            ExprKind::Hash(parts) => {
                let [start, len, mask] = &**parts;
                let parts = [self.expr(start, frame)?, self.expr(len, frame)?, self.expr(mask, frame)?];
                unsigned(Kind::Hash(Box::new(parts)))
            }
            ExprKind::Extern(name, cells) => unsigned(self.external(name, cells, frame)?),
        })
    }

    fn reference(
        &mut self,
        name: &str,
        arguments: &'a [ast::Expr],
        span: Span,
        frame: At<'a, '_>,
    ) -> Result<Expr, Error> {
        if let Some((argument, outer)) = argument_of(name, arguments, frame) {
            return self.expr(argument, outer);
        }
        match self.meaning(name, frame) {
            Some(Meaning::Constant(value, sign)) if arguments.is_empty() => Ok(constant(value, sign, span)),
            Some(Meaning::Constant(..)) => {
                Err(Error::at(span, format!("'{name}' is a constant and takes no arguments"))
                    .hint("leave the parentheses out"))
            }
            Some(Meaning::Macro(definition, visible)) => {
                ensure_arity(definition, arguments, span)?;
                let inner = Frame { parameters: &definition.parameters, arguments, visible, outer: frame };
                self.expr(&definition.body, Some(&inner))
            }
            None => Err(self.unknown(name, span)),
        }
    }

    fn bytes(
        &mut self,
        unit: Unit,
        offset: &'a ast::Expr,
        piece: Option<&'a (Piece, Box<ast::Expr>)>,
        span: Span,
        frame: At<'a, '_>,
    ) -> Result<Expr, Error> {
        let width = match unit.bytes {
            1 => Width::Byte,
            2 => Width::Half,
            4 => Width::Word,
            _ => Width::Double,
        };
        let offset = Box::new(self.expr(offset, frame)?);
        let load = Expr { kind: Kind::Load(width, offset), sign: Sign::Unsigned, span };
        let Some((piece, index)) = piece else {
            return Ok(cast(Piece { bits: unit.bytes * 8, signed: unit.signed }, load, span));
        };
        let (unit_bits, bits) = (unit.bytes * 8, piece.bits);
        let index = Box::new(self.expr(index, frame)?);
        let pieces = u64::from(unit_bits / bits);
        if let Some(number) = index.constant().filter(|number| *number >= pieces) {
            return Err(Error::at(index.span, format!("there is no piece {number}"))
                .hint(format!("{unit_bits} bits have {pieces} pieces of {bits}: 0 to {}", pieces - 1)));
        }
        let kind = Kind::Extract { of: Box::new(load), unit_bits, bits, index };
        Ok(cast(*piece, Expr { kind, sign: Sign::Unsigned, span }, span))
    }

    fn field(&mut self, name: &str, span: Span) -> Result<Kind, Error> {
        match name {
            "LEN" => return Ok(Kind::Length),
            "WIRE_LEN" => return Ok(Kind::WireLength),
            _ => {}
        }
        let Some(field) = field::find(name) else { return Err(unknown_field(name, span)) };
        let needs_ethernet = matches!(name, "ETH_DST" | "ETH_SRC");
        match self.link {
            Some(link) if link.is_ethernet || !needs_ethernet => {}
            _ => {
                let link_type = self.options.link_type;
                return Err(Error::at(span, format!("PKT.{name} is not known for link type {link_type}"))
                    .hint("PKT.B[n], PKT.W[n] and PKT.DW[n] read any bytes"));
            }
        }
        let fields = &mut self.code.fields;
        let number = fields.iter().position(|item| *item == field.item).unwrap_or_else(|| {
            fields.push(field.item);
            fields.len() - 1
        });
        Ok(Kind::Field(number))
    }

    fn external(&mut self, name: &Name, cells: &'a [ast::Expr; 2], frame: At<'a, '_>) -> Result<Kind, Error> {
        let Some(function) = self.options.registry.get(&name.text) else {
            let known: Vec<&str> = self.options.registry.names().collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::at(
                name.span,
                format!("'{}' is not a function that this program may call", name.text),
            )
            .hint(format!("registered: {known}")));
        };
        self.code.uses_cells |= self.options.memory_cells > 0;
        let functions = &mut self.code.functions;
        let known = functions.iter().position(|known| known.name() == name.text);
        let number = known.unwrap_or_else(|| {
            functions.push(function.clone());
            functions.len() - 1
        });
        let [input, output] = cells;
        Ok(Kind::Call(number, Box::new([self.expr(input, frame)?, self.expr(output, frame)?])))
    }

    fn unary(&self, operator: Unary, operand: Expr, span: Span) -> Result<Expr, Error> {
        let sign = operand.sign;
        Ok(match operator {
            Unary::Minus => {
                let zero = constant(0, Sign::Literal, span);
                Expr {
                    sign: Sign::Signed,
                    ..computed(Arithmetic::Plain(Binary::Sub), zero, operand, sign, span)
                }
            }
            Unary::Complement => {
                let ones = constant(u64::MAX, Sign::Literal, span);
                computed(Arithmetic::Plain(Binary::Xor), operand, ones, sign, span)
            }
            Unary::Not => match operand.constant() {
                Some(value) => constant((value == 0).into(), Sign::Unsigned, span),
                None => Expr { kind: Kind::Not(Box::new(operand)), sign: Sign::Unsigned, span },
            },
        })
    }

    fn binary(&self, operator: Operator, left: Expr, right: Expr, span: Span) -> Result<Expr, Error> {
        match operator {
            Operator::And | Operator::Or => Ok(logical(operator, left, right, span)),
            _ if operator.is_relation() => compare(operator, left, right, span),
            _ => self.arithmetic(operator, left, right, span),
        }
    }

    pub(super) fn arithmetic(
        &self,
        operator: Operator,
        left: Expr,
        right: Expr,
        span: Span,
    ) -> Result<Expr, Error> {
        let signed = is_signed(operator, left.sign, right.sign, span)?;
        let Some(arithmetic) = Arithmetic::of(operator, signed) else {
            return Err(Error::at(span, "this operator does not compute a number"));
        };
        ensure_divisor(arithmetic, &right)?;
        let sign = match operator {
            Operator::ShiftLeft | Operator::ShiftRight => left.sign,
            _ => joint(left.sign, right.sign),
        };
        Ok(computed(arithmetic, left, right, sign, span))
    }
}

fn constant(value: u64, sign: Sign, span: Span) -> Expr {
    Expr { kind: Kind::Constant(value), sign, span }
}

/// The operation, or its result where it is known.
fn computed(arithmetic: Arithmetic, left: Expr, right: Expr, sign: Sign, span: Span) -> Expr {
    if let (Some(left), Some(right)) = (left.constant(), right.constant())
        && let Some(value) = arithmetic.compute(left, right)
    {
        return constant(value, sign, span);
    }
    Expr { kind: Kind::Arithmetic(arithmetic, Box::new(left), Box::new(right)), sign, span }
}

fn logical(operator: Operator, left: Expr, right: Expr, span: Span) -> Expr {
    if let (Some(left), Some(right)) = (left.constant(), right.constant()) {
        let holds = if operator == Operator::And { left != 0 && right != 0 } else { left != 0 || right != 0 };
        return constant(holds.into(), Sign::Unsigned, span);
    }
    let (left, right) = (Box::new(left), Box::new(right));
    let kind = if operator == Operator::And { Kind::And(left, right) } else { Kind::Or(left, right) };
    Expr { kind, sign: Sign::Unsigned, span }
}

fn compare(operator: Operator, left: Expr, right: Expr, span: Span) -> Result<Expr, Error> {
    let signed = is_signed(operator, left.sign, right.sign, span)?;
    let relation = Relation { operator, signed };
    let is_literal_zero = matches!(right, Expr { kind: Kind::Constant(0), sign: Sign::Literal, .. });
    if is_literal_zero
        && left.sign == Sign::Unsigned
        && matches!(operator, Operator::Less | Operator::GreaterEqual)
    {
        return Err(Error::at(span, "a number without a sign is never less than 0")
            .hint("S64(...) reads it as a number with a sign"));
    }
    if let (Some(left), Some(right)) = (left.constant(), right.constant()) {
        return Ok(constant(relation.holds(left, right).into(), Sign::Unsigned, span));
    }
    Ok(Expr { kind: Kind::Compare(relation, Box::new(left), Box::new(right)), sign: Sign::Unsigned, span })
}

fn cast(piece: Piece, value: Expr, span: Span) -> Expr {
    let sign = if piece.signed { Sign::Signed } else { Sign::Unsigned };
    let bits = piece.bits;
    if let Some(value) = value.constant() {
        let value = if piece.signed { sign_extend(bits, value) } else { value & low_bits(bits) };
        return constant(value, sign, span);
    }
    let fits = match &value.kind {
        Kind::Load(width, _) => !piece.signed && width.bytes() * 8 <= bits,
        Kind::Extract { bits: own, .. } => !piece.signed && *own <= bits,
        _ => false,
    };
    let kind = match (bits, piece.signed) {
        (64, _) => value.kind,
        _ if fits => value.kind,
        (_, true) => Kind::SignExtend(bits, Box::new(value)),
        (_, false) => Kind::ZeroExtend(bits, Box::new(value)),
    };
    Expr { kind, sign, span }
}

/// Whether the operator works on signed numbers.
///
/// # Errors
/// If one side has a sign, the other has not, and the result depends on it.
pub(super) fn is_signed(operator: Operator, left: Sign, right: Sign, span: Span) -> Result<bool, Error> {
    let depends = match operator {
        Operator::ShiftRight => return Ok(left == Sign::Signed),
        Operator::Divide | Operator::Remainder => true,
        Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => true,
        _ => false,
    };
    let mixed = matches!((left, right), (Sign::Signed, Sign::Unsigned) | (Sign::Unsigned, Sign::Signed));
    if depends && mixed {
        return Err(Error::at(
            span,
            format!("'{}' of a number with a sign and one without", operator.name()),
        )
        .hint("say which is meant: S64(...) or U64(...) around one of them"));
    }
    Ok(joint(left, right) == Sign::Signed)
}

/// The sign of a result: literals adapt, unsigned wins.
fn joint(left: Sign, right: Sign) -> Sign {
    match (left, right) {
        (Sign::Unsigned, _) | (_, Sign::Unsigned) => Sign::Unsigned,
        (Sign::Signed, _) | (_, Sign::Signed) => Sign::Signed,
        _ => Sign::Literal,
    }
}

/// # Errors
/// If the divisor is 0, whatever the packet.
pub(super) fn ensure_divisor(arithmetic: Arithmetic, divisor: &Expr) -> Result<(), Error> {
    if arithmetic.divides() && divisor.constant() == Some(0) {
        return Err(Error::at(divisor.span, "this divides by 0")
            .hint("a divisor that is 0 at run time ends the program with 0; RETURN 0 says so"));
    }
    Ok(())
}

fn unknown_field(name: &str, span: Span) -> Error {
    let upper = name.to_ascii_uppercase();
    let head = upper.split('_').next().unwrap_or("");
    let alike: Vec<&str> = field::FIELDS
        .iter()
        .map(|field| field.name)
        .filter(|known| known.split('_').next() == Some(head))
        .collect();
    let hint = match (field::find(&upper), alike.is_empty()) {
        (Some(field), _) => format!("fields are in upper case: PKT.{}", field.name),
        (None, false) => format!("known: {}", alike.join(", ")),
        (None, true) => {
            "fields begin with ETH_, VLAN_, ARP_, IP_, IP6_, L4_, TCP_, UDP_, ICMP_, ICMP6_, DATA_, IS_; or LEN".into()
        }
    };
    Error::at(span, format!("there is no field PKT.{name}")).hint(hint)
}
