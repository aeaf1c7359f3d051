//! Random graphs with all that FPL programs have: loops in loops, cells, calls, arithmetic in two widths.
//!
//! ```text
//! graph     := statement* return
//! statement := variable = expression | cell = expression | call | if test { statement* } else { statement* }
//!            | for a few rounds { statement* } | return
//! ```

use std::sync::Arc;

use tapline_ir::{
    Binary, BlockId, Builder, Comparison, Function, Ir, Memory, MetaField, PacketOffset, Target, Terminator,
    Type, Value, Variables, Width,
};
use tapline_packet::Packet;
use tapline_testkit::random::Random;

const VARIABLES: usize = 4;
const CELLS: u32 = 8;

/// Leaves a trace of each call in the last cell.
#[derive(Debug)]
struct Mix;

impl Function for Mix {
    fn name(&self) -> &str {
        "mix"
    }

    fn call(&self, packet: Packet<'_>, memory: &Memory, arguments: &[u64]) -> u64 {
        let mixed = arguments.iter().fold(memory.get(7), |all, one| all.wrapping_mul(31).wrapping_add(*one));
        memory.set(7, mixed);
        mixed & 0xff | packet.data.len() as u64 & 1
    }
}

/// A graph that ends on every packet.
pub(crate) fn graph(random: &mut Random) -> Ir {
    let mut builder = Builder::new();
    let entry = builder.block();
    builder.switch_to(entry);
    let stateful = random.one_of(2, 3);
    if stateful {
        builder.cells(CELLS);
        builder.function(Arc::new(Mix));
    }
    let initial: Vec<Value> = (0..VARIABLES).map(|n| builder.const64(n as u64)).collect();
    let variables = Variables::new(&builder, &initial);
    let mut maker = Maker { builder, variables, random, stateful, left: 24 };
    maker.statements(3);
    maker.give_back();
    maker.builder.build(entry)
}

struct Maker<'a> {
    builder: Builder,
    variables: Variables,
    random: &'a mut Random,
    stateful: bool,
    /// Statements that may still be made.
    left: u32,
}

