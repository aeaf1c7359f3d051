//! Filters next to their device move into the kernel, and those next to a store to the threads that read it, where that
//! is exact.
//!
//! A filter that is the only successor of a device runs in the kernel. If several filters follow, the kernel runs their
//! union (a or b), and each runs again in the graph: so the kernel delivers no packet that all of them refuse. The same
//! holds for a store, whose index skips segments without matching packets.

use super::{Plan, PlanNode};

/// The part that can run a filter for a source: kernel or index; `None` for other sources.
fn runner(node: &PlanNode) -> Option<&'static str> {
    match node.class.name {
        "device" => Some("the kernel"),
        "file" if node.arguments.text("name").starts_with("store:") => Some("the search"),
        _ => None,
    }
}

pub(super) fn push_down(plan: &mut Plan) {
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
}

pub(super) fn take_back(plan: &mut Plan) {
    for source in 0..plan.nodes.len() {
        if plan.nodes[source].kernel_filter.take().is_some() {
            let followers: Vec<usize> = plan.successors(source).collect();
            followers.iter().for_each(|&node| plan.nodes[node].is_filtered_upstream = false);
        }
    }
}
