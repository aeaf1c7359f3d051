//! Which blocks come before others on every way: the tree of immediate dominators.
//!
//! The algorithm is that of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001): two passes over the
//! order for graphs without loops, one of which only confirms.

use super::{BlockId, Ir};

/// The reachable blocks in order, who leads to them, and who dominates them.
#[derive(Clone, Debug)]
pub struct Dominators {
    /// The blocks that the entry reaches, each before those it leads to except on ways back.
    pub order: Vec<BlockId>,
    /// For each block its place in `order`; `u32::MAX` for those that nothing reaches.
    pub place: Vec<u32>,
    /// For each block the reachable blocks that lead to it, one entry for each way.
    pub predecessors: Vec<Vec<BlockId>>,
    /// For each block its nearest dominator; the entry's is itself.
    immediate: Vec<BlockId>,
}

impl Dominators {
    /// Computes the tree.
    pub fn new(ir: &Ir) -> Dominators {
        let order = ir.order();
        let mut place = vec![u32::MAX; ir.blocks.len()];
        order.iter().enumerate().for_each(|(at, id)| place[id.0 as usize] = at as u32);
        let mut predecessors = vec![Vec::new(); ir.blocks.len()];
        for &id in &order {
            ir[id].terminator.for_each_target(|target| predecessors[target.block.0 as usize].push(id));
        }
        let nobody = BlockId(u32::MAX);
        let mut dominators =
            Dominators { order, place, predecessors, immediate: vec![nobody; ir.blocks.len()] };
        dominators.immediate[ir.entry.0 as usize] = ir.entry;
        while dominators.refine(ir.entry) && !ir.loops.is_empty() {}
        dominators
    }

    /// One pass over the order; whether anything changed.
    fn refine(&mut self, entry: BlockId) -> bool {
        let mut changed = false;
        for at in 0..self.order.len() {
            let id = self.order[at];
            if id == entry {
                continue;
            }
            let known = |block: &BlockId| self.immediate[block.0 as usize].0 != u32::MAX;
            let above = self.predecessors[id.0 as usize].iter().copied().filter(known);
            let nearest = above.reduce(|a, b| self.common(a, b)).unwrap_or(entry);
            changed |= std::mem::replace(&mut self.immediate[id.0 as usize], nearest) != nearest;
        }
        changed
    }

    /// The nearest block that dominates both.
    fn common(&self, mut a: BlockId, mut b: BlockId) -> BlockId {
        while a != b {
            while self.place[a.0 as usize] > self.place[b.0 as usize] {
                a = self.immediate[a.0 as usize];
            }
            while self.place[b.0 as usize] > self.place[a.0 as usize] {
                b = self.immediate[b.0 as usize];
            }
        }
        a
    }

    /// The nearest dominator of a reachable block; the entry's is itself.
    pub fn immediate(&self, id: BlockId) -> BlockId {
        self.immediate[id.0 as usize]
    }

    /// Whether the entry reaches a block.
    pub fn reaches(&self, id: BlockId) -> bool {
        self.place[id.0 as usize] != u32::MAX
    }

    /// The children of each block in the tree, in order.
    pub fn children(&self) -> Vec<Vec<BlockId>> {
        let mut children = vec![Vec::new(); self.immediate.len()];
        for &id in self.order.iter().skip(1) {
            children[self.immediate(id).0 as usize].push(id);
        }
        children
    }

    /// For each block the places at which a walk over the tree enters and leaves it: `a` dominates `b` if `a`'s span holds `b`'s.
    pub fn spans(&self) -> Vec<(u32, u32)> {
        let children = self.children();
        let mut spans = vec![(0, 0); self.immediate.len()];
        let mut clock = 0;
        let mut stack = vec![(self.order[0], false)];
        while let Some((id, left)) = stack.pop() {
            clock += 1;
            if left {
                spans[id.0 as usize].1 = clock;
                continue;
            }
            spans[id.0 as usize].0 = clock;
            stack.push((id, true));
            stack.extend(children[id.0 as usize].iter().rev().map(|&child| (child, false)));
        }
        spans
    }
}
