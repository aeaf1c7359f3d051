//! A program as a block graph: the way back from [`assemble`](crate::assemble).

use std::sync::Arc;

use crate::cfg::{Alu, BlockId, Cfg, JumpTest, Operand, Statement, Terminator, Width};
use crate::{Insn, Program, code};

/// A program's instructions as blocks: one starts at each instruction that is jumped to, and after each jump.
pub fn decode(program: &Program) -> Cfg {
    let insns = program.insns();
    let starts = starts(insns);
    // Instruction -> block.
    let mut number = 0;
    let block_at: Vec<BlockId> = starts
        .iter()
        .map(|&start| {
            number += u32::from(start);
            BlockId(number.wrapping_sub(1))
        })
        .collect();
    let mut graph = Cfg { blocks: Vec::new(), entry: BlockId(0), lists: Arc::default() };
    let mut statements = Vec::new();
    for (at, insn) in insns.iter().enumerate() {
        let to = |distance: u32| block_at[at + 1 + distance as usize];
        let terminator = match insn.class() {
            code::RET if insn.code & 0x18 == code::A => Terminator::ReturnA,
            code::RET => Terminator::Return(insn.k),
            code::JMP if insn.is_branch() => {
                let (test, operand) = branch(*insn);
                let (on_true, on_false) = (to(insn.jt.into()), to(insn.jf.into()));
                Terminator::Branch { test, operand, on_true, on_false }
            }
            code::JMP => Terminator::Goto(to(insn.k)),
            _ => {
                statements.push(statement(*insn));
                if !starts.get(at + 1).copied().unwrap_or(false) {
                    continue;
                }
                Terminator::Goto(to(0))
            }
        };
        graph.push(std::mem::take(&mut statements), terminator);
    }
    graph
}

fn starts(insns: &[Insn]) -> Vec<bool> {
    let mut starts = vec![false; insns.len()];
    let mut mark = |at: usize| {
        if let Some(start) = starts.get_mut(at) {
            *start = true;
        }
    };
    mark(0);
    for (at, insn) in insns.iter().enumerate() {
        match insn.class() {
            code::RET => mark(at + 1),
            code::JMP if insn.is_branch() => {
                mark(at + 1 + usize::from(insn.jt));
                mark(at + 1 + usize::from(insn.jf));
                mark(at + 1);
            }
            code::JMP => {
                mark(at + 1 + insn.k as usize);
                mark(at + 1);
            }
            _ => {}
        }
    }
    starts
}

fn branch(insn: Insn) -> (JumpTest, Operand) {
    let test = match insn.code & 0xf0 {
        code::JEQ => JumpTest::Equal,
        code::JGT => JumpTest::Greater,
        code::JGE => JumpTest::GreaterEqual,
        _ => JumpTest::AnySet,
    };
    (test, operand(insn))
}

fn operand(insn: Insn) -> Operand {
    if insn.code & 0x08 == code::X { Operand::X } else { Operand::K(insn.k) }
}

/// An instruction that is neither jump nor return; the program is valid, so no other codes occur.
fn statement(insn: Insn) -> Statement {
    let size = match insn.code & 0x18 {
        code::B => Width::Byte,
        code::H => Width::Half,
        _ => Width::Word,
    };
    let k = insn.k;
    match (insn.class(), insn.code & 0xe0) {
        (code::LD, code::ABS) => Statement::LoadPacket(size, k),
        (code::LD, code::IND) => Statement::LoadIndexed(size, k),
        (code::LD, code::MEM) => Statement::LoadCell(k as u8),
        (code::LD, code::LEN) => Statement::LoadLen,
        (code::LD, _) => Statement::LoadConst(k),
        (code::LDX, code::MEM) => Statement::LoadXCell(k as u8),
        (code::LDX, code::LEN) => Statement::LoadXLen,
        (code::LDX, code::MSH) => Statement::LoadXHeaderLen(k),
        (code::LDX, _) => Statement::LoadXConst(k),
        (code::ST, _) => Statement::Store(k as u8),
        (code::STX, _) => Statement::StoreX(k as u8),
        (code::ALU, _) => alu(insn),
        _ if insn.code & 0xf8 == code::TXA => Statement::Txa,
        _ => Statement::Tax,
    }
}

fn alu(insn: Insn) -> Statement {
    let op = match insn.code & 0xf0 {
        code::ADD => Alu::Add,
        code::SUB => Alu::Sub,
        code::MUL => Alu::Mul,
        code::DIV => Alu::Div,
        code::OR => Alu::Or,
        code::AND => Alu::And,
        code::LSH => Alu::Shl,
        code::RSH => Alu::Shr,
        code::MOD => Alu::Mod,
        code::XOR => Alu::Xor,
        _ => return Statement::Negate,
    };
    Statement::Alu(op, operand(insn))
}
