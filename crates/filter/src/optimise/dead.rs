//! Dead code: what nobody reads goes; a block with one way in joins the block before.
//!
//! ```text
//! v5 = v1 + v2            nobody reads v5: gone
//! b3(v7), nobody reads v7: the parameter and its arguments are gone
//! b4: goto b5, b5 has no other way in: b5's code moves to b4
//! ```

use crate::ir::{BlockId, Ir, Op, Terminator, Value};

/// Removes what nobody reads or reaches.
pub(super) fn dead(ir: &mut Ir) -> bool {
    let order = ir.order();
    let mut changed = join(ir, &order);
    let order = ir.order();
    let used = used(ir, &order);
    changed |= remove_parameters(ir, &order, |value| used[value.0 as usize]);
    for id in order {
        let mut instructions = std::mem::take(&mut ir[id].instructions);
        let before = instructions.len();
        instructions.retain(|value| used[value.0 as usize]);
        changed |= instructions.len() != before;
        ir[id].instructions = instructions;
    }
    changed
}

/// Which values are read, in the end, by what has an effect or decides a way.
fn used(ir: &Ir, order: &[BlockId]) -> Vec<bool> {
    let mut used = vec![false; ir.instructions.len()];
    let mut work: Vec<Value> = Vec::new();
    // An argument is read only if its parameter is.
    let mut given: Vec<Vec<Value>> = vec![Vec::new(); ir.instructions.len()];
    for &id in order {
        let block = &ir[id];
        work.extend(block.instructions.iter().filter(|value| ir.op(**value).has_effect()));
        match &block.terminator {
            Terminator::Branch { left, right, .. } => work.extend([left, right]),
            Terminator::Switch { value, .. } | Terminator::Return(value) => work.push(*value),
            Terminator::Goto(_) => {}
        }
        block.terminator.for_each_target(|target| {
            for (parameter, argument) in ir[target.block].parameters.iter().zip(&target.arguments) {
                given[parameter.0 as usize].push(*argument);
            }
        });
    }
    while let Some(value) = work.pop() {
        if !std::mem::replace(&mut used[value.0 as usize], true) {
            match ir.op(value) {
                Op::Parameter => work.append(&mut given[value.0 as usize]),
                op => op.for_each_operand(|operand| work.push(operand)),
            }
        }
    }
    used
}

/// Removes the parameters that are not kept, and what other blocks give to them.
pub(super) fn remove_parameters(ir: &mut Ir, order: &[BlockId], keep: impl Fn(Value) -> bool) -> bool {
    let kept = |value: &Value| keep(*value);
    if order.iter().all(|id| ir[*id].parameters.iter().all(kept)) {
        return false;
    }
    for &id in order {
        let mut terminator = std::mem::replace(&mut ir[id].terminator, Terminator::Return(Value(0)));
        terminator.for_each_target_mut(|target| {
            let mut parameters = ir[target.block].parameters.iter();
            target.arguments.retain(|_| parameters.next().is_some_and(kept));
        });
        ir[id].terminator = terminator;
    }
    for &id in order {
        ir[id].parameters.retain(kept);
    }
    true
}

/// Moves the code of each block that has one way in, by a goto, to the block that leads there.
fn join(ir: &mut Ir, order: &[BlockId]) -> bool {
    let mut ways_in = vec![0_u32; ir.blocks.len()];
    for &id in order {
        ir[id].terminator.for_each_target(|target| ways_in[target.block.0 as usize] += 1);
    }
    let mut same: Vec<Value> = (0..ir.instructions.len() as u32).map(Value).collect();
    let mut joined = vec![false; ir.blocks.len()];
    for &id in order {
        while !joined[id.0 as usize]
            && let Terminator::Goto(target) = &ir[id].terminator
            && ways_in[target.block.0 as usize] == 1
            && target.block != id
        {
            let target = target.clone();
            let next = &mut ir.blocks[target.block.0 as usize];
            let instructions = std::mem::take(&mut next.instructions);
            let parameters = std::mem::take(&mut next.parameters);
            let terminator = std::mem::replace(&mut next.terminator, Terminator::Return(Value(0)));
            for (parameter, argument) in parameters.iter().zip(&target.arguments) {
                same[parameter.0 as usize] = *argument;
            }
            joined[target.block.0 as usize] = true;
            ir[id].instructions.extend(instructions);
            ir[id].terminator = terminator;
        }
    }
    let changed = joined.contains(&true);
    if changed {
        ir.replace(&same);
    }
    changed
}
