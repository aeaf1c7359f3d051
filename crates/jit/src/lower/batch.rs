//! The function for a batch: a loop around the filter.
//!
//! ```text
//! entry:                      context's fields; nothing selected? -> done(0)
//! some:                       fetched > 0? -> fetching(0, 0), else head(0, 0)
//! fetching(at, kept):         the header of the packet at indices[at + AHEAD] is fetched; -> head(at, kept)
//! head(at, kept):             index = indices[at]; record = records + index * size
//!                             longer than the snap length? -> cut
//! sized(captured):            bytes outside of the base? -> outside
//! packet(data, len):          the filter's blocks
//! keep:                       indices[kept] = index; -> next(kept + 1)
//! reject:                     -> next(kept)
//! next(kept):                 at + 1 < plain? -> head(at + 1, kept), else more; without fetching count is plain
//! more:                       at + 1 < fetched? -> fetching(at + 1, kept); at + 1 < count? -> head(at + 1, kept); else done(kept)
//! cut:                        -> sized(snap length)
//! outside:                    -> packet(base, 0): reads as empty
//! ```
//!
//! `cut` is rare: captures filter whole packets and cut what they hand on. A branch that is not taken costs one step, a minimum two.
//!
//! Headers are fetched ahead one by one (fetch.rs). Measured on 4,096 frames of 2.8 MB in the third cache: filters of 6 loads and more take 7 to
//! 15 % less time; those of fewer take up to 14 % more, as their branches wait for little. A round of fetches before the loop made all 11 to
//! 20 % slower: more are then under way than the first cache takes. Where the bytes fit that cache there is nothing to fetch: `plain` is
//! `count` then, and the loop is what it would be without. The two blocks stand where they do so that a packet costs one jump either way.
//!
//! Indices are written at or before the place where they were read, so the list is narrowed in place.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Signature, Value, types};
use cranelift_frontend::FunctionBuilder;
use tapline_ir::Memory;
use tapline_packet::Record;

use super::body::{Accept, Body, Surroundings};
use super::fetch::fetch;
use super::{Source, c_function, constant_memory, memory};

/// So many packets ahead, headers are fetched: 8 and 12 take the same time, 4 more.
const AHEAD: usize = 8;

/// A base of at most so many bytes is in the first cache soon enough.
const NEAR: usize = 32 << 10;

/// What the function works on.
#[repr(C)]
pub(crate) struct BatchContext {
    pub(crate) base: *const u8,
    /// Bytes; less than 2^63, as all memory.
    pub(crate) base_len: usize,
    /// Indexed by what `indices` holds.
    pub(crate) records: *const Record,
    /// The selection; the first `count` are set.
    pub(crate) indices: *mut u8,
    pub(crate) count: usize,
    /// Before this place in the selection nothing is fetched.
    pub(crate) plain: usize,
    /// From there to this place, the header of the packet that comes [`AHEAD`] later is.
    pub(crate) fetched: usize,
    /// The longest that a packet may be.
    pub(crate) snap_len: u32,
    pub(crate) memory: *const Memory,
    pub(crate) cells: *const u8,
}

/// How much of a selection of `count` packets in so many bytes is done without fetching, and how much with it: see [`BatchContext`].
pub(crate) fn stretches(base_len: usize, count: usize) -> (usize, usize) {
    if base_len > NEAR { (0, count.saturating_sub(AHEAD)) } else { (count, 0) }
}

/// `(context) -> kept`
pub(super) fn signature() -> Signature {
    c_function(&[types::I64], &[types::I64])
}

