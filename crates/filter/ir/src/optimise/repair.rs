//! Restores SSA in a graph whose edges were changed: a value that is read where it was not computed on every path is
//! computed there once more.
//!
//! ```text
//! b1: v1 = load16 [12]; goto b2      b2: branch v1 == 5 ? ...      a new edge b0 -> b2 leaves b1 out
//! b2: v9 = load16 [12]; branch v9 == 5 ? ...
//! ```
//!
//! Only values that are the same in every place can be computed again. Parameters cannot; an edge that skips their
//! block gives their values on it ([`Definition`]), and where it meets others, a new parameter selects the value
//! ([`ReachingDefinitions`]).

use crate::{BlockId, Dominators, Instruction, Ir, Op, ReachingDefinitions, Value};
use rustc_hash::FxHashMap as Map;

/// The definition of a value from a block on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    pub(super) block: BlockId,
    pub(super) value: Value,
    /// A parameter of the block.
    pub(super) by: Value,
}

/// Computes values again that are read without having been computed. The newly defined values are parameters, with
/// all their definitions but those as parameters of their own blocks.
pub(super) fn repair(ir: &mut Ir, definitions: &[Definition]) {
    let dominators = Dominators::new(ir);
    let children = dominators.children();
    let mut walk = Walk {
        at_hand: vec![None; ir.instructions.len()],
        undo: Vec::new(),
        redefined: Map::default(),
        reaching: ReachingDefinitions::new(ir, &dominators),
    };
    walk.redefine(ir, &dominators, definitions);
    let mut stack = vec![(ir.entry, None)];
    while let Some((id, leave)) = stack.pop() {
        match leave {
            Some(undone) => walk.forget(undone),
            None => {
                stack.push((id, Some(walk.undo.len())));
                walk.block(ir, id);
                stack.extend(children[id.0 as usize].iter().rev().map(|&child| (child, None)));
            }
        }
    }
}

struct Walk {
    /// For each value the value to read instead in the current block: itself, or a copy.
    at_hand: Vec<Option<Value>>,
    undo: Vec<(Value, Option<Value>)>,
    /// The parameters that have more than one definition.
    redefined: Map<Value, ()>,
    reaching: ReachingDefinitions,
}

impl Walk {
    fn redefine(&mut self, ir: &Ir, dominators: &Dominators, definitions: &[Definition]) {
        for &Definition { block, value, by } in definitions {
            self.reaching.define(block, value, by);
            self.redefined.insert(value, ());
        }
        for &id in dominators.order.iter().filter(|_| !definitions.is_empty()) {
            for parameter in &ir[id].parameters {
                if self.redefined.contains_key(parameter) {
                    self.reaching.define(id, *parameter, *parameter);
                }
            }
        }
    }

    fn block(&mut self, ir: &mut Ir, id: BlockId) {
        for at in 0..ir[id].parameters.len() {
            self.define(ir[id].parameters[at], ir[id].parameters[at]);
        }
        let old = std::mem::take(&mut ir[id].instructions);
        let mut new = Vec::with_capacity(old.len());
        for value in old {
            let mut op = ir.op(value).clone();
            op.map_operands(|operand| self.read(ir, id, &mut new, operand));
            ir.instructions[value.0 as usize].op = op;
            new.push(value);
            self.define(value, value);
        }
        self.terminator(ir, id, &mut new);
        ir[id].instructions = new;
    }

    fn terminator(&mut self, ir: &mut Ir, id: BlockId, new: &mut Vec<Value>) {
        if self.redefined.is_empty() {
            let mut terminator = ir[id].terminator.clone();
            terminator.map_operands(|value| self.read(ir, id, new, value));
            ir[id].terminator = terminator;
            return;
        }
        // To read may add arguments to this very terminator.
        let mut operands = Vec::new();
        ir[id].terminator.for_each_operand(|value| operands.push(value));
        let mut read: Map<Value, Value> = Map::default();
        for value in operands {
            let known = self.read(ir, id, new, value);
            read.insert(value, known);
        }
        ir[id].terminator.map_operands(|value| read.get(&value).copied().unwrap_or(value));
    }

    /// The value to read in place of `value`; computes it into `new` if it is not at hand.
    fn read(&mut self, ir: &mut Ir, id: BlockId, new: &mut Vec<Value>, value: Value) -> Value {
        if self.redefined.contains_key(&value) {
            return self.reaching.at_end(ir, id, value);
        }
        if ir.op(value) == &Op::Parameter && self.reaching.is_new_parameter(value) {
            return value;
        }
        if let Some(known) = self.at_hand.get(value.0 as usize).copied().flatten() {
            return known;
        }
        let Instruction { mut op, ty } = ir.instructions[value.0 as usize].clone();
        debug_assert!(op.is_pure(), "v{} cannot be computed twice", value.0);
        op.map_operands(|operand| self.read(ir, id, new, operand));
        let copy = ir.add(op, ty);
        new.push(copy);
        self.define(value, copy);
        // Values computed from this copy before may be computed from it again.
        self.define(copy, copy);
        copy
    }

    fn define(&mut self, value: Value, copy: Value) {
        let at = value.0 as usize;
        self.at_hand.resize(self.at_hand.len().max(at + 1), None);
        let before = self.at_hand[at].replace(copy);
        self.undo.push((value, before));
    }

    fn forget(&mut self, undone: usize) {
        for (value, before) in self.undo.drain(undone..).rev() {
            self.at_hand[value.0 as usize] = before;
        }
    }
}
