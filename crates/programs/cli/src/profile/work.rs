//! The run that is profiled: its graph, opened and driven as `tapline run` does it, and measured by
//! `tapline_measure::costs`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tapline_capture::af_packet::KernelFilterRuns;
use tapline_graph::RunReport;
use tapline_graph::plan::{self, Plan, PlanNode};
use tapline_measure::costs::{EngineOutcome, Measured, PreparedRun};
use tapline_meters::{Meters, merge_workers};
use tapline_stages::{StageSettings, filter_in_user_space};
use tapline_sys::bpf::RunTimeStatistics;
use tapline_sys::sandbox::folder_of;

use super::{DURATION, ProfileArgs, text};
use crate::compiler::check_filter;
use crate::escape::event_line;
use crate::live::bare_name;
use crate::mistakes::mistake;
use crate::output::say;
use crate::run::catalog;
use crate::run::opened::OpenPlan;
use crate::run::settings::RunSettings;
use crate::session;

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

    let mut opened = OpenPlan::new(&plan, 1, args.relinquish_privileges.as_deref(), args.language, settings)?;
    watch.opened();
    opened.open_outputs()?;
    let meters = Meters::create(&session::title());
    let mut needs = opened.needs(false);
    needs.runs_programs = opened.opener.settings.kernel_filter_runs.is_some();
    needs.makes.extend(args.svg.as_deref().and_then(folder_of).map(Path::to_owned));
    let (meters, _) = opened.session.confine(needs, || meters)?;
    let common = opened.settings(StageSettings { interpret: args.interpret, ..StageSettings::default() });
    let mut workers = opened.workers(&meters, &common)?;
    opened.session.obey(duration)?;
    let started = watch.start();
    let done = workers.run(&opened.session.control, &|_, report| warn(report))?;
    let stopped = started.stop();
    let failure = opened.session.failure(&done.ended, true);
    let sources = plan.nodes.iter().filter(|node| node.is_source()).count();
    let outcome = EngineOutcome { account: done.account, ticks: done.ticks, sources };
    let title = args.title.clone().unwrap_or_else(|| text::title(args));
    let settings = &opened.opener.settings;
    let kernel_filter = settings.kernel_filter_runs.as_ref().and_then(KernelFilterRuns::read);
    let stages = merge_workers(&meters.snapshot());
    let measured = stopped.measured(title, outcome, stages, settings.stamp_ticks.get(), kernel_filter);
    Ok((measured, if failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

fn plan(args: &ProfileArgs) -> Result<Plan> {
    let text = text::graph(args)?;
    let source = plan::GraphText { name: "profile", text: &text };
    let mut plan = Plan::new(catalog(), &[source]).map_err(mistake)?;
    if args.no_kernel_filter {
        filter_in_user_space(&mut plan);
    }
    Ok(plan)
}

/// The interfaces from which packets come.
fn devices(plan: &Plan) -> Vec<&str> {
    plan.nodes.iter().filter_map(PlanNode::captured_interface).map(bare_name).collect()
}

/// Reports warnings of interfaces.
fn warn(watch: &RunReport<'_>) {
    for event in watch.events.iter().filter(|event| event.is_warning) {
        say(event_line(event));
    }
}
