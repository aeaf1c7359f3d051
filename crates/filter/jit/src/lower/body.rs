//! The graph itself: its blocks and instructions, the same in both functions.
//!
//! Loads carry no check. [`Ir::verify`] has proved that guards precede them on every path, and each guard becomes a
//! comparison and a branch at its own place; the generator does not move instructions over a branch (see
//! [`constant_memory`]).

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self as clif, BlockArg, InstBuilder, StackSlotData, StackSlotKind, types};
use cranelift_frontend::FunctionBuilder;
use tapline_ir::{
    BlockId, ByteOrder, Comparison, Ir, MetaField, Op, PacketOffset, Target, Terminator, Type, Value, Width,
};
use tapline_packet::Meta;

use super::{Source, c_function, constant_memory, memory};
use crate::helper;

/// The values and blocks that the code around a graph gives to it.
#[derive(Clone, Copy)]
pub(super) struct Surroundings {
    /// Address of the packet's first byte.
    pub(super) data: clif::Value,
    /// Captured bytes; 64 bits.
    pub(super) len: clif::Value,
    /// Address of the [`Meta`].
    pub(super) meta: clif::Value,
    /// Address of the [`Memory`](tapline_ir::Memory).
    pub(super) memory: clif::Value,
    /// Address of the first cell.
    pub(super) cells: clif::Value,
    /// The target of rejected packets.
    pub(super) reject: clif::Block,
    /// The action on the others.
    pub(super) accept: Accept,
}

/// The continuation of a verdict other than 0.
#[derive(Clone, Copy)]
pub(super) enum Accept {
    /// The function returns it.
    Return,
    /// The packet is kept there.
    Goto(clif::Block),
}

pub(super) struct Body<'a, 'b> {
    pub(super) source: &'a Source<'a>,
    pub(super) ir: &'a Ir,
    pub(super) builder: &'a mut FunctionBuilder<'b>,
    pub(super) around: Surroundings,
    /// The generator's value for each value; constants are made where they are read.
    values: Vec<Option<clif::Value>>,
    /// Values with 16 bits, for loads of two bytes.
    halves: Vec<Option<Half>>,
    guards: Vec<u32>,
    /// The generator's block for each block.
    blocks: Vec<Option<clif::Block>>,
}

/// The result of a load of 16 bits, before its extension to 32. The generator leaves out steps without a reader.
#[derive(Clone, Copy)]
struct Half {
    number: clif::Value,
    /// The value with its bytes in the order of the packet: enough to decide whether it equals a constant.
    unswapped: clif::Value,
}

/// The generator's type for numbers.
pub(super) fn type_of(ty: Type) -> clif::Type {
    match ty {
        Type::U64 => types::I64,
        _ => types::I32,
    }
}

impl<'a, 'b> Body<'a, 'b> {
    pub(super) fn new(
        source: &'a Source<'a>,
        builder: &'a mut FunctionBuilder<'b>,
        around: Surroundings,
    ) -> Body<'a, 'b> {
        let ir = source.ir;
        let values = vec![None; ir.instructions.len()];
        Body {
            source,
            ir,
            builder,
            around,
            halves: vec![None; ir.instructions.len()],
            guards: guards(ir),
            values,
            blocks: vec![None; ir.blocks.len()],
        }
    }

    /// Puts the graph at the end of the current block.
    pub(super) fn lower(mut self) {
        let order = self.ir.order();
        for &id in &order {
            self.declare(id);
        }
        let entry = self.block(self.ir.entry);
        self.builder.ins().jump(entry, &[]);
        for id in order {
            let block = self.block(id);
            self.builder.switch_to_block(block);
            for &value in &self.ir[id].instructions {
                self.instruction(value);
            }
            self.terminator(id);
        }
    }

    fn declare(&mut self, id: BlockId) {
        let block = self.builder.create_block();
        for parameter in &self.ir[id].parameters {
            let value = self.builder.append_block_param(block, type_of(self.ir.ty(*parameter)));
            self.values[parameter.0 as usize] = Some(value);
        }
        self.blocks[id.0 as usize] = Some(block);
    }

    fn block(&self, id: BlockId) -> clif::Block {
        self.blocks[id.0 as usize].expect("each block of the order is declared")
    }

    /// The generator's value for a value.
    pub(super) fn value(&mut self, value: Value) -> clif::Value {
        match self.ir.as_const(value) {
            Some(k) => self.constant(self.ir.ty(value), k),
            None => self.values[value.0 as usize].expect("defined before it is read: verified"),
        }
    }

