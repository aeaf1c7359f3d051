//! Groups of links as blocks: keys as a table, ranges by halves.

use std::collections::BTreeMap;

use super::{BITMAP_MIN, BITMAP_SPAN, COMPARED_MAX, Group, Link};
use crate::{
    Binary, Block, BlockId, Case, Comparison, Ir, Op, SwitchSearch, Target, Terminator, Type, Value,
};

/// Least number of neighbouring keys with one target that are tested as a range.
const RANGE_MIN: usize = 3;

/// Least number of keys for which a table of bits pays.
const BIT_TABLE_MIN: usize = 5;

/// The most bits of a table: all ports are one. 8 KiB, a quarter of the smallest first-level cache.
const BIT_TABLE_SPAN: u64 = 1 << 16;

/// Places of a table of targets, at most, for each key.
const JUMP_TABLE_PLACES: u64 = 4;

/// Least number of keys for which a hash is faster than halving: its two multiplications and one access cost as much
/// as four steps.
const HASH_MIN: usize = 9;

/// Ranges together with single keys are listed key by key up to here.
const LISTED_MAX: u64 = 64;

/// The method for finding keys, ascending, of which there is at least one. `uniform`: all lead to one target.
pub(super) fn choose(keys: &[u64], uniform: bool) -> SwitchSearch {
    let span = keys[keys.len() - 1] - keys[0];
    let places = JUMP_TABLE_PLACES.saturating_mul(keys.len() as u64);
    match uniform {
        true if span < BITMAP_SPAN => SwitchSearch::Bitmap,
        true if span < BIT_TABLE_SPAN && keys.len() >= BIT_TABLE_MIN => SwitchSearch::BitTable,
        true if keys.len() >= HASH_MIN => SwitchSearch::PerfectHash,
        false if span < places && keys.len() > COMPARED_MAX => SwitchSearch::JumpTable,
        _ => SwitchSearch::Binary,
    }
}

/// Puts the groups in place of the chain.
pub(super) fn rebuild(ir: &mut Ir, head: BlockId, groups: Vec<Group>, next: Target) {
    let mut blocks = vec![head];
    blocks.extend((1..groups.len()).map(|_| new_block(ir)));
    for (at, group) in groups.into_iter().enumerate() {
        let default = blocks.get(at + 1).map_or_else(|| next.clone(), |block| Target::to(*block));
        let block = blocks[at];
        ir[block].instructions.extend(group.instructions);
        Lookup { value: group.value, ty: ir.ty(group.value), default }.put(ir, block, &group.links);
    }
}

fn new_block(ir: &mut Ir) -> BlockId {
    let terminator = Terminator::Return(Value(0));
    ir.add_block(Block { parameters: Vec::new(), instructions: Vec::new(), terminator })
}

/// Targets of the numbers of a value, for making the blocks that find them.
struct Lookup {
    value: Value,
    ty: Type,
    default: Target,
}

/// Numbers that lead to one target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
    to: Target,
}

impl Lookup {
    /// Ends a block with the lookup.
    fn put(&self, ir: &mut Ir, block: BlockId, links: &[Link]) {
        let spans = disjoint(links);
        if let Some(listed) = listed(&spans) {
            return self.keys(ir, block, &listed);
        }
        let (keys, ranges): (Vec<Span>, Vec<Span>) =
            spans.into_iter().partition(|span| span.first == span.last);
        match (keys.is_empty(), ranges.is_empty()) {
            (_, true) => self.keys(ir, block, &keys),
            (true, false) => self.ranges(ir, block, &ranges),
            (false, false) => {
                let rest = new_block(ir);
                let first = Lookup { value: self.value, ty: self.ty, default: Target::to(rest) };
                first.keys(ir, block, &keys);
                self.ranges(ir, rest, &ranges);
            }
        }
    }

    /// Single keys.
    fn keys(&self, ir: &mut Ir, block: BlockId, spans: &[Span]) {
        let keys: Vec<u64> = spans.iter().map(|span| span.first).collect();
        let Some(first) = spans.first() else {
            ir[block].terminator = Terminator::Goto(self.default.clone());
            return;
        };
        let is_uniform = spans.iter().all(|span| span.to == first.to);
        if is_uniform && keys.len() >= RANGE_MIN && keys[keys.len() - 1] - keys[0] == keys.len() as u64 - 1 {
            return self.range(ir, block, &Span { last: keys[keys.len() - 1], ..first.clone() });
        }
        let search = choose(&keys, is_uniform);
        if keys.len() <= COMPARED_MAX && !(keys.len() >= BITMAP_MIN && search == SwitchSearch::Bitmap) {
            return self.compared(ir, block, spans);
        }
        let cases = spans.iter().map(|span| Case { key: span.first, to: span.to.clone() }).collect();
        ir[block].terminator =
            Terminator::Switch { value: self.value, cases, default: self.default.clone(), search };
    }

