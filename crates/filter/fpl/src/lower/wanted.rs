//! The fields that a part of a program reads, and so the place where they are first looked for.
//!
//! ```text
//! RETURN PKT.IP_PROTO == PROTO_TCP && PKT.TCP_DPORT == 80;     the port, and the way to it, only behind the first comparison
//! IF (PKT.TCP_SYN) THEN ... PKT.TCP_SPORT ... FI               the port only in there,
//! RETURN PKT.TCP_SPORT;                                        unless it is read behind as well: then before the IF
//! ```
//!
//! A field is found at a place that comes before all that read it, on every path: so it is found once.

use super::Lowerer;
use super::fields::{Wanted, wanted};
use crate::tree::{Expr, Kind, Statement, StatementKind};

impl Lowerer<'_> {
    pub(super) fn of_block(&self, statements: &[Statement]) -> Wanted {
        statements.iter().fold(0, |set, statement| set | self.of_statement(statement))
    }

    pub(super) fn of_statement(&self, statement: &Statement) -> Wanted {
        match &statement.kind {
            StatementKind::SetRegister(_, value)
            | StatementKind::Return(value)
            | StatementKind::Call(value) => self.of_expr(value),
            StatementKind::SetCell(index, _, value) => self.of_expr(index) | self.of_expr(value),
            StatementKind::If(test, then, otherwise) => {
                self.of_expr(test) | self.of_block(then) | self.of_block(otherwise)
            }
            StatementKind::For(parts) => {
                let head = [&parts.start, &parts.end, &parts.step];
                head.iter().fold(self.of_block(&parts.body), |set, expr| set | self.of_expr(expr))
            }
            StatementKind::Break => 0,
        }
    }

    pub(super) fn of_expr(&self, expr: &Expr) -> Wanted {
        match &expr.kind {
            Kind::Constant(_) | Kind::Register(_) | Kind::Length | Kind::WireLength => 0,
            Kind::Field(number) => wanted(*number, self.code.fields[*number]),
            Kind::Cell(inner)
            | Kind::Load(_, inner)
            | Kind::ZeroExtend(_, inner)
            | Kind::SignExtend(_, inner)
            | Kind::Not(inner) => self.of_expr(inner),
            Kind::Extract { of, index, .. } => self.of_expr(of) | self.of_expr(index),
            Kind::Arithmetic(_, left, right)
            | Kind::Compare(_, left, right)
            | Kind::And(left, right)
            | Kind::Or(left, right) => self.of_expr(left) | self.of_expr(right),
            Kind::Hash(parts) => parts.iter().fold(0, |set, part| set | self.of_expr(part)),
            Kind::Call(_, cells) => cells.iter().fold(0, |set, cell| set | self.of_expr(cell)),
        }
    }

    /// The fields to find before the statement at `at`: those that it reads, unless they are best found inside, and
    /// those that it and others behind it read. Statements that follow each other without a choice are seen as one.
    pub(super) fn before(&self, statements: &[Statement], all: &[Wanted], at: usize) -> Wanted {
        let later = all[at + 1..].iter().fold(0, |set, one| set | one);
        match &statements[at].kind {
            StatementKind::If(_, then, otherwise) => {
                let inside = self.of_block(then) & self.of_block(otherwise);
                all[at] & later | inside
            }
            StatementKind::Return(_) => 0,
            _ if all[at] == 0 => 0,
            _ => {
                let is_plain = |statement: &&Statement| {
                    use StatementKind::{Call, SetCell, SetRegister};
                    matches!(statement.kind, SetRegister(..) | SetCell(..) | Call(_))
                };
                let plain = statements[at..].iter().take_while(is_plain).count();
                all[at..at + plain.max(1)].iter().fold(0, |set, one| set | one)
            }
        }
    }
}