    /// A value as it is best compared with constants up to `max`.
    pub(super) fn compared(&mut self, value: Value, max: u64) -> clif::Value {
        let half = self.halves[value.0 as usize].filter(|_| max <= u64::from(u16::MAX));
        half.map_or_else(|| self.value(value), |half| half.number)
    }

    /// The value with 64 bits.
    pub(super) fn wide(&mut self, value: Value) -> clif::Value {
        match (self.ir.as_const(value), self.ir.ty(value)) {
            (Some(k), _) => self.constant(Type::U64, k),
            (None, Type::U64) => self.value(value),
            (None, _) => {
                let narrow = self.value(value);
                self.builder.ins().uextend(types::I64, narrow)
            }
        }
    }

    pub(super) fn constant(&mut self, ty: Type, k: u64) -> clif::Value {
        self.builder.ins().iconst(type_of(ty), k as i64)
    }

    /// An address that the code holds as a number.
    pub(super) fn address<T>(&mut self, at: *const T) -> clif::Value {
        self.builder.ins().iconst(types::I64, at as i64)
    }

    /// Goes on in a new block unless the condition holds.
    pub(super) fn reject_if(&mut self, condition: clif::Value) {
        let on = self.builder.create_block();
        self.builder.ins().brif(condition, self.around.reject, &[], on, &[]);
        self.builder.switch_to_block(on);
    }

    /// Goes on in a new block if the condition holds.
    fn reject_unless(&mut self, condition: clif::Value) {
        let on = self.builder.create_block();
        self.builder.ins().brif(condition, on, &[], self.around.reject, &[]);
        self.builder.switch_to_block(on);
    }

    fn instruction(&mut self, value: Value) {
        let ty = self.ir.ty(value);
        let result = match self.ir.op(value) {
            // Made where they are read.
            Op::Const(_) => return,
            // Verified: parameters stand in no block's list.
            Op::Parameter => unreachable!("a parameter is not an instruction"),
            Op::MetaField(field) => self.field(*field),
            Op::Load(place, width, order) => self.load(value, *place, *width, *order),
            Op::Binary(op, left, right) => self.binary(*op, ty, *left, *right),
            Op::Compare(test, left, right) => {
                let holds = self.test(*test, *left, *right);
                self.builder.ins().uextend(types::I32, holds)
            }
            // The length has 64 bits to begin with.
            Op::Extend(value) if *self.ir.op(*value) == Op::MetaField(MetaField::CapLen) => self.around.len,
            Op::Extend(value) => self.wide(*value),
            Op::Truncate(value) => {
                let value = self.value(*value);
                self.builder.ins().ireduce(types::I32, value)
            }
            Op::Need(place) => return self.require_bytes(*place),
            Op::NonZero(value) => {
                let value = self.value(*value);
                return self.reject_unless(value);
            }
            Op::Cell(index) => {
                let cell = self.cell(*index);
                self.builder.ins().load(types::I64, memory().with_aligned(), cell, 0)
            }
            Op::SetCell(index, value) => {
                let (cell, value) = (self.cell(*index), self.value(*value));
                self.builder.ins().store(memory().with_aligned(), value, cell, 0);
                return;
            }
            Op::Call(function, arguments) => self.call(*function, arguments),
        };
        self.values[value.0 as usize] = Some(result);
    }

    fn field(&mut self, field: MetaField) -> clif::Value {
        let place_or_call: Result<usize, helper::FieldOf> = match field {
            MetaField::CapLen => return self.builder.ins().ireduce(types::I32, self.around.len),
            MetaField::WireLen => Ok(offset_of!(Meta, wire_len)),
            MetaField::InterfaceIndex => Ok(offset_of!(Meta, if_index)),
            MetaField::ReceiveHash => Ok(offset_of!(Meta, rx_hash)),
            MetaField::PacketType => Err(helper::packet_type),
            MetaField::VlanTag => Err(helper::vlan_tag),
            MetaField::VlanPresent => Err(helper::vlan_present),
            MetaField::VlanProtocol => Err(helper::vlan_protocol),
        };
        let meta = self.around.meta;
        match place_or_call {
            Ok(offset) => {
                self.builder.ins().load(types::I32, constant_memory().with_aligned(), meta, offset as i32)
            }
            Err(function) => {
                let signature = self.builder.import_signature(c_function(&[types::I64], &[types::I32]));
                let function = self.address(function as *const ());
                let call = self.builder.ins().call_indirect(signature, function, &[meta]);
                self.builder.inst_results(call)[0]
            }
        }
    }