    /// A few keys, one after the other.
    fn compared(&self, ir: &mut Ir, mut block: BlockId, spans: &[Span]) {
        for (at, span) in spans.iter().enumerate() {
            let next = (at + 1 < spans.len()).then(|| new_block(ir));
            let no = next.map_or_else(|| self.default.clone(), Target::to);
            let right = self.constant(ir, block, span.first);
            ir[block].terminator = Terminator::Branch {
                test: Comparison::Equal,
                left: self.value,
                right,
                yes: span.to.clone(),
                no,
            };
            block = next.unwrap_or(block);
        }
    }

    /// Ascending ranges, by halves. The depth is the logarithm of their number.
    fn ranges(&self, ir: &mut Ir, block: BlockId, spans: &[Span]) {
        if let [span] = spans {
            return self.range(ir, block, span);
        }
        let (low, high) = spans.split_at(spans.len() / 2);
        let [Some(border), ..] = [low.last()] else { return };
        let right = self.constant(ir, block, border.last);
        let (below, above) = (new_block(ir), new_block(ir));
        ir[block].terminator = Terminator::Branch {
            test: Comparison::Greater,
            left: self.value,
            right,
            yes: Target::to(above),
            no: Target::to(below),
        };
        self.ranges(ir, below, low);
        self.ranges(ir, above, high);
    }

    /// Tests one range with one comparison: values before it wrap to beyond it.
    fn range(&self, ir: &mut Ir, block: BlockId, span: &Span) {
        let mut left = self.value;
        if span.first > 0 {
            let first = self.constant(ir, block, span.first);
            left = ir.add(Op::Binary(Binary::Sub, self.value, first), self.ty);
            ir[block].instructions.push(left);
        }
        let right = self.constant(ir, block, span.last - span.first);
        let (yes, no) = (self.default.clone(), span.to.clone());
        ir[block].terminator = Terminator::Branch { test: Comparison::Greater, left, right, yes, no };
    }

    fn constant(&self, ir: &mut Ir, block: BlockId, k: u64) -> Value {
        let value = ir.add(Op::Const(k), self.ty);
        ir[block].instructions.push(value);
        value
    }
}

/// Numbers and their targets: the first link that holds a number decides. Ascending; neighbours with one target are
/// one range.
fn disjoint(links: &[Link]) -> Vec<Span> {
    if links.iter().all(|link| link.first == link.last) {
        return distinct(links);
    }
    let mut known: BTreeMap<u64, (u64, &Target)> = BTreeMap::new();
    for link in links.iter().rev() {
        cut_out(&mut known, link.first, link.last);
        known.insert(link.first, (link.last, &link.to));
    }
    let mut spans: Vec<Span> = Vec::with_capacity(known.len());
    for (first, (last, to)) in known {
        match spans.last_mut() {
            Some(before)
                if before.to == *to
                    && before.last.checked_add(1) == Some(first)
                    && before.first < before.last =>
            {
                before.last = last;
            }
            _ => spans.push(Span { first, last, to: to.clone() }),
        }
    }
    spans
}

/// The spans of single keys.
fn distinct(links: &[Link]) -> Vec<Span> {
    let mut spans: Vec<Span> =
        links.iter().map(|link| Span { first: link.first, last: link.last, to: link.to.clone() }).collect();
    // The sort keeps equal keys in their order.
    spans.sort_by_key(|span| span.first);
    spans.dedup_by_key(|span| span.first);
    spans
}

/// Removes the numbers from `first` to `last`, each span at most once: one link put the divided part there.
fn cut_out(known: &mut BTreeMap<u64, (u64, &Target)>, first: u64, last: u64) {
    if let Some((&start, &(end, to))) = known.range(..first).next_back()
        && end >= first
    {
        known.insert(start, (first - 1, to));
        if end > last {
            known.insert(last + 1, (end, to));
            return;
        }
    }
    while let Some((&start, &(end, to))) = known.range(first..=last).next() {
        known.remove(&start);
        if end > last {
            known.insert(last + 1, (end, to));
        }
    }
}

/// Ranges and keys that fit a word of bits, key by key.
fn listed(spans: &[Span]) -> Option<Vec<Span>> {
    let (first, last) = (spans.first()?, spans.last()?);
    let keys: u64 =
        spans.iter().map(|span| (span.last - span.first).saturating_add(1)).fold(0, u64::saturating_add);
    let fits = last.last - first.first < BITMAP_SPAN && keys <= LISTED_MAX;
    if spans.len() < 2 || !fits || spans.iter().any(|span| span.to != first.to) {
        return None;
    }
    let keys = spans.iter().flat_map(|span| {
        (span.first..=span.last).map(|key| Span { first: key, last: key, to: span.to.clone() })
    });
    Some(keys.collect())
}
