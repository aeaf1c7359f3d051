//! Redundant predicates (BPF+): a branch whose outcome all paths to it know is removed, and an edge that knows the
//! outcome of the next branches goes directly to their target.
//!
//! ```text
//!         b1: ip?                              b1: ip?
//!        yes/   \no                           yes/   \no
//!   b2: udp?     |                       b2: udp?     |
//!   yes/  \no    |            becomes    yes/  \no    |
//! b3: port \     |                     b3: port \     |
//!    1? no\ \    |                        1? no  \    |
//!          b4: ip? --no--> reject           |    reject
//!              |yes                       b6: port 2?
//!          b5: udp? --> b6: port 2?
//! ```
//!
//! An edge that leaves blocks out does without their guards, so it must have passed them; and what is still read behind
//! it of these blocks' values is computed again where it is read ([`super::repair`]), so it must be little. Of
//! parameters, the edge says what they are on it, in a block of its own, a bridge. Blocks are visited in an order that
//! puts each behind all that lead to it; blocks to which no edge leads any more are not visited. So one walk sees all
//! edges, and a long chain of `or` costs no more than its length.

use super::classes::Classes;
use super::facts::{Facts, PathFacts};
use super::held::{LiveValues, Stay};
use super::known::Known;
use super::repair::{Definition, repair};
use crate::{Block, BlockId, Case, Comparison, Ir, Op, Target, Terminator, Value};

/// Blocks at most that one edge steps over.
const STEPS_MAX: usize = 256;

/// Blocks at most that all edges together step over, for each block of the graph.
const STEPS_PER_BLOCK: usize = 32;

/// The cases of a switch, if there are more and all lead to one target, follow one edge: that the value is one of them.
const APART_MAX: usize = 16;

/// Leads edges past branches whose outcome they know.
pub(super) fn predicates(ir: &mut Ir) -> bool {
    let order = ir.order();
    let classes = Classes::new(ir, &order);
    let (changes, bridges) = Pass::new(ir, &order, &classes).run(&order);
    let changed = !changes.is_empty();
    let definitions = build(ir, bridges);
    for (id, terminator) in changes {
        ir[id].terminator = terminator;
    }
    if changed {
        repair(ir, &definitions);
    }
    changed
}

/// An edge that carries the values of the parameters of the blocks that it steps over.
struct Bridge {
    to: Target,
    /// The parameters. The bridge is given their values, in their order.
    parameters: Vec<Value>,
}

/// Adds the bridges, which the terminators know by the numbers behind those of the graph's blocks.
fn build(ir: &mut Ir, bridges: Vec<Bridge>) -> Vec<Definition> {
    let mut definitions = Vec::new();
    for Bridge { to, parameters } in bridges {
        let own: Vec<Value> =
            parameters.iter().map(|parameter| ir.add(Op::Parameter, ir.ty(*parameter))).collect();
        let terminator = Terminator::Goto(to);
        let block = ir.add_block(Block { parameters: own.clone(), instructions: Vec::new(), terminator });
        let define = |(value, by)| Definition { block, value, by };
        definitions.extend(parameters.into_iter().zip(own).map(define));
    }
    definitions
}

struct Pass<'a> {
    ir: &'a Ir,
    facts: Facts<'a>,
    /// For each block its place in the order.
    place: Vec<usize>,
    /// The block of each value.
    home: Vec<BlockId>,
    /// Whether edges may leave the block out.
    passable: Vec<bool>,
    held: LiveValues,
    arriving: Vec<Option<PathFacts>>,
    bridges: Vec<Bridge>,
    steps_left: usize,
}

