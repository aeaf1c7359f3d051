//! The run that is profiled: its graph, opened and driven as `tapline run` does it, and measured by
//! `tapline_measure::costs`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tapline_capture::af_packet::KernelFilterRuns;
use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, Plan, PlanNode, WorkerContext};
use tapline_graph::{Control, Engine, Inlet, RunReport, WorkerSource};
use tapline_measure::costs::{EngineOutcome, Measured, PreparedRun};
use tapline_meters::{Meters, merge_workers};
use tapline_packet::Interface;
use tapline_source::Source;
use tapline_stages::{CommandStarter, StageSettings, filter_in_user_space};
use tapline_sys::bpf::RunTimeStatistics;
use tapline_sys::sandbox::folder_of;

use super::{DURATION, ProfileArgs, text};
use crate::args::SNAP_LEN;
use crate::compiler::{Compiler, check_filter};
use crate::escape::event_line;
use crate::live::bare_name;
use crate::run::opening::{self, Opener};
use crate::run::settings::RunSettings;
use crate::run::{catalog, code, confining};
use crate::session::{self, clocks, stop_after};
use crate::{privileges, signals};

/// Runs the graph and measures it.
pub(super) fn run(args: &ProfileArgs) -> Result<(Measured, ExitCode)> {
    check_filter(&args.filter.join(" "))?;
    let plan = plan(args)?;
    let devices = devices(&plan);
    let is_live = !devices.is_empty();
    let duration = args.duration.or(is_live.then_some(DURATION));
    let settings = RunSettings {
        netns: args.netns.clone(),
        xdp: args.xdp,
        kernel_filter_runs: (is_live && !args.no_kernel_filter).then(KernelFilterRuns::default),
        ..RunSettings::default()
    };
    // While this lives. Without the right for it the table says less.
    let _statistics = settings.kernel_filter_runs.as_ref().map(|_| RunTimeStatistics::enable());
    let mut watch = PreparedRun::new(&devices, args.netns.as_deref(), duration)?;

    let control = Arc::new(Control::new(None));
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    let commands = confining::command_starter(&plan, identity.as_ref())?;
    let compiler = Arc::new(Compiler::new(SNAP_LEN, true, args.language, is_live, args.netns.as_deref()));
    let caught = signals::catch()?;
    let opener =
        Opener { settings, compiler: Arc::clone(&compiler), control: Arc::clone(&control), identity };
    let (settings, identity) = (&opener.settings, opener.identity.as_ref());
    let sources = opener.sources(&plan, 1)?.into_iter().flatten();
    let mut opened: Vec<Box<dyn Source>> = sources.map(WorkerSource::alone).collect();
    watch.opened();
    let interfaces = opening::interfaces(opened.iter().map(AsRef::as_ref));
    opener.check(&plan, &interfaces)?;
    let mut outputs = opener.outputs(&plan, &interfaces, is_live)?;
    let meters = Meters::create(&session::title());
    privileges::give_up(identity)?;
    let mut needs = confining::needs(&plan, false, identity.is_some());
    needs.runs_programs = settings.kernel_filter_runs.is_some();
    needs.makes.extend(args.svg.as_deref().and_then(folder_of).map(Path::to_owned));
    privileges::confine(needs, &meters);
    caught.obey(Arc::clone(&control))?;

    let common = common(args, compiler, commands);
    let mut take = |node: usize| Ok(outputs.remove(&node).expect("each output of the plan was opened"));
    let context =
        WorkerContext { worker: 0, control: &control, common: &common, exits: None, output: &mut take };
    let (mut graph, nodes) = plan::build(&plan, &meters, context).map_err(|error| anyhow!(error))?;
    let inlets: Vec<Inlet<'_>> =
        opened.iter_mut().zip(nodes).map(|(source, node)| Inlet::new(source.as_mut(), node)).collect();
    let sources = inlets.len();
    let engine = Engine::new(inlets, &mut graph, &control, clocks);
    if let Some(duration) = duration {
        stop_after(duration, Arc::clone(&control));
    }
    let started = watch.start();
    let outcome = engine.run(&mut |watch| warn(watch));
    let stopped = started.stop();
    let code = code(&outcome.ended, 1);
    let outcome = EngineOutcome { account: outcome.account, ticks: outcome.ticks, sources };
    let title = args.title.clone().unwrap_or_else(|| text::title(args));
    let kernel_filter = settings.kernel_filter_runs.as_ref().and_then(KernelFilterRuns::read);
    let stages = merge_workers(&meters.snapshot());
    Ok((stopped.measured(title, outcome, stages, settings.stamp_ticks.get(), kernel_filter), code))
}

fn plan(args: &ProfileArgs) -> Result<Plan> {
    let text = text::graph(args)?;
    let source = plan::GraphText { name: "profile", text: &text };
    let mut plan = Plan::new(catalog(), &[source]).map_err(|error| anyhow!("{error}"))?;
    if args.no_kernel_filter {
        filter_in_user_space(&mut plan);
    }
    Ok(plan)
}

/// The interfaces from which packets come.
fn devices(plan: &Plan) -> Vec<&str> {
    plan.nodes.iter().filter_map(PlanNode::captured_interface).map(bare_name).collect()
}

fn common(
    args: &ProfileArgs,
    compiler: Arc<Compiler>,
    commands: Option<Arc<CommandStarter>>,
) -> GraphSettings {
    let options = Arc::new(move |interface: &Interface| compiler.options(interface));
    StageSettings { options, interpret: args.interpret, commands, ..StageSettings::default() }.into()
}

/// Reports warnings of interfaces.
fn warn(watch: &RunReport<'_>) {
    for event in watch.events.iter().filter(|event| event.is_warning) {
        let _ = writeln!(io::stderr(), "tapline: {}", event_line(event));
    }
}
