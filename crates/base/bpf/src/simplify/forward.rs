//! From the entry on: the value of every register and the known facts, and with that, shorter blocks and shorter
//! paths.
//!
//! ```text
//! state   := value of each register, facts, bytes held          at a block: what all paths to it agree on
//! rewrite := a statement that changes nothing goes; one whose result is a number becomes that number
//! thread  := an edge to a block whose test is decided on this edge goes on to where the test leads
//! ```
//!
//! Blocks are visited in an order that puts each after all its predecessors, so one pass sees all paths. A block to
//! which no edge leads any more is not visited, and costs nothing: this keeps long chains of `or` linear.

use super::backward::{Demand, may_reject};
use super::facts::{Facts, LengthFacts, Question};
use super::value::{Expr, Register, Registers, Value, Values, outcome};
use crate::ancillary;
use crate::cfg::{Alu, Block, BlockId, Cfg, JumpTest, ListId, Operand, Statement, Terminator, Width};
use rustc_hash::FxHashMap as Map;

/// Blocks that threading may step over, in all, for each block of a graph.
const STEPS_PER_BLOCK: usize = 200;

/// The facts that hold at a point of a path.
#[derive(Clone, Debug)]
pub(super) struct PathFacts {
    pub(super) registers: Registers,
    facts: Facts,
    pub(super) held: LengthFacts,
}

/// The outcome of a pass.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) cfg: Cfg,
    /// The blocks that are still reached, each before its successors.
    pub(super) order: Vec<BlockId>,
    /// For each block, the statements that cannot reject there; computed only if any may be removed.
    pub(super) safe: Vec<Vec<bool>>,
    /// For each block that branches, the state at its beginning and the value it tests; only if blocks can be moved.
    pub(super) tested: Vec<Option<(PathFacts, Value)>>,
}

struct Pass<'a> {
    cfg: &'a Cfg,
    values: &'a mut Values,
    demand: Demand,
    /// Numbers of blocks that test a value, and of those with the very same test.
    asked: SharedTests,
    arriving: Vec<Option<PathFacts>>,
    removal: Removal,
    steps_left: usize,
}

/// The statements that a pass may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Removes those that write a value to X or to scratch that is already there: each block still loads A for
    /// itself, and can be moved.
    AllButA,
    /// Any.
    All,
}

/// Runs the pass. `before` is the outcome of the pass before, if there was one.
pub(super) fn forward(
    cfg: &Cfg,
    values: &mut Values,
    removal: Removal,
    before: &[Option<(PathFacts, Value)>],
) -> Forward {
    let order = cfg.order();
    let demand = Demand::of(cfg, &order);
    let asked = SharedTests::count(cfg, &order, values, before);
    let steps_left = STEPS_PER_BLOCK.saturating_mul(order.len());
    let mut pass =
        Pass { cfg, values, demand, asked, arriving: vec![None; cfg.blocks.len()], removal, steps_left };
    let blocks = cfg.blocks.len();
    let mut done = Forward {
        cfg: Cfg { blocks: Vec::with_capacity(blocks), entry: cfg.entry, lists: cfg.lists.clone() },
        order: Vec::new(),
        safe: vec![Vec::new(); blocks],
        tested: vec![None; blocks],
    };
    done.cfg.blocks.resize(blocks, Block { statements: Vec::new(), terminator: Terminator::Return(0) });
    pass.arrive(PathFacts::start(), cfg.entry);
    for id in order {
        if let Some(state) = pass.arriving[id.0 as usize].take() {
            pass.visit(id, state, &mut done);
        }
    }
    done
}

impl PathFacts {
    fn start() -> PathFacts {
        PathFacts {
            registers: [Values::ZERO; Register::COUNT],
            facts: Facts::default(),
            held: LengthFacts::default(),
        }
    }

    /// Keeps the values on which both paths agree. `id` is where they meet.
    fn meet(&mut self, other: &PathFacts, id: BlockId, values: &mut Values) {
        for (n, (mine, theirs)) in self.registers.iter_mut().zip(other.registers).enumerate() {
            if *mine != theirs {
                *mine = values.number(Expr::Join(id, Register(n as u8)));
            }
        }
        self.facts.meet(&other.facts);
        self.held.meet(&other.held);
    }
}