impl<'a> Pass<'a> {
    fn new(ir: &'a Ir, order: &[BlockId], classes: &'a Classes) -> Pass<'a> {
        let mut place = vec![usize::MAX; ir.blocks.len()];
        order.iter().enumerate().for_each(|(at, id)| place[id.0 as usize] = at);
        let home = homes(ir, order);
        let passable = passable(ir, order);
        let held = LiveValues::new(ir, order, &home);
        let arriving = vec![None; ir.blocks.len()];
        let steps_left = order.len() * STEPS_PER_BLOCK;
        let facts = Facts::new(ir, order, classes);
        Pass { ir, facts, place, home, passable, held, arriving, bridges: Vec::new(), steps_left }
    }

    /// The terminators that change, and their new blocks.
    fn run(mut self, order: &[BlockId]) -> (Vec<(BlockId, Terminator)>, Vec<Bridge>) {
        let mut changes = Vec::new();
        self.arriving[self.ir.entry.0 as usize] = Some(PathFacts::default());
        for &id in order {
            let Some(mut way) = self.arriving[id.0 as usize].take() else { continue };
            for value in &self.ir[id].instructions {
                self.facts.pass(&mut way, self.ir.op(*value));
            }
            if let Some(terminator) = self.leave(id, way) {
                changes.push((id, terminator));
            }
        }
        (changes, self.bridges)
    }

    /// Sends all edges out of a block on; gives its new terminator, if that differs.
    fn leave(&mut self, id: BlockId, way: PathFacts) -> Option<Terminator> {
        let terminator = &self.ir[id].terminator;
        let new = match terminator {
            Terminator::Return(_) => return None,
            Terminator::Goto(to) => Terminator::Goto(self.send(id, way, to)),
            Terminator::Branch { test, left, right, yes, no } => {
                match self.decide(way, *test, *left, *right, &[]) {
                    Some(holds) => Terminator::Goto(self.send(id, way, if holds { yes } else { no })),
                    None => self.branch(id, way, terminator),
                }
            }
            Terminator::Switch { value, cases, default, .. } => {
                match self.facts.number(way, *value, &[]).exact() {
                    Some(k) => Terminator::Goto(self.send(id, way, chosen(k, cases, default))),
                    None => self.switch(id, way, terminator),
                }
            }
        };
        (new != *terminator).then_some(new)
    }

    fn branch(&mut self, id: BlockId, way: PathFacts, terminator: &Terminator) -> Terminator {
        let mut new = terminator.clone();
        let Terminator::Branch { test, left, right, yes, no } = &mut new else { return new };
        for (target, holds) in [(&mut *yes, true), (&mut *no, false)] {
            let mut way = way;
            self.facts.learn(&mut way, *test, *left, *right, holds);
            // As the proof has it, see `Coverage::learn_from_edge`.
            if let Some(place) = self.ir.shown_by(*test, *left, *right).filter(|_| holds) {
                self.facts.pass(&mut way, &Op::Need(place));
            }
            *target = self.send(id, way, target);
        }
        new
    }

    fn switch(&mut self, id: BlockId, way: PathFacts, terminator: &Terminator) -> Terminator {
        let mut new = terminator.clone();
        let Terminator::Switch { value, cases, default, .. } = &mut new else { return new };
        if let (Some(first), Some(last)) = (cases.first(), cases.last())
            && cases.len() > APART_MAX
            && cases.iter().all(|case| case.to == first.to)
        {
            let mut way = way;
            self.facts.refine(&mut way, *value, Known::between(first.key, last.key), 1);
            let to = self.send(id, way, &first.to);
            if to != first.to {
                cases.iter_mut().for_each(|case| case.to.clone_from(&to));
            }
        } else {
            self.cases(id, way, *value, cases);
        }
        *default = self.send(id, way, default);
        new
    }

    fn cases(&mut self, id: BlockId, way: PathFacts, value: Value, cases: &mut [Case]) {
        for Case { key, to } in cases {
            let mut way = way;
            self.facts.refine(&mut way, value, Known::exactly(*key), 1);
            *to = self.send(id, way, to);
        }
    }

    /// Moves an edge on as far as its outcomes are known, and passes on its facts.
    fn send(&mut self, from: BlockId, way: PathFacts, to: &Target) -> Target {
        let Followed { target, given, carried } = self.follow(way, to);
        let there = target.block.0 as usize;
        let ends = matches!(self.ir[target.block].terminator, Terminator::Return(_));
        if !(self.place[there] <= self.place[from.0 as usize] || ends && self.arriving[there].is_some()) {
            let mut way = way;
            // The facts at a loop's entry say nothing about an edge back.
            if !self.ir.loops.iter().any(|one| one.header == target.block) {
                for (parameter, argument) in self.ir[target.block].parameters.iter().zip(&target.arguments) {
                    self.facts.give(&mut way, *parameter, *argument);
                }
                for &(parameter, argument) in given.iter().filter(|(value, _)| carried.contains(value)) {
                    self.facts.give(&mut way, parameter, argument);
                }
            }
            self.arriving[there] = Some(match self.arriving[there] {
                Some(before) => self.facts.meet(before, way),
                None => way,
            });
        }
        if carried.is_empty() { target } else { self.bridge(target, &given, carried) }
    }

    fn bridge(&mut self, to: Target, given: &[(Value, Value)], parameters: Vec<Value>) -> Target {
        let argument = |parameter: &Value| {
            given.iter().find(|(value, _)| value == parameter).map_or(*parameter, |(_, argument)| *argument)
        };
        let arguments = parameters.iter().map(argument).collect();
        let block = BlockId((self.ir.blocks.len() + self.bridges.len()) as u32);
        self.bridges.push(Bridge { to, parameters });
        Target { block, arguments }
    }

    fn follow(&mut self, way: PathFacts, to: &Target) -> Followed {
        let mut target = to.clone();
        let mut given: Vec<(Value, Value)> = Vec::new();
        let mut left_out = Vec::new();
        let mut last = (target.clone(), Vec::new());
        for _ in 0..STEPS_MAX {
            let id = target.block;
            if self.steps_left == 0 || !self.passable[id.0 as usize] {
                break;
            }
            given.extend(self.ir[id].parameters.iter().copied().zip(target.arguments.iter().copied()));
            left_out.push(id);
            self.steps_left -= 1;
            let Some(next) = self.next(way, id, &given) else { break };
            let Some(next) = self.handed_on(next, &given, &left_out) else { break };
            target = next;
            // An edge may stop where nothing is missing.
            if let Some(carried) = self.carried(&left_out, target.block) {
                last = (target.clone(), carried);
            }
        }
        Followed { target: last.0, given, carried: last.1 }
    }

    /// The parameters of blocks that are left out which are still read behind `there`; `None` if others of their
    /// values are.
    fn carried(&self, left_out: &[BlockId], there: BlockId) -> Option<Vec<Value>> {
        let mut carried = Vec::new();
        for &(value, stay) in left_out.iter().flat_map(|id| self.held.of(*id)) {
            if self.held.is_wanted(value, there) {
                match stay {
                    Stay::Parameter => carried.push(value),
                    Stay::Always => return None,
                }
            }
        }
        Some(carried)
    }

    /// The edge by which a path that enters a block leaves it, if that is known.
    fn next(&self, way: PathFacts, id: BlockId, given: &[(Value, Value)]) -> Option<&'a Target> {
        let block = &self.ir[id];
        if !block.instructions.iter().all(|value| self.facts.is_passed(way, self.ir.op(*value), given)) {
            return None;
        }
        match &block.terminator {
            Terminator::Goto(to) => Some(to),
            Terminator::Branch { test, left, right, yes, no } => {
                self.decide(way, *test, *left, *right, given).map(|holds| if holds { yes } else { no })
            }
            Terminator::Switch { value, cases, default, .. } => {
                self.facts.number(way, *value, given).exact().map(|k| chosen(k, cases, default))
            }
            Terminator::Return(_) => None,
        }
    }

    /// The outcome of a test, if it is known. One that shows bytes to the proof stays, unless others have shown it
    /// the same.
    fn decide(
        &self,
        way: PathFacts,
        test: Comparison,
        left: Value,
        right: Value,
        given: &[(Value, Value)],
    ) -> Option<bool> {
        let holds = self.facts.decide(way, test, left, right, given)?;
        let shown = self.ir.shown_by(test, left, right).filter(|_| holds);
        let is_passed = shown.is_none_or(|place| self.facts.is_passed(way, &Op::Need(place), given));
        is_passed.then_some(holds)
    }

    /// The target with arguments that are known where the edge starts.
    fn handed_on(&self, to: &Target, given: &[(Value, Value)], left_out: &[BlockId]) -> Option<Target> {
        let known = |value: &Value| {
            let parameter = given.iter().find(|(parameter, _)| parameter == value);
            match parameter {
                Some((_, argument)) => Some(*argument),
                None if self.ir.as_const(*value).is_some() => Some(*value),
                None => (!left_out.contains(&self.home[value.0 as usize])).then_some(*value),
            }
        };
        let arguments = to.arguments.iter().map(known).collect::<Option<_>>()?;
        Some(Target { block: to.block, arguments })
    }
}

