//! Filters as a worker's sets take them.

use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_filter::Options;
use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Meta, Packet, Record, Selection};

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

/// The filter of one reader, asked of one stored packet at a time.
pub(super) struct PastFilter {
    set: FilterSet,
    matches: Matches,
    only: Selection,
}

impl PastFilter {
    pub(super) fn new(filter: Arc<Filter>) -> PastFilter {
        let (mut set, mut only) = (FilterSet::new(MatchPolicy::All), Selection::none());
        set.insert(filter, 0);
        only.select_all(1);
        PastFilter { set, matches: Matches::new(), only }
    }

    pub(super) fn verdict(&mut self, data: &[u8], meta: Meta) -> Option<u32> {
        let record = Record { cap_len: data.len() as u32, meta, ..Record::default() };
        self.set.classify(&Batch::new(data, &[record]), &self.only, &mut self.matches);
        (!self.matches.of(0).is_empty()).then_some(0)
    }
}
