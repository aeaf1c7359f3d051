//! Comparisons of neighbouring bytes, joined by `and`, made into one comparison of a wider load.
//!
//! ```text
//! v1 = load32 [8]; branch v1 == 0x22334455 ? b1 : F          v3 = load64 [4]; v4 = v3 & 0xffffffffffff
//! b1: v2 = load16 [6]; branch v2 == 0x11 ? b2 : F            branch v4 == 0x1122334455 ? b2 : F
//!
//! load8 [23] == 6, load16 [20] & 0x1fff == 0                 load32 [20] & 0x1fff00ff == 6
//!
//! chain := block+        tests that all go to one place if they fail, and otherwise to the next block of the chain
//! atom  := bytes of a chain's test, which of their bits count, and what these must be
//! ```
//!
//! The tests of a chain may be asked in any order, as long as only computation is between them; guards may be there
//! if to fail is to reject. Two atoms become one if both are in one load whose bytes are known to be there, and if it
//! pays:
//!
//! - The wide load must take the place of the narrow ones. A load that other tests need as well stays, so it gains
//!   little.
//! - Up to four bytes, one masked comparison takes four instructions where two comparisons take six.
//! - Eight bytes with a mask take six instructions, two of them with constants of eight bytes: as many as two
//!   comparisons, with one branch less. That pays if at least six bytes count, as in a hardware address.

use crate::{
    Binary, BlockId, ByteOrder, Comparison, Coverage, Ir, Op, PacketOffset, Target, Terminator, Type, Value,
    Width,
};

/// Atoms before it, at most, with which an atom is tried.
const TRIED_MAX: usize = 8;

/// Bits that must count, at least, of eight bytes under a mask.
const WIDE_BITS_MIN: u32 = 48;

/// Makes comparisons wider.
pub(super) fn widen(ir: &mut Ir) -> bool {
    let order = ir.order();
    let coverage = coverage_at_end(ir, &order);
    let ways_in = ways_in(ir, &order);
    let reads = reads(ir, &order);
    let mut seen = vec![false; ir.blocks.len()];
    let mut merged = Vec::new();
    for &head in &order {
        if !seen[head.0 as usize] {
            let chain = chain_from(ir, head, &ways_in);
            chain.iter().for_each(|link| seen[link.block.0 as usize] = true);
            merge_chain(ir, &chain, &coverage, &mut merged);
        }
    }
    keep_worthwhile_atoms(&mut merged, &reads);
    for one in &merged {
        apply(ir, one, &coverage);
    }
    !merged.is_empty()
}

/// The proved length of the packet at the end of each block.
fn coverage_at_end(ir: &Ir, order: &[BlockId]) -> Vec<Coverage> {
    let mut arriving: Vec<Option<Coverage>> = vec![None; ir.blocks.len()];
    let mut at_end = vec![Coverage::default(); ir.blocks.len()];
    for &id in order {
        let mut known = match id == ir.entry {
            true => Coverage::default(),
            false => arriving[id.0 as usize].take().unwrap_or_default(),
        };
        ir[id].instructions.iter().for_each(|value| known.learn(ir, *value));
        ir[id].terminator.for_each_target(|target| {
            let mut there = known.clone();
            there.learn_from_edge(ir, &ir[id].terminator, target);
            match &mut arriving[target.block.0 as usize] {
                Some(known) => known.meet(&there),
                unset => *unset = Some(there),
            }
        });
        at_end[id.0 as usize] = known;
    }
    at_end
}

fn ways_in(ir: &Ir, order: &[BlockId]) -> Vec<u32> {
    let mut ways = vec![0; ir.blocks.len()];
    for &id in order {
        ir[id].terminator.for_each_target(|target| ways[target.block.0 as usize] += 1);
    }
    ways
}

fn reads(ir: &Ir, order: &[BlockId]) -> Vec<u32> {
    let mut reads = vec![0; ir.instructions.len()];
    let mut count = |value: Value| reads[value.0 as usize] += 1;
    for &id in order {
        ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut count));
        ir[id].terminator.for_each_operand(&mut count);
    }
    reads
}

/// A block of a chain.
struct Link {
    block: BlockId,
    /// The comparison, if it can be made wider.
    atom: Option<Atom>,
}

/// Bytes that must be such and such.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Atom {
    base: Option<Value>,
    first: u32,
    /// The bits that count, and their values: as many bytes of each as the atom has.
    mask: Vec<u8>,
    key: Vec<u8>,
    /// The loads and masked loads that it was made from.
    sources: Vec<Value>,
}

/// Two or more comparisons to be made one, in the block of the first.
struct Merged {
    host: BlockId,
    /// The blocks whose comparisons go, and where they lead instead.
    others: Vec<(BlockId, Target)>,
    atom: Atom,
    window: Window,
    yes: Target,
    no: Target,
}

