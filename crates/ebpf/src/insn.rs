//! Instructions of eBPF and their encoding.
//!
//! ```text
//! struct bpf_insn := code:u8 registers:4+4 offset:i16 immediate:i32      of linux/bpf.h; RFC 9669 gives the meaning
//! code            := class | operand | operation                        arithmetic, jumps
//!                  | class | size | mode                                loads, stores
//! ```

use super::code::*;

/// A machine register, r0 to r10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u8);

/// What a program or helper returns.
pub(super) const R0: Register = Register(0);
/// The first argument: at the start, the context.
pub(super) const R1: Register = Register(1);
/// The second argument.
pub(super) const R2: Register = Register(2);
/// The third argument.
pub(super) const R3: Register = Register(3);
/// Where packet loads of socket filters expect the context.
pub(super) const CONTEXT: Register = Register(6);
/// The end of the stack. Cannot be written.
pub(super) const FRAME: Register = Register(10);

/// One instruction. A constant of 64 bits takes two, the second of code 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Insn {
    /// What to do.
    pub code: u8,
    /// The destination.
    pub to: Register,
    /// The source, where it is a register.
    pub from: Register,
    /// The distance of a jump in instructions, or of memory in bytes.
    pub offset: i16,
    /// The operand, where it is a constant; the distance of a long jump.
    pub immediate: i32,
}

impl Insn {
    /// The byte of both registers as this machine's kernel has it.
    pub const fn registers(self) -> u8 {
        if cfg!(target_endian = "big") { self.to.0 << 4 | self.from.0 } else { self.from.0 << 4 | self.to.0 }
    }

    /// The class.
    pub const fn class(self) -> u8 {
        self.code & 0x07
    }

    /// Whether the instruction may go on elsewhere than behind itself: jumps, not calls and exits.
    #[cfg(test)]
    pub(super) const fn is_jump(self) -> bool {
        matches!(self.class(), JMP | JMP32) && !matches!(self.code & 0xf0, CALL | EXIT)
    }

    pub(super) const fn alu_register(op: u8, wide: bool, to: Register, from: Register) -> Insn {
        Insn { code: alu_class(wide) | op | X, to, from, offset: 0, immediate: 0 }
    }

    pub(super) const fn alu_immediate(op: u8, wide: bool, to: Register, immediate: i32) -> Insn {
        Insn { code: alu_class(wide) | op | K, to, from: Register(0), offset: 0, immediate }
    }

    /// `to = from`, all 64 bits.
    pub(super) const fn copy(to: Register, from: Register) -> Insn {
        Insn::alu_register(MOV, true, to, from)
    }

    /// `to = immediate`, the upper half 0.
    pub(super) const fn set(to: Register, immediate: u32) -> Insn {
        Insn::alu_immediate(MOV, false, to, immediate as i32)
    }

    /// `to = k`, in two instructions.
    pub(super) const fn set_wide(to: Register, k: u64) -> [Insn; 2] {
        let low =
            Insn { code: LD | IMM | DOUBLE, to, from: Register(0), offset: 0, immediate: k as u32 as i32 };
        let high = Insn { immediate: (k >> 32) as u32 as i32, ..NOTHING };
        [low, high]
    }

    /// `to = the map of this descriptor`, in two instructions.
    pub(super) const fn set_map(to: Register, descriptor: i32) -> [Insn; 2] {
        let low = Insn { code: LD | IMM | DOUBLE, to, from: PSEUDO_MAP_FD, offset: 0, immediate: descriptor };
        [low, NOTHING]
    }

    /// `to = the address of the only value of the map of this descriptor`, in two instructions.
    pub(super) const fn set_map_value(to: Register, descriptor: i32) -> [Insn; 2] {
        let low =
            Insn { code: LD | IMM | DOUBLE, to, from: PSEUDO_MAP_VALUE, offset: 0, immediate: descriptor };
        [low, NOTHING]
    }

    /// `*(u64 *)(to + offset) += from`, in one step for all processors.
    pub(super) const fn add_at(to: Register, from: Register, offset: i16) -> Insn {
        Insn { code: STX | ATOMIC | DOUBLE, to, from, offset, immediate: ADD as i32 }
    }