impl Maker<'_> {
    fn statements(&mut self, depth: u32) {
        for _ in 0..self.random.between(1..=5) {
            self.left = self.left.saturating_sub(1);
            match self.random.below(9) {
                0 if self.stateful => {
                    let (index, value) = (self.value(1), self.value(2));
                    self.builder.set_cell(index, value);
                }
                1 if self.stateful => {
                    let arguments = [self.value(1), self.value(0)];
                    let result = self.builder.call(0, &arguments);
                    self.variables.set(1, result);
                }
                2..=4 if depth > 0 && self.left > 0 => self.choice(depth - 1),
                5 if depth > 0 && self.left > 0 => self.rounds(depth - 1),
                _ => {
                    let value = self.value(2);
                    let variable = self.random.below(VARIABLES as u64 - 1) as usize;
                    self.variables.set(variable, value);
                }
            }
        }
    }

    fn give_back(&mut self) {
        let value = match self.random.below(4) {
            0 => self.value(1),
            1 => self.builder.const64(0),
            _ => self.builder.const64(9),
        };
        self.builder.finish(Terminator::Return(value));
        self.variables.leave(&self.builder);
    }

    fn enter(&mut self, block: BlockId) {
        self.variables.enter(&mut self.builder, block, |_| true);
    }

    fn choice(&mut self, depth: u32) {
        let [yes, no, done] = [(); 3].map(|()| self.builder.block());
        let tests = [
            Comparison::Equal,
            Comparison::Greater,
            Comparison::GreaterEqual,
            Comparison::AnySet,
            Comparison::SignedGreater,
        ];
        let (test, left, right) = (*self.random.pick(&tests), self.value(1), self.value(0));
        let end = |block| Target { block, arguments: Vec::new() };
        let (yes_to, no_to) = (end(yes), end(no));
        self.builder.finish(Terminator::Branch { test, left, right, yes: yes_to, no: no_to });
        self.variables.leave(&self.builder);
        self.enter(yes);
        self.statements(depth);
        // One side may end here.
        match self.random.one_of(1, 4) {
            true => self.give_back(),
            false => self.go(done),
        }
        self.enter(no);
        if self.random.one_of(1, 2) {
            self.statements(depth);
        }
        self.go(done);
        self.enter(done);
    }

    fn go(&mut self, block: BlockId) {
        self.builder.goto(block);
        self.variables.leave(&self.builder);
    }

    /// The last variable counts.
    fn rounds(&mut self, depth: u32) {
        let counter = VARIABLES - 1;
        let [header, body, done] = [(); 3].map(|()| self.builder.block());
        let before = self.variables.get(counter);
        let zero = self.builder.const64(0);
        self.variables.set(counter, zero);
        self.go_round(header);
        self.enter(header);
        for variable in 0..VARIABLES {
            let parameter = self.builder.parameter(header, Type::U64);
            self.variables.set(variable, parameter);
        }
        let rounds = self.random.between(1..=4);
        self.builder.declare_loop(header, rounds);
        let (now, most) = (self.variables.get(counter), self.builder.const64(rounds));
        self.builder.branch(Comparison::GreaterEqual, now, most, done, body);
        self.variables.leave(&self.builder);
        self.enter(body);
        let counting = self.variables.get(counter);
        self.statements(depth);
        let one = self.builder.const64(1);
        let next = self.builder.binary(Binary::Add, counting, one);
        self.variables.set(counter, next);
        self.go_round(header);
        self.enter(done);
        self.variables.set(counter, before);
    }

    /// Ends the current block with an edge to the header of a loop, whose parameters are all variables.
    fn go_round(&mut self, header: BlockId) {
        let arguments = (0..VARIABLES).map(|variable| self.variables.get(variable)).collect();
        self.builder.finish(Terminator::Goto(Target { block: header, arguments }));
        self.variables.leave(&self.builder);
    }

    /// A u64.
    fn value(&mut self, depth: u32) -> Value {
        match self.random.below(if depth == 0 { 4 } else { 11 }) {
            0 | 1 => {
                let k = *self.random.pick(&[0, 1, 2, 3, 7, 15, 16, 255, u64::MAX]);
                self.builder.const64(k)
            }
            2 | 3 => self.variables.get(self.random.below(VARIABLES as u64) as usize),
            4 => {
                let field = self.builder.field(*self.random.pick(&[MetaField::WireLen, MetaField::CapLen]));
                self.builder.extend(field)
            }
            5 => self.load(),
            6 => {
                let (value, one) = (self.value(depth - 1), self.builder.const64(3));
                let near = self.builder.binary(Binary::And, value, one);
                self.load_from(near)
            }
            7 if self.stateful => {
                let index = self.value(depth - 1);
                self.builder.cell(index)
            }
            8 => {
                let (left, right) = (self.value(depth - 1), self.value(depth - 1));
                let (left, right) = (self.builder.truncate(left), self.builder.truncate(right));
                let test = *self.random.pick(&[Comparison::Equal, Comparison::Greater]);
                let holds = self.builder.compare(test, left, right);
                self.builder.extend(holds)
            }
            _ => self.arithmetic(depth - 1),
        }
    }

    fn arithmetic(&mut self, depth: u32) -> Value {
        let op = *self.random.pick(&Binary::ALL);
        let (left, right) = (self.value(depth), self.value(depth));
        if self.random.one_of(1, 3) {
            let (left, right) = (self.builder.truncate(left), self.builder.truncate(right));
            let result = self.builder.binary(op, left, right);
            return self.builder.extend(result);
        }
        self.builder.binary(op, left, right)
    }

    fn load(&mut self) -> Value {
        let offset = self.random.below(24) as u32;
        self.load_at(PacketOffset::at(offset))
    }

    fn load_from(&mut self, base: Value) -> Value {
        let offset = self.random.below(16) as u32;
        self.load_at(PacketOffset::from(base, offset))
    }

    fn load_at(&mut self, place: PacketOffset) -> Value {
        let width = *self.random.pick(&[Width::Byte, Width::Half, Width::Word, Width::Double]);
        let value = self.builder.load(place, width);
        match self.builder.ir().ty(value) {
            Type::U64 => value,
            _ => self.builder.extend(value),
        }
    }
}
