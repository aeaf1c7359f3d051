//! Filters as a worker's sets take them.

use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_filter::Options;
use tapline_filterset::{Filter, FilterSet, MatchPolicy, Matches};
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Meta, Packet, Record, Selection};

use super::verdicts::VerdictRule;

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

/// The index of the reader's own filter in the set of [`PastFilter`].
const OWN: u32 = 0;

/// The filter of one reader and those of its labels, run on one stored packet at a time.
pub(super) struct PastFilter {
    /// The reader's own filter has index 0, the labels their numbers.
    set: FilterSet,
    rule: VerdictRule,
    matches: Matches,
    only: Selection,
}

impl PastFilter {
    pub(super) fn new(filter: Arc<Filter>, rule: VerdictRule) -> PastFilter {
        let (mut set, mut only) = (FilterSet::new(MatchPolicy::All), Selection::none());
        for filter in std::iter::once(&filter).chain(rule.labels()) {
            set.insert(Arc::clone(filter), 0);
        }
        only.select_all(1);
        PastFilter { set, rule, matches: Matches::new(), only }
    }

    pub(super) fn verdict(&mut self, data: &[u8], meta: Meta) -> Option<u32> {
        let record = Record { cap_len: data.len() as u32, meta, ..Record::default() };
        self.set.classify(&Batch::new(data, &[record]), &self.only, &mut self.matches);
        let found = self.matches.of(0);
        let label = found.iter().copied().filter(|index| *index != OWN).min().unwrap_or(0);
        found.contains(&OWN).then(|| self.rule.of(Packet { data, meta: &meta }, label))
    }
}
