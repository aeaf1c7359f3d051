//! Chains of tests of one value, made into one lookup.
//!
//! ```text
//! v == 20 ? T : v == 21 ? T : v == 80 ? T : N        switch v by bitmap { 20, 21, 80: T; else: N }
//! v >= 10 ? (v > 20 ? N : T) : N                      v5 = v - 10; branch v5 > 10 ? N : T
//! v == 1 ? T : v == 2 ? T : v == 3 ? T : N            v5 = v - 1; branch v5 > 2 ? N : T
//! s == a ? T : d == a ? T : s == b ? T : ...          switch s { a, b: T; else: switch d { a, b: T; else: N } }
//!
//! chain := head link*          links lead to the next link if they do not hold; only the head may do more than compute
//! link  := value in first..=last ? exit : next
//! group := the links of a chain that ask the same value, where they may be asked together
//! ```
//!
//! Links with one exit may be asked in any order: whichever holds, the same follows. A block with a guard ends a
//! chain, because a packet that it rejects must not reach an exit before it; the pass that moves guards makes chains
//! longer.
//!
//! The method of a lookup, [`SwitchSearch`], is chosen by [`choose`](lookup::choose), in one place.

mod lookup;

use crate::{BlockId, Case, Comparison, Ir, Op, SwitchSearch, Target, Terminator, Value};
use lookup::rebuild;
use rustc_hash::FxHashMap as Map;

/// So few keys are compared one by one.
const COMPARED_MAX: usize = 3;

/// Least number of keys for which a word of bits pays, if they lie close together.
const BITMAP_MIN: usize = 3;

/// The bits of a word.
const BITMAP_SPAN: u64 = 64;

/// Blocks searched at most for edges that lead from a copy back to its original.
const BACK_STEPS: usize = 64;

/// Looks values up instead of comparing them one by one.
pub(super) fn switch(ir: &mut Ir) -> bool {
    let mut chains = Chains::new(ir);
    let mut changed = false;
    for head in ir.order() {
        if chains.seen[head.0 as usize] {
            continue;
        }
        let Some(chain) = chains.from(ir, head) else { continue };
        // A part of a chain that does not pay does not pay either.
        chain.blocks.iter().for_each(|id| chains.seen[id.0 as usize] = true);
        let groups = group(chain.links);
        if groups.iter().any(Group::pays) {
            let old: Vec<BlockId> = chain.blocks.iter().copied().chain([head]).collect();
            let first_new = ir.blocks.len() as u32;
            chains.count(ir, &old, -1);
            rebuild(ir, head, groups, chain.next);
            let new: Vec<BlockId> = (first_new..ir.blocks.len() as u32).map(BlockId).chain([head]).collect();
            chains.count(ir, &new, 1);
            changed = true;
        }
    }
    if changed {
        // Blocks that stay may read constants of blocks that went.
        super::repair::repair(ir, &[]);
    }
    changed
}

/// Calls `visit` with each value that a block reads.
fn for_each_read(ir: &Ir, id: BlockId, mut visit: impl FnMut(Value)) {
    ir[id].instructions.iter().for_each(|value| ir.op(*value).for_each_operand(&mut visit));
    ir[id].terminator.for_each_operand(visit);
}

/// A question that leads out of a chain.
#[derive(Clone, Debug)]
struct Link {
    first: u64,
    last: u64,
    to: Target,
}

/// The test of one block in a chain: all tests of a chain are about one value.
struct ChainTest {
    value: Value,
    links: Vec<Link>,
    /// The target if no test holds, and the number of edges that lead there.
    next: Target,
    ways: i64,
    /// A second block, which a range needs.
    second: Option<BlockId>,
    /// The present method of the search.
    search: Option<SwitchSearch>,
}

struct Chain {
    links: Vec<(ChainTest, Vec<Value>)>,
    /// The blocks that go, the head not among them.
    blocks: Vec<BlockId>,
    next: Target,
}