/// The load that an atom is asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    start: u32,
    width: Width,
}

/// A block's test, as one that goes on where bits are as they must be.
fn atom_of(ir: &Ir, id: BlockId) -> Option<(Atom, &Target, &Target)> {
    let Terminator::Branch { test, left, right, yes, no } = &ir[id].terminator else { return None };
    let (value, k) = match (ir.as_const(*left), ir.as_const(*right)) {
        (None, Some(k)) => (*left, k),
        (Some(k), None) => (*right, k),
        _ => return None,
    };
    let (mask, key, yes, no) = match test {
        Comparison::Equal => (u64::MAX, k, yes, no),
        Comparison::AnySet if k.is_power_of_two() => (k, k, yes, no),
        Comparison::AnySet => (k, 0, no, yes),
        _ => return None,
    };
    Some((atom(ir, value, mask, key)?, yes, no))
}

fn atom(ir: &Ir, value: Value, mask: u64, key: u64) -> Option<Atom> {
    let (load, mask) = match *ir.op(value) {
        Op::Binary(Binary::And, left, right) => (left, mask & ir.as_const(right)?),
        _ => (value, mask),
    };
    let Op::Load(place, width, ByteOrder::Big) = *ir.op(load) else { return None };
    let bytes = width.bytes() as usize;
    let max = u64::MAX >> (64 - 8 * bytes);
    if key & !(mask & max) != 0 {
        // The comparison never holds.
        return None;
    }
    let bytes_of = |number: u64| number.to_be_bytes()[8 - bytes..].to_vec();
    Some(Atom {
        base: place.base,
        first: place.offset,
        mask: bytes_of(mask & max),
        key: bytes_of(key),
        sources: if load == value { vec![load] } else { vec![load, value] },
    })
}

/// The chain that starts at a block; empty if the block's test is not an atom.
fn chain_from(ir: &Ir, head: BlockId, ways_in: &[u32]) -> Vec<Link> {
    let mut chain = Vec::new();
    let Some((atom, yes, fail)) = atom_of(ir, head) else { return chain };
    chain.push(Link { block: head, atom: Some(atom) });
    let guards_may_move = ir.only_rejects(fail.block);
    let mut next = yes;
    while is_link(ir, next, guards_may_move, ways_in)
        && let Terminator::Branch { yes, no, .. } = &ir[next.block].terminator
    {
        let block = next.block;
        let atom = atom_of(ir, block).filter(|(_, _, no)| *no == fail);
        next = match &atom {
            Some((_, yes, _)) => yes,
            None if asks_length(ir, block) => break,
            None if no == fail => yes,
            None if yes == fail => no,
            None => break,
        };
        chain.push(Link { block, atom: atom.map(|(atom, ..)| atom) });
    }
    chain
}

/// Whether a block's test depends on the length of the packet: later blocks may rely on that.
fn asks_length(ir: &Ir, id: BlockId) -> bool {
    let mut asks = false;
    ir[id].terminator.for_each_operand(|value| asks |= ir.is_captured_length(value));
    asks
}

/// Whether a block does nothing that minds its place in a chain.
fn is_link(ir: &Ir, to: &Target, guards_may_move: bool, ways_in: &[u32]) -> bool {
    let movable = |value: &Value| match ir.op(*value) {
        Op::Need(_) | Op::NonZero(_) => guards_may_move,
        op => op.is_pure(),
    };
    ways_in[to.block.0 as usize] == 1
        && ir[to.block].parameters.is_empty()
        && ir[to.block].instructions.iter().all(movable)
}

/// Finds the atoms of a chain that fit into one load.
fn merge_chain(ir: &Ir, chain: &[Link], coverage: &[Coverage], all: &mut Vec<Merged>) {
    let start = all.len();
    for link in chain {
        let Some(atom) = &link.atom else { continue };
        let Some((_, yes, no)) = atom_of(ir, link.block) else { continue };
        let guards_may_move = ir.only_rejects(no.block);
        let from = start.max(all.len().saturating_sub(TRIED_MAX));
        let place = all[from..].iter().rposition(|one| {
            let known = if guards_may_move { link.block } else { one.host };
            joined(&one.atom, atom, &coverage[known.0 as usize]).is_some()
        });
        match place {
            Some(at) => {
                let one = &mut all[from + at];
                let known = if guards_may_move { link.block } else { one.host };
                if let Some((atom, window)) = joined(&one.atom, atom, &coverage[known.0 as usize]) {
                    (one.atom, one.window) = (atom, window);
                    one.others.push((link.block, yes.clone()));
                }
            }
            None => all.push(Merged {
                host: link.block,
                others: Vec::new(),
                atom: atom.clone(),
                window: Window { start: atom.first, width: Width::Byte },
                yes: yes.clone(),
                no: no.clone(),
            }),
        }
    }
}

