//! From graphs, of texts or of values, to one plan that runs their common parts once.
//!
//! ```text
//! texts --parse--> PlanBuilder --check--> stages with their arguments, in order --share--> Plan --passes--> Plan --build(worker)--> Graph
//! ```
//!
//! One file a step: [`builder`] holds a graph as it was written, [`expand`] replaces stages that are several, [`check`]
//! knows classes and connections, [`share`] finds stages that do the same to the same packets, [`split`] separates the
//! work of several workers from the work that is done once, [`build`] makes the stages of one worker.

mod build;
mod builder;
mod check;
mod dot;
mod expand;
mod share;
mod split;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::catalog::{Arguments, Catalog, Property, StageClass, Tally};
use crate::language::{SyntaxError, parse};

pub use build::{WorkerContext, build, nodes};
pub use builder::{Connection, DraftArgument, DraftId, Origin, PlanBuilder, StageDraft, Value};
pub use split::SplitPlan;

/// The text of a graph, and its name in messages.
#[derive(Clone, Debug)]
pub struct GraphText<'t> {
    /// The name of the text, such as its file.
    pub name: &'t str,
    /// The text.
    pub text: &'t str,
}

/// Stages in topological order, and remarks of the planner.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The stages.
    pub nodes: Vec<PlanNode>,
    /// Remarks of the planner: filters moved or merged.
    pub notes: Vec<String>,
}

/// A stage of a plan.
#[derive(Clone, Debug)]
pub struct PlanNode {
    /// Unique name.
    pub name: String,
    /// The stage's class.
    pub class: &'static StageClass,
    /// Arguments of the stage.
    pub arguments: Arguments,
    /// The outputs of other nodes that lead to it.
    pub inputs: Vec<(usize, usize)>,
    /// The filter that its packets meet first, for a source that can run it: exactly the filter of the one node that
    /// follows, or the union of several.
    pub kernel_filter: Option<String>,
    /// The work on packets that the kernel does at a device, for the device and for the stages whose work it is.
    pub tally: Option<Tally>,
    /// Whether the node's filter already runs elsewhere: in the kernel of its source, or in a set of filters.
    pub is_filtered_upstream: bool,
    /// The number of this exit, from 0, if the node hands packets of a worker to the stages that run once.
    pub exit: Option<usize>,
}

impl PlanBuilder {
    /// Plans the graph, whose classes are those of `catalog`.
    ///
    /// # Errors
    /// The error, which names the option that a wrong argument came by.
    pub fn plan(&self, catalog: &Catalog) -> Result<Plan, String> {
        let mut plan = Plan::default();
        plan.add(self, catalog, "").map_err(|error| error.render(""))?;
        plan.with_sources()?.optimised(catalog)
    }
}

impl Plan {
    /// Plans graphs as one; their classes are those of `catalog`.
    ///
    /// # Errors
    /// The error, with the line and a caret.
    pub fn new(catalog: &Catalog, sources: &[GraphText<'_>]) -> Result<Plan, String> {
        Plan::changeable(catalog, sources)?.optimised(catalog)
    }

    /// Plans graphs as one that may change while it runs: their common parts run once, but no stage depends on the
    /// others. So filters run neither in the kernel nor as a set.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn changeable(catalog: &Catalog, sources: &[GraphText<'_>]) -> Result<Plan, String> {
        let mut plan = Plan::default();
        for GraphText { name, text } in sources {
            let (prefix, of_text) = match sources {
                [_] => (String::new(), String::new()),
                _ => (format!("{name}/"), format!("{name}: ")),
            };
            let added = parse(text).and_then(|graph| plan.add(&graph, catalog, &prefix));
            added.map_err(|error| of_text + error.render(text).as_str())?;
        }
        plan.with_sources()
    }

    fn add(&mut self, graph: &PlanBuilder, catalog: &Catalog, prefix: &str) -> Result<(), SyntaxError> {
        share::add(self, check::check(&expand::expanded(graph, catalog)?, catalog)?, prefix)
    }

    fn with_sources(self) -> Result<Plan, String> {
        match self.nodes.iter().any(PlanNode::is_source) {
            true => Ok(self),
            false => Err("the graph has no source: begin with device(NAME) or file(\"NAME\")".to_owned()),
        }
    }

    fn optimised(mut self, catalog: &Catalog) -> Result<Plan, String> {
        catalog.passes.iter().try_for_each(|pass| pass(&mut self, catalog))?;
        Ok(self)
    }

    /// A key for each node, equal in all plans of this process for stages that do the same to the same packets. The
    /// key of a meter includes the stages that take its flows: a stage added later would get flows with packets from
    /// before its time, so the meter and its successors restart together.
    pub fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let mut inputs: Vec<(u64, usize)> =
                node.inputs.iter().map(|&(from, output)| (keys[from], output)).collect();
            inputs.sort_unstable();
            let mut hasher = DefaultHasher::new();
            (node.class.name, node.arguments.canonical(), node.is_filtered_upstream, node.exit, inputs)
                .hash(&mut hasher);
            self.takers(index).hash(&mut hasher);
            keys.push(hasher.finish());
        }
        keys
    }

    /// The stages that take the flows of a node, sorted.
    fn takers(&self, node: usize) -> Vec<(&'static str, String)> {
        let takers = self.successors(node).map(|other| &self.nodes[other]);
        let mut takers: Vec<_> = takers
            .filter(|other| other.class.input.is_flows())
            .map(|other| (other.class.name, other.arguments.canonical()))
            .collect();
        takers.sort_unstable();
        takers
    }

    /// Selects the values of the sources from the values of all nodes.
    pub fn sources<T: Copy>(&self, of_nodes: &[T]) -> Vec<T> {
        self.nodes.iter().zip(of_nodes).filter(|(node, _)| node.is_source()).map(|(_, of)| *of).collect()
    }

    /// Whether a stage has a property.
    pub fn has(&self, property: Property) -> bool {
        self.nodes.iter().any(|node| node.class.has(property))
    }

    /// The nodes that an output of any number leads to.
    pub fn successors(&self, node: usize) -> impl Iterator<Item = usize> {
        let leads = move |other: &&(usize, &PlanNode)| other.1.inputs.iter().any(|(from, _)| *from == node);
        self.nodes.iter().enumerate().filter(move |other| leads(&other)).map(|(index, _)| index)
    }

    /// Splits the plan into the part of each worker and the part that runs once for all.
    #[must_use]
    pub fn split(&self) -> SplitPlan {
        split::split(self)
    }

    /// The name if no node has it, or else with a number.
    pub fn unique_name(&self, name: String) -> String {
        share::unique(self, name)
    }

    /// The plan as a drawing for `dot`.
    pub fn dot(&self) -> String {
        dot::dot(self)
    }
}

impl PlanNode {
    /// Whether packets come from it.
    pub fn is_source(&self) -> bool {
        self.class.is_source()
    }

    /// The interface whose packets a source captures, as it was named.
    pub fn captured_interface(&self) -> Option<&str> {
        self.arguments.get("interface").filter(|_| self.is_source())
    }
}
