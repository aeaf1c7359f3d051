//! The tree to the intermediate form: registers become SSA values, loops real loops.
//!
//! ```text
//! FOR (R[0] = a; R[0] < b; R[0] += c) body ROF
//!
//!   before:            a < b ? body(a, others) : after(a, others)          others: the registers that the body writes
//!   body(i, others):   ...; i + c < b ? body(i + c, others) : after(i + c, others)        BREAK: goto after(i, others)
//! ```
//!
//! The condition is tested at the end of each round, so that a round has one jump.
//!
//! Registers hold 64 bits. Between them a number stays in 32 bits as long as that is exact, which makes comparisons
//! of packet fields with constants cheap.

mod fields;
mod hash;
mod headers;
#[cfg(test)]
mod tests;
mod wanted;

use std::sync::Arc;

use super::FplOptions;
use super::field::{Item, Link};
use super::tree::{
    Arithmetic, Code, Expr, For, Kind, REGISTERS, Relation, Statement, StatementKind, assigned, low_bits,
};
use fields::{KnownHeaders, Wanted};

use tapline_ir::{
    Binary, BlockId, Builder, Comparison, Function, Ir, MetaField, Op, PacketOffset, Target, Terminator,
    Type, Value, Width,
};

/// The graph of a checked program.
pub(super) fn lower(code: &Code, options: &FplOptions) -> Ir {
    let mut builder = Builder::new();
    let entry = builder.block();
    builder.switch_to(entry);
    for function in &code.functions {
        let function: Arc<dyn Function> = function.clone();
        builder.function(function);
    }
    if code.uses_cells {
        builder.cells(options.memory_cells);
    }
    let captured = builder.field(MetaField::CapLen);
    let length = length(&mut builder, captured, options);
    let zero = builder.const64(0);
    let mut lowerer = Lowerer {
        builder,
        code,
        options,
        captured,
        length,
        found: KnownHeaders::nothing(code.fields.len()),
        registers: [zero; REGISTERS],
        loops: Vec::new(),
    };
    if lowerer.block(&code.body) {
        let verdict = lowerer.builder.const64(0);
        lowerer.builder.finish(Terminator::Return(verdict));
    }
    lowerer.builder.build(entry)
}

/// `PKT.LEN`: captured bytes, no more than the proofs count with.
fn length(builder: &mut Builder, captured: Value, options: &FplOptions) -> Value {
    let most = builder.const32(options.packet_len_max);
    min(builder, captured, most)
}

/// The lesser of two u32, without a branch.
fn min(builder: &mut Builder, left: Value, right: Value) -> Value {
    let is_greater = builder.compare(Comparison::Greater, left, right);
    let excess = builder.binary(Binary::Sub, left, right);
    let taken = builder.binary(Binary::Mul, excess, is_greater);
    builder.binary(Binary::Sub, left, taken)
}

type Registers = [Value; REGISTERS];

struct Lowerer<'a> {
    builder: Builder,
    code: &'a Code,
    options: &'a FplOptions,
    captured: Value,
    length: Value,
    /// The headers and fields found so far, at the current place.
    found: KnownHeaders,
    registers: Registers,
    /// The loops around, innermost last.
    loops: Vec<Around>,
}

/// The steps that find headers and fields, at the current place.
struct Headers<'a> {
    builder: &'a mut Builder,
    items: &'a [Item],
    link_type: Link,
    captured: Value,
    length: Value,
    found: &'a mut KnownHeaders,
}

/// The end of a branch: its last block, and the facts known there.
struct End {
    block: BlockId,
    registers: Registers,
    found: KnownHeaders,
}

/// A loop around: where it is left to, with which registers.
#[derive(Clone)]
struct Around {
    after: BlockId,
    carried: Vec<usize>,
}