    /// Address of a place, and the offset still to be added to it.
    fn start(&mut self, place: PacketOffset) -> (clif::Value, i32) {
        let mut start = self.around.data;
        if let Some(base) = place.base {
            let base = self.wide(base);
            start = self.builder.ins().iadd(start, base);
        }
        match i32::try_from(place.offset) {
            Ok(offset) => (start, offset),
            Err(_) => (self.builder.ins().iadd_imm_u(start, i64::from(place.offset)), 0),
        }
    }

    fn load(&mut self, value: Value, place: PacketOffset, width: Width, order: ByteOrder) -> clif::Value {
        let ty = match width {
            Width::Double => types::I64,
            _ => types::I32,
        };
        let (start, offset) = self.start(place);
        let constant = constant_memory();
        let ins = self.builder.ins();
        match (width, order) {
            (Width::Byte, _) => ins.uload8(ty, constant, start, offset),
            (Width::Half, ByteOrder::Little) => ins.uload16(ty, constant, start, offset),
            (Width::Half, ByteOrder::Big) => {
                let unswapped = ins.load(types::I16, constant, start, offset);
                let number = self.builder.ins().bswap(unswapped);
                self.halves[value.0 as usize] = Some(Half { number, unswapped });
                self.builder.ins().uextend(ty, number)
            }
            (Width::Word | Width::Double, ByteOrder::Little) => ins.load(ty, constant, start, offset),
            (Width::Word | Width::Double, ByteOrder::Big) => {
                let number = ins.load(ty, constant, start, offset);
                self.builder.ins().bswap(number)
            }
        }
    }

