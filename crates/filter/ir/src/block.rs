//! Blocks of instructions, the edges between them, loops.

use super::{BlockId, Comparison, Value};

/// An edge to a block, with the arguments for its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The block.
    pub block: BlockId,
    /// Values of its parameters.
    pub arguments: Vec<Value>,
}

impl Target {
    /// A block without parameters.
    pub const fn to(block: BlockId) -> Target {
        Target { block, arguments: Vec::new() }
    }
}

/// One edge out of a [`Terminator::Switch`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// The value's number.
    pub key: u64,
    /// The edge that is taken.
    pub to: Target,
}

tapline_packet::named_enum! {
    /// The method by which a switch finds its case. It decides about speed, not about the result.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SwitchSearch {
        /// Bits of one machine word for keys that lie close together, all with one target.
        Bitmap = "bitmap",
        /// A table of bits in memory, all keys with one target.
        BitTable = "bit table",
        /// A table of targets, for keys that lie close together.
        JumpTable = "jump table",
        /// By halves.
        Binary = "halves",
        /// A table in which a hash without collisions finds the only key that it can be; all with one target.
        PerfectHash = "perfect hash",
    }
}

/// The end of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Terminator {
    /// To one block.
    Goto(Target),
    /// To one of two.
    Branch {
        /// The question.
        test: Comparison,
        /// Left operand.
        left: Value,
        /// Right operand.
        right: Value,
        /// The edge taken if the condition holds.
        yes: Target,
        /// The edge taken if it does not.
        no: Target,
    },
    /// To the case whose key the value equals.
    Switch {
        /// An id: a name, number or address.
        value: Value,
        /// Ascending keys, each once.
        cases: Box<[Case]>,
        /// The edge taken if no key is equal.
        default: Target,
        /// The method of the search.
        search: SwitchSearch,
    },
    /// The end: 0 rejects the packet; other numbers are the bytes to keep (filters) or the verdict (FPL).
    Return(Value),
}

impl Terminator {
    /// Calls `visit` with each target, in the order yes, no; cases, default.
    pub fn for_each_target<'a>(&'a self, mut visit: impl FnMut(&'a Target)) {
        match self {
            Terminator::Goto(to) => visit(to),
            Terminator::Branch { yes, no, .. } => {
                visit(yes);
                visit(no);
            }
            Terminator::Switch { cases, default, .. } => {
                cases.iter().for_each(|case| visit(&case.to));
                visit(default);
            }
            Terminator::Return(_) => {}
        }
    }

    /// Visits each target with write access.
    pub fn for_each_target_mut(&mut self, mut visit: impl FnMut(&mut Target)) {
        match self {
            Terminator::Goto(to) => visit(to),
            Terminator::Branch { yes, no, .. } => {
                visit(yes);
                visit(no);
            }
            Terminator::Switch { cases, default, .. } => {
                cases.iter_mut().for_each(|case| visit(&mut case.to));
                visit(default);
            }
            Terminator::Return(_) => {}
        }
    }

    /// Calls `visit` with each value that it reads, arguments included.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Value)) {
        match self {
            Terminator::Branch { left, right, .. } => {
                visit(*left);
                visit(*right);
            }
            Terminator::Switch { value, .. } | Terminator::Return(value) => visit(*value),
            Terminator::Goto(_) => {}
        }
        self.for_each_target(|target| target.arguments.iter().copied().for_each(&mut visit));
    }

    /// Replaces each value that it reads, arguments included.
    pub fn map_operands(&mut self, mut map: impl FnMut(Value) -> Value) {
        match self {
            Terminator::Branch { left, right, .. } => {
                *left = map(*left);
                *right = map(*right);
            }
            Terminator::Switch { value, .. } | Terminator::Return(value) => *value = map(*value),
            Terminator::Goto(_) => {}
        }
        self.for_each_target_mut(|target| target.arguments.iter_mut().for_each(|value| *value = map(*value)));
    }
}

/// Straight code and the choice at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Parameters: instructions whose op is [`Op::Parameter`], set by the edge that leads here.
    pub parameters: Vec<Value>,
    /// Run in order.
    pub instructions: Vec<Value>,
    /// Run last.
    pub terminator: Terminator,
}

/// A block that may be reached from itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block where each round starts: the only one of the loop that blocks outside lead to.
    pub header: BlockId,
    /// The most rounds, each time that the loop is entered: its back edge is taken at most this number of times.
    pub rounds_max: u64,
}
