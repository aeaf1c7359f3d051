//! `less`, `greater` and `byte`.

use super::layers::test;
use super::{Result, Scope, check_max};
use crate::ast::ByteOp;
use crate::predicate::{FieldTest, NumberExpr, Predicate, Relation, TestedField};
use tapline_bpf::cfg::{Alu, JumpTest as Compare, Width};

impl Scope<'_> {
    /// At most this long.
    pub(super) fn less(&self, len: u32) -> Predicate {
        length(Compare::Greater, len).not()
    }

    /// At least this long.
    pub(super) fn greater(&self, len: u32) -> Predicate {
        length(Compare::GreaterEqual, len)
    }

    /// One byte of the link header and after it.
    pub(super) fn byte(&mut self, index: u32, op: ByteOp, value: u32) -> Result<Predicate> {
        check_max("byte argument", value, 0xff)?;
        let at = self.at_link(index);
        let compare = |compare| test(at, Width::Byte, u32::MAX, compare, value, "byte");
        let bits = |op| {
            let left = NumberExpr::binary(op, NumberExpr::load(at, Width::Byte), NumberExpr::Constant(value));
            Predicate::Relation(Relation { left, compare: Compare::Equal, right: NumberExpr::Constant(0) })
                .not()
        };
        Ok(match op {
            ByteOp::Equal => compare(Compare::Equal),
            ByteOp::Less => compare(Compare::GreaterEqual).not(),
            ByteOp::Greater => compare(Compare::Greater),
            ByteOp::And => bits(Alu::And),
            ByteOp::Or => bits(Alu::Or),
        })
    }
}

fn length(compare: Compare, len: u32) -> Predicate {
    Predicate::Test(FieldTest {
        field: TestedField::Len,
        mask: u32::MAX,
        compare,
        value: len,
        name: "length",
    })
}
