//! Constant folding: values that can be computed now are not computed for each packet.
//!
//! ```text
//! 2 + 3 => 5           v + 0 => v           v & 0 => 0           (v & 15) & 7 => v & 7
//! branch 1 == 1 ? a : b => goto a           branch 5 > v ? a : b => branch v >= 5 ? b : a
//! branch (v == 5) == 0 ? a : b => branch v == 5 ? b : a           branch v - 2 == 3 ? a : b => branch v == 5 ? a : b
//! load8 [(v + 2) + 1] => load8 [v + 3]      need 0 => nothing     nonzero 5 => nothing
//! nonzero 0 => return 0
//! ```

use crate::{
    Binary, BlockId, Comparison, Instruction, Ir, Op, PacketOffset, Target, Terminator, Type, Value,
};

/// Rewritings of one branch at most; each takes a step towards the packet's bytes.
const STEPS_MAX: usize = 8;

/// The most bytes of a load.
const LOADED_MAX: u32 = 8;

/// Computes constant values.
pub(super) fn fold(ir: &mut Ir) -> bool {
    let same = (0..ir.instructions.len() as u32).map(Value).collect();
    let mut fold = Fold { same, block: Vec::new(), changed: false };
    for id in ir.order() {
        fold.block(ir, id);
    }
    fold.changed
}

struct Fold {
    /// The representative of each value.
    same: Vec<Value>,
    /// The instructions of the block in hand.
    block: Vec<Value>,
    changed: bool,
}

enum Simpler {
    Constant(u64),
    Same(Value),
    /// The operation on a value and a constant.
    With(Binary, Value, u64),
}

impl Fold {
    fn block(&mut self, ir: &mut Ir, id: BlockId) {
        let mut terminator = std::mem::replace(&mut ir[id].terminator, Terminator::Return(Value(u32::MAX)));
        for value in std::mem::take(&mut ir[id].instructions) {
            if !self.instruction(ir, value) {
                // No packet passes this guard.
                let zero = self.constant(ir, 0, Type::U32);
                terminator = Terminator::Return(zero);
                break;
            }
        }
        terminator.map_operands(|value| self.read(value));
        for _ in 0..STEPS_MAX {
            if !self.terminator(ir, &mut terminator) {
                break;
            }
            self.changed = true;
        }
        ir[id].instructions = std::mem::take(&mut self.block);
        ir[id].terminator = terminator;
    }

    fn read(&self, value: Value) -> Value {
        self.same.get(value.0 as usize).copied().unwrap_or(value)
    }

    fn constant(&mut self, ir: &mut Ir, k: u64, ty: Type) -> Value {
        let value = ir.add(Op::Const(k & ty.max()), ty);
        self.block.push(value);
        value
    }

    /// Adds an instruction to the block, or the instruction that it folds to. Returns whether packets may pass it.
    fn instruction(&mut self, ir: &mut Ir, value: Value) -> bool {
        let Instruction { mut op, ty } = ir.instructions[value.0 as usize].clone();
        op.map_operands(|operand| self.read(operand));
        match &mut op {
            Op::Need(place) => self.changed |= nearer(ir, place, u32::MAX),
            Op::Load(place, ..) => self.changed |= nearer(ir, place, u32::MAX - LOADED_MAX),
            _ => {}
        }
        if let Some(passed) = guard(ir, &op) {
            self.changed = true;
            return passed;
        }
        match simpler(ir, &op, ty) {
            Some(Simpler::Constant(k)) => op = Op::Const(k),
            Some(Simpler::Same(other)) => {
                self.same[value.0 as usize] = other;
                self.changed = true;
                return true;
            }
            Some(Simpler::With(binary, left, k)) => {
                let right = self.constant(ir, k, ty);
                op = Op::Binary(binary, left, right);
            }
            None => {
                ir.instructions[value.0 as usize].op = op;
                self.block.push(value);
                return true;
            }
        }
        self.changed = true;
        ir.instructions[value.0 as usize].op = op;
        self.block.push(value);
        true
    }

