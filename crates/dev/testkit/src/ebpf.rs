//! An eBPF machine for socket filters and XDP programs, for tests without a kernel. It knows the instructions of
//! filters, and no more.
//!
//! ```text
//! instructions --run(kind, packet)--> verdict, or a panic where the verifier would refuse
//! ```
//!
//! Of the verifier's rules it checks those that one execution can show: registers and stack are written before they are
//! read, calls and loads clobber r1 to r5, and reads of packets stay inside.

use tapline_bpf::ebpf::Insn;
use tapline_packet::Packet;

/// The program type, which decides about the context in r1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `struct __sk_buff`.
    SocketFilter,
    /// `struct xdp_md`.
    Xdp,
}

// The instruction set, as `linux/bpf_common.h` and `linux/bpf.h` have it.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const X: u8 = 0x08;
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;
const BYTE: u8 = 0x10;
const DOUBLE: u8 = 0x18;
const IMM: u8 = 0x00;
const IND: u8 = 0x40;
const ADD: u8 = 0x00;
const SUB: u8 = 0x10;
const MUL: u8 = 0x20;
const DIV: u8 = 0x30;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const LSH: u8 = 0x60;
const RSH: u8 = 0x70;
const MOD: u8 = 0x90;
const XOR: u8 = 0xa0;
const MOV: u8 = 0xb0;
const ARSH: u8 = 0xc0;
const END: u8 = 0xd0;
const JA: u8 = 0x00;
const JEQ: u8 = 0x10;
const JGT: u8 = 0x20;
const JGE: u8 = 0x30;
const JSET: u8 = 0x40;
const JNE: u8 = 0x50;
const JSGT: u8 = 0x60;
const JSGE: u8 = 0x70;
const EXIT: u8 = 0x90;
const JLT: u8 = 0xa0;
const JLE: u8 = 0xb0;
const JSLT: u8 = 0xc0;
const JSLE: u8 = 0xd0;

/// Places in `struct __sk_buff` of linux/bpf.h.
mod sk_buff {
    pub(super) const LEN: i16 = 0;
    pub(super) const PKT_TYPE: i16 = 4;
    pub(super) const VLAN_PRESENT: i16 = 20;
    pub(super) const VLAN_TCI: i16 = 24;
    pub(super) const VLAN_PROTO: i16 = 28;
    pub(super) const IFINDEX: i16 = 40;
    pub(super) const HASH: i16 = 68;
}

/// Places in `struct xdp_md` of linux/bpf.h.
mod xdp_md {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const INGRESS_IFINDEX: i16 = 12;
}

/// Addresses that cannot be mistaken for each other.
const STACK_END: u64 = 0x1_0000_0000;
const PACKET: u64 = 0x2_0000_0000;
const CONTEXT: u64 = 0x3_0000_0000;

struct Machine<'a> {
    kind: Kind,
    packet: Packet<'a>,
    registers: [Option<u64>; 11],
    stack: [Option<u64>; 64],
}

/// Runs a program on a packet and returns its verdict. The packet's length is that of its captured bytes.
///
/// # Panics
/// If it does something that no program may do.
pub fn run(kind: Kind, program: &[Insn], packet: Packet<'_>) -> u32 {
    let mut registers = [None; 11];
    registers[1] = Some(CONTEXT);
    registers[10] = Some(STACK_END);
    let mut machine = Machine { kind, packet, registers, stack: [None; 64] };
    let mut at = 0_i64;
    loop {
        let insn = program[at as usize];
        at += 1;
        match insn.class() {
            LD if insn.code == LD | IMM | DOUBLE => {
                let high = program[at as usize].immediate as u32;
                machine.registers[usize::from(insn.to().0)] =
                    Some(u64::from(insn.immediate as u32) | u64::from(high) << 32);
                at += 1;
            }
            LD => match machine.packet_load(insn) {
                Some(value) => machine.registers[0] = Some(value),
                None => return 0,
            },
            LDX => machine.load(insn),
            STX => {
                let value = machine.read(insn.from().0);
                machine.stack[slot(machine.read(insn.to().0), insn)] = Some(value);
            }
            ALU | ALU64 => machine.arithmetic(insn),
            _ if insn.code == JMP | EXIT => return machine.read(0) as u32,
            _ if insn.code == JMP32 | JA => at += i64::from(insn.immediate),
            _ if machine.jumps(insn) => at += i64::from(insn.offset),
            _ => {}
        }
    }
}

fn slot(address: u64, insn: Insn) -> usize {
    let below = STACK_END.wrapping_sub(address.wrapping_add(insn.offset as u64));
    assert!(below.is_multiple_of(8) && (8..=512).contains(&below), "{insn:?}");
    (below / 8 - 1) as usize
}

