//! Filters next to their device move into the kernel, and those next to a store to the threads that read it, where that
//! is exact.
//!
//! A filter that is the only successor of a device runs in the kernel. If several filters follow, the kernel runs their
//! union (a or b), and each runs again in the graph: so the kernel delivers no packet that all of them refuse. The same
//! holds for a store, whose index skips segments without matching packets.
//!
//! A `sample` and a `count` with `place=kernel` that come next do their work there too. A count ends its packets, so
//! no stage may follow it.

use std::sync::Arc;

use tapline_capture::af_packet::{KernelTally, is_pattern};
use tapline_graph::catalog::Catalog;
use tapline_graph::plan::{Plan, PlanNode};
use tapline_packet::BlockSample;

/// The part that can run a filter for a source: kernel or index; `None` for other sources.
fn runner(node: &PlanNode) -> Option<&'static str> {
    match node.class.name {
        "device" => Some("the kernel"),
        "file" if node.arguments.text("name").starts_with("store:") => Some("the search"),
        _ => None,
    }
}

pub(super) fn push_down(plan: &mut Plan, _: &Catalog) -> Result<(), String> {
    for device in 0..plan.nodes.len() {
        let Some(runner) = runner(&plan.nodes[device]) else { continue };
        let followers: Vec<usize> = plan.successors(device).collect();
        let filters = followers.iter().filter(|&&node| {
            let node = &plan.nodes[node];
            node.class.name == "filter" && node.inputs.len() == 1 && node.arguments.text("fragments") == "own"
        });
        if filters.count() < followers.len() {
            continue;
        }
        let texts: Vec<&str> =
            followers.iter().map(|&node| plan.nodes[node].arguments.text("text")).collect();
        // No filter is the filter of everything.
        if texts.iter().any(|text| text.trim().is_empty()) || texts.is_empty() {
            continue;
        }
        let name = plan.nodes[device].name.clone();
        let (note, text) = match (followers.as_slice(), texts.as_slice()) {
            ([only], [text]) => {
                let text = (*text).to_owned();
                plan.nodes[*only].is_filtered_upstream = true;
                let only = &plan.nodes[*only].name;
                let place = if runner == "the kernel" { "the kernel" } else { "the search of the store" };
                (format!("{only} runs in {place}, at {name}"), text)
            }
            _ => {
                let names: Vec<&str> = followers.iter().map(|&node| plan.nodes[node].name.as_str()).collect();
                let text = texts.iter().map(|text| format!("({text})")).collect::<Vec<_>>().join(" or ");
                (format!("{runner} hands over, at {name}, what {} need together", names.join(", ")), text)
            }
        };
        plan.nodes[device].kernel_filter = Some(text);
        plan.notes.push(note);
    }
    Ok(())
}

/// Moves stages with `place=kernel` to their device.
///
/// # Errors
/// That a stage cannot be there.
pub(super) fn push_down_work(plan: &mut Plan, _: &Catalog) -> Result<(), String> {
    for device in 0..plan.nodes.len() {
        if plan.nodes[device].class.name == "device" {
            push_down_from(plan, device)?;
        }
    }
    match plan.nodes.iter().find(|node| is_for_kernel(node) && node.tally.is_none()) {
        None => Ok(()),
        Some(node) => Err(format!(
            "{}: place=kernel is for a stage right behind device(NAME), or behind the one filter (then the one sample) that follows it",
            node.name
        )),
    }
}

fn is_for_kernel(node: &PlanNode) -> bool {
    matches!(node.class.name, "count" | "sample") && node.arguments.text("place") == "kernel"
}

fn push_down_from(plan: &mut Plan, device: usize) -> Result<(), String> {
    let mut last = device;
    if let Some(filter) = only_successor(plan, device).filter(|&node| plan.nodes[node].is_filtered_upstream) {
        last = filter;
    }
    let is_next = |plan: &Plan, last: usize, class: &str| {
        let next = only_successor(plan, last);
        next.filter(|&node| plan.nodes[node].class.name == class && is_for_kernel(&plan.nodes[node]))
    };
    let sample = is_next(plan, last, "sample");
    let count = is_next(plan, sample.unwrap_or(last), "count");
    if sample.or(count).is_none() {
        return Ok(());
    }
    let interface = plan.nodes[device].arguments.text("interface");
    if interface.contains([':', ',']) || is_pattern(interface) {
        return Err(format!(
            "device({interface}): place=kernel is for one interface by AF_PACKET: name it alone"
        ));
    }
    let blocks = sample.map(|node| block_sample(&plan.nodes[node])).transpose()?;
    if let Some(node) = count.filter(|&node| plan.successors(node).any(|next| !is_drop(&plan.nodes[next]))) {
        let name = &plan.nodes[node].name;
        return Err(format!(
            "{name}: with place=kernel packets end in the count: nothing but drop comes behind it"
        ));
    }
    let tally = KernelTally::new(blocks, count.is_none());
    for node in [Some(device), sample, count].into_iter().flatten() {
        plan.nodes[node].tally = Some(Arc::new(tally.clone()));
    }
    for node in [sample, count].into_iter().flatten() {
        let note = format!("{} runs in the kernel, at {}", plan.nodes[node].name, plan.nodes[device].name);
        plan.notes.push(note);
    }
    Ok(())
}

/// The stage that a node leads to, if it is the only one and nothing else leads there.
fn only_successor(plan: &Plan, node: usize) -> Option<usize> {
    let mut successors = plan.successors(node);
    let next = successors.next().filter(|&next| plan.nodes[next].inputs.len() == 1);
    next.filter(|_| successors.next().is_none())
}

fn is_drop(node: &PlanNode) -> bool {
    node.class.name == "drop"
}

/// The longest block of a sample in the kernel.
const BLOCK_MAX: u64 = i32::MAX as u64;

fn block_sample(node: &PlanNode) -> Result<BlockSample, String> {
    let (over, under) = node.arguments.ratio("share");
    match node.arguments.text("by") {
        "packet" if under <= BLOCK_MAX => Ok(BlockSample::new(over, under, node.arguments.number("seed"))),
        "packet" => Err(format!("{}: place=kernel takes blocks of at most {BLOCK_MAX} packets", node.name)),
        by => Err(format!("{}: place=kernel samples by packet, not by {by}", node.name)),
    }
}

/// Moves filters out of the kernel back into the graph.
pub fn take_back(plan: &mut Plan) {
    plan.nodes.iter_mut().for_each(|node| node.tally = None);
    for source in 0..plan.nodes.len() {
        if plan.nodes[source].kernel_filter.take().is_some() {
            let followers: Vec<usize> = plan.successors(source).collect();
            followers.iter().for_each(|&node| plan.nodes[node].is_filtered_upstream = false);
        }
    }
}