    /// Makes a terminator simpler by one step, if it can be.
    fn terminator(&mut self, ir: &mut Ir, terminator: &mut Terminator) -> bool {
        if decide(ir, terminator) {
            return true;
        }
        let Terminator::Branch { test, left, right, yes, no } = terminator else { return false };
        if let (Some(k), None) = (ir.as_const(*left), ir.as_const(*right)) {
            return turn_round(ir.ty(*left), k, test, left, right, (yes, no));
        }
        let Some(k) = ir.as_const(*right) else { return false };
        let ty = ir.ty(*left);
        match (*test, ir.op(*left).clone()) {
            // The result of a comparison is tested.
            (Comparison::Equal, Op::Compare(inner, a, b)) if k <= 1 => {
                if k == 0 {
                    std::mem::swap(yes, no);
                }
                (*test, *left, *right) = (inner, a, b);
            }
            (Comparison::Equal, Op::Binary(Binary::Sub | Binary::Xor, a, b)) if k == 0 => {
                (*left, *right) = (a, b)
            }
            (Comparison::Equal, Op::Binary(op @ (Binary::Add | Binary::Sub | Binary::Xor), a, b)) => {
                let Some(by) = ir.as_const(b) else { return false };
                let inverse = match op {
                    Binary::Add => Binary::Sub,
                    Binary::Sub => Binary::Add,
                    _ => Binary::Xor,
                };
                let Some(k) = inverse.compute(ty, k, by) else { return false };
                (*left, *right) = (a, self.constant(ir, k, ty));
            }
            (Comparison::AnySet, Op::Binary(Binary::And, a, b)) => {
                let Some(mask) = ir.as_const(b) else { return false };
                (*left, *right) = (a, self.constant(ir, k & mask, ty));
            }
            // A mask of bits, none of which may be set, is asked for at once.
            (Comparison::Equal, Op::Binary(Binary::And, a, b)) if k == 0 && ir.as_const(b).is_some() => {
                (*test, *left, *right) = (Comparison::AnySet, a, b);
                std::mem::swap(yes, no);
            }
            (
                Comparison::Equal | Comparison::Greater | Comparison::GreaterEqual | Comparison::AnySet,
                Op::Extend(a),
            ) if k <= Type::U32.max() => {
                (*left, *right) = (a, self.constant(ir, k, Type::U32));
            }
            _ => return false,
        }
        true
    }
}

/// Puts constants on the right.
fn turn_round(
    ty: Type,
    k: u64,
    test: &mut Comparison,
    left: &mut Value,
    right: &mut Value,
    (yes, no): (&mut Target, &mut Target),
) -> bool {
    debug_assert!(k <= ty.max());
    // k > v is not v >= k.
    match *test {
        Comparison::Equal | Comparison::AnySet => {}
        Comparison::Greater => *test = Comparison::GreaterEqual,
        Comparison::GreaterEqual => *test = Comparison::Greater,
        Comparison::SignedGreater => *test = Comparison::SignedGreaterEqual,
        Comparison::SignedGreaterEqual => *test = Comparison::SignedGreater,
    }
    if !matches!(*test, Comparison::Equal | Comparison::AnySet) {
        std::mem::swap(yes, no);
    }
    std::mem::swap(left, right);
    true
}

/// A place that counts from a constant, or from a sum with a constant that cannot wrap, counts from the value behind
/// it. Offsets stop at `offset_max`: no packet is so long, and the guard, whose end is behind the bytes that it
/// guards, stops all.
fn nearer(ir: &Ir, place: &mut PacketOffset, offset_max: u32) -> bool {
    let mut changed = false;
    while let Some(base) = place.base {
        let nearer = match *ir.op(base) {
            Op::Const(k) => (None, k),
            Op::Extend(value) => (Some(value), 0),
            Op::Binary(Binary::Add, left, right) => {
                let (value, k) = match (ir.as_const(left), ir.as_const(right)) {
                    (_, Some(k)) => (left, k),
                    (Some(k), _) => (right, k),
                    _ => break,
                };
                if ir.upper_bound(value).checked_add(k).is_none_or(|sum| sum > ir.ty(base).max()) {
                    break;
                }
                (Some(value), k)
            }
            _ => break,
        };
        let offset = u64::from(place.offset).saturating_add(nearer.1).min(offset_max.into());
        *place = PacketOffset { base: nearer.0, offset: offset as u32 };
        changed = true;
    }
    changed
}

/// Whether all packets pass a guard, or none; `None` if that depends, or if it is none.
fn guard(ir: &Ir, op: &Op) -> Option<bool> {
    match op {
        Op::Need(PacketOffset { base: None, offset: 0 }) => Some(true),
        Op::NonZero(value) => ir.as_const(*value).map(|k| k != 0),
        _ => None,
    }
}

