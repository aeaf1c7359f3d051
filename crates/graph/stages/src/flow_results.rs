//! Results of the stages of flows, as values.

use tapline_collect::{Forgotten, SourceAccount};
use tapline_flow::Statistics;
use tapline_graph::StageResult;
use tapline_packet::Timestamp;

pub use crate::flowtop::FlowRow;

/// The result of `flow`, `collect` or `flowtop`.
#[derive(Debug)]
pub enum FlowResults {
    /// The counters of a meter, and the span of the flows that have ended.
    Meter(Statistics, Option<(Timestamp, Timestamp)>),
    /// The sources of a collector, and the sum of those that it forgot.
    Sources(Vec<SourceAccount>, Forgotten),
    /// The top flows, the greatest first.
    Top(Vec<FlowRow>),
}

impl FlowResults {
    /// The values of a stage's result, if it is one of flows.
    pub fn of(result: &StageResult) -> Option<&FlowResults> {
        result.values.as_ref()?.downcast_ref()
    }
}
