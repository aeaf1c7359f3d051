//! Chains of tests that share an exit edge, sorted so that tests of one value are adjacent.
//!
//! ```text
//! src = a? -> dst = a? -> src = b? -> dst = b? -> no        every yes goes to one place
//! src = a? -> dst = a? -> dst = b? -> src = b? -> no        one load for each group
//! ```
//!
//! Links of such a chain change nothing but A and may be asked in any order, once all their loads are known to be
//! inside of the packet. So the first link of a group stays first (its load decides for short packets), and the links
//! that the state behind it covers may move.

use super::backward::{Demand, may_reject};
use super::forward::{Forward, PathFacts, load_of};
use super::value::{Register, Value};
use crate::cfg::{BlockId, Cfg, Terminator};
use rustc_hash::FxHashMap as Map;

/// The edge that the links share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    OnTrue,
    OnFalse,
}

/// A link's edge out of the chain, and the one to its next link.
fn exits(terminator: &Terminator, shared: Shared) -> Option<(BlockId, BlockId)> {
    let (Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. }) =
        *terminator
    else {
        return None;
    };
    Some(match shared {
        Shared::OnTrue => (on_true, on_false),
        Shared::OnFalse => (on_false, on_true),
    })
}

/// Sorts all chains of a graph in place.
pub(super) fn regroup(forward: &mut Forward) {
    let demand = Demand::of(&forward.cfg, &forward.order);
    let ways_in = count_ways_in(&forward.cfg, &forward.order);
    let mut in_chain = vec![false; forward.cfg.blocks.len()];
    for shared in [Shared::OnTrue, Shared::OnFalse] {
        for at in 0..forward.order.len() {
            let head = forward.order[at];
            if in_chain[head.0 as usize] {
                continue;
            }
            let chain = chain_from(forward, head, shared, &demand, &ways_in);
            if chain.len() > 2 {
                chain.iter().for_each(|id| in_chain[id.0 as usize] = true);
                sort(forward, &chain, shared);
            }
        }
    }
}

fn count_ways_in(cfg: &Cfg, order: &[BlockId]) -> Vec<u32> {
    let mut ways = vec![0; cfg.blocks.len()];
    for next in order.iter().flat_map(|&id| cfg[id].terminator.successors()) {
        ways[next.0 as usize] += 1;
    }
    ways
}

/// The links from `head` on: blocks with one incoming edge, from the link before.
fn chain_from(
    forward: &Forward,
    head: BlockId,
    shared: Shared,
    demand: &Demand,
    ways_in: &[u32],
) -> Vec<BlockId> {
    let mut chain = Vec::new();
    let Some((exit, _)) = exits(&forward.cfg[head].terminator, shared) else { return chain };
    let mut id = head;
    while let Some((to, next)) = exits(&forward.cfg[id].terminator, shared) {
        if to != exit || !is_link(forward, id, demand) {
            break;
        }
        chain.push(id);
        if ways_in[next.0 as usize] != 1 {
            break;
        }
        id = next;
    }
    chain
}

/// Whether a block loads A for itself, changes nothing else, and leaves an A that is unread behind it.
fn is_link(forward: &Forward, id: BlockId, demand: &Demand) -> bool {
    let block = &forward.cfg[id];
    let loads_first = block.statements.first().is_some_and(|s| s.reads() & Register::A.bit() == 0);
    loads_first
        && block.statements.iter().all(|s| s.writes() == u32::from(Register::A.0))
        && block.terminator.successors().all(|next| demand.wanted(next) & Register::A.bit() == 0)
        && forward.tested[id.0 as usize].is_some()
}

/// Splits a chain where a load is not yet known to be inside of the packet, and groups each stretch.
fn sort(forward: &mut Forward, chain: &[BlockId], shared: Shared) {
    let after = chain.last().and_then(|&id| exits(&forward.cfg[id].terminator, shared)).map(|(_, next)| next);
    let mut sorted = Vec::with_capacity(chain.len());
    let mut first = 0;
    while first < chain.len() {
        let len = stretch(forward, &chain[first..]);
        grouped(forward, &chain[first..first + len], &mut sorted);
        first += len;
    }
    if sorted == chain {
        return;
    }
    let nexts = sorted[1..].iter().copied().chain(after);
    for (&id, next) in sorted.iter().zip(nexts) {
        if let Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. } =
            &mut forward.cfg[id].terminator
        {
            match shared {
                Shared::OnTrue => *on_false = next,
                Shared::OnFalse => *on_true = next,
            }
        }
    }
}

/// Number of links, from the first on, that can be sorted: their loads are safe once the first has been passed.
fn stretch(forward: &Forward, chain: &[BlockId]) -> usize {
    let Some((state, _)) = chain.get(1).and_then(|id| forward.tested[id.0 as usize].as_ref()) else {
        return chain.len();
    };
    1 + chain[1..].iter().take_while(|id| cannot_reject(&forward.cfg, **id, state)).count()
}

fn cannot_reject(cfg: &Cfg, id: BlockId, state: &PathFacts) -> bool {
    cfg[id].statements.iter().all(|&statement| match load_of(statement, &state.registers) {
        Some(load) => state.held.covers(load.base, load.end),
        None => !may_reject(statement),
    })
}

/// Appends the links, those that test one value together, in the order in which the values come up.
fn grouped(forward: &Forward, links: &[BlockId], sorted: &mut Vec<BlockId>) {
    let mut places: Map<Option<Value>, usize> = Map::default();
    let mut groups: Vec<Vec<BlockId>> = Vec::new();
    for &id in links {
        let value = forward.tested[id.0 as usize].as_ref().map(|&(_, value)| value);
        let place = *places.entry(value).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(id);
    }
    sorted.extend(groups.into_iter().flatten());
}
