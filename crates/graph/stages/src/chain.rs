//! The graph of `tapline capture`: one chain.
//!
//! ```text
//! source -> filter -> (names) -> (fpl) -> limit -> (verify) -> snap -> every output
//! ```

use std::sync::Arc;

use tapline_fpl_memory::SharedCells;
use tapline_graph::{Control, Graph, NodeId, SourceStage, Stage};
use tapline_meters::Meters;

use crate::{CompileFilter, CompileFpl, FilterStage, FplStage, Limit, Names, Snap, Verify};

/// The stages between a source and its outputs.
pub struct Chain {
    /// The filter.
    pub compile: CompileFilter,
    /// Whether VLAN tags are counted where the filter accepts nothing.
    pub looks_for_tags: bool,
    /// Names that flows must have, of the words in the filter.
    pub names: Option<Names>,
    /// An FPL program that decides after the filter.
    pub decide: Option<CompileFpl>,
    /// The shared memory that other processes see.
    pub shared: Option<Arc<SharedCells>>,
    /// Stop requests and the packet limit, for all workers together.
    pub control: Arc<Control>,
    /// The most bytes of a packet that outputs get.
    pub snap_len: u32,
    /// Whether marks are read, so that the result has lost, doubled and reordered packets.
    pub verify: bool,
}

impl Chain {
    /// The graph of one worker, and the node for its source.
    pub fn graph(self, meters: &Meters, worker: u16, outputs: Vec<Box<dyn Stage>>) -> (Graph, NodeId) {
        let mut graph = Graph::new(meters, worker);
        let source = graph.add("source", "source", Box::new(SourceStage), &[]);
        let filter = FilterStage::new(self.compile, true);
        let filter = Box::new(if self.looks_for_tags { filter.looking_for_tags() } else { filter });
        let mut last = graph.add("filter", "filter", filter, &[(source, 0)]);
        if let Some(names) = self.names {
            last = graph.add("names", "names", Box::new(names), &[(last, 0)]);
        }
        if let Some(decide) = self.decide {
            last =
                graph.add("fpl", "fpl", Box::new(FplStage::new(decide).sharing(self.shared)), &[(last, 0)]);
        }
        last = graph.add("limit", "limit", Box::new(Limit::new(self.control)), &[(last, 0)]);
        if self.verify {
            last = graph.add("verify", "verify", Box::new(Verify::default()), &[(last, 0)]);
        }
        last = graph.add("snap", "snap", Box::new(Snap(self.snap_len)), &[(last, 0)]);
        for output in outputs {
            graph.add(&output_name(&*output), "output", output, &[(last, 0)]);
        }
        (graph, source)
    }
}

/// The name of an output's stage in a chain: that in its account.
fn output_name(output: &dyn Stage) -> String {
    output.counters().output.unwrap_or_default().name
}
