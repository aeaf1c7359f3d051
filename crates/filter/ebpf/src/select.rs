//! From the graph to steps.
//!
//! ```text
//! block order: each before those it leads to             so all jumps go forward
//! edge with arguments: Set each parameter, Goto          in a stub behind the block where the edge is one of several
//! switch: halves, down to a few comparisons              keys in a row that lead to one place are one range
//! packet access                                          packet.rs: socket filters; xdp.rs: XDP programs
//! ```
//!
//! Long chains of tests: the verifier remembers the edges not yet followed on a path, 8192 at most. On longer paths
//! the edge with the shorter rest comes first in every test: it is then done with before the next test.

use std::collections::HashMap;

use super::step::{Operand, Step, Variable};
use super::xdp::Pointers;
use super::{EmitError, Hook};
use tapline_bpf::ebpf::code::*;
use tapline_bpf::ebpf::{Label, opposite};
use tapline_ir::{
    Binary, BlockId, Case, Comparison, Dominators, Ir, MetaField, Op, Target, Terminator, Type, Value,
};

/// On paths with more tests the edge with the shorter rest comes first. The verifier's limit is 8192
/// (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`).
const QUESTIONS_EASY: u32 = 4000;

/// Ranges of keys that are compared one after the other at the end of a search.
const LEAF: usize = 3;

/// Everything that is known while steps are made.
pub(super) struct Selector<'a> {
    pub(super) ir: &'a Ir,
    pub(super) hook: &'a Hook,
    pub(super) dominators: &'a Dominators,
    /// Number of reads of each value.
    pub(super) uses: Vec<u32>,
    /// The greatest number that each value can be.
    pub(super) bounds: Vec<u64>,
    pub(super) steps: Vec<Step>,
    pub(super) pointers: Pointers,
    /// The length of the packet, in a program for packets of several buffers.
    pub(super) total_len: Option<Variable>,
    /// The block whose steps are being made.
    pub(super) block: BlockId,
    /// Variables beyond those of values.
    extra: u32,
    labels: u32,
    reject: Label,
    stubs: Vec<(Label, Target)>,
    /// For each block the most tests on a path to an end; only kept where paths are long.
    heights: Option<Vec<u32>>,
}

/// Steps, and how many variables and labels they have.
pub(super) struct Selected {
    pub(super) steps: Vec<Step>,
    pub(super) variables: usize,
    pub(super) labels: usize,
}

/// Makes steps of a graph without state and loops; of several buffers if it `gathers`.
pub(super) fn select(ir: &Ir, hook: &Hook, gathers: bool) -> Result<Selected, EmitError> {
    let dominators = Dominators::new(ir);
    let heights = heights(ir, &dominators);
    let is_deep = heights[ir.entry.0 as usize] > QUESTIONS_EASY;
    let mut selector = Selector {
        ir,
        hook,
        dominators: &dominators,
        uses: uses(ir, &dominators),
        bounds: bounds(ir, &dominators),
        steps: Vec::new(),
        pointers: Pointers::new(ir, &dominators),
        total_len: None,
        block: ir.entry,
        extra: 0,
        labels: ir.blocks.len() as u32 + 1,
        reject: Label(ir.blocks.len() as u32),
        stubs: Vec::new(),
        heights: is_deep.then_some(heights),
    };
    if gathers {
        let to = selector.extra();
        selector.steps.push(Step::Length { to });
        selector.total_len = Some(to);
    }
    for at in 0..dominators.order.len() {
        selector.block(at)?;
    }
    selector.steps.push(Step::Label(selector.reject));
    selector.finish_with(false);
    let variables = ir.instructions.len() + selector.extra as usize;
    Ok(Selected { steps: selector.steps, variables, labels: selector.labels as usize })
}

