//! Dominators, the blocks that come before others on every path, as the tree of immediate dominators.
//!
//! Blocks are looked at in the order for graphs without loops, so the nearest dominator of each is the nearest that
//! the blocks that lead to it have in common, and the tree above it is done. Ways back in loops are left out: where
//! the proof holds, they come from blocks that the loop's header dominates, and then they change nothing. (Were a
//! header not to dominate where a back edge comes from, a path without back edges would show it, so the proof finds it
//! all the same.)
//!
//! The common dominator of two blocks is found by jumps of growing length, after Myers, "An applicative random-access
//! stack" (1983): in a chain of thousands of tests, steps of one would take time with the square of its length.

use super::{BlockId, Ir};

/// The reachable blocks in order, their predecessors, and their dominators.
#[derive(Clone, Debug)]
pub struct Dominators {
    /// The blocks that the entry reaches, each before those it leads to except on back edges.
    pub order: Vec<BlockId>,
    /// For each block its place in `order`; `u32::MAX` for those that nothing reaches.
    pub place: Vec<u32>,
    /// For each block the reachable blocks that lead to it, one entry for each edge.
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
        let tree = Tree::new(ir, &order, &place, &predecessors);
        Dominators { order, place, predecessors, immediate: tree.above }
    }

    /// The nearest dominator of a reachable block; the entry's is itself.
    pub fn immediate(&self, id: BlockId) -> BlockId {
        self.immediate[id.0 as usize]
    }

    /// Whether the entry reaches a block.
    pub fn reaches(&self, id: BlockId) -> bool {
        self.place[id.0 as usize] != u32::MAX
    }

    /// The blocks of a loop, from which edges lead back to its header; the header first.
    pub fn body(&self, header: BlockId) -> Vec<BlockId> {
        let place = |id: BlockId| self.place[id.0 as usize];
        let mut body = vec![header];
        let mut is_in = vec![false; self.place.len()];
        is_in[header.0 as usize] = true;
        let back = self.predecessors[header.0 as usize].iter().filter(|from| place(**from) >= place(header));
        let mut work: Vec<BlockId> = back.copied().collect();
        while let Some(id) = work.pop() {
            if !std::mem::replace(&mut is_in[id.0 as usize], true) {
                body.push(id);
                work.extend(&self.predecessors[id.0 as usize]);
            }
        }
        body
    }

    /// The children of each block in the tree, in order.
    pub fn children(&self) -> Vec<Vec<BlockId>> {
        let mut children = vec![Vec::new(); self.immediate.len()];
        for &id in self.order.iter().skip(1) {
            children[self.immediate(id).0 as usize].push(id);
        }
        children
    }

    /// For each block the places at which a walk over the tree enters and leaves it: `a` dominates `b` if `a`'s span
    /// holds `b`'s.
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

/// The tree while it is made.
struct Tree {
    /// For each block the one above it; the entry's is itself.
    above: Vec<BlockId>,
    /// For each block one that is some blocks further up; the entry's is itself.
    far_above: Vec<BlockId>,
    /// Number of blocks above.
    depth: Vec<u32>,
}

impl Tree {
    fn new(ir: &Ir, order: &[BlockId], place: &[u32], predecessors: &[Vec<BlockId>]) -> Tree {
        let count = ir.blocks.len();
        let mut tree =
            Tree { above: vec![ir.entry; count], far_above: vec![ir.entry; count], depth: vec![0; count] };
        for &id in order.iter().skip(1) {
            let at = id.0 as usize;
            let forward = |from: &BlockId| place[from.0 as usize] < place[at];
            let before = predecessors[at].iter().copied().filter(forward);
            let above = before.reduce(|a, b| tree.common(a, b)).unwrap_or(ir.entry);
            tree.add(id, above);
        }
        tree
    }

    fn add(&mut self, id: BlockId, above: BlockId) {
        let far = |of: BlockId| self.far_above[of.0 as usize];
        let depth = |of: BlockId| self.depth[of.0 as usize];
        let (once, twice) = (far(above), far(far(above)));
        let doubled = depth(above) - depth(once) == depth(once) - depth(twice);
        self.far_above[id.0 as usize] = if doubled { twice } else { above };
        self.depth[id.0 as usize] = depth(above) + 1;
        self.above[id.0 as usize] = above;
    }

    /// The nearest block above both, or one of both that is above the other.
    fn common(&self, a: BlockId, b: BlockId) -> BlockId {
        let depth = |of: BlockId| self.depth[of.0 as usize];
        let far = |of: BlockId| self.far_above[of.0 as usize];
        let above = |of: BlockId| self.above[of.0 as usize];
        let (mut a, mut b) = if depth(a) >= depth(b) { (a, b) } else { (b, a) };
        while depth(a) > depth(b) {
            a = if depth(far(a)) >= depth(b) { far(a) } else { above(a) };
        }
        // At one depth, the jumps of both are equally long.
        while a != b {
            (a, b) = if far(a) == far(b) { (above(a), above(b)) } else { (far(a), far(b)) };
        }
        a
    }
}
