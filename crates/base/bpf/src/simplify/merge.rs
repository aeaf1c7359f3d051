//! Equal blocks become one, from the end of the graph backward; blocks that can only reject become the rejecting
//! return.

use std::hash::BuildHasher;

use crate::cfg::{Block, BlockId, Cfg, Terminator};
use rustc_hash::FxHashMap as Map;

/// The graph with each block once. A block from which every path rejects is a return of 0: whether it fails to load, or
/// gets to the end, the packet is rejected.
pub(super) fn merge(mut cfg: Cfg, order: &[BlockId]) -> Cfg {
    let mut merged =
        Cfg { blocks: Vec::with_capacity(order.len()), entry: BlockId(0), lists: cfg.lists.clone() };
    // By hash; of blocks with equal hashes, the second is at the next free number.
    let mut known: Map<u64, BlockId> = Map::default();
    known.reserve(order.len());
    let mut place = vec![BlockId(0); cfg.blocks.len()];
    for &id in order.iter().rev() {
        let block =
            Block { statements: std::mem::take(&mut cfg[id].statements), terminator: cfg[id].terminator };
        let block = reduced(block, &place, &merged);
        place[id.0 as usize] = match block.terminator {
            Terminator::Goto(next) if block.statements.is_empty() => next,
            _ => one_of(block, &mut known, &mut merged),
        };
    }
    merged.entry = place[cfg.entry.0 as usize];
    merged
}

/// The block that is equal to this one, or this one as a new one.
fn one_of(block: Block, known: &mut Map<u64, BlockId>, merged: &mut Cfg) -> BlockId {
    let mut hash = known.hasher().hash_one((&block.statements, block.terminator));
    loop {
        match known.get(&hash) {
            Some(&id) if merged[id] == block => return id,
            Some(_) => hash = hash.wrapping_add(1),
            None => break,
        }
    }
    let id = merged.push(block.statements, block.terminator);
    known.insert(hash, id);
    id
}

/// The block with its successors' new places, and as a return of 0 if none of them accepts.
fn reduced(block: Block, place: &[BlockId], merged: &Cfg) -> Block {
    let to = |id: BlockId| place[id.0 as usize];
    let terminator = match block.terminator {
        Terminator::Return(_) | Terminator::ReturnA => block.terminator,
        Terminator::Goto(next) => Terminator::Goto(to(next)),
        Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. }
            if to(on_true) == to(on_false) =>
        {
            Terminator::Goto(to(on_true))
        }
        Terminator::OneOf { list, on_true, on_false } => {
            Terminator::OneOf { list, on_true: to(on_true), on_false: to(on_false) }
        }
        Terminator::Branch { test, operand, on_true, on_false } => {
            Terminator::Branch { test, operand, on_true: to(on_true), on_false: to(on_false) }
        }
    };
    let rejects = |id: BlockId| merged[id].terminator == Terminator::Return(0);
    let hopeless = match terminator {
        Terminator::Return(k) => k == 0,
        Terminator::Goto(next) => rejects(next),
        // Two equal returns would be one block, and this a goto.
        Terminator::Branch { .. } | Terminator::OneOf { .. } | Terminator::ReturnA => false,
    };
    if hopeless {
        return Block { statements: Vec::new(), terminator: Terminator::Return(0) };
    }
    Block { terminator, ..block }
}