/// The chains of the graph as it is now.
struct Chains {
    /// Number of edges into each block.
    ways_in: Vec<i64>,
    reads: Vec<i64>,
    /// Blocks that are parts of chains that were looked at.
    seen: Vec<bool>,
    /// For each block that was there at the start its place in the order; without loops, edges lead to later places
    /// only.
    places: Vec<u32>,
    /// Number of blocks that may still be copied.
    copies_left: usize,
}

impl Chains {
    fn new(ir: &Ir) -> Chains {
        let order = ir.order();
        let mut places = vec![u32::MAX; ir.blocks.len()];
        order.iter().enumerate().for_each(|(place, id)| places[id.0 as usize] = place as u32);
        let (ways_in, reads, seen) = (Vec::new(), Vec::new(), Vec::new());
        let mut chains = Chains { ways_in, reads, seen, places, copies_left: order.len() };
        chains.count(ir, &order, 1);
        chains
    }

    /// Adds the reads and targets of blocks, or with -1 subtracts them.
    fn count(&mut self, ir: &Ir, blocks: &[BlockId], by: i64) {
        self.ways_in.resize(ir.blocks.len(), 0);
        self.reads.resize(ir.instructions.len(), 0);
        self.seen.resize(ir.blocks.len(), false);
        for &id in blocks {
            ir[id].terminator.for_each_target(|target| self.ways_in[target.block.0 as usize] += by);
            for_each_read(ir, id, |value| self.reads[value.0 as usize] += by);
        }
    }

    /// The chain that starts at a block; `None` if the block ends in no link.
    fn from(&mut self, ir: &Ir, head: BlockId) -> Option<Chain> {
        let asked = self.asked(ir, head)?;
        let mut chain = Chain { links: Vec::new(), blocks: Vec::new(), next: asked.next.clone() };
        let mut ways = asked.ways;
        chain.take(ir, asked, Vec::new());
        while let id = chain.next.block
            && self.ways_in[id.0 as usize] == ways
            && ir[id].parameters.is_empty()
            && ir[id].instructions.iter().all(|value| ir.op(*value).is_pure())
            && let Some(asked) = self.asked(ir, id)
        {
            chain.next = asked.next.clone();
            chain.blocks.push(id);
            ways = asked.ways;
            chain.take(ir, asked, ir[id].instructions.clone());
        }
        self.copy_tail(ir, &mut chain);
        Some(chain)
    }

    /// Adds links that others lead to as well, as copies, if they go on about a value that the chain asks already.
    fn copy_tail(&mut self, ir: &Ir, chain: &mut Chain) {
        let values: Map<Value, ()> = chain.links.iter().map(|(asked, _)| (asked.value, ())).collect();
        let mut same: Map<Value, Value> = Map::default();
        // How many reads of the copied blocks' values lie outside of them.
        let mut reads_outside = 0_i64;
        let (mut copied, mut originals) = (Vec::new(), Vec::new());
        let mut next = chain.next.clone();
        while self.copies_left > 0
            && ir[next.block].instructions.iter().all(|value| matches!(ir.op(*value), Op::Const(_)))
            && let Some(mut asked) = self.asked(ir, next.block)
            && asked.second.is_none()
        {
            let block = &ir[next.block];
            same.extend(block.parameters.iter().copied().zip(next.arguments.iter().copied()));
            let own = block.parameters.iter().chain(&block.instructions);
            own.for_each(|value| {
                same.entry(*value).or_insert(*value);
                reads_outside += self.reads[value.0 as usize];
            });
            for_each_read(ir, next.block, |value| reads_outside -= i64::from(same.contains_key(&value)));
            asked.map(|value| same.get(&value).copied().unwrap_or(value));
            let stays_behind = |value: &Value| same.get(value) == Some(value);
            if copied.is_empty() && !values.contains_key(&asked.value) || asked.gives(stays_behind) {
                return;
            }
            self.copies_left -= 1;
            originals.push(next.block);
            next = asked.next.clone();
            copied.push((asked, Vec::new()));
        }
        if reads_outside == 0 && !copied.is_empty() && !self.comes_back(ir, &copied, &originals, &next) {
            chain.links.extend(copied);
            chain.next = next;
        }
    }

