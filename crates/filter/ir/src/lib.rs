//! The intermediate form: a control-flow graph of SSA values, between all languages and all targets.
//!
//! ```text
//! pcap-filter text --generate--> cfg::Cfg --raise--+
//! classic BPF program ---decode--> cfg::Cfg -raise--+--> Ir --optimise--> interpreter, native code, eBPF
//! FPL text -------------------------------lower----+
//!
//! ir          := block* entry, cells, functions, loops
//! block       := parameter* instruction* terminator
//! instruction := value = op                                   -- u32 and u64 numbers, unsigned unless an op says otherwise
//! op          := const | field | load place width order | binary | compare | extend | truncate
//!              | need place-end | nonzero value               -- guards: reject the packet unless they hold
//!              | cell index | set-cell index value | call function(arguments)   -- state: FPL only
//! place       := offset | value + offset                      -- bytes from the packet's start
//! terminator  := goto target | branch test ? target : target | switch value {k: target} else target | return value
//! target      := block(argument*)                             -- one argument for each parameter of the block
//! ```
//!
//! A value is defined once and means the same wherever it is read: a packet does not change while its filter runs. To
//! reject is to return 0. Guards are separate from the instructions that they guard, so that they can be merged and
//! moved: a load is allowed only where guards on all paths to it have shown that its bytes are there, and a division
//! only where its divisor is a constant other than 0 or guarded; [`Ir::verify`] proves both, and engines run only
//! verified graphs. Guards may be made stricter or moved to an earlier place only if no packet that was accepted is
//! then rejected, and, with state, if no effect is then left out.
//!
//! Graphs from filters have no edge back to a block that was run; graphs from FPL may, to the [`Loop`]s that they
//! declare.

#![forbid(unsafe_code)]

mod block;
mod build;
mod compiled;
mod dominators;
mod interpret;
mod op;
pub mod optimise;
mod raise;
mod range;
mod reaching;
mod ssa;
mod state;
mod text;
mod verify;
mod weaken;

pub use block::{Block, Case, Loop, SwitchSearch, Target, Terminator};
pub use build::Builder;
pub use compiled::CompiledFilter;
pub use dominators::Dominators;
pub use interpret::Machine;
pub use op::{Binary, ByteOrder, Comparison, Instruction, MetaField, Op, PacketOffset, Type, Width};
pub use raise::{raise, raise_program};
pub use reaching::ReachingDefinitions;
pub use ssa::Variables;
pub use state::{Function, Memory};
pub use verify::{Coverage, VerifyError};
pub use weaken::{WeakerBounds, weaken};

use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// A value's number: an index into [`Ir::instructions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u32);

/// A block's number: an index into [`Ir::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A filter or an FPL program. Blocks that no edge leads to are allowed and cost nothing.
#[derive(Clone, Debug)]
pub struct Ir {
    /// All values, by number. An instruction that is in no block does not run.
    pub instructions: Vec<Instruction>,
    /// In no order that matters.
    pub blocks: Vec<Block>,
    /// The block where a run starts; has no parameters.
    pub entry: BlockId,
    /// Number of memory cells: a power of two, or 0 for a program without memory.
    pub cells: u32,
    /// Functions that [`Op::Call`] names by number.
    pub functions: Vec<Arc<dyn Function>>,
    /// The loops; none for filters.
    pub loops: Vec<Loop>,
}

impl Ir {
    /// A graph that returns `k` for every packet.
    pub fn constant(k: u32) -> Ir {
        let mut builder = Builder::new();
        let entry = builder.block();
        builder.switch_to(entry);
        let value = builder.const32(k);
        builder.finish(Terminator::Return(value));
        builder.build(entry)
    }

    /// Whether runs leave state behind or depend on the state of others: such a program is more than a filter.
    pub fn has_state(&self) -> bool {
        let stateful = |op: &Op| matches!(op, Op::Cell(_) | Op::SetCell(..) | Op::Call(..));
        self.blocks.iter().flat_map(|block| &block.instructions).any(|value| stateful(self.op(*value)))
    }

    /// The operation that computes a value.
    pub fn op(&self, value: Value) -> &Op {
        &self.instructions[value.0 as usize].op
    }

    /// A value's type.
    pub fn ty(&self, value: Value) -> Type {
        self.instructions[value.0 as usize].ty
    }

    /// The number behind a value, if it is a constant.
    pub fn as_const(&self, value: Value) -> Option<u64> {
        match self.op(value) {
            Op::Const(k) => Some(*k),
            _ => None,
        }
    }

    /// A new value, in no block yet.
    pub fn add(&mut self, op: Op, ty: Type) -> Value {
        self.instructions.push(Instruction { op, ty });
        Value((self.instructions.len() - 1) as u32)
    }

    /// A new block.
    pub fn add_block(&mut self, block: Block) -> BlockId {
        self.blocks.push(block);
        BlockId((self.blocks.len() - 1) as u32)
    }

    /// Reads `same[v]` wherever `v` was read, and follows chains of replacements.
    pub fn replace(&mut self, same: &[Value]) {
        let last = |mut value: Value| {
            while same[value.0 as usize] != value {
                value = same[value.0 as usize];
            }
            value
        };
        for id in self.order() {
            for at in 0..self[id].instructions.len() {
                let value = self[id].instructions[at];
                self.instructions[value.0 as usize].op.map_operands(last);
            }
            self[id].terminator.map_operands(last);
        }
    }

    /// Whether the block does nothing but reject.
    pub fn only_rejects(&self, id: BlockId) -> bool {
        let block = &self[id];
        block.instructions.iter().all(|value| matches!(self.op(*value), Op::Const(_)))
            && matches!(block.terminator, Terminator::Return(value) if self.as_const(value) == Some(0))
    }

    /// The blocks that the entry reaches, each before those it leads to, except on back edges in loops.
    pub fn order(&self) -> Vec<BlockId> {
        let mut seen = vec![false; self.blocks.len()];
        let mut done = Vec::with_capacity(self.blocks.len());
        let mut stack = vec![(self.entry, false)];
        while let Some((id, left)) = stack.pop() {
            if left {
                done.push(id);
            } else if !std::mem::replace(&mut seen[id.0 as usize], true) {
                stack.push((id, true));
                self[id].terminator.for_each_target(|target| {
                    if !seen[target.block.0 as usize] {
                        stack.push((target.block, false));
                    }
                });
            }
        }
        done.reverse();
        done
    }
}

impl Index<BlockId> for Ir {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }
}

impl IndexMut<BlockId> for Ir {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }
}
