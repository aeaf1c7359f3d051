//! A block graph to a program.
//!
//! ```text
//! order:   each block before its successors, so that all jumps go forward
//! branch:  jeq #k jt jf        -- 8 bits each; out of reach: over a `ja`, or to a copy of the `ret` there
//! list:    jeq #k jt 0 for each number but the last, jeq #k jt jf
//! goto:    nothing if the block follows, else `ja`, or a copy of the `ret` there
//!
//! 1,000 tests that all lead to one `ret` share a copy of it for each 255 instructions. The kernel, which checks that
//! scratch cells are written before they are read, takes what follows a `ret` for its successor
//! (`check_load_and_stores` in `net/core/filter.c`). So a program with scratch cells has its `ret`s at its end only,
//! and a `ja` in place of each copy.
//! ```
//!
//! The program is made from its end to its start: each target already has its position when the jump to it is made,
//! so one pass is enough.

use crate::cfg::{Alu, Block, BlockId, Cfg, JumpTest, Operand, Statement, Terminator, Width};
use crate::{Insn, code};

/// The instructions of a graph: jumps go forward only.
pub fn assemble(cfg: &Cfg) -> Vec<Insn> {
    let mut assembler = Assembler {
        cfg,
        reversed: Vec::new(),
        distance: vec![0; cfg.blocks.len()],
        copy: vec![0; cfg.blocks.len()],
        ret: Vec::new(),
        uses_cells: uses_cells(cfg),
    };
    let order = cfg.order();
    let (returns, others): (Vec<BlockId>, Vec<BlockId>) =
        order.iter().rev().partition(|id| only_returns(&cfg[**id]));
    for id in returns.into_iter().chain(others) {
        assembler.block(id);
    }
    assembler.reversed.reverse();
    assembler.reversed
}

/// The farthest that an 8-bit jump reaches.
const REACH: usize = 255;

struct Assembler<'a> {
    cfg: &'a Cfg,
    /// The program from its end.
    reversed: Vec<Insn>,
    /// Number of instructions from each block's start to the program's end.
    distance: Vec<usize>,
    /// Position of the last instruction that goes on to each block, 0 if there is none.
    copy: Vec<usize>,
    /// The places of `ret` instructions and their return values, so that equal ones become one.
    ret: Vec<(u32, usize)>,
    uses_cells: bool,
}

