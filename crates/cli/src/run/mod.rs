//! `tapline run`: texts become one plan, the plan becomes sources, stages and sinks; the engine does the rest.
//!
//! ```text
//! texts --> plan --> (check, dot, explain) --> sources and sinks opened with all rights --> rights dropped --> engine --> results, account
//! ```

pub(crate) mod opening;
mod reporting;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, bail};
use tapline_capture::Error;
use tapline_graph::catalog::{self, Common};
use tapline_graph::plan::{self, Plan, Source};
use tapline_graph::{Control, Ended, Engine, Inlet};
use tapline_profile::Meters;

use crate::args::RunArgs;
use crate::capture::{Compiler, clock, stop_after};
use crate::{privileges, signals};

/// The most bytes that a filter lets through of a packet: all.
const SNAP_LEN: u32 = 262_144;

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    if let Some(name) = &args.stages {
        return describe(name).map(|()| ExitCode::SUCCESS);
    }
    let texts = texts(args)?;
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    let plan = Plan::new(&sources).map_err(|error| anyhow!(error))?;
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
    let control = Arc::new(Control::new(None));
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    let is_live = plan.nodes.iter().any(|node| node.class.name == "device");
    let compiler = Arc::new(Compiler::new(SNAP_LEN, true, args.language, is_live, args.netns.as_deref()));
    let caught = signals::catch()?;
    let mut opened = opening::sources(args, plan, &compiler, &control)?;
    opening::check_filters(plan, &compiler, &opened)?;
    let mut sinks = opening::sinks(args, plan, &opened, identity.as_ref())?;
    let meters = Meters::create(&reporting::title(plan));
    privileges::give_up(identity.as_ref())?;
    caught.obey(Arc::clone(&control))?;
    if let Some(duration) = args.duration {
        stop_after(duration, Arc::clone(&control));
    }
    let common = Common {
        options: Arc::new(move |interface| compiler.options(interface)),
        programs: Mutex::new(HashMap::new()),
        workers: 1,
        directory: PathBuf::new(),
    };
    let mut take = |node: usize| sinks.remove(&node).expect("each sink of the plan was opened");
    let (mut graph, nodes) =
        plan::build(plan, 0, &meters, &control, &common, &mut take).map_err(|error| anyhow!(error))?;
    let inlets =
        opened.iter_mut().zip(nodes).map(|(source, node)| Inlet::new(source.as_mut(), node)).collect();
    let watch = reporting::Watcher::new(args);
    let outcome = Engine::new(inlets, &mut graph, &control, clock).run(&mut |report| watch.tell(report));
    watch.clear();
    let results = graph.results();
    let code = code(&outcome.ended);
    reporting::conclude(args, plan, &outcome.account, &results)?;
    Ok(code)
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
