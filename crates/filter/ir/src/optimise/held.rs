//! Values that cannot be computed a second time, and the blocks up to which they are still read.
//!
//! ```text
//! b1(v5): v6 = load8 [v5]        an edge past b1 must lead to where v5 and v6 are no longer read: to b4, not to b2;
//! b2: branch v6 == 6 ? b3 : b4   or it must pass the value of v5
//! b3: ...
//! b4: return 0
//! ```

use crate::{Binary, BlockId, Ir, Op, Type, Value};
use rustc_hash::FxHashMap as Map;

/// A value that takes more operations than this is not computed twice.
const COPIED_MAX: u32 = 6;

/// Places remembered on average, for each block of the graph, at which values are wanted.
const WANTED_PER_BLOCK: usize = 16;

/// The reason that a value cannot be computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// A parameter, whose value an edge may know.
    Parameter,
    /// Too much work, or a value that the proof knows by its number.
    Always,
}

/// The values that are read in other blocks than their own and cannot be computed there.
#[derive(Debug)]
pub(super) struct LiveValues {
    of: Vec<Vec<(Value, Stay)>>,
    /// The blocks at whose start a value will be read without its own block being passed before. Complete, or with
    /// the value in `everywhere`.
    wanted: Map<(Value, BlockId), ()>,
    everywhere: Map<Value, ()>,
}

impl LiveValues {
    pub(super) fn new(ir: &Ir, order: &[BlockId], home: &[BlockId]) -> LiveValues {
        let readers = Readers::new(ir, order, home);
        let mut held = LiveValues {
            of: vec![Vec::new(); ir.blocks.len()],
            wanted: Map::default(),
            everywhere: Map::default(),
        };
        if readers.of.is_empty() {
            return held;
        }
        let predecessors = predecessors(ir, order);
        let room = order.len() * WANTED_PER_BLOCK;
        for (value, (stay, blocks)) in readers.of {
            let home = home[value.0 as usize];
            held.of[home.0 as usize].push((value, stay));
            held.spread(value, home, blocks, &predecessors, room);
        }
        held.of.iter_mut().for_each(|values| values.sort_unstable_by_key(|(value, _)| *value));
        held
    }

    /// The values of a block that others read.
    pub(super) fn of(&self, block: BlockId) -> &[(Value, Stay)] {
        &self.of[block.0 as usize]
    }

    /// Whether a value may be read at a block or behind it.
    pub(super) fn is_wanted(&self, value: Value, block: BlockId) -> bool {
        self.wanted.contains_key(&(value, block)) || self.everywhere.contains_key(&value)
    }

    fn spread(
        &mut self,
        value: Value,
        home: BlockId,
        mut work: Vec<BlockId>,
        predecessors: &[Vec<BlockId>],
        room: usize,
    ) {
        while let Some(block) = work.pop() {
            if self.wanted.len() >= room {
                self.everywhere.insert(value, ());
                return;
            }
            if block != home && self.wanted.insert((value, block), ()).is_none() {
                work.extend(&predecessors[block.0 as usize]);
            }
        }
    }
}

struct Readers<'a> {
    home: &'a [BlockId],
    costs: Vec<u32>,
    /// The reason for which a value stays, and the blocks that read it.
    of: Map<Value, (Stay, Vec<BlockId>)>,
}

impl<'a> Readers<'a> {
    fn new(ir: &Ir, order: &[BlockId], home: &'a [BlockId]) -> Readers<'a> {
        let mut readers = Readers { home, costs: costs(ir, order), of: Map::default() };
        for &id in order {
            for value in &ir[id].instructions {
                let op = ir.op(*value);
                // The proof tells places apart by the value that they count from: such a value must stay the one it is.
                let stays = matches!(op, Op::Load(..) | Op::Need(_) | Op::NonZero(_));
                match op {
                    Op::Binary(Binary::Div | Binary::Mod, left, right) => {
                        readers.read(ir, id, *left, false);
                        readers.read(ir, id, *right, ir.as_const(*right).is_none());
                    }
                    op => op.for_each_operand(|operand| readers.read(ir, id, operand, stays)),
                }
            }
            ir[id].terminator.for_each_operand(|operand| readers.read(ir, id, operand, false));
        }
        readers
    }

    fn read(&mut self, ir: &Ir, id: BlockId, value: Value, stays: bool) {
        if self.home[value.0 as usize] == id {
            return;
        }
        if !stays && self.costs[value.0 as usize] <= COPIED_MAX {
            return self.read_for_copy(ir, id, value);
        }
        let why = if !stays && *ir.op(value) == Op::Parameter { Stay::Parameter } else { Stay::Always };
        let (stay, blocks) = self.of.entry(value).or_insert((why, Vec::new()));
        if why == Stay::Always {
            *stay = Stay::Always;
        }
        if blocks.last() != Some(&id) {
            blocks.push(id);
        }
    }

    /// A block that computes a copy of a value may have to read the operands of that value.
    fn read_for_copy(&mut self, ir: &Ir, id: BlockId, value: Value) {
        let proved = matches!(ir.op(value), Op::Load(..) | Op::Binary(Binary::Div | Binary::Mod, ..));
        ir.op(value).for_each_operand(|operand| {
            // Those of one block are computed again together.
            let known = ir.as_const(operand).is_some();
            let stays = proved && !known && self.home[operand.0 as usize] != self.home[value.0 as usize];
            self.read(ir, id, operand, stays);
        });
    }
}

fn predecessors(ir: &Ir, order: &[BlockId]) -> Vec<Vec<BlockId>> {
    let mut predecessors = vec![Vec::new(); ir.blocks.len()];
    for &id in order {
        ir[id].terminator.for_each_target(|target| predecessors[target.block.0 as usize].push(id));
    }
    predecessors
}

/// For each value how many operations it takes to compute it again; very many where that cannot be.
fn costs(ir: &Ir, order: &[BlockId]) -> Vec<u32> {
    let mut costs = vec![u32::MAX; ir.instructions.len()];
    for &id in order {
        for value in &ir[id].instructions {
            let op = ir.op(*value);
            let mut cost = u32::from(!matches!(op, Op::Const(_)));
            op.for_each_operand(|operand| cost = cost.saturating_add(costs[operand.0 as usize]));
            if op.is_pure() && ir.ty(*value) != Type::None {
                costs[value.0 as usize] = cost;
            }
        }
    }
    costs
}
