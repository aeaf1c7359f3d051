//! Length checks, merged: the first guard on a path asks for all that the paths behind it that accept will ask for
//! anyway, and those behind it go.
//!
//! ```text
//! need 14                                   need 24
//! branch load16 [12] == 0x800 ? b1 : reject branch load16 [12] == 0x800 ? b1 : reject
//! b1: need 24                               b1:
//!     branch load8 [23] == 6 ? ...              branch load8 [23] == 6 ? ...
//! ```
//!
//! A comparison of the captured length that leads to nothing but a rejection if it fails is a guard, and becomes one
//! first.
//!
//! Backward, wanted guards: at a point, the guards that are on every path from it that accepts. A packet without
//! those bytes is rejected on each of these paths and on each other, so to reject it at once changes nothing, unless
//! an effect is between: in front of an effect, nothing is wanted. Forward, covered bytes ([`Coverage`], the rule of
//! the proof): guards that need no more bytes go.
//!
//! A guard is made larger in its place and never added. A guard at a still earlier point would be on paths that now
//! have none of their own, and would save none on any path.

use crate::{Coverage, Dominators, Ir, Op, PacketOffset, Terminator, Type, Value};

/// Values remembered at most from which bytes are wanted.
const BASES_MAX: usize = 8;

/// Makes first guards larger and removes the others.
pub(super) fn guards(ir: &mut Ir) -> bool {
    let mut changed = recognise(ir);
    let dominators = Dominators::new(ir);
    changed |= enlarge(ir, &dominators);
    changed |= remove(ir, &dominators);
    changed
}

/// Makes guards of comparisons that reject. Whether there was one.
fn recognise(ir: &mut Ir) -> bool {
    let mut changed = false;
    for id in ir.order() {
        let Terminator::Branch { test, left, right, yes, no } = &ir[id].terminator else { continue };
        if let Some(place) = ir.shown_by(*test, *left, *right)
            && yes != no
            && ir.only_rejects(no.block)
        {
            let on = Terminator::Goto(yes.clone());
            let need = ir.add(Op::Need(place), Type::None);
            ir[id].instructions.push(need);
            ir[id].terminator = on;
            changed = true;
        }
    }
    changed
}

/// The guards that every accepting path has from a point on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// From the start of the packet.
    bytes: u32,
    /// From values on.
    from: Vec<(Value, u32)>,
}

/// From the ends to the entry: each guard asks for the bytes wanted behind it. Returns whether one changed.
fn enlarge(ir: &mut Ir, dominators: &Dominators) -> bool {
    let mut changed = false;
    // `None`: no path accepts, so whatever is asked for is right.
    let mut at_start: Vec<Option<Wanted>> = vec![Some(Wanted::default()); ir.blocks.len()];
    for (place, &id) in dominators.order.iter().enumerate().rev() {
        let mut wanted = match ir[id].terminator {
            Terminator::Return(value) if ir.as_const(value) == Some(0) => None,
            Terminator::Return(_) => Some(Wanted::default()),
            _ => behind(ir, &ir[id].terminator, |to| match dominators.place[to] as usize <= place {
                // A back edge: nothing is promised.
                true => Some(Wanted::default()),
                false => at_start[to].clone(),
            }),
        };
        for at in (0..ir[id].instructions.len()).rev() {
            let value = ir[id].instructions[at];
            let op = ir.op(value);
            if matches!(op, Op::SetCell(..) | Op::Call(..)) {
                wanted = Some(Wanted::default());
            }
            if let (Some(wanted), Op::Need(place)) = (&mut wanted, op) {
                let larger = wanted.ask(*place);
                changed |= larger != *place;
                ir.instructions[value.0 as usize].op = Op::Need(larger);
            } else if let Some(wanted) = &mut wanted {
                wanted.from.retain(|(base, _)| *base != value);
            }
        }
        at_start[id.0 as usize] = wanted;
    }
    changed
}

/// The bytes that all edges out of a block need; `None` if none of them accepts.
fn behind(ir: &Ir, terminator: &Terminator, at_start: impl Fn(usize) -> Option<Wanted>) -> Option<Wanted> {
    let mut all: Option<Wanted> = None;
    terminator.for_each_target(|target| {
        let Some(mut there) = at_start(target.block.0 as usize) else { return };
        for (parameter, argument) in ir[target.block].parameters.iter().zip(&target.arguments) {
            let of_parameter = there.from.iter_mut().filter(|(base, _)| base == parameter);
            of_parameter.for_each(|(base, _)| *base = *argument);
        }
        match &mut all {
            Some(all) => all.meet(&there),
            None => all = Some(there),
        }
    });
    all
}

impl Wanted {
    /// Adds a guard's wish; gives the largest wish of its kind.
    fn ask(&mut self, place: PacketOffset) -> PacketOffset {
        // Whatever the base, it is not negative.
        self.bytes = self.bytes.max(place.offset);
        let Some(base) = place.base else { return PacketOffset::at(self.bytes) };
        let mut largest = place.offset;
        self.from.iter().filter(|(value, _)| *value == base).for_each(|&(_, end)| largest = largest.max(end));
        self.from.retain(|(value, _)| *value != base);
        if self.from.len() < BASES_MAX {
            self.from.push((base, largest));
        }
        PacketOffset::from(base, largest)
    }

    /// Keeps the bytes that both need.
    fn meet(&mut self, other: &Wanted) {
        self.bytes = self.bytes.min(other.bytes);
        self.from.retain_mut(|(base, end)| {
            let same = other.from.iter().filter(|(value, _)| value == base).map(|&(_, end)| end).max();
            *end = (*end).min(same.unwrap_or(0));
            same.is_some()
        });
    }
}

/// From the entry to the ends: guards that others before them have answered go. Whether one went.
fn remove(ir: &mut Ir, dominators: &Dominators) -> bool {
    let mut changed = false;
    let mut arriving: Vec<Option<Coverage>> = vec![None; ir.blocks.len()];
    for &id in &dominators.order {
        let mut covered = arriving[id.0 as usize].take().unwrap_or_default();
        let mut instructions = std::mem::take(&mut ir[id].instructions);
        let before = instructions.len();
        instructions.retain(|&value| {
            let answered = match ir.op(value) {
                Op::Need(place) => covered.covers(ir, place.base, place.offset),
                Op::NonZero(value) => covered.is_nonzero(ir, *value),
                _ => false,
            };
            covered.learn(ir, value);
            !answered
        });
        changed |= instructions.len() != before;
        ir[id].instructions = instructions;
        let terminator = &ir[id].terminator;
        terminator.for_each_target(|target| {
            let mut there = covered.clone();
            there.learn_from_edge(ir, terminator, target);
            match &mut arriving[target.block.0 as usize] {
                Some(known) => known.meet(&there),
                unknown => *unknown = Some(there),
            }
        });
    }
    changed
}
