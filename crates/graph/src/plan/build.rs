//! The stages of one worker.

use std::sync::Arc;

use tapline_capture::Sink;
use tapline_profile::Meters;

use super::Plan;
use crate::catalog::{Common, Make, Site};
use crate::engine::Control;
use crate::graph::{Graph, NodeId};
use crate::stage::Stage;
use crate::stages::{SinkStage, SourceStage};

/// Makes the graph of a worker. `sink` gives this worker's handle of the sink of a node. The nodes of sources come back in the order of the plan.
///
/// # Errors
/// What a stage says that cannot be made.
pub fn build(
    plan: &Plan,
    worker: usize,
    meters: &Meters,
    control: &Arc<Control>,
    common: &Common,
    sink: &mut dyn FnMut(usize) -> Box<dyn Sink>,
) -> Result<(Graph, Vec<NodeId>), String> {
    let mut graph = Graph::new(meters, worker as u16);
    let (mut ids, mut sources): (Vec<NodeId>, Vec<NodeId>) = (Vec::new(), Vec::new());
    for (index, node) in plan.nodes.iter().enumerate() {
        let site = Site {
            name: &node.name,
            worker,
            is_first: node.is_done_before && plan.nodes[node.inputs[0].0].is_source(),
            control,
            common,
        };
        let stage: Box<dyn Stage> = match node.class.make {
            Make::Source => Box::new(SourceStage),
            Make::Sink => Box::new(SinkStage::new(sink(index), false).shared(common.workers > 1)),
            // A set before it has decided; what is left is a name and counters.
            _ if node.is_done_before && !site.is_first => Box::new(SourceStage),
            Make::Stage(make) => {
                make(&node.arguments, &site).map_err(|why| format!("{}: {why}", node.name))?
            }
        };
        let inputs: Vec<_> = node.inputs.iter().map(|&(from, output)| (ids[from], output)).collect();
        let id = graph.add(&node.name, node.class.name, stage, &inputs);
        ids.push(id);
        if node.is_source() {
            sources.push(id);
        }
    }
    Ok((graph, sources))
}
