//! Conditions under which a program is safe to run here, and those that the kernel adds.
//!
//! ```text
//! every code known, every jump forward and in range, last instruction a return   => it ends
//! scratch cells 0 to 15, no constant division by zero, no constant shift over 31  => it has one meaning
//! kernel: at most 4096 instructions, known ancillary offsets, scratch written before read on every path
//! ```

use thiserror::Error;

use super::code::*;
use super::{INSNS_MAX, Insn, KERNEL_INSNS_MAX, SCRATCH_CELLS, ancillary};

/// The reason that a list of instructions is not a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Invalid {
    /// No instruction at all.
    #[error("the program has no instructions")]
    Empty,
    /// More than [`INSNS_MAX`] instructions.
    #[error("the program has {len} instructions, more than the {INSNS_MAX} allowed")]
    TooLong {
        /// Length of the program.
        len: usize,
    },
    /// A code that is not in the instruction set.
    #[error("instruction {at}: unknown code {code:#x}")]
    UnknownCode {
        /// Position of the instruction, from 0.
        at: usize,
        /// Code of the instruction.
        code: u16,
    },
    /// A jump past the end, or backward (which would be a distance over 2^31).
    #[error("instruction {at}: jump by {distance} leaves the program")]
    JumpOutOfRange {
        /// Position of the jump, from 0.
        at: usize,
        /// Instructions to skip.
        distance: u32,
    },
    /// A scratch cell that does not exist.
    #[error("instruction {at}: no scratch cell M[{cell}], there are M[0] to M[15]")]
    NoSuchCell {
        /// Position of the instruction, from 0.
        at: usize,
        /// The cell.
        cell: u32,
    },
    /// A constant divisor of 0.
    #[error("instruction {at}: division by the constant 0")]
    DivisionByZero {
        /// Position of the instruction, from 0.
        at: usize,
    },
    /// A constant shift by more than 31 bits.
    #[error("instruction {at}: shift by {bits} bits, more than 31")]
    ShiftTooFar {
        /// Position of the instruction, from 0.
        at: usize,
        /// The constant.
        bits: u32,
    },
    /// The last instruction is not a return, so the program could run past its end.
    #[error("the last instruction is not a return")]
    NoReturnAtEnd,
}

/// The reason that the kernel would not take a valid program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KernelRefusal {
    /// Longer than `BPF_MAXINSNS`.
    #[error("the program has {len} instructions, the kernel takes at most {KERNEL_INSNS_MAX}")]
    TooLong {
        /// Length of the program.
        len: usize,
    },
    /// An absolute load from an offset that the kernel keeps for metadata and does not know.
    #[error("instruction {at}: the kernel has no metadata at offset {}", *.offset as i32)]
    UnknownAncillary {
        /// Position of the load, from 0.
        at: usize,
        /// Offset of the load.
        offset: u32,
    },
    /// A scratch cell that some path reads without having written it.
    #[error("instruction {at} may read M[{cell}] before it is written")]
    UnwrittenScratch {
        /// Position of the read, from 0.
        at: usize,
        /// The cell.
        cell: u32,
    },
}

pub(super) fn validate(insns: &[Insn]) -> Result<(), Invalid> {
    let last = insns.last().ok_or(Invalid::Empty)?;
    if insns.len() > INSNS_MAX {
        return Err(Invalid::TooLong { len: insns.len() });
    }
    for (at, insn) in insns.iter().enumerate() {
        check_operand(at, *insn)?;
        check_jump(at, *insn, insns.len())?;
    }
    if last.class() != RET { Err(Invalid::NoReturnAtEnd) } else { Ok(()) }
}

fn check_operand(at: usize, insn: Insn) -> Result<(), Invalid> {
    let Insn { code, k, .. } = insn;
    if !is_known(code) {
        Err(Invalid::UnknownCode { at, code })
    } else if is_scratch(code) && k as usize >= SCRATCH_CELLS {
        Err(Invalid::NoSuchCell { at, cell: k })
    } else if (code == ALU | DIV | K || code == ALU | MOD | K) && k == 0 {
        Err(Invalid::DivisionByZero { at })
    } else if (code == ALU | LSH | K || code == ALU | RSH | K) && k > 31 {
        Err(Invalid::ShiftTooFar { at, bits: k })
    } else {
        Ok(())
    }
}

