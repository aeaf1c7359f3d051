//! Comparisons in network order: instead of swapping the bytes of each packet, the constants are swapped once.
//!
//! ```text
//! v1 = load16 [12]; branch v1 == 0x800            v1 = load16le [12]; branch v1 == 8
//! v1 = load32 [26]; v2 = v1 & 0xffff0000          v1 = load32le [26]; v2 = v1 & 0xffff
//! v1 = load32 [14]; v2 = v1 >> 28; v2 == 6        v1 = load32le [14]; v2 = v1 & 0xf0; v2 == 0x60
//! ```
//!
//! Equality and bits in common do not mind the order of bytes; greater and less, and sums, do. So a load is reversed
//! if it is only masked, shifted right, and compared with constants. Lookups that need keys close together (tables,
//! words of bits) keep the order in which their keys are close.

use crate::{
    Binary, BlockId, ByteOrder, Case, Comparison, Ir, Op, SwitchSearch, Terminator, Type, Value, Width,
};

/// Turns loads around where that costs nothing.
pub(super) fn order(ir: &mut Ir) -> bool {
    let readers = Readers::of(ir);
    let mut turned = Turned { fresh: vec![Vec::new(); ir.blocks.len()] };
    let mut changed = false;
    for id in ir.order() {
        for at in 0..ir[id].instructions.len() {
            let value = ir[id].instructions[at];
            let Op::Load(place, width, ByteOrder::Big) = *ir.op(value) else { continue };
            let seen = Seen { width, shift: 0 };
            if width != Width::Byte && readers.any(value) && readers.indifferent(ir, value, seen) {
                ir.instructions[value.0 as usize].op = Op::Load(place, width, ByteOrder::Little);
                turned.readers(ir, &readers, value, seen);
                changed = true;
            }
        }
    }
    turned.finish(ir);
    changed
}

/// The steps between a load and a value: a shift to the right by this number of bits, perhaps a mask.
#[derive(Clone, Copy)]
struct Seen {
    width: Width,
    shift: u32,
}

impl Seen {
    fn bits(self) -> u32 {
        self.width.bytes() * 8
    }

    fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// The number that the turned load is compared with, where the shifted one was compared with `k`; `None` if no
    /// load is so great.
    fn number(self, k: u64) -> Option<u64> {
        (k <= self.max() >> self.shift).then(|| self.swap(k << self.shift))
    }

    /// The bits of the reversed load that correspond to those of a mask.
    fn mask(self, mask: u64) -> u64 {
        self.swap((mask & self.max() >> self.shift) << self.shift)
    }

    fn swap(self, k: u64) -> u64 {
        k.swap_bytes() >> (64 - self.bits())
    }
}

#[derive(Clone, Copy)]
enum Reader {
    /// An instruction, and its block.
    Instruction(Value, BlockId),
    /// A block's choice.
    Choice(BlockId),
    /// As an argument, or as a return value.
    Other,
}

struct Readers {
    of: Vec<Vec<Reader>>,
}

impl Readers {
    fn of(ir: &Ir) -> Readers {
        let mut of = vec![Vec::new(); ir.instructions.len()];
        for id in ir.order() {
            for &value in &ir[id].instructions {
                ir.op(value)
                    .for_each_operand(|read| of[read.0 as usize].push(Reader::Instruction(value, id)));
            }
            let terminator = &ir[id].terminator;
            match terminator {
                Terminator::Branch { left, right, .. } => {
                    [left, right].iter().for_each(|read| of[read.0 as usize].push(Reader::Choice(id)));
                }
                Terminator::Switch { value, .. } => of[value.0 as usize].push(Reader::Choice(id)),
                Terminator::Return(value) => of[value.0 as usize].push(Reader::Other),
                Terminator::Goto(_) => {}
            }
            terminator.for_each_target(|target| {
                target.arguments.iter().for_each(|read| of[read.0 as usize].push(Reader::Other));
            });
        }
        Readers { of }
    }

    fn any(&self, value: Value) -> bool {
        !self.of[value.0 as usize].is_empty()
    }

    /// Whether all readers can do with the load turned around.
    fn indifferent(&self, ir: &Ir, value: Value, seen: Seen) -> bool {
        self.of[value.0 as usize].iter().all(|reader| match *reader {
            Reader::Other => false,
            Reader::Choice(id) => choice_is_indifferent(ir, &ir[id].terminator, value, seen),
            Reader::Instruction(by, _) => match *ir.op(by) {
                Op::Compare(test, left, right) => {
                    question_is_indifferent(ir, test, other(value, left, right), seen)
                }
                Op::Binary(Binary::And, left, right) => {
                    ir.as_const(other(value, left, right)).is_some() && self.indifferent(ir, by, seen)
                }
                Op::Binary(Binary::Shr, left, right) if left == value => match ir.as_const(right) {
                    Some(by_bits) if by_bits < u64::from(seen.bits() - seen.shift) => {
                        self.indifferent(ir, by, Seen { shift: seen.shift + by_bits as u32, ..seen })
                    }
                    _ => false,
                },
                _ => false,
            },
        })
    }
}

