//! Values: the contents of registers, as expressions over the packet. Equal expressions have equal numbers.
//!
//! ```text
//! value := k | list | len | pkt[k:w] | pkt[value+k:w] | 4*(pkt[k]&15) | value op value | -value | join(block, register)
//! ```
//!
//! A packet does not change while its filter runs and blocks never repeat, so a value means the same wherever it
//! appears. If the edges into a block bring different values, the block has a join of its own.

use crate::ancillary;
use crate::cfg::{Alu, BlockId, CELLS, JumpTest, ListId, Operand, Statement, Width};
use rustc_hash::FxHashMap as Map;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Value(u32);

impl Value {
    /// An index for tables of all values.
    pub(super) fn place(self) -> usize {
        self.0 as usize
    }
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expr {
    Const(u32),
    /// The numbers of a list, which A equals if it equals one of them.
    List(ListId),
    Len,
    Packet(Width, u32),
    Indexed(Width, u32, Value),
    HeaderLen(u32),
    Alu(Alu, Value, Value),
    /// Arithmetic with a constant operand, as opposed to a register.
    AluConst(Alu, Value, u32),
    Negate(Value),
    Join(BlockId, Register),
}

/// No block of a graph.
const NOWHERE: BlockId = BlockId(u32::MAX);

/// A place that holds a value: A, X, and the scratch cells behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Register(pub(super) u8);

impl Register {
    pub(super) const A: Register = Register(0);
    pub(super) const X: Register = Register(1);
    pub(super) const COUNT: usize = CELLS as usize + 2;

    pub(super) const fn cell(cell: u8) -> Register {
        Register(cell + 2)
    }

    pub(super) const fn bit(self) -> u32 {
        1 << self.0
    }
}

pub(super) type Registers = [Value; Register::COUNT];

/// All values of a graph.
#[derive(Debug)]
pub(super) struct Values {
    numbers: Map<Expr, Value>,
    exprs: Vec<Expr>,
    /// Whether arithmetic on numbers and loads behind numbers are worked out. If not, each is known by its form alone.
    pub(super) folds: bool,
}

impl Values {
    /// The number of zero, the content of registers and scratch cells at the start.
    pub(super) const ZERO: Value = Value(0);

    /// Values of a graph with this number of blocks.
    pub(super) fn new(blocks: usize) -> Values {
        let mut values = Values { numbers: Map::default(), exprs: Vec::new(), folds: true };
        values.numbers.reserve(blocks);
        values.number(Expr::Const(0));
        values
    }

    /// Values for an optimiser that does no arithmetic.
    pub(super) fn unfolded(blocks: usize) -> Values {
        Values { folds: false, ..Values::new(blocks) }
    }

    pub(super) fn number(&mut self, expr: Expr) -> Value {
        let next = Value(self.exprs.len() as u32);
        let number = *self.numbers.entry(expr).or_insert(next);
        if number == next {
            self.exprs.push(expr);
        }
        number
    }

    /// A value that equals no other: the result of a statement that is not a function of the packet.
    pub(super) fn fresh(&mut self, register: Register) -> Value {
        self.exprs.push(Expr::Join(NOWHERE, register));
        Value(self.exprs.len() as u32 - 1)
    }

    pub(super) fn expr(&self, value: Value) -> Expr {
        self.exprs[value.0 as usize]
    }

    /// The number behind a value, if it is one.
    pub(super) fn constant(&self, value: Value) -> Option<u32> {
        match self.expr(value) {
            Expr::Const(k) => Some(k),
            _ => None,
        }
    }

    pub(super) fn operand(&mut self, operand: Operand, registers: &Registers) -> Value {
        match operand {
            Operand::K(k) => self.number(Expr::Const(k)),
            Operand::X => registers[Register::X.0 as usize],
        }
    }

