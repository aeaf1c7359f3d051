//! Value numbering: a value that was computed on every path to a point is not computed there again.
//!
//! ```text
//! v1 = load16 [12]; ... v7 = load16 [12]     v7 is v1, if v1's block comes before v7's on every path
//! v3 = v1 + v2; v9 = v2 + v1                 v9 is v3
//! goto b4(v1); ... goto b4(v7); b4(v5):      v5 is v1, also in loops; a constant is put into b4
//! ```
//!
//! One walk over the tree of dominators, with a table of the available values.

use super::classes::Classes;
use super::dead::remove_parameters;
use crate::{BlockId, Dominators, Ir, Op, Value};

/// Maximum number of times that a walk's findings in a graph with loops are a reason for another.
const LOOP_ROUNDS_MAX: usize = 8;

/// Reads one value for all that are equal.
pub(super) fn number(ir: &mut Ir) -> bool {
    let changed = walk(ir);
    if changed && !ir.loops.is_empty() {
        // The value of a loop's parameter is known to equal its initial one only once the loops inside are done.
        let _settled = (0..LOOP_ROUNDS_MAX).any(|_| !walk(ir));
    }
    changed
}

fn walk(ir: &mut Ir) -> bool {
    let dominators = Dominators::new(ir);
    let children = dominators.children();
    let mut walk = Walk::new(ir, Classes::new(ir, &dominators.order));
    let mut stack = vec![Step::Enter(ir.entry)];
    while let Some(step) = stack.pop() {
        match step {
            Step::Leave(undone) => walk.forget(undone),
            Step::Enter(id) => {
                stack.push(Step::Leave(walk.undo.len()));
                walk.block(ir, id);
                stack.extend(children[id.0 as usize].iter().rev().map(|&child| Step::Enter(child)));
            }
        }
    }
    if walk.changed {
        remove_parameters(ir, &dominators.order, |parameter| !walk.gone[parameter.0 as usize]);
        walk.place_constants(ir);
        ir.replace(&walk.same);
    }
    walk.changed
}

enum Step {
    Enter(BlockId),
    /// Everything below a block is done; the previous table is restored.
    Leave(usize),
}

struct Walk {
    classes: Classes,
    /// For the representative of a class, the one of its values that can be read in the current block.
    at_hand: Vec<Option<Value>>,
    undo: Vec<(Value, Option<Value>)>,
    /// The value to read for each.
    same: Vec<Value>,
    /// The parameters that go.
    gone: Vec<bool>,
    /// Parameters that become constants of their blocks.
    constants: Vec<(BlockId, Value, u64)>,
    changed: bool,
}

impl Walk {
    fn new(ir: &Ir, classes: Classes) -> Walk {
        let count = ir.instructions.len();
        Walk {
            classes,
            at_hand: vec![None; count],
            undo: Vec::new(),
            same: (0..count as u32).map(Value).collect(),
            gone: vec![false; count],
            constants: Vec::new(),
            changed: false,
        }
    }

    fn block(&mut self, ir: &mut Ir, id: BlockId) {
        for &parameter in &ir[id].parameters {
            let class = self.classes.of(parameter);
            if let Some(k) = ir.as_const(class).filter(|_| self.at_hand[class.0 as usize].is_none()) {
                self.constants.push((id, parameter, k));
                self.changed = true;
                self.gone[parameter.0 as usize] = true;
            }
            self.gone[parameter.0 as usize] |= self.is_known(parameter);
        }
        let mut instructions = std::mem::take(&mut ir[id].instructions);
        instructions.retain(|&value| !(ir.op(value).is_pure() && self.is_known(value)));
        ir[id].instructions = instructions;
    }

    /// Whether a value of the same class is at hand, to be read instead; from now on one is.
    fn is_known(&mut self, value: Value) -> bool {
        let class = self.classes.of(value);
        let slot = &mut self.at_hand[class.0 as usize];
        match *slot {
            Some(known) => {
                self.same[value.0 as usize] = known;
                self.changed = true;
                true
            }
            None => {
                self.undo.push((class, slot.replace(value)));
                false
            }
        }
    }

    fn forget(&mut self, undone: usize) {
        for (class, before) in self.undo.drain(undone..).rev() {
            self.at_hand[class.0 as usize] = before;
        }
    }

    fn place_constants(&self, ir: &mut Ir) {
        for &(id, value, k) in &self.constants {
            ir.instructions[value.0 as usize].op = Op::Const(k);
            ir[id].instructions.insert(0, value);
        }
    }
}