impl Assembler<'_> {
    fn block(&mut self, id: BlockId) {
        let cfg = self.cfg;
        let Block { statements, terminator } = &cfg[id];
        match *terminator {
            Terminator::Return(k) if statements.is_empty() => {
                self.shared_return(id, k);
                return;
            }
            Terminator::Return(k) => self.push(Insn::new(code::RET | code::K, k)),
            Terminator::ReturnA => self.push(Insn::new(code::RET | code::A, 0)),
            Terminator::Goto(next) => self.goto(next),
            Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. }
                if on_true == on_false =>
            {
                self.goto(on_true);
            }
            Terminator::Branch { test, operand, on_true, on_false } => {
                self.branch(test, operand, on_true, on_false)
            }
            Terminator::OneOf { list, on_true, on_false } => {
                self.one_of(cfg.list(list), on_true, on_false);
            }
        }
        for statement in statements.iter().rev() {
            self.push(instruction(*statement));
        }
        self.distance[id.0 as usize] = self.reversed.len();
    }

    fn push(&mut self, insn: Insn) {
        self.reversed.push(insn);
    }

    /// An empty block that returns: one for each value, at the end of the program.
    fn shared_return(&mut self, id: BlockId, k: u32) {
        let known = self.ret.iter().find(|(value, _)| *value == k).map(|(_, place)| *place);
        self.distance[id.0 as usize] = known.unwrap_or_else(|| {
            self.push(Insn::new(code::RET | code::K, k));
            self.ret.push((k, self.reversed.len()));
            self.reversed.len()
        });
    }

    /// Number of instructions that a jump at this place skips to get to `target`.
    fn skip(&self, target: BlockId) -> usize {
        self.reversed.len() - self.distance[target.0 as usize]
    }

    fn goto(&mut self, target: BlockId) {
        if self.skip(target) > 0 {
            self.far_jump(target);
        }
    }

    /// Goes to the target from anywhere: by returning its value, or by a jump of 32 bits.
    fn far_jump(&mut self, target: BlockId) {
        let block = &self.cfg[target];
        let insn = match block.terminator {
            Terminator::Return(k) if only_returns(block) && !self.uses_cells => {
                Insn::new(code::RET | code::K, k)
            }
            _ => Insn::new(code::JMP | code::JA, self.skip(target) as u32),
        };
        self.push(insn);
        self.copy[target.0 as usize] = self.reversed.len();
    }

    /// The distance of the target, or of an instruction that goes on to it and is within reach, with `margin`
    /// instructions more that may come to lie between.
    fn within_reach(&mut self, target: BlockId, margin: usize) -> usize {
        let reaches = |distance: usize| self.reversed.len() - distance + margin <= REACH;
        let (block, copy) = (self.distance[target.0 as usize], self.copy[target.0 as usize]);
        if reaches(block) {
            return block;
        }
        if copy == 0 || !reaches(copy) {
            self.far_jump(target);
        }
        self.copy[target.0 as usize]
    }

    fn branch(&mut self, test: JumpTest, operand: Operand, on_true: BlockId, on_false: BlockId) {
        let (source, k) = match operand {
            Operand::K(k) => (code::K, k),
            Operand::X => (code::X, 0),
        };
        // The way to the other target may come to lie between.
        let on_false = self.within_reach(on_false, 1);
        self.jump(code::JMP | test_code(test) | source, k, on_true, on_false);
    }

    /// A comparison with each number of a list, from the last to the first.
    fn one_of(&mut self, list: &[u32], on_true: BlockId, on_false: BlockId) {
        let mut otherwise = self.within_reach(on_false, 1);
        for &k in list.iter().rev() {
            self.jump(code::JMP | code::JEQ | code::K, k, on_true, otherwise);
            otherwise = self.reversed.len();
        }
    }

    /// A jump to a block or, if it is not taken, to a place that stays within reach if an instruction comes between.
    fn jump(&mut self, code: u16, k: u32, on_true: BlockId, on_false: usize) {
        let on_true = self.within_reach(on_true, 0);
        let skip = |distance: usize| (self.reversed.len() - distance) as u8;
        let (jt, jf) = (skip(on_true), skip(on_false));
        self.push(Insn::jump(code, k, jt, jf));
    }
}

fn only_returns(block: &Block) -> bool {
    block.statements.is_empty() && matches!(block.terminator, Terminator::Return(_))
}

fn uses_cells(cfg: &Cfg) -> bool {
    let stores = |statement: &Statement| matches!(statement, Statement::Store(_) | Statement::StoreX(_));
    cfg.blocks.iter().any(|block| block.statements.iter().any(stores))
}

fn test_code(test: JumpTest) -> u16 {
    match test {
        JumpTest::Equal => code::JEQ,
        JumpTest::Greater => code::JGT,
        JumpTest::GreaterEqual => code::JGE,
        JumpTest::AnySet => code::JSET,
    }
}

