//! Demand on a block by the rest of the program: registers that are read later, and bytes that are loaded later
//! anyway.
//!
//! ```text
//! wanted  := the registers that some path from here reads before it writes them
//! needed  := how many bytes from the start every path from here to an accepting return loads
//! ```
//!
//! `needed` shows when a load may go although the packet might be too short for it: a later load rejects the paths
//! that would have gone on, and the others reject in any case.

use super::value::{Register, is_unsteady};
use crate::ancillary;
use crate::cfg::{Alu, Block, BlockId, Cfg, JumpTest, Operand, Statement, Terminator};

/// More bytes than any packet: the need of a path that rejects in any case.
const EVERYTHING: u64 = u64::MAX;

/// The facts that are asked for at the start of each block.
#[derive(Debug)]
pub(super) struct Demand {
    wanted: Vec<u32>,
    needed: Vec<u64>,
}

impl Demand {
    /// Computes the demand of the blocks in `order`, which puts each before its successors.
    pub(super) fn of(cfg: &Cfg, order: &[BlockId]) -> Demand {
        let mut demand = Demand { wanted: vec![0; cfg.blocks.len()], needed: vec![0; cfg.blocks.len()] };
        for &id in order.iter().rev() {
            let (mut wanted, mut needed) = demand.at_end(&cfg[id].terminator);
            for statement in cfg[id].statements.iter().rev() {
                wanted = wanted & !(1 << statement.writes()) | statement.reads();
                needed = needed.max(end_of_load(*statement).unwrap_or(0));
            }
            demand.wanted[id.0 as usize] = wanted;
            demand.needed[id.0 as usize] = needed;
        }
        demand
    }

    /// Registers that are read from the beginning of a block on, as bits.
    pub(super) fn wanted(&self, id: BlockId) -> u32 {
        self.wanted[id.0 as usize]
    }

    /// Bytes that every accepting path from the beginning of a block loads.
    pub(super) fn needed(&self, id: BlockId) -> u64 {
        self.needed[id.0 as usize]
    }

    /// Demand at the end of a block, its terminator included.
    pub(super) fn at_end(&self, terminator: &Terminator) -> (u32, u64) {
        match *terminator {
            Terminator::Return(0) => (0, EVERYTHING),
            Terminator::Return(_) => (0, 0),
            Terminator::ReturnA => (Register::A.bit(), 0),
            Terminator::Goto(next) => (self.wanted(next), self.needed(next)),
            Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. } => {
                let has_x = matches!(terminator, Terminator::Branch { operand: Operand::X, .. });
                let compared = Register::A.bit() | if has_x { Register::X.bit() } else { 0 };
                let wanted = self.wanted(on_true) | self.wanted(on_false) | compared;
                (wanted, self.needed(on_true).min(self.needed(on_false)))
            }
        }
    }
}

/// The byte behind a load from a constant offset; `None` for all other statements.
fn end_of_load(statement: Statement) -> Option<u64> {
    match statement {
        Statement::LoadPacket(width, k) if k < ancillary::BASE => {
            Some(u64::from(k) + u64::from(width.bytes()))
        }
        Statement::LoadXHeaderLen(k) => Some(u64::from(k) + 1),
        _ => None,
    }
}

/// Whether a statement may end the program by rejecting the packet, if nothing more is known.
pub(super) fn may_reject(statement: Statement) -> bool {
    match statement {
        Statement::LoadPacket(_, k) => k < ancillary::BASE || is_unsteady(k),
        Statement::LoadIndexed(..) | Statement::LoadXHeaderLen(_) => true,
        Statement::Alu(Alu::Div | Alu::Mod, operand) => matches!(operand, Operand::X | Operand::K(0)),
        _ => false,
    }
}

/// Removes statements whose result is unread and whose failure changes nothing, and moves arithmetic into the test
/// where it fits. `safe` has for each block the statements that cannot reject there. Returns whether any statement
/// between others was removed: a load that has become useless leaves nothing behind to look at again.
pub(super) fn sweep(cfg: &mut Cfg, order: &[BlockId], safe: &[Vec<bool>], folds: bool) -> bool {
    let mut removed = false;
    let mut demand = Demand { wanted: vec![0; cfg.blocks.len()], needed: vec![0; cfg.blocks.len()] };
    for &id in order.iter().rev() {
        let block = &mut cfg[id];
        let (mut wanted, mut needed) = demand.at_end(&block.terminator);
        let mut kept = Vec::with_capacity(block.statements.len());
        for (&statement, &safe) in block.statements.iter().zip(&safe[id.0 as usize]).rev() {
            let end = end_of_load(statement);
            let harmless = safe || !may_reject(statement) || end.is_some_and(|end| end <= needed);
            if harmless && wanted & 1 << statement.writes() == 0 {
                removed |= end.is_none();
                continue;
            }
            wanted = wanted & !(1 << statement.writes()) | statement.reads();
            needed = needed.max(end.unwrap_or(0));
            kept.push(statement);
        }
        kept.reverse();
        block.statements = kept;
        if block.terminator.successors().all(|next| demand.wanted(next) & Register::A.bit() == 0) {
            fold_into_test(block, folds);
        }
        demand.wanted[id.0 as usize] = wanted;
        demand.needed[id.0 as usize] = needed;
    }
    removed
}

/// `A & m`, then `= 0`, is one test for bits; `A - k` or `A - X`, then `=`, is one comparison. A must not be read
/// afterwards. Without `folds` an `and` with X stays: the value of X is computed later.
fn fold_into_test(block: &mut Block, folds: bool) {
    let Terminator::Branch { test: JumpTest::Equal, operand: Operand::K(k), on_true, on_false } =
        block.terminator
    else {
        return;
    };
    block.terminator = match block.statements.last() {
        Some(&Statement::Alu(Alu::And, operand)) if k == 0 && (folds || operand != Operand::X) => {
            Terminator::Branch { test: JumpTest::AnySet, operand, on_true: on_false, on_false: on_true }
        }
        Some(&Statement::Alu(Alu::Sub, Operand::K(less))) => {
            let operand = Operand::K(k.wrapping_add(less));
            Terminator::Branch { test: JumpTest::Equal, operand, on_true, on_false }
        }
        Some(&Statement::Alu(Alu::Sub, Operand::X)) if k == 0 => {
            Terminator::Branch { test: JumpTest::Equal, operand: Operand::X, on_true, on_false }
        }
        _ => return,
    };
    block.statements.pop();
}
