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

/// The result of a program or helper.
pub const R0: Register = Register(0);
/// The first argument: at the start of a program, its context.
pub const R1: Register = Register(1);
/// The second argument.
pub const R2: Register = Register(2);
/// The third argument.
pub const R3: Register = Register(3);
/// The fourth argument.
pub const R4: Register = Register(4);
/// The fifth argument.
pub const R5: Register = Register(5);
/// The context, where packet loads of socket filters expect it. Keeps its value over calls, as r7 to r9 do.
pub const CONTEXT: Register = Register(6);
/// The first register of a program's own behind the context: calls leave it as it is.
pub const R7: Register = Register(7);
/// The next one.
pub const R8: Register = Register(8);
/// The last one.
pub const R9: Register = Register(9);
/// The end of the stack. Cannot be written.
pub const FRAME: Register = Register(10);

/// Destination and source of an instruction in one byte, in the order of this machine's kernel: the destination in
/// the low half on little-endian machines, in the high half on big-endian ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Registers(u8);

impl Registers {
    /// Both registers; each has 4 bits.
    pub const fn new(to: Register, from: Register) -> Registers {
        Registers(if cfg!(target_endian = "big") { to.0 << 4 | from.0 } else { from.0 << 4 | to.0 })
    }
}

/// One instruction, laid out as the kernel's `struct bpf_insn`. A constant of 64 bits takes two, the second of code 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Insn {
    /// Class, operand, operation, size and mode, see [`code`](super::code).
    pub code: u8,
    /// The destination, and the source where it is a register.
    pub registers: Registers,
    /// The distance of a jump in instructions, or of memory in bytes.
    pub offset: i16,
    /// The operand, where it is a constant; the distance of a long jump.
    pub immediate: i32,
}

impl Insn {
    const fn of(code: u8, to: Register, from: Register, offset: i16, immediate: i32) -> Insn {
        Insn { code, registers: Registers::new(to, from), offset, immediate }
    }

    /// The destination.
    pub const fn to(self) -> Register {
        Register(if cfg!(target_endian = "big") { self.registers.0 >> 4 } else { self.registers.0 & 0x0f })
    }

    /// The source register; of some instructions a number that says how to read the constant, such as
    /// [`PSEUDO_MAP_FD`].
    pub const fn from(self) -> Register {
        Register(if cfg!(target_endian = "big") { self.registers.0 & 0x0f } else { self.registers.0 >> 4 })
    }

    /// The class.
    pub const fn class(self) -> u8 {
        self.code & 0x07
    }

    /// Whether the instruction is a jump; calls and exits are none.
    pub const fn is_jump(self) -> bool {
        matches!(self.class(), JMP | JMP32) && !matches!(self.code & 0xf0, CALL | EXIT)
    }

    /// `to op= from`, of 64 bits if `wide`, else of 32.
    pub const fn alu_register(op: u8, wide: bool, to: Register, from: Register) -> Insn {
        Insn::of(alu_class(wide) | op | X, to, from, 0, 0)
    }

    /// `to op= immediate`, of 64 bits (the constant extended with its sign) if `wide`, else of 32.
    pub const fn alu_immediate(op: u8, wide: bool, to: Register, immediate: i32) -> Insn {
        Insn::of(alu_class(wide) | op | K, to, Register(0), 0, immediate)
    }

    /// `to = from`, all 64 bits.
    pub const fn copy(to: Register, from: Register) -> Insn {
        Insn::alu_register(MOV, true, to, from)
    }

    /// `to = immediate`, the upper half 0.
    pub const fn set(to: Register, immediate: u32) -> Insn {
        Insn::alu_immediate(MOV, false, to, immediate as i32)
    }

    /// `to = k`, in two instructions.
    pub const fn set_wide(to: Register, k: u64) -> [Insn; 2] {
        let low = Insn::of(LD | IMM | DOUBLE, to, Register(0), 0, k as u32 as i32);
        let high = Insn { immediate: (k >> 32) as u32 as i32, ..NOTHING };
        [low, high]
    }

    /// `to = the map of this descriptor`, in two instructions.
    pub const fn set_map(to: Register, descriptor: i32) -> [Insn; 2] {
        let low = Insn::of(LD | IMM | DOUBLE, to, PSEUDO_MAP_FD, 0, descriptor);
        [low, NOTHING]
    }

    /// `to = the address of the only value of the map of this descriptor`, in two instructions.
    pub const fn set_map_value(to: Register, descriptor: i32) -> [Insn; 2] {
        let low = Insn::of(LD | IMM | DOUBLE, to, PSEUDO_MAP_VALUE, 0, descriptor);
        [low, NOTHING]
    }

    /// `*(u64 *)(to + offset) += from`, in one step for all processors.
    pub const fn add_at(to: Register, from: Register, offset: i16) -> Insn {
        Insn::of(STX | ATOMIC | DOUBLE, to, from, offset, ADD as i32)
    }

