//! Switches, as their [`Plan`] has it.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self as clif, BlockArg, BlockCall, InstBuilder, JumpTableData, types};
use tapline_ir::{Case, Target, Type, Value};

use super::body::Body;
use super::constant_memory;
use crate::search::{PerfectHash, Plan, Range};

/// Ranges that are tried one after the other at most; more are halved first.
const LINEAR_MAX: usize = 3;

/// Numbers of 16 bits that are compared at once, and how many such comparisons are faster than a table of bits.
const LANES: usize = 8;
const VECTORS_MAX: usize = 2;

impl Body<'_, '_> {
    pub(super) fn switch(&mut self, value: Value, cases: &[Case], default: &Target, plan: &Plan) {
        let ty = self.ir.ty(value);
        if let Some(any) = self.lanes(value, cases) {
            return self.branch(any, &cases[0].to, default);
        }
        match plan {
            Plan::Bits { first, span, word } => {
                let place = self.place(value, *first, *span, default);
                let word = self.constant(Type::U64, *word);
                self.bit(word, place, &cases[0].to, default);
            }
            Plan::Table { first, span, words } => {
                let place = self.place(value, *first, *span, default);
                let place = self.widened(place);
                let number = self.builder.ins().ushr_imm_u(place, 6);
                let word = self.element(words.as_ptr(), number, types::I64);
                self.bit(word, place, &cases[0].to, default);
            }
            Plan::Jump { first, span } => {
                let place = self.place(value, *first, *span, default);
                let place = self.widened(place);
                self.jump(place, *first, *span, cases, default);
            }
            Plan::Hash(hash) => {
                let equal = self.hash(value, hash);
                self.branch(equal, &cases[0].to, default);
            }
            Plan::Tree(ranges) => {
                let value = self.value(value);
                self.tree(value, ty, ranges, cases, default);
            }
        }
    }

    /// Whether 16 bits of the packet are one of a few numbers that all lead to the same place: compared with eight at
    /// once, in the byte order of the packet, and without a branch that ports of all kinds would mislead. `None`
    /// where there are others.
    fn lanes(&mut self, value: Value, cases: &[Case]) -> Option<clif::Value> {
        let unswapped = self.unswapped(value)?;
        if cases.len() > VECTORS_MAX * LANES || cases.iter().any(|case| case.to != cases[0].to) {
            return None;
        }
        let keys = cases.iter().map(|case| u16::try_from(case.key).ok()).collect::<Option<Vec<u16>>>()?;
        let value = self.builder.ins().splat(types::I16X8, unswapped);
        let equal = keys.chunks(LANES).map(|keys| {
            let keys = self.vector(keys);
            self.builder.ins().icmp(IntCC::Equal, keys, value)
        });
        let equal: Vec<clif::Value> = equal.collect();
        let any = equal.into_iter().reduce(|one, other| self.builder.ins().bor(one, other))?;
        Some(self.builder.ins().vany_true(any))
    }

    /// Numbers in the byte order of packets, a lane each. Lanes that are left over have the last one again.
    fn vector(&mut self, keys: &[u16]) -> clif::Value {
        let lane = |lane: usize| keys[lane.min(keys.len() - 1)].to_be_bytes();
        let bytes: Vec<u8> = (0..LANES).flat_map(lane).collect();
        let constant = self.builder.func.dfg.constants.insert(bytes.into());
        self.builder.ins().vconst(types::I16X8, constant)
    }

