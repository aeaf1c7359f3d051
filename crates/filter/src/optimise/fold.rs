//! Constant folding: what can be computed now is not computed for each packet.
//!
//! ```text
//! 2 + 3 => 5          v + 0 => v         v & 0 => 0
//! branch 1 == 1 ? a : b => goto a        need 0 => nothing        nonzero 5 => nothing
//! ```

use crate::ir::{Binary, Instruction, Ir, Op, Target, Terminator, Type, Value};

/// Computes what is constant.
pub(super) fn fold(ir: &mut Ir) -> bool {
    let mut fold = Fold { same: (0..ir.instructions.len() as u32).map(Value).collect(), changed: false };
    for id in ir.order() {
        for at in 0..ir[id].instructions.len() {
            let value = ir[id].instructions[at];
            fold.instruction(ir, value);
        }
        let mut terminator = std::mem::replace(&mut ir[id].terminator, Terminator::Return(Value(0)));
        terminator.map_operands(|value| fold.same[value.0 as usize]);
        fold.changed |= decide(ir, &mut terminator);
        ir[id].terminator = terminator;
    }
    fold.changed
}

struct Fold {
    /// The value that stands for each.
    same: Vec<Value>,
    changed: bool,
}

impl Fold {
    fn instruction(&mut self, ir: &mut Ir, value: Value) {
        let Instruction { mut op, ty } = ir.instructions[value.0 as usize].clone();
        op.map_operands(|operand| self.same[operand.0 as usize]);
        match simpler(ir, &op, ty) {
            Some(Simpler::Constant(k)) => {
                op = Op::Const(k);
                self.changed = true;
            }
            Some(Simpler::Same(other)) => {
                self.same[value.0 as usize] = other;
                self.changed = true;
            }
            None => {}
        }
        ir.instructions[value.0 as usize].op = op;
    }
}

enum Simpler {
    Constant(u64),
    Same(Value),
}

fn simpler(ir: &Ir, op: &Op, ty: Type) -> Option<Simpler> {
    match op {
        Op::Binary(op, left, right) => arithmetic(ir, *op, ty, *left, *right),
        Op::Compare(test, left, right) => {
            let (left, right, of) = (ir.as_const(*left)?, ir.as_const(*right)?, ir.ty(*left));
            Some(Simpler::Constant(test.holds(of, left, right).into()))
        }
        Op::Extend(value) => Some(Simpler::Constant(ir.as_const(*value)?)),
        Op::Truncate(value) => Some(Simpler::Constant(ir.as_const(*value)? & Type::U32.max())),
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
        (None, Some(k)) if op == And && k == ty.max() => Some(Simpler::Same(left)),
        (Some(0), None) if matches!(op, Add | Or | Xor) => Some(Simpler::Same(right)),
        (Some(0), None) if matches!(op, Mul | And | Shl | Shr | SignedShr) => Some(Simpler::Constant(0)),
        (Some(1), None) if op == Mul => Some(Simpler::Same(right)),
        _ => None,
    }
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
