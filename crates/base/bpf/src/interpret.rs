//! The interpreter: the reference for the meaning of a program.
//!
//! ```text
//! insns:  ldh [12]      jeq 0x800 jt jf     ldb [23]    jeq 6    jeq 17   jeq 132   ret
//! ops:    LdhJeq 12 0x800 | JeqK 0x800      Ldb 23      Among{6,17,132} | JeqK | JeqK   RetK
//! ```
//!
//! There is one decoded operation for each instruction, at the same position, so that jumps need no translation. Two
//! shapes that filters are full of are decoded to one operation which does the work of several instructions: a load
//! and the comparison after it, and a run of equality tests that all lead to the same place. The operations that they
//! replace stay in place, for jumps that enter in the middle.
//!
//! Meaning, where sources differ: a load outside of the captured bytes rejects the packet at once, and X + k never
//! wraps; division and modulo by an X of 0 reject; a shift by an X over 31 gives 0; scratch cells start as 0.

mod decode;

use tapline_packet::{Batch, Meta, Packet, Selection};

use super::code::*;
use super::{Program, SCRATCH_CELLS, ancillary};

impl Program {
    /// Runs the program on one packet: how many bytes of it to keep, 0 to reject it.
    ///
    /// `#pktlen` is the length on the wire; loads end at the captured length. Ancillary loads read the packet's
    /// [`Meta`]; a field that a capture does not hold (mark, queue, hardware type, CPU and the like) rejects the
    /// packet, as a load outside of the bytes does. `proto` is the EtherType, taken from the bytes as the kernel
    /// takes it from Ethernet.
    #[inline]
    pub fn run(&self, packet: Packet<'_>) -> u32 {
        if self.decoded.uses_scratch {
            self.decoded.run::<true>(packet)
        } else {
            self.decoded.run::<false>(packet)
        }
    }

    /// Keeps in `selection` the packets of `batch` that the program accepts.
    ///
    /// # Panics
    /// If `selection` holds an index that the batch does not have.
    pub fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        if self.decoded.uses_scratch {
            selection.retain(|index| self.decoded.run::<true>(batch.packet(index)) != 0);
        } else {
            selection.retain(|index| self.decoded.run::<false>(batch.packet(index)) != 0);
        }
    }
}

/// A program in the form that is run.
#[derive(Clone, Debug)]
pub(super) struct Decoded {
    ops: Box<[Op]>,
    chains: Box<[Chain]>,
    uses_scratch: bool,
}

/// An operation. Jump distances count from the operation after this one, as in [`Insn`](super::Insn).
#[derive(Clone, Copy, Debug)]
enum Op {
    LdW(u32),
    LdH(u32),
    LdB(u32),
    LdWInd(u32),
    LdHInd(u32),
    LdBInd(u32),
    LdMeta(u32),
    LdLen,
    LdImm(u32),
    LdMem(u8),
    LdxLen,
    LdxImm(u32),
    LdxMem(u8),
    LdxMsh(u32),
    St(u8),
    Stx(u8),
    AluK(Alu, u32),
    AndK(u32),
    AluX(Alu),
    Neg,
    Ja(u32),
    JeqK { jt: u8, jf: u8, k: u32 },
    JgtK { jt: u8, jf: u8, k: u32 },
    JgeK { jt: u8, jf: u8, k: u32 },
    JsetK { jt: u8, jf: u8, k: u32 },
    JeqX { jt: u8, jf: u8 },
    JgtX { jt: u8, jf: u8 },
    JgeX { jt: u8, jf: u8 },
    JsetX { jt: u8, jf: u8 },
    RetK(u32),
    RetA,
    Tax,
    Txa,
    LdWJeq { jt: u8, jf: u8, offset: u8, k: u32 },
    LdHJeq { jt: u8, jf: u8, offset: u8, k: u32 },
    LdBJeq { jt: u8, jf: u8, offset: u8, k: u32 },
    LdHJset { jt: u8, jf: u8, offset: u8, k: u32 },
    LdHIndJeq { jt: u8, jf: u8, offset: u8, k: u32 },
    Among(u32),
}

const _: () = assert!(size_of::<Op>() == 8, "an operation is as small as an instruction");

/// Arithmetic that is not worth an operation of its own.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    Xor,
}

/// A run of `jeq #k` that all lead to one place.
#[derive(Clone, Debug)]
struct Chain {
    /// Ascending, without repetition.
    constants: Box<[u32]>,
    /// Position to go on from if A is among them.
    hit: u32,
    /// Position to go on from if not.
    miss: u32,
}

