//! The intermediate form: a control-flow graph of SSA values, between all languages and all targets.
//!
//! ```text
//! pcap-filter text --generate--> cfg::Cfg --raise--+
//! classic BPF program ---decode--> cfg::Cfg -raise--+--> Ir --optimise--> interpreter, native code, eBPF
//! FPL text -------------------------------lower----+
//!
//! ir          := block* entry, cells, functions, loops
//! block       := parameter* instruction* terminator
//! instruction := value = op                                   -- u32 and u64 numbers, unsigned unless an op says otherwise
//! op          := const | field | load place width order | binary | compare | extend | truncate
//!              | need place-end | nonzero value               -- guards: reject the packet unless they hold
//!              | cell index | set-cell index value | call function(arguments)   -- state: FPL only
//! place       := offset | value + offset                      -- bytes from the packet's start
//! terminator  := goto target | branch test ? target : target | switch value {k: target} else target | return value
//! target      := block(argument*)                             -- one argument for each parameter of the block
//! ```
//!
//! A value is defined once and means the same wherever it is read: a packet does not change while its filter runs. To reject is
//! to return 0. Guards are apart from what they guard, so that they can be merged and moved: a load is allowed only where
//! guards on all ways to it have shown that its bytes are there, and a division only where its divisor is a constant other than 0 or
//! guarded; [`Ir::verify`] proves both, and engines run only what it has passed. Guards may be made stricter or moved to an earlier
//! place only if no packet that was accepted is then rejected, and, with state, if no effect is then left out.
//!
//! Graphs from filters have no way back to a block that was run; graphs from FPL may, to the [`Loop`]s that they declare.

#![forbid(unsafe_code)]

mod build;
mod compiled;
mod dominators;
mod interpret;
pub mod optimise;
mod raise;
mod range;
mod reaching;
mod ssa;
mod state;
mod text;
mod verify;

pub use build::Builder;
pub use compiled::CompiledFilter;
pub use dominators::Dominators;
pub use interpret::Machine;
pub use raise::{raise, raise_program};
pub use reaching::Reaching;
pub use ssa::Variables;
pub use state::{Function, Memory};
pub use verify::{Coverage, Fault};

use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// A value's number: an index into [`Ir::instructions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u32);

/// A block's number: an index into [`Ir::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// What kind of number a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// No number: guards and stores.
    None,
}

impl Type {
    /// 32, 64, or 0.
    pub const fn bits(self) -> u32 {
        match self {
            Type::U32 => 32,
            Type::U64 => 64,
            Type::None => 0,
        }
    }

    /// The greatest number of the type.
    pub const fn max(self) -> u64 {
        match self {
            Type::U32 => u32::MAX as u64,
            Type::U64 => u64::MAX,
            Type::None => 0,
        }
    }
}

/// How many bytes a load takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 1 byte, gives a [`Type::U32`].
    Byte,
    /// 2 bytes, gives a [`Type::U32`].
    Half,
    /// 4 bytes, gives a [`Type::U32`].
    Word,
    /// 8 bytes, gives a [`Type::U64`].
    Double,
}

impl Width {
    /// 1, 2, 4 or 8.
    pub const fn bytes(self) -> u32 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
            Width::Double => 8,
        }
    }

    /// The type that holds so many bytes.
    pub const fn ty(self) -> Type {
        match self {
            Width::Double => Type::U64,
            _ => Type::U32,
        }
    }
}

/// Which byte of a load counts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The first: network order.
    Big,
    /// The last. Costs nothing on little-endian machines; the constants that it is compared with are swapped instead.
    Little,
}

/// Where bytes are: `offset` bytes from the packet's start, or from `base` bytes after it. Sums do not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Added to the offset; of either type.
    pub base: Option<Value>,
    /// Bytes.
    pub offset: u32,
}

impl Place {
    /// So many bytes from the packet's start.
    pub const fn at(offset: u32) -> Place {
        Place { base: None, offset }
    }

    /// So many bytes after the one that `base` counts to.
    pub const fn from(base: Value, offset: u32) -> Place {
        Place { base: Some(base), offset }
    }
}

/// What is known about a packet besides its bytes. All are [`Type::U32`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Length on the wire.
    WireLen,
    /// Captured bytes.
    CapLen,
    /// How it was addressed: `sll_pkttype` of packet(7).
    PacketType,
    /// The kernel's index of the interface.
    InterfaceIndex,
    /// The receive hash.
    ReceiveHash,
    /// Control information of a VLAN tag that was taken out of the bytes, 0 without one.
    VlanTag,
    /// 1 if a VLAN tag was taken out of the bytes, else 0.
    VlanPresent,
    /// Protocol identifier of a VLAN tag that was taken out of the bytes, 0 without one.
    VlanProtocol,
}