    /// Whether an edge out of the copies may lead to one of the blocks that were copied, other than through the first
    /// of them. These blocks stay, and read the parameters of those before them: such an edge would come without it.
    fn comes_back(
        &self,
        ir: &Ir,
        copied: &[(ChainTest, Vec<Value>)],
        originals: &[BlockId],
        next: &Target,
    ) -> bool {
        let [first, others @ ..] = originals else { return false };
        if others.is_empty() {
            return false;
        }
        let place = |id: &BlockId| self.places.get(id.0 as usize).copied().unwrap_or(u32::MAX);
        let last = others.iter().map(place).max().unwrap_or(0);
        let is_acyclic = ir.loops.is_empty();
        let mut work: Vec<BlockId> =
            copied.iter().flat_map(|(asked, _)| &asked.links).map(|link| link.to.block).collect();
        if !is_acyclic {
            work.push(next.block);
        }
        let mut visited: Vec<BlockId> = Vec::new();
        while let Some(id) = work.pop() {
            let is_known = self.places.get(id.0 as usize).is_some();
            let is_behind = is_acyclic && is_known && place(&id) > last;
            if id == *first || is_behind || visited.contains(&id) {
                continue;
            }
            if others.contains(&id) || visited.len() == BACK_STEPS {
                return true;
            }
            visited.push(id);
            ir[id].terminator.for_each_target(|target| work.push(target.block));
        }
        false
    }

    fn asked(&self, ir: &Ir, id: BlockId) -> Option<ChainTest> {
        match &ir[id].terminator {
            Terminator::Branch { test: Comparison::Equal, left, right, yes, no } => {
                let (value, k) = against_constant(ir, *left, *right)?;
                let link = Link { first: k, last: k, to: yes.clone() };
                Some(ChainTest {
                    value,
                    links: vec![link],
                    next: no.clone(),
                    ways: 1,
                    second: None,
                    search: None,
                })
            }
            Terminator::Branch { test: Comparison::Greater | Comparison::GreaterEqual, yes, no, .. } => {
                self.range(ir, id, yes, no).or_else(|| self.range(ir, id, no, yes))
            }
            Terminator::Switch { value, cases, default, search } => {
                let link = |case: &Case| Link { first: case.key, last: case.key, to: case.to.clone() };
                let links = cases.iter().map(link).collect();
                let (next, search) = (default.clone(), Some(*search));
                Some(ChainTest { value: *value, links, next, ways: 1, second: None, search })
            }
            _ => None,
        }
    }

    /// Two comparisons, one in `id` and one in the block that `inner` leads to, that together ask for a range; both
    /// go to `next` outside of it.
    fn range(&self, ir: &Ir, id: BlockId, inner: &Target, next: &Target) -> Option<ChainTest> {
        let second = inner.block;
        let outer = half(ir, &ir[id].terminator, inner)?;
        let block = &ir[second];
        let nothing_else = block.instructions.iter().all(|value| matches!(ir.op(*value), Op::Const(_)));
        if self.ways_in[second.0 as usize] != 1 || !block.parameters.is_empty() || !nothing_else {
            return None;
        }
        let Terminator::Branch { yes, no, .. } = &block.terminator else { return None };
        let to = match (yes == next, no == next) {
            (true, false) => no,
            (false, true) => yes,
            _ => return None,
        };
        let inside = half(ir, &block.terminator, to)?;
        let (first, last) = (outer.first.max(inside.first), outer.last.min(inside.last));
        if outer.value != inside.value || first > last {
            return None;
        }
        let link = Link { first, last, to: to.clone() };
        Some(ChainTest {
            value: outer.value,
            links: vec![link],
            next: next.clone(),
            ways: 2,
            second: Some(second),
            search: None,
        })
    }
}

impl ChainTest {
    /// Whether any argument is like this.
    fn gives(&self, like: impl Fn(&Value) -> bool) -> bool {
        let mut targets = self.links.iter().map(|link| &link.to).chain([&self.next]);
        targets.any(|target| target.arguments.iter().any(&like))
    }

