//! A plan for several workers: the work of each for its share of the packets, and the work of one for all.
//!
//! ```text
//! source -> a -> b -> sample -> c            head, in each worker:   source -> a -> b -> join
//!             \-> d                  ==>                                         \-> d
//!                                            tail, once:             join -> sample -> c
//! ```
//!
//! `sample` must see all packets in their order, so it and all stages behind it run once.

use std::collections::BTreeSet;

use super::{Plan, PlanNode};
use crate::catalog::{Arguments, Constructor, Order, Outputs, StageClass};

/// A plan for several workers.
#[derive(Clone, Debug, Default)]
pub struct SplitPlan {
    /// The part of each worker.
    pub head: Plan,
    /// The part that runs once, with the packets of all workers; empty if no stage needs that.
    pub tail: Plan,
    /// The number of connections from the one part to the other.
    pub exits: usize,
}

/// The end of a worker's part.
static EXIT: StageClass = StageClass {
    name: "join",
    summary: "merges the packets of all workers into one stream",
    outputs: Outputs::None,
    make: Constructor::Stage(|_, _| Err("only the planner makes it".to_owned())),
    ..StageClass::BASE
};

/// The begin of the part that runs once.
static ENTRY: StageClass = StageClass { name: "join", ..StageClass::BASE };

/// Parts a plan.
pub(super) fn split(plan: &Plan) -> SplitPlan {
    let is_once = once(plan);
    let crossing = |node: usize| plan.nodes[node].inputs.iter().filter(|(from, _)| !is_once[*from]);
    let ways: BTreeSet<(usize, usize)> =
        (0..plan.nodes.len()).filter(|&node| is_once[node]).flat_map(crossing).copied().collect();
    let names = names(plan, ways.len());
    let mut head = Plan { nodes: Vec::new(), notes: plan.notes.clone() };
    let mut tail = Plan::default();
    let mut places = vec![0; plan.nodes.len()];
    for (exit, name) in names.iter().enumerate() {
        tail.nodes.push(joint(&ENTRY, name, Vec::new(), exit));
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        let place =
            |&(from, output): &(usize, usize)| match ways.iter().position(|way| *way == (from, output)) {
                Some(exit) if is_once[index] => (exit, 0),
                _ => (places[from], output),
            };
        let inputs = node.inputs.iter().map(place).collect();
        let part = if is_once[index] { &mut tail } else { &mut head };
        part.nodes.push(PlanNode { inputs, ..node.clone() });
        places[index] = part.nodes.len() - 1;
    }
    for (exit, (name, &(from, output))) in names.iter().zip(&ways).enumerate() {
        head.nodes.push(joint(&EXIT, name, vec![(places[from], output)], exit));
        let after = plan.nodes[from].name.as_str();
        head.notes.push(format!(
            "{name}: after {after}, one thread has the packets of all workers, in their order"
        ));
    }
    SplitPlan { head, tail, exits: ways.len() }
}

/// The nodes that run once: those that must see all packets in their order, and all behind them.
fn once(plan: &Plan) -> Vec<bool> {
    let mut is_once: Vec<bool> = Vec::new();
    for node in &plan.nodes {
        let needs = node.class.order == Order::All
            && matches!(node.class.make, Constructor::Stage(_))
            && !node.is_filtered_upstream
            && node.tally.is_none();
        is_once.push(needs || node.inputs.iter().any(|(from, _)| is_once[*from]));
    }
    is_once
}

fn names(plan: &Plan, count: usize) -> Vec<String> {
    let free = |name: &String| plan.nodes.iter().all(|node| node.name != *name);
    let numbered = (2..).map(|number| format!("join.{number}"));
    std::iter::once("join".to_owned()).chain(numbered).filter(free).take(count).collect()
}

fn joint(class: &'static StageClass, name: &str, inputs: Vec<(usize, usize)>, exit: usize) -> PlanNode {
    PlanNode {
        name: name.to_owned(),
        class,
        arguments: Arguments::default(),
        inputs,
        kernel_filter: None,
        tally: None,
        is_filtered_upstream: false,
        exit: Some(exit),
    }
}