impl Lowerer<'_> {
    /// Finds the fields that are not known yet.
    fn find(&mut self, wanted: Wanted) {
        // On a link type without places for fields, the text names no field.
        let Some(link_type) = Link::of(self.options.link_type).filter(|_| wanted != 0) else { return };
        let Lowerer { builder, code, captured, length, found, .. } = self;
        let (captured, length) = (*captured, *length);
        Headers { builder, items: &code.fields, link_type, captured, length, found }.find(wanted);
    }

    /// Whether the end of the statements is reached.
    fn block(&mut self, statements: &[Statement]) -> bool {
        let all: Vec<Wanted> = statements.iter().map(|statement| self.of_statement(statement)).collect();
        statements.iter().enumerate().all(|(at, statement)| {
            self.find(self.before(statements, &all, at));
            self.statement(statement)
        })
    }

    fn statement(&mut self, statement: &Statement) -> bool {
        match &statement.kind {
            StatementKind::SetRegister(register, value) => self.registers[*register] = self.wide(value),
            StatementKind::SetCell(index, arithmetic, value) => self.set_cell(index, *arithmetic, value),
            StatementKind::If(test, then, otherwise) => return self.choice(test, then, otherwise),
            StatementKind::For(parts) => self.repetition(parts),
            StatementKind::Break => {
                self.leave_loop();
                return false;
            }
            StatementKind::Return(value) => {
                self.verdict(value);
                return false;
            }
            StatementKind::Call(call) => {
                self.expr(call);
            }
        }
        true
    }

    fn verdict(&mut self, value: &Expr) {
        if !matches!(value.kind, Kind::And(..) | Kind::Or(..) | Kind::Not(_)) {
            self.find(self.of_expr(value));
            let verdict = self.wide(value);
            return self.builder.finish(Terminator::Return(verdict));
        }
        let (yes, no) = (self.builder.block(), self.builder.block());
        self.condition(value, [yes, no], [0, 0]);
        for (block, verdict) in [(yes, 1), (no, 0)] {
            self.builder.switch_to(block);
            let verdict = self.builder.const64(verdict);
            self.builder.finish(Terminator::Return(verdict));
        }
    }

    fn set_cell(&mut self, index: &Expr, arithmetic: Option<Arithmetic>, value: &Expr) {
        let index = self.wide(index);
        let mut value = self.wide(value);
        if let Some(arithmetic) = arithmetic {
            let old = self.builder.cell(index);
            value = self.compute(arithmetic, old, value);
        }
        self.builder.set_cell(index, value);
    }

    fn choice(&mut self, test: &Expr, then: &[Statement], otherwise: &[Statement]) -> bool {
        let (yes, no) = (self.builder.block(), self.builder.block());
        let wanted = [self.of_block(then), self.of_block(otherwise)];
        let [found_yes, found_no] = self.condition(test, [yes, no], wanted);
        let before = self.registers;
        self.builder.switch_to(yes);
        self.found = found_yes;
        let then = self.block(then).then(|| self.end());
        self.registers = before;
        self.builder.switch_to(no);
        self.found = found_no;
        let otherwise = self.block(otherwise).then(|| self.end());
        match (then, otherwise) {
            (None, None) => return false,
            (Some(one), None) | (None, Some(one)) => {
                self.builder.switch_to(one.block);
                self.registers = one.registers;
                self.found = one.found;
            }
            (Some(one), Some(other)) => self.join(one, other),
        }
        true
    }

    fn end(&self) -> End {
        End { block: self.builder.current(), registers: self.registers, found: self.found.clone() }
    }

    /// Goes on where both ends meet.
    fn join(&mut self, one: End, other: End) {
        let block = self.builder.block();
        let differs = |&register: &usize| one.registers[register] != other.registers[register];
        let differing: Vec<usize> = (0..REGISTERS).filter(differs).collect();
        for end in [&one, &other] {
            self.builder.switch_to(end.block);
            self.registers = end.registers;
            self.go(block, &differing);
        }
        self.found = one.found.meet(&other.found);
        self.arrive(block, &differing);
    }

    /// Ends the current block with an edge that carries these registers.
    fn go(&mut self, block: BlockId, carried: &[usize]) {
        let to = self.target(block, carried);
        self.builder.finish(Terminator::Goto(to));
    }

    fn target(&self, block: BlockId, carried: &[usize]) -> Target {
        Target { block, arguments: carried.iter().map(|&register| self.registers[register]).collect() }
    }

    /// Goes on at a block to which these registers are carried.
    fn arrive(&mut self, block: BlockId, carried: &[usize]) {
        self.builder.switch_to(block);
        for &register in carried {
            self.registers[register] = self.builder.parameter(block, Type::U64);
        }
    }

    fn repetition(&mut self, parts: &For) {
        let start = self.wide(&parts.start);
        let end = self.wide(&parts.end);
        let step = self.wide(&parts.step);
        self.registers[parts.register] = start;
        let written = assigned(&parts.body) | 1 << parts.register;
        let carried: Vec<usize> = (0..REGISTERS).filter(|register| written & 1 << register != 0).collect();
        let (body, after) = (self.builder.block(), self.builder.block());
        let relation = Relation { operator: parts.relation, signed: false };
        let found = self.found.clone();
        self.next_round(relation, parts.register, end, [body, after], &carried);
        self.arrive(body, &carried);
        let at_start = self.registers;
        self.loops.push(Around { after, carried: carried.clone() });
        if self.block(&parts.body) {
            let operator = if parts.upward { Binary::Add } else { Binary::Sub };
            let counter = self.registers[parts.register];
            self.registers[parts.register] = self.builder.binary(operator, counter, step);
            self.next_round(relation, parts.register, end, [body, after], &carried);
            self.builder.declare_loop(body, parts.rounds_max);
        }
        self.loops.pop();
        self.found = found;
        self.registers = at_start;
        self.arrive(after, &carried);
    }

    /// Ends the current block with an edge to the loop's body, or behind the loop if its register has reached the end.
    fn next_round(
        &mut self,
        relation: Relation,
        register: usize,
        end: Value,
        [body, after]: [BlockId; 2],
        carried: &[usize],
    ) {
        let (on, out) = (self.target(body, carried), self.target(after, carried));
        self.compare_and_go(relation, self.registers[register], end, on, out);
    }

    fn leave_loop(&mut self) {
        if let Some(Around { after, carried }) = self.loops.last().cloned() {
            self.go(after, &carried);
        }
    }

    /// Ends the current block with an edge to one of two, by whether the number is other than 0. Behind them,
    /// `wanted` is read. Returns the facts known at their starts.
    fn condition(&mut self, test: &Expr, [yes, no]: [BlockId; 2], wanted: [Wanted; 2]) -> [KnownHeaders; 2] {
        match &test.kind {
            Kind::Not(inner) => {
                let [holds, fails] = self.condition(inner, [no, yes], [wanted[1], wanted[0]]);
                return [fails, holds];
            }
            Kind::And(left, right) => {
                let (first, then) = (self.of_expr(left), self.of_expr(right));
                // A field that is read also where the left side fails must be found before it.
                self.find(then & !first & wanted[1]);
                let between = self.builder.block();
                let [go_on, fails] = self.condition(left, [between, no], [wanted[0] | then, wanted[1]]);
                self.builder.switch_to(between);
                self.found = go_on;
                let [holds, fails_then] = self.condition(right, [yes, no], wanted);
                return [holds, fails_then.meet(&fails)];
            }
            Kind::Or(left, right) => {
                let (first, then) = (self.of_expr(left), self.of_expr(right));
                self.find(then & !first & wanted[0]);
                let between = self.builder.block();
                let [holds, go_on] = self.condition(left, [yes, between], [wanted[0], wanted[1] | then]);
                self.builder.switch_to(between);
                self.found = go_on;
                let [holds_then, fails] = self.condition(right, [yes, no], wanted);
                return [holds_then.meet(&holds), fails];
            }
            _ => self.find(self.of_expr(test)),
        }
        self.question(test, yes, no);
        [self.found.clone(), self.found.clone()]
    }

    /// Generates a test whose fields are known.
    fn question(&mut self, test: &Expr, yes: BlockId, no: BlockId) {
        match &test.kind {
            Kind::Constant(value) => self.builder.goto(if *value != 0 { yes } else { no }),
            Kind::Compare(relation, left, right) => {
                let (left, right) = self.pair(left, right, relation.signed);
                self.compare_and_go(*relation, left, right, Target::to(yes), Target::to(no));
            }
            Kind::Arithmetic(Arithmetic::Plain(Binary::And), left, right) => {
                let (left, right) = self.pair(left, right, false);
                self.builder.branch(Comparison::AnySet, left, right, yes, no);
            }
            _ => {
                let value = self.expr(test);
                let zero = self.constant(0, self.builder.ir().ty(value));
                self.builder.branch(Comparison::Equal, value, zero, no, yes);
            }
        }
    }

    fn compare_and_go(
        &mut self,
        relation: Relation,
        left: Value,
        right: Value,
        holds: Target,
        fails: Target,
    ) {
        let (test, swapped, reversed) = relation.test();
        let (left, right) = if swapped { (right, left) } else { (left, right) };
        let (yes, no) = if reversed { (fails, holds) } else { (holds, fails) };
        self.builder.finish(Terminator::Branch { test, left, right, yes, no });
    }

    fn constant(&mut self, value: u64, ty: Type) -> Value {
        self.builder.push(Op::Const(value), ty)
    }

    /// Both numbers, in 32 bits where they fit and signs do not matter.
    fn pair(&mut self, left: &Expr, right: &Expr, signed: bool) -> (Value, Value) {
        let narrow = |expr: &Expr| expr.constant().filter(|value| *value <= u32::MAX.into() && !signed);
        let is_narrow = |lowerer: &Self, value: Value| lowerer.builder.ir().ty(value) == Type::U32 && !signed;
        if let Some(value) = narrow(right) {
            let left = self.expr(left);
            return (left, self.constant(value, self.builder.ir().ty(left)));
        }
        if let Some(value) = narrow(left) {
            let right = self.expr(right);
            return (self.constant(value, self.builder.ir().ty(right)), right);
        }
        let (left, right) = (self.expr(left), self.expr(right));
        if is_narrow(self, left) && is_narrow(self, right) {
            return (left, right);
        }
        (self.builder.extend(left), self.builder.extend(right))
    }

    /// The number in 64 bits.
    fn wide(&mut self, expr: &Expr) -> Value {
        let value = self.expr(expr);
        self.builder.extend(value)
    }

    /// The number, in 64 bits or in 32 where it fits whatever the packet.
    fn expr(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            Kind::Constant(value) => self.builder.const64(*value),
            Kind::Register(register) => self.registers[*register],
            Kind::Cell(index) => {
                let index = self.wide(index);
                self.builder.cell(index)
            }
            Kind::Length => self.length,
            Kind::WireLength => self.builder.field(MetaField::WireLen),
            // Found before: see `before`.
            Kind::Field(field) => self.found.fields[*field].unwrap_or(self.length),
            Kind::Load(width, offset) => self.load(*width, offset),
            Kind::Extract { of, unit_bits, bits, index } => self.extract(of, *unit_bits, *bits, index),
            Kind::ZeroExtend(bits, value) => self.zero_extend(*bits, value),
            Kind::SignExtend(bits, value) => self.sign_extend(*bits, value),
            Kind::Arithmetic(arithmetic, left, right) => {
                let (left, right) = (self.wide(left), self.wide(right));
                self.compute(*arithmetic, left, right)
            }
            Kind::Compare(relation, left, right) => self.comparison(*relation, left, right),
            Kind::Not(_) | Kind::And(..) | Kind::Or(..) => self.truth(expr),
            Kind::Hash(parts) => self.hash(parts),
            Kind::Call(function, cells) => {
                let arguments = [self.wide(&cells[0]), self.wide(&cells[1])];
                self.builder.call(*function as u32, &arguments)
            }
        }
    }

    fn load(&mut self, width: Width, offset: &Expr) -> Value {
        let place = self.place(offset);
        self.builder.load(place, width)
    }

    fn place(&mut self, offset: &Expr) -> PacketOffset {
        if let Some(offset) = offset.constant().and_then(|offset| u32::try_from(offset).ok()) {
            return PacketOffset::at(offset);
        }
        // A sum may only move into the place where it cannot wrap.
        if let Kind::Arithmetic(Arithmetic::Plain(Binary::Add), left, right) = &offset.kind
            && let Some(added) = right.constant().and_then(|added| u32::try_from(added).ok())
        {
            let base = self.expr(left);
            if self.builder.ir().ty(base) == Type::U32 {
                return PacketOffset::from(base, added);
            }
            let added = self.builder.const64(added.into());
            return PacketOffset::from(self.builder.binary(Binary::Add, base, added), 0);
        }
        PacketOffset::from(self.expr(offset), 0)
    }

    fn extract(&mut self, of: &Expr, unit_bits: u32, bits: u32, index: &Expr) -> Value {
        let value = self.expr(of);
        let last = u64::from(unit_bits / bits) - 1;
        if let Some(index) = index.constant() {
            let shift = (last - index.min(last)) * u64::from(bits);
            return self.bits_of(value, shift, bits);
        }
        let index = self.wide(index);
        let last = self.builder.const64(last);
        let index = self.builder.binary(Binary::And, index, last);
        let from_end = self.builder.binary(Binary::Xor, index, last);
        let size = self.builder.const64(bits.into());
        let shift = self.builder.binary(Binary::Mul, from_end, size);
        let value = self.builder.extend(value);
        let shifted = self.builder.binary(Binary::Shr, value, shift);
        self.bits_of(shifted, 0, bits)
    }

    /// The `bits` low bits of the value, once it is shifted right by `shift`.
    fn bits_of(&mut self, mut value: Value, shift: u64, bits: u32) -> Value {
        let ty = self.builder.ir().ty(value);
        if shift > 0 {
            let shift = self.constant(shift, ty);
            value = self.builder.binary(Binary::Shr, value, shift);
        }
        let mask = self.constant(low_bits(bits), ty);
        value = self.builder.binary(Binary::And, value, mask);
        if bits <= 32 { self.builder.truncate(value) } else { value }
    }

    fn zero_extend(&mut self, bits: u32, value: &Expr) -> Value {
        let value = self.expr(value);
        if bits == 32 { self.builder.truncate(value) } else { self.bits_of(value, 0, bits) }
    }

    fn sign_extend(&mut self, bits: u32, value: &Expr) -> Value {
        let value = self.wide(value);
        let shift = self.builder.const64(u64::from(64 - bits));
        let high = self.builder.binary(Binary::Shl, value, shift);
        self.builder.binary(Binary::SignedShr, high, shift)
    }

    fn compute(&mut self, arithmetic: Arithmetic, left: Value, right: Value) -> Value {
        match arithmetic {
            Arithmetic::Plain(op) => self.builder.binary(op, left, right),
            _ => self.signed_division(arithmetic == Arithmetic::SignedRemainder, left, right),
        }
    }

    /// Divides the magnitudes, then gives the result its sign: that of both for a quotient, of the left for a
    /// remainder.
    fn signed_division(&mut self, remainder: bool, left: Value, right: Value) -> Value {
        let (left_sign, left) = self.magnitude(left);
        let (right_sign, right) = self.magnitude(right);
        let op = if remainder { Binary::Mod } else { Binary::Div };
        let result = self.builder.binary(op, left, right);
        let sign =
            if remainder { left_sign } else { self.builder.binary(Binary::Xor, left_sign, right_sign) };
        let flipped = self.builder.binary(Binary::Xor, result, sign);
        self.builder.binary(Binary::Sub, flipped, sign)
    }

    /// All ones if the number is negative, else 0; and the number without its sign.
    fn magnitude(&mut self, value: Value) -> (Value, Value) {
        let shift = self.builder.const64(63);
        let sign = self.builder.binary(Binary::SignedShr, value, shift);
        let flipped = self.builder.binary(Binary::Xor, value, sign);
        (sign, self.builder.binary(Binary::Sub, flipped, sign))
    }

    fn comparison(&mut self, relation: Relation, left: &Expr, right: &Expr) -> Value {
        let (left, right) = self.pair(left, right, relation.signed);
        let (test, swapped, reversed) = relation.test();
        let (left, right) = if swapped { (right, left) } else { (left, right) };
        let answer = self.builder.compare(test, left, right);
        if !reversed {
            return answer;
        }
        let one = self.builder.const32(1);
        self.builder.binary(Binary::Xor, answer, one)
    }

    /// 1 or 0, by branches: the right side of && and || is looked at only if it matters.
    fn truth(&mut self, expr: &Expr) -> Value {
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.find(self.of_expr(expr));
        self.condition(expr, [yes, no], [0, 0]);
        for (block, value) in [(yes, 1), (no, 0)] {
            self.builder.switch_to(block);
            let value = self.builder.const32(value);
            self.builder.finish(Terminator::Goto(Target { block: join, arguments: vec![value] }));
        }
        self.builder.switch_to(join);
        self.builder.parameter(join, Type::U32)
    }
}
