//! From values back to the accumulator machine: a graph of values as a block graph, and so as classic BPF.
//!
//! ```text
//! v1 = load16 [12]; branch v1 == 0x800          ldh [12]; jeq #0x800              -- an expression is computed where it is read
//! v3 = (load8 [14] & 15) << 2; load16 [v3+16]   ldxb 4*([14]&0xf); ldh [x+16]     -- right sides and bases go through X
//! b3(v5, v6)                                    v5 comes in A, v6 in M[n]           -- cells by linear scan over the blocks' order
//! what is long and read more than once          st M[n]; ...; ld M[n]
//! need 34                                       nothing, if loads of the block or of all ways behind it reach as far; else ldb [33]
//! nonzero v6                                    nothing, if the block divides by v6; else jeq #0
//! ```
//!
//! What is computed again although a register holds it is removed by [`crate::simplify`], which sees all ways; this pass only decides what
//! stands where.

mod cells;
mod emit;

use thiserror::Error;

use super::{Binary, BlockId, Field, Ir, Op, Order, Terminator, Test, Type, Value, Width};
use crate::cfg::Cfg;
use cells::Cells;
use emit::Emitter;

/// Why a graph is no classic BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// It keeps something from packet to packet, or calls functions.
    #[error("classic BPF has no memory that outlives a packet, and calls no functions")]
    State,
    /// It has a way back.
    #[error("classic BPF has no loops")]
    Loop,
    /// A number of 64 bits, or signed, or a comparison as a number, or bytes in little-endian order.
    #[error("v{} is nothing that classic BPF computes", .0.0)]
    Operation(Value),
    /// Something about packets that programs cannot ask for.
    #[error("classic BPF cannot ask for {0:?}")]
    Field(Field),
    /// More values are wanted at once than there are cells.
    #[error("more than {} values are wanted at once", crate::cfg::CELLS)]
    Cells,
}

/// The graph for the accumulator machine. It answers as `ir` does, for every packet. Meant to be given to [`crate::simplify`] next.
///
/// # Errors
/// If the graph does what classic BPF cannot: see [`Unsupported`].
pub fn select(ir: &Ir) -> Result<Cfg, Unsupported> {
    let order = ir.order();
    supported(ir, &order)?;
    let cells = Cells::assign(ir, &order)?;
    Emitter::new(ir, cells).graph(&order)
}

fn supported(ir: &Ir, order: &[BlockId]) -> Result<(), Unsupported> {
    if !ir.loops.is_empty() {
        return Err(Unsupported::Loop);
    }
    if ir.has_state() {
        return Err(Unsupported::State);
    }
    for &id in order {
        for &value in ir[id].parameters.iter().chain(&ir[id].instructions) {
            let fits = match ir.op(value) {
                Op::Field(field @ Field::CapLen) => return Err(Unsupported::Field(*field)),
                Op::Load(_, width, order) => *order == Order::Big || *width == Width::Byte,
                Op::Binary(op, ..) => *op != Binary::SignedShr,
                op => !matches!(op, Op::Compare(..) | Op::Extend(_) | Op::Truncate(_)),
            };
            if !fits || ir.ty(value) == Type::U64 {
                return Err(Unsupported::Operation(value));
            }
        }
        if let Terminator::Branch { test: Test::SignedGreater | Test::SignedGreaterEqual, left, .. } =
            &ir[id].terminator
        {
            return Err(Unsupported::Operation(*left));
        }
    }
    Ok(())
}

/// The header at `k` whose length in bytes a value is: `(pkt[k] & 15) << 2`.
fn header_len(ir: &Ir, value: Value) -> Option<u32> {
    let Op::Binary(Binary::Shl, words, two) = *ir.op(value) else { return None };
    let Op::Binary(Binary::And, byte, low) = *ir.op(words) else { return None };
    let Op::Load(place, Width::Byte, _) = *ir.op(byte) else { return None };
    let is = |value: Value, k: u64| ir.as_const(value) == Some(k);
    (is(two, 2) && is(low, 15) && place.base.is_none()).then_some(place.offset)
}