    /// `from = *(u64 *)(to + offset)` as it was, and `*(u64 *)(to + offset) += from`, in one step for all processors.
    /// Minimum kernel: 5.12.
    pub const fn fetch_add_at(to: Register, from: Register, offset: i16) -> Insn {
        Insn::of(STX | ATOMIC | DOUBLE, to, from, offset, ADD as i32 | FETCH)
    }

    /// A jump of a known distance.
    pub const fn skip_if(test: u8, wide: bool, left: Register, immediate: i32, distance: i16) -> Insn {
        Insn { offset: distance, ..Insn::jump_immediate(test, wide, left, immediate) }
    }

    /// The lower `bits` (16, 32 or 64) of `to` in network order, the rest 0.
    pub const fn to_big_endian(to: Register, bits: i32) -> Insn {
        Insn::of(ALU | END | X, to, Register(0), 0, bits)
    }

    /// The lower `bits` (16, 32 or 64) of `to` in little-endian order, the rest 0.
    pub const fn to_little_endian(to: Register, bits: i32) -> Insn {
        Insn::of(ALU | END | K, to, Register(0), 0, bits)
    }

    /// `to = *(size *)(from + offset)`.
    pub const fn load(size: u8, to: Register, from: Register, offset: i16) -> Insn {
        Insn::of(LDX | MEM | size, to, from, offset, 0)
    }

    /// `*(u64 *)(to + offset) = from`.
    pub const fn store(to: Register, from: Register, offset: i16) -> Insn {
        Insn::of(STX | MEM | DOUBLE, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = from`.
    pub const fn store_word(to: Register, from: Register, offset: i16) -> Insn {
        Insn::of(STX | MEM | WORD, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = immediate`.
    pub const fn store_constant(to: Register, offset: i16, immediate: i32) -> Insn {
        Insn::of(ST | MEM | WORD, to, Register(0), offset, immediate)
    }

    /// `r0 =` packet bytes in network order at the constant; ends the program with 0 if they are not there.
    pub const fn packet(size: u8, offset: i32) -> Insn {
        Insn::of(LD | ABS | size, R0, Register(0), 0, offset)
    }

    /// `r0 =` packet bytes in network order at `base + offset`; ends the program with 0 if they are not there.
    pub const fn packet_from(size: u8, base: Register, offset: i32) -> Insn {
        Insn::of(LD | IND | size, R0, base, 0, offset)
    }

    /// A jump if `test` holds between two registers, compared as 64 bits if `wide`, else as 32.
    pub const fn jump_register(test: u8, wide: bool, left: Register, right: Register) -> Insn {
        Insn::of(jump_class(wide) | test | X, left, right, 0, 0)
    }

    /// A jump if `test` holds between a register and a constant, compared as 64 bits if `wide`, else as 32.
    pub const fn jump_immediate(test: u8, wide: bool, left: Register, immediate: i32) -> Insn {
        Insn::of(jump_class(wide) | test | K, left, Register(0), 0, immediate)
    }

    /// Jumps always.
    pub const GOTO: Insn = Insn { code: JMP | JA, ..NOTHING };

    /// Jumps always; the distance has 32 bits.
    pub const fn jump_long(distance: i32) -> Insn {
        Insn { code: JMP32 | JA, immediate: distance, ..NOTHING }
    }

    /// Calls a helper of the kernel.
    pub const fn call(helper: i32) -> Insn {
        Insn { code: JMP | CALL, immediate: helper, ..NOTHING }
    }

    /// Calls a function of the same program that begins `distance` instructions behind the next one. Minimum kernel:
    /// 4.16.
    pub const fn call_local(distance: i32) -> Insn {
        Insn { registers: Registers::new(R0, PSEUDO_CALL), ..Insn::call(distance) }
    }

    /// Calls a function of the kernel by its number in the kernel's type information.
    pub const fn call_kernel(function: u32) -> Insn {
        Insn { registers: Registers::new(R0, PSEUDO_KFUNC_CALL), ..Insn::call(function as i32) }
    }

    /// Ends the program; r0 is its result.
    pub const EXIT: Insn = Insn { code: JMP | EXIT, ..NOTHING };
}

const NOTHING: Insn = Insn::of(0, Register(0), Register(0), 0, 0);

/// `BPF_PSEUDO_CALL`, in place of the source register: the constant is the distance of a function of the same program.
const PSEUDO_CALL: Register = Register(1);

/// `BPF_PSEUDO_MAP_FD`, in place of the source register: the constant is the descriptor of a map.
pub const PSEUDO_MAP_FD: Register = Register(1);

/// `BPF_PSEUDO_KFUNC_CALL`, in place of the source register: the constant is the number of a function in the kernel's
/// type information (BTF). Minimum kernel: 5.13.
pub const PSEUDO_KFUNC_CALL: Register = Register(2);

/// `BPF_PSEUDO_MAP_VALUE`, in place of the source register: the constant is the descriptor of a map, and the result
/// the address of its value. Minimum kernel: 5.2.
pub const PSEUDO_MAP_VALUE: Register = Register(2);

const fn alu_class(wide: bool) -> u8 {
    if wide { ALU64 } else { ALU }
}

const fn jump_class(wide: bool) -> u8 {
    if wide { JMP } else { JMP32 }
}