/// Arithmetic on two numbers of one type. Wraps. A shift by the type's width or more gives 0, or the sign for
/// [`SignedShr`](Binary::SignedShr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// The divisor is never 0: see [`Op::NonZero`].
    Div,
    /// The divisor is never 0: see [`Op::NonZero`].
    Mod,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    /// Shift right that repeats the highest bit.
    SignedShr,
}

/// A question about two numbers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// Equal.
    Equal,
    /// Left is greater, unsigned.
    Greater,
    /// Left is greater or equal, unsigned.
    GreaterEqual,
    /// They have a bit in common.
    AnySet,
    /// Left is greater, as two's complement.
    SignedGreater,
    /// Left is greater or equal, as two's complement.
    SignedGreaterEqual,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A parameter of its block.
    Parameter,
    /// A number, within its type.
    Const(u64),
    /// What is known about the packet.
    Field(Field),
    /// Packet bytes. They have been shown to be there.
    Load(Place, Width, Order),
    /// Arithmetic.
    Binary(Binary, Value, Value),
    /// 1 if it holds, else 0; a [`Type::U32`].
    Compare(Test, Value, Value),
    /// A u32 as a u64.
    Extend(Value),
    /// The low 32 bits of a u64.
    Truncate(Value),
    /// Guard: rejects the packet unless as many bytes were captured as lie before the place.
    Need(Place),
    /// Guard: rejects the packet if the value is 0.
    NonZero(Value),
    /// The cell of this index (u64), modulo the number of cells; a [`Type::U64`].
    Cell(Value),
    /// Stores a u64 in the cell of this index (u64), modulo the number of cells.
    SetCell(Value, Value),
    /// Calls the function of this number in [`Ir::functions`] with u64 arguments; a [`Type::U64`]. It may read and write cells.
    Call(u32, Box<[Value]>),
}

impl Op {
    /// Whether it does more than give a number: such an instruction stays, and stays in its order.
    pub fn has_effect(&self) -> bool {
        matches!(self, Op::Need(_) | Op::NonZero(_) | Op::SetCell(..) | Op::Call(..))
    }

    /// Whether it gives the same number wherever it stands.
    pub fn is_pure(&self) -> bool {
        !self.has_effect() && !matches!(self, Op::Parameter | Op::Cell(_))
    }

    /// Calls `visit` with each value that it reads.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Value)) {
        match self {
            Op::Parameter | Op::Const(_) | Op::Field(_) => {}
            Op::Load(place, ..) | Op::Need(place) => place.base.into_iter().for_each(visit),
            Op::Binary(_, left, right) | Op::Compare(_, left, right) | Op::SetCell(left, right) => {
                visit(*left);
                visit(*right);
            }
            Op::Extend(value) | Op::Truncate(value) | Op::NonZero(value) | Op::Cell(value) => visit(*value),
            Op::Call(_, arguments) => arguments.iter().copied().for_each(visit),
        }
    }

    /// Replaces each value that it reads.
    pub fn map_operands(&mut self, mut map: impl FnMut(Value) -> Value) {
        match self {
            Op::Parameter | Op::Const(_) | Op::Field(_) => {}
            Op::Load(place, ..) | Op::Need(place) => {
                if let Some(base) = &mut place.base {
                    *base = map(*base);
                }
            }
            Op::Binary(_, left, right) | Op::Compare(_, left, right) | Op::SetCell(left, right) => {
                *left = map(*left);
                *right = map(*right);
            }
            Op::Extend(value) | Op::Truncate(value) | Op::NonZero(value) | Op::Cell(value) => {
                *value = map(*value);
            }
            Op::Call(_, arguments) => arguments.iter_mut().for_each(|argument| *argument = map(*argument)),
        }
    }
}

/// What a value is, and of which type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// How it comes about.
    pub op: Op,
    /// What it gives.
    pub ty: Type,
}

/// Where to go, and with what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The block.
    pub block: BlockId,
    /// Its parameters' values.
    pub arguments: Vec<Value>,
}

impl Target {
    /// A block without parameters.
    pub const fn to(block: BlockId) -> Target {
        Target { block, arguments: Vec::new() }
    }
}

/// One way out of a [`Terminator::Switch`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// The value's number.
    pub key: u64,
    /// Where it leads.
    pub to: Target,
}