impl Pass<'_> {
    fn visit(&mut self, id: BlockId, state: PathFacts, done: &mut Forward) {
        let at_start = (self.removal == Removal::AllButA).then(|| state.clone());
        let mut now = state;
        let mut statements = Vec::with_capacity(self.cfg[id].statements.len());
        let mut safe = Vec::new();
        for &statement in &self.cfg[id].statements {
            match self.rewrite(statement, &mut now) {
                Rewritten::Gone => {}
                Rewritten::Kept(statement, is_safe) => {
                    statements.push(statement);
                    // After blocks were moved, the caller asks again for their new places.
                    if self.removal == Removal::All {
                        safe.push(is_safe);
                    }
                }
                Rewritten::Rejects => {
                    done.cfg[id] = Block { statements: Vec::new(), terminator: Terminator::Return(0) };
                    return done.order.push(id);
                }
            }
        }
        let tested = now.registers[0];
        let terminator = self.leave(id, now);
        if matches!(terminator, Terminator::Branch { .. } | Terminator::OneOf { .. }) {
            done.tested[id.0 as usize] = at_start.map(|state| (state, tested));
        }
        done.safe[id.0 as usize] = safe;
        done.cfg[id] = Block { statements, terminator };
        done.order.push(id);
    }

    /// Follows the edges out of a block, which ends in `state`.
    fn leave(&mut self, id: BlockId, state: PathFacts) -> Terminator {
        match self.cfg[id].terminator {
            end @ (Terminator::Return(_) | Terminator::ReturnA) => end,
            Terminator::Goto(next) => Terminator::Goto(self.thread(state, next)),
            Terminator::Branch { test, operand, on_true, on_false } => {
                let right = self.right(id, operand, &state.registers);
                let operand = self.values.constant(right).map_or(operand, Operand::K);
                let question = Question::new(state.registers[0], test, right);
                match self.decide(question, test, &state.facts) {
                    Some(holds) => {
                        Terminator::Goto(self.thread(state, if holds { on_true } else { on_false }))
                    }
                    None => {
                        let (on_true, on_false) = self.branch_both(state, question, on_true, on_false);
                        Terminator::Branch { test, operand, on_true, on_false }
                    }
                }
            }
            Terminator::OneOf { list, on_true, on_false } => {
                let question = self.question_of_list(id, &state.registers);
                match self.decide_list(question, list, &state.facts) {
                    Some(holds) => {
                        Terminator::Goto(self.thread(state, if holds { on_true } else { on_false }))
                    }
                    None => {
                        let (on_true, on_false) = self.branch_both(state, question, on_true, on_false);
                        Terminator::OneOf { list, on_true, on_false }
                    }
                }
            }
        }
    }

    /// Follows both edges of a test. Gives the blocks to which they go.
    fn branch_both(
        &mut self,
        state: PathFacts,
        question: Question,
        on_true: BlockId,
        on_false: BlockId,
    ) -> (BlockId, BlockId) {
        let on_true = match self.is_reached_end(on_true) {
            true => on_true,
            false => self.branch(state.clone(), question, true, on_true),
        };
        let on_false = match self.is_reached_end(on_false) {
            true => on_false,
            false => self.branch(state, question, false, on_false),
        };
        (on_true, on_false)
    }

    /// Whether a block is a return to which some edge leads already: no fact matters there, and long chains all lead
    /// there.
    fn is_reached_end(&self, id: BlockId) -> bool {
        matches!(self.cfg[id].terminator, Terminator::Return(_)) && self.arriving[id.0 as usize].is_some()
    }

    fn branch(&mut self, mut state: PathFacts, question: Question, holds: bool, to: BlockId) -> BlockId {
        if self.asked.again(question, holds) {
            state.facts.learn(question, holds);
        }
        self.thread(state, to)
    }

    /// The value that a block's branch compares A with.
    fn right(&self, id: BlockId, operand: Operand, registers: &Registers) -> Value {
        match operand {
            Operand::K(_) => self.asked.constants[id.0 as usize],
            Operand::X => registers[usize::from(Register::X.0)],
        }
    }

    /// The test of a block that looks A up in a list.
    fn question_of_list(&self, id: BlockId, registers: &Registers) -> Question {
        Question::new(registers[0], JumpTest::Equal, self.asked.constants[id.0 as usize])
    }

    /// The outcome of a lookup: A is a number, or is known to equal one, or was looked up before.
    fn decide_list(&self, question: Question, list: ListId, facts: &Facts) -> Option<bool> {
        let number = match self.values.constant(question.left) {
            Some(number) => Some(number),
            None => {
                facts.equal_constant(question.left, self.values).and_then(|right| self.values.constant(right))
            }
        };
        match number {
            Some(number) => Some(self.cfg.list(list).binary_search(&number).is_ok()),
            None => facts.decide(question, self.values),
        }
    }

    /// The outcome of a test: by its numbers, or by known facts.
    fn decide(&self, question: Question, test: JumpTest, facts: &Facts) -> Option<bool> {
        match (self.values.constant(question.left), self.values.constant(question.right)) {
            (Some(left), Some(right)) => Some(outcome(test, left, right)),
            _ => facts.decide(question, self.values),
        }
    }

    /// Goes on from `to` as long as blocks are decided and leave nothing behind; lets the state arrive at the last.
    fn thread(&mut self, state: PathFacts, mut to: BlockId) -> BlockId {
        while self.steps_left > 0 {
            let Some(next) = self.beyond(&state, to) else { break };
            self.steps_left -= 1;
            to = next;
        }
        self.arrive(state, to);
        to
    }

    /// The block behind `id` for an edge that comes with `state`, if `id` can be stepped over.
    fn beyond(&mut self, state: &PathFacts, id: BlockId) -> Option<BlockId> {
        let block = &self.cfg[id];
        if matches!(block.terminator, Terminator::Return(_) | Terminator::ReturnA) {
            return None;
        }
        let mut registers = state.registers;
        for &statement in &block.statements {
            let (register, value) = self.values.effect(statement, &registers);
            registers[usize::from(register.0)] = value?;
        }
        let next = match block.terminator {
            Terminator::Goto(next) => next,
            Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. }
                if on_true == on_false =>
            {
                on_true
            }
            Terminator::OneOf { list, on_true, on_false } => {
                let question = self.question_of_list(id, &registers);
                if self.decide_list(question, list, &state.facts)? { on_true } else { on_false }
            }
            Terminator::Branch { test, operand, on_true, on_false } => {
                let question = Question::new(registers[0], test, self.right(id, operand, &registers));
                if self.decide(question, test, &state.facts)? { on_true } else { on_false }
            }
            Terminator::Return(_) | Terminator::ReturnA => return None,
        };
        self.leaves_nothing(state, id, next, &registers).then_some(next)
    }

    /// Whether an edge may skip block `id`: its results are unread, and the bytes that it would load are there or are
    /// asked for later.
    fn leaves_nothing(&mut self, state: &PathFacts, id: BlockId, next: BlockId, after: &Registers) -> bool {
        let wanted = self.demand.wanted(next);
        let unchanged =
            (0..Register::COUNT).all(|n| wanted & (1 << n) == 0 || after[n] == state.registers[n]);
        if !unchanged {
            return false;
        }
        let needed = self.demand.needed(next);
        let mut registers = state.registers;
        self.cfg[id].statements.iter().all(|&statement| {
            let safe = match load_of(statement, &registers) {
                Some(Load { base: None, end }) if end <= needed => true,
                Some(Load { base, end }) => state.held.covers(base, end),
                None => !may_reject(statement),
            };
            let (register, value) = self.values.effect(statement, &registers);
            let same = value == Some(registers[usize::from(register.0)]);
            registers[usize::from(register.0)] = value.unwrap_or(Values::ZERO);
            safe || same
        })
    }

    fn arrive(&mut self, state: PathFacts, id: BlockId) {
        match &mut self.arriving[id.0 as usize] {
            Some(there) => there.meet(&state, id, self.values),
            unset => *unset = Some(state),
        }
    }

    fn rewrite(&mut self, statement: Statement, state: &mut PathFacts) -> Rewritten {
        let (register, value) = self.values.effect(statement, &state.registers);
        let place = usize::from(register.0);
        let Some(value) = value else {
            state.registers[place] = self.values.fresh(register);
            return Rewritten::Kept(statement, false);
        };
        let may_go = self.removal == Removal::All || register != Register::A;
        if may_go && state.registers[place] == value {
            return Rewritten::Gone;
        }
        let Some(statement) = self.shorter(statement, value, &state.registers) else {
            return Rewritten::Rejects;
        };
        let load = load_of(statement, &state.registers);
        let safe = match load {
            Some(Load { base, end }) => state.held.covers(base, end),
            None => !may_reject(statement),
        };
        if let Some(Load { base, end }) = load {
            state.held.add(base, end);
        }
        state.registers[place] = value;
        Rewritten::Kept(statement, safe)
    }

    /// The statement in its simplest form; `None` if it rejects every packet.
    fn shorter(&mut self, statement: Statement, value: Value, registers: &Registers) -> Option<Statement> {
        let x = self.values.constant(registers[1]).filter(|_| self.values.folds);
        Some(match (statement, self.values.expr(value)) {
            (
                Statement::LoadCell(_) | Statement::Alu(..) | Statement::Negate | Statement::Txa,
                Expr::Const(k),
            ) => Statement::LoadConst(k),
            (Statement::LoadXCell(_) | Statement::Tax, Expr::Const(k)) => Statement::LoadXConst(k),
            (Statement::LoadCell(_) | Statement::Alu(..), _) if value == registers[1] => Statement::Txa,
            (Statement::LoadXCell(_), _) if value == registers[0] => Statement::Tax,
            (Statement::LoadIndexed(..), Expr::Packet(width, k)) => Statement::LoadPacket(width, k),
            // X is a number, and yet the place is none that a plain load can name: it is outside of every packet.
            (Statement::LoadIndexed(..), _) if x.is_some() => return None,
            (Statement::Alu(op, Operand::X), _) if x.is_some() => {
                let k = x?;
                if matches!(op, Alu::Div | Alu::Mod) && k == 0 {
                    return None;
                }
                Statement::Alu(op, Operand::K(k))
            }
            _ => statement,
        })
    }
}

