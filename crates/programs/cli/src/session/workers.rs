//! The threads of a run, each with an engine.
//!
//! ```text
//! one worker       sources --> graph                            in this thread
//! several          sources --> graph \
//!                  sources --> graph  >-- join --> tail          a thread each; the join and the tail only of a plan
//!                  sources --> graph /
//! ```

use std::collections::HashMap;
use std::mem;
use std::thread;

use anyhow::Result;
use tapline_graph::{
    Control, Engine, Graph, GraphAccount, Inlet, MergedSource, NodeId, RunEnd, RunOutcome, RunReport, Stage,
    StageResult,
};
use tapline_source::Source;
use tapline_stages::SharedOutput;

use super::clocks;

/// A graph, and the nodes of its sources.
pub(crate) type BuiltGraph = (Graph, Vec<NodeId>);
/// Outputs by the number of their node.
pub(crate) type Outputs = HashMap<usize, Box<dyn Stage>>;
/// Takes the reports of each worker, by its number; the tail has the number after the last.
type Watch<'w> = dyn Fn(usize, &RunReport<'_>) + Sync + 'w;

/// The graph of one thread, and its input.
pub(crate) struct WorkerGraph {
    input: WorkerInput,
    graph: Graph,
    nodes: Vec<NodeId>,
}

enum WorkerInput {
    Sources(Vec<Box<dyn Source>>),
    /// Packets that other workers handed on.
    Merged(Vec<MergedSource>),
}

/// All graphs of a run.
#[derive(Default)]
pub(crate) struct Workers {
    pub(crate) heads: Vec<WorkerGraph>,
    /// The work that is done once for all workers.
    pub(crate) tail: Option<WorkerGraph>,
    /// The handles that complete outputs once all workers are done.
    pub(crate) completers: Vec<SharedOutput>,
    /// Whether scripts may need more stack than this thread has.
    pub(crate) has_scripts: bool,
}

/// Result of all workers.
pub(crate) struct Finished {
    pub(crate) results: Vec<StageResult>,
    pub(crate) account: GraphAccount,
    pub(crate) ended: RunEnd,
    /// Time of the engines while awake, in ticks.
    pub(crate) ticks: u64,
}

/// Handles of outputs for each of several workers, and those that complete them. `is_only` says that each packet goes to
/// one of them only.
pub(crate) fn share(
    outputs: Vec<Box<dyn Stage>>,
    workers: usize,
    is_only: bool,
) -> (Vec<Vec<Box<dyn Stage>>>, Vec<SharedOutput>) {
    let mut sets: Vec<Vec<Box<dyn Stage>>> = (0..workers).map(|_| Vec::new()).collect();
    let mut completers = Vec::new();
    for output in outputs {
        let mut handles = SharedOutput::handles(output, workers + 1, is_only);
        completers.extend(handles.pop());
        sets.iter_mut().zip(handles).for_each(|(set, handle)| set.push(Box::new(handle)));
    }
    (sets, completers)
}

impl WorkerGraph {
    /// A graph that reads these sources.
    pub(crate) fn new(sources: Vec<Box<dyn Source>>, (graph, nodes): BuiltGraph) -> WorkerGraph {
        WorkerGraph { input: WorkerInput::Sources(sources), graph, nodes }
    }

    /// A graph that reads what workers hand on.
    pub(crate) fn merged(sources: Vec<MergedSource>, (graph, nodes): BuiltGraph) -> WorkerGraph {
        WorkerGraph { input: WorkerInput::Merged(sources), graph, nodes }
    }

