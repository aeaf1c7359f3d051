//! The stages of one worker.

use std::collections::HashSet;
use std::sync::Arc;

use tapline_meters::Meters;
use tapline_packet::ClockReading;

use super::Plan;
use crate::catalog::{BuildContext, Constructor, GraphSettings};
use crate::engine::Control;
use crate::graph::{Graph, NewNode, NodeId};
use crate::source_stage::SourceStage;
use crate::stage::{Stage, TickContext};
use crate::worker_merge::MergeInputs;

/// The context in which the stages of one worker are made.
pub struct WorkerContext<'a> {
    /// The worker's number, from 0.
    pub worker: usize,
    /// Stop requests and the packet limit.
    pub control: &'a Arc<Control>,
    /// Settings that all workers share.
    pub common: &'a GraphSettings,
    /// The queues at the end of a worker's part, in a plan for several workers.
    pub exits: Option<&'a MergeInputs>,
    /// Gives this worker's handle of the output of a node.
    pub output: &'a mut dyn FnMut(usize) -> Result<Box<dyn Stage>, String>,
}

/// Makes the graph of a worker. The nodes of sources come back in the order of the plan.
///
/// # Errors
/// The error of a stage that cannot be made.
pub fn build(
    plan: &Plan,
    meters: &Meters,
    context: WorkerContext<'_>,
) -> Result<(Graph, Vec<NodeId>), String> {
    let mut graph = Graph::new(meters, context.worker as u16);
    let nodes = nodes(plan, &HashSet::new(), context)?;
    let tick = TickContext::new(ClockReading::default(), &[]);
    let ids = graph.change(nodes, &tick).map_err(|error| error.to_string())?;
    Ok((graph, plan.sources(&ids)))
}

/// Makes the stages of a worker, except those with a key in `there`.
///
/// # Errors
/// The error of a stage that cannot be made.
pub fn nodes(plan: &Plan, there: &HashSet<u64>, context: WorkerContext<'_>) -> Result<Vec<NewNode>, String> {
    let WorkerContext { worker, control, common, exits, output } = context;
    let keys = plan.keys();
    let mut nodes = Vec::new();
    for (index, (node, key)) in plan.nodes.iter().zip(keys).enumerate() {
        let is_first = node.is_filtered_upstream && plan.nodes[node.inputs[0].0].is_source();
        let tally = node.tally.as_ref();
        let site = BuildContext { name: &node.name, worker, is_first, tally, control, common };
        let stage: Option<Box<dyn Stage>> = match node.class.make {
            _ if there.contains(&key) => None,
            Constructor::Source(_) => Some(Box::new(SourceStage)),
            _ if let (Some(exits), Some(exit)) = (exits, node.exit) => Some(exits.stage(exit)),
            Constructor::Output(_) => Some(output(index)?),
            // A set before it has decided; what is left is a name and counters.
            _ if node.is_filtered_upstream && !is_first => Some(Box::new(SourceStage)),
            Constructor::Stage(make) => {
                Some(make(&node.arguments, &site).map_err(|why| format!("{}: {why}", node.name))?)
            }
        };
        let (name, class, inputs) = (node.name.clone(), node.class.name, node.inputs.clone());
        nodes.push(NewNode { key, name, class, inputs, stage });
    }
    Ok(nodes)
}