/// The result of simplifying a statement.
enum Rewritten {
    Gone,
    /// The statement to put, and whether it cannot reject.
    Kept(Statement, bool),
    /// No packet gets past it.
    Rejects,
}

/// A load that may be outside of the packet.
pub(super) struct Load {
    /// The value that it counts from; `None` for the packet's start.
    pub(super) base: Option<Value>,
    /// One past its last byte.
    pub(super) end: u64,
}

pub(super) fn load_of(statement: Statement, registers: &Registers) -> Option<Load> {
    let end = |k: u32, width: Width| u64::from(k) + u64::from(width.bytes());
    match statement {
        Statement::LoadPacket(width, k) if k < ancillary::BASE => {
            Some(Load { base: None, end: end(k, width) })
        }
        Statement::LoadXHeaderLen(k) => Some(Load { base: None, end: end(k, Width::Byte) }),
        Statement::LoadIndexed(width, k) => Some(Load { base: Some(registers[1]), end: end(k, width) }),
        _ => None,
    }
}

/// The tests worth remembering: those that another block has as well.
struct SharedTests {
    /// By value; values that came later are not in it.
    values: Vec<u32>,
    questions: Map<Question, u32>,
    /// For each block that compares A with a constant or a list, that constant or list.
    constants: Vec<Value>,
}

