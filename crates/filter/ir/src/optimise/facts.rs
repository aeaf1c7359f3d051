//! Facts along paths through a graph: about values, and about outcomes of tests.
//!
//! ```text
//! path    := the newest of what is known of values, the newest of the outcomes
//! newest  := what, the one before          two paths share what they learned before they parted
//! ```
//!
//! A path is two numbers; to go on from a fork copies nothing, and where paths join only the facts since their fork
//! are compared. Looks go back a bounded number of steps: older facts are forgotten.

use super::classes::Classes;
use super::known::Known;
use crate::{Binary, BlockId, Comparison, Ir, MetaField, Op, PacketOffset, Type, Value};

/// So far back a look goes.
const LOOKS_MAX: usize = 48;

/// Operations of operations of operations: so deep.
const DEPTH_MAX: u32 = 4;

/// The facts known at a point of a path. The default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathFacts {
    known: u32,
    outcomes: u32,
}

/// The parameters of skipped blocks, with their arguments.
pub(super) type Given = [(Value, Value)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    left: Value,
    test: Comparison,
    right: Value,
    holds: bool,
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    what: T,
    before: u32,
    depth: u32,
}

#[derive(Debug)]
struct Chain<T> {
    nodes: Vec<Node<T>>,
}

/// All that is known on all paths.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    ir: &'a Ir,
    classes: &'a Classes,
    known: Chain<(Value, Known)>,
    outcomes: Chain<Outcome>,
    /// The value that holds the number of captured bytes, if the graph reads it.
    captured: Option<Value>,
}

impl<T: Copy> Chain<T> {
    const fn new() -> Chain<T> {
        Chain { nodes: Vec::new() }
    }

    fn push(&mut self, newest: &mut u32, what: T) {
        let depth = 1 + self.depth(*newest);
        self.nodes.push(Node { what, before: *newest, depth });
        *newest = self.nodes.len() as u32;
    }

    fn depth(&self, at: u32) -> u32 {
        self.node(at).map_or(0, |node| node.depth)
    }

    fn node(&self, at: u32) -> Option<&Node<T>> {
        self.nodes.get((at as usize).checked_sub(1)?)
    }

    fn iter(&self, newest: u32) -> impl Iterator<Item = (u32, T)> {
        let mut at = newest;
        let step = move || {
            let here = at;
            let node = self.node(at)?;
            at = node.before;
            Some((here, node.what))
        };
        std::iter::from_fn(step).take(LOOKS_MAX)
    }

    /// The newest that both share, or 0.
    fn shared(&self, mut a: u32, mut b: u32) -> u32 {
        for _ in 0..2 * LOOKS_MAX {
            if a == b {
                return a;
            }
            let deeper = if self.depth(a) >= self.depth(b) { &mut a } else { &mut b };
            *deeper = self.node(*deeper).map_or(0, |node| node.before);
        }
        0
    }

    /// The facts added since `shared`.
    fn since(&self, newest: u32, shared: u32) -> Vec<T> {
        self.iter(newest).take_while(|(at, _)| *at != shared).map(|(_, what)| what).collect()
    }
}

