//! Equal blocks become one, from the end of the graph backward; what can only reject becomes the rejecting return.

use super::hash::Map;
use crate::cfg::{Block, BlockId, Cfg, Statement, Terminator};

/// The graph with each block once. A block all of whose ways reject is a return of 0: whether it fails to load, or gets to the
/// end, the packet is rejected.
pub(super) fn merge(cfg: &Cfg, order: &[BlockId]) -> Cfg {
    let mut merged = Cfg { blocks: Vec::new(), entry: BlockId(0) };
    let mut known: Map<(Vec<Statement>, Terminator), BlockId> = Map::default();
    let mut place = vec![BlockId(0); cfg.blocks.len()];
    for &id in order.iter().rev() {
        let Block { statements, terminator } = reduced(&cfg[id], &place, &merged);
        place[id.0 as usize] = match terminator {
            Terminator::Goto(next) if statements.is_empty() => next,
            _ => *known
                .entry((statements, terminator))
                .or_insert_with_key(|(statements, terminator)| merged.push(statements.clone(), *terminator)),
        };
    }
    merged.entry = place[cfg.entry.0 as usize];
    merged
}

/// The block with its successors' new places, and as a return of 0 if none of them accepts.
fn reduced(block: &Block, place: &[BlockId], merged: &Cfg) -> Block {
    let to = |id: BlockId| place[id.0 as usize];
    let terminator = match block.terminator {
        Terminator::Return(_) | Terminator::ReturnA => block.terminator,
        Terminator::Goto(next) => Terminator::Goto(to(next)),
        Terminator::Branch { on_true, on_false, .. } if to(on_true) == to(on_false) => {
            Terminator::Goto(to(on_true))
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
        Terminator::Branch { .. } | Terminator::ReturnA => false,
    };
    if hopeless {
        return Block { statements: Vec::new(), terminator: Terminator::Return(0) };
    }
    Block { statements: block.statements.clone(), terminator }
}