pub(super) fn lower(source: &Source<'_>, builder: &mut FunctionBuilder<'_>) {
    let [entry, head, cut, sized, outside] = [(); 5].map(|()| builder.create_block());
    let [packet, keep, reject, next, more, done] = [(); 6].map(|()| builder.create_block());
    [cut, outside].into_iter().for_each(|rare| builder.set_cold_block(rare));
    builder.append_block_params_for_function_params(entry);
    let [at, kept] = [(); 2].map(|()| builder.append_block_param(head, types::I64));
    let captured_or_cut = builder.append_block_param(sized, types::I64);
    let [data, len] = [(); 2].map(|()| builder.append_block_param(packet, types::I64));
    let kept_then = builder.append_block_param(next, types::I64);
    let result = builder.append_block_param(done, types::I64);

    builder.switch_to_block(entry);
    let context = builder.block_params(entry)[0];
    let constant = constant_memory().with_aligned();
    let field = |builder: &mut FunctionBuilder<'_>, offset: usize| {
        builder.ins().load(types::I64, constant, context, offset as i32)
    };
    let base = field(builder, offset_of!(BatchContext, base));
    let base_len = field(builder, offset_of!(BatchContext, base_len));
    let records = field(builder, offset_of!(BatchContext, records));
    let indices = field(builder, offset_of!(BatchContext, indices));
    let count = field(builder, offset_of!(BatchContext, count));
    let plain = field(builder, offset_of!(BatchContext, plain));
    let memory_handle = field(builder, offset_of!(BatchContext, memory));
    let cells = field(builder, offset_of!(BatchContext, cells));
    let snap_len = offset_of!(BatchContext, snap_len) as i32;
    let snap_len = builder.ins().uload32(constant, context, snap_len);
    let zero = builder.ins().iconst(types::I64, 0);
    let some = builder.create_block();
    builder.ins().brif(count, some, &[], done, &args([zero]));

    builder.switch_to_block(some);
    let fetching = source.fetches().then(|| builder.create_block());
    if let Some(fetching) = fetching {
        let fetched = field(builder, offset_of!(BatchContext, fetched));
        builder.ins().brif(fetched, fetching, &args([zero, zero]), head, &args([zero, zero]));
        let [at, kept] = [(); 2].map(|()| builder.append_block_param(fetching, types::I64));
        builder.switch_to_block(fetching);
        let slot = builder.ins().iadd(indices, at);
        let (_, later) = record_at(builder, records, slot, AHEAD);
        let offset = builder.ins().load(types::I64, constant, later, offset_of!(Record, offset) as i32);
        let header = builder.ins().iadd(base, offset);
        fetch(builder, header);
        builder.ins().jump(head, &args([at, kept]));
    } else {
        builder.ins().jump(head, &args([zero, zero]));
    }

    builder.switch_to_block(head);
    let slot = builder.ins().iadd(indices, at);
    let (index, record) = record_at(builder, records, slot, 0);
    let captured = builder.ins().uload32(constant, record, offset_of!(Record, cap_len) as i32);
    let offset = builder.ins().load(types::I64, constant, record, offset_of!(Record, offset) as i32);
    let is_longer = builder.ins().icmp(IntCC::UnsignedGreaterThan, captured, snap_len);
    builder.ins().brif(is_longer, cut, &[], sized, &args([captured]));

    builder.switch_to_block(sized);
    let captured = captured_or_cut;
    // The base ends below 2^63: what starts in it, or at its end, ends without wrapping.
    let starts_beyond = builder.ins().icmp(IntCC::UnsignedGreaterThan, offset, base_len);
    let starts_inside = builder.create_block();
    builder.ins().brif(starts_beyond, outside, &[], starts_inside, &[]);
    builder.switch_to_block(starts_inside);
    let end = builder.ins().iadd(offset, captured);
    let ends_beyond = builder.ins().icmp(IntCC::UnsignedGreaterThan, end, base_len);
    let start = builder.ins().iadd(base, offset);
    builder.ins().brif(ends_beyond, outside, &[], packet, &args([start, captured]));

    builder.switch_to_block(packet);
    let meta = builder.ins().iadd_imm_u(record, offset_of!(Record, meta) as i64);
    let around =
        Surroundings { data, len, meta, memory: memory_handle, cells, reject, accept: Accept::Goto(keep) };
    Body::new(source, builder, around).lower();

    builder.switch_to_block(keep);
    let to = builder.ins().iadd(indices, kept);
    builder.ins().istore8(memory(), index, to, 0);
    let one_more = builder.ins().iadd_imm_u(kept, 1);
    builder.ins().jump(next, &args([one_more]));

    builder.switch_to_block(reject);
    builder.ins().jump(next, &args([kept]));

    builder.switch_to_block(next);
    let after = builder.ins().iadd_imm_u(at, 1);
    let again = args([after, kept_then]);
    let until = if fetching.is_some() { plain } else { count };
    let is_plain = builder.ins().icmp(IntCC::UnsignedLessThan, after, until);
    builder.ins().brif(is_plain, head, &again, more, &[]);

    builder.switch_to_block(more);
    if let Some(fetching) = fetching {
        let last = builder.create_block();
        let fetched = field(builder, offset_of!(BatchContext, fetched));
        let is_fetched = builder.ins().icmp(IntCC::UnsignedLessThan, after, fetched);
        builder.ins().brif(is_fetched, fetching, &again, last, &[]);
        builder.switch_to_block(last);
        let count = field(builder, offset_of!(BatchContext, count));
        let is_more = builder.ins().icmp(IntCC::UnsignedLessThan, after, count);
        builder.ins().brif(is_more, head, &again, done, &args([kept_then]));
    } else {
        builder.ins().jump(done, &args([kept_then]));
    }

    builder.switch_to_block(cut);
    builder.ins().jump(sized, &args([snap_len]));

    builder.switch_to_block(outside);
    builder.ins().jump(packet, &args([base, zero]));

    builder.switch_to_block(done);
    builder.ins().return_(&[result]);
}

/// The index that stands so many places behind a slot of the selection, and the address of its record.
fn record_at(
    builder: &mut FunctionBuilder<'_>,
    records: Value,
    slot: Value,
    behind: usize,
) -> (Value, Value) {
    let index = builder.ins().uload8(types::I64, memory(), slot, behind as i32);
    let distance = builder.ins().imul_imm_u(index, size_of::<Record>() as i64);
    (index, builder.ins().iadd(records, distance))
}

fn args<const N: usize>(values: [Value; N]) -> [BlockArg; N] {
    values.map(BlockArg::Value)
}