fn check_jump(at: usize, insn: Insn, len: usize) -> Result<(), Invalid> {
    let distance = match insn.class() {
        JMP if insn.is_branch() => u32::from(insn.jt.max(insn.jf)),
        JMP => insn.k,
        _ => return Ok(()),
    };
    // at < len <= INSNS_MAX, so the room after it fits 32 bits.
    let room = (len - at - 1) as u32;
    if distance < room { Ok(()) } else { Err(Invalid::JumpOutOfRange { at, distance }) }
}

fn is_scratch(code: u16) -> bool {
    code == ST || code == STX || code == LD | MEM || code == LDX | MEM
}

/// The kernel's list (`chk_code_allowed` in `net/core/filter.c`), which is also libpcap's.
fn is_known(code: u16) -> bool {
    const LOADS: [u16; 13] = [
        LD | W | ABS,
        LD | H | ABS,
        LD | B | ABS,
        LD | W | IND,
        LD | H | IND,
        LD | B | IND,
        LD | W | LEN,
        LD | IMM,
        LD | MEM,
        LDX | W | LEN,
        LDX | B | MSH,
        LDX | IMM,
        LDX | MEM,
    ];
    match code & 0x07 {
        LD | LDX => LOADS.contains(&code),
        ST | STX => code == ST || code == STX,
        ALU => code <= 0xff && (code & 0xf0 <= XOR && code & 0xf0 != NEG || code == ALU | NEG),
        JMP => code == JMP | JA || code <= 0xff && (JEQ..=JSET).contains(&(code & 0xf0)),
        RET => code == RET | K || code == RET | A,
        _ => code == MISC | TAX || code == MISC | TXA,
    }
}

pub(super) fn check_for_kernel(insns: &[Insn]) -> Result<(), KernelRefusal> {
    if insns.len() > KERNEL_INSNS_MAX {
        return Err(KernelRefusal::TooLong { len: insns.len() });
    }
    for (at, insn) in insns.iter().enumerate() {
        check_ancillary(at, *insn)?;
    }
    check_scratch(insns)
}

/// `bpf_check_classic` refuses offsets at or above `SKF_AD_OFF` that are not ancillary loads.
fn check_ancillary(at: usize, insn: Insn) -> Result<(), KernelRefusal> {
    let absolute = matches!(insn.code, c if c == LD | W | ABS || c == LD | H | ABS || c == LD | B | ABS);
    if absolute && insn.k >= ancillary::BASE && ancillary::name(insn.k).is_none() {
        return Err(KernelRefusal::UnknownAncillary { at, offset: insn.k });
    }
    Ok(())
}

/// Walks forward with the set of cells that every path to each instruction has written.
///
/// `check_load_and_stores` of `net/core/filter.c` goes through the list once and does not restart behind a return:
/// the next instruction counts as following it as well.
fn check_scratch(insns: &[Insn]) -> Result<(), KernelRefusal> {
    let mut written_before = vec![u16::MAX; insns.len()];
    written_before[0] = 0;
    for (at, insn) in insns.iter().enumerate() {
        let mut written = written_before[at];
        match insn.code {
            ST | STX => written |= 1 << insn.k,
            c if is_scratch(c) && written & (1 << insn.k) == 0 => {
                return Err(KernelRefusal::UnwrittenScratch { at, cell: insn.k });
            }
            _ => {}
        }
        let behind_return = (insn.class() == RET && at + 1 < insns.len()).then_some(at + 1);
        for next in successors(at, *insn).into_iter().flatten().chain(behind_return) {
            written_before[next] &= written;
        }
    }
    Ok(())
}