/// How a switch finds its case. A choice, not a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// Bits of one machine word for keys that lie close together, all with one target.
    Bitmap,
    /// A table of bits in memory, all keys with one target.
    BitTable,
    /// A table of targets, for keys that lie close together.
    JumpTable,
    /// By halves.
    Binary,
    /// A table in which a hash without collisions finds the only key that it can be; all with one target.
    PerfectHash,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Terminator {
    /// To one block.
    Goto(Target),
    /// To one of two.
    Branch {
        /// The question.
        test: Test,
        /// Its left side.
        left: Value,
        /// Its right side.
        right: Value,
        /// Where to go if it holds.
        yes: Target,
        /// Where to go if not.
        no: Target,
    },
    /// To the case whose key the value equals.
    Switch {
        /// What is looked for.
        value: Value,
        /// Ascending keys, each once.
        cases: Box<[Case]>,
        /// Where to go if no key is equal.
        default: Target,
        /// How to look.
        search: Search,
    },
    /// The end: 0 rejects the packet; other numbers are the bytes to keep (filters) or the verdict (FPL).
    Return(Value),
}

impl Terminator {
    /// Calls `visit` with each target, in the order yes, no; cases, default.
    pub fn for_each_target<'a>(&'a self, mut visit: impl FnMut(&'a Target)) {
        match self {
            Terminator::Goto(to) => visit(to),
            Terminator::Branch { yes, no, .. } => {
                visit(yes);
                visit(no);
            }
            Terminator::Switch { cases, default, .. } => {
                cases.iter().for_each(|case| visit(&case.to));
                visit(default);
            }
            Terminator::Return(_) => {}
        }
    }

    /// The same, to change them.
    pub fn for_each_target_mut(&mut self, mut visit: impl FnMut(&mut Target)) {
        match self {
            Terminator::Goto(to) => visit(to),
            Terminator::Branch { yes, no, .. } => {
                visit(yes);
                visit(no);
            }
            Terminator::Switch { cases, default, .. } => {
                cases.iter_mut().for_each(|case| visit(&mut case.to));
                visit(default);
            }
            Terminator::Return(_) => {}
        }
    }

    /// Calls `visit` with each value that it reads, arguments included.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Value)) {
        match self {
            Terminator::Branch { left, right, .. } => {
                visit(*left);
                visit(*right);
            }
            Terminator::Switch { value, .. } | Terminator::Return(value) => visit(*value),
            Terminator::Goto(_) => {}
        }
        self.for_each_target(|target| target.arguments.iter().copied().for_each(&mut visit));
    }

    /// Replaces each value that it reads, arguments included.
    pub fn map_operands(&mut self, mut map: impl FnMut(Value) -> Value) {
        match self {
            Terminator::Branch { left, right, .. } => {
                *left = map(*left);
                *right = map(*right);
            }
            Terminator::Switch { value, .. } | Terminator::Return(value) => *value = map(*value),
            Terminator::Goto(_) => {}
        }
        self.for_each_target_mut(|target| target.arguments.iter_mut().for_each(|value| *value = map(*value)));
    }
}

/// Straight code and the choice at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What its targets give it: instructions whose op is [`Op::Parameter`].
    pub parameters: Vec<Value>,
    /// Run in order.
    pub instructions: Vec<Value>,
    /// Run last.
    pub terminator: Terminator,
}

/// A block that may be reached from itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Where each round starts: the only block of the loop that others lead to.
    pub header: BlockId,
    /// The most rounds, each time that the loop is entered: a way back is taken at most so often.
    pub rounds_max: u64,
}

/// A filter or an FPL program. Blocks that no way leads to are allowed and cost nothing.
#[derive(Clone, Debug)]
pub struct Ir {
    /// All values, by number. An instruction that stands in no block is not run.
    pub instructions: Vec<Instruction>,
    /// In no order that matters.
    pub blocks: Vec<Block>,
    /// Where it starts; has no parameters.
    pub entry: BlockId,
    /// How many cells of memory it works on: a power of two, or 0 if it has none.
    pub cells: u32,
    /// What it may call, by number.
    pub functions: Vec<Arc<dyn Function>>,
    /// The loops; none for filters.
    pub loops: Vec<Loop>,
}

impl Ir {
    /// A graph that returns `k` for every packet.
    pub fn constant(k: u32) -> Ir {
        let mut builder = Builder::new();
        let entry = builder.block();
        builder.switch_to(entry);
        let value = builder.const32(k);
        builder.finish(Terminator::Return(value));
        builder.build(entry)
    }

