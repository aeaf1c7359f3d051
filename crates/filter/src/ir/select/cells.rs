//! Which values stand in scratch cells, and in which.
//!
//! ```text
//! a block's first parameter                    A at the block's start; a cell from then on
//! other parameters                             a cell, written on the way there
//! long and read more than once                 a cell, written where it is defined
//! all others                                   computed where they are read
//! ```
//!
//! A value's cell is its own from the first block that may write it to the last that may read it, in the blocks' order. There is
//! no way back, so that holds all blocks between.

use super::{Unsupported, header_len};
use crate::cfg;
use crate::ir::{BlockId, Ir, Op, Value};

/// A value that is read more than once and takes so many instructions is kept in a cell.
const LONG: u32 = 4;

/// Where values stand.
pub(super) struct Cells {
    /// For each value its cell, if it has one.
    cell: Vec<Option<u8>>,
    /// For each value whether it is a parameter that arrives in A.
    in_a: Vec<bool>,
    /// Cells from here on hold nothing beyond a block.
    pub(super) first_free: u8,
}

/// The first and the last block, by their places in the order, between which a cell is taken.
#[derive(Clone, Copy)]
struct Range {
    from: usize,
    to: usize,
}

impl Cells {
    pub(super) fn of(&self, value: Value) -> Option<u8> {
        self.cell[value.0 as usize]
    }

    pub(super) fn arrives_in_a(&self, value: Value) -> bool {
        self.in_a[value.0 as usize]
    }

    /// Gives cells to what needs one.
    pub(super) fn assign(ir: &Ir, order: &[BlockId]) -> Result<Cells, Unsupported> {
        let kept = kept(ir, order);
        let in_a = arriving_in_a(ir, order);
        let mut ranges: Vec<(Value, Range)> = ranges(ir, order, &kept);
        ranges.sort_by_key(|(value, range)| (range.from, *value));
        let mut cell = vec![None; ir.instructions.len()];
        let mut taken_to: Vec<usize> = Vec::new();
        for (value, range) in ranges {
            let free = taken_to.iter().position(|&to| to < range.from);
            let place = free.unwrap_or(taken_to.len());
            if place == taken_to.len() {
                taken_to.push(0);
            }
            taken_to[place] = range.to;
            cell[value.0 as usize] = Some(u8::try_from(place).map_err(|_| Unsupported::Cells)?);
        }
        if taken_to.len() > usize::from(cfg::CELLS) {
            return Err(Unsupported::Cells);
        }
        Ok(Cells { cell, in_a, first_free: taken_to.len() as u8 })
    }
}

/// Which values stand in cells.
fn kept(ir: &Ir, order: &[BlockId]) -> Vec<bool> {
    let mut reads = vec![0_u32; ir.instructions.len()];
    let mut count = |value: Value| reads[value.0 as usize] += 1;
    for &id in order {
        ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut count));
        ir[id].terminator.for_each_operand(&mut count);
    }
    let mut kept = vec![false; ir.instructions.len()];
    // How many instructions it takes to have a value in A.
    let mut length = vec![1_u32; ir.instructions.len()];
    for &id in order {
        ir[id].parameters.iter().for_each(|value| kept[value.0 as usize] = true);
        for &value in &ir[id].instructions {
            let mut sum = 1_u32;
            if !matches!(ir.op(value), Op::Const(_)) && header_len(ir, value).is_none() {
                ir.op(value).for_each_operand(|operand| {
                    let own = if ir.as_const(operand).is_some() { 0 } else { length[operand.0 as usize] };
                    sum = sum.saturating_add(own);
                });
            }
            let is_number = !ir.op(value).has_effect();
            kept[value.0 as usize] = is_number && sum >= LONG && reads[value.0 as usize] > 1;
            length[value.0 as usize] = if kept[value.0 as usize] { 1 } else { sum };
        }
    }
    kept
}

/// The parameters that arrive in A: the first of each block.
fn arriving_in_a(ir: &Ir, order: &[BlockId]) -> Vec<bool> {
    let mut in_a = vec![false; ir.instructions.len()];
    let firsts = order.iter().filter_map(|id| ir[*id].parameters.first());
    firsts.for_each(|parameter| in_a[parameter.0 as usize] = true);
    in_a
}

/// From where to where each kept value is wanted.
fn ranges(ir: &Ir, order: &[BlockId], kept: &[bool]) -> Vec<(Value, Range)> {
    let mut ranges: Vec<Option<Range>> = vec![None; ir.instructions.len()];
    for (at, &id) in order.iter().enumerate() {
        let mut extend = |value: Value| match &mut ranges[value.0 as usize] {
            Some(range) => range.to = at,
            nobody => *nobody = Some(Range { from: at, to: at }),
        };
        let block = &ir[id];
        block.parameters.iter().for_each(|value| extend(*value));
        block
            .terminator
            .for_each_target(|target| ir[target.block].parameters.iter().for_each(|value| extend(*value)));
        // What a block reads, and what it computes again for that.
        let mut work: Vec<Value> = Vec::new();
        block.terminator.for_each_operand(|value| work.push(value));
        for &value in &block.instructions {
            match ir.op(value) {
                op if op.has_effect() => op.for_each_operand(|value| work.push(value)),
                op if kept[value.0 as usize] => {
                    extend(value);
                    op.for_each_operand(|value| work.push(value));
                }
                _ => {}
            }
        }
        while let Some(value) = work.pop() {
            if kept[value.0 as usize] {
                extend(value);
            } else {
                ir.op(value).for_each_operand(|operand| work.push(operand));
            }
        }
    }
    let found = ranges.into_iter().enumerate();
    found.filter(|(at, _)| kept[*at]).filter_map(|(at, range)| Some((Value(at as u32), range?))).collect()
}