    fn run(&mut self, number: usize, control: &Control, watch: &Watch<'_>) -> RunOutcome {
        let nodes = self.nodes.iter().copied();
        let inlets = match &mut self.input {
            WorkerInput::Sources(sources) => {
                let sources = sources.iter_mut().zip(nodes);
                sources.map(|(source, node)| Inlet::new(source.as_mut(), node)).collect()
            }
            WorkerInput::Merged(sources) => {
                let nodes: Vec<NodeId> = sources.iter().map(|source| self.nodes[source.exit()]).collect();
                let sources = sources.iter_mut().zip(nodes);
                sources.map(|(source, node)| Inlet::merged(source, node)).collect()
            }
        };
        Engine::new(inlets, &mut self.graph, control, clocks).run(&mut |report| watch(number, report))
    }
}

impl Workers {
    /// One graph that reads these sources.
    pub(crate) fn alone(sources: Vec<Box<dyn Source>>, built: BuiltGraph) -> Workers {
        Workers { heads: vec![WorkerGraph::new(sources, built)], ..Workers::default() }
    }

    /// Runs to the end of all: one graph in this thread, unless scripts may need more stack than it has; several in a
    /// thread each. Sources and graphs stay until this is dropped.
    pub(crate) fn run(&mut self, control: &Control, watch: &Watch<'_>) -> Result<Finished> {
        if let ([alone], None, false) = (&mut *self.heads, &self.tail, self.has_scripts) {
            let outcome = alone.run(0, control, watch);
            return Ok(self.sum(vec![outcome], None));
        }
        let (heads, tail) = (mem::take(&mut self.heads), self.tail.take());
        let number = heads.len();
        let (heads, tail) = thread::scope(|scope| {
            // A graph that gets no thread, or panics in it, is dropped: for the others it has ended.
            let start = |number: usize, mut worker: WorkerGraph| {
                let work = move || {
                    let outcome = worker.run(number, control, watch);
                    (worker, outcome)
                };
                spawn(scope, work).inspect_err(|_| control.stop())
            };
            let tail = tail.map(|tail| start(number, tail));
            let threads: Vec<_> =
                heads.into_iter().enumerate().map(|(number, head)| start(number, head)).collect();
            let heads: Vec<_> =
                threads.into_iter().map(|thread| thread.map(joined)).collect::<Result<_>>()?;
            Ok::<_, anyhow::Error>((heads, tail.transpose()?.map(joined)))
        })?;
        let (graphs, heads): (Vec<_>, Vec<_>) = heads.into_iter().unzip();
        let (graph, tail) = tail.unzip();
        (self.heads, self.tail) = (graphs, graph);
        Ok(self.sum(heads, tail))
    }

    /// One result of those of all workers.
    fn sum(&mut self, heads: Vec<RunOutcome>, tail: Option<RunOutcome>) -> Finished {
        let mut heads = heads.into_iter();
        let first = heads.next().expect("there is at least one worker");
        let RunOutcome { mut account, mut ended, mut ticks } = first;
        for head in heads {
            account.merge(head.account);
            ended = ended.worse(head.ended);
            ticks += head.ticks;
        }
        ended = tail.into_iter().fold(ended, |ended, tail| ended.worse(tail.ended));
        for output in &mut self.completers {
            if let Err(error) = output.complete(clocks(), &account.interfaces) {
                ended = ended.worse(RunEnd::Failed(error));
            }
        }
        // Only now are the counts of outputs final.
        account.stages.clear();
        let stages =
            |worker: &WorkerGraph| GraphAccount { stages: worker.graph.account(), ..GraphAccount::default() };
        self.heads.iter().for_each(|head| account.merge(stages(head)));
        self.tail.iter().for_each(|tail| account.join(stages(tail), true));
        if let [first, others @ ..] = &mut *self.heads {
            others.iter().for_each(|other| first.graph.merge(&other.graph));
        }
        let graphs = self.heads.first().into_iter().chain(&self.tail);
        let results = graphs.flat_map(|worker| worker.graph.results()).collect();
        Finished { results, account, ended, ticks }
    }
}

/// Starts a thread with the stack that scripts may need; unused stack takes no memory.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>> {
    Ok(thread::Builder::new().stack_size(tapline_stages::WATCH_STACK_LEN).spawn_scoped(scope, work)?)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
