//! Scratch cells that some path reads before it writes them are set to 0 at the start.
//!
//! ```text
//! geneve or ip:   M[0] = M[1] = M[2] = 0;  UDP to port 6081? M[...] = where the inner packet is;  ... pkt[M[0] : 2]
//! ```
//!
//! Kernels refuse a program that may read a cell that it has not written (`check_load_and_stores` in
//! `net/core/filter.c`). The passes before this one may take a cell's first value for 0.

use crate::cfg::{Cfg, Statement, Terminator};

/// Adds the writes that must come first.
pub fn initialise(mut cfg: Cfg) -> Cfg {
    let unwritten = read_before_written(&cfg);
    if unwritten != 0 {
        let stores = (0..16).filter(|cell| unwritten & 1 << cell != 0).map(Statement::Store);
        let code = [Statement::LoadConst(0)].into_iter().chain(stores).collect();
        cfg.entry = cfg.push(code, Terminator::Goto(cfg.entry));
    }
    cfg
}

/// The cells, as bits, that some path from the start reads without having written them.
fn read_before_written(cfg: &Cfg) -> u16 {
    // The cells that all paths to a block have written; all bits until a path is known.
    let mut written = vec![u16::MAX; cfg.blocks.len()];
    written[cfg.entry.0 as usize] = 0;
    let mut unwritten = 0;
    for id in cfg.order() {
        let mut here = written[id.0 as usize];
        for statement in &cfg[id].statements {
            unwritten |= read(*statement) & !here;
            here |= write(*statement);
        }
        for next in cfg[id].terminator.successors() {
            written[next.0 as usize] &= here;
        }
    }
    unwritten
}

fn read(statement: Statement) -> u16 {
    match statement {
        Statement::LoadCell(cell) | Statement::LoadXCell(cell) => bit(cell),
        _ => 0,
    }
}

fn write(statement: Statement) -> u16 {
    match statement {
        Statement::Store(cell) | Statement::StoreX(cell) => bit(cell),
        _ => 0,
    }
}

fn bit(cell: u8) -> u16 {
    1u16.checked_shl(u32::from(cell)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::{BlockId, JumpTest, Operand};

    /// Branches on A; both edges lead to a block that reads cells 1 and 2.
    fn diamond(left: Vec<Statement>, right: Vec<Statement>) -> Cfg {
        let mut cfg = Cfg::constant(0);
        let read =
            cfg.push(vec![Statement::LoadCell(1), Statement::LoadXCell(2)], Terminator::Goto(BlockId(0)));
        let left = cfg.push(left, Terminator::Goto(read));
        let right = cfg.push(right, Terminator::Goto(read));
        let branch = Terminator::Branch {
            test: JumpTest::Equal,
            operand: Operand::K(1),
            on_true: left,
            on_false: right,
        };
        cfg.entry = cfg.push(vec![Statement::LoadLen], branch);
        cfg
    }

    #[test]
    fn cells_missed_on_one_path_are_written() {
        let both = diamond(vec![Statement::Store(1), Statement::StoreX(2)], vec![Statement::Store(1)]);
        let done = initialise(both);
        assert_eq!(done[done.entry].statements, [Statement::LoadConst(0), Statement::Store(2)]);
        assert_eq!(read_before_written(&done), 0);
    }

    #[test]
    fn cells_written_on_every_path_stay() {
        let stores = vec![Statement::Store(1), Statement::StoreX(2)];
        let written = diamond(stores.clone(), stores);
        assert_eq!(initialise(written.clone()), written);
    }
}