impl Machine<'_> {
    fn read(&self, register: u8) -> u64 {
        self.registers[usize::from(register)]
            .unwrap_or_else(|| panic!("r{register} is read before it is written"))
    }

    fn packet_load(&mut self, insn: Insn) -> Option<u64> {
        assert_eq!((self.kind, self.read(6)), (Kind::SocketFilter, CONTEXT));
        let base = if insn.code & 0xe0 == IND { self.read(insn.from().0) } else { 0 };
        self.registers[1..=5].fill(None);
        let place = (base as i32).wrapping_add(insn.immediate);
        assert!(place >= 0, "a place that means other headers to the kernel");
        let bytes = self.packet.data.get(place as usize..)?.get(..len(insn.code))?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn load(&mut self, insn: Insn) {
        let from = self.read(insn.from().0);
        let value = if from == CONTEXT {
            self.context(insn.offset)
        } else if from > PACKET - 0x1_0000 {
            let place = from.wrapping_add(insn.offset as u64) - PACKET;
            let bytes = &self.packet.data[place as usize..][..len(insn.code)];
            bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        } else {
            self.stack[slot(from, insn)].expect("the stack is read after it was written")
        };
        self.registers[usize::from(insn.to().0)] = Some(value);
    }

    fn context(&self, offset: i16) -> u64 {
        let Packet { data, meta } = self.packet;
        let tag = meta.vlan.unwrap_or(tapline_packet::VlanTag { tpid: 0, tci: 0 });
        match (self.kind, offset) {
            (Kind::SocketFilter, sk_buff::LEN) => data.len() as u64,
            (Kind::SocketFilter, sk_buff::PKT_TYPE) => meta.packet_type.to_kernel().into(),
            (Kind::SocketFilter, sk_buff::IFINDEX) => meta.if_index.into(),
            (Kind::SocketFilter, sk_buff::HASH) => meta.rx_hash.into(),
            (Kind::SocketFilter, sk_buff::VLAN_PRESENT) => meta.vlan.is_some().into(),
            (Kind::SocketFilter, sk_buff::VLAN_TCI) => tag.tci.into(),
            (Kind::SocketFilter, sk_buff::VLAN_PROTO) => u16::from_le_bytes(tag.tpid.to_be_bytes()).into(),
            (Kind::Xdp, xdp_md::DATA) => PACKET,
            (Kind::Xdp, xdp_md::DATA_END) => PACKET + data.len() as u64,
            (Kind::Xdp, xdp_md::INGRESS_IFINDEX) => meta.if_index.into(),
            _ => panic!("no field at {offset}"),
        }
    }

    fn operand(&self, insn: Insn) -> u64 {
        if insn.code & X != 0 { self.read(insn.from().0) } else { i64::from(insn.immediate) as u64 }
    }

    fn arithmetic(&mut self, insn: Insn) {
        let (op, wide, bits) = (insn.code & 0xf0, insn.class() == ALU64, insn.immediate);
        let to = usize::from(insn.to().0);
        if op == END {
            assert_eq!(insn.code & X, X, "on little-endian machines only this order is a change");
            return self.registers[to] = Some(self.read(insn.to().0).swap_bytes() >> (64 - bits));
        }
        let right = self.operand(insn);
        let left = if op == MOV { 0 } else { self.read(insn.to().0) };
        let result = if wide {
            wide_result(op, left, right)
        } else {
            narrow_result(op, left as u32, right as u32).into()
        };
        self.registers[to] = Some(result);
    }

    fn jumps(&self, insn: Insn) -> bool {
        if insn.code == JMP | JA {
            return true;
        }
        let (left, right) = (self.read(insn.to().0), self.operand(insn));
        let (left, right, signed) = match insn.class() {
            JMP => (left, right, [left as i64, right as i64]),
            _ => {
                let (left, right) = (left as u32, right as u32);
                (left.into(), right.into(), [i64::from(left as i32), i64::from(right as i32)])
            }
        };
        match insn.code & 0xf0 {
            JEQ => left == right,
            JNE => left != right,
            JGT => left > right,
            JGE => left >= right,
            JLT => left < right,
            JLE => left <= right,
            JSET => left & right != 0,
            JSGT => signed[0] > signed[1],
            JSGE => signed[0] >= signed[1],
            JSLT => signed[0] < signed[1],
            JSLE => signed[0] <= signed[1],
            _ => panic!("{insn:?}"),
        }
    }
}

fn len(code: u8) -> usize {
    match code & 0x18 {
        BYTE => 1,
        HALF => 2,
        WORD => 4,
        _ => 8,
    }
}

fn wide_result(op: u8, left: u64, right: u64) -> u64 {
    match op {
        ADD => left.wrapping_add(right),
        SUB => left.wrapping_sub(right),
        MUL => left.wrapping_mul(right),
        DIV => left / right,
        MOD => left % right,
        OR => left | right,
        AND => left & right,
        XOR => left ^ right,
        MOV => right,
        LSH => left.checked_shl(right as u32).expect("a distance under 64"),
        RSH => left.checked_shr(right as u32).expect("a distance under 64"),
        ARSH => (left as i64).checked_shr(right as u32).expect("a distance under 64") as u64,
        _ => panic!("{op:#x}"),
    }
}

fn narrow_result(op: u8, left: u32, right: u32) -> u32 {
    match op {
        ADD => left.wrapping_add(right),
        SUB => left.wrapping_sub(right),
        MUL => left.wrapping_mul(right),
        DIV => left / right,
        MOD => left % right,
        OR => left | right,
        AND => left & right,
        XOR => left ^ right,
        MOV => right,
        LSH => left.checked_shl(right).expect("a distance under 32"),
        RSH => left.checked_shr(right).expect("a distance under 32"),
        ARSH => (left as i32).checked_shr(right).expect("a distance under 32") as u32,
        _ => panic!("{op:#x}"),
    }
}