impl Selector<'_> {
    fn block(&mut self, at: usize) -> Result<(), EmitError> {
        let id = self.dominators.order[at];
        let next = self.dominators.order.get(at + 1).copied();
        self.block = id;
        self.enter_block();
        self.steps.push(Step::Label(block_label(id)));
        let ir = self.ir;
        let block = &ir[id];
        for place in 0..block.instructions.len() {
            self.instruction(&block.instructions[place..])?;
        }
        self.terminator(&block.terminator, next);
        for (label, target) in std::mem::take(&mut self.stubs) {
            self.steps.push(Step::Label(label));
            self.follow(&target, None);
        }
        Ok(())
    }

    /// The first of these instructions; the others are those behind it in its block.
    fn instruction(&mut self, rest: &[Value]) -> Result<(), EmitError> {
        let value = rest[0];
        let op = self.ir.op(value);
        if !op.has_effect() && self.uses[value.0 as usize] == 0 {
            return Ok(());
        }
        let to = variable(value);
        match op {
            Op::Parameter | Op::Const(_) => {}
            Op::MetaField(field) => self.field(to, *field)?,
            Op::Load(place, width, order) => self.load(to, *place, *width, *order),
            Op::Binary(op, left, right) => self.binary(to, self.ir.ty(value), *op, *left, *right),
            Op::Compare(test, left, right) => self.compare(to, *test, *left, *right),
            // Numbers of 32 bits have a zero upper half.
            Op::Extend(from) => self.steps.push(Step::Set { to, from: self.operand(*from) }),
            Op::Truncate(from) => {
                let (left, right) = (self.operand(*from), Operand::Constant(u32::MAX.into()));
                self.steps.push(Step::Alu { op: AND, wide: false, to, left, right });
            }
            Op::Need(place) => self.require_bytes(*place, &rest[1..]),
            Op::NonZero(value) => {
                let (value, wide) = (self.operand(*value), self.is_wide(*value));
                self.reject_if(JEQ, wide, value, Operand::Constant(0));
            }
            Op::Cell(_) | Op::SetCell(..) | Op::Call(..) => return Err(EmitError::State),
        }
        Ok(())
    }

    fn field(&mut self, to: Variable, field: MetaField) -> Result<(), EmitError> {
        match self.hook {
            Hook::SocketFilter | Hook::Count(_) => self.socket_field(to, field),
            Hook::Xdp { .. } | Hook::Front(_) => self.xdp_field(to, field)?,
        }
        Ok(())
    }

    fn binary(&mut self, to: Variable, ty: Type, op: Binary, left: Value, right: Value) {
        let wide = ty == Type::U64;
        let shifts = matches!(op, Binary::Shl | Binary::Shr | Binary::SignedShr);
        let by = self.ir.as_const(right);
        let (left, right) = (self.operand(left), self.operand(right));
        if !shifts || by.is_some_and(|by| by < u64::from(ty.bits())) {
            return self.steps.push(Step::Alu { op: alu_code(op), wide, to, left, right });
        }
        // The machine takes the distance modulo the width; here, what is shifted out is gone.
        let last = Operand::Constant(u64::from(ty.bits()) - 1);
        if by.is_some() {
            return match op {
                Binary::SignedShr => self.steps.push(Step::Alu { op: ARSH, wide, to, left, right: last }),
                _ => self.steps.push(Step::Set { to, from: Operand::Constant(0) }),
            };
        }
        let (far, done) = (self.label(), self.label());
        self.steps.push(Step::Jump { test: JGT, wide, left: right, right: last, to: far });
        self.steps.push(Step::Alu { op: alu_code(op), wide, to, left, right });
        self.steps.push(Step::Goto(done));
        self.steps.push(Step::Label(far));
        self.steps.push(match op {
            Binary::SignedShr => Step::Alu { op: ARSH, wide, to, left, right: last },
            _ => Step::Set { to, from: Operand::Constant(0) },
        });
        self.steps.push(Step::Label(done));
    }

    fn compare(&mut self, to: Variable, test: Comparison, left: Value, right: Value) {
        let wide = self.is_wide(left);
        let (left, right) = (self.operand(left), self.operand(right));
        let (yes, done) = (self.label(), self.label());
        self.steps.push(Step::Jump { test: jump_code(test), wide, left, right, to: yes });
        self.steps.push(Step::Set { to, from: Operand::Constant(0) });
        self.steps.push(Step::Goto(done));
        self.steps.push(Step::Label(yes));
        self.steps.push(Step::Set { to, from: Operand::Constant(1) });
        self.steps.push(Step::Label(done));
    }

    fn terminator(&mut self, terminator: &Terminator, next: Option<BlockId>) {
        match terminator {
            Terminator::Goto(to) => self.follow(to, next),
            Terminator::Branch { test, left, right, yes, no } => {
                let wide = self.is_wide(*left);
                let (left, right) = (self.operand(*left), self.operand(*right));
                self.branch(jump_code(*test), wide, left, right, [yes, no], next);
            }
            Terminator::Switch { value, cases, default, .. } => self.switch(*value, cases, default),
            Terminator::Return(value) => self.finish(*value),
        }
    }

    fn branch(
        &mut self,
        test: u8,
        wide: bool,
        left: Operand,
        right: Operand,
        [yes, no]: [&Target; 2],
        next: Option<BlockId>,
    ) {
        let yes_first = match &self.heights {
            Some(heights) => heights[yes.block.0 as usize] < heights[no.block.0 as usize],
            None => Some(yes.block) == next,
        };
        match opposite(test).filter(|_| yes_first) {
            Some(test) => {
                let to = self.edge(no);
                self.steps.push(Step::Jump { test, wide, left, right, to });
                self.follow(yes, next);
            }
            None if yes_first => {
                // A test without an opposite jumps over the jump to the other target.
                let (here, to) = (self.label(), self.edge(no));
                self.steps.push(Step::Jump { test, wide, left, right, to: here });
                self.steps.push(Step::Goto(to));
                self.steps.push(Step::Label(here));
                self.follow(yes, next);
            }
            None => {
                let to = self.edge(yes);
                self.steps.push(Step::Jump { test, wide, left, right, to });
                self.follow(no, next);
            }
        }
    }

    /// Follows an edge. No jump is needed to the next block, unless stubs are between.
    fn follow(&mut self, target: &Target, next: Option<BlockId>) {
        // No parameter of the target is read here: no edge leads back to its block.
        for (parameter, argument) in self.ir[target.block].parameters.iter().zip(&target.arguments) {
            let from = self.operand(*argument);
            self.steps.push(Step::Set { to: variable(*parameter), from });
        }
        if next != Some(target.block) || !self.stubs.is_empty() {
            self.steps.push(Step::Goto(block_label(target.block)));
        }
    }

    /// The label to jump to for an edge.
    fn edge(&mut self, target: &Target) -> Label {
        if target.arguments.is_empty() {
            return block_label(target.block);
        }
        let label = self.label();
        self.stubs.push((label, target.clone()));
        label
    }

    fn switch(&mut self, value: Value, cases: &[Case], default: &Target) {
        let mut labels: HashMap<&Target, Label> = HashMap::new();
        let mut ranges: Vec<Range> = Vec::new();
        for case in cases {
            let to = match labels.get(&case.to) {
                Some(label) => *label,
                None => {
                    let label = self.edge(&case.to);
                    labels.insert(&case.to, label);
                    label
                }
            };
            match ranges.last_mut() {
                Some(range) if range.to == to && range.last + 1 == case.key => range.last = case.key,
                _ => ranges.push(Range { first: case.key, last: case.key, to }),
            }
        }
        let default = self.edge(default);
        let (wide, value) = (self.is_wide(value), self.operand(value));
        self.search(wide, value, &ranges, default);
    }

    fn search(&mut self, wide: bool, value: Operand, ranges: &[Range], default: Label) {
        if ranges.len() <= LEAF {
            ranges.iter().for_each(|range| self.range(wide, value, range));
            return self.steps.push(Step::Goto(default));
        }
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let upper = self.label();
        let right = Operand::Constant(high[0].first);
        self.steps.push(Step::Jump { test: JGE, wide, left: value, right, to: upper });
        self.search(wide, value, low, default);
        self.steps.push(Step::Label(upper));
        self.search(wide, value, high, default);
    }

    fn range(&mut self, wide: bool, left: Operand, range: &Range) {
        let Range { first, last, to } = *range;
        let mut jump = |test, right, to| {
            self.steps.push(Step::Jump { test, wide, left, right: Operand::Constant(right), to });
        };
        if first == last {
            return jump(JEQ, first, to);
        }
        if first == 0 {
            return jump(JLE, last, to);
        }
        let below = Label(self.labels);
        jump(JLT, first, below);
        jump(JLE, last, to);
        self.labels += 1;
        self.steps.push(Step::Label(below));
    }

    fn finish(&mut self, value: Value) {
        match (self.ir.as_const(value), self.hook) {
            (_, Hook::SocketFilter) => self.steps.push(Step::Return(self.operand(value))),
            (Some(0), _) => self.finish_with(false),
            (Some(_), Hook::Xdp { .. } | Hook::Front(_)) => self.finish_with(true),
            (known, hook) => {
                let (wide, keep) = (self.is_wide(value), self.operand(value));
                if known.is_none() {
                    self.reject_if(JEQ, wide, keep, Operand::Constant(0));
                }
                match hook {
                    Hook::Count(count) => self.steps.push(Step::Count { count: *count, keep }),
                    _ => self.finish_with(true),
                }
            }
        }
    }

    fn finish_with(&mut self, verdict: bool) {
        let end = match self.hook {
            // What is counted ends in `Step::Count`.
            Hook::SocketFilter | Hook::Count(_) => Step::Return(Operand::Constant(verdict.into())),
            Hook::Xdp { matched, unmatched } => if verdict { matched } else { unmatched }.end(),
            Hook::Front(front) => Step::Leave { front: *front, matched: verdict },
        };
        self.steps.push(end);
    }

    /// Ends with "no match" if the test holds.
    pub(super) fn reject_if(&mut self, test: u8, wide: bool, left: Operand, right: Operand) {
        match opposite(test).filter(|_| self.heights.is_some()) {
            Some(test) => {
                let to = self.label();
                self.steps.push(Step::Jump { test, wide, left, right, to });
                self.finish_with(false);
                self.steps.push(Step::Label(to));
            }
            None => self.steps.push(Step::Jump { test, wide, left, right, to: self.reject }),
        }
    }

    /// Ends with "no match".
    pub(super) fn reject(&mut self) {
        self.steps.push(Step::Goto(self.reject));
    }

    pub(super) fn operand(&self, value: Value) -> Operand {
        match self.ir.as_const(value) {
            Some(k) => Operand::Constant(k),
            None => Operand::Variable(variable(value)),
        }
    }

    pub(super) fn is_wide(&self, value: Value) -> bool {
        self.ir.ty(value) == Type::U64
    }

    /// A variable that belongs to no value.
    pub(super) fn extra(&mut self) -> Variable {
        self.extra += 1;
        Variable::Free(self.ir.instructions.len() as u32 + self.extra - 1)
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }
}