/// Chains up to this length are searched without a branch; longer ones by halves.
const LINEAR_MAX: usize = 16;

/// Shorter runs of comparisons are not worth a chain.
const CHAIN_MIN: usize = 3;

/// Steps per instruction at most: chains may share their ends, and each holds a copy of them.
const CHAIN_STEPS: usize = 8;

impl Chain {
    #[inline]
    fn contains(&self, a: u32) -> bool {
        if self.constants.len() <= LINEAR_MAX {
            self.constants.iter().fold(false, |found, &k| found | (k == a))
        } else {
            self.constants.binary_search(&a).is_ok()
        }
    }
}

/// Goes on after the packet load, or rejects the packet.
macro_rules! load {
    ($bytes:expr) => {
        match $bytes {
            Some(value) => value,
            None => return 0,
        }
    };
}

impl Decoded {
    #[inline]
    fn run<const SCRATCH: bool>(&self, packet: Packet<'_>) -> u32 {
        let Packet { data, meta } = packet;
        let (mut a, mut x, mut pc) = (0_u32, 0_u32, 0_usize);
        let mut scratch = [0_u32; SCRATCH_CELLS];
        // Ends because every step goes forward; running off the end, which validation excludes, would reject.
        while let Some(&op) = self.ops.get(pc) {
            pc += 1;
            match op {
                // Loads.
                Op::LdW(k) => a = load!(word(data, 0, k)),
                Op::LdH(k) => a = load!(half(data, 0, k)),
                Op::LdB(k) => a = load!(byte(data, 0, k)),
                Op::LdWInd(k) => a = load!(word(data, x, k)),
                Op::LdHInd(k) => a = load!(half(data, x, k)),
                Op::LdBInd(k) => a = load!(byte(data, x, k)),
                Op::LdMeta(k) if k == ancillary::ALU_XOR_X => a ^= x,
                Op::LdMeta(k) => a = load!(load_ancillary(k, data, meta)),
                Op::LdLen => a = meta.wire_len,
                Op::LdImm(k) => a = k,
                Op::LdxLen => x = meta.wire_len,
                Op::LdxImm(k) => x = k,
                Op::LdxMsh(k) => x = (load!(byte(data, 0, k)) & 0x0f) << 2,

                // Scratch memory; SCRATCH is false for programs without these.
                Op::LdMem(cell) if SCRATCH => a = scratch[usize::from(cell) % SCRATCH_CELLS],
                Op::LdxMem(cell) if SCRATCH => x = scratch[usize::from(cell) % SCRATCH_CELLS],
                Op::St(cell) if SCRATCH => scratch[usize::from(cell) % SCRATCH_CELLS] = a,
                Op::Stx(cell) if SCRATCH => scratch[usize::from(cell) % SCRATCH_CELLS] = x,
                Op::LdMem(_) | Op::LdxMem(_) | Op::St(_) | Op::Stx(_) => return 0,

                // Arithmetic.
                Op::AndK(k) => a &= k,
                Op::AluK(alu, k) => a = load!(alu.apply(a, k)),
                Op::AluX(alu) => a = load!(alu.apply(a, x)),
                Op::Neg => a = a.wrapping_neg(),
                Op::Tax => x = a,
                Op::Txa => a = x,

                // Jumps.
                Op::Ja(k) => pc += k as usize,
                Op::JeqK { jt, jf, k } => pc += skip(a == k, jt, jf),
                Op::JgtK { jt, jf, k } => pc += skip(a > k, jt, jf),
                Op::JgeK { jt, jf, k } => pc += skip(a >= k, jt, jf),
                Op::JsetK { jt, jf, k } => pc += skip(a & k != 0, jt, jf),
                Op::JeqX { jt, jf } => pc += skip(a == x, jt, jf),
                Op::JgtX { jt, jf } => pc += skip(a > x, jt, jf),
                Op::JgeX { jt, jf } => pc += skip(a >= x, jt, jf),
                Op::JsetX { jt, jf } => pc += skip(a & x != 0, jt, jf),

                // Several instructions in one.
                Op::LdWJeq { jt, jf, offset, k } => {
                    a = load!(word(data, 0, offset.into()));
                    pc += skip(a == k, jt, jf);
                }
                Op::LdHJeq { jt, jf, offset, k } => {
                    a = load!(half(data, 0, offset.into()));
                    pc += skip(a == k, jt, jf);
                }
                Op::LdBJeq { jt, jf, offset, k } => {
                    a = load!(byte(data, 0, offset.into()));
                    pc += skip(a == k, jt, jf);
                }
                Op::LdHJset { jt, jf, offset, k } => {
                    a = load!(half(data, 0, offset.into()));
                    pc += skip(a & k != 0, jt, jf);
                }
                Op::LdHIndJeq { jt, jf, offset, k } => {
                    a = load!(half(data, x, offset.into()));
                    pc += skip(a == k, jt, jf);
                }
                Op::Among(index) => {
                    let chain = load!(self.chains.get(index as usize));
                    pc = if chain.contains(a) { chain.hit } else { chain.miss } as usize;
                }

                Op::RetK(k) => return k,
                Op::RetA => return a,
            }
        }
        0
    }
}