    fn map(&mut self, mut map: impl FnMut(Value) -> Value) {
        self.value = map(self.value);
        let targets = self.links.iter_mut().map(|link| &mut link.to).chain([&mut self.next]);
        targets.flat_map(|target| &mut target.arguments).for_each(|value| *value = map(*value));
    }
}

impl Chain {
    fn take(&mut self, ir: &Ir, asked: ChainTest, mut instructions: Vec<Value>) {
        if let Some(second) = asked.second {
            self.blocks.push(second);
            instructions.extend(&ir[second].instructions);
        }
        self.links.push((asked, instructions));
    }
}

/// The value and the constant of a comparison that does not mind their sides.
fn against_constant(ir: &Ir, left: Value, right: Value) -> Option<(Value, u64)> {
    match (ir.as_const(left), ir.as_const(right)) {
        (None, Some(k)) => Some((left, k)),
        (Some(k), None) => Some((right, k)),
        _ => None,
    }
}

/// Numbers of a value, from first to last.
struct Half {
    value: Value,
    first: u64,
    last: u64,
}

/// The numbers with which a comparison goes to one of its targets.
fn half(ir: &Ir, terminator: &Terminator, to: &Target) -> Option<Half> {
    let Terminator::Branch { test, left, right, yes, no } = terminator else { return None };
    let (value, k, max) = (*left, ir.as_const(*right)?, ir.ty(*left).max());
    if yes == no || ir.as_const(value).is_some() {
        return None;
    }
    let (first, last) = match (test, to == yes) {
        (Comparison::Greater, true) => (k.checked_add(1)?, max),
        (Comparison::Greater, false) => (0, k),
        (Comparison::GreaterEqual, true) => (k, max),
        (Comparison::GreaterEqual, false) => (0, k.checked_sub(1)?),
        _ => return None,
    };
    Some(Half { value, first, last })
}

/// Links of one value, asked together.
struct Group {
    value: Value,
    links: Vec<Link>,
    /// The instructions that are computed before.
    instructions: Vec<Value>,
    /// From how many blocks it is made.
    blocks: usize,
    /// The method of its first block.
    search: Option<SwitchSearch>,
}

impl Group {
    /// Whether the group is better asked together.
    fn pays(&self) -> bool {
        let keys = self.links.len();
        let is_range = |link: &Link| link.first < link.last;
        if self.blocks == 1 && self.search.is_some() {
            return false;
        }
        self.links.iter().any(is_range) || keys > COMPARED_MAX || keys >= BITMAP_MIN && self.fits_a_word()
    }

    fn fits_a_word(&self) -> bool {
        let first = self.links.iter().map(|link| link.first).min().unwrap_or(0);
        let last = self.links.iter().map(|link| link.last).max().unwrap_or(0);
        last - first < BITMAP_SPAN && self.links.iter().all(|link| link.to == self.links[0].to)
    }
}

/// Brings the links together that ask the same value: a link moves up past links with the same exit only.
fn group(links: Vec<(ChainTest, Vec<Value>)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // The place of the next link of a value, as long as links have this exit.
    let mut places: Map<Value, usize> = Map::default();
    let mut exit: Option<Target> = None;
    for (asked, instructions) in links {
        let ChainTest { value, links, search, .. } = asked;
        let uniform = links.iter().all(|link| link.to == links[0].to);
        let here = links.first().map(|link| link.to.clone()).filter(|_| uniform);
        if here.is_none() || here != exit {
            places.clear();
            if let Some(last) = groups.last() {
                places.insert(last.value, groups.len() - 1);
            }
            exit = here;
        }
        let at = *places.entry(value).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Group { value, links: Vec::new(), instructions: Vec::new(), blocks: 0, search });
        }
        groups[at].links.extend(links);
        groups[at].blocks += 1;
        // Later links may use values computed here, so this link goes to the last group.
        if let Some(last) = groups.last_mut() {
            last.instructions.extend(instructions);
        }
    }
    groups
}