/// The other one of two operands.
fn other(value: Value, left: Value, right: Value) -> Value {
    if left == value { right } else { left }
}

fn choice_is_indifferent(ir: &Ir, terminator: &Terminator, value: Value, seen: Seen) -> bool {
    match terminator {
        Terminator::Branch { test, left, right, .. } => {
            question_is_indifferent(ir, *test, other(value, *left, *right), seen)
        }
        Terminator::Switch { cases, search: SwitchSearch::Binary | SwitchSearch::PerfectHash, .. } => {
            cases.iter().all(|case| seen.number(case.key).is_some())
        }
        _ => false,
    }
}

fn question_is_indifferent(ir: &Ir, test: Comparison, with: Value, seen: Seen) -> bool {
    match (test, ir.as_const(with)) {
        (Comparison::Equal, Some(k)) => seen.number(k).is_some(),
        (Comparison::AnySet, Some(_)) => true,
        _ => false,
    }
}

/// Changes the readers of turned loads.
struct Turned {
    /// For each block its new constants.
    fresh: Vec<Vec<Value>>,
}

impl Turned {
    fn readers(&mut self, ir: &mut Ir, readers: &Readers, value: Value, seen: Seen) {
        for reader in &readers.of[value.0 as usize] {
            match *reader {
                Reader::Other => {}
                Reader::Choice(id) => self.choice(ir, id, seen),
                Reader::Instruction(by, id) => self.instruction(ir, readers, value, by, id, seen),
            }
        }
    }

    fn choice(&mut self, ir: &mut Ir, id: BlockId, seen: Seen) {
        let mut terminator = std::mem::replace(&mut ir[id].terminator, Terminator::Return(Value(0)));
        match &mut terminator {
            Terminator::Branch { test, left, right, .. } => {
                let constant = if ir.as_const(*left).is_some() { left } else { right };
                *constant = self.turned(ir, id, *test, *constant, seen);
            }
            Terminator::Switch { cases, .. } => {
                let turn = |case: &mut Case| case.key = seen.number(case.key).unwrap_or(case.key);
                cases.iter_mut().for_each(turn);
                cases.sort_by_key(|case| case.key);
            }
            _ => {}
        }
        ir[id].terminator = terminator;
    }

    fn instruction(
        &mut self,
        ir: &mut Ir,
        readers: &Readers,
        value: Value,
        by: Value,
        id: BlockId,
        seen: Seen,
    ) {
        let ty = ir.ty(by);
        let op = match *ir.op(by) {
            Op::Compare(test, left, right) => {
                Op::Compare(test, value, self.turned(ir, id, test, other(value, left, right), seen))
            }
            Op::Binary(Binary::And, left, right) => {
                let mask = ir.as_const(other(value, left, right)).unwrap_or(0);
                let mask = self.constant(ir, id, ty, seen.mask(mask));
                self.readers(ir, readers, by, seen);
                Op::Binary(Binary::And, value, mask)
            }
            Op::Binary(Binary::Shr, _, bits) => {
                let seen = Seen { shift: seen.shift + ir.as_const(bits).unwrap_or(0) as u32, ..seen };
                let mask = self.constant(ir, id, ty, seen.mask(u64::MAX));
                self.readers(ir, readers, by, seen);
                Op::Binary(Binary::And, value, mask)
            }
            _ => return,
        };
        ir.instructions[by.0 as usize].op = op;
    }

    fn turned(&mut self, ir: &mut Ir, id: BlockId, test: Comparison, constant: Value, seen: Seen) -> Value {
        let k = ir.as_const(constant).unwrap_or(0);
        let turned = match test {
            Comparison::AnySet => seen.mask(k),
            _ => seen.number(k).unwrap_or(k),
        };
        self.constant(ir, id, ir.ty(constant), turned)
    }

    fn constant(&mut self, ir: &mut Ir, id: BlockId, ty: Type, k: u64) -> Value {
        let value = ir.add(Op::Const(k), ty);
        self.fresh[id.0 as usize].push(value);
        value
    }

    /// Puts the new constants first in their blocks.
    fn finish(self, ir: &mut Ir) {
        for (at, fresh) in self.fresh.into_iter().enumerate().filter(|(_, fresh)| !fresh.is_empty()) {
            let instructions = &mut ir[BlockId(at as u32)].instructions;
            *instructions = fresh.into_iter().chain(std::mem::take(instructions)).collect();
        }
    }
}
