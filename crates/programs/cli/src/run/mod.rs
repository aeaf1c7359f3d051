//! `tapline run`: texts become one plan, the plan becomes sources, stages and outputs; the engine does the rest.
//!
//! ```text
//! texts --> plan --> (check, dot, explain) --> sources and outputs opened with all rights --> rights dropped --> engine --> results, account
//! ```

mod args;
pub(crate) mod confining;
pub(crate) mod opening;
pub(crate) mod publishing;
mod reloading;
mod reporting;
pub(crate) mod sending;
pub(crate) mod settings;
mod working;

pub(crate) use args::{EXAMPLES, RunArgs, RunOptions};
pub(crate) use opening::catalog;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use tapline_capture::Listener;
use tapline_graph::catalog::{self, GraphSettings, Property};
use tapline_graph::plan::{self, Plan, PlanBuilder, SplitPlan};
use tapline_graph::{Control, RunEnd, WorkerSource};
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_source::Error;
use tapline_stages::{StageSettings, ViewFile, input_file};
use tapline_store::moments::learn_zone;
use tapline_sys::output_file;
use tapline_sys::privilege::Identity;

use crate::args::SNAP_LEN;
use crate::compiler::Compiler;
use crate::escape::plain_lines;
use crate::mistakes::mistake;
use crate::session::stop_after;
use crate::stored::UnfitLinkTypes;
use crate::{privileges, signals, store, strict};
use opening::Opener;
use publishing::Places;
use reloading::Reloader;
use settings::RunSettings;
use working::{Done, WorkerThreads};

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    if let Some(name) = &args.stages {
        return describe(name).map(|()| ExitCode::SUCCESS);
    }
    let texts = texts(args)?;
    let plan = plan(args, &texts)?;
    let compiler = Compiler::new(SNAP_LEN, true, args.options.language, false, None);
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

/// The texts as one plan.
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
        bail!("no graph: give a file, or a text with -e; --stages lists the stages");
    }
    Ok(texts)
}

fn describe(name: &str) -> Result<()> {
    let text = match catalog().class(name) {
        _ if name.is_empty() => {
            format!("classes of stages; tapline run --stages NAME describes one\n{}", catalog().index())
        }
        Some(class) => catalog::page(class),
        None => bail!("there is no class of stages {name}; there are\n{}", catalog().index()),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// The plan, to standard error where packets or results may follow on standard output.
fn explain(args: &RunArgs, parts: &[(&str, &Plan)]) -> Result<()> {
    let language = args.options.language;
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
    if options.follow_links {
        output_file::follow_links();
    }
    let workers = usize::from(options.workers);
    let parts =
        if workers > 1 { plan.split() } else { SplitPlan { head: plan.clone(), ..SplitPlan::default() } };
    let control = Arc::new(Control::new(None));
    let identity = privileges::identity(options.relinquish_privileges.as_deref())?;
    let commands = confining::command_starter(plan, identity.as_ref())
        .context("cannot start the process that starts the commands of rules")?;
    let is_live = plan.has(Property::Live);
    let compiler =
        Arc::new(Compiler::new(SNAP_LEN, true, options.language, is_live, options.netns.as_deref()));
    // A file may keep us waiting for its writer: until it is open, Ctrl-C may end the program as it ends any other.
    let caught_early = if is_live { Some(signals::catch()?) } else { None };
    let places = Places::default();
    let settings = RunSettings {
        places: Some(places.clone()),
        control: Some(Arc::clone(&control)),
        ..options.settings()
    };
    let opener =
        Opener { settings, compiler: Arc::clone(&compiler), control: Arc::clone(&control), identity };
    let identity = opener.identity.as_ref();
    let opened = opener.sources(plan, workers)?;
    let interfaces = opening::interfaces(opened.iter().take(1).flatten().map(WorkerSource::source));
    let caught = caught_early.map_or_else(signals::catch, Ok)?;
    opener.check(plan, &interfaces)?;
    let head_outputs = opener.outputs(&parts.head, &interfaces, is_live)?;
    let tail_outputs = opener.outputs(&parts.tail, &interfaces, is_live)?;
    let sockets = places.bind()?;
    let meters = Meters::create(&reporting::title(plan));
    let view = open_view(plan, &interfaces, identity)?;
    privileges::give_up(identity)?;
    // Later the zone's file can no longer be read.
    learn_zone();
    privileges::confine(confining::needs(plan, reload.is_some(), identity.is_some()), &meters);
    let of_filters = Arc::clone(&compiler);
    let common = Arc::new(GraphSettings {
        workers,
        ..StageSettings {
            options: Arc::new(move |interface| of_filters.options(interface)),
            view,
            commands,
            ..StageSettings::default()
        }
        .into()
    });
    let places = sockets.start()?;
    if let Some(args) = reload {
        // Places that come later would have no socket, and files are opened as the present user: rights were given up.
        let settings = RunSettings { places: None, ..opener.settings };
        let opener = Opener { settings, identity: None, ..opener };
        let mut reloader = Reloader::new(args.clone(), opener, plan, Arc::clone(&common), interfaces.clone());
        let reloading = Arc::clone(&control);
        caught.obey_with(Arc::clone(&control), move || {
            reloader.reload();
            reloading.reloads().request();
        })?;
    } else {
        let reloading = Arc::clone(&control);
        caught.obey_with(Arc::clone(&control), move || reloading.reloads().request())?;
    }
    if let Some(duration) = options.duration {
        stop_after(duration, Arc::clone(&control));
    }
    let watch = reporting::Watcher::new(options, workers);
    let crew = WorkerThreads { meters: &meters, control: &control, common: &common, watch: &watch };
    let done = if workers == 1 {
        crew.alone(plan, opened, head_outputs)?
    } else {
        crew.together(&parts, opened, interfaces, head_outputs, tail_outputs)?
    };
    places.end()?;
    watch.clear();
    let code = code_of_whole(options, plan, &done, compiler.unfit());
    reporting::conclude(options, &done.account, &done.results, compiler.unfit())?;
    Ok(code)
}

/// The exit status: not 0 where a store lacks packets that were to be written to it, where no link type of a store can
/// have the filter, or for losses with `--strict`.
fn code_of_whole(options: &RunOptions, plan: &Plan, done: &Done, unfit: &UnfitLinkTypes) -> ExitCode {
    let code = code(&done.ended, done.account.outputs().count());
    let code = options.report.code(code, &strict::losses_of(&done.account));
    let is_archive =
        |name: &str| plan.nodes.iter().any(|node| node.name == name && node.class.has(Property::Archive));
    let stores = done.account.stages.iter().filter(|stage| is_archive(&stage.name));
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
        bail!("{one} and {other}: a run has one view: lead all meters to it, or run two graphs");
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

/// Says what failed, if anything did. A reader of lines that has enough (`| head`) ends the work; of several outputs
/// the others lack the rest.
pub(crate) fn code(ended: &RunEnd, outputs: usize) -> ExitCode {
    match ended {
        RunEnd::Source | RunEnd::Stopped => ExitCode::SUCCESS,
        RunEnd::Failed(Error::BrokenPipe { .. }) if outputs <= 1 => ExitCode::SUCCESS,
        RunEnd::Failed(error) => {
            let _ = writeln!(io::stderr(), "tapline: {}", plain_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}
