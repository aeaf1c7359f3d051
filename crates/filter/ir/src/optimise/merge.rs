//! Equal blocks become one, and blocks from which every path rejects become the return that rejects.
//!
//! ```text
//! b7: need 58                         b7: return 0           a guard that fails rejects as well
//!     branch ... ? reject : reject
//! b3: v1 = load8 [23]                 b3 and b9 are one block, if both lead to the same
//!     branch v1 == 6 ? b5 : reject
//! b9: v8 = load8 [23]
//!     branch v8 == 6 ? b5 : reject
//! ```
//!
//! From the ends to the entry, so that blocks whose targets became one can become one in turn. An operation with an
//! effect (a store or a call) keeps a block from being a rejecting one.

use std::collections::hash_map::Entry;

use super::repair::repair;
use crate::{Block, BlockId, Ir, Op, Terminator, Type, Value};
use rustc_hash::FxHashMap as Map;

/// Makes equal blocks one.
pub(super) fn merge(ir: &mut Ir) -> bool {
    let order = ir.order();
    let mut merge = Merge {
        same: (0..ir.blocks.len() as u32).map(BlockId).collect(),
        rejects: None,
        blocks: Map::default(),
        constants: Map::default(),
        local: vec![None; ir.instructions.len()],
        fixed: fixed(ir, &order),
        changed: false,
    };
    for &id in order.iter().rev() {
        merge.block(ir, id);
    }
    if merge.changed {
        // Equal blocks may read one constant each from different blocks before them.
        repair(ir, &[]);
    }
    merge.changed
}

/// The blocks that stay the ones they are: headers of loops, and blocks of graphs with loops whose values others read.
fn fixed(ir: &Ir, order: &[BlockId]) -> Vec<bool> {
    let mut fixed = vec![false; ir.blocks.len()];
    if ir.loops.is_empty() {
        return fixed;
    }
    ir.loops.iter().for_each(|one| fixed[one.header.0 as usize] = true);
    let mut home = vec![None; ir.instructions.len()];
    for &id in order {
        for value in ir[id].parameters.iter().chain(&ir[id].instructions) {
            home[value.0 as usize] = Some(id);
        }
    }
    for &id in order {
        let mut read = |value: Value| match home[value.0 as usize] {
            Some(there) if there != id => fixed[there.0 as usize] = true,
            _ => {}
        };
        ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut read));
        ir[id].terminator.for_each_operand(&mut read);
    }
    fixed
}

/// A block's text, in which its own values and constants have numbers that say no more than their place.
type Text = (Vec<Type>, Vec<(Op, Type)>, Terminator);

struct Merge {
    /// The representative of each block.
    same: Vec<BlockId>,
    /// The block that does nothing but reject.
    rejects: Option<BlockId>,
    blocks: Map<Text, BlockId>,
    constants: Map<(u64, Type), Value>,
    local: Vec<Option<Value>>,
    fixed: Vec<bool>,
    changed: bool,
}

impl Merge {
    fn block(&mut self, ir: &mut Ir, id: BlockId) {
        let (same, rejects) = (&self.same, self.rejects);
        let mut moved = false;
        ir[id].terminator.for_each_target_mut(|target| {
            let to = same[target.block.0 as usize];
            moved |= to != target.block;
            target.block = to;
            if Some(to) == rejects {
                target.arguments.clear();
            }
        });
        self.changed |= moved;
        if self.must_reject(ir, id) {
            return self.reject(ir, id);
        }
        if self.fixed[id.0 as usize] || id == ir.entry {
            return;
        }
        let text = self.text(ir, id);
        match self.blocks.entry(text) {
            Entry::Occupied(known) => self.same[id.0 as usize] = *known.get(),
            Entry::Vacant(unknown) => drop(unknown.insert(id)),
        }
    }

    /// Whether no path from the block accepts, and none has an effect.
    fn must_reject(&self, ir: &Ir, id: BlockId) -> bool {
        let block = &ir[id];
        if block.instructions.iter().any(|value| matches!(ir.op(*value), Op::SetCell(..) | Op::Call(..))) {
            return false;
        }
        if let Terminator::Return(value) = block.terminator {
            return ir.as_const(value) == Some(0);
        }
        let mut all = true;
        block.terminator.for_each_target(|target| all &= Some(target.block) == self.rejects);
        all
    }

    /// Makes the block the one that only rejects, or leads there instead of to it.
    fn reject(&mut self, ir: &mut Ir, id: BlockId) {
        if id == ir.entry {
            return self.empty(ir, id);
        }
        let rejects = match self.rejects {
            Some(rejects) => rejects,
            None if ir[id].parameters.is_empty() => id,
            None => ir.add_block(Block {
                parameters: Vec::new(),
                instructions: Vec::new(),
                terminator: Terminator::Return(Value(u32::MAX)),
            }),
        };
        if self.rejects.is_none() {
            self.empty(ir, rejects);
        }
        self.rejects = Some(rejects);
        self.same[id.0 as usize] = rejects;
    }

    /// Leaves a block nothing but to reject.
    fn empty(&mut self, ir: &mut Ir, id: BlockId) {
        let stays = |value: &Value| ir.as_const(*value) == Some(0);
        let block = &ir[id];
        if block.instructions.len() == 1 && block.instructions.iter().all(stays) {
            return;
        }
        self.changed = true;
        let zero = ir.add(Op::Const(0), Type::U32);
        ir[id].instructions = vec![zero];
        ir[id].terminator = Terminator::Return(zero);
    }

    fn text(&mut self, ir: &Ir, id: BlockId) -> Text {
        let block = &ir[id];
        let is_constant = |value: &&Value| ir.as_const(**value).is_some();
        let own =
            || block.parameters.iter().chain(block.instructions.iter().filter(|value| !is_constant(value)));
        own().enumerate().for_each(|(place, value)| {
            self.local[value.0 as usize] = Some(Value(u32::MAX - place as u32));
        });
        let (local, constants) = (&self.local, &mut self.constants);
        let mut name = |value: Value| match *ir.op(value) {
            Op::Const(k) => {
                let next = Value(CONSTANTS + constants.len() as u32);
                *constants.entry((k, ir.ty(value))).or_insert(next)
            }
            _ => local[value.0 as usize].unwrap_or(value),
        };
        let parameters = block.parameters.iter().map(|value| ir.ty(*value)).collect();
        let instructions = own()
            .skip(block.parameters.len())
            .map(|value| {
                let mut op = ir.op(*value).clone();
                op.map_operands(&mut name);
                (op, ir.ty(*value))
            })
            .collect();
        let mut terminator = block.terminator.clone();
        terminator.map_operands(&mut name);
        own().for_each(|value| self.local[value.0 as usize] = None);
        (parameters, instructions, terminator)
    }
}

/// Constants have names from here on, far above all values, far below those that blocks give their own.
const CONSTANTS: u32 = 1 << 30;