/// Both atoms as one, and the load for it, if that pays.
fn joined(a: &Atom, b: &Atom, coverage: &Coverage) -> Option<(Atom, Window)> {
    let (first, end) = (a.first.min(b.first), a.end().max(b.end()));
    if a.base != b.base || end - first > Width::Double.bytes() {
        return None;
    }
    let mut atom = Atom {
        base: a.base,
        first,
        mask: vec![0; (end - first) as usize],
        key: vec![0; (end - first) as usize],
        sources: a.sources.iter().chain(&b.sources).copied().collect(),
    };
    for part in [a, b] {
        let skip = (part.first - first) as usize;
        for (at, (mask, key)) in part.mask.iter().zip(&part.key).enumerate() {
            let (mask_there, key_there) = (&mut atom.mask[skip + at], &mut atom.key[skip + at]);
            if (*key_there ^ key) & *mask_there & mask != 0 {
                // They contradict each other.
                return None;
            }
            *mask_there |= mask;
            *key_there |= key;
        }
    }
    // The narrow loads' bytes are there in any case.
    let window = window(first, end, coverage.bytes_from(a.base).max(end))?;
    let counts: u32 = atom.mask.iter().map(|byte| byte.count_ones()).sum();
    (window.width != Width::Double || counts >= WIDE_BITS_MIN).then_some((atom, window))
}

/// The narrowest load that holds the bytes, of those that are there.
fn window(first: u32, end: u32, there: u32) -> Option<Window> {
    let widths = [Width::Half, Width::Word, Width::Double];
    widths.into_iter().filter(|width| width.bytes() >= end - first).find_map(|width| {
        let start = first.min(there.checked_sub(width.bytes())?);
        (start + width.bytes() >= end).then_some(Window { start, width })
    })
}

impl Atom {
    fn end(&self) -> u32 {
        // A load that was proved safe ends within 32 bits.
        self.first + self.mask.len() as u32
    }

    /// A mask's or key's bytes as the number that a window has for them.
    fn number(&self, bytes: &[u8], window: Window) -> u64 {
        let behind = window.start + window.width.bytes() - self.end();
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
            .checked_shl(8 * behind)
            .unwrap_or(0)
    }
}

/// Drops single atoms, and those with loads that stay for the most part because others read them.
fn keep_worthwhile_atoms(merged: &mut Vec<Merged>, reads: &[u32]) {
    let mut replaced = vec![0_u32; reads.len()];
    merged.retain(|one| !one.others.is_empty());
    for value in merged.iter().flat_map(|one| &one.atom.sources) {
        replaced[value.0 as usize] += 1;
    }
    let goes = |value: &Value| replaced[value.0 as usize] * 2 > reads[value.0 as usize];
    merged.retain(|one| one.atom.sources.iter().all(goes));
}

/// Puts the wide comparison into the host, and takes the others away.
fn apply(ir: &mut Ir, one: &Merged, coverage: &[Coverage]) {
    let (atom, window) = (&one.atom, one.window);
    let end = PacketOffset { base: atom.base, offset: window.start + window.width.bytes() };
    if coverage[one.host.0 as usize].bytes_from(atom.base) < end.offset {
        let need = ir.add(Op::Need(end), Type::None);
        ir[one.host].instructions.push(need);
    }
    let (mask, key) = (atom.number(&atom.mask, window), atom.number(&atom.key, window));
    let ty = window.width.ty();
    let put = |ir: &mut Ir, op: Op| {
        let value = ir.add(op, ty);
        ir[one.host].instructions.push(value);
        value
    };
    let mut left =
        put(ir, Op::Load(PacketOffset { offset: window.start, ..end }, window.width, ByteOrder::Big));
    if mask != u64::MAX >> (64 - 8 * window.width.bytes()) {
        let mask = put(ir, Op::Const(mask));
        left = put(ir, Op::Binary(Binary::And, left, mask));
    }
    let right = put(ir, Op::Const(key));
    ir[one.host].terminator =
        Terminator::Branch { test: Comparison::Equal, left, right, yes: one.yes.clone(), no: one.no.clone() };
    for (block, to) in &one.others {
        ir[*block].terminator = Terminator::Goto(to.clone());
        let mut instructions = std::mem::take(&mut ir[*block].instructions);
        instructions.retain(|value| !matches!(ir.op(*value), Op::Need(place) if follows(*place, end)));
        ir[*block].instructions = instructions;
    }
}

/// Whether a guard says no more than another.
fn follows(guard: PacketOffset, known: PacketOffset) -> bool {
    guard.base == known.base && guard.offset <= known.offset
}
