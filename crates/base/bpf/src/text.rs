//! Programs as text, byte for byte as `tcpdump -d`, `-dd` and `-ddd` print them.
//!
//! ```text
//! -d    (001) jeq      #0x800           jt 2  jf 3
//! -dd   { 0x15, 0, 1, 0x00000800 },
//! -ddd  4                       the count, then
//!       21 0 1 2048             code jt jf k
//! ```

use std::fmt::Write;

use super::code::*;
use super::{Insn, ancillary};

/// The notation of a printed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpFormat {
    /// Assembly for people: `tcpdump -d`.
    Assembly,
    /// Initialisers for a C array: `tcpdump -dd`.
    C,
    /// Decimal numbers after their count, as iptables' bpf match takes them: `tcpdump -ddd`.
    Decimal,
}

pub(super) fn render(insns: &[Insn], form: DumpFormat) -> String {
    let mut out = String::new();
    if form == DumpFormat::Decimal {
        put(&mut out, format_args!("{}\n", insns.len()));
    }
    for (at, insn) in insns.iter().enumerate() {
        match form {
            DumpFormat::Assembly => put(&mut out, format_args!("{}\n", insn.assembly(at))),
            DumpFormat::C => {
                let Insn { code, jt, jf, k } = insn;
                put(&mut out, format_args!("{{ {code:#x}, {jt}, {jf}, {k:#010x} }},\n"));
            }
            DumpFormat::Decimal => {
                let Insn { code, jt, jf, k } = insn;
                put(&mut out, format_args!("{code} {jt} {jf} {k}\n"));
            }
        }
    }
    out
}

fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).expect("a String takes any text");
}

impl Insn {
    /// The line that `tcpdump -d` prints for this instruction at position `at`, without a line feed.
    pub fn assembly(&self, at: usize) -> String {
        let (name, operand) = (self.mnemonic(), self.operand(at));
        if !self.is_branch() {
            return format!("({at:03}) {name:<8} {operand}");
        }
        let (jt, jf) = (at + 1 + usize::from(self.jt), at + 1 + usize::from(self.jf));
        format!("({at:03}) {name:<8} {operand:<16} jt {jt}\tjf {jf}")
    }

    fn mnemonic(&self) -> &'static str {
        const ALU_NAMES: [&str; 11] =
            ["add", "sub", "mul", "div", "or", "and", "lsh", "rsh", "neg", "mod", "xor"];
        const JMP_NAMES: [&str; 5] = ["ja", "jeq", "jgt", "jge", "jset"];
        let op = usize::from(self.code >> 4);
        let name = match (self.class(), self.code & 0x18) {
            (LD, H) => Some("ldh"),
            (LD, B) => Some("ldb"),
            (LD, _) => Some("ld"),
            (LDX, B) => Some("ldxb"),
            (LDX, _) => Some("ldx"),
            (ST, _) => Some("st"),
            (STX, _) => Some("stx"),
            (ALU, _) => ALU_NAMES.get(op).copied(),
            (JMP, _) => JMP_NAMES.get(op).copied(),
            (RET, _) => Some("ret"),
            _ => Some(if self.code == MISC | TXA { "txa" } else { "tax" }),
        };
        name.unwrap_or("unimp")
    }

    /// Offsets and most constants print as signed numbers, masks and comparisons in hexadecimal.
    fn operand(&self, at: usize) -> String {
        let (k, signed) = (self.k, self.k as i32);
        let mode = self.code & 0xe0;
        match self.class() {
            LD if mode == ABS => match ancillary::name(k) {
                Some(name) => format!("[{name}]"),
                None => format!("[{signed}]"),
            },
            LD if mode == IND => format!("[x + {signed}]"),
            LD | LDX if mode == LEN => "#pktlen".to_owned(),
            LD | LDX if mode == MEM => format!("M[{signed}]"),
            LD | LDX if mode == IMM => format!("#{k:#x}"),
            LDX => format!("4*([{signed}]&0xf)"),
            ST | STX => format!("M[{signed}]"),
            JMP if !self.is_branch() => (at as u32).wrapping_add(1).wrapping_add(k).cast_signed().to_string(),
            ALU if self.code == ALU | NEG => String::new(),
            ALU | JMP if self.code & X != 0 => "x".to_owned(),
            JMP => format!("#{k:#x}"),
            ALU if matches!(self.code & 0xf0, AND | OR | XOR) => format!("#{k:#x}"),
            ALU => format!("#{signed}"),
            RET if self.code == RET | K => format!("#{signed}"),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tcpdump -d ip`, `-dd ip`, `-ddd ip` of tcpdump 4.99.3 on Ethernet.
    #[test]
    fn the_three_forms_of_ip() {
        let insns = [
            Insn::new(LD | H | ABS, 12),
            Insn::jump(JMP | JEQ | K, 0x800, 0, 1),
            Insn::new(RET | K, 262_144),
            Insn::new(RET | K, 0),
        ];
        let assembly = "(000) ldh      [12]\n\
                        (001) jeq      #0x800           jt 2\tjf 3\n\
                        (002) ret      #262144\n\
                        (003) ret      #0\n";
        assert_eq!(render(&insns, DumpFormat::Assembly), assembly);
        let c = "{ 0x28, 0, 0, 0x0000000c },\n\
                 { 0x15, 0, 1, 0x00000800 },\n\
                 { 0x6, 0, 0, 0x00040000 },\n\
                 { 0x6, 0, 0, 0x00000000 },\n";
        assert_eq!(render(&insns, DumpFormat::C), c);
        assert_eq!(render(&insns, DumpFormat::Decimal), "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n");
    }

    #[test]
    fn operands_by_kind() {
        let cases = [
            (Insn::new(LD | B | ABS, ancillary::VLAN_TAG_PRESENT), "(007) ldb      [vlanp]"),
            (Insn::new(LD | W | ABS, u32::MAX), "(007) ld       [-1]"),
            (Insn::new(LD | H | IND, 14), "(007) ldh      [x + 14]"),
            (Insn::new(LDX | B | MSH, 14), "(007) ldxb     4*([14]&0xf)"),
            (Insn::new(MISC | TAX, 0), "(007) tax      "),
            (Insn::new(ALU | NEG, 0), "(007) neg      "),
            (Insn::new(ALU | XOR | K, 17), "(007) xor      #0x11"),
            (Insn::new(ALU | MOD | K, 17), "(007) mod      #17"),
            (Insn::new(JMP | JA, 17), "(007) ja       25"),
            (Insn::jump(JMP | JSET | X, 0, 3, 5), "(007) jset     x                jt 11\tjf 13"),
            (Insn::new(RET | A, 0), "(007) ret      "),
        ];
        for (insn, expected) in cases {
            assert_eq!(insn.assembly(7), expected);
        }
    }
}
