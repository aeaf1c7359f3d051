//! From the graph of values to the generator's form, and from there to machine code.
//!
//! ```text
//! run     := entry body return                          one packet: single.rs
//! select  := entry (packet body (keep | reject) next)*  a batch: batch.rs
//! body    := the graph, block for block                 body.rs, arithmetic.rs; switches: switch.rs; headers ahead: fetch.rs
//! ```
//!
//! Both functions hold the whole filter: a batch costs no call per packet.

mod arithmetic;
mod batch;
mod body;
mod fetch;
mod single;
mod switch;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, Function, MemFlagsData, Signature, types};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use tapline_ir::{Ir, Op, Terminator};

use crate::Error;
use crate::helper::Callee;
use crate::search::Plan;

pub(crate) use batch::{BatchContext, stretches};

/// A graph with all that its code will refer to by address.
pub(crate) struct Source<'a> {
    pub(crate) ir: &'a Ir,
    /// For each block that ends in a switch, how that is searched.
    pub(crate) plans: &'a [Option<Plan>],
    /// The graph's functions.
    pub(crate) callees: &'a [Callee],
}

/// The plans of a graph's switches, by block.
pub(crate) fn plans(ir: &Ir) -> Box<[Option<Plan>]> {
    let mut plans: Vec<Option<Plan>> = vec![None; ir.blocks.len()];
    for id in ir.order() {
        if let Terminator::Switch { cases, search, .. } = &ir[id].terminator {
            plans[id.0 as usize] = Some(Plan::new(cases, *search));
        }
    }
    plans.into()
}

/// Machine code, complete in itself.
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    /// As text, if it was asked for.
    pub(crate) listing: String,
}

/// Least number of loads for which headers are fetched ahead: see `batch.rs`.
const FETCHED_MIN: usize = 6;

impl Source<'_> {
    /// Whether a batch's headers are fetched ahead.
    fn fetches(&self) -> bool {
        let order = self.ir.order();
        let values = order.iter().flat_map(|id| &self.ir[*id].instructions);
        values.filter(|value| matches!(self.ir.op(**value), Op::Load(..))).count() >= FETCHED_MIN
    }
}

/// One of the two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// One packet.
    Run,
    /// A batch.
    Select,
}

/// The machine code of an entry, with its text if `listed`.
pub(crate) fn generate(
    source: &Source<'_>,
    entry: Entry,
    target: &dyn TargetIsa,
    listed: bool,
) -> Result<Code, Error> {
    // The generator has panicked on graphs that it should have refused; that must not end a capture.
    let attempt = catch_unwind(AssertUnwindSafe(|| attempt(source, entry, target, listed)));
    let code = attempt.unwrap_or_else(|_| Err("it panicked".to_owned()));
    code.map_err(|reason| Error::Generator { reason })
}

fn attempt(source: &Source<'_>, entry: Entry, target: &dyn TargetIsa, listed: bool) -> Result<Code, String> {
    let mut context = Context::new();
    context.set_disasm(listed);
    let mut memory = FunctionBuilderContext::new();
    context.func = Function::new();
    context.func.signature = match entry {
        Entry::Run => single::signature(),
        Entry::Select => batch::signature(),
    };
    let mut builder = FunctionBuilder::new(&mut context.func, &mut memory);
    match entry {
        Entry::Run => single::lower(source, &mut builder),
        Entry::Select => batch::lower(source, &mut builder),
    }
    builder.seal_all_blocks();
    builder.finalize(target.frontend_config());
    context.compile(target, &mut Default::default()).map_err(|error| format!("{:?}", error.inner))?;
    let code = context.take_compiled_code().ok_or("no code came out")?;
    let bytes = fetch::replaced(&code).ok_or("the code is not complete in itself")?;
    Ok(Code { bytes, listing: fetch::replaced_text(code.vcode.as_deref().unwrap_or_default()) })
}

/// A C function of integers.
fn c_function(parameters: &[types::Type], results: &[types::Type]) -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.extend(parameters.iter().map(|&ty| AbiParam::new(ty)));
    signature.returns.extend(results.iter().map(|&ty| AbiParam::new(ty)));
    signature
}

/// Memory that is there and does not change while the function runs, at any address. Such loads stay behind the
/// guards before them: nothing here says that they may be moved.
fn constant_memory() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_readonly()
}

/// Memory that is there.
fn memory() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}
