//! Variables that are written more than once, turned into values: the value of a name in each block.
//!
//! ```text
//! R = 1          R = 2                     b1: v1 = 1      b2: v2 = 2
//!     \          /             becomes         goto b3(v1)     goto b3(v2)
//!      R = R + 1                           b3(v3): v4 = v3 + 1
//! ```
//!
//! Blocks are entered in an order in which all that lead to one come before it, back edges in loops excepted. So the
//! value of a variable at a block's start is known, or it is a parameter of the block, and no block is looked at
//! twice.

use super::{BlockId, Builder, Type, Value};

/// The values of a fixed number of variables while blocks are made.
#[derive(Debug)]
pub struct Variables {
    types: Vec<Type>,
    /// Now, in the block that is being made.
    now: Vec<Value>,
    /// At the end of each finished block.
    at_end: Vec<Box<[Value]>>,
    /// The finished blocks that lead to each block, once each.
    predecessors: Vec<Vec<BlockId>>,
    /// The variables that are parameters of each loop's header, in their order.
    looped: Vec<(BlockId, Vec<usize>)>,
}

impl Variables {
    /// Variables with their values at the start of the entry block.
    pub fn new(builder: &Builder, initial: &[Value]) -> Variables {
        Variables {
            types: initial.iter().map(|value| builder.ir().ty(*value)).collect(),
            now: initial.to_vec(),
            at_end: Vec::new(),
            predecessors: Vec::new(),
            looped: Vec::new(),
        }
    }

    /// The present value of a variable.
    pub fn get(&self, variable: usize) -> Value {
        self.now[variable]
    }

    /// Sets a variable to a new value, of its type.
    pub fn set(&mut self, variable: usize, value: Value) {
        self.now[variable] = value;
    }

    /// Starts a block to which every edge is finished. A variable that is not `wanted` and arrives differently keeps
    /// any of its values.
    pub fn enter(&mut self, builder: &mut Builder, block: BlockId, wanted: impl Fn(usize) -> bool) {
        builder.switch_to(block);
        let Some(predecessors) = self.predecessors.get(block.0 as usize) else { return };
        let Some((&first, others)) = predecessors.split_first() else { return };
        self.now.copy_from_slice(&self.at_end[first.0 as usize]);
        for variable in 0..self.now.len() {
            let same = |other: &BlockId| self.at_end[other.0 as usize][variable] == self.now[variable];
            if !others.iter().all(same) && wanted(variable) {
                for &predecessor in predecessors {
                    let value = self.at_end[predecessor.0 as usize][variable];
                    give(builder, predecessor, block, value);
                }
                self.now[variable] = builder.parameter(block, self.types[variable]);
            }
        }
    }

    /// Starts the header of a loop: every edge into the loop is finished, those back are not. The variables for which
    /// `assigned` holds may change in the loop.
    pub fn enter_loop(&mut self, builder: &mut Builder, header: BlockId, assigned: impl Fn(usize) -> bool) {
        self.enter(builder, header, |_| true);
        let changing: Vec<usize> = (0..self.now.len()).filter(|variable| assigned(*variable)).collect();
        let known = &builder.ir()[header].parameters.clone();
        for &variable in &changing {
            if known.contains(&self.now[variable]) {
                continue;
            }
            let value = self.now[variable];
            for &predecessor in &self.predecessors[header.0 as usize] {
                give(builder, predecessor, header, value);
            }
            self.now[variable] = builder.parameter(header, self.types[variable]);
        }
        // The parameters' order, to find their arguments at the end.
        let parameters = &builder.ir()[header].parameters;
        let variable_of = |parameter: &Value| self.now.iter().position(|value| value == parameter);
        let order = parameters.iter().filter_map(variable_of).collect();
        self.looped.push((header, order));
    }

    /// Ends the current block, whose terminator is set.
    pub fn leave(&mut self, builder: &Builder) {
        let block = builder.current();
        let blocks = builder.ir().blocks.len();
        self.at_end.resize(blocks, Box::default());
        self.predecessors.resize(blocks, Vec::new());
        self.at_end[block.0 as usize] = self.now.as_slice().into();
        builder.ir()[block].terminator.for_each_target(|target| {
            let known = &mut self.predecessors[target.block.0 as usize];
            if known.last() != Some(&block) {
                known.push(block);
            }
        });
    }

    /// Ends a loop: every edge back to its header is finished.
    pub fn close_loop(&mut self, builder: &mut Builder, header: BlockId) {
        let Some(at) = self.looped.iter().position(|(block, _)| *block == header) else { return };
        let (_, order) = self.looped.swap_remove(at);
        for &predecessor in &self.predecessors[header.0 as usize] {
            for (place, &variable) in order.iter().enumerate() {
                let value = self.at_end[predecessor.0 as usize][variable];
                give_at(builder, predecessor, header, place, value);
            }
        }
    }
}

/// Adds an argument to each edge from one block to another.
fn give(builder: &mut Builder, from: BlockId, to: BlockId, value: Value) {
    builder.ir_mut()[from].terminator.for_each_target_mut(|target| {
        if target.block == to {
            target.arguments.push(value);
        }
    });
}

/// Adds the argument of this number where it is still missing.
fn give_at(builder: &mut Builder, from: BlockId, to: BlockId, place: usize, value: Value) {
    builder.ir_mut()[from].terminator.for_each_target_mut(|target| {
        if target.block == to && target.arguments.len() == place {
            target.arguments.push(value);
        }
    });
}
