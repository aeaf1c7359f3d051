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
//! `cut` is rare: captures filter whole packets and cut them afterwards. A branch that is not taken costs one step, a
//! minimum two.
//!
//! Headers are fetched ahead one by one (fetch.rs). Measured on 4,096 frames of 2.8 MB in the third cache: filters of
//! 6 loads and more take 7 to 15 % less time; those of fewer take up to 14 % more, as their branches wait for little.
//! A round of fetches before the loop made all 11 to 20 % slower: more are then under way than the first cache takes.
//! Bytes that fit that cache need no fetch: `plain` is `count` then, and the loop is the one without fetches. The two
//! blocks have their places so that a packet costs one jump either way.
//!
//! Indices are written at or before the place where they were read, so the list is narrowed in place.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Signature, Value, types};
use cranelift_frontend::FunctionBuilder;
use tapline_ir::Memory;
use tapline_packet::Record;

use super::body::{Accept, Body, Surroundings};
use super::fetch::fetch;
use super::{Source, c_function, constant_memory, memory};

/// Packets ahead for which headers are fetched: 8 and 12 take the same time, 4 more.
const AHEAD: usize = 8;

/// Bytes of a base, at most, that are in the first cache soon enough.
const NEAR: usize = 32 << 10;

/// The argument of the generated function.
#[repr(C)]
pub(crate) struct BatchContext {
    pub(crate) base: *const u8,
    /// Bytes; less than 2^63, as all memory.
    pub(crate) base_len: usize,
    /// Indexed by the numbers in `indices`.
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

/// The part of a selection of `count` packets in a base of `base_len` bytes that is done without fetching, and the
/// part with: see [`BatchContext`].
pub(crate) fn stretches(base_len: usize, count: usize) -> (usize, usize) {
    if base_len > NEAR { (0, count.saturating_sub(AHEAD)) } else { (count, 0) }
}

/// `(context) -> kept`
pub(super) fn signature() -> Signature {
    c_function(&[types::I64], &[types::I64])
}

pub(super) fn lower(source: &Source<'_>, builder: &mut FunctionBuilder<'_>) {
    let blocks = Blocks::new(source, builder);
    let context = Context::load(builder, &blocks);
    start(builder, &blocks, &context);
    let read = read_record(builder, &blocks, &context);
    check_bounds(builder, &blocks, &context, &read);

    builder.switch_to_block(blocks.packet);
    let [data, len] = parameters(builder, blocks.packet);
    let meta = builder.ins().iadd_imm_u(read.record, offset_of!(Record, meta) as i64);
    let (memory, cells) = (context.memory, context.cells);
    let (reject, accept) = (blocks.reject, Accept::Goto(blocks.keep));
    let around = Surroundings { data, len, meta, memory, cells, reject, accept };
    Body::new(source, builder, around).lower();

    settle(builder, &blocks, &context, &read);
    advance(builder, &blocks, &context, read.at);
    finish(builder, &blocks, &context);
}

/// The blocks of the picture above.
struct Blocks {
    entry: Block,
    some: Block,
    /// Only where headers are fetched ahead.
    fetching: Option<Block>,
    head: Block,
    sized: Block,
    packet: Block,
    keep: Block,
    reject: Block,
    next: Block,
    more: Block,
    cut: Block,
    outside: Block,
    done: Block,
}

impl Blocks {
    /// The blocks with their parameters, all of 64 bits.
    fn new(source: &Source<'_>, builder: &mut FunctionBuilder<'_>) -> Blocks {
        let mut block = |parameters: usize| {
            let block = builder.create_block();
            (0..parameters).for_each(|_| _ = builder.append_block_param(block, types::I64));
            block
        };
        let blocks = Blocks {
            entry: block(0),
            some: block(0),
            fetching: source.fetches().then(|| block(2)),
            head: block(2),
            sized: block(1),
            packet: block(2),
            keep: block(0),
            reject: block(0),
            next: block(1),
            more: block(0),
            cut: block(0),
            outside: block(0),
            done: block(1),
        };
        [blocks.cut, blocks.outside].into_iter().for_each(|rare| builder.set_cold_block(rare));
        builder.append_block_params_for_function_params(blocks.entry);
        blocks
    }
}

/// The members of a [`BatchContext`] that the loop keeps in registers, and the address of the others.
struct Context {
    address: Value,
    base: Value,
    base_len: Value,
    records: Value,
    indices: Value,
    count: Value,
    plain: Value,
    memory: Value,
    cells: Value,
    snap_len: Value,
    zero: Value,
}

impl Context {
    /// Fills the block `entry`.
    fn load(builder: &mut FunctionBuilder<'_>, blocks: &Blocks) -> Context {
        builder.switch_to_block(blocks.entry);
        let [address] = parameters(builder, blocks.entry);
        let mut field = |offset: usize| load(builder, address, offset);
        let base = field(offset_of!(BatchContext, base));
        let base_len = field(offset_of!(BatchContext, base_len));
        let records = field(offset_of!(BatchContext, records));
        let indices = field(offset_of!(BatchContext, indices));
        let count = field(offset_of!(BatchContext, count));
        let plain = field(offset_of!(BatchContext, plain));
        let memory = field(offset_of!(BatchContext, memory));
        let cells = field(offset_of!(BatchContext, cells));
        let snap_len = load_32(builder, address, offset_of!(BatchContext, snap_len));
        let zero = builder.ins().iconst(types::I64, 0);
        builder.ins().brif(count, blocks.some, &[], blocks.done, &args([zero]));
        Context { address, base, base_len, records, indices, count, plain, memory, cells, snap_len, zero }
    }
}

/// The packet that the loop is at.
struct Read {
    at: Value,
    kept: Value,
    index: Value,
    record: Value,
    /// The offset of its bytes in the base.
    offset: Value,
}

/// Fills `some` and `fetching`: the edge into the loop.
fn start(builder: &mut FunctionBuilder<'_>, blocks: &Blocks, context: &Context) {
    builder.switch_to_block(blocks.some);
    let first = args([context.zero, context.zero]);
    let Some(fetching) = blocks.fetching else {
        builder.ins().jump(blocks.head, &first);
        return;
    };
    let fetched = load(builder, context.address, offset_of!(BatchContext, fetched));
    builder.ins().brif(fetched, fetching, &first, blocks.head, &first);
    builder.switch_to_block(fetching);
    let [at, kept] = parameters(builder, fetching);
    let slot = builder.ins().iadd(context.indices, at);
    let (_, later) = record_at(builder, context.records, slot, AHEAD);
    let offset = load(builder, later, offset_of!(Record, offset));
    let header = builder.ins().iadd(context.base, offset);
    fetch(builder, header);
    builder.ins().jump(blocks.head, &args([at, kept]));
}

/// Fills `head`.
fn read_record(builder: &mut FunctionBuilder<'_>, blocks: &Blocks, context: &Context) -> Read {
    builder.switch_to_block(blocks.head);
    let [at, kept] = parameters(builder, blocks.head);
    let slot = builder.ins().iadd(context.indices, at);
    let (index, record) = record_at(builder, context.records, slot, 0);
    let captured = load_32(builder, record, offset_of!(Record, cap_len));
    let offset = load(builder, record, offset_of!(Record, offset));
    let is_longer = builder.ins().icmp(IntCC::UnsignedGreaterThan, captured, context.snap_len);
    builder.ins().brif(is_longer, blocks.cut, &[], blocks.sized, &args([captured]));
    Read { at, kept, index, record, offset }
}

/// Fills `sized`. The base ends below 2^63: bytes that start in it, or at its end, end without wrapping.
fn check_bounds(builder: &mut FunctionBuilder<'_>, blocks: &Blocks, context: &Context, read: &Read) {
    builder.switch_to_block(blocks.sized);
    let [captured] = parameters(builder, blocks.sized);
    let starts_beyond = builder.ins().icmp(IntCC::UnsignedGreaterThan, read.offset, context.base_len);
    let starts_inside = builder.create_block();
    builder.ins().brif(starts_beyond, blocks.outside, &[], starts_inside, &[]);
    builder.switch_to_block(starts_inside);
    let end = builder.ins().iadd(read.offset, captured);
    let ends_beyond = builder.ins().icmp(IntCC::UnsignedGreaterThan, end, context.base_len);
    let start = builder.ins().iadd(context.base, read.offset);
    builder.ins().brif(ends_beyond, blocks.outside, &[], blocks.packet, &args([start, captured]));
}

/// Fills `keep` and `reject`.
fn settle(builder: &mut FunctionBuilder<'_>, blocks: &Blocks, context: &Context, read: &Read) {
    builder.switch_to_block(blocks.keep);
    let to = builder.ins().iadd(context.indices, read.kept);
    builder.ins().istore8(memory(), read.index, to, 0);
    let one_more = builder.ins().iadd_imm_u(read.kept, 1);
    builder.ins().jump(blocks.next, &args([one_more]));

    builder.switch_to_block(blocks.reject);
    builder.ins().jump(blocks.next, &args([read.kept]));
}

/// Fills `next` and `more`: the back edges.
fn advance(builder: &mut FunctionBuilder<'_>, blocks: &Blocks, context: &Context, at: Value) {
    builder.switch_to_block(blocks.next);
    let [kept] = parameters(builder, blocks.next);
    let after = builder.ins().iadd_imm_u(at, 1);
    let again = args([after, kept]);
    let until = if blocks.fetching.is_some() { context.plain } else { context.count };
    let is_plain = builder.ins().icmp(IntCC::UnsignedLessThan, after, until);
    builder.ins().brif(is_plain, blocks.head, &again, blocks.more, &[]);

    builder.switch_to_block(blocks.more);
    let Some(fetching) = blocks.fetching else {
        builder.ins().jump(blocks.done, &args([kept]));
        return;
    };
    let last = builder.create_block();
    let fetched = load(builder, context.address, offset_of!(BatchContext, fetched));
    let is_fetched = builder.ins().icmp(IntCC::UnsignedLessThan, after, fetched);
    builder.ins().brif(is_fetched, fetching, &again, last, &[]);
    builder.switch_to_block(last);
    let count = load(builder, context.address, offset_of!(BatchContext, count));
    let is_more = builder.ins().icmp(IntCC::UnsignedLessThan, after, count);
    builder.ins().brif(is_more, blocks.head, &again, blocks.done, &args([kept]));
}

/// Fills the rare blocks and the end.
fn finish(builder: &mut FunctionBuilder<'_>, blocks: &Blocks, context: &Context) {
    builder.switch_to_block(blocks.cut);
    builder.ins().jump(blocks.sized, &args([context.snap_len]));

    builder.switch_to_block(blocks.outside);
    builder.ins().jump(blocks.packet, &args([context.base, context.zero]));

    builder.switch_to_block(blocks.done);
    let [result] = parameters(builder, blocks.done);
    builder.ins().return_(&[result]);
}

/// The parameters of a block that has `N`.
fn parameters<const N: usize>(builder: &FunctionBuilder<'_>, block: Block) -> [Value; N] {
    std::array::from_fn(|at| builder.block_params(block)[at])
}

/// 64 bits of a context or record.
fn load(builder: &mut FunctionBuilder<'_>, address: Value, offset: usize) -> Value {
    builder.ins().load(types::I64, constant_memory().with_aligned(), address, offset as i32)
}

/// 32 bits of a context or record, extended with zeros.
fn load_32(builder: &mut FunctionBuilder<'_>, address: Value, offset: usize) -> Value {
    builder.ins().uload32(constant_memory().with_aligned(), address, offset as i32)
}

/// The index `ahead` places behind a slot of the selection, and the address of its record.
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
