//! The threads that do the work of a plan.
//!
//! ```text
//! one worker       sources --> graph
//! several          sources --> head of the plan, in each of them \
//!                  sources --> head of the plan                   >-- join --> tail of the plan, in one more thread
//!                  sources --> head of the plan                  /
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use tapline_graph::catalog::{GraphSettings, Property};
use tapline_graph::plan::{self, Plan, SplitPlan, WorkerContext};
use tapline_graph::{
    Control, Engine, Graph, GraphAccount, Inlet, MergeInputs, MergedSource, NodeId, RunEnd, RunOutcome,
    Stage, StageResult, WorkerMerge, WorkerSource,
};
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_source::Source;
use tapline_stages::SharedOutput;

use super::reporting::Watcher;
use crate::capture::share;
use crate::session::{clock, clocks};

/// Parts that all workers share.
pub(super) struct WorkerThreads<'a> {
    pub(super) meters: &'a Meters,
    pub(super) control: &'a Arc<Control>,
    pub(super) common: &'a GraphSettings,
    pub(super) watch: &'a Watcher,
}

/// Result of all workers.
pub(super) struct Done {
    pub(super) results: Vec<StageResult>,
    pub(super) account: GraphAccount,
    pub(super) ended: RunEnd,
}

struct WorkerResult {
    graph: Graph,
    account: GraphAccount,
    ended: RunEnd,
}

/// A graph, and the nodes of its sources.
type BuiltGraph = (Graph, Vec<NodeId>);
/// Outputs by the number of their node.
type Outputs = HashMap<usize, Box<dyn Stage>>;

/// The handle that completes an output of a plan once all workers are done.
struct Completer {
    stage: String,
    output: SharedOutput,
}