/// Keys in a row that lead to one place.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    last: u64,
    to: Label,
}

fn block_label(id: BlockId) -> Label {
    Label(id.0)
}

fn variable(value: Value) -> Variable {
    Variable::Free(value.0)
}

fn uses(ir: &Ir, dominators: &Dominators) -> Vec<u32> {
    let mut uses = vec![0; ir.instructions.len()];
    for &id in &dominators.order {
        let mut count = |value: Value| uses[value.0 as usize] += 1;
        ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut count));
        ir[id].terminator.for_each_operand(&mut count);
    }
    uses
}

/// The greatest number that each value can be, where that is easy to see.
fn bounds(ir: &Ir, dominators: &Dominators) -> Vec<u64> {
    let mut bounds: Vec<u64> = ir.instructions.iter().map(|instruction| instruction.ty.max()).collect();
    for &value in dominators.order.iter().flat_map(|id| &ir[*id].instructions) {
        let of = |value: &Value| bounds[value.0 as usize];
        let by = |value: &Value| ir.as_const(*value).and_then(|by| u32::try_from(by).ok());
        let bound = match ir.op(value) {
            Op::Const(k) => *k,
            Op::Load(_, width, _) if width.bytes() < 4 => (1 << (8 * width.bytes())) - 1,
            Op::Compare(..) => 1,
            Op::Extend(from) => of(from),
            Op::Truncate(from) => of(from).min(u32::MAX.into()),
            Op::Binary(Binary::And, left, right) => of(left).min(of(right)),
            Op::Binary(Binary::Add, left, right) => of(left).saturating_add(of(right)),
            Op::Binary(Binary::Mul, left, right) => of(left).saturating_mul(of(right)),
            Op::Binary(Binary::Shr, left, right) => of(left).checked_shr(by(right).unwrap_or(0)).unwrap_or(0),
            Op::Binary(Binary::Shl, left, right) => match by(right) {
                Some(by) if by < of(left).leading_zeros() => of(left) << by,
                _ => u64::MAX,
            },
            _ => u64::MAX,
        };
        let own = &mut bounds[value.0 as usize];
        // A value beyond the type may have wrapped.
        *own = if bound > *own { *own } else { bound };
    }
    bounds
}

