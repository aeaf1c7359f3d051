//! Graphs read again while they run: what is new joins, what is gone leaves, the rest goes on.
//!
//! ```text
//! SIGHUP --> texts --> plan --> stages whose keys are new are made here --> the engine puts them in between two batches
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tapline_graph::GraphChange;
use tapline_graph::catalog::{GraphSettings, Property};
use tapline_graph::plan::{self, Plan, WorkerContext};
use tapline_packet::Interface;

use super::args::RunArgs;
use super::opening::Opener;
use super::{plan as plan_texts, texts};
use crate::escape::plain_lines;
use crate::output::say;

/// Interval between two tries to hand over a change while the one before is pending.
const PATIENCE: Duration = Duration::from_millis(10);

/// Parts from which stages are made later.
pub(super) struct Reloader {
    args: RunArgs,
    opener: Opener,
    common: Arc<GraphSettings>,
    interfaces: Vec<Interface>,
    /// The sources, which stay.
    sources: Vec<String>,
    /// Keys of the stages that run.
    there: HashSet<u64>,
}

impl Reloader {
    pub(super) fn new(
        args: RunArgs,
        opener: Opener,
        plan: &Plan,
        common: Arc<GraphSettings>,
        interfaces: Vec<Interface>,
    ) -> Reloader {
        let (sources, there) = (sources(plan), plan.keys().into_iter().collect());
        Reloader { args, opener, common, interfaces, sources, there }
    }

    /// Reads the texts again. What is wrong with them is said, and everything goes on as it was.
    pub(super) fn reload(&mut self) {
        let line = match self.try_reload() {
            Ok((new, gone)) => format!("graphs read again: {new} new stages, {gone} gone"),
            Err(error) => format!("graphs read again, and nothing is changed: {error:#}"),
        };
        say(plain_lines(&line));
    }

    fn try_reload(&mut self) -> Result<(usize, usize)> {
        let plan = plan_texts(&self.args, &texts(&self.args)?)?;
        if sources(&plan) != self.sources {
            bail!("sources stay as they are, but these would be {}", sources(&plan).join(", "));
        }
        self.opener.check(&plan, &self.interfaces)?;
        let (is_live, control) = (plan.has(Property::Live), &self.opener.control);
        let mut open = |node: usize| {
            let opened = self.opener.output(&plan, node, &self.interfaces, is_live);
            opened.map_err(|error| format!("{error:#}"))
        };
        let context =
            WorkerContext { worker: 0, control, common: &self.common, exits: None, output: &mut open };
        let stages = plan::nodes(&plan, &self.there, context).map_err(|error| anyhow!(error))?;
        let keys: HashSet<u64> = plan.keys().into_iter().collect();
        let counts = (keys.difference(&self.there).count(), self.there.difference(&keys).count());
        let is_waiting = Arc::new(AtomicBool::new(true));
        let waiting = WaitingChange(Arc::clone(&is_waiting));
        let mut change: GraphChange = Box::new(move |graph, moment| {
            waiting.end();
            let nodes = graph.change(stages, moment)?;
            Ok(plan.sources(&nodes))
        });
        while let Err(waits) = control.change(change) {
            if control.is_stopped() || control.has_ended() {
                is_waiting.store(false, Ordering::Relaxed);
                bail!("the end came first");
            }
            change = waits;
            thread::sleep(PATIENCE);
        }
        self.there = keys;
        Ok(counts)
    }
}

/// A change that was handed over and waits to be taken. The loop may end first, as it may be waiting for its last
/// packets.
struct WaitingChange(Arc<AtomicBool>);

impl WaitingChange {
    fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Drop for WaitingChange {
    fn drop(&mut self) {
        if self.0.load(Ordering::Relaxed) {
            say("the graphs that were read again are not applied: the end came first");
        }
    }
}

fn sources(plan: &Plan) -> Vec<String> {
    let sources = plan.nodes.iter().filter(|node| node.is_source());
    sources.map(|node| format!("{}({})", node.class.name, node.arguments.canonical())).collect()
}