/// The target of an edge, behind the blocks that are stepped over.
struct Followed {
    target: Target,
    /// The parameters on the edge, with their arguments.
    given: Vec<(Value, Value)>,
    /// Values of skipped blocks that are still read.
    carried: Vec<Value>,
}

fn chosen<'a>(k: u64, cases: &'a [Case], default: &'a Target) -> &'a Target {
    cases.binary_search_by_key(&k, |case| case.key).map_or(default, |at| &cases[at].to)
}

fn homes(ir: &Ir, order: &[BlockId]) -> Vec<BlockId> {
    let mut home = vec![BlockId(u32::MAX); ir.instructions.len()];
    for &id in order {
        for value in ir[id].parameters.iter().chain(&ir[id].instructions) {
            home[value.0 as usize] = id;
        }
    }
    home
}

/// The blocks that an edge may step over: those that only test.
fn passable(ir: &Ir, order: &[BlockId]) -> Vec<bool> {
    let mut passable = vec![true; ir.blocks.len()];
    ir.loops.iter().for_each(|one| passable[one.header.0 as usize] = false);
    for &id in order {
        let block = &ir[id];
        let looks =
            |value: &Value| ir.op(*value).is_pure() || matches!(ir.op(*value), Op::Need(_) | Op::NonZero(_));
        let ends = matches!(block.terminator, Terminator::Return(_));
        passable[id.0 as usize] &= !ends && block.instructions.iter().all(looks);
    }
    passable
}