fn instruction(statement: Statement) -> Insn {
    match statement {
        Statement::LoadConst(k) => Insn::new(code::LD | code::IMM, k),
        Statement::LoadPacket(width, k) => Insn::new(code::LD | code::ABS | size(width), k),
        Statement::LoadIndexed(width, k) => Insn::new(code::LD | code::IND | size(width), k),
        Statement::LoadLen => Insn::new(code::LD | code::LEN, 0),
        Statement::LoadCell(cell) => Insn::new(code::LD | code::MEM, u32::from(cell)),
        Statement::LoadXConst(k) => Insn::new(code::LDX | code::IMM, k),
        Statement::LoadXCell(cell) => Insn::new(code::LDX | code::MEM, u32::from(cell)),
        Statement::LoadXLen => Insn::new(code::LDX | code::LEN, 0),
        Statement::LoadXHeaderLen(k) => Insn::new(code::LDX | code::B | code::MSH, k),
        Statement::Store(cell) => Insn::new(code::ST, u32::from(cell)),
        Statement::StoreX(cell) => Insn::new(code::STX, u32::from(cell)),
        Statement::Alu(op, Operand::K(k)) => Insn::new(code::ALU | alu_code(op) | code::K, k),
        Statement::Alu(op, Operand::X) => Insn::new(code::ALU | alu_code(op) | code::X, 0),
        Statement::Negate => Insn::new(code::ALU | code::NEG, 0),
        Statement::Tax => Insn::new(code::MISC | code::TAX, 0),
        Statement::Txa => Insn::new(code::MISC | code::TXA, 0),
    }
}

fn size(width: Width) -> u16 {
    match width {
        Width::Byte => code::B,
        Width::Half => code::H,
        Width::Word => code::W,
    }
}

fn alu_code(op: Alu) -> u16 {
    match op {
        Alu::Add => code::ADD,
        Alu::Sub => code::SUB,
        Alu::Mul => code::MUL,
        Alu::Div => code::DIV,
        Alu::Mod => code::MOD,
        Alu::And => code::AND,
        Alu::Or => code::OR,
        Alu::Xor => code::XOR,
        Alu::Shl => code::LSH,
        Alu::Shr => code::RSH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use tapline_packet::{Meta, Packet};

    /// A chain of `length` tests of the first byte that jump to two returns and to one block in common.
    fn far_graph(length: u32) -> Cfg {
        let mut cfg = Cfg::constant(0);
        let accept = cfg.push(Vec::new(), Terminator::Return(7));
        let common = cfg.push(vec![Statement::LoadConst(1)], Terminator::Return(9));
        let mut next = BlockId(0);
        for k in (0..length).rev() {
            let target = if k % 2 == 0 { accept } else { common };
            let code = vec![Statement::LoadPacket(Width::Byte, 0)];
            next = cfg.push(
                code,
                Terminator::Branch {
                    test: JumpTest::Equal,
                    operand: Operand::K(k),
                    on_true: target,
                    on_false: next,
                },
            );
        }
        cfg.entry = next;
        cfg
    }

    #[test]
    fn jumps_out_of_reach_arrive() {
        for length in [1, 100, 127, 128, 129, 200, 256] {
            let program = Program::new(assemble(&far_graph(length))).expect("valid");
            for byte in 0..=255u8 {
                let meta = Meta { wire_len: 1, ..Meta::default() };
                let expected = match u32::from(byte) {
                    k if k >= length => 0,
                    k if k % 2 == 0 => 7,
                    _ => 9,
                };
                assert_eq!(program.run(Packet { data: &[byte], meta: &meta }), expected, "{length} {byte}");
            }
        }
    }

    #[test]
    fn far_targets_share_their_copies() {
        let length = 10_000;
        let insns = assemble(&far_graph(length));
        let copies = insns.len() - 2 * length as usize;
        assert!(copies < 3 * 2 * insns.len() / REACH, "{copies}");
    }

    #[test]
    fn with_scratch_cells_returns_are_at_the_end_only() {
        let mut cfg = far_graph(2000);
        let entry = cfg.entry;
        cfg.entry = cfg.push(vec![Statement::Store(0)], Terminator::Goto(entry));
        let insns = assemble(&cfg);
        let first = insns.iter().position(|insn| insn.class() == code::RET).expect("a return");
        // Beside the shared ones, the block that loads before it returns.
        assert!(insns.len() - first <= 4, "{first} of {}", insns.len());
    }

    #[test]
    fn equal_returns_become_one() {
        let insns = assemble(&far_graph(2));
        assert_eq!(insns.iter().filter(|insn| **insn == Insn::new(code::RET, 7)).count(), 1);
    }
}
