//! Sources and outputs of a plan, opened by their classes.

use std::any::Any;
use std::collections::HashMap;

use tapline_packet::Interface;

use super::{Arguments, Constructor};
use crate::plan::{Plan, PlanNode};
use crate::stage::Stage;
use crate::worker_source::WorkerSource;

/// The reason for which something could not be opened.
pub type OpenError = Box<dyn std::error::Error + Send + Sync>;

/// The surroundings in which the sources and outputs of a plan are opened.
#[derive(Clone, Copy)]
pub struct OpenSite<'a> {
    /// The number of workers.
    pub workers: usize,
    /// The interfaces of the sources; none while these are opened.
    pub interfaces: &'a [Interface],
    /// Whether packets come as they are sent.
    pub is_live: bool,
    /// Anything that the classes of the program need, which know its type.
    pub program: &'a dyn Any,
}

/// The context in which a source or an output is opened.
pub struct OpenContext<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The number of the node in the plan.
    pub index: usize,
    /// The surroundings.
    pub site: &'a OpenSite<'a>,
}

impl<'a> OpenContext<'a> {
    /// The node that is opened.
    pub fn node(&self) -> &'a PlanNode {
        &self.plan.nodes[self.index]
    }

    /// The arguments of the node.
    pub fn arguments(&self) -> &'a Arguments {
        &self.node().arguments
    }
}

impl Plan {
    /// Opens every source: for each worker its parts, in the order of the plan.
    ///
    /// # Errors
    /// The first that occurs.
    pub fn open_sources(&self, site: &OpenSite<'_>) -> Result<Vec<Vec<WorkerSource>>, OpenError> {
        let mut all: Vec<Vec<WorkerSource>> = (0..site.workers).map(|_| Vec::new()).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            let Constructor::Source(open) = node.class.make else { continue };
            let opened = open(&OpenContext { plan: self, index, site })?;
            all.iter_mut().zip(opened).for_each(|(sources, source)| sources.push(source));
        }
        Ok(all)
    }

    /// Opens every output, by the number of its node.
    ///
    /// # Errors
    /// The first that occurs.
    pub fn open_outputs(&self, site: &OpenSite<'_>) -> Result<HashMap<usize, Box<dyn Stage>>, OpenError> {
        let outputs = self.nodes.iter().enumerate();
        let outputs = outputs.filter(|(_, node)| matches!(node.class.make, Constructor::Output(_)));
        outputs.map(|(index, _)| Ok((index, self.open_output(index, site)?))).collect()
    }

    /// Opens the output of a node.
    ///
    /// # Errors
    /// If the node is not an output, or its class cannot open it.
    pub fn open_output(&self, index: usize, site: &OpenSite<'_>) -> Result<Box<dyn Stage>, OpenError> {
        match self.nodes[index].class.make {
            Constructor::Output(open) => open(&OpenContext { plan: self, index, site }),
            Constructor::Source(_) | Constructor::Stage(_) => Err("it is not an output".into()),
        }
    }
}

/// Opens nothing: for classes of which only programs know how to open them.
///
/// # Errors
/// Always.
pub fn refuse<T>(context: &OpenContext<'_>) -> Result<T, OpenError> {
    Err(format!("{}: this program opens no {}", context.node().name, context.node().class.name).into())
}