    /// A value's distance from the first key; goes on with those up to `span`.
    fn place(&mut self, value: Value, first: u64, span: u64, default: &Target) -> clif::Value {
        let value = self.compared(value, first + span);
        let ty = self.builder.func.dfg.value_type(value);
        let place = match first {
            0 => value,
            _ => {
                let first = self.builder.ins().iconst(ty, first as i64);
                self.builder.ins().isub(value, first)
            }
        };
        let last = self.builder.ins().iconst(ty, span as i64);
        let beyond = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, place, last);
        let (otherwise, given) = self.target(default);
        let on = self.builder.create_block();
        self.builder.ins().brif(beyond, otherwise, &given, on, &[]);
        self.builder.switch_to_block(on);
        place
    }

    fn widened(&mut self, place: clif::Value) -> clif::Value {
        match self.builder.func.dfg.value_type(place) {
            types::I64 => place,
            _ => self.builder.ins().uextend(types::I64, place),
        }
    }

    /// To `yes` if bit `place % 64` of the word is set.
    fn bit(&mut self, word: clif::Value, place: clif::Value, yes: &Target, no: &Target) {
        let one = self.constant(Type::U64, 1);
        let mask = self.builder.ins().ishl(one, place);
        let common = self.builder.ins().band(word, mask);
        self.branch(common, yes, no);
    }

    /// An element of a table that lives as long as the code.
    fn element<T>(&mut self, table: *const T, number: clif::Value, ty: clif::Type) -> clif::Value {
        let table = self.address(table);
        let distance = self.builder.ins().imul_imm_u(number, i64::from(ty.bytes()));
        let at = self.builder.ins().iadd(table, distance);
        self.builder.ins().load(ty, constant_memory().with_aligned(), at, 0)
    }

    fn jump(&mut self, place: clif::Value, first: u64, span: u64, cases: &[Case], default: &Target) {
        let mut left = cases.iter().peekable();
        let targets: Vec<&Target> = (0..=span)
            .map(|at| left.next_if(|case| case.key == first + at).map_or(default, |case| &case.to))
            .collect();
        let mut calls: Vec<BlockCall> = Vec::with_capacity(targets.len());
        for target in targets {
            let call = self.block_call(target);
            calls.push(call);
        }
        let default = self.block_call(default);
        let table = self.builder.create_jump_table(JumpTableData::new(default, &calls));
        // Not beyond 4096.
        let place = self.builder.ins().ireduce(types::I32, place);
        self.builder.ins().br_table(place, table);
    }

    fn block_call(&mut self, target: &Target) -> BlockCall {
        let (block, arguments): (clif::Block, Vec<BlockArg>) = self.target(target);
        self.builder.func.dfg.block_call(block, &arguments)
    }

    /// Whether the value is the key in the slot where it can be.
    fn hash(&mut self, value: Value, hash: &PerfectHash) -> clif::Value {
        let (wide, value) = (self.wide(value), self.value(value));
        let mut slot = self.hashed(wide, hash.multiplier, hash.shift);
        if let Some(displacement) = &hash.displacement {
            let bucket = self.hashed(wide, displacement.multiplier, displacement.shift);
            let by = self.element(displacement.shifts.as_ptr(), bucket, types::I32);
            let by = self.builder.ins().uextend(types::I64, by);
            slot = self.builder.ins().bxor(slot, by);
        }
        match (&hash.narrow, self.builder.func.dfg.value_type(value)) {
            (Some(narrow), types::I32) => {
                let key = self.element(narrow.as_ptr(), slot, types::I32);
                self.builder.ins().icmp(IntCC::Equal, value, key)
            }
            _ => {
                let key = self.element(hash.table.as_ptr(), slot, types::I64);
                self.builder.ins().icmp(IntCC::Equal, wide, key)
            }
        }
    }

    fn hashed(&mut self, value: clif::Value, multiplier: u64, shift: u32) -> clif::Value {
        let multiplier = self.constant(Type::U64, multiplier);
        let product = self.builder.ins().imul(value, multiplier);
        self.builder.ins().ushr_imm_u(product, i64::from(shift))
    }

    fn tree(&mut self, value: clif::Value, ty: Type, ranges: &[Range], cases: &[Case], default: &Target) {
        if ranges.len() <= LINEAR_MAX {
            return self.linear(value, ty, ranges, cases, default);
        }
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let middle = self.constant(ty, high[0].low);
        let is_high = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, value, middle);
        let [above, below] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(is_high, above, &[], below, &[]);
        self.builder.switch_to_block(below);
        self.tree(value, ty, low, cases, default);
        self.builder.switch_to_block(above);
        self.tree(value, ty, high, cases, default);
    }

    fn linear(&mut self, value: clif::Value, ty: Type, ranges: &[Range], cases: &[Case], default: &Target) {
        for range in ranges {
            let is_in = self.is_in(value, ty, *range);
            let (hit, given) = self.target(&cases[range.case].to);
            let on = self.builder.create_block();
            self.builder.ins().brif(is_in, hit, &given, on, &[]);
            self.builder.switch_to_block(on);
        }
        let (otherwise, given) = self.target(default);
        self.builder.ins().jump(otherwise, &given);
    }

    fn is_in(&mut self, value: clif::Value, ty: Type, range: Range) -> clif::Value {
        let low = self.constant(ty, range.low);
        if range.low == range.high {
            return self.builder.ins().icmp(IntCC::Equal, value, low);
        }
        let (distance, last) =
            (self.builder.ins().isub(value, low), self.constant(ty, range.high - range.low));
        self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, distance, last)
    }
}