    /// The value that a statement writes, and its register. `None` for a load that is not a function of the packet (a
    /// random number, the CPU).
    pub(super) fn effect(
        &mut self,
        statement: Statement,
        registers: &Registers,
    ) -> (Register, Option<Value>) {
        let (a, x) = (registers[0], registers[1]);
        let cell = |cell: u8| registers[usize::from(Register::cell(cell).0)];
        let (register, expr) = match statement {
            Statement::LoadConst(k) => (Register::A, Expr::Const(k)),
            Statement::LoadPacket(_, ancillary::ALU_XOR_X) => {
                return (Register::A, Some(self.arithmetic(Alu::Xor, a, x)));
            }
            Statement::LoadPacket(_, k) if is_unsteady(k) => return (Register::A, None),
            // The width of an ancillary load says nothing.
            Statement::LoadPacket(_, k) if k >= ancillary::BASE => {
                (Register::A, Expr::Packet(Width::Word, k))
            }
            Statement::LoadPacket(width, k) => (Register::A, Expr::Packet(width, k)),
            Statement::LoadIndexed(width, k) => (Register::A, self.indexed(width, k, x)),
            Statement::LoadLen => (Register::A, Expr::Len),
            Statement::LoadCell(n) => return (Register::A, Some(cell(n))),
            Statement::LoadXConst(k) => (Register::X, Expr::Const(k)),
            Statement::LoadXCell(n) => return (Register::X, Some(cell(n))),
            Statement::LoadXLen => (Register::X, Expr::Len),
            Statement::LoadXHeaderLen(k) => (Register::X, Expr::HeaderLen(k)),
            Statement::Store(n) => return (Register::cell(n), Some(a)),
            Statement::StoreX(n) => return (Register::cell(n), Some(x)),
            Statement::Alu(op, Operand::K(k)) if !self.folds => (Register::A, Expr::AluConst(op, a, k)),
            Statement::Negate if !self.folds => (Register::A, Expr::Negate(a)),
            Statement::Alu(op, operand) => {
                let operand = self.operand(operand, registers);
                return (Register::A, Some(self.arithmetic(op, a, operand)));
            }
            Statement::Negate => {
                (Register::A, self.constant(a).map_or(Expr::Negate(a), |k| Expr::Const(k.wrapping_neg())))
            }
            Statement::Tax => return (Register::X, Some(a)),
            Statement::Txa => return (Register::A, Some(x)),
        };
        (register, Some(self.number(expr)))
    }

    /// A load behind a constant is a load from a constant place, unless that place is beyond the offsets of plain
    /// loads.
    fn indexed(&self, width: Width, k: u32, x: Value) -> Expr {
        match self.constant(x).and_then(|x| x.checked_add(k)) {
            Some(sum) if self.folds && sum < ancillary::BASE => Expr::Packet(width, sum),
            _ => Expr::Indexed(width, k, x),
        }
    }

    fn arithmetic(&mut self, op: Alu, a: Value, b: Value) -> Value {
        if !self.folds {
            return self.number(Expr::Alu(op, a, b));
        }
        match (self.constant(a), self.constant(b)) {
            (Some(left), Some(right)) => match compute(op, left, right) {
                Some(k) => self.number(Expr::Const(k)),
                None => self.number(Expr::Alu(op, a, b)),
            },
            (None, Some(0)) if keeps_with_zero(op) => a,
            (None, Some(0)) if matches!(op, Alu::Mul | Alu::And) => Values::ZERO,
            (None, Some(32..)) if matches!(op, Alu::Shl | Alu::Shr) => Values::ZERO,
            (None, Some(1)) if matches!(op, Alu::Mul | Alu::Div) => a,
            (None, Some(u32::MAX)) if op == Alu::And => a,
            (Some(0), None) if matches!(op, Alu::Add | Alu::Or | Alu::Xor) => b,
            (Some(0), None) if matches!(op, Alu::Mul | Alu::And | Alu::Shl | Alu::Shr) => Values::ZERO,
            _ => self.number(Expr::Alu(op, a, b)),
        }
    }
}

/// Ancillary loads that may answer differently when asked again, or that not every capture can answer.
pub(super) fn is_unsteady(k: u32) -> bool {
    const STEADY: [u32; 6] = [
        ancillary::PKTTYPE,
        ancillary::IFINDEX,
        ancillary::RXHASH,
        ancillary::VLAN_TAG,
        ancillary::VLAN_TAG_PRESENT,
        ancillary::VLAN_TPID,
    ];
    k >= ancillary::BASE && k != ancillary::ALU_XOR_X && !STEADY.contains(&k)
}

fn keeps_with_zero(op: Alu) -> bool {
    matches!(op, Alu::Add | Alu::Sub | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr)
}

/// Whether a test holds of two numbers.
pub fn outcome(test: JumpTest, left: u32, right: u32) -> bool {
    match test {
        JumpTest::Equal => left == right,
        JumpTest::Greater => left > right,
        JumpTest::GreaterEqual => left >= right,
        JumpTest::AnySet => left & right != 0,
    }
}

/// `None` for division by zero, which rejects the packet.
pub fn compute(op: Alu, a: u32, b: u32) -> Option<u32> {
    Some(match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => return a.checked_div(b),
        Alu::Mod => return a.checked_rem(b),
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Shl => a.checked_shl(b).unwrap_or(0),
        Alu::Shr => a.checked_shr(b).unwrap_or(0),
    })
}
