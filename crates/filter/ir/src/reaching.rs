//! Reaching definitions: those of a value that reach a block, once edges or copies of blocks have given the value
//! more than one.
//!
//! ```text
//! b1(v5): ...            a new edge b0 -> b2 leaves b1 out, and says that v5 is v3 there
//! b2: v6 = v5 + 1        becomes   b1: goto b2(v5)   b0: goto b2(v3)   b2(v7): v6 = v7 + 1
//! ```
//!
//! Computed on demand, after Braun and others, "Simple and efficient construction of static single assignment form"
//! (2013): a block with one predecessor takes the definition from it, one where paths join gets a parameter. Blocks
//! where no definition is asked for get none.

use rustc_hash::FxHashMap as Map;

use super::{BlockId, Dominators, Ir, Op, Value};

/// The definitions of some values, by block.
#[derive(Debug)]
pub struct ReachingDefinitions {
    /// The blocks that lead to each block, once each.
    predecessors: Vec<Vec<BlockId>>,
    /// The definition that a value has at the end of a block: given, or found.
    at_end: Map<(BlockId, Value), Value>,
    /// The definition that a value has at the start of a block where paths join.
    at_start: Map<(BlockId, Value), Value>,
    /// Values below this number are the graph's own.
    own: u32,
}

impl ReachingDefinitions {
    /// For a graph whose edges will not change any more.
    pub fn new(ir: &Ir, dominators: &Dominators) -> ReachingDefinitions {
        let mut predecessors = dominators.predecessors.clone();
        for known in &mut predecessors {
            known.sort_unstable();
            known.dedup();
        }
        let own = ir.instructions.len() as u32;
        ReachingDefinitions { predecessors, at_end: Map::default(), at_start: Map::default(), own }
    }

    /// From this block on, `value` is called `by`.
    pub fn define(&mut self, block: BlockId, value: Value, by: Value) {
        self.at_end.insert((block, value), by);
    }

    /// Whether a value is a parameter that was made here.
    pub fn is_new_parameter(&self, value: Value) -> bool {
        value.0 >= self.own
    }

    /// Replaces the reads of values for which `is_defined` holds by their definitions, except in the blocks to be
    /// skipped. No block that reads one may define one.
    pub fn rewrite(
        &mut self,
        ir: &mut Ir,
        order: &[BlockId],
        is_defined: impl Fn(Value) -> bool,
        skips: impl Fn(BlockId) -> bool,
    ) {
        for &id in order.iter().filter(|id| !skips(**id)) {
            let mut read = Vec::new();
            let mut note = |value: Value| read.push(value);
            ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut note));
            ir[id].terminator.for_each_operand(&mut note);
            read.retain(|value| is_defined(*value));
            let known: Map<Value, Value> =
                read.into_iter().map(|value| (value, self.at_end(ir, id, value))).collect();
            if known.is_empty() {
                continue;
            }
            let of = |value: Value| known.get(&value).copied().unwrap_or(value);
            for at in 0..ir[id].instructions.len() {
                let value = ir[id].instructions[at];
                ir.instructions[value.0 as usize].op.map_operands(of);
            }
            ir[id].terminator.map_operands(of);
        }
    }

    /// The definition of a value that reaches the end of a block. Every path to the block must have one.
    pub fn at_end(&mut self, ir: &mut Ir, block: BlockId, value: Value) -> Value {
        let mut met = Vec::new();
        let found = self.look(ir, block, value, &mut met);
        while let Some(meeting) = met.pop() {
            for at in 0..self.predecessors[meeting.0 as usize].len() {
                let from = self.predecessors[meeting.0 as usize][at];
                let argument = self.look(ir, from, value, &mut met);
                ir[from].terminator.for_each_target_mut(|target| {
                    if target.block == meeting {
                        target.arguments.push(argument);
                    }
                });
            }
        }
        found
    }

    /// Looks up a definition; where paths join, a parameter is made whose arguments are found later.
    fn look(&mut self, ir: &mut Ir, block: BlockId, value: Value, met: &mut Vec<BlockId>) -> Value {
        let mut here = block;
        let found = loop {
            if let Some(&known) = self.at_end.get(&(here, value)) {
                break known;
            }
            match self.predecessors[here.0 as usize][..] {
                [before] => here = before,
                // Undefined at the entry: a fault of the caller, which the proof finds.
                [] => break value,
                _ => break self.meeting(ir, here, value, met),
            }
        };
        self.at_end.insert((block, value), found);
        found
    }

    fn meeting(&mut self, ir: &mut Ir, block: BlockId, value: Value, met: &mut Vec<BlockId>) -> Value {
        if let Some(&known) = self.at_start.get(&(block, value)) {
            return known;
        }
        let parameter = ir.add(Op::Parameter, ir.ty(value));
        ir[block].parameters.push(parameter);
        self.at_start.insert((block, value), parameter);
        met.push(block);
        parameter
    }
}
