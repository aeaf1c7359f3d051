//! Loops written out, round by round: the kernel's program goes forward only.
//!
//! ```text
//! b1(i): branch i >= 3 ? b3 : b2      b1: ... b2: goto c1(1)   c1(i): ... c2: goto d1(i + 1)   ...   the last: goto reject
//! b2: ...; goto b1(i + 1)             where something behind the loop reads its values, it is told from which round they come
//! ```
//!
//! A back edge is taken at most as often as the [`Loop`] says, so the back edge of the last round is never taken.

use super::EmitError;
use rustc_hash::FxHashMap as Map;
use tapline_ir::optimise::clean_up;
use tapline_ir::{Block, BlockId, Dominators, Ir, Loop, Op, ReachingDefinitions, Terminator, Type, Value};

/// The most values of a graph whose loops are written out.
pub(super) const UNROLLED_MAX: u64 = 1 << 16;

/// The graph without loops.
pub(super) fn unroll(ir: &Ir) -> Result<Ir, EmitError> {
    let mut ir = ir.clone();
    while let Some((one, body)) = innermost(&ir) {
        let size: usize =
            body.iter().map(|id| ir[*id].parameters.len() + ir[*id].instructions.len() + 1).sum();
        let all = one.rounds_max.saturating_mul(size as u64).saturating_add(ir.instructions.len() as u64);
        if all > UNROLLED_MAX {
            return Err(EmitError::TooManyRounds { rounds: one.rounds_max });
        }
        write_out(&mut ir, one, &body);
        clean_up(&mut ir);
    }
    ir.loops.clear();
    Ok(ir)
}

/// A loop without another one inside, and its blocks, the header first.
fn innermost(ir: &Ir) -> Option<(Loop, Vec<BlockId>)> {
    let dominators = Dominators::new(ir);
    let reached = ir.loops.iter().filter(|one| dominators.reaches(one.header));
    let all = reached.map(|one| (*one, dominators.body(one.header)));
    all.min_by_key(|(_, body)| body.len())
}

/// The values and blocks of one round, by those of the first.
struct Round {
    values: Map<Value, Value>,
    blocks: Map<BlockId, BlockId>,
}

fn write_out(ir: &mut Ir, one: Loop, body: &[BlockId]) {
    ir.loops.retain(|other| other.header != one.header);
    let reject = rejecting(ir);
    let rounds: Vec<Round> = (0..one.rounds_max).map(|_| copy(ir, body)).collect();
    // From the last round on, while the first still leads to itself.
    let first = Round { values: Map::default(), blocks: body.iter().map(|id| (*id, *id)).collect() };
    let all: Vec<&Round> = std::iter::once(&first).chain(&rounds).collect();
    for (at, round) in all.iter().enumerate() {
        let next = all.get(at + 1).map(|next| next.blocks[&one.header]);
        for id in body {
            let back = round.blocks[id];
            ir[back].terminator.for_each_target_mut(|target| {
                if target.block == round.blocks[&one.header] {
                    target.block = next.unwrap_or(reject);
                    if next.is_none() {
                        target.arguments.clear();
                    }
                }
            });
        }
    }
    tell_rounds(ir, body, &rounds);
}

fn rejecting(ir: &mut Ir) -> BlockId {
    let zero = ir.add(Op::Const(0), Type::U64);
    let terminator = Terminator::Return(zero);
    ir.add_block(Block { parameters: Vec::new(), instructions: vec![zero], terminator })
}

/// A copy of the blocks that leads to itself as they do.
fn copy(ir: &mut Ir, body: &[BlockId]) -> Round {
    let mut round = Round { values: Map::default(), blocks: Map::default() };
    for &id in body {
        let block = ir[id].clone();
        for value in block.parameters.iter().chain(&block.instructions) {
            let copied = ir.add(ir.op(*value).clone(), ir.ty(*value));
            round.values.insert(*value, copied);
        }
        round.blocks.insert(id, ir.add_block(block));
    }
    let of = |value: Value| round.values.get(&value).copied().unwrap_or(value);
    for copied in round.blocks.values() {
        let block = &mut ir[*copied];
        block.parameters.iter_mut().chain(&mut block.instructions).for_each(|value| *value = of(*value));
        block.terminator.map_operands(of);
        block.terminator.for_each_target_mut(|target| {
            target.block = round.blocks.get(&target.block).copied().unwrap_or(target.block);
        });
    }
    for copied in round.values.values() {
        ir.instructions[copied.0 as usize].op.map_operands(of);
    }
    round
}

/// Code behind the loop that reads a value of it must read that of the round from which the loop was left.
fn tell_rounds(ir: &mut Ir, body: &[BlockId], rounds: &[Round]) {
    let dominators = Dominators::new(ir);
    let mut reaching = ReachingDefinitions::new(ir, &dominators);
    let mut defined: Map<Value, ()> = Map::default();
    for id in body {
        for &value in ir[*id].parameters.iter().chain(&ir[*id].instructions) {
            defined.insert(value, ());
            reaching.define(*id, value, value);
            for round in rounds {
                reaching.define(round.blocks[id], value, round.values[&value]);
            }
        }
    }
    let inside: Map<BlockId, ()> = body
        .iter()
        .chain(rounds.iter().flat_map(|round| round.blocks.values()))
        .map(|id| (*id, ()))
        .collect();
    let is_defined = |value: Value| defined.contains_key(&value);
    reaching.rewrite(ir, &dominators.order, is_defined, |id| inside.contains_key(&id));
}
