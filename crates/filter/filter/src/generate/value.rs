//! Arithmetic to straight code.
//!
//! ```text
//! a + 5      code(a); add 5                                  -- a constant is an operand
//! a + b      code(a); st M[t]; code(b); tax; ld M[t]; add x  -- t: the next free cell
//! pkt[i]     code(i); tax; ld [x + offset]
//! ```
//!
//! Both sides are computed from left to right, so that the first load outside of the packet is the one that rejects
//! it. [`cells_needed`] says beforehand how many cells the code will take.

use super::{Generator, base_to_x, load};
use crate::predicate::{Base, FieldOffset, NumberExpr};
use tapline_bpf::cfg::{Alu, Operand, Statement, Width};

impl Generator {
    /// A = the value.
    pub(super) fn value(&self, value: &NumberExpr) -> Vec<Statement> {
        let mut code = Vec::new();
        emit(value, self.cells(), &mut code);
        code
    }

    fn cells(&self) -> Cells {
        Cells { free: self.first_free_cell, is_written: self.is_written }
    }

    /// A = the left value; the right one is the operand.
    pub(super) fn pair(&self, left: &NumberExpr, right: &NumberExpr) -> (Vec<Statement>, Operand) {
        let mut code = Vec::new();
        let operand = emit_pair(left, right, self.cells(), &mut code);
        (code, operand)
    }
}

/// Number of cells that the code of a relation takes at once.
pub(crate) fn cells_needed(left: &NumberExpr, right: &NumberExpr) -> usize {
    pair_cells(left, right)
}

/// The cells that are free, and the way in which code is made.
#[derive(Clone, Copy)]
struct Cells {
    free: u8,
    /// Whether the code is libpcap's: an operand or an index that is a number is loaded first.
    is_written: bool,
}

impl Cells {
    fn next(self) -> Cells {
        Cells { free: self.free.saturating_add(1), ..self }
    }
}

fn emit(value: &NumberExpr, cells: Cells, code: &mut Vec<Statement>) {
    match value {
        NumberExpr::Constant(constant) => code.push(Statement::LoadConst(*constant)),
        NumberExpr::Len => code.push(Statement::LoadLen),
        NumberExpr::Cell(cell) => code.push(Statement::LoadCell(cell.0)),
        NumberExpr::Load { index, place, width } => emit_load(index, *place, *width, cells, code),
        NumberExpr::Negate(inner) => {
            emit(inner, cells, code);
            code.push(Statement::Negate);
        }
        NumberExpr::Binary(op @ (Alu::Shl | Alu::Shr), left, right)
            if matches!(**right, NumberExpr::Constant(32..)) =>
        {
            // No constant shift reaches 32 in a valid program. The left side stays, for its loads.
            debug_assert!(matches!(op, Alu::Shl | Alu::Shr));
            emit(left, cells, code);
            code.push(Statement::LoadConst(0));
        }
        NumberExpr::Binary(op, left, right) => {
            let operand = match (op, emit_pair(left, right, cells, code)) {
                // A division by a constant 0 is not a valid instruction; by an X of 0 it rejects the packet.
                (Alu::Div | Alu::Mod, Operand::K(0)) => {
                    code.push(Statement::LoadXConst(0));
                    Operand::X
                }
                // libpcap's code generator puts each right operand into X.
                (_, Operand::K(constant)) if cells.is_written => {
                    code.push(Statement::LoadXConst(constant));
                    Operand::X
                }
                (_, operand) => operand,
            };
            code.push(Statement::Alu(*op, operand));
        }
    }
}

fn emit_pair(left: &NumberExpr, right: &NumberExpr, cells: Cells, code: &mut Vec<Statement>) -> Operand {
    emit(left, cells, code);
    match right {
        NumberExpr::Constant(constant) => Operand::K(*constant),
        NumberExpr::Cell(cell) => {
            code.push(Statement::LoadXCell(cell.0));
            Operand::X
        }
        NumberExpr::Len => {
            code.push(Statement::LoadXLen);
            Operand::X
        }
        right => {
            code.push(Statement::Store(cells.free));
            emit(right, cells.next(), code);
            code.push(Statement::Tax);
            code.push(Statement::LoadCell(cells.free));
            Operand::X
        }
    }
}

/// Index and base add up with a wrap, base and offset without one. An index up to here cannot wrap with the length of
/// any header, so it may be added to the offset; a greater one is a negative one.
const FOLDED_MAX: u32 = 0x7fff_ffff;

/// The place that a constant index leads to, unless their sum is taken while the filter runs.
pub fn folded(place: FieldOffset, index: u32) -> Option<FieldOffset> {
    let offset = place.offset.checked_add(index).filter(|_| index <= FOLDED_MAX)?;
    Some(FieldOffset { offset, ..place })
}

fn emit_load(index: &NumberExpr, place: FieldOffset, width: Width, cells: Cells, code: &mut Vec<Statement>) {
    if let NumberExpr::Constant(index) = index
        && !cells.is_written
        && let Some(place) = folded(place, *index)
    {
        code.extend(load(place, width));
        return;
    }
    emit(index, cells, code);
    if let Base::Ipv4Len { cell: Some(_), .. } = place.base {
        // Finding the header's length takes A.
        code.push(Statement::Store(cells.free));
        code.extend(base_to_x(place.base).unwrap_or_default());
        code.push(Statement::LoadCell(cells.free));
        code.push(Statement::Alu(Alu::Add, Operand::X));
    } else if let Some(base) = base_to_x(place.base) {
        code.extend(base);
        code.push(Statement::Alu(Alu::Add, Operand::X));
    }
    code.push(Statement::Tax);
    code.push(Statement::LoadIndexed(width, place.offset));
}

fn pair_cells(left: &NumberExpr, right: &NumberExpr) -> usize {
    let right_cells = match right {
        NumberExpr::Constant(_) | NumberExpr::Cell(_) | NumberExpr::Len => 0,
        right => 1 + value_cells(right),
    };
    value_cells(left).max(right_cells)
}

fn value_cells(value: &NumberExpr) -> usize {
    match value {
        NumberExpr::Constant(_) | NumberExpr::Len | NumberExpr::Cell(_) => 0,
        NumberExpr::Negate(inner) => value_cells(inner),
        NumberExpr::Load { index, place, .. } => {
            value_cells(index).max(usize::from(matches!(place.base, Base::Ipv4Len { cell: Some(_), .. })))
        }
        NumberExpr::Binary(_, left, right) => pair_cells(left, right),
    }
}
