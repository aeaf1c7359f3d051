//! A weaker filter: it accepts every packet that the whole filter accepts, and asks for less.
//!
//! ```text
//! A run of the weaker filter is a run of the whole one, up to what is out of its bounds:
//!
//! a value that cannot be had      unknown, and with it each value that is computed from it
//! a guard on an unknown place     holds
//! a choice by an unknown value    the only way that does not reject at once; with several of them: accepts
//! a block beyond the weight       accepts; blocks near the entry are kept
//! ```
//!
//! So it rejects only where the whole filter would have rejected by the same steps. It runs where the whole filter
//! cannot, in front of it: the whole filter then decides about what is left.

use std::collections::VecDeque;

use super::optimise::clean_up;
use super::{Block, BlockId, Ir, MetaField, Op, Target, Terminator, Type, Value};

/// Bounds of a weaker filter.
#[derive(Clone, Copy, Debug)]
pub struct WeakerBounds {
    /// Whether a field of the packet's metadata can be read.
    pub is_known: fn(MetaField) -> bool,
    /// Whether bytes can be read at places that are computed, such as behind an IPv4 header.
    pub has_variable_places: bool,
    /// The most instructions and cases of switches, all together.
    pub weight_max: usize,
}

/// The filter within these bounds. `None` if it is within them already, keeps state or has loops, or if nothing is left
/// that rejects packets.
pub fn weaken(whole: &Ir, bounds: &WeakerBounds) -> Option<Ir> {
    if whole.has_state() || !whole.loops.is_empty() {
        return None;
    }
    let mut ir = whole.clone();
    let verdict = ir.add(Op::Const(u32::MAX.into()), Type::U32);
    let accept = ir.add_block(Block {
        parameters: Vec::new(),
        instructions: vec![verdict],
        terminator: Terminator::Return(verdict),
    });
    let is_unknown = vec![false; ir.instructions.len()];
    let mut weakening = Weakening { whole, ir, bounds, accept, is_unknown };
    for id in whole.order() {
        weakening.block(id);
    }
    let is_cut = weakening.cut();
    let Weakening { mut ir, is_unknown, .. } = weakening;
    if !is_cut && !is_unknown.contains(&true) {
        return None;
    }
    clean_up(&mut ir);
    (rejects_some(&ir) && ir.verify().is_ok()).then_some(ir)
}

fn block_weight(block: &Block) -> usize {
    let cases = match &block.terminator {
        Terminator::Switch { cases, .. } => cases.len(),
        _ => 0,
    };
    block.instructions.len() + cases + 1
}

/// Whether some way through it ends with a rejection, other than by a guard.
fn rejects_some(ir: &Ir) -> bool {
    ir.order().into_iter().any(|id| match ir[id].terminator {
        Terminator::Return(value) => ir.as_const(value).is_none_or(|verdict| verdict == 0),
        _ => false,
    })
}

/// A filter that is being weakened.
struct Weakening<'a> {
    whole: &'a Ir,
    ir: Ir,
    bounds: &'a WeakerBounds,
    accept: BlockId,
    is_unknown: Vec<bool>,
}

impl Weakening<'_> {
    /// Blocks before it have been done.
    fn block(&mut self, id: BlockId) {
        let mut kept = std::mem::take(&mut self.ir[id].instructions);
        kept.retain(|value| self.keep(*value));
        self.ir[id].instructions = kept;
        self.choose(id);
        let mut unknown = Vec::new();
        self.ir[id].terminator.for_each_target(|target| {
            let parameters = &self.ir[target.block].parameters;
            let pairs = parameters.iter().zip(&target.arguments);
            let of_unknown = pairs.filter(|(_, argument)| self.is_unknown[argument.0 as usize]);
            unknown.extend(of_unknown.map(|(parameter, _)| *parameter));
        });
        unknown.into_iter().for_each(|parameter| self.is_unknown[parameter.0 as usize] = true);
    }

    /// Whether an instruction stays: as it is, or as a number in place of an unknown value.
    fn keep(&mut self, value: Value) -> bool {
        if self.can_have(value) {
            return true;
        }
        self.is_unknown[value.0 as usize] = true;
        let instruction = &mut self.ir.instructions[value.0 as usize];
        let is_guard = instruction.op.has_effect();
        if !is_guard {
            instruction.op = Op::Const(0);
        }
        !is_guard
    }

    fn can_have(&self, value: Value) -> bool {
        let op = self.ir.op(value);
        let mut has_operands = true;
        op.for_each_operand(|operand| has_operands &= !self.is_unknown[operand.0 as usize]);
        has_operands
            && match op {
                Op::MetaField(field) => (self.bounds.is_known)(*field),
                Op::Load(place, ..) | Op::Need(place) => {
                    let is_fixed = place.base.is_none_or(|base| self.ir.as_const(base).is_some());
                    is_fixed || self.bounds.has_variable_places
                }
                _ => true,
            }
    }

    /// Replaces the choice at the end of a block, if it depends on an unknown value.
    fn choose(&mut self, id: BlockId) {
        let is_unknown = |value: Value| self.is_unknown[value.0 as usize];
        let terminator = &self.ir[id].terminator;
        let depends = match terminator {
            Terminator::Goto(_) => false,
            Terminator::Branch { left, right, .. } => is_unknown(*left) || is_unknown(*right),
            Terminator::Switch { value, .. } | Terminator::Return(value) => is_unknown(*value),
        };
        if !depends {
            return;
        }
        let mut ways: Vec<Target> = Vec::new();
        let mut rejection = None;
        terminator.for_each_target(|target| {
            if self.whole.only_rejects(target.block) {
                rejection.get_or_insert_with(|| target.clone());
            } else if !ways.contains(target) {
                ways.push(target.clone());
            }
        });
        let way = match (ways.len(), rejection) {
            (0, Some(rejection)) => rejection,
            (1, _) => ways.remove(0),
            _ => Target::to(self.accept),
        };
        self.ir[id].terminator = Terminator::Goto(way);
    }

    /// Has edges to blocks beyond the weight accept; says whether there are any.
    fn cut(&mut self) -> bool {
        let mut is_kept = vec![false; self.ir.blocks.len()];
        let mut weight = 0;
        let mut next = VecDeque::from([self.ir.entry]);
        let mut is_cut = false;
        while let Some(id) = next.pop_front() {
            if is_kept[id.0 as usize] {
                continue;
            }
            let block = &self.ir[id];
            let is_end = matches!(block.terminator, Terminator::Return(_));
            let with_it = weight + if is_end { 0 } else { block_weight(block) };
            if with_it > self.bounds.weight_max {
                is_cut = true;
                continue;
            }
            (weight, is_kept[id.0 as usize]) = (with_it, true);
            block.terminator.for_each_target(|target| next.push_back(target.block));
        }
        if !is_kept[self.ir.entry.0 as usize] {
            self.ir.entry = self.accept;
        }
        let accept = self.accept;
        for (block, _) in self.ir.blocks.iter_mut().zip(&is_kept).filter(|(_, is_kept)| **is_kept) {
            block.terminator.for_each_target_mut(|target| {
                if !is_kept[target.block.0 as usize] {
                    *target = Target::to(accept);
                }
            });
        }
        is_cut
    }
}
