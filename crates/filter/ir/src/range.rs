//! Upper bounds of values, from the operations that compute them.
//!
//! ```text
//! load8 [14]                  at most 255
//! load8 [14] & 15             at most 15
//! (load8 [14] & 15) << 2      at most 60: a packet of 80 bytes has 20 behind every IPv4 header
//! ```

use std::hint::black_box;

use super::{Binary, Ir, MetaField, Op, Type, Value};

/// So deep operations are looked at.
const DEPTH_MAX: u32 = 5;

impl Ir {
    /// A number that the value never exceeds.
    pub fn upper_bound(&self, value: Value) -> u64 {
        self.greatest_within(value, DEPTH_MAX)
    }

    fn greatest_within(&self, value: Value, depth: u32) -> u64 {
        // Seen in optimised builds of rustc 1.95: a saturating sum with this result was compiled as a plain one,
        // which wrapped, so that loads were proved safe that were not. The reason was not found. `black_box` hides
        // the value from the compiler.
        black_box(self.greatest_of(value, depth))
    }

    fn greatest_of(&self, value: Value, depth: u32) -> u64 {
        let ty = self.ty(value);
        let Some(depth) = depth.checked_sub(1) else { return ty.max() };
        match *self.op(value) {
            Op::Const(k) => k,
            Op::Load(_, width, _) => u64::MAX >> (64 - 8 * width.bytes()),
            Op::MetaField(MetaField::VlanPresent) | Op::Compare(..) => 1,
            Op::MetaField(MetaField::VlanTag | MetaField::VlanProtocol) => 0xffff,
            Op::Extend(value) => self.greatest_within(value, depth),
            Op::Truncate(value) => self.greatest_within(value, depth).min(Type::U32.max()),
            Op::Binary(op, left, right) => {
                let known = self.as_const(right);
                let (left, right) = (self.greatest_within(left, depth), self.greatest_within(right, depth));
                greatest_result(op, ty, left, right, known)
            }
            _ => ty.max(),
        }
    }
}

/// The greatest result of numbers up to `left` and up to `right`, which is exactly `known` if that is given.
fn greatest_result(op: Binary, ty: Type, left: u64, right: u64, known: Option<u64>) -> u64 {
    let result = match op {
        Binary::And => Some(left.min(right)),
        Binary::Or | Binary::Xor => Some(u64::MAX.checked_shr((left | right).leading_zeros()).unwrap_or(0)),
        Binary::Add => left.checked_add(right),
        Binary::Mul => left.checked_mul(right),
        Binary::Shl => {
            known.and_then(|by| (by < 64 && left.leading_zeros() as u64 >= by).then(|| left << by))
        }
        Binary::Shr => Some(known.map_or(left, |by| if by < 64 { left >> by } else { 0 })),
        Binary::Div => Some(known.and_then(|by| left.checked_div(by)).unwrap_or(left)),
        Binary::Mod => Some(left.min(right.saturating_sub(1))),
        Binary::Sub | Binary::SignedShr => None,
    };
    // A value that does not fit wraps, and can be anything.
    result.filter(|&greatest| greatest <= ty.max()).unwrap_or(ty.max())
}

#[cfg(test)]
mod tests {
    use crate::{Binary, Builder, Coverage, PacketOffset, Terminator, Type, Width};

    #[test]
    fn header_lengths_are_at_most_60() {
        let mut builder = Builder::new();
        let entry = builder.block();
        builder.switch_to(entry);
        let byte = builder.load(PacketOffset::at(14), Width::Byte);
        let [low, two, large] = [15, 2, 30].map(|k| builder.const32(k));
        let words = builder.binary(Binary::And, byte, low);
        let bytes = builder.binary(Binary::Shl, words, two);
        let wrapped = builder.binary(Binary::Shl, words, large);
        let less = builder.binary(Binary::Sub, words, two);
        builder.finish(Terminator::Return(bytes));
        let ir = builder.build(entry);
        assert_eq!([byte, words, bytes].map(|value| ir.upper_bound(value)), [255, 15, 60]);
        assert_eq!([wrapped, less].map(|value| ir.upper_bound(value)), [Type::U32.max(); 2]);
    }

    /// An optimised build took the sum of the greatest number and a few bytes for a small one: run with `--release`
    /// too.
    #[test]
    fn a_place_without_bound_is_not_covered() {
        let mut builder = Builder::new();
        let entry = builder.block();
        builder.switch_to(entry);
        let bytes = builder.load(PacketOffset::at(14), Width::Double);
        let ones = builder.const64(u64::MAX);
        let anywhere = builder.binary(Binary::Xor, bytes, ones);
        builder.finish(Terminator::Return(anywhere));
        let ir = builder.build(entry);
        assert_eq!(ir.upper_bound(anywhere), u64::MAX);
        for end in [1, 8, u32::MAX] {
            assert!(!Coverage::default().covers(&ir, Some(anywhere), end));
        }
    }
}