impl SharedTests {
    /// Counts the tests. Each block is taken as it was met before, or else as if nothing were known at its beginning;
    /// answers about values that then turn out to be others count as asked often.
    fn count(
        cfg: &Cfg,
        order: &[BlockId],
        values: &mut Values,
        before: &[Option<(PathFacts, Value)>],
    ) -> SharedTests {
        let constants = vec![Values::ZERO; cfg.blocks.len()];
        let mut asked = SharedTests { values: Vec::new(), questions: Map::default(), constants };
        asked.questions.reserve(order.len());
        let unknown: Registers = std::array::from_fn(|n| values.fresh(Register(n as u8)));
        for &id in order {
            let block = &cfg[id];
            if !matches!(block.terminator, Terminator::Branch { .. } | Terminator::OneOf { .. }) {
                continue;
            }
            let state = before.get(id.0 as usize).and_then(Option::as_ref);
            let mut registers = state.map_or(unknown, |(state, _)| state.registers);
            for &statement in &block.statements {
                let (register, value) = values.effect(statement, &registers);
                let place = usize::from(register.0);
                registers[place] = value.unwrap_or(unknown[place]);
            }
            let (test, right) = match block.terminator {
                Terminator::Branch { test, operand, .. } => (test, values.operand(operand, &registers)),
                Terminator::OneOf { list, .. } => (JumpTest::Equal, values.number(Expr::List(list))),
                _ => continue,
            };
            let question = Question::new(registers[0], test, right);
            asked.constants[id.0 as usize] = question.right;
            let place = question.left.place();
            asked.values.resize(asked.values.len().max(place + 1), 0);
            asked.values[place] += 1;
            *asked.questions.entry(question).or_default() += 1;
        }
        asked
    }

    fn again(&self, question: Question, holds: bool) -> bool {
        let often = |count: Option<&u32>| count.is_none_or(|&count| count != 1);
        if holds && question.is_equality() {
            often(self.values.get(question.left.place()))
        } else {
            often(self.questions.get(&question))
        }
    }
}
