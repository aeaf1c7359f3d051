//! Makes graphs, block by block.

use super::{
    Binary, Block, BlockId, ByteOrder, Comparison, Function, Ir, Loop, MetaField, Op, PacketOffset, Target,
    Terminator, Type, Value, Width,
};
use std::sync::Arc;

/// Adds instructions to the current block.
///
/// Loads bring their guard along, divisions do as well; passes remove those that are shown elsewhere.
#[derive(Debug)]
pub struct Builder {
    ir: Ir,
    current: BlockId,
}

impl Builder {
    /// A graph without blocks.
    #[expect(clippy::new_without_default, reason = "an empty builder is not a sensible default")]
    pub fn new() -> Builder {
        let ir = Ir {
            instructions: Vec::new(),
            blocks: Vec::new(),
            entry: BlockId(0),
            cells: 0,
            functions: Vec::new(),
            loops: Vec::new(),
        };
        Builder { ir, current: BlockId(0) }
    }

    /// A new block, not yet finished: until then it returns a value that does not exist.
    pub fn block(&mut self) -> BlockId {
        let terminator = Terminator::Return(Value(u32::MAX));
        self.ir.add_block(Block { parameters: Vec::new(), instructions: Vec::new(), terminator })
    }

    /// A new parameter of a block. Each edge to the block must add an argument for it.
    pub fn parameter(&mut self, block: BlockId, ty: Type) -> Value {
        let value = self.ir.add(Op::Parameter, ty);
        self.ir[block].parameters.push(value);
        value
    }

    /// Further instructions go to the end of this block.
    pub fn switch_to(&mut self, block: BlockId) {
        self.current = block;
    }

    /// The block that is being filled.
    pub fn current(&self) -> BlockId {
        self.current
    }

    /// Ends the current block.
    pub fn finish(&mut self, terminator: Terminator) {
        self.ir[self.current].terminator = terminator;
    }

    /// Ends the current block with an edge to another.
    pub fn goto(&mut self, block: BlockId) {
        self.finish(Terminator::Goto(Target::to(block)));
    }

    /// Ends the current block with a choice of two.
    pub fn branch(&mut self, test: Comparison, left: Value, right: Value, yes: BlockId, no: BlockId) {
        let (yes, no) = (Target::to(yes), Target::to(no));
        self.finish(Terminator::Branch { test, left, right, yes, no });
    }

    /// Adds an instruction.
    pub fn push(&mut self, op: Op, ty: Type) -> Value {
        let value = self.ir.add(op, ty);
        let current = self.current;
        self.ir[current].instructions.push(value);
        value
    }

    /// A u32.
    pub fn const32(&mut self, k: u32) -> Value {
        self.push(Op::Const(k.into()), Type::U32)
    }

    /// A u64.
    pub fn const64(&mut self, k: u64) -> Value {
        self.push(Op::Const(k), Type::U64)
    }

    /// Metadata of the packet.
    pub fn field(&mut self, field: MetaField) -> Value {
        self.push(Op::MetaField(field), Type::U32)
    }

    /// Rejects the packet unless as many bytes were captured as lie before the place.
    pub fn require_bytes(&mut self, place: PacketOffset) {
        self.push(Op::Need(place), Type::None);
    }

    /// Packet bytes as a number in network order, with the guard that they are there. Bytes past 2^32 are never there.
    pub fn load(&mut self, place: PacketOffset, width: Width) -> Value {
        match place.offset.checked_add(width.bytes()) {
            Some(end) => self.require_bytes(PacketOffset { offset: end, ..place }),
            None => {
                // No packet is so long.
                self.require_bytes(PacketOffset::at(u32::MAX));
                let zero = Op::Const(0);
                return self.push(zero, width.ty());
            }
        }
        self.push(Op::Load(place, width, ByteOrder::Big), width.ty())
    }

    /// Arithmetic on two values of one type; a division with its guard.
    pub fn binary(&mut self, op: Binary, left: Value, right: Value) -> Value {
        debug_assert_eq!(self.ir.ty(left), self.ir.ty(right));
        if matches!(op, Binary::Div | Binary::Mod) && self.ir.as_const(right).is_none_or(|k| k == 0) {
            self.push(Op::NonZero(right), Type::None);
        }
        let ty = self.ir.ty(left);
        self.push(Op::Binary(op, left, right), ty)
    }

    /// 1 if the test holds, else 0.
    pub fn compare(&mut self, test: Comparison, left: Value, right: Value) -> Value {
        self.push(Op::Compare(test, left, right), Type::U32)
    }

    /// The value as a u64.
    pub fn extend(&mut self, value: Value) -> Value {
        match self.ir.ty(value) {
            Type::U32 => self.push(Op::Extend(value), Type::U64),
            _ => value,
        }
    }

    /// The value's low 32 bits.
    pub fn truncate(&mut self, value: Value) -> Value {
        match self.ir.ty(value) {
            Type::U64 => self.push(Op::Truncate(value), Type::U32),
            _ => value,
        }
    }

    /// The memory cell of an index, a u64.
    pub fn cell(&mut self, index: Value) -> Value {
        self.push(Op::Cell(index), Type::U64)
    }

    /// Stores a u64 in the memory cell of an index, a u64.
    pub fn set_cell(&mut self, index: Value, value: Value) {
        self.push(Op::SetCell(index, value), Type::None);
    }

    /// Calls a function with u64 arguments.
    pub fn call(&mut self, function: u32, arguments: &[Value]) -> Value {
        self.push(Op::Call(function, arguments.into()), Type::U64)
    }

    /// Adds a function, to be called by the number that is returned.
    pub fn function(&mut self, function: Arc<dyn Function>) -> u32 {
        self.ir.functions.push(function);
        (self.ir.functions.len() - 1) as u32
    }

    /// Number of memory cells: a power of two, or 0.
    pub fn cells(&mut self, cells: u32) {
        debug_assert!(cells == 0 || cells.is_power_of_two());
        self.ir.cells = cells;
    }

    /// Declares a loop: edges lead back to this block, at most `rounds_max` times each time that it is entered.
    pub fn declare_loop(&mut self, header: BlockId, rounds_max: u64) {
        self.ir.loops.push(Loop { header, rounds_max });
    }

    /// The graph so far.
    pub fn ir(&self) -> &Ir {
        &self.ir
    }

    /// The graph so far, to change it.
    pub fn ir_mut(&mut self) -> &mut Ir {
        &mut self.ir
    }

    /// The graph, which starts at `entry`.
    pub fn build(mut self, entry: BlockId) -> Ir {
        self.ir.entry = entry;
        self.ir
    }
}
