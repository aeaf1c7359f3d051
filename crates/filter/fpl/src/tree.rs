//! The meaning of an FPL text: names replaced, constants computed, every operation signed or unsigned.

use std::sync::Arc;

use super::ast::Operator;
use super::field::Item;
use super::function::External;
use tapline_ir::{Binary, Comparison, Type, Width};
use tapline_syntax::Span;

/// Number of registers: `R[0]` to `R[31]`.
pub const REGISTERS: usize = 32;

/// A whole program.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) body: Vec<Statement>,
    /// The functions that [`Kind::Call`] calls, by number.
    pub(super) functions: Vec<Arc<External>>,
    /// The fields that [`Kind::Field`] reads, by number.
    pub(super) fields: Vec<Item>,
    pub(super) uses_cells: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) kind: StatementKind,
    pub(super) span: Span,
}

#[derive(Clone, Debug)]
pub(super) enum StatementKind {
    SetRegister(usize, Expr),
    /// The cell's index, the operation on its value and the new one, the new one.
    SetCell(Expr, Option<Arithmetic>, Expr),
    If(Expr, Vec<Statement>, Vec<Statement>),
    For(Box<For>),
    Break,
    Return(Expr),
    Call(Expr),
}

#[derive(Clone, Debug)]
pub(super) struct For {
    pub(super) register: usize,
    pub(super) start: Expr,
    pub(super) relation: Operator,
    pub(super) end: Expr,
    pub(super) upward: bool,
    pub(super) step: Expr,
    pub(super) body: Vec<Statement>,
    pub(super) head: Span,
    /// The most rounds; known after [`super::range::check`].
    pub(super) rounds_max: u64,
}

/// A number of 64 bits to be computed.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) kind: Kind,
    pub(super) sign: Sign,
    pub(super) span: Span,
}

/// The reading of a number's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// Either: a literal adapts to the other operand.
    Literal,
    Unsigned,
    Signed,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Constant(u64),
    Register(usize),
    Cell(Box<Expr>),
    Length,
    WireLength,
    /// An index into [`Code::fields`].
    Field(usize),
    Load(Width, Box<Expr>),
    /// A piece of `bits` bits of a number of `unit_bits` bits, by its index from the most significant one on.
    Extract {
        of: Box<Expr>,
        unit_bits: u32,
        bits: u32,
        index: Box<Expr>,
    },
    ZeroExtend(u32, Box<Expr>),
    SignExtend(u32, Box<Expr>),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    Compare(Relation, Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Hash(Box<[Expr; 3]>),
    /// An index into [`Code::functions`], the input's first cell, the output's.
    Call(usize, Box<[Expr; 2]>),
}

/// Arithmetic whose sign is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Plain(Binary),
    SignedDivide,
    SignedRemainder,
}

/// A comparison whose sign is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) operator: Operator,
    pub(super) signed: bool,
}

impl Expr {
    pub(super) fn constant(&self) -> Option<u64> {
        match self.kind {
            Kind::Constant(value) => Some(value),
            _ => None,
        }
    }
}

impl Arithmetic {
    /// The operation for numbers of this sign; `None` for comparisons and the like.
    pub(super) fn of(operator: Operator, signed: bool) -> Option<Arithmetic> {
        let plain = match operator {
            Operator::Divide if signed => return Some(Arithmetic::SignedDivide),
            Operator::Remainder if signed => return Some(Arithmetic::SignedRemainder),
            Operator::ShiftRight if signed => Binary::SignedShr,
            Operator::Multiply => Binary::Mul,
            Operator::Divide => Binary::Div,
            Operator::Remainder => Binary::Mod,
            Operator::Add => Binary::Add,
            Operator::Subtract => Binary::Sub,
            Operator::ShiftLeft => Binary::Shl,
            Operator::ShiftRight => Binary::Shr,
            Operator::BitAnd => Binary::And,
            Operator::BitXor => Binary::Xor,
            Operator::BitOr => Binary::Or,
            _ => return None,
        };
        Some(Arithmetic::Plain(plain))
    }

    /// The result; `None` for a division by 0.
    pub(super) fn compute(self, left: u64, right: u64) -> Option<u64> {
        let signed = |value: u64| value as i64;
        match self {
            Arithmetic::Plain(op) => op.compute(Type::U64, left, right),
            _ if right == 0 => None,
            Arithmetic::SignedDivide => Some(signed(left).wrapping_div(signed(right)) as u64),
            Arithmetic::SignedRemainder => Some(signed(left).wrapping_rem(signed(right)) as u64),
        }
    }

    pub(super) fn divides(self) -> bool {
        !matches!(self, Arithmetic::Plain(op) if !matches!(op, Binary::Div | Binary::Mod))
    }
}

impl Relation {
    /// The test that decides it, whether its sides change places, and whether its answer is reversed.
    pub(super) fn test(self) -> (Comparison, bool, bool) {
        let greater = if self.signed { Comparison::SignedGreater } else { Comparison::Greater };
        let greater_equal =
            if self.signed { Comparison::SignedGreaterEqual } else { Comparison::GreaterEqual };
        match self.operator {
            Operator::NotEqual => (Comparison::Equal, false, true),
            Operator::Less => (greater, true, false),
            Operator::LessEqual => (greater_equal, true, false),
            Operator::Greater => (greater, false, false),
            Operator::GreaterEqual => (greater_equal, false, false),
            _ => (Comparison::Equal, false, false),
        }
    }

    pub(super) fn holds(self, left: u64, right: u64) -> bool {
        let (test, swapped, reversed) = self.test();
        let (left, right) = if swapped { (right, left) } else { (left, right) };
        test.holds(Type::U64, left, right) != reversed
    }
}

/// The number of the low `bits` bits, the highest of them repeated.
pub(super) fn sign_extend(bits: u32, value: u64) -> u64 {
    let shift = 64 - bits;
    ((value << shift) as i64 >> shift) as u64
}

/// The low `bits` bits set.
pub(super) fn low_bits(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// The registers that the statements may write, a bit for each.
pub(super) fn assigned(statements: &[Statement]) -> u32 {
    statements.iter().fold(0, |set, statement| {
        set | match &statement.kind {
            StatementKind::SetRegister(register, _) => 1 << register,
            StatementKind::If(_, then, otherwise) => assigned(then) | assigned(otherwise),
            StatementKind::For(parts) => 1 << parts.register | assigned(&parts.body),
            _ => 0,
        }
    })
}
