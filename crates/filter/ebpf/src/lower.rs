//! Steps to instructions, once each variable has a home.
//!
//! A variable on the stack is read into r0 (left sides) or r1 (right sides, pointers, bases) and written from r0.

use super::allocate::{Location, Locations, SCRATCH};
use super::step::{Operand, Step, Variable};
use tapline_bpf::ebpf::code::*;
use tapline_bpf::ebpf::{
    Assembler, CONTEXT, FRAME, Insn, Label, R0, R1, R2, R3, R4, Register, helper, xdp_md,
};

/// Turns steps into instructions with labels.
pub(super) struct Lowering {
    pub(super) assembler: Assembler,
    pub(super) homes: Locations,
}

impl Lowering {
    /// Sets up the fields that have registers of their own.
    pub(super) fn prologue(&mut self, has_context: bool, is_xdp: bool) {
        if is_xdp {
            self.push(Insn::load(WORD, self.register(Variable::Data), R1, xdp_md::DATA));
            self.push(Insn::load(WORD, self.register(Variable::DataEnd), R1, xdp_md::DATA_END));
        }
        if has_context {
            self.push(Insn::copy(CONTEXT, R1));
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match *step {
            Step::Label(label) => self.assembler.label(label),
            Step::Set { to, from } => self.set(to, from),
            Step::Alu { op, wide, to, left, right } => self.alu(op, wide, to, left, right),
            Step::Reverse { to, from, bits } => self.reverse(to, from, bits),
            Step::Context { to, offset } => self.write(to, |to| Insn::load(WORD, to, CONTEXT, offset)),
            Step::Packet { to, base, offset, size } => {
                let base = base.map(|base| self.read(base, R1));
                self.push(match base {
                    Some(base) => Insn::packet_from(size, base, offset),
                    None => Insn::packet(size, offset),
                });
                self.keep(to, R0);
            }
            Step::Length { to } => {
                self.push(Insn::copy(R1, CONTEXT));
                self.push(Insn::call(helper::XDP_GET_BUFF_LEN));
                self.keep(to, R0);
            }
            Step::Gather { to, base, offset, size } => self.gather(to, base, offset, size),
            Step::Memory { to, pointer, offset, size } => {
                let pointer = self.read(pointer, R1);
                self.write(to, |to| Insn::load(size, to, pointer, offset));
            }
            Step::Jump { test, wide, left, right, to } => self.jump(test, wide, left, right, to),
            Step::Goto(to) => self.assembler.jump(Insn::GOTO, to),
            Step::Return(value) => {
                self.copy_to(R0, value);
                self.push(Insn::EXIT);
            }
            Step::Redirect { map, fallback } => {
                self.push(Insn::load(WORD, R2, CONTEXT, xdp_md::RX_QUEUE_INDEX));
                Insn::set_map(R1, map).into_iter().for_each(|insn| self.push(insn));
                self.push(Insn::set(R3, fallback));
                self.push(Insn::call(helper::REDIRECT_MAP));
                self.push(Insn::EXIT);
            }
            Step::Count { count, keep } => self.count(&count, keep),
            Step::Leave { front, matched: true } => self.redirect(&front),
            Step::Leave { front, matched: false } => self.pass(&front),
        }
    }

    /// Makes the kernel copy packet bytes to the stack, from the buffers that contain them.
    fn gather(&mut self, to: Variable, base: Option<Variable>, offset: u32, size: u8) {
        // The base may live in any register that calls lose, r2 among them: it is read before that is written.
        match base.map(|base| self.read(base, R1)) {
            Some(base) => {
                self.push(Insn::copy(R2, base));
                self.push(Insn::alu_immediate(ADD, true, R2, offset as i32));
            }
            None => self.push(Insn::set(R2, offset)),
        }
        self.push(Insn::copy(R1, CONTEXT));
        self.push(Insn::copy(R3, FRAME));
        self.push(Insn::alu_immediate(ADD, true, R3, SCRATCH.into()));
        self.push(Insn::set(R4, bytes_of(size)));
        self.push(Insn::call(helper::XDP_LOAD_BYTES));
        self.write(to, |to| Insn::load(size, to, FRAME, SCRATCH));
    }

    fn set(&mut self, to: Variable, from: Operand) {
        match self.homes.of(to) {
            Location::Register(register) => self.copy_to(register, from),
            Location::Stack(slot) => {
                let from = self.operand_in(from, R0);
                self.push(Insn::store(FRAME, from, slot));
            }
        }
    }

    fn alu(&mut self, op: u8, wide: bool, to: Variable, left: Operand, right: Operand) {
        let (left, right) = match (left, right) {
            // A constant is best on the right.
            (Operand::Constant(_), Operand::Variable(_)) if is_commutative(op) => (right, left),
            _ => (left, right),
        };
        let result = self.target(to);
        let is_result = |operand: Operand| match operand {
            Operand::Variable(variable) => self.homes.of(variable) == Location::Register(result),
            Operand::Constant(_) => false,
        };
        let (left, right) = match is_result(right) && !is_result(left) && is_commutative(op) {
            true => (right, left),
            false => (left, right),
        };
        // The right side must outlive the move of the left one.
        let work = if is_result(right) && !is_result(left) { R0 } else { result };
        let right = self.short_operand(right, wide, R1);
        self.copy_to(work, left);
        self.push(match right {
            Short::Register(right) => Insn::alu_register(op, wide, work, right),
            Short::Constant(right) => Insn::alu_immediate(op, wide, work, right),
        });
        self.keep(to, work);
    }

    fn reverse(&mut self, to: Variable, from: Variable, bits: i32) {
        let result = self.target(to);
        self.copy_to(result, from.into());
        let is_little = cfg!(target_endian = "little");
        self.push(if is_little {
            Insn::to_big_endian(result, bits)
        } else {
            Insn::to_little_endian(result, bits)
        });
        self.keep(to, result);
    }

    fn jump(&mut self, test: u8, wide: bool, left: Operand, right: Operand, to: Label) {
        let left = self.operand_in(left, R0);
        let right = self.short_operand(right, wide, R1);
        let insn = match right {
            Short::Register(right) => Insn::jump_register(test, wide, left, right),
            Short::Constant(right) => Insn::jump_immediate(test, wide, left, right),
        };
        self.assembler.jump(insn, to);
    }

    pub(super) fn push(&mut self, insn: Insn) {
        self.assembler.push(insn);
    }

    /// An instruction that takes the room of two.
    pub(super) fn push_all(&mut self, insns: [Insn; 2]) {
        insns.into_iter().for_each(|insn| self.push(insn));
    }

    fn register(&self, variable: Variable) -> Register {
        self.target(variable)
    }

    /// The register in which a variable's new value is made.
    fn target(&self, variable: Variable) -> Register {
        match self.homes.of(variable) {
            Location::Register(register) => register,
            Location::Stack(_) => R0,
        }
    }

    fn write(&mut self, to: Variable, insn: impl FnOnce(Register) -> Insn) {
        let result = self.target(to);
        self.push(insn(result));
        self.keep(to, result);
    }

    /// Brings a value that was made in `from` to its variable's home.
    fn keep(&mut self, to: Variable, from: Register) {
        match self.homes.of(to) {
            Location::Register(register) if register == from => {}
            Location::Register(register) => self.push(Insn::copy(register, from)),
            Location::Stack(slot) => self.push(Insn::store(FRAME, from, slot)),
        }
    }

    /// The register that holds a variable: its own, or this one.
    fn read(&mut self, variable: Variable, spare: Register) -> Register {
        match self.homes.of(variable) {
            Location::Register(register) => register,
            Location::Stack(slot) => {
                self.push(Insn::load(DOUBLE, spare, FRAME, slot));
                spare
            }
        }
    }

    fn operand_in(&mut self, operand: Operand, spare: Register) -> Register {
        match operand {
            Operand::Variable(variable) => self.read(variable, spare),
            Operand::Constant(_) => {
                self.copy_to(spare, operand);
                spare
            }
        }
    }

    /// An operand as the right side of an instruction.
    fn short_operand(&mut self, operand: Operand, wide: bool, spare: Register) -> Short {
        match operand {
            Operand::Constant(k) if !wide => Short::Constant(k as u32 as i32),
            // Constants of wide instructions are extended with their sign.
            Operand::Constant(k) if i64::from(k as i32) as u64 == k => Short::Constant(k as i32),
            _ => Short::Register(self.operand_in(operand, spare)),
        }
    }

    pub(super) fn copy_to(&mut self, to: Register, from: Operand) {
        match from {
            Operand::Variable(variable) => match self.homes.of(variable) {
                Location::Register(register) if register == to => {}
                Location::Register(register) => self.push(Insn::copy(to, register)),
                Location::Stack(slot) => self.push(Insn::load(DOUBLE, to, FRAME, slot)),
            },
            Operand::Constant(k) => match u32::try_from(k) {
                Ok(k) => self.push(Insn::set(to, k)),
                Err(_) => Insn::set_wide(to, k).into_iter().for_each(|insn| self.push(insn)),
            },
        }
    }
}

/// The right side of an instruction.
enum Short {
    Register(Register),
    Constant(i32),
}

fn bytes_of(size: u8) -> u32 {
    match size {
        BYTE => 1,
        HALF => 2,
        WORD => 4,
        _ => 8,
    }
}

fn is_commutative(op: u8) -> bool {
    matches!(op, ADD | MUL | AND | OR | XOR)
}