/// For each block the most tests on a path from it to an end.
fn heights(ir: &Ir, dominators: &Dominators) -> Vec<u32> {
    let mut heights = vec![0_u32; ir.blocks.len()];
    for &id in dominators.order.iter().rev() {
        let mut below = 0;
        ir[id].terminator.for_each_target(|target| below = below.max(heights[target.block.0 as usize]));
        // A guard behind another value asks up to three questions.
        let questions = |value: &Value| match ir.op(*value) {
            Op::Need(_) => 3,
            Op::NonZero(_) | Op::Compare(..) | Op::Load(..) => 1,
            _ => 0,
        };
        let here: u32 = ir[id].instructions.iter().map(questions).sum();
        let own = match &ir[id].terminator {
            Terminator::Branch { .. } | Terminator::Return(_) => 1,
            Terminator::Switch { cases, .. } => usize::BITS - cases.len().leading_zeros() + 2 * LEAF as u32,
            Terminator::Goto(_) => 0,
        };
        heights[id.0 as usize] = below.saturating_add(here).saturating_add(own);
    }
    heights
}

fn alu_code(op: Binary) -> u8 {
    match op {
        Binary::Add => ADD,
        Binary::Sub => SUB,
        Binary::Mul => MUL,
        Binary::Div => DIV,
        Binary::Mod => MOD,
        Binary::And => AND,
        Binary::Or => OR,
        Binary::Xor => XOR,
        Binary::Shl => LSH,
        Binary::Shr => RSH,
        Binary::SignedShr => ARSH,
    }
}

fn jump_code(test: Comparison) -> u8 {
    match test {
        Comparison::Equal => JEQ,
        Comparison::Greater => JGT,
        Comparison::GreaterEqual => JGE,
        Comparison::AnySet => JSET,
        Comparison::SignedGreater => JSGT,
        Comparison::SignedGreaterEqual => JSGE,
    }
}