impl Alu {
    /// `None` for division by zero.
    #[inline]
    fn apply(self, a: u32, operand: u32) -> Option<u32> {
        Some(match self {
            Alu::Add => a.wrapping_add(operand),
            Alu::Sub => a.wrapping_sub(operand),
            Alu::Mul => a.wrapping_mul(operand),
            Alu::Div => return a.checked_div(operand),
            Alu::Or => a | operand,
            Alu::And => a & operand,
            Alu::Lsh => a.checked_shl(operand).unwrap_or(0),
            Alu::Rsh => a.checked_shr(operand).unwrap_or(0),
            Alu::Mod => return a.checked_rem(operand),
            Alu::Xor => a ^ operand,
        })
    }

    fn from_code(code: u16) -> Alu {
        match code & 0xf0 {
            ADD => Alu::Add,
            SUB => Alu::Sub,
            MUL => Alu::Mul,
            DIV => Alu::Div,
            OR => Alu::Or,
            AND => Alu::And,
            LSH => Alu::Lsh,
            RSH => Alu::Rsh,
            MOD => Alu::Mod,
            _ => Alu::Xor,
        }
    }
}

/// Distance of a jump. It is a branch of the machine, which it predicts, and not a selection: else each operation
/// would wait for the packet bytes that the one before compares.
#[inline(always)]
fn skip(holds: bool, jt: u8, jf: u8) -> usize {
    if holds {
        unlikely();
        usize::from(jt)
    } else {
        usize::from(jf)
    }
}

/// Marks a branch as worth predicting for the compiler.
#[cold]
#[inline]
fn unlikely() {}

#[inline(always)]
fn chunk<const N: usize>(data: &[u8], x: u32, k: u32) -> Option<&[u8; N]> {
    let start = (x as usize).checked_add(k as usize)?;
    data.get(start..)?.first_chunk()
}

#[inline(always)]
fn word(data: &[u8], x: u32, k: u32) -> Option<u32> {
    chunk(data, x, k).map(|bytes| u32::from_be_bytes(*bytes))
}

#[inline(always)]
fn half(data: &[u8], x: u32, k: u32) -> Option<u32> {
    chunk(data, x, k).map(|bytes| u16::from_be_bytes(*bytes).into())
}

#[inline(always)]
fn byte(data: &[u8], x: u32, k: u32) -> Option<u32> {
    chunk(data, x, k).map(|&[byte]| byte.into())
}

/// An ancillary load; `None` for fields that no capture of ours holds.
#[cold]
pub fn load_ancillary(k: u32, data: &[u8], meta: &Meta) -> Option<u32> {
    match k {
        ancillary::PROTOCOL => protocol(data),
        ancillary::PKTTYPE => Some(meta.packet_type.to_kernel().into()),
        ancillary::IFINDEX => Some(meta.if_index),
        ancillary::RXHASH => Some(meta.rx_hash),
        ancillary::VLAN_TAG => Some(meta.vlan.map_or(0, |tag| tag.tci.into())),
        ancillary::VLAN_TAG_PRESENT => Some(meta.vlan.is_some().into()),
        ancillary::VLAN_TPID => Some(meta.vlan.map_or(0, |tag| tag.tpid.into())),
        _ => None,
    }
}

/// `skb->protocol` as `eth_type_trans` sets it: the EtherType, or `ETH_P_802_3` (Novell's raw IPX) or `ETH_P_802_2`
/// where the field is a length.
fn protocol(data: &[u8]) -> Option<u32> {
    const RAW_802_3: u32 = 0x0001;
    const LLC_802_2: u32 = 0x0004;
    match half(data, 0, 12)? {
        ether_type @ 0x0600.. => Some(ether_type),
        _ if half(data, 0, 14) == Some(0xffff) => Some(RAW_802_3),
        _ => Some(LLC_802_2),
    }
}

#[cfg(test)]
mod tests;