    /// A jump of a known distance.
    pub(super) const fn skip_if(test: u8, wide: bool, left: Register, immediate: i32, distance: i16) -> Insn {
        Insn { offset: distance, ..Insn::jump_immediate(test, wide, left, immediate) }
    }

    /// `to` in network order of so many bits, the rest 0.
    pub(super) const fn network_order(to: Register, bits: i32) -> Insn {
        Insn { code: ALU | END | X, to, from: Register(0), offset: 0, immediate: bits }
    }

    /// `to` in little-endian order of so many bits, the rest 0.
    pub(super) const fn little_order(to: Register, bits: i32) -> Insn {
        Insn { code: ALU | END | K, to, from: Register(0), offset: 0, immediate: bits }
    }

    /// `to = *(size *)(from + offset)`.
    pub(super) const fn load(size: u8, to: Register, from: Register, offset: i16) -> Insn {
        Insn { code: LDX | MEM | size, to, from, offset, immediate: 0 }
    }

    /// `*(u64 *)(to + offset) = from`.
    pub(super) const fn store(to: Register, from: Register, offset: i16) -> Insn {
        Insn { code: STX | MEM | DOUBLE, to, from, offset, immediate: 0 }
    }

    /// `r0 =` packet bytes in network order at the constant; ends the program with 0 if they are not there.
    pub(super) const fn packet(size: u8, offset: i32) -> Insn {
        Insn { code: LD | ABS | size, to: R0, from: Register(0), offset: 0, immediate: offset }
    }

    /// Likewise, at the constant behind `base`.
    pub(super) const fn packet_from(size: u8, base: Register, offset: i32) -> Insn {
        Insn { code: LD | IND | size, to: R0, from: base, offset: 0, immediate: offset }
    }

    pub(super) const fn jump_register(test: u8, wide: bool, left: Register, right: Register) -> Insn {
        Insn { code: jump_class(wide) | test | X, to: left, from: right, offset: 0, immediate: 0 }
    }

    pub(super) const fn jump_immediate(test: u8, wide: bool, left: Register, immediate: i32) -> Insn {
        Insn { code: jump_class(wide) | test | K, to: left, from: Register(0), offset: 0, immediate }
    }

    /// Jumps always.
    pub(super) const GOTO: Insn = Insn { code: JMP | JA, ..NOTHING };

    /// Jumps always; the distance has 32 bits.
    pub(super) const fn goto_long(distance: i32) -> Insn {
        Insn { code: JMP32 | JA, immediate: distance, ..NOTHING }
    }

    /// Calls a helper of the kernel.
    pub(super) const fn call(helper: i32) -> Insn {
        Insn { code: JMP | CALL, immediate: helper, ..NOTHING }
    }

    /// Calls a function of the kernel by its number in the kernel's type information.
    pub(super) const fn call_kernel(function: u32) -> Insn {
        Insn { from: PSEUDO_KFUNC_CALL, ..Insn::call(function as i32) }
    }

    /// Ends the program; r0 is its result.
    pub(super) const EXIT: Insn = Insn { code: JMP | EXIT, ..NOTHING };
}

const NOTHING: Insn = Insn { code: 0, to: Register(0), from: Register(0), offset: 0, immediate: 0 };

/// `BPF_PSEUDO_MAP_FD`, in the source register's place: the constant is a map's descriptor.
pub(super) const PSEUDO_MAP_FD: Register = Register(1);

/// `BPF_PSEUDO_KFUNC_CALL`, in the source register's place: the constant is the number of a function of the kernel. Minimum kernel: 5.13.
pub(super) const PSEUDO_KFUNC_CALL: Register = Register(2);

/// `BPF_PSEUDO_MAP_VALUE`, likewise: the constant is the address of a map's value. Minimum kernel: 5.2.
pub(super) const PSEUDO_MAP_VALUE: Register = Register(2);

const fn alu_class(wide: bool) -> u8 {
    if wide { ALU64 } else { ALU }
}

const fn jump_class(wide: bool) -> u8 {
    if wide { JMP } else { JMP32 }
}