    /// Rejects packets that end before a place.
    fn require_bytes(&mut self, place: PacketOffset) {
        let condition = match place.base {
            None => {
                let offset = i64::from(place.offset);
                self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, self.around.len, offset)
            }
            Some(base) => self.ends_before(base, place.offset),
        };
        self.reject_if(condition);
    }

    /// Whether the packet ends before the byte at `offset` behind a value.
    fn ends_before(&mut self, base: Value, offset: u32) -> clif::Value {
        let (wide, len) = (self.wide(base), self.around.len);
        let offset = i64::from(offset);
        if self.ir.ty(base) == Type::U64 {
            let offset = self.builder.ins().iconst(types::I64, offset);
            let (end, wraps) = self.builder.ins().uadd_overflow(wide, offset);
            self.reject_if(wraps);
            return self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, len);
        }
        if self.guards[base.0 as usize] > 1 {
            // The length behind the value is computed once for all its guards. It may be negative.
            let left = self.builder.ins().isub(len, wide);
            return self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, left, offset);
        }
        let end = self.builder.ins().iadd_imm_u(wide, offset);
        self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, len)
    }

    /// Address of the cell of an index. Verified: the number of cells is a power of two.
    fn cell(&mut self, index: Value) -> clif::Value {
        let index = self.value(index);
        let masked = self.builder.ins().band_imm_u(index, i64::from(self.ir.cells) - 1);
        let distance = self.builder.ins().ishl_imm_u(masked, 3);
        self.builder.ins().iadd(self.around.cells, distance)
    }

    fn call(&mut self, function: u32, arguments: &[Value]) -> clif::Value {
        let size = arguments.len() as u32 * 8;
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, size.max(8), 3);
        let slot = self.builder.create_sized_stack_slot(slot);
        for (at, &argument) in arguments.iter().enumerate() {
            let argument = self.value(argument);
            self.builder.ins().stack_store(types::I64, argument, slot, at as i32 * 8);
        }
        let given = self.builder.ins().stack_addr(types::I64, slot, 0);
        let callee = self.address(&raw const self.source.callees[function as usize]);
        let count = self.constant(Type::U64, arguments.len() as u64);
        let signature = self.builder.import_signature(c_function(&[types::I64; 7], &[types::I64; 2]));
        let trampoline = self.address(helper::call as *const ());
        let Surroundings { data, len, meta, memory, .. } = self.around;
        let given = [callee, data, len, meta, memory, given, count];
        let call = self.builder.ins().call_indirect(signature, trampoline, &given);
        let (value, has_returned) = (self.builder.inst_results(call)[0], self.builder.inst_results(call)[1]);
        self.reject_unless(has_returned);
        value
    }

    /// An edge, as the generator takes it.
    pub(super) fn target(&mut self, target: &Target) -> (clif::Block, Vec<BlockArg>) {
        let arguments = target.arguments.iter().map(|value| BlockArg::Value(self.value(*value))).collect();
        (self.block(target.block), arguments)
    }

    fn terminator(&mut self, id: BlockId) {
        match &self.ir[id].terminator {
            Terminator::Goto(target) => {
                let (block, arguments) = self.target(target);
                self.builder.ins().jump(block, &arguments);
            }
            Terminator::Branch { test, left, right, yes, no } => {
                let holds = self.test(*test, *left, *right);
                self.branch(holds, yes, no);
            }
            Terminator::Switch { value, cases, default, .. } => {
                let plan = self.source.plans[id.0 as usize].as_ref().expect("each switch has a plan");
                self.switch(*value, cases, default, plan);
            }
            Terminator::Return(value) => self.verdict(*value),
        }
    }

    pub(super) fn branch(&mut self, holds: clif::Value, yes: &Target, no: &Target) {
        let (yes, given) = self.target(yes);
        let (no, otherwise) = self.target(no);
        self.builder.ins().brif(holds, yes, &given, no, &otherwise);
    }

    /// A condition for a branch: 0, or anything else if it holds.
    fn test(&mut self, test: Comparison, left: Value, right: Value) -> clif::Value {
        if test == Comparison::Equal
            && let Some(equal) = self.equal_unswapped(left, right)
        {
            return equal;
        }
        let signed = matches!(test, Comparison::SignedGreater | Comparison::SignedGreaterEqual);
        let (left, right) = match self.ir.as_const(right) {
            Some(k) if !signed => {
                let left = self.compared(left, k);
                let ty = self.builder.func.dfg.value_type(left);
                (left, self.builder.ins().iconst(ty, k as i64))
            }
            _ => (self.value(left), self.value(right)),
        };
        let condition = match test {
            Comparison::Equal => IntCC::Equal,
            Comparison::Greater => IntCC::UnsignedGreaterThan,
            Comparison::GreaterEqual => IntCC::UnsignedGreaterThanOrEqual,
            Comparison::SignedGreater => IntCC::SignedGreaterThan,
            Comparison::SignedGreaterEqual => IntCC::SignedGreaterThanOrEqual,
            Comparison::AnySet => {
                let common = self.builder.ins().band(left, right);
                return self.builder.ins().icmp_imm_u(IntCC::NotEqual, common, 0);
            }
        };
        self.builder.ins().icmp(condition, left, right)
    }

    /// Whether 16 bits of the packet equal a constant, without swapping them first.
    fn equal_unswapped(&mut self, left: Value, right: Value) -> Option<clif::Value> {
        let unswapped = self.unswapped(left)?;
        let k = u16::try_from(self.ir.as_const(right)?).ok()?;
        let k = self.builder.ins().iconst(types::I16, i64::from(k.swap_bytes()));
        Some(self.builder.ins().icmp(IntCC::Equal, unswapped, k))
    }

    /// 16 bits of the packet in their own order, if the value consists of them.
    pub(super) fn unswapped(&self, value: Value) -> Option<clif::Value> {
        self.halves[value.0 as usize].as_ref().map(|half| half.unswapped)
    }

    fn verdict(&mut self, value: Value) {
        match (self.ir.as_const(value), self.around.accept) {
            (Some(0), _) => {
                self.builder.ins().jump(self.around.reject, &[]);
            }
            (Some(_), Accept::Goto(keep)) => {
                self.builder.ins().jump(keep, &[]);
            }
            (None, Accept::Goto(keep)) => {
                let verdict = self.value(value);
                self.builder.ins().brif(verdict, keep, &[], self.around.reject, &[]);
            }
            (_, Accept::Return) => {
                let verdict = self.wide(value);
                self.builder.ins().return_(&[verdict]);
            }
        }
    }
}

/// For each value how many guards count from it.
fn guards(ir: &Ir) -> Vec<u32> {
    let mut guards = vec![0; ir.instructions.len()];
    for value in ir.order().iter().flat_map(|id| &ir[*id].instructions) {
        if let Op::Need(PacketOffset { base: Some(base), .. }) = *ir.op(*value) {
            guards[base.0 as usize] += 1;
        }
    }
    guards
}
