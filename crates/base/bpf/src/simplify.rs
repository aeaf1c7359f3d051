//! Shorter programs with the same answers, and the proof that a filter can never be true.
//!
//! ```text
//! forward   values of registers and outcomes of tests, along every path: decided tests are stepped over
//! regroup   chains of `or` and of `and`: tests of one value side by side
//! forward   again, and now loads of what a register already holds go as well
//! sweep     backward: statements with an unread result go; `and` and `sub` move into the test
//!           forward and sweep again while there is something to remove
//! merge     equal blocks become one; those from which every path rejects become the rejecting return
//! ```
//!
//! The simplified program has the same result as the given one for every packet, however short. In particular a load
//! outside of the packet still rejects it where it did: a load goes only where its bytes, or bytes behind them, were
//! loaded before, or will be on every path that accepts. (libpcap's optimiser does not keep to this, see its issue
//! 430.)
//!
//! The cost is near linear in the size of the graph: each pass visits each block once, with bounded facts and bounded
//! steps.

mod backward;
mod facts;
mod forward;
mod merge;
mod regroup;
#[cfg(test)]
mod tests;
mod value;

use crate::cfg::{Cfg, Terminator};
use forward::{Removal, forward};
use value::{Register, Values};
pub use value::{compute, outcome};

/// Maximum number of times that a sweep's removals are a reason to look again. Arithmetic through scratch cells needs
/// two rounds.
const SWEEPS_MAX: usize = 4;

/// A graph that answers as `cfg` does, with less.
pub fn simplify(cfg: &Cfg) -> Cfg {
    with_values(cfg, Values::new(cfg.blocks.len()))
}

fn with_values(cfg: &Cfg, mut values: Values) -> Cfg {
    let mut first = forward(cfg, &mut values, Removal::AllButA, &[]);
    regroup::regroup(&mut first);
    let mut pass = forward(&first.cfg, &mut values, Removal::All, &first.tested);
    for _ in 0..SWEEPS_MAX {
        if !backward::sweep(&mut pass.cfg, &pass.order, &pass.safe, values.folds) {
            break;
        }
        pass = forward(&pass.cfg, &mut values, Removal::All, &first.tested);
    }
    merge::merge(pass.cfg, &pass.order)
}

/// Whether libpcap's optimiser proves that a graph rejects every packet. It moves branches in a first round, in which
/// arithmetic, and loads behind an index, are known by their form alone (`opt_loop` without statements); in a second
/// one it works them out, and then only follows the tests from the entry on that numbers decide (`opt_root`). So
/// `ip and 2 + 1 = 4` is not proven, and `2 + 1 = 4 and ip` is.
pub fn is_proven_to_reject_all(cfg: &Cfg) -> bool {
    let first = with_values(cfg, Values::unfolded(cfg.blocks.len()));
    let mut values = Values::new(0);
    let mut registers = [Values::ZERO; Register::COUNT];
    let mut at = first.entry;
    loop {
        let block = &first[at];
        for &statement in &block.statements {
            let (register, value) = values.effect(statement, &registers);
            registers[usize::from(register.0)] = value.unwrap_or_else(|| values.fresh(register));
        }
        // Blocks never repeat, so this ends.
        at = match block.terminator {
            Terminator::Return(k) => return k == 0,
            Terminator::ReturnA => return false,
            Terminator::Goto(next) => next,
            // Filters as they were written have none.
            Terminator::OneOf { .. } => return false,
            Terminator::Branch { test, operand, on_true, on_false } => {
                let right = values.operand(operand, &registers);
                match (values.constant(registers[0]), values.constant(right)) {
                    (Some(left), Some(right)) if outcome(test, left, right) => on_true,
                    (Some(_), Some(_)) => on_false,
                    _ => return false,
                }
            }
        };
    }
}

/// Whether a simplified graph rejects every packet: libpcap refuses such filters.
pub fn rejects_all(cfg: &Cfg) -> bool {
    cfg[cfg.entry].terminator == Terminator::Return(0)
}
