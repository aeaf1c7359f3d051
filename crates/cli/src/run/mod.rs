//! `tapline run`: texts become one plan, the plan becomes sources, stages and sinks; the engine does the rest.
//!
//! ```text
//! texts --> plan --> (check, dot, explain) --> sources and sinks opened with all rights --> rights dropped --> engine --> results, account
//! ```

pub(crate) mod opening;
mod reloading;
mod reporting;
mod sending;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use tapline_capture::{Error, Sink, Source};
use tapline_graph::catalog::{self, Common};
use tapline_graph::plan::{self, Maker, Plan};
use tapline_graph::{Control, Ended, Engine, Graph, GraphAccount, Inlet, NodeId};
use tapline_profile::Meters;

use crate::args::RunArgs;
use crate::capture::{Compiler, clock, share, stop_after};
use crate::{privileges, signals};
use reloading::Reloader;

/// The most bytes that a filter lets through of a packet: all.
const SNAP_LEN: u32 = 262_144;

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    if let Some(name) = &args.stages {
        return describe(name).map(|()| ExitCode::SUCCESS);
    }
    let texts = texts(args)?;
    let plan = plan(args, &texts)?;
    if args.dot {
        io::stdout().write_all(plan.dot().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.explain {
        explain(args, &plan)?;
    }
    if args.check {
        if !args.explain {
            writeln!(io::stdout(), "the graph is right: {} stages", plan.nodes.len())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    drive(args, &plan)
}

/// The texts as one plan.
fn plan(args: &RunArgs, texts: &[(String, String)]) -> Result<Plan> {
    let sources: Vec<plan::Source<'_>> =
        texts.iter().map(|(name, text)| plan::Source { name, text }).collect();
    let plan = if args.reload { Plan::changeable(&sources) } else { Plan::new(&sources) };
    plan.map_err(|error| anyhow!(error))
}

/// The graphs that were asked for, with what messages call them.
fn texts(args: &RunArgs) -> Result<Vec<(String, String)>> {
    let file = |path: &PathBuf| -> Result<(String, String)> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read the graph {}", path.display()))?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok((name, text))
    };
    let mut texts = args.files.iter().map(file).collect::<Result<Vec<_>>>()?;
    let typed = args.text.iter().enumerate();
    texts.extend(typed.map(|(number, text)| (format!("e{}", number + 1), text.clone())));
    if texts.is_empty() {
        bail!("no graph: give a file, or a text with -e; --stages lists what it can be made of");
    }
    Ok(texts)
}

fn describe(name: &str) -> Result<()> {
    let text = match catalog::class(name) {
        _ if name.is_empty() => {
            format!("classes of stages; tapline run --stages NAME describes one\n{}", catalog::index())
        }
        Some(class) => catalog::page(class),
        None => bail!("there is no class of stages {name}; there are\n{}", catalog::index()),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What the planner made of the texts, to standard error where packets or results may follow on standard output.
fn explain(args: &RunArgs, plan: &Plan) -> Result<()> {
    let text = reporting::plan_text(plan);
    match args.check {
        true => io::stdout().write_all(text.as_bytes())?,
        false => io::stderr().write_all(text.as_bytes())?,
    }
    Ok(())
}

fn drive(args: &RunArgs, plan: &Plan) -> Result<ExitCode> {
    let workers = usize::from(args.workers);
    if let Some(node) = plan.needs_one_worker().filter(|_| workers > 1) {
        bail!("{} must see all packets in their order: leave --workers out", node.name);
    }
    let control = Arc::new(Control::new(None));
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    let is_live = plan.nodes.iter().any(|node| node.class.name == "device");
    let compiler = Arc::new(Compiler::new(SNAP_LEN, true, args.language, is_live, args.netns.as_deref()));
    let caught = signals::catch()?;
    let sources = opening::worker_sources(args, plan, &compiler, &control, workers)?;
    let interfaces = opening::interfaces(&sources[0]);
    opening::check_filters(plan, &compiler, &interfaces)?;
    let sinks = opening::sinks(args, plan, &interfaces, identity.as_ref())?;
    let meters = Meters::create(&reporting::title(plan));
    privileges::give_up(identity.as_ref())?;
    let options = Arc::clone(&compiler);
    let common = Arc::new(Common {
        options: Arc::new(move |interface| options.options(interface)),
        programs: Mutex::new(HashMap::new()),
        workers,
        directory: PathBuf::new(),
    });
    if args.reload {
        let (control, common) = (Arc::clone(&control), Arc::clone(&common));
        let mut reloader = Reloader::new(args.clone(), plan, control, common, compiler, interfaces);
        caught.obey_with(Arc::clone(&reloader.control), move || reloader.reload())?;
    } else {
        caught.obey(Arc::clone(&control))?;
    }
    if let Some(duration) = args.duration {
        stop_after(duration, Arc::clone(&control));
    }
    let watch = reporting::Watcher::new(args, workers);
    let crew = Crew { plan, meters: &meters, control: &control, common: &common, watch: &watch };
    let done = if workers == 1 { crew.alone(sources, sinks)? } else { crew.together(sources, sinks)? };
    watch.clear();
    let code = code(&done.ended);
    reporting::conclude(args, &done.account, &done.graph.results())?;
    Ok(code)
}

/// What all workers have in common.
struct Crew<'a> {
    plan: &'a Plan,
    meters: &'a Meters,
    control: &'a Arc<Control>,
    common: &'a Common,
    watch: &'a reporting::Watcher,
}

/// What a worker leaves behind, or all together.
struct Done {
    graph: Graph,
    account: GraphAccount,
    ended: Ended,
}

/// The sources of one worker, in the order of the plan.
type Sources = Vec<Box<dyn Source>>;
/// Sinks by the number of their node.
type Sinks = HashMap<usize, Box<dyn Sink>>;

impl Crew<'_> {
    fn alone(&self, mut sources: Vec<Sources>, sinks: Sinks) -> Result<Done> {
        let sources = sources.pop().context("a graph has at least one worker")?;
        let (graph, nodes) = self.build(0, sinks)?;
        Ok(self.work(0, sources, graph, nodes))
    }

    /// One thread for each set of sources; then one result of all.
    fn together(&self, sources: Vec<Sources>, sinks: Sinks) -> Result<Done> {
        let workers = sources.len();
        let (numbers, sinks): (Vec<usize>, Vec<Box<dyn Sink>>) = sinks.into_iter().unzip();
        let (handles, mut completers) = share(sinks, workers);
        let mut graphs = Vec::new();
        for (worker, handles) in handles.into_iter().enumerate() {
            graphs.push(self.build(worker, numbers.iter().copied().zip(handles).collect())?);
        }
        let mut done: Vec<Done> = thread::scope(|scope| {
            let jobs = sources.into_iter().zip(graphs).enumerate();
            let threads: Vec<_> = jobs
                .map(|(worker, (sources, (graph, nodes)))| {
                    scope.spawn(move || self.work(worker, sources, graph, nodes))
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Done>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = done.remove(0);
        for other in done {
            all.graph.absorb(&other.graph);
            all.account.merge(other.account);
            all.ended = all.ended.worse(other.ended);
        }
        for (number, sink) in numbers.iter().zip(&mut completers) {
            if let Err(error) = sink.finish(clock(), &all.account.interfaces) {
                all.ended = all.ended.worse(Ended::Failed(error));
            }
            let name = &self.plan.nodes[*number].name;
            let stage = all.account.stages.iter_mut().find(|stage| stage.name == *name);
            stage.into_iter().for_each(|stage| stage.own.output = Some(sink.account()));
        }
        Ok(all)
    }

    fn build(&self, worker: usize, mut sinks: Sinks) -> Result<(Graph, Vec<NodeId>)> {
        let mut take = |node: usize| Ok(sinks.remove(&node).expect("each sink of the plan was opened"));
        let maker = Maker { worker, control: self.control, common: self.common, sink: &mut take };
        plan::build(self.plan, self.meters, maker).map_err(|error| anyhow!(error))
    }

    fn work(&self, worker: usize, mut sources: Sources, mut graph: Graph, nodes: Vec<NodeId>) -> Done {
        let inlets = sources.iter_mut().zip(nodes);
        let inlets = inlets.map(|(source, node)| Inlet::new(source.as_mut(), node)).collect();
        let engine = Engine::new(inlets, &mut graph, self.control, clock);
        let outcome = engine.run(&mut |report| self.watch.tell(worker, report));
        Done { graph, account: outcome.account, ended: outcome.ended }
    }
}

/// Says what failed, if anything did.
pub(crate) fn code(ended: &Ended) -> ExitCode {
    match ended {
        Ended::Source | Ended::Stopped | Ended::Failed(Error::BrokenPipe { .. }) => ExitCode::SUCCESS,
        Ended::Failed(error) => {
            let _ = writeln!(io::stderr(), "tapline: {error}");
            ExitCode::FAILURE
        }
    }
}
