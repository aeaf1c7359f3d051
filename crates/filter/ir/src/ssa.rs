//! Variables that are written more than once, turned into values: the value of a name in each block.
//!
//! ```text
//! R = 1          R = 2                     b1: v1 = 1      b2: v2 = 2
//!     \          /             becomes         goto b3(v1)     goto b3(v2)
//!      R = R + 1                           b3(v3): v4 = v3 + 1
//! ```
//!
//! Blocks are entered in an order in which all that lead to one come before it: there are no loops. So the value of a
//! variable at a block's start is known, or it is a parameter of the block, and no block is looked at twice.

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
}

impl Variables {
    /// Variables with their values at the start of the entry block.
    pub fn new(builder: &Builder, initial: &[Value]) -> Variables {
        Variables {
            types: initial.iter().map(|value| builder.ir().ty(*value)).collect(),
            now: initial.to_vec(),
            at_end: Vec::new(),
            predecessors: Vec::new(),
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
}

/// Adds an argument to each edge from one block to another.
fn give(builder: &mut Builder, from: BlockId, to: BlockId, value: Value) {
    builder.ir_mut()[from].terminator.for_each_target_mut(|target| {
        if target.block == to {
            target.arguments.push(value);
        }
    });
}
