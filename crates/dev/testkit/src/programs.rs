//! Random classic BPF programs.
//!
//! ```text
//! program    := instruction{1,30} ret            valid by construction: jumps stay inside, cells and shifts in bounds
//! wild_insn  := any bits                         mostly refused
//! ```

use tapline_bpf::Insn;

use crate::random::Random;

// The instruction set, as `linux/bpf_common.h` has it.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;
const K: u16 = 0x00;
const X: u16 = 0x08;
const A: u16 = 0x10;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;

/// Offset of ancillary data (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;

/// Codes of every kind, so that random programs are mostly valid.
const CODES: [u16; 32] = [
    LD | W | ABS,
    LD | H | ABS,
    LD | B | ABS,
    LD | W | IND,
    LD | H | IND,
    LD | B | IND,
    LD | LEN,
    LD | IMM,
    LD | MEM,
    LDX | IMM,
    LDX | MEM,
    LDX | B | MSH,
    ST,
    STX,
    ALU | ADD | X,
    ALU | SUB | K,
    ALU | MUL | X,
    ALU | DIV | X,
    ALU | MOD | X,
    ALU | AND | K,
    ALU | OR | X,
    ALU | XOR | K,
    ALU | LSH | X,
    ALU | RSH | K,
    ALU | NEG,
    MISC | TAX,
    MISC | TXA,
    JMP | JEQ | K,
    JMP | JGT | K,
    JMP | JGE | X,
    JMP | JSET | K,
    JMP | JA,
];

fn insn(code: u16, k: u32) -> Insn {
    Insn { code, jt: 0, jf: 0, k }
}

/// An instruction with `room` instructions behind it.
fn random_insn(random: &mut Random, room: usize) -> Insn {
    let code = *random.pick(&CODES);
    let small = random.below(40) as u32;
    let reach = |random: &mut Random| random.below(room.min(6) as u64) as u8;
    match code & 0x07 {
        JMP if code == JMP | JA => insn(code, reach(random).into()),
        JMP => Insn { code, jt: reach(random), jf: reach(random), k: small },
        ST | STX => insn(code, small % 16),
        LD | LDX if code & 0xe0 == MEM => insn(code, small % 16),
        ALU if code & 0xf0 == RSH => insn(code, small % 32),
        _ if random.one_of(1, 20) => insn(code, random.bits() as u32 % ANCILLARY),
        _ => insn(code, small),
    }
}

/// A valid program.
pub fn program(random: &mut Random) -> Vec<Insn> {
    let len = random.between(1..=30) as usize;
    let mut insns: Vec<Insn> = (0..len).map(|at| random_insn(random, len - at)).collect();
    insns.push(if random.one_of(1, 2) { insn(RET | A, 0) } else { insn(RET | K, 7) });
    insns
}

/// Any bits, half of the time with a code of the instruction set.
pub fn wild_insn(random: &mut Random) -> Insn {
    let bits = random.bits();
    let code = if bits & 1 == 0 { (bits >> 8) as u16 } else { *random.pick(&CODES) };
    let k = *random.pick(&[0, 1, 15, 16, 31, 32, 0x7fff_ffff, ANCILLARY, 0xffff_ffff, (bits >> 32) as u32]);
    Insn { code, jt: (bits >> 24) as u8 % 5, jf: (bits >> 28) as u8 % 5, k }
}