impl WorkerThreads<'_> {
    /// The whole plan in one thread: this one, unless scripts may need more stack than it has.
    pub(super) fn alone(
        &self,
        plan: &Plan,
        mut sources: Vec<Vec<WorkerSource>>,
        outputs: Outputs,
    ) -> Result<Done> {
        let sources = sources.pop().context("a graph has at least one worker")?;
        let mut sources: Vec<_> = sources.into_iter().map(WorkerSource::alone).collect();
        let built = self.build(plan, 0, None, outputs)?;
        let has_scripts = plan.has(Property::Scripts);
        let work = || self.work(0, &mut sources, built);
        let WorkerResult { graph, account, ended } = match has_scripts {
            true => thread::scope(|scope| spawn(scope, work).map(finished))?,
            false => work(),
        };
        Ok(Done { results: graph.results(), account, ended })
    }

    /// The head in one thread for each set of sources, and the tail in one; then one result of all.
    pub(super) fn together(
        &self,
        parts: &SplitPlan,
        sources: Vec<Vec<WorkerSource>>,
        interfaces: Vec<Interface>,
        head_outputs: Outputs,
        tail_outputs: Outputs,
    ) -> Result<Done> {
        let (workers, inlets) = (sources.len(), sources.first().map_or(0, Vec::len));
        let (head_handles, mut completers) = handles(&parts.head, head_outputs, workers);
        let (mut tail_handles, of_tail) = handles(&parts.tail, tail_outputs, 1);
        completers.extend(of_tail);
        let join = WorkerMerge::new(parts.exits, inlets, workers, interfaces);
        let mut jobs = Vec::new();
        for (worker, (sources, outputs)) in sources.into_iter().zip(head_handles).enumerate() {
            let exits = MergeInputs::new(&join, worker);
            let marked =
                |(inlet, source): (usize, WorkerSource)| source.marked(exits.watermark(inlet), clock);
            let sources: Vec<_> = sources.into_iter().enumerate().map(marked).collect();
            jobs.push((worker, sources, self.build(&parts.head, worker, Some(&exits), outputs)?));
        }
        let entries = MergedSource::all(&join);
        let tail = self.build(&parts.tail, workers, None, tail_handles.pop().unwrap_or_default())?;
        let (heads, tail) = thread::scope(|scope| {
            let tail = spawn(scope, move || self.work_joined(workers, entries, tail));
            let threads: Vec<_> = jobs
                .into_iter()
                .map(|(worker, mut sources, built)| {
                    spawn(scope, move || self.work(worker, &mut sources, built))
                })
                .collect();
            let heads: Vec<WorkerResult> =
                threads.into_iter().map(|thread| thread.map(finished)).collect::<Result<_>>()?;
            Ok::<_, anyhow::Error>((heads, tail.map(finished)?))
        })?;
        Ok(self.sum(heads, tail, completers))
    }

    fn sum(&self, heads: Vec<WorkerResult>, tail: WorkerResult, completers: Vec<Completer>) -> Done {
        let mut heads = heads.into_iter();
        let mut all = heads.next().expect("there is at least one worker");
        for other in heads {
            all.graph.merge(&other.graph);
            all.account.merge(other.account);
            all.ended = all.ended.worse(other.ended);
        }
        all.account.join(tail.account, true);
        all.ended = all.ended.worse(tail.ended);
        for Completer { stage, mut output } in completers {
            if let Err(error) = output.complete(clocks(), &all.account.interfaces) {
                all.ended = all.ended.worse(RunEnd::Failed(error));
            }
            let stage = all.account.stages.iter_mut().find(|other| other.name == stage);
            stage.into_iter().for_each(|stage| stage.counters.output = Some(output.account()));
        }
        let mut results = all.graph.results();
        results.extend(tail.graph.results());
        Done { results, account: all.account, ended: all.ended }
    }

    fn build(
        &self,
        plan: &Plan,
        worker: usize,
        exits: Option<&MergeInputs>,
        mut outputs: Outputs,
    ) -> Result<BuiltGraph> {
        let mut take = |node: usize| Ok(outputs.remove(&node).expect("each output of the plan was opened"));
        let context =
            WorkerContext { worker, control: self.control, common: self.common, exits, output: &mut take };
        plan::build(plan, self.meters, context).map_err(|error| anyhow!(error))
    }

    fn work(
        &self,
        worker: usize,
        sources: &mut [Box<dyn Source>],
        (mut graph, nodes): BuiltGraph,
    ) -> WorkerResult {
        let inlets = sources.iter_mut().zip(nodes);
        let inlets = inlets.map(|(source, node)| Inlet::new(source.as_mut(), node)).collect();
        let outcome = self.run(worker, Engine::new(inlets, &mut graph, self.control, clocks));
        WorkerResult { graph, account: outcome.account, ended: outcome.ended }
    }

    fn work_joined(
        &self,
        number: usize,
        mut entries: Vec<MergedSource>,
        (mut graph, nodes): BuiltGraph,
    ) -> WorkerResult {
        let nodes: Vec<NodeId> = entries.iter().map(|entry| nodes[entry.exit()]).collect();
        let inlets = entries.iter_mut().zip(nodes).map(|(entry, node)| Inlet::merged(entry, node)).collect();
        let outcome = self.run(number, Engine::new(inlets, &mut graph, self.control, clocks));
        WorkerResult { graph, account: outcome.account, ended: outcome.ended }
    }

    fn run(&self, number: usize, engine: Engine<'_>) -> RunOutcome {
        engine.run(&mut |report| self.watch.tell(number, report))
    }
}

/// For each worker its handles of the outputs of a plan, and those that complete them.
fn handles(plan: &Plan, outputs: Outputs, workers: usize) -> (Vec<Outputs>, Vec<Completer>) {
    let (numbers, outputs): (Vec<usize>, Vec<Box<dyn Stage>>) = outputs.into_iter().unzip();
    // The stages of a graph count packets for all that follows them: what an output no longer takes is lost there.
    let (handles, completers) = share(outputs, workers, false);
    let numbered = |handles: Vec<Box<dyn Stage>>| numbers.iter().copied().zip(handles).collect();
    let named = numbers.iter().map(|number| plan.nodes[*number].name.clone()).zip(completers);
    let completers = named.map(|(stage, output)| Completer { stage, output }).collect();
    (handles.into_iter().map(numbered).collect(), completers)
}

/// Starts a thread with the stack that scripts may need; unused stack takes no memory.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>> {
    Ok(thread::Builder::new().stack_size(tapline_stages::WATCH_STACK_LEN).spawn_scoped(scope, work)?)
}

fn finished<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
