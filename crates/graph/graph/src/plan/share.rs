//! Common stages of several graphs: stages that do the same to the same packets run once.
//!
//! Two stages are one if their classes and arguments are equal and the same outputs lead to both. Taken in order from
//! the sources on, that joins every common prefix of any number of graphs.

use super::check::Checked;
use super::{Plan, PlanNode};
use crate::catalog::{Arguments, Property};
use crate::language::SyntaxError;

/// Adds the stages of one graph to a plan. `prefix` goes before names that were not given, where there are several
/// graphs.
pub(super) fn add(plan: &mut Plan, stages: Vec<Checked>, prefix: &str) -> Result<(), SyntaxError> {
    let mut ids = Vec::new();
    for stage in stages {
        let mut inputs: Vec<(usize, usize)> =
            stage.inputs.iter().map(|&(from, output)| (ids[from], output)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let same = plan.nodes.iter().position(|node| {
            std::ptr::eq(node.class, stage.class)
                && node.arguments == stage.arguments
                && node.inputs == inputs
        });
        // Sources bear no inputs, and need no note: that they are one is what people expect.
        if let Some(same) = same {
            let node = &plan.nodes[same];
            if !node.is_source() {
                plan.notes.push(format!("{prefix}{} is {}: it runs once", stage.name, node.name));
            }
            ids.push(same);
            continue;
        }
        refuse_second_writer(plan, &stage)?;
        let full = format!("{prefix}{}", stage.name);
        let name =
            if stage.is_named && !is_taken(plan, &stage.name) { stage.name } else { unique(plan, full) };
        let Checked { class, arguments, .. } = stage;
        ids.push(plan.nodes.len());
        plan.nodes.push(PlanNode {
            name,
            class,
            arguments,
            inputs,
            kernel_filter: None,
            tally: None,
            is_filtered_upstream: false,
            exit: None,
        });
    }
    Ok(())
}

fn is_taken(plan: &Plan, name: &str) -> bool {
    plan.nodes.iter().any(|node| node.name == name)
}

pub(super) fn unique(plan: &Plan, name: String) -> String {
    let numbered = (2..).map(|number| format!("{name}.{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !is_taken(plan, name)).unwrap_or(name)
}

/// Two stages cannot write to one file.
fn refuse_second_writer(plan: &Plan, stage: &Checked) -> Result<(), SyntaxError> {
    let file = |arguments: &Arguments| arguments.text("name").to_owned();
    if !stage.class.has(Property::Writer) {
        return Ok(());
    }
    let wanted = file(&stage.arguments);
    let writes_too =
        |node: &&PlanNode| node.class.name == stage.class.name && file(&node.arguments) == wanted;
    let other = plan.nodes.iter().find(writes_too);
    match other {
        Some(other) => {
            let message = format!("`{}` writes to {wanted} already", other.name);
            Err(stage
                .origin
                .error(message)
                .hint(format!("lead both ways to one {}, or give it another name", stage.class.name)))
        }
        None => Ok(()),
    }
}
