//! The parts of an instruction's code, to be joined with `|`: numbers of linux/bpf.h and linux/bpf_common.h.

/// Class: loads of constants and of socket filters' packet bytes.
pub const LD: u8 = 0x00;
/// Class: loads from memory.
pub const LDX: u8 = 0x01;
/// Class: stores of constants.
pub const ST: u8 = 0x02;
/// Class: stores of registers.
pub const STX: u8 = 0x03;
/// Class: arithmetic on 32 bits; the upper half of the result is 0.
pub const ALU: u8 = 0x04;
/// Class: jumps that compare 64 bits.
pub const JMP: u8 = 0x05;
/// Class: jumps that compare 32 bits, and the long jump.
pub const JMP32: u8 = 0x06;
/// Class: arithmetic on 64 bits.
pub const ALU64: u8 = 0x07;

/// Operand: the constant. With [`END`]: to little-endian.
pub const K: u8 = 0x00;
/// Operand: the source register. With [`END`]: to network order.
pub const X: u8 = 0x08;

/// Size: 4 bytes.
pub const WORD: u8 = 0x00;
/// Size: 2 bytes.
pub const HALF: u8 = 0x08;
/// Size: 1 byte.
pub const BYTE: u8 = 0x10;
/// Size: 8 bytes.
pub const DOUBLE: u8 = 0x18;

/// Mode: a constant of 64 bits.
pub const IMM: u8 = 0x00;
/// Mode: packet bytes at a constant.
pub const ABS: u8 = 0x20;
/// Mode: packet bytes at a register and a constant.
pub const IND: u8 = 0x40;
/// Mode: memory at a register and the offset.
pub const MEM: u8 = 0x60;

/// Mode: memory at a register and the offset, changed in one step for all processors.
pub const ATOMIC: u8 = 0xc0;
/// Flag in the constant of an atomic operation: the source register receives the former value.
pub const FETCH: i32 = 0x01;

/// Arithmetic: to += operand.
pub const ADD: u8 = 0x00;
/// Arithmetic: to -= operand.
pub const SUB: u8 = 0x10;
/// Arithmetic: to *= operand.
pub const MUL: u8 = 0x20;
/// Arithmetic: to /= operand, unsigned.
pub const DIV: u8 = 0x30;
/// Arithmetic: to |= operand.
pub const OR: u8 = 0x40;
/// Arithmetic: to &= operand.
pub const AND: u8 = 0x50;
/// Arithmetic: to <<= operand.
pub const LSH: u8 = 0x60;
/// Arithmetic: to >>= operand, unsigned.
pub const RSH: u8 = 0x70;
/// Arithmetic: to = -to.
pub const NEG: u8 = 0x80;
/// Arithmetic: to %= operand, unsigned.
pub const MOD: u8 = 0x90;
/// Arithmetic: to ^= operand.
pub const XOR: u8 = 0xa0;
/// Arithmetic: to = operand.
pub const MOV: u8 = 0xb0;
/// Arithmetic: to >>= operand, signed.
pub const ARSH: u8 = 0xc0;
/// Arithmetic: byte order; the constant says of how many bits.
pub const END: u8 = 0xd0;

/// Jump: always.
pub const JA: u8 = 0x00;
/// Jump: equal.
pub const JEQ: u8 = 0x10;
/// Jump: greater, unsigned.
pub const JGT: u8 = 0x20;
/// Jump: greater or equal, unsigned.
pub const JGE: u8 = 0x30;
/// Jump: a bit in common.
pub const JSET: u8 = 0x40;
/// Jump: not equal.
pub const JNE: u8 = 0x50;
/// Jump: greater, signed.
pub const JSGT: u8 = 0x60;
/// Jump: greater or equal, signed.
pub const JSGE: u8 = 0x70;
/// A helper of the kernel is called.
pub const CALL: u8 = 0x80;
/// The end.
pub const EXIT: u8 = 0x90;
/// Jump: less, unsigned.
pub const JLT: u8 = 0xa0;
/// Jump: less or equal, unsigned.
pub const JLE: u8 = 0xb0;
/// Jump: less, signed.
pub const JSLT: u8 = 0xc0;
/// Jump: less or equal, signed.
pub const JSLE: u8 = 0xd0;
