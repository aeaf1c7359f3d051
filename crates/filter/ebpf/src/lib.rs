//! eBPF: filters for the kernel, without classic BPF's limits.
//!
//! ```text
//! Ir --unroll--> Ir without loops --select--> Step* --allocate--> registers and stack --lower--> Insn*, labels --assemble--> Program
//! ```
//!
//! | file | content |
//! |---|---|
//! | `unroll` | loops, round by round |
//! | `step` | instructions on variables |
//! | `select` | blocks, branches, searches, arithmetic |
//! | `packet`, `xdp` | packet bytes and metadata, for each kind of program |
//! | `front` | the program around a filter in front of AF_XDP sockets: redirection to the socket, counters, the stop flag |
//! | `count` | the end of a filter that counts at a socket |
//! | `share` | packets to members of a fanout group, fragments with their flow |
//! | `notes` | the driver's metadata of a packet, noted in front of it |
//! | `allocate`, `lower` | registers for variables |
//!
//! Two kinds of program come out. A socket filter returns how many bytes of the packet to keep, as classic BPF does:
//! its verdict on a packet is that of the interpreter. An XDP program returns the action for the packet, before the
//! kernel's stack sees it. Loading them is not done here: this crate makes no system call.

#![forbid(unsafe_code)]

mod allocate;
mod count;
mod front;
mod lower;
mod notes;
mod packet;
mod select;
mod share;
mod step;
mod unroll;
mod xdp;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub use count::SocketCount;
pub use front::{XdpFront, front, weaker_fronts};
pub use notes::{RxMetadata, RxMetadataCalls};
pub use share::{FlowShare, flow_share};

use allocate::{Locations, Pool};
use lower::Lowering;
use step::{Operand, Step, Variable};
use tapline_bpf::ebpf::{Assembler, Insn, Label, R0, R2, R3, helper, text, xdp_action};
use tapline_ir::Ir;

/// The most instructions that a kernel takes from a process with the right to load programs
/// (`BPF_COMPLEXITY_LIMIT_INSNS`), since 5.2.
pub const KERNEL_INSNS_MAX: usize = 1_000_000;

/// The verdict of an XDP program on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAction {
    /// Throws it away.
    Drop,
    /// Lets the kernel's stack have it.
    Pass,
    /// Gives it to the socket that a map of AF_XDP sockets holds under the number of the packet's receive queue.
    /// Minimum kernel: 5.3.
    Redirect {
        /// The map's descriptor, in the process that loads the program.
        map: i32,
        /// Whether the stack gets packets of queues without a socket; else they are dropped.
        else_pass: bool,
    },
}

impl XdpAction {
    /// The number that drops (`XDP_DROP`).
    pub const DROP: u32 = xdp_action::DROP;
    /// The number that passes (`XDP_PASS`).
    pub const PASS: u32 = xdp_action::PASS;

    fn end(self) -> Step {
        match self {
            XdpAction::Drop => Step::Return(Operand::Constant(XdpAction::DROP.into())),
            XdpAction::Pass => Step::Return(Operand::Constant(XdpAction::PASS.into())),
            XdpAction::Redirect { map, else_pass } => {
                let fallback = if else_pass { XdpAction::PASS } else { XdpAction::DROP };
                Step::Redirect { map, fallback }
            }
        }
    }
}

/// The place in the kernel where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// At a socket (`BPF_PROG_TYPE_SOCKET_FILTER`): returns the bytes to keep.
    SocketFilter,
    /// A filter that also samples and counts the accepted packets, whether the socket gets them or not.
    Count(SocketCount),
    /// At an interface, before the stack (`BPF_PROG_TYPE_XDP`): returns an action. Lengths are those of the packet's
    /// first buffer, and packets have at most 65535 bytes; a VLAN tag is in the bytes if the adapter leaves it there.
    Xdp {
        /// Action on packets that the filter accepts.
        matched: XdpAction,
        /// Action on the others.
        unmatched: XdpAction,
    },
    /// A filter in front of AF_XDP sockets: accepted packets go to them, the rest to the stack, and both are counted.
    Front(XdpFront),
}

/// The reason that a filter cannot be made as eBPF.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The program has memory cells or calls functions.
    #[error("the program keeps state or calls functions; only filters without run in the kernel")]
    State,
    /// The kernel's programs go forward only, and a loop has too many rounds to be written out.
    #[error(
        "a loop of up to {rounds} rounds is too long for the kernel; give it less to do, or run the program outside"
    )]
    TooManyRounds {
        /// The most rounds of the loop.
        rounds: u64,
    },
    /// An XDP program needs a field that the stack finds out later.
    #[error(
        "the filter asks for {field}, which is not known before the kernel's stack; compile it as for a file, or run it at a socket"
    )]
    NotBeforeTheStack {
        /// The field that the filter reads.
        field: &'static str,
    },
    /// More values are needed at once than fit into registers and stack.
    #[error(
        "the filter needs {needed} values at once beside the registers, the kernel's stack has room for 64; split it"
    )]
    TooManyValues {
        /// Number of bytes that it needs.
        needed: usize,
    },
    /// A sample of blocks that are too long.
    #[error("the kernel samples blocks of at most 2,147,483,647 packets")]
    LongBlocks,
    /// More instructions than the kernel takes.
    #[error("the filter is {len} instructions long, the kernel takes at most {KERNEL_INSNS_MAX}; split it")]
    TooLong {
        /// Number of instructions.
        len: usize,
    },
}

