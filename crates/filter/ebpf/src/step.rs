//! Steps: eBPF instructions on as many variables as one likes, before registers are given out.
//!
//! ```text
//! Ir --select--> Step* --allocate--> where each variable lives --lower--> Insn*
//! ```
//!
//! Steps are in an order in which all jumps go forward. A variable may be set in several places, if each path to a
//! reader passes one of them.

use super::count::SocketCount;
use super::front::XdpFront;
use tapline_bpf::ebpf::Label;

/// A variable that a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Variable {
    /// To be given a register, or a place on the stack. Numbers of 32 bits have a zero upper half.
    Free(u32),
    /// The program's context.
    Context,
    /// XDP: the first byte of the packet.
    Data,
    /// XDP: behind the last byte of the packet.
    DataEnd,
}

/// A value that a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Variable(Variable),
    /// Within the width of the step.
    Constant(u64),
}

impl From<Variable> for Operand {
    fn from(variable: Variable) -> Operand {
        Operand::Variable(variable)
    }
}

/// A step. `wide` is on 64 bits, else on 32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Label(Label),
    /// `to = from`
    Set {
        to: Variable,
        from: Operand,
    },
    /// `to = left op right`
    Alu {
        op: u8,
        wide: bool,
        to: Variable,
        left: Operand,
        right: Operand,
    },
    /// `to = from`, its lowest bytes in reverse order, the rest 0
    Reverse {
        to: Variable,
        from: Variable,
        bits: i32,
    },
    /// `to = *(u32 *)(context + offset)`
    Context {
        to: Variable,
        offset: i16,
    },
    /// Socket filters: `to =` packet bytes as a number in network order; ends the program with 0 if they are not
    /// there. Other registers than the callee's are lost.
    Packet {
        to: Variable,
        base: Option<Variable>,
        offset: i32,
        size: u8,
    },
    /// XDP: `to = *(size *)(pointer + offset)`
    Memory {
        to: Variable,
        pointer: Variable,
        offset: i16,
        size: u8,
    },
    /// XDP, packets of several buffers: `to =` the length of all of them. Registers as for a packet load.
    Length {
        to: Variable,
    },
    /// XDP, packets of several buffers: `to =` packet bytes in the order of memory. They are there. Registers as for a
    /// packet load.
    Gather {
        to: Variable,
        base: Option<Variable>,
        offset: u32,
        size: u8,
    },
    /// `if left test right goto to`
    Jump {
        test: u8,
        wide: bool,
        left: Operand,
        right: Operand,
        to: Label,
    },
    Goto(Label),
    /// The end with this result.
    Return(Operand),
    /// XDP: the end; to the socket of the packet's queue in a map, or this action where there is none.
    Redirect {
        map: i32,
        fallback: u32,
    },
    /// In front of AF_XDP sockets: the end, to a socket or to the stack.
    Leave {
        front: XdpFront,
        matched: bool,
    },
    /// Socket filters: counts the packet, and ends with this result. Registers are lost.
    Count {
        count: SocketCount,
        keep: Operand,
    },
}

impl Step {
    /// Calls `visit` with each variable that it reads.
    pub(super) fn for_each_read(&self, mut visit: impl FnMut(Variable)) {
        let mut operand = |operand: &Operand| {
            if let Operand::Variable(variable) = operand {
                visit(*variable);
            }
        };
        match self {
            Step::Label(_) | Step::Goto(_) => {}
            Step::Set { from, .. } | Step::Return(from) => operand(from),
            Step::Alu { left, right, .. } | Step::Jump { left, right, .. } => {
                operand(left);
                operand(right);
            }
            Step::Reverse { from, .. } => visit(*from),
            Step::Context { .. } | Step::Redirect { .. } | Step::Leave { .. } => visit(Variable::Context),
            Step::Count { keep, .. } => {
                operand(keep);
                visit(Variable::Context);
            }
            Step::Length { .. } => visit(Variable::Context),
            Step::Gather { base, .. } => {
                base.iter().copied().for_each(&mut visit);
                visit(Variable::Context);
            }
            Step::Packet { base, .. } => base.iter().copied().for_each(visit),
            Step::Memory { pointer, .. } => visit(*pointer),
        }
    }

    /// Whether registers of the callee are lost in it.
    pub(super) fn calls(&self) -> bool {
        matches!(self, Step::Packet { .. } | Step::Length { .. } | Step::Gather { .. })
    }

    /// The step with labels further on.
    pub(super) fn shifted(self, by: u32) -> Step {
        let shifted = |label: Label| Label(label.0 + by);
        match self {
            Step::Label(label) => Step::Label(shifted(label)),
            Step::Goto(to) => Step::Goto(shifted(to)),
            Step::Jump { test, wide, left, right, to } => {
                Step::Jump { test, wide, left, right, to: shifted(to) }
            }
            other => other,
        }
    }

    /// The variable that the step sets.
    pub(super) fn written(&self) -> Option<Variable> {
        match *self {
            Step::Set { to, .. }
            | Step::Alu { to, .. }
            | Step::Reverse { to, .. }
            | Step::Context { to, .. }
            | Step::Packet { to, .. }
            | Step::Length { to }
            | Step::Gather { to, .. }
            | Step::Memory { to, .. } => Some(to),
            Step::Label(_)
            | Step::Jump { .. }
            | Step::Goto(_)
            | Step::Return(_)
            | Step::Redirect { .. }
            | Step::Leave { .. }
            | Step::Count { .. } => None,
        }
    }

    /// Whether nothing goes on behind it.
    pub(super) fn is_end(&self) -> bool {
        matches!(
            self,
            Step::Goto(_) | Step::Return(_) | Step::Redirect { .. } | Step::Leave { .. } | Step::Count { .. }
        )
    }
}

/// Removes steps that cannot be reached: the verifier refuses such code. All jumps go forward, so one pass knows.
pub(super) fn reachable(steps: Vec<Step>, labels: usize) -> Vec<Step> {
    let mut is_reached = vec![false; labels];
    let mut here = true;
    let mut kept = Vec::with_capacity(steps.len());
    for step in steps {
        if let Step::Label(label) = step {
            here |= is_reached[label.0 as usize];
        }
        if !here {
            continue;
        }
        if let Step::Goto(to) | Step::Jump { to, .. } = step {
            is_reached[to.0 as usize] = true;
        }
        here = !step.is_end();
        kept.push(step);
    }
    kept
}
