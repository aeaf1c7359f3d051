//! Arithmetic: as [`Binary::compute`] has it, without its checks.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self as clif, InstBuilder};
use tapline_ir::{Binary, Type, Value};

use super::body::Body;

impl Body<'_, '_> {
    pub(super) fn binary(&mut self, op: Binary, ty: Type, left: Value, right: Value) -> clif::Value {
        if let Binary::Shl | Binary::Shr | Binary::SignedShr = op {
            return self.shift(op, ty, left, right);
        }
        let (left, right) = (self.value(left), self.value(right));
        let ins = self.builder.ins();
        match op {
            Binary::Add => ins.iadd(left, right),
            Binary::Sub => ins.isub(left, right),
            Binary::Mul => ins.imul(left, right),
            // Verified: the divisor is not 0.
            Binary::Div => ins.udiv(left, right),
            Binary::Mod => ins.urem(left, right),
            Binary::And => ins.band(left, right),
            Binary::Or => ins.bor(left, right),
            _ => ins.bxor(left, right),
        }
    }

    /// Machines take a distance modulo the width; the form gives 0, or the sign.
    fn shift(&mut self, op: Binary, ty: Type, left: Value, right: Value) -> clif::Value {
        let last = u64::from(ty.bits() - 1);
        let known = self.ir.as_const(right);
        if op != Binary::SignedShr && known.is_some_and(|by| by > last) {
            return self.constant(ty, 0);
        }
        let (left, mut by) = (self.value(left), self.value(right));
        if op == Binary::SignedShr {
            let last = self.constant(ty, last);
            by = self.builder.ins().umin(by, last);
        }
        let shifted = match op {
            Binary::Shl => self.builder.ins().ishl(left, by),
            Binary::Shr => self.builder.ins().ushr(left, by),
            _ => self.builder.ins().sshr(left, by),
        };
        if op == Binary::SignedShr || known.is_some() {
            return shifted;
        }
        let zero = self.constant(ty, 0);
        let too_far = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, by, last as i64);
        self.builder.ins().select(too_far, zero, shifted)
    }
}
