//! Dead code: unread values go; a block with one edge into it joins the block before.
//!
//! ```text
//! v5 = v1 + v2            v5 is unread: gone
//! b3(v7), v7 is unread: the parameter and its arguments are gone
//! b4: goto b5, no other edge leads to b5: its code moves to b4
//! branch v1 ? b6 : b6     no choice: goto b6; and an edge to a block that does nothing but go on goes on at once
//! ```

use crate::{Block, BlockId, Ir, Op, Target, Terminator, Value};
use rustc_hash::FxHashMap as Map;

/// Removes values that are unread and blocks that are unreachable.
pub(super) fn dead(ir: &mut Ir) -> bool {
    let order = ir.order();
    let mut changed = shorten(ir, &order);
    let order = ir.order();
    changed |= join(ir, &order);
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

/// Leads edges past blocks that do nothing, and takes choices away that choose nothing. It starts at the ends, so
/// that earlier blocks see later ones that became empty.
fn shorten(ir: &mut Ir, order: &[BlockId]) -> bool {
    let mut changed = false;
    let is_empty = empty(ir, order);
    for &id in order.iter().rev() {
        let mut terminator = std::mem::replace(&mut ir[id].terminator, Terminator::Return(Value(0)));
        terminator.for_each_target_mut(|target| {
            if is_empty[target.block.0 as usize]
                && let Some(next) = passed_on(ir, id, target.block)
            {
                (*target, changed) = (next, true);
            }
        });
        if let Terminator::Switch { cases, default, .. } = &mut terminator {
            let before = cases.len();
            let mut kept = std::mem::take(cases).into_vec();
            kept.retain(|case| !is_same_way(ir, &case.to, default));
            changed |= kept.len() != before;
            *cases = kept.into();
        }
        let only = match &terminator {
            Terminator::Branch { yes, no, .. } if is_same_way(ir, yes, no) => Some(yes.clone()),
            Terminator::Switch { cases, default, .. } if cases.is_empty() => Some(default.clone()),
            _ => None,
        };
        changed |= only.is_some();
        ir[id].terminator = only.map_or(terminator, Terminator::Goto);
    }
    changed
}

/// The blocks that do nothing but go on, and have nothing that others read.
fn empty(ir: &Ir, order: &[BlockId]) -> Vec<bool> {
    let goes_on = |block: &Block| {
        matches!(block.terminator, Terminator::Goto(_))
            && block.parameters.is_empty()
            && block.instructions.iter().all(|value| ir.as_const(*value).is_some())
    };
    let mut is_empty = vec![false; ir.blocks.len()];
    let mut home: Map<Value, BlockId> = Map::default();
    for &id in order.iter().filter(|id| goes_on(&ir[**id])) {
        is_empty[id.0 as usize] = true;
        home.extend(ir[id].instructions.iter().map(|value| (*value, id)));
    }
    for &id in order.iter().filter(|_| !home.is_empty()) {
        let mut read = |value: Value| {
            if let Some(home) = home.get(&value).filter(|home| **home != id) {
                is_empty[home.0 as usize] = false;
            }
        };
        ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut read));
        ir[id].terminator.for_each_operand(&mut read);
    }
    is_empty
}

/// The final target of an edge to an empty block.
fn passed_on(ir: &mut Ir, from: BlockId, id: BlockId) -> Option<Target> {
    let Terminator::Goto(next) = &ir[id].terminator else { return None };
    let is_loop = |id: BlockId| ir.loops.iter().any(|one| one.header == id);
    if is_loop(id) {
        return None;
    }
    let mut next = next.clone();
    for argument in &mut next.arguments {
        if let Some(k) = ir.as_const(*argument) {
            *argument = ir.add(Op::Const(k), ir.ty(*argument));
            ir[from].instructions.push(*argument);
        }
    }
    Some(next)
}

/// Whether two edges are one, but for the names of constants.
fn is_same_way(ir: &Ir, one: &Target, other: &Target) -> bool {
    let same = |(a, b): (&Value, &Value)| {
        a == b || ir.ty(*a) == ir.ty(*b) && ir.as_const(*a).is_some() && ir.as_const(*a) == ir.as_const(*b)
    };
    one.block == other.block && one.arguments.iter().zip(&other.arguments).all(same)
}

/// The values that are read, in the end, by an operation with an effect or by a branch.
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

/// Removes the parameters that are not kept, and the arguments that other blocks pass to them.
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

/// Moves the code of each block with one incoming edge, a goto, to the block that leads there.
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
