//! A plan as a drawing: the language of Graphviz.

use std::fmt::Write as _;

use super::{Plan, PlanNode};
use crate::catalog::Outputs;

pub(super) fn dot(plan: &Plan) -> String {
    let mut text =
        String::from("digraph tapline {\n  rankdir=LR;\n  node [fontname=\"sans-serif\", fontsize=11];\n");
    for (id, node) in plan.nodes.iter().enumerate() {
        let shape = match node.class.outputs {
            _ if node.is_source() => "oval",
            Outputs::None => "box3d",
            _ => "box",
        };
        let _ = writeln!(text, "  n{id} [shape={shape}, label=\"{}\"];", escaped(&label(node)));
    }
    for (id, node) in plan.nodes.iter().enumerate() {
        for (from, output) in &node.inputs {
            let label = match plan.nodes[*from].class.outputs {
                Outputs::Many => format!(" [label=\"{output}\"]"),
                _ => String::new(),
            };
            let _ = writeln!(text, "  n{from} -> n{id}{label};");
        }
    }
    text + "}\n"
}

/// The name, the class if the name does not show it, and the first argument.
fn label(node: &PlanNode) -> String {
    let class = node.class.name;
    let what =
        if node.name.contains(class) { node.name.clone() } else { format!("{} :: {class}", node.name) };
    match node.class.parameters.first().map(|parameter| node.arguments.text(parameter.name)) {
        Some(first) if !first.is_empty() => format!("{what}\n{first}"),
        _ => what,
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
