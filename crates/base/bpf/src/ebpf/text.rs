//! Programs as text, in the form of the kernel's verifier and of `bpftool prog dump xlated`.
//!
//! ```text
//!    0: (bf) r6 = r1
//!    1: (28) r0 = *(u16 *)skb[12]
//!    2: (56) if w0 != 0x800 goto pc+2
//! ```

use std::fmt::Write;

use super::code::*;
use super::helper;
use super::{Insn, PSEUDO_KFUNC_CALL, PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};

/// A program as text: one line for each instruction, and one for both of a constant of 64 bits.
pub fn text(insns: &[Insn]) -> String {
    let mut lines = String::new();
    let mut at = 0;
    while let Some(&insn) = insns.get(at) {
        let line = line(insn, insns.get(at + 1).copied().unwrap_or_default());
        writeln!(lines, "{at:4}: ({:02x}) {line}", insn.code).expect("a String takes any text");
        at += if insn.code == LD | IMM | DOUBLE { 2 } else { 1 };
    }
    lines
}

fn line(insn: Insn, next: Insn) -> String {
    match insn.class() {
        LD if insn.code == LD | IMM | DOUBLE => constant(insn, next),
        LD => packet(insn),
        LDX => {
            format!("r{} = *({} *)(r{} {:+})", insn.to().0, size(insn.code), insn.from().0, insn.offset)
        }
        STX if insn.code & 0xe0 == ATOMIC => {
            let fetched =
                if insn.immediate & FETCH != 0 { format!("r{} = ", insn.from().0) } else { String::new() };
            let (size, to, from) = (size(insn.code), insn.to().0, insn.from().0);
            format!("lock {fetched}*({size} *)(r{to} {:+}) += r{from}", insn.offset)
        }
        STX => format!("*({} *)(r{} {:+}) = r{}", size(insn.code), insn.to().0, insn.offset, insn.from().0),
        ST => format!("*({} *)(r{} {:+}) = {}", size(insn.code), insn.to().0, insn.offset, insn.immediate),
        ALU | ALU64 => arithmetic(insn),
        _ => jump(insn),
    }
}

fn constant(insn: Insn, next: Insn) -> String {
    if insn.from() == PSEUDO_MAP_FD {
        return format!("r{} = map[fd:{}]", insn.to().0, insn.immediate);
    }
    if insn.from() == PSEUDO_MAP_VALUE {
        return format!("r{} = map[fd:{}][0]", insn.to().0, insn.immediate);
    }
    let k = u64::from(insn.immediate as u32) | u64::from(next.immediate as u32) << 32;
    format!("r{} = {k:#x}", insn.to().0)
}

fn packet(insn: Insn) -> String {
    let size = size(insn.code);
    match insn.code & 0xe0 {
        ABS => format!("r0 = *({size} *)skb[{}]", insn.immediate),
        _ => format!("r0 = *({size} *)skb[r{} + {}]", insn.from().0, insn.immediate),
    }
}

fn size(code: u8) -> &'static str {
    match code & 0x18 {
        BYTE => "u8",
        HALF => "u16",
        WORD => "u32",
        _ => "u64",
    }
}

fn arithmetic(insn: Insn) -> String {
    let letter = if insn.class() == ALU64 { 'r' } else { 'w' };
    let to = insn.to().0;
    let operand =
        if insn.code & X != 0 { format!("{letter}{}", insn.from().0) } else { insn.immediate.to_string() };
    let sign = match insn.code & 0xf0 {
        ADD => "+=",
        SUB => "-=",
        MUL => "*=",
        DIV => "/=",
        OR => "|=",
        AND => "&=",
        LSH => "<<=",
        RSH => ">>=",
        MOD => "%=",
        XOR => "^=",
        MOV => "=",
        ARSH => "s>>=",
        NEG => return format!("{letter}{to} = -{letter}{to}"),
        _ => {
            let order = if insn.code & X != 0 { "be" } else { "le" };
            return format!("r{to} = {order}{} r{to}", insn.immediate);
        }
    };
    format!("{letter}{to} {sign} {operand}")
}

fn jump(insn: Insn) -> String {
    let sign = match insn.code & 0xf0 {
        JA if insn.class() == JMP32 => return format!("gotol pc{:+}", insn.immediate),
        JA => return format!("goto pc{:+}", insn.offset),
        EXIT => return "exit".to_owned(),
        CALL if insn.from() == PSEUDO_KFUNC_CALL => {
            return format!("call kernel-function#{}", insn.immediate);
        }
        CALL => return format!("call {}", helper(insn.immediate)),
        JEQ => "==",
        JNE => "!=",
        JGT => ">",
        JGE => ">=",
        JLT => "<",
        JLE => "<=",
        JSET => "&",
        JSGT => "s>",
        JSGE => "s>=",
        JSLT => "s<",
        _ => "s<=",
    };
    let letter = if insn.class() == JMP { 'r' } else { 'w' };
    let operand = if insn.code & X != 0 {
        format!("{letter}{}", insn.from().0)
    } else {
        format!("{:#x}", insn.immediate)
    };
    format!("if {letter}{} {sign} {operand} goto pc{:+}", insn.to().0, insn.offset)
}

fn helper(number: i32) -> String {
    let name = match number {
        helper::MAP_LOOKUP_ELEM => "map_lookup_elem",
        helper::GET_SMP_PROCESSOR_ID => "get_smp_processor_id",
        helper::TAIL_CALL => "tail_call",
        helper::REDIRECT_MAP => "redirect_map",
        helper::XDP_ADJUST_META => "xdp_adjust_meta",
        helper::XDP_ADJUST_TAIL => "xdp_adjust_tail",
        helper::XDP_STORE_BYTES => "xdp_store_bytes",
        _ => return format!("helper#{number}"),
    };
    format!("bpf_{name}#{number}")
}