    /// Whether runs leave something behind or depend on what others left: such a program is no mere filter.
    pub fn has_state(&self) -> bool {
        let stateful = |op: &Op| matches!(op, Op::Cell(_) | Op::SetCell(..) | Op::Call(..));
        self.blocks.iter().flat_map(|block| &block.instructions).any(|value| stateful(self.op(*value)))
    }

    /// How a value comes about.
    pub fn op(&self, value: Value) -> &Op {
        &self.instructions[value.0 as usize].op
    }

    /// A value's type.
    pub fn ty(&self, value: Value) -> Type {
        self.instructions[value.0 as usize].ty
    }

    /// The number behind a value, if it is a constant.
    pub fn as_const(&self, value: Value) -> Option<u64> {
        match self.op(value) {
            Op::Const(k) => Some(*k),
            _ => None,
        }
    }

    /// A new value, in no block yet.
    pub fn add(&mut self, op: Op, ty: Type) -> Value {
        self.instructions.push(Instruction { op, ty });
        Value((self.instructions.len() - 1) as u32)
    }

    /// A new block.
    pub fn add_block(&mut self, block: Block) -> BlockId {
        self.blocks.push(block);
        BlockId((self.blocks.len() - 1) as u32)
    }

    /// Reads `same[v]` wherever `v` was read; followed on, where that stands for another in turn.
    pub fn replace(&mut self, same: &[Value]) {
        let last = |mut value: Value| {
            while same[value.0 as usize] != value {
                value = same[value.0 as usize];
            }
            value
        };
        for id in self.order() {
            for at in 0..self[id].instructions.len() {
                let value = self[id].instructions[at];
                self.instructions[value.0 as usize].op.map_operands(last);
            }
            self[id].terminator.map_operands(last);
        }
    }

    /// Whether the block does nothing but reject.
    pub fn only_rejects(&self, id: BlockId) -> bool {
        let block = &self[id];
        block.instructions.iter().all(|value| matches!(self.op(*value), Op::Const(_)))
            && matches!(block.terminator, Terminator::Return(value) if self.as_const(value) == Some(0))
    }

    /// The blocks that the entry reaches, each before those it leads to, except on ways back in loops.
    pub fn order(&self) -> Vec<BlockId> {
        let mut seen = vec![false; self.blocks.len()];
        let mut done = Vec::with_capacity(self.blocks.len());
        let mut stack = vec![(self.entry, false)];
        while let Some((id, left)) = stack.pop() {
            if left {
                done.push(id);
            } else if !std::mem::replace(&mut seen[id.0 as usize], true) {
                stack.push((id, true));
                self[id].terminator.for_each_target(|target| {
                    if !seen[target.block.0 as usize] {
                        stack.push((target.block, false));
                    }
                });
            }
        }
        done.reverse();
        done
    }
}

impl Index<BlockId> for Ir {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }
}

impl IndexMut<BlockId> for Ir {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }
}

impl Binary {
    /// `left op right` in this type; `None` for a division by 0.
    pub fn compute(self, ty: Type, left: u64, right: u64) -> Option<u64> {
        let bits = ty.bits();
        let shift = u32::try_from(right).ok().filter(|&by| by < bits);
        let result = match self {
            Binary::Add => left.wrapping_add(right),
            Binary::Sub => left.wrapping_sub(right),
            Binary::Mul => left.wrapping_mul(right),
            Binary::Div => left.checked_div(right)?,
            Binary::Mod => left.checked_rem(right)?,
            Binary::And => left & right,
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::Shl => shift.map_or(0, |by| left << by),
            Binary::Shr => shift.map_or(0, |by| left >> by),
            Binary::SignedShr => (signed(ty, left) >> shift.unwrap_or(bits.saturating_sub(1))) as u64,
        };
        Some(result & ty.max())
    }
}

impl Test {
    /// Whether it holds of two numbers of a type.
    pub fn holds(self, ty: Type, left: u64, right: u64) -> bool {
        match self {
            Test::Equal => left == right,
            Test::Greater => left > right,
            Test::GreaterEqual => left >= right,
            Test::AnySet => left & right != 0,
            Test::SignedGreater => signed(ty, left) > signed(ty, right),
            Test::SignedGreaterEqual => signed(ty, left) >= signed(ty, right),
        }
    }
}

fn signed(ty: Type, value: u64) -> i64 {
    match ty {
        Type::U32 => i64::from(value as u32 as i32),
        _ => value as i64,
    }
}
