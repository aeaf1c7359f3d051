//! The interpreter: the reference for what a program means.
//!
//! ```text
//! insns:  ldh [12]      jeq 0x800 jt jf     ldb [23]    jeq 6    jeq 17   jeq 132   ret
//! ops:    LdhJeq 12 0x800 | JeqK 0x800      Ldb 23      Among{6,17,132} | JeqK | JeqK   RetK
//! ```
//!
//! There is one decoded operation for each instruction, at the same position, so that jumps need no translation. Two
//! shapes that filters are full of are decoded to one operation which does the work of several instructions:
//! a load and the comparison after it, and a run of equality tests that all lead to the same place. The operations that
//! they stand for stay where they are, for jumps that enter in the middle.
//!
//! Meaning, where sources differ: a load outside of the captured bytes rejects the packet at once, and X + k never
//! wraps; division and modulo by an X of 0 reject; a shift by an X over 31 gives 0; scratch cells start as 0.

use std::collections::HashMap;

use tapline_packet::{Batch, Meta, Packet, Selection};

use super::code::*;
use super::{Insn, Program, SCRATCH_CELLS, ancillary};

impl Program {
    /// Runs the program on one packet: how many bytes of it to keep, 0 to reject it.
    ///
    /// `#pktlen` is the length on the wire; loads end at the captured length. Ancillary loads read the packet's
    /// [`Meta`]; what a capture does not hold (mark, queue, hardware type, CPU and the like) rejects the packet, as
    /// a load outside of the bytes does. `proto` is the EtherType, taken from the bytes as the kernel takes it from Ethernet.
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

/// An operation. Jump distances count from the operation after this one, as in [`Insn`].
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

/// Chains may share their ends, and each has them for itself; in all they are at most so many times as long as the program.
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
                Op::LdMeta(k) => a = load!(from_meta(k, data, meta)),
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

/// How far a jump goes. A branch of the machine, which it predicts, and no selection: else each operation would wait for the
/// packet bytes that the one before compares.
#[inline(always)]
fn skip(holds: bool, jt: u8, jf: u8) -> usize {
    if holds {
        unlikely();
        usize::from(jt)
    } else {
        usize::from(jf)
    }
}

/// Tells the compiler that a branch is worth predicting.
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

/// An ancillary load; `None` for what no capture of ours holds.
#[cold]
pub fn from_meta(k: u32, data: &[u8], meta: &Meta) -> Option<u32> {
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

/// `skb->protocol` as `eth_type_trans` sets it: the EtherType, or `ETH_P_802_3` (Novell's raw IPX) or `ETH_P_802_2` where the
/// field is a length.
fn protocol(data: &[u8]) -> Option<u32> {
    const RAW_802_3: u32 = 0x0001;
    const LLC_802_2: u32 = 0x0004;
    match half(data, 0, 12)? {
        ether_type @ 0x0600.. => Some(ether_type),
        _ if half(data, 0, 14) == Some(0xffff) => Some(RAW_802_3),
        _ => Some(LLC_802_2),
    }
}

impl Decoded {
    /// Decodes validated instructions.
    pub(super) fn new(insns: &[Insn]) -> Decoded {
        let mut ops: Vec<Op> = insns.iter().map(|insn| decode(*insn)).collect();
        let chains = find_chains(insns);
        for (index, (at, _)) in chains.iter().enumerate() {
            ops[*at] = Op::Among(index as u32);
        }
        for at in 1..ops.len() {
            if let Some(op) = fuse(ops[at - 1], ops[at]) {
                ops[at - 1] = op;
            }
        }
        let uses_scratch =
            ops.iter().any(|op| matches!(op, Op::LdMem(_) | Op::LdxMem(_) | Op::St(_) | Op::Stx(_)));
        let chains = chains.into_iter().map(|(_, chain)| chain).collect();
        Decoded { ops: ops.into_boxed_slice(), chains, uses_scratch }
    }
}

/// A load and the comparison after it, if there is an operation for both.
fn fuse(load: Op, jump: Op) -> Option<Op> {
    let small = |k: u32| u8::try_from(k).ok();
    // Distances of the fused operation count from the operation after the load.
    let longer = |jt: u8, jf: u8| Some((jt.checked_add(1)?, jf.checked_add(1)?));
    match (load, jump) {
        (Op::LdW(at), Op::JeqK { jt, jf, k }) => {
            longer(jt, jf).zip(small(at)).map(|((jt, jf), offset)| Op::LdWJeq { jt, jf, offset, k })
        }
        (Op::LdH(at), Op::JeqK { jt, jf, k }) => {
            longer(jt, jf).zip(small(at)).map(|((jt, jf), offset)| Op::LdHJeq { jt, jf, offset, k })
        }
        (Op::LdB(at), Op::JeqK { jt, jf, k }) => {
            longer(jt, jf).zip(small(at)).map(|((jt, jf), offset)| Op::LdBJeq { jt, jf, offset, k })
        }
        (Op::LdH(at), Op::JsetK { jt, jf, k }) => {
            longer(jt, jf).zip(small(at)).map(|((jt, jf), offset)| Op::LdHJset { jt, jf, offset, k })
        }
        (Op::LdHInd(at), Op::JeqK { jt, jf, k }) => {
            longer(jt, jf).zip(small(at)).map(|((jt, jf), offset)| Op::LdHIndJeq { jt, jf, offset, k })
        }
        _ => None,
    }
}

/// The runs of at least [`CHAIN_MIN`] `jeq #k` that miss to each other and lead to one place, with the position of their head.
///
/// Jumps that are too far for 8 bits go over copies of `ja` and `ret`, which may stand between the comparisons.
fn find_chains(insns: &[Insn]) -> Vec<(usize, Chain)> {
    let destinations = destinations(insns);
    let hit_of = |at: usize| destinations[at + 1 + usize::from(insns[at].jt)];
    let miss_of = |at: usize| destinations[at + 1 + usize::from(insns[at].jf)];
    let mut in_chain = vec![false; insns.len()];
    let mut steps_left = CHAIN_STEPS.saturating_mul(insns.len());
    let mut chains = Vec::new();
    for head in 0..insns.len() {
        if insns[head].code != JMP | JEQ | K || in_chain[head] {
            continue;
        }
        let mut constants = Vec::new();
        let mut next = head;
        while steps_left > 0 && insns[next].code == JMP | JEQ | K && hit_of(next) == hit_of(head) {
            steps_left -= 1;
            in_chain[next] = true;
            constants.push(insns[next].k);
            next = miss_of(next) as usize;
        }
        if constants.len() >= CHAIN_MIN {
            let chain = Chain { constants: ascending(constants), hit: hit_of(head), miss: next as u32 };
            chains.push((head, chain));
        }
    }
    chains
}

fn ascending(mut constants: Vec<u32>) -> Box<[u32]> {
    constants.sort_unstable();
    constants.dedup();
    constants.into_boxed_slice()
}

/// For each position, where a jump to it ends up: unconditional jumps followed, equal returns taken as one.
fn destinations(insns: &[Insn]) -> Vec<u32> {
    let mut returns: HashMap<Insn, u32> = HashMap::new();
    let mut destinations = vec![0; insns.len()];
    for (at, insn) in insns.iter().enumerate().rev() {
        destinations[at] = match insn.class() {
            JMP if insn.code == JMP | JA => destinations[at + 1 + insn.k as usize],
            RET => *returns.entry(Insn { jt: 0, jf: 0, ..*insn }).or_insert(at as u32),
            _ => at as u32,
        };
    }
    destinations
}

fn decode(insn: Insn) -> Op {
    let Insn { code, k, .. } = insn;
    match insn.class() {
        LD | LDX => decode_load(code, k),
        ST => Op::St(k as u8),
        STX => Op::Stx(k as u8),
        ALU if code == ALU | NEG => Op::Neg,
        ALU if code == ALU | AND | K => Op::AndK(k),
        ALU if code & X != 0 => Op::AluX(Alu::from_code(code)),
        ALU => Op::AluK(Alu::from_code(code), k),
        JMP => decode_jump(insn),
        RET if code == RET | A => Op::RetA,
        RET => Op::RetK(k),
        _ if code == MISC | TXA => Op::Txa,
        _ => Op::Tax,
    }
}

fn decode_load(code: u16, k: u32) -> Op {
    let is_x = code & 0x07 == LDX;
    match (code & 0xe0, code & 0x18) {
        (ABS, _) if ancillary::name(k).is_some() => Op::LdMeta(k),
        (ABS, H) => Op::LdH(k),
        (ABS, B) => Op::LdB(k),
        (ABS, _) => Op::LdW(k),
        (IND, H) => Op::LdHInd(k),
        (IND, B) => Op::LdBInd(k),
        (IND, _) => Op::LdWInd(k),
        (MSH, _) => Op::LdxMsh(k),
        (LEN, _) if is_x => Op::LdxLen,
        (LEN, _) => Op::LdLen,
        (MEM, _) if is_x => Op::LdxMem(k as u8),
        (MEM, _) => Op::LdMem(k as u8),
        _ if is_x => Op::LdxImm(k),
        _ => Op::LdImm(k),
    }
}

fn decode_jump(insn: Insn) -> Op {
    let Insn { code, jt, jf, k } = insn;
    match (code & 0xf0, code & X) {
        (JEQ, K) => Op::JeqK { jt, jf, k },
        (JGT, K) => Op::JgtK { jt, jf, k },
        (JGE, K) => Op::JgeK { jt, jf, k },
        (JSET, K) => Op::JsetK { jt, jf, k },
        (JEQ, _) => Op::JeqX { jt, jf },
        (JGT, _) => Op::JgtX { jt, jf },
        (JGE, _) => Op::JgeX { jt, jf },
        (JSET, _) => Op::JsetX { jt, jf },
        _ => Op::Ja(k),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::{PacketType, Record, VlanTag};

    fn run(insns: &[Insn], data: &[u8], meta: &Meta) -> u32 {
        Program::new(insns.to_vec()).expect("valid").run(Packet { data, meta })
    }

    /// Loads the constants into A and X, does one operation, returns A.
    fn compute(code: u16, a: u32, x: u32) -> u32 {
        let insns =
            [Insn::new(LD | IMM, a), Insn::new(LDX | IMM, x), Insn::new(code, x), Insn::new(RET | A, 0)];
        run(&insns, &[], &Meta::default())
    }

    #[test]
    fn arithmetic_wraps_and_large_shifts_give_zero() {
        assert_eq!(compute(ALU | ADD | X, u32::MAX, 2), 1);
        assert_eq!(compute(ALU | SUB | K, 1, 2), u32::MAX);
        assert_eq!(compute(ALU | MUL | X, 1 << 31, 2), 0);
        assert_eq!(compute(ALU | LSH | X, 1, 32), 0);
        assert_eq!(compute(ALU | RSH | X, u32::MAX, 200), 0);
        assert_eq!(compute(ALU | RSH | K, u32::MAX, 31), 1);
        assert_eq!(compute(ALU | NEG, 1, 0), u32::MAX);
        assert_eq!(compute(ALU | MOD | X, 20, 7), 6);
        assert_eq!(compute(ALU | XOR | X, 6, 3), 5);
    }

    #[test]
    fn division_by_a_zero_in_x_rejects() {
        let insns = [Insn::new(ALU | DIV | X, 0), Insn::new(RET | K, 9)];
        assert_eq!(run(&insns, &[], &Meta::default()), 0);
        assert_eq!(compute(ALU | DIV | X, 7, 2), 3);
    }

    #[test]
    fn a_load_ends_at_the_captured_length() {
        let meta = Meta { wire_len: 100, ..Meta::default() };
        let load = |code: u16, k: u32| {
            let insns = [Insn::new(LDX | IMM, 1), Insn::new(code, k), Insn::new(RET | K, 9)];
            run(&insns, &[1, 2, 3, 4], &meta)
        };
        assert_eq!((load(LD | W | ABS, 0), load(LD | W | ABS, 1)), (9, 0));
        assert_eq!((load(LD | H | ABS, 2), load(LD | H | ABS, 3)), (9, 0));
        assert_eq!((load(LD | B | ABS, 3), load(LD | B | ABS, 4)), (9, 0));
        assert_eq!((load(LD | H | IND, 1), load(LD | H | IND, 2)), (9, 0));
        assert_eq!((load(LD | B | IND, 2), load(LD | B | IND, u32::MAX)), (9, 0));
        assert_eq!((load(LDX | B | MSH, 3), load(LDX | B | MSH, 4)), (9, 0));
    }

    #[test]
    fn lengths_are_those_on_the_wire() {
        let meta = Meta { wire_len: 1500, ..Meta::default() };
        assert_eq!(run(&[Insn::new(LD | LEN, 0), Insn::new(RET | A, 0)], &[0; 60], &meta), 1500);
    }

    #[test]
    fn scratch_cells_start_as_zero_and_keep_what_is_stored() {
        let insns = [
            Insn::new(LD | MEM, 5),
            Insn::jump(JMP | JEQ | K, 0, 0, 3),
            Insn::new(LDX | IMM, 77),
            Insn::new(STX, 5),
            Insn::new(LD | MEM, 5),
            Insn::new(RET | A, 0),
        ];
        assert_eq!(run(&insns, &[], &Meta::default()), 77);
    }

    #[test]
    fn ancillary_loads_read_the_meta() {
        let meta = Meta {
            vlan: Some(VlanTag { tpid: 0x88a8, tci: 0xa123 }),
            packet_type: PacketType::OtherHost,
            if_index: 4,
            rx_hash: 0xdead_beef,
            ..Meta::default()
        };
        let load =
            |k: u32, meta: &Meta| run(&[Insn::new(LD | B | ABS, k), Insn::new(RET | A, 0)], &[0; 14], meta);
        assert_eq!(load(ancillary::VLAN_TAG, &meta), 0xa123);
        assert_eq!(load(ancillary::VLAN_TAG_PRESENT, &meta), 1);
        assert_eq!(load(ancillary::VLAN_TPID, &meta), 0x88a8);
        assert_eq!(load(ancillary::PKTTYPE, &meta), 3);
        assert_eq!(load(ancillary::IFINDEX, &meta), 4);
        assert_eq!(load(ancillary::RXHASH, &meta), 0xdead_beef);
        assert_eq!(load(ancillary::VLAN_TAG_PRESENT, &Meta::default()), 0);
        assert_eq!(load(ancillary::PROTOCOL, &meta), 4);
    }

    #[test]
    fn what_a_capture_does_not_hold_rejects() {
        let insns = [Insn::new(LD | W | ABS, ancillary::MARK), Insn::new(RET | K, 9)];
        assert_eq!(run(&insns, &[0; 64], &Meta::default()), 0);
    }

    /// A chain, entered at its head and in its middle, agrees with the comparisons it stands for.
    #[test]
    fn chains_of_comparisons_mean_what_the_comparisons_mean() {
        let constants = [50, 20, 40, 20, 30];
        let mut insns = vec![Insn::new(LD | B | ABS, 0), Insn::jump(JMP | JGT | K, 100, 2, 0)];
        let count = constants.len() as u8;
        for (i, k) in constants.into_iter().enumerate() {
            insns.push(Insn::jump(JMP | JEQ | K, k, count - 1 - i as u8, u8::from(i == 4)));
        }
        insns.extend([Insn::new(RET | K, 1), Insn::new(RET | K, 0)]);
        let program = Program::new(insns).expect("valid");
        assert!(matches!(program.decoded.ops[2], Op::Among(0)));
        for value in 0..=255_u8 {
            let accepted = program.run(Packet { data: &[value], meta: &Meta::default() }) != 0;
            assert_eq!(accepted, constants.contains(&value.into()), "{value}");
        }
    }

    #[test]
    fn long_chains_are_searched_too() {
        let mut insns = vec![Insn::new(LD | W | ABS, 0)];
        insns.extend((0..100).map(|i| Insn::jump(JMP | JEQ | K, i * 7, 99 - i as u8, u8::from(i == 99))));
        insns.extend([Insn::new(RET | K, 1), Insn::new(RET | K, 0)]);
        let program = Program::new(insns).expect("valid");
        for value in 0..1000_u32 {
            let accepted = program.run(Packet { data: &value.to_be_bytes(), meta: &Meta::default() }) != 0;
            assert_eq!(accepted, value % 7 == 0 && value < 700, "{value}");
        }
    }

    #[test]
    fn select_keeps_what_run_accepts() {
        let program = Program::new(vec![
            Insn::new(LD | B | ABS, 0),
            Insn::jump(JMP | JSET | K, 1, 0, 1),
            Insn::new(RET | K, 1),
            Insn::new(RET | K, 0),
        ])
        .expect("valid");
        let base: Vec<u8> = (0..10).collect();
        let records: Vec<Record> =
            (0..10).map(|offset| Record { offset, cap_len: 1, ..Record::default() }).collect();
        let batch = Batch::new(&base, &records);
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        program.select(&batch, &mut selection);
        assert_eq!(selection.iter().collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    }
}