fn simpler(ir: &Ir, op: &Op, ty: Type) -> Option<Simpler> {
    match op {
        Op::Binary(op, left, right) => arithmetic(ir, *op, ty, *left, *right),
        Op::Compare(test, left, right) => {
            let (left, right, of) = (ir.as_const(*left)?, ir.as_const(*right)?, ir.ty(*left));
            Some(Simpler::Constant(test.holds(of, left, right).into()))
        }
        Op::Extend(value) => Some(Simpler::Constant(ir.as_const(*value)?)),
        Op::Truncate(value) => match *ir.op(*value) {
            Op::Extend(value) => Some(Simpler::Same(value)),
            _ => Some(Simpler::Constant(ir.as_const(*value)? & Type::U32.max())),
        },
        _ => None,
    }
}

fn arithmetic(ir: &Ir, op: Binary, ty: Type, left: Value, right: Value) -> Option<Simpler> {
    use Binary::*;
    match (ir.as_const(left), ir.as_const(right)) {
        (Some(a), Some(b)) => op.compute(ty, a, b).map(Simpler::Constant),
        (None, Some(0)) if matches!(op, Add | Sub | Or | Xor | Shl | Shr | SignedShr) => {
            Some(Simpler::Same(left))
        }
        (None, Some(0)) if matches!(op, Mul | And) => Some(Simpler::Constant(0)),
        (None, Some(1)) if matches!(op, Mul | Div) => Some(Simpler::Same(left)),
        (None, Some(1)) if op == Mod => Some(Simpler::Constant(0)),
        (None, Some(by)) if matches!(op, Shl | Shr) && by >= ty.bits().into() => Some(Simpler::Constant(0)),
        // A mask that takes nothing away.
        (None, Some(k)) if op == And && k.trailing_ones() >= 64 - ir.upper_bound(left).leading_zeros() => {
            Some(Simpler::Same(left))
        }
        (None, Some(k)) if k.is_power_of_two() && matches!(op, Mul | Div | Mod) => {
            let by = k.trailing_zeros().into();
            Some(match op {
                Mul => Simpler::With(Shl, left, by),
                Div => Simpler::With(Shr, left, by),
                _ => Simpler::With(And, left, k - 1),
            })
        }
        (None, Some(k)) => again(ir, op, ty, left, k),
        (Some(0), None) if matches!(op, Add | Or | Xor) => Some(Simpler::Same(right)),
        (Some(0), None) if matches!(op, Mul | And | Shl | Shr | SignedShr) => Some(Simpler::Constant(0)),
        (Some(1), None) if op == Mul => Some(Simpler::Same(right)),
        // Constants stand on the right.
        (Some(k), None) if matches!(op, Add | Mul | And | Or | Xor) => Some(Simpler::With(op, right, k)),
        (None, None) if left == right && matches!(op, Sub | Xor) => Some(Simpler::Constant(0)),
        (None, None) if left == right && matches!(op, And | Or) => Some(Simpler::Same(left)),
        _ => None,
    }
}

/// Folds two operations with two constants into one with one constant.
fn again(ir: &Ir, op: Binary, ty: Type, left: Value, k: u64) -> Option<Simpler> {
    let Op::Binary(inner, value, right) = *ir.op(left) else { return None };
    let before = ir.as_const(right).filter(|_| inner == op)?;
    let both = match op {
        Binary::And => before & k,
        Binary::Or => before | k,
        Binary::Xor => before ^ k,
        Binary::Add | Binary::Sub => before.wrapping_add(k) & ty.max(),
        // A shift by the whole width gives 0; by more than that is the same.
        Binary::Shl | Binary::Shr => before.saturating_add(k).min(ty.bits().into()),
        _ => return None,
    };
    Some(Simpler::With(op, value, both))
}

/// A branch whose outcome is known becomes a goto.
fn decide(ir: &Ir, terminator: &mut Terminator) -> bool {
    let to: Option<Target> = match &*terminator {
        Terminator::Branch { test, left, right, yes, no } => {
            match (ir.as_const(*left), ir.as_const(*right)) {
                (Some(a), Some(b)) => Some(if test.holds(ir.ty(*left), a, b) { yes } else { no }.clone()),
                _ => (yes == no).then(|| yes.clone()),
            }
        }
        Terminator::Switch { value, cases, default, .. } => ir.as_const(*value).map(|k| {
            let found = cases.binary_search_by_key(&k, |case| case.key);
            found.map_or(default, |at| &cases[at].to).clone()
        }),
        _ => None,
    };
    let changed = to.is_some();
    if let Some(to) = to {
        *terminator = Terminator::Goto(to);
    }
    changed
}
