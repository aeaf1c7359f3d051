//! Graphs read again while they run: what is new joins, what is gone leaves, the rest goes on.
//!
//! ```text
//! SIGHUP --> texts --> plan --> stages whose keys are new are made here --> the engine puts them in between two batches
//! ```

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, Plan, WorkerContext};
use tapline_graph::{Control, GraphChange};
use tapline_packet::Interface;

use super::args::RunArgs;
use super::opening;
use super::settings::RunSettings;
use super::{plan as plan_texts, texts};
use crate::compiler::Compiler;
use crate::escape::plain_lines;

/// Interval between two tries to hand over a change while the one before is pending.
const PATIENCE: Duration = Duration::from_millis(10);

/// Parts from which stages are made later.
pub(super) struct Reloader {
    args: RunArgs,
    settings: RunSettings,
    pub(super) control: Arc<Control>,
    common: Arc<GraphSettings>,
    compiler: Arc<Compiler>,
    interfaces: Vec<Interface>,
    /// The sources, which stay.
    sources: Vec<String>,
    /// Keys of the stages that run.
    there: HashSet<u64>,
}

impl Reloader {
    pub(super) fn new(
        args: RunArgs,
        settings: RunSettings,
        plan: &Plan,
        control: Arc<Control>,
        common: Arc<GraphSettings>,
        compiler: Arc<Compiler>,
        interfaces: Vec<Interface>,
    ) -> Reloader {
        let (sources, there) = (sources(plan), plan.keys().into_iter().collect());
        Reloader { args, settings, control, common, compiler, interfaces, sources, there }
    }

    /// Reads the texts again. What is wrong with them is said, and everything goes on as it was.
    pub(super) fn reload(&mut self) {
        let line = match self.try_reload() {
            Ok((new, gone)) => format!("graphs read again: {new} new stages, {gone} gone"),
            Err(error) => format!("graphs read again, and nothing is changed: {error:#}"),
        };
        let _ = writeln!(io::stderr(), "tapline: {}", plain_lines(&line));
    }

    fn try_reload(&mut self) -> Result<(usize, usize)> {
        let plan = plan_texts(&self.args, &texts(&self.args)?)?;
        if sources(&plan) != self.sources {
            bail!("sources stay as they are, but these would be {}", sources(&plan).join(", "));
        }
        opening::check_filters(&plan, &self.compiler, &self.interfaces)?;
        let is_live = plan.nodes.iter().any(|node| node.class.name == "device");
        super::sending::check(&self.settings, &plan, &self.interfaces)?;
        let (settings, interfaces) = (&self.settings, &self.interfaces);
        let mut open = |node: usize| {
            // Rights were given up: files are opened as the present user.
            opening::open_output(settings, &plan, node, interfaces, is_live, None)
                .map_err(|error| format!("{error:#}"))
        };
        let context = WorkerContext {
            worker: 0,
            control: &self.control,
            common: &self.common,
            exits: None,
            output: &mut open,
        };
        let stages = plan::nodes(&plan, &self.there, context).map_err(|error| anyhow!(error))?;
        let keys: HashSet<u64> = plan.keys().into_iter().collect();
        let counts = (keys.difference(&self.there).count(), self.there.difference(&keys).count());
        let mut change: GraphChange = Box::new(move |graph, moment| {
            let nodes = graph.change(stages, moment)?;
            Ok(plan.sources(&nodes))
        });
        while let Err(waits) = self.control.change(change) {
            if self.control.is_stopped() {
                bail!("the end came first");
            }
            change = waits;
            thread::sleep(PATIENCE);
        }
        self.there = keys;
        Ok(counts)
    }
}

fn sources(plan: &Plan) -> Vec<String> {
    let sources = plan.nodes.iter().filter(|node| node.is_source());
    sources.map(|node| format!("{}({})", node.class.name, node.arguments.canonical())).collect()
}