impl<'a> Facts<'a> {
    pub(super) fn new(ir: &'a Ir, order: &[BlockId], classes: &'a Classes) -> Facts<'a> {
        let reads = |value: &&Value| *ir.op(**value) == Op::MetaField(MetaField::CapLen);
        let captured = order.iter().flat_map(|id| &ir[*id].instructions).find(reads);
        let captured = captured.map(|value| classes.of(*value));
        Facts { ir, classes, known: Chain::new(), outcomes: Chain::new(), captured }
    }

    /// The value whose facts record the number of bytes that guards have shown.
    fn bytes(&self) -> Value {
        Value(3 * self.ir.instructions.len() as u32)
    }

    /// The value whose facts record the number of bytes that guards have shown behind a value, plus one: 0 means that
    /// nothing is shown, not even that the packet reaches its base.
    fn bytes_from(&self, base: Value) -> Value {
        Value(self.ir.instructions.len() as u32 + base.0)
    }

    /// The value whose facts record that guards have shown a value not to be 0.
    fn nonzero(&self, value: Value) -> Value {
        Value(2 * self.ir.instructions.len() as u32 + value.0)
    }

    fn look(&self, way: PathFacts, what: Value) -> Option<Known> {
        self.known.iter(way.known).find(|(_, (value, _))| *value == what).map(|(_, (_, known))| known)
    }

    fn look_least(&self, way: PathFacts, what: Value) -> u64 {
        self.look(way, what).map_or(0, |known| known.least)
    }

    /// The facts about a value.
    pub(super) fn number(&self, way: PathFacts, value: Value, given: &Given) -> Known {
        self.number_within(way, value, given, DEPTH_MAX)
    }

    fn number_within(&self, way: PathFacts, value: Value, given: &Given, depth: u32) -> Known {
        let value = resolved(value, given);
        let ty = self.ir.ty(value);
        if let Op::Const(k) = self.ir.op(value) {
            return Known::exactly(*k);
        }
        let learned = self.look(way, self.classes.of(value)).unwrap_or(Known::any(ty));
        let Some(depth) = depth.checked_sub(1) else { return learned };
        let of = |operand: Value| self.number_within(way, operand, given, depth);
        let made = match *self.ir.op(value) {
            Op::Binary(op, left, right) => Known::compute(op, ty, of(left), of(right)),
            Op::Compare(test, left, right) => {
                match self.decide_within(way, test, left, right, given, depth) {
                    Some(holds) => Known::exactly(holds.into()),
                    None => Known::between(0, 1),
                }
            }
            Op::Extend(operand) => of(operand),
            Op::Truncate(operand) if of(operand).greatest <= Type::U32.max() => of(operand),
            Op::Load(..) | Op::MetaField(_) => Known::between(0, self.ir.upper_bound(value)),
            _ => return learned,
        };
        learned.and(made)
    }

    /// The outcome of a test, if it follows.
    pub(super) fn decide(
        &self,
        way: PathFacts,
        test: Comparison,
        left: Value,
        right: Value,
        given: &Given,
    ) -> Option<bool> {
        self.decide_within(way, test, left, right, given, DEPTH_MAX)
    }

    fn decide_within(
        &self,
        way: PathFacts,
        test: Comparison,
        left: Value,
        right: Value,
        given: &Given,
        depth: u32,
    ) -> Option<bool> {
        let ty = self.ir.ty(left);
        let number = |value| self.number_within(way, value, given, depth);
        if let Some(holds) = Known::decide(test, ty, number(left), number(right)) {
            return Some(holds);
        }
        let (left, right) = (resolved(left, given), resolved(right, given));
        let asked = self.outcome(test, left, right, true);
        match test {
            Comparison::Equal | Comparison::GreaterEqual | Comparison::SignedGreaterEqual
                if asked.left == asked.right =>
            {
                Some(true)
            }
            Comparison::Greater | Comparison::SignedGreater if asked.left == asked.right => Some(false),
            _ => self
                .outcomes
                .iter(way.outcomes)
                .find(|(_, known)| Outcome { holds: true, ..*known } == asked)
                .map(|(_, known)| known.holds),
        }
    }

    fn outcome(&self, test: Comparison, left: Value, right: Value, holds: bool) -> Outcome {
        let (left, right) = (self.classes.of(left), self.classes.of(right));
        match test {
            Comparison::Equal | Comparison::AnySet if left > right => {
                Outcome { left: right, test, right: left, holds }
            }
            _ => Outcome { left, test, right, holds },
        }
    }

    /// A test has this outcome on the path.
    pub(super) fn learn(
        &mut self,
        way: &mut PathFacts,
        test: Comparison,
        left: Value,
        right: Value,
        holds: bool,
    ) {
        self.learn_within(way, test, left, right, holds, DEPTH_MAX);
    }

    fn learn_within(
        &mut self,
        way: &mut PathFacts,
        test: Comparison,
        left: Value,
        right: Value,
        holds: bool,
        depth: u32,
    ) {
        let (known, other) = (self.number(*way, left, &[]), self.number(*way, right, &[]));
        if let Some(k) = other.exact() {
            self.refine(way, left, known.given(test, k, holds), depth);
        } else if test == Comparison::Equal && holds {
            self.refine(way, left, other, depth);
            self.refine(way, right, known, depth);
        }
        if self.decide(*way, test, left, right, &[]) != Some(holds) {
            let outcome = self.outcome(test, left, right, holds);
            self.outcomes.push(&mut way.outcomes, outcome);
        }
    }

    /// Narrows the known range of a value to `known`.
    pub(super) fn refine(&mut self, way: &mut PathFacts, value: Value, known: Known, depth: u32) {
        let before = self.number(*way, value, &[]);
        let after = before.and(known);
        let Some(depth) = depth.checked_sub(1).filter(|_| after != before && !after.is_contradictory())
        else {
            return;
        };
        self.known.push(&mut way.known, (self.classes.of(value), after));
        match *self.ir.op(value) {
            Op::Binary(op, left, right) => {
                if let Some(k) = self.number(*way, right, &[]).exact() {
                    let operand = operand_of(op, self.ir.ty(value), after, k);
                    operand.into_iter().for_each(|operand| self.refine(way, left, operand, depth));
                }
            }
            Op::Extend(operand) => self.refine(way, operand, after, depth),
            Op::Truncate(operand) => {
                let low = Type::U32.max();
                self.refine(way, operand, Known::bits(after.zeros & low, after.ones & low), depth);
            }
            Op::Compare(test, left, right) => {
                if let Some(holds) = after.exact() {
                    self.learn_within(way, test, left, right, holds != 0, depth);
                }
            }
            _ => {}
        }
    }

    /// A guard has been passed.
    pub(super) fn pass(&mut self, way: &mut PathFacts, op: &Op) {
        match op {
            Op::Need(place) => {
                self.learn_bytes(way, place.offset);
                if let Some(base) = place.base {
                    self.at_least(way, self.bytes_from(base), u64::from(place.offset) + 1);
                }
            }
            Op::NonZero(value) => self.at_least(way, self.nonzero(*value), 1),
            _ => {}
        }
    }

    /// Records that at least this number of bytes was captured, as the proof sees it ([`crate::Coverage`]).
    pub(super) fn learn_bytes(&mut self, way: &mut PathFacts, bytes: u32) {
        self.at_least(way, self.bytes(), bytes.into());
        if let Some(captured) = self.captured {
            self.at_least(way, captured, bytes.into());
        }
    }

    fn at_least(&mut self, way: &mut PathFacts, what: Value, least: u64) {
        let before = self.look(*way, what).unwrap_or(Known::any(Type::U64));
        if before.least < least {
            self.known.push(&mut way.known, (what, before.and(Known::between(least, u64::MAX))));
        }
    }

    /// Whether earlier guards have shown the condition of this one. They are distinguished by value, not by class, as
    /// in the proof.
    pub(super) fn is_passed(&self, way: PathFacts, op: &Op, given: &Given) -> bool {
        match op {
            Op::Need(PacketOffset { base: None, offset }) => {
                self.look_least(way, self.bytes()) >= (*offset).into()
            }
            Op::Need(PacketOffset { base: Some(base), offset }) => {
                let base = resolved(*base, given);
                let end = u64::from(*offset);
                let before_end = self.look_least(way, self.bytes()).checked_sub(end);
                self.look_least(way, self.bytes_from(base)) > end
                    || before_end.is_some_and(|before| self.ir.upper_bound(base) <= before)
            }
            Op::NonZero(value) => {
                let value = resolved(*value, given);
                self.ir.as_const(value).is_some_and(|k| k != 0)
                    || self.look_least(way, self.nonzero(value)) > 0
            }
            _ => true,
        }
    }

    /// The facts about a parameter, from those about its argument.
    pub(super) fn give(&mut self, way: &mut PathFacts, parameter: Value, argument: Value) {
        let ty = self.ir.ty(parameter);
        let known = self.number(*way, argument, &[]);
        if known != Known::any(ty) && self.classes.of(parameter) == parameter {
            self.known.push(&mut way.known, (parameter, known));
        }
    }

    /// The facts that hold on both paths.
    pub(super) fn meet(&mut self, a: PathFacts, b: PathFacts) -> PathFacts {
        let mut met = PathFacts {
            known: self.known.shared(a.known, b.known),
            outcomes: self.outcomes.shared(a.outcomes, b.outcomes),
        };
        let outcomes = [(a, b), (b, a)].map(|(a, b)| {
            let mut kept = self.outcomes.since(a.outcomes, met.outcomes);
            kept.retain(|one| self.decide(b, one.test, one.left, one.right, &[]) == Some(one.holds));
            kept
        });
        if a.known != b.known {
            let since = self.known.since(a.known, met.known);
            for (at, &(value, known)) in since.iter().enumerate() {
                // Only the newest counts.
                if since[..at].iter().any(|(newer, _)| *newer == value) {
                    continue;
                }
                if let Some(other) = self.look(b, value) {
                    let both = known.or(other);
                    if self.look(met, value).is_none_or(|before| before.and(both) != before) {
                        self.known.push(&mut met.known, (value, both));
                    }
                }
            }
        }
        for outcome in outcomes.into_iter().flatten() {
            if self.decide(met, outcome.test, outcome.left, outcome.right, &[]).is_none() {
                self.outcomes.push(&mut met.outcomes, outcome);
            }
        }
        met
    }
}

fn resolved(value: Value, given: &Given) -> Value {
    given.iter().find(|(parameter, _)| *parameter == value).map_or(value, |(_, argument)| *argument)
}

/// The facts about `operand` that follow from those about `operand op k`.
fn operand_of(op: Binary, ty: Type, result: Known, k: u64) -> Option<Known> {
    let by = u32::try_from(k).ok().filter(|&by| by < ty.bits());
    let Known { zeros, ones, .. } = result;
    Some(match op {
        Binary::And => Known::bits(zeros & k, ones & k),
        Binary::Or => Known::bits(zeros, ones & !k),
        Binary::Xor => Known::bits(zeros & !k | ones & k, ones & !k | zeros & k & ty.max()),
        Binary::Shl => {
            let kept = ty.max() >> by?;
            Known::bits(zeros >> by? & kept, ones >> by? & kept)
        }
        Binary::Shr => Known::bits(zeros << by? & ty.max(), ones << by? & ty.max()),
        Binary::Add => Known::exactly(Binary::Sub.compute(ty, result.exact()?, k)?),
        Binary::Sub => Known::exactly(Binary::Add.compute(ty, result.exact()?, k)?),
        _ => return None,
    })
}