fn successors(at: usize, insn: Insn) -> [Option<usize>; 2] {
    match insn.class() {
        RET => [None, None],
        JMP if insn.is_branch() => [Some(at + 1 + usize::from(insn.jt)), Some(at + 1 + usize::from(insn.jf))],
        JMP => [Some(at + 1 + insn.k as usize), None],
        _ => [Some(at + 1), None],
    }
}

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::*;

    const REJECT: Insn = Insn::new(RET | K, 0);

    fn refusal(insns: &[Insn]) -> Result<(), KernelRefusal> {
        Program::new(insns.to_vec()).expect("valid").check_for_kernel()
    }

    #[test]
    fn each_rule_names_its_instruction() {
        let cases: [(Vec<Insn>, Invalid); 9] = [
            (vec![], Invalid::Empty),
            (vec![Insn::new(LD | IMM, 0)], Invalid::NoReturnAtEnd),
            (vec![Insn::new(0xff, 0), REJECT], Invalid::UnknownCode { at: 0, code: 0xff }),
            (vec![Insn::new(JMP | JA, 1), REJECT], Invalid::JumpOutOfRange { at: 0, distance: 1 }),
            (
                vec![REJECT, Insn::new(JMP | JA, u32::MAX), REJECT],
                Invalid::JumpOutOfRange { at: 1, distance: u32::MAX },
            ),
            (
                vec![Insn::jump(JMP | JEQ | K, 1, 0, 1), REJECT],
                Invalid::JumpOutOfRange { at: 0, distance: 1 },
            ),
            (vec![Insn::new(ST, 16), REJECT], Invalid::NoSuchCell { at: 0, cell: 16 }),
            (vec![Insn::new(ALU | DIV | K, 0), REJECT], Invalid::DivisionByZero { at: 0 }),
            (vec![Insn::new(ALU | LSH | K, 32), REJECT], Invalid::ShiftTooFar { at: 0, bits: 32 }),
        ];
        for (insns, expected) in cases {
            assert_eq!(Program::new(insns).expect_err("must be refused"), expected);
        }
    }

    #[test]
    fn codes_are_those_of_the_kernels_list() {
        let known = (0..=u16::MAX).filter(|&c| is_known(c)).count();
        // 13 loads, 2 stores, 21 arithmetic, 9 jumps, 2 returns, 2 moves.
        assert_eq!(known, 49);
    }

    #[test]
    fn scratch_must_be_written_on_every_path() {
        let one_way = [Insn::jump(JMP | JEQ | K, 0, 0, 1), Insn::new(ST, 3), Insn::new(LDX | MEM, 3), REJECT];
        assert_eq!(refusal(&one_way), Err(KernelRefusal::UnwrittenScratch { at: 2, cell: 3 }));
        assert_eq!(refusal(&one_way[1..]), Ok(()));
    }

    /// The kernel would not notice that nothing goes from the return to the load.
    #[test]
    fn instructions_after_a_return_count_as_behind() {
        let insns = [
            Insn::jump(JMP | JEQ | K, 0, 0, 1),
            REJECT,
            Insn::new(ST, 3),
            Insn::jump(JMP | JEQ | K, 0, 1, 0),
            REJECT,
            Insn::new(LD | MEM, 3),
            REJECT,
        ];
        assert_eq!(refusal(&insns), Ok(()));
        let jumped = [
            Insn::jump(JMP | JEQ | K, 0, 2, 0),
            Insn::new(ST, 3),
            Insn::new(JMP | JA, 1),
            REJECT,
            Insn::new(LD | MEM, 3),
            REJECT,
        ];
        assert_eq!(refusal(&jumped), Err(KernelRefusal::UnwrittenScratch { at: 4, cell: 3 }));
    }

    #[test]
    fn the_kernel_limits_length_and_metadata_offsets() {
        let long = vec![REJECT; KERNEL_INSNS_MAX + 1];
        assert_eq!(refusal(&long), Err(KernelRefusal::TooLong { len: 4097 }));
        assert_eq!(refusal(&long[1..]), Ok(()));
        let strange = ancillary::VLAN_TPID + 4;
        let load = [Insn::new(LD | B | ABS, strange), REJECT];
        assert_eq!(refusal(&load), Err(KernelRefusal::UnknownAncillary { at: 0, offset: strange }));
    }
}
