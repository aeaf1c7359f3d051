//! Adjacent filters become one set.
//!
//! ```text
//! a -> f1 -> ...                    f[0] -> f1 -> ...
//! a -> f2 -> ...        ==>   a -> f[1] -> f2 -> ...         f :: filters(f1, f2, f3), and f1 to f3 only keep their names and counters
//! a -> f3 -> ...                    f[2] -> f3 -> ...
//! ```
//!
//! A set evaluates the common part of its filters once, and costs about as much for 10 as for 10,000
//! (`docs/filter/sets.md`: 45 to 55 ns a packet); native code costs about 5 ns for each filter. So from
//! [`FILTERS_MIN`] filters on a set is the cheaper way.

use tapline_graph::catalog::{Arguments, Catalog, StageClass};
use tapline_graph::plan::{Plan, PlanNode};

/// The least number of filters that are merged into a set.
const FILTERS_MIN: usize = 10;

pub(super) fn merge(plan: &mut Plan, catalog: &Catalog) -> Result<(), String> {
    let Some(class) = catalog.class("filters") else { return Ok(()) };
    let mut at = 0;
    while at < plan.nodes.len() {
        for output in outputs(plan, at) {
            let filters = side_by_side(plan, (at, output));
            if filters.len() >= FILTERS_MIN {
                insert(plan, class, (at, output), &filters);
            }
        }
        at += 1;
    }
    Ok(())
}

/// The outputs of a node that lead somewhere.
fn outputs(plan: &Plan, node: usize) -> Vec<usize> {
    let inputs = plan.nodes.iter().flat_map(|other| &other.inputs);
    let mut outputs: Vec<usize> =
        inputs.filter(|(from, _)| *from == node).map(|(_, output)| *output).collect();
    outputs.sort_unstable();
    outputs.dedup();
    outputs
}

/// The filters that an output leads to, and that get packets from nowhere else.
fn side_by_side(plan: &Plan, output: (usize, usize)) -> Vec<usize> {
    let is_filter = |node: &PlanNode| {
        node.class.name == "filter"
            && node.inputs == [output]
            && !node.is_filtered_upstream
            && node.arguments.text("fragments") == "own"
            // The set's filters stand one a line.
            && !node.arguments.text("text").contains('\n')
            && !node.arguments.text("text").trim().is_empty()
    };
    let indices = plan.nodes.iter().enumerate().filter(|(_, node)| is_filter(node));
    indices.map(|(index, _)| index).collect()
}

/// Puts a set between an output and its filters: right before the first of them, so that the order stays one.
fn insert(plan: &mut Plan, class: &'static StageClass, output: (usize, usize), filters: &[usize]) {
    let first = filters[0];
    let texts: Vec<&str> = filters.iter().map(|&filter| plan.nodes[filter].arguments.text("text")).collect();
    let arguments = Arguments::of(&[
        ("texts", texts.join("\n")),
        ("fragments", "own".to_owned()),
        ("match", "all".to_owned()),
        ("priorities", String::new()),
    ]);
    let name = plan.unique_name(format!("{}/filters", plan.nodes[output.0].name));
    plan.notes.push(format!(
        "{} filters behind {} are asked as one set: {name}",
        filters.len(),
        plan.nodes[output.0].name
    ));
    // Nodes from this place on move up by one.
    for node in &mut plan.nodes {
        node.inputs.iter_mut().filter(|(from, _)| *from >= first).for_each(|(from, _)| *from += 1);
    }
    let set = PlanNode {
        name,
        class,
        arguments,
        inputs: vec![output],
        kernel_filter: None,
        tally: None,
        is_filtered_upstream: false,
        exit: None,
    };
    plan.nodes.insert(first, set);
    for (place, filter) in filters.iter().enumerate() {
        let node = &mut plan.nodes[filter + 1];
        node.inputs = vec![(first, place)];
        node.is_filtered_upstream = true;
    }
}
