//! `tapline run`: texts become one plan, the plan becomes sources, stages and outputs; the engine does the rest.
//!
//! ```text
//! texts --> plan --> (check, dot, explain) --> sources and outputs opened with all rights --> rights dropped --> engine --> results, account
//! ```

mod args;
pub(crate) mod opened;
pub(crate) mod opening;
pub(crate) mod publishing;
mod reloading;
mod reporting;
pub(crate) mod sending;
pub(crate) mod settings;

pub(crate) use args::{CommandArgs, EXAMPLES, GraphArgs, RunArgs, RunOptions};
pub(crate) use opening::catalog;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tapline_capture::Listener;
use tapline_graph::GraphAccount;
use tapline_graph::catalog::{self, Property};
use tapline_graph::plan::{self, Plan, PlanBuilder, SplitPlan};
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_stages::{StageSettings, ViewFile, input_file};
use tapline_sys::output_file;
use tapline_sys::privilege::Identity;

use crate::args::SNAP_LEN;
use crate::compiler::Compiler;
use crate::mistakes::{mistake, misuse};
use crate::session::{Counters, RunningReport, Watcher};
use crate::stored::UnfitLinkTypes;
use crate::{store, strict};
use opened::OpenPlan;
use publishing::Places;
use reloading::Reloader;
use settings::RunSettings;

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    if let Some(name) = &args.stages {
        return describe(name).map(|()| ExitCode::SUCCESS);
    }
    let texts = texts(args)?;
    let plan = plan(args, &texts)?;
    let compiler = Compiler::new(SNAP_LEN, true, args.options.graph.language, false, None);
    opening::check(&plan, &Arc::new(compiler), &[])?;
    if args.dot {
        io::stdout().write_all(plan.dot().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.explain && args.options.workers > 1 {
        let SplitPlan { head, tail, .. } = plan.split();
        explain(args, &[("plan of each worker", &head), ("done once", &tail)])?;
    } else if args.explain {
        explain(args, &[("plan", &plan)])?;
    }
    if args.check {
        if !args.explain {
            writeln!(io::stdout(), "graph OK: {} stages", plan.nodes.len())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    drive(&args.options, &plan, args.reload.then_some(args))
}

/// Runs the graph of a command; with `is_shown` prints it in the graph language.
pub(crate) fn run_graph(options: &RunOptions, graph: &PlanBuilder, is_shown: bool) -> Result<ExitCode> {
    if is_shown {
        writeln!(io::stdout(), "{graph}")?;
        return Ok(ExitCode::SUCCESS);
    }
    drive(options, &graph.plan(catalog()).map_err(mistake)?, None)
}

fn plan(args: &RunArgs, texts: &[(String, String)]) -> Result<Plan> {
    let sources: Vec<plan::GraphText<'_>> =
        texts.iter().map(|(name, text)| plan::GraphText { name, text }).collect();
    let plan = match args.reload {
        true => Plan::changeable(catalog(), &sources),
        false => Plan::new(catalog(), &sources),
    };
    plan.map_err(mistake)
}

/// The requested graphs, with their names for messages.
fn texts(args: &RunArgs) -> Result<Vec<(String, String)>> {
    let file = |path: &PathBuf| -> Result<(String, String)> {
        let text = input_file::read_text(path, input_file::TEXT_MAX);
        let text = text.map_err(|why| anyhow!("the graph: {why}"))?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok((name, text))
    };
    let mut texts = args.files.iter().map(file).collect::<Result<Vec<_>>>()?;
    let typed = args.text.iter().enumerate();
    texts.extend(typed.map(|(number, text)| (format!("e{}", number + 1), text.clone())));
    if texts.is_empty() {
        misuse!("no graph: give a file, or a text with -e; --stages lists the stages");
    }
    Ok(texts)
}

fn describe(name: &str) -> Result<()> {
    let text = match catalog().class(name) {
        _ if name.is_empty() => {
            format!("classes of stages; tapline run --stages NAME describes one\n{}", catalog().index())
        }
        Some(class) => catalog::page(class),
        None => misuse!("there is no class of stages {name}; there are\n{}", catalog().index()),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The plan, to standard error where packets or results may follow on standard output.
fn explain(args: &RunArgs, parts: &[(&str, &Plan)]) -> Result<()> {
    let language = args.options.graph.language;
    let parts = parts.iter().filter(|(_, plan)| !plan.nodes.is_empty());
    let text: String = parts.map(|(title, plan)| reporting::plan_text(title, plan, language)).collect();
    match args.check {
        true => io::stdout().write_all(text.as_bytes())?,
        false => io::stderr().write_all(text.as_bytes())?,
    }
    Ok(())
}

/// Runs a plan. With `reload` its texts are read again on SIGHUP.
fn drive(options: &RunOptions, plan: &Plan, reload: Option<&RunArgs>) -> Result<ExitCode> {
    if options.graph.follow_links {
        output_file::follow_links();
    }
    let workers = usize::from(options.workers.max(1));
    let places = Places::default();
    let settings = RunSettings { places: Some(places.clone()), ..options.settings() };
    let user = options.graph.relinquish_privileges.as_deref();
    let mut opened = OpenPlan::new(plan, workers, user, options.graph.language, settings)?;
    opened.open_outputs()?;
    let sockets = places.bind()?;
    let meters = Meters::create(&reporting::title(plan));
    let view = open_view(plan, &opened.interfaces, opened.session.identity.as_ref())?;
    let (meters, _) = opened.session.confine(opened.needs(reload.is_some()), || meters)?;
    let common = Arc::new(opened.settings(StageSettings { view, ..StageSettings::default() }));
    let places = sockets.start()?;
    let mut reloader = reload.map(|args| {
        let interfaces = opened.interfaces.clone();
        Reloader::new(args.clone(), opened.opener.for_changes(), plan, Arc::clone(&common), interfaces)
    });
    // Before signals are obeyed: outputs that are opened here may wait for the reader of a pipe.
    let built = opened.workers(&meters, &common)?;
    let control = Arc::clone(&opened.session.control);
    opened.session.obey_with(options.duration, move || {
        reloader.iter_mut().for_each(Reloader::reload);
        control.reloads().request();
    })?;
    let is_shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
    let counters = if is_shown { Counters::All } else { Counters::None };
    let text = |report: &RunningReport<'_>| reporting::running_text(options, report);
    let watcher = Watcher::new(workers, workers > 1, counters, text);
    let done = opened.session.drive(built, &watcher)?;
    places.end()?;
    let unfit = opened.opener.compiler.unfit();
    let failure = opened.session.failure(&done.ended, done.account.outputs().count() <= 1);
    let code = code_of_whole(options, plan, &done.account, failure.is_some(), unfit);
    reporting::conclude(options, &done.account, &done.results, unfit)?;
    Ok(code)
}

/// The exit status: not 0 where a store lacks packets that were to be written to it, where no link type of a store can
/// have the filter, or for losses with `--strict`.
fn code_of_whole(
    options: &RunOptions,
    plan: &Plan,
    account: &GraphAccount,
    has_failed: bool,
    unfit: &UnfitLinkTypes,
) -> ExitCode {
    let code = if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    let code = options.graph.report.code(code, &strict::losses_of(account));
    let is_archive =
        |name: &str| plan.nodes.iter().any(|node| node.name == name && node.class.has(Property::Archive));
    let stores = account.stages.iter().filter(|stage| is_archive(&stage.name));
    let lost = stores.filter_map(|stage| stage.counters.output.as_ref()).map(|output| output.lost).sum();
    let misfit = unfit.error();
    misfit.iter().for_each(|error| drop(writeln!(io::stderr(), "tapline: {error}")));
    let is_whole = store::tell_missing(lost) && misfit.is_none();
    if is_whole { code } else { ExitCode::FAILURE }
}

/// The file of a view, if the graph has one, for a process that becomes `identity`. A view without a file costs the run
/// nothing else, so it goes on and says so.
fn open_view(
    plan: &Plan,
    interfaces: &[Interface],
    identity: Option<&Identity>,
) -> Result<Option<Arc<ViewFile>>> {
    let views = plan.nodes.iter().filter(|node| node.class.has(Property::View));
    let views: Vec<&str> = views.map(|node| &*node.name).collect();
    if let [one, other, ..] = views.as_slice() {
        misuse!("{one} and {other}: a run has one view: lead all meters to it, or run two graphs");
    }
    let create = || -> Result<ViewFile, tapline_stages::ViewError> {
        let view = ViewFile::create(&reporting::title(plan))?;
        // An interface without a packet is live, too, and each of its seconds has zeros.
        if interfaces.iter().any(|interface| interface.if_index > 0 || Listener::is_socket(interface)) {
            view.set_live();
        }
        if let Some(Identity { uid, gid, .. }) = identity {
            view.give_to(*uid, *gid)?;
        }
        Ok(view)
    };
    Ok(match (!views.is_empty()).then(create) {
        None => None,
        Some(Ok(view)) => Some(Arc::new(view)),
        Some(Err(error)) => {
            let _ = writeln!(io::stderr(), "tapline: others cannot read the view: {error}");
            None
        }
    })
}
