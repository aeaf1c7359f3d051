//! Instructions to operations of the interpreter: one each, then pairs and runs of them as one.

use std::collections::HashMap;

use super::{Alu, CHAIN_MIN, CHAIN_STEPS, Chain, Decoded, Op};
use crate::code::*;
use crate::{Insn, ancillary};

impl Decoded {
    /// Decodes validated instructions.
    pub(crate) fn new(insns: &[Insn]) -> Decoded {
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

/// The runs of at least [`CHAIN_MIN`] `jeq #k` that miss to each other and lead to one place, with the position of
/// their head.
///
/// Finds chains. Jumps that are too far for 8 bits go over copies of `ja` and `ret`, which may be between the
/// comparisons.
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
