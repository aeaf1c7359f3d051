//! Loop-invariant code motion: a value that is the same in every round of a loop is computed once, before the loop.
//!
//! ```text
//! b1: goto b2(0)                          b1: v3 = M[4]; goto b2(0)
//! b2(v1): v3 = M[4]; v4 = v1 >= v3 ...    b2(v1): v4 = v1 >= v3 ...
//! ```
//!
//! Only from a loop's first block, which is run if the loop is, and neither loads, whose guards would have to come
//! along, nor divisions. A cell may be read once for all rounds if the loop writes none and calls nothing: its owner
//! promises no order.

use crate::{Binary, Block, BlockId, Dominators, Ir, Loop, Op, Target, Terminator, Value};

/// Moves invariant values out of loops.
pub(super) fn hoist(ir: &mut Ir) -> bool {
    if ir.loops.is_empty() {
        return false;
    }
    let dominators = Dominators::new(ir);
    let loops: Vec<Loop> = ir.loops.iter().copied().filter(|one| dominators.reaches(one.header)).collect();
    let mut changed = false;
    for one in loops {
        let body = dominators.body(one.header);
        let moved = unchanging(ir, &body);
        if !moved.is_empty() {
            ir[one.header].instructions.retain(|value| !moved.contains(value));
            put_before(ir, one.header, &body, moved, &dominators);
            changed = true;
        }
    }
    changed
}

/// The instructions of the first block that give the same in every round, with the constants that they read.
fn unchanging(ir: &Ir, body: &[BlockId]) -> Vec<Value> {
    let mut inside = vec![false; ir.instructions.len()];
    for &id in body {
        ir[id]
            .parameters
            .iter()
            .chain(&ir[id].instructions)
            .for_each(|value| inside[value.0 as usize] = true);
    }
    let writes = |value: &Value| matches!(ir.op(*value), Op::SetCell(..) | Op::Call(..));
    let keeps_cells = !body.iter().flat_map(|id| &ir[*id].instructions).any(writes);
    let mut moved = Vec::new();
    for &value in &ir[body[0]].instructions {
        let op = ir.op(value);
        let may_move = match op {
            Op::Cell(_) => keeps_cells,
            Op::Load(..) | Op::Binary(Binary::Div | Binary::Mod, ..) => false,
            op => op.is_pure(),
        };
        let mut is_same = may_move;
        op.for_each_operand(|operand| is_same &= !inside[operand.0 as usize]);
        if is_same {
            inside[value.0 as usize] = false;
            moved.push(value);
        }
    }
    // Constants alone are not a gain, and are not computed.
    let is_gain = moved.iter().any(|value| ir.as_const(*value).is_none());
    if is_gain { moved } else { Vec::new() }
}

/// A new block on the edges into the loop.
fn put_before(ir: &mut Ir, header: BlockId, body: &[BlockId], moved: Vec<Value>, dominators: &Dominators) {
    let types: Vec<_> = ir[header].parameters.iter().map(|parameter| ir.ty(*parameter)).collect();
    let parameters: Vec<Value> = types.into_iter().map(|ty| ir.add(Op::Parameter, ty)).collect();
    let terminator = Terminator::Goto(Target { block: header, arguments: parameters.clone() });
    let before = ir.add_block(Block { parameters, instructions: moved, terminator });
    let known = ir.blocks.len() - 1;
    // Ways into this loop from the block before another one are found by looking at all blocks.
    let from: Vec<BlockId> = (0..known as u32).map(BlockId).filter(|id| !body.contains(id)).collect();
    for id in
        from.into_iter().filter(|id| dominators.place.get(id.0 as usize).is_none_or(|at| *at != u32::MAX))
    {
        ir[id].terminator.for_each_target_mut(|target| {
            if target.block == header {
                target.block = before;
            }
        });
    }
}
