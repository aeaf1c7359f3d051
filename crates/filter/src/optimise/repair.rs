//! Makes a graph whose ways were changed one of SSA values again: what is read where it was not computed on every way to it is
//! computed there once more.
//!
//! ```text
//! b1: v1 = load16 [12]; goto b2      b2: branch v1 == 5 ? ...      a new way b0 -> b2 leaves b1 out
//! b2: v9 = load16 [12]; branch v9 == 5 ? ...
//! ```
//!
//! Only values that are the same wherever they stand can be repaired; whoever changes ways leaves out no others.

use crate::ir::{BlockId, Dominators, Instruction, Ir, Value};

/// Computes again what is read without having been computed.
pub(super) fn repair(ir: &mut Ir) {
    let dominators = Dominators::new(ir);
    let children = dominators.children();
    let mut walk = Walk { at_hand: vec![None; ir.instructions.len()], undo: Vec::new() };
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
    /// For each value what to read instead of it in the block in hand: itself, or a copy.
    at_hand: Vec<Option<Value>>,
    undo: Vec<(Value, Option<Value>)>,
}

impl Walk {
    fn block(&mut self, ir: &mut Ir, id: BlockId) {
        for at in 0..ir[id].parameters.len() {
            self.define(ir[id].parameters[at], ir[id].parameters[at]);
        }
        let old = std::mem::take(&mut ir[id].instructions);
        let mut new = Vec::with_capacity(old.len());
        for value in old {
            let mut op = ir.op(value).clone();
            op.map_operands(|operand| self.read(ir, &mut new, operand));
            ir.instructions[value.0 as usize].op = op;
            new.push(value);
            self.define(value, value);
        }
        let mut terminator = ir[id].terminator.clone();
        terminator.map_operands(|value| self.read(ir, &mut new, value));
        ir[id].terminator = terminator;
        ir[id].instructions = new;
    }

    /// What to read for a value; computes it into `new` if it is not at hand.
    fn read(&mut self, ir: &mut Ir, new: &mut Vec<Value>, value: Value) -> Value {
        if let Some(known) = self.at_hand.get(value.0 as usize).copied().flatten() {
            return known;
        }
        let Instruction { mut op, ty } = ir.instructions[value.0 as usize].clone();
        debug_assert!(op.is_pure(), "v{} cannot be computed twice", value.0);
        op.map_operands(|operand| self.read(ir, new, operand));
        let copy = ir.add(op, ty);
        new.push(copy);
        self.define(value, copy);
        // What was computed before from this copy may be computed again from it.
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