/// A program for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    insns: Box<[Insn]>,
    hook: Hook,
}

impl Program {
    /// The instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// The hook for which it was made.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// The program as text, a line for each instruction, in the form of the kernel's verifier.
    pub fn text(&self) -> String {
        text(&self.insns)
    }
}

/// The filter as a program for the kernel. The graph must have passed [`Ir::verify`].
///
/// # Errors
/// [`EmitError`] says why there is none.
///
/// ```
/// use tapline_ebpf::{Hook, emit};
/// use tapline_ir::Ir;
/// let program = emit(&Ir::constant(96), Hook::SocketFilter)?;
/// assert_eq!(program.text(), "   0: (b4) w0 = 96\n   1: (95) exit\n");
/// # Ok::<(), tapline_ebpf::EmitError>(())
/// ```
pub fn emit(ir: &Ir, hook: Hook) -> Result<Program, EmitError> {
    if ir.has_state() {
        return Err(EmitError::State);
    }
    if let Hook::Count(SocketCount { sample: Some(sample), .. }) = hook
        && sample.under() > SocketCount::BLOCK_MAX
    {
        return Err(EmitError::LongBlocks);
    }
    let unrolled = if ir.loops.is_empty() { None } else { Some(unroll::unroll(ir)?) };
    let ir = unrolled.as_ref().unwrap_or(ir);
    let is_xdp = matches!(hook, Hook::Xdp { .. } | Hook::Front(_));
    let several = matches!(hook, Hook::Front(XdpFront { several: true, .. }));
    let Form { steps, homes, labels, has_context } = Form::new(ir, &hook, several, false)?;
    let mut lowering = Lowering { assembler: Assembler::default(), homes };
    if let Hook::Front(front) = hook {
        lowering.heed_stop(&front);
    }
    if several {
        let gathering = Form::new(ir, &hook, true, true)?;
        let there = Label((labels + gathering.labels) as u32);
        lowering.part_several(there);
        steps.iter().for_each(|step| lowering.step(step));
        lowering.assembler.label(there);
        lowering.homes = gathering.homes;
        gathering.steps.iter().for_each(|step| lowering.step(&step.shifted(labels as u32)));
    } else {
        lowering.prologue(has_context, is_xdp && steps.iter().any(needs_packet));
        steps.iter().for_each(|step| lowering.step(step));
    }
    let insns = lowering.assembler.finish().ok_or(EmitError::TooLong { len: usize::MAX })?;
    if insns.len() > KERNEL_INSNS_MAX {
        return Err(EmitError::TooLong { len: insns.len() });
    }
    Ok(Program { insns: insns.into_boxed_slice(), hook })
}

/// A filter's steps in one form, and the homes of their variables.
struct Form {
    steps: Vec<Step>,
    homes: Locations,
    labels: usize,
    has_context: bool,
}

impl Form {
    /// `keeps_context` says that the context is kept in any case; `gathers`, that packets have several buffers.
    fn new(ir: &Ir, hook: &Hook, keeps_context: bool, gathers: bool) -> Result<Form, EmitError> {
        let selected = select::select(ir, hook, gathers)?;
        let steps = step::reachable(selected.steps, selected.labels);
        let has_context = keeps_context || steps.iter().any(needs_context);
        let is_xdp = matches!(hook, Hook::Xdp { .. } | Hook::Front(_));
        let pool = if gathers { GATHERING } else { pool(is_xdp, has_context) };
        let homes = allocate::allocate(&steps, selected.variables, pool)
            .map_err(|needed| EmitError::TooManyValues { needed })?;
        Ok(Form { steps, homes, labels: selected.labels, has_context })
    }
}

/// A program of six instructions that goes on with the program under number 0 of a map of programs, and returns 0
/// where there is none.
///
/// Sockets are charged for the length of the program that is attached to them; this one replaces one of any length.
pub fn trampoline(map: i32) -> Program {
    let mut insns = Insn::set_map(R2, map).to_vec();
    insns.extend([Insn::set(R3, 0), Insn::call(helper::TAIL_CALL), Insn::set(R0, 0), Insn::EXIT]);
    Program { insns: insns.into_boxed_slice(), hook: Hook::SocketFilter }
}

/// Pool of programs that copy bytes of several buffers.
const GATHERING: Pool = Pool { lost: &[2, 3, 4, 5], kept: &[7, 8, 9], has_scratch: true };

fn pool(is_xdp: bool, has_context: bool) -> Pool {
    match (is_xdp, has_context) {
        // Nothing is lost in XDP: no helper is called but at the end.
        (true, true) => Pool { lost: &[], kept: &[2, 3, 4, 5, 9], has_scratch: false },
        (true, false) => Pool { lost: &[], kept: &[2, 3, 4, 5, 6, 9], has_scratch: false },
        (false, _) => Pool { lost: &[2, 3, 4, 5], kept: &[7, 8, 9], has_scratch: false },
    }
}

fn needs_context(step: &Step) -> bool {
    matches!(
        step,
        Step::Packet { .. }
            | Step::Context { .. }
            | Step::Redirect { .. }
            | Step::Leave { .. }
            | Step::Count { .. }
            | Step::Length { .. }
            | Step::Gather { .. }
    )
}

fn needs_packet(step: &Step) -> bool {
    let mut found = false;
    step.for_each_read(|variable| found |= matches!(variable, Variable::Data | Variable::DataEnd));
    found
}
