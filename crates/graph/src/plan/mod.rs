//! From the texts of graphs to one plan that runs what they share once.
//!
//! ```text
//! texts --parse--> trees --check--> stages with their arguments, in order --share--> Plan --push down, sets--> Plan --build(worker)--> Graph
//! ```
//!
//! One file a step: [`check`] knows classes and connections, [`share`] finds stages that do the same to the same packets, [`kernel`] finds
//! filters that the source can run, [`sets`] filters that are asked together, [`build`] makes the stages of one worker.

mod build;
mod check;
mod dot;
mod kernel;
mod sets;
mod share;

use crate::catalog::{Arguments, Class, Make, Order};

pub use build::build;

/// The text of a graph, and what messages call it.
#[derive(Clone, Debug)]
pub struct Source<'t> {
    /// Such as the name of its file.
    pub name: &'t str,
    /// The text.
    pub text: &'t str,
}

/// Stages in an order in which each comes before those that it leads to, and what was found out about them.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The stages.
    pub nodes: Vec<PlanNode>,
    /// What the planner did, in words.
    pub notes: Vec<String>,
}

/// A stage of a plan.
#[derive(Clone, Debug)]
pub struct PlanNode {
    /// Its name, different from all others.
    pub name: String,
    /// What it is.
    pub class: &'static Class,
    /// Its arguments.
    pub arguments: Arguments,
    /// Which outputs of which nodes lead to it.
    pub inputs: Vec<(usize, usize)>,
    /// The filter that its packets meet first, for a source that can run it: exactly the filter of the one node that follows, or what several
    /// need together.
    pub kernel_filter: Option<String>,
    /// What stands before it has done its work: a source whose kernel runs the filter, or a set of filters.
    pub is_done_before: bool,
}

impl Plan {
    /// Plans graphs as one.
    ///
    /// # Errors
    /// What is wrong, with the line and a caret.
    pub fn new(sources: &[Source<'_>]) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let is_several = sources.len() > 1;
        for source in sources {
            let in_source = |text: String| if is_several { format!("{}: {text}", source.name) } else { text };
            let checked = check::check(source.text).map_err(|error| in_source(error.render(source.text)))?;
            let prefix = if is_several { format!("{}/", source.name) } else { String::new() };
            share::add(&mut plan, checked, &prefix).map_err(|error| in_source(error.render(source.text)))?;
        }
        if !plan.nodes.iter().any(PlanNode::is_source) {
            return Err("the graph has no source: begin with device(NAME) or file(\"NAME\")".to_owned());
        }
        kernel::push_down(&mut plan);
        sets::merge(&mut plan);
        Ok(plan)
    }

    /// The nodes that an output of any number leads to.
    pub fn successors(&self, node: usize) -> impl Iterator<Item = usize> {
        let leads = move |other: &&(usize, &PlanNode)| other.1.inputs.iter().any(|(from, _)| *from == node);
        self.nodes.iter().enumerate().filter(move |other| leads(&other)).map(|(index, _)| index)
    }

    /// A stage that several workers cannot share, because it must see all packets in their order.
    pub fn needs_one_worker(&self) -> Option<&PlanNode> {
        let needs = |node: &&PlanNode| {
            node.class.order == Order::All
                && matches!(node.class.make, Make::Stage(_))
                && !node.is_done_before
        };
        self.nodes.iter().find(needs)
    }

    /// Takes filters out of the kernel again: each runs where it stands.
    pub fn filter_in_user_space(&mut self) {
        kernel::take_back(self);
    }

    /// The plan as a drawing for `dot`.
    pub fn dot(&self) -> String {
        dot::dot(self)
    }
}

impl PlanNode {
    /// Whether packets come from it.
    pub fn is_source(&self) -> bool {
        matches!(self.class.make, Make::Source)
    }
}
