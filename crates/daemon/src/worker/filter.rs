//! Filters as a worker's sets take them.

use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_filter::Options;
use tapline_filterset::Filter;
use tapline_ir::CompiledFilter;
use tapline_packet::{Meta, Packet};

/// A filter of the set.
pub(crate) fn compile(text: &str, options: &Options) -> Result<Filter, String> {
    Filter::compile_with(text, options, &ready).map_err(|error| error.render(text))
}

/// A filter as native code. All of that is made here, by the thread that answers: code for one packet would else be
/// made at the first packet, by the thread that captures, which takes some 8 ms for a program of 4,096 instructions.
pub(crate) fn ready(filter: CompiledFilter) -> Arc<dyn PacketFilter> {
    let ready = tapline_jit::NativeResiduals::shared().ready(filter);
    ready.accepts(Packet { data: &[], meta: &Meta::default() });
    ready
}
