//! Output about a graph: the plan, progress, results, the account.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tapline_filter::{HandleKind, Options};
use tapline_graph::catalog::Property;
use tapline_graph::plan::{Plan, PlanNode};
use tapline_graph::{GraphAccount, StageResult};
use tapline_stages::FlowResults;
use tapline_sys::TerminalSize;

use super::args::RunOptions;
use crate::args::LanguageArgs;
use crate::front_parts::FrontParts;
use crate::live::CaptureBackend;
use crate::output::{self, say};
use crate::session::RunningReport;
use crate::stored::UnfitLinkTypes;
use crate::{flows, report, session};

/// Title in the files of meters and views: the command line; of `run`, whose graphs may be long, the sources.
pub(super) fn title(plan: &Plan) -> String {
    if std::env::args_os().nth(1).is_some_and(|command| command != "run") {
        return session::title();
    }
    let sources = plan.nodes.iter().filter(|node| node.is_source()).map(|node| {
        let first = node.class.parameters.first().map_or("", |parameter| node.arguments.text(parameter.name));
        format!("{} {first}", node.class.name)
    });
    format!("run {}", sources.collect::<Vec<_>>().join(", "))
}

/// The stages in their order, and changes by the planner.
pub(super) fn plan_text(title: &str, plan: &Plan, language: LanguageArgs) -> String {
    let mut text = format!("{title}\n");
    for node in &plan.nodes {
        let inputs: Vec<String> = node
            .inputs
            .iter()
            .map(|&(from, output)| match output {
                0 => plan.nodes[from].name.clone(),
                output => format!("{}[{output}]", plan.nodes[from].name),
            })
            .collect();
        let from = if inputs.is_empty() { String::new() } else { format!("  from {}", inputs.join(", ")) };
        text += &format!("  {} :: {}({}){from}\n", node.name, node.class.name, node.arguments.canonical());
        if let Some(filter) = &node.kernel_filter {
            let place = if node.class.has(Property::Live) { "kernel" } else { "search of the store" };
            text += &format!("      in the {place}: {filter}\n");
            if let Some(parts) = in_front(node, filter, language) {
                text += &format!("      in front, by XDP: {parts}\n");
            }
        }
    }
    if !plan.notes.is_empty() {
        text += "changes by the planner\n";
    }
    plan.notes.iter().for_each(|note| text += &format!("  {note}\n"));
    text
}

/// The parts of the filter of an AF_XDP interface that run in front of its sockets; those of Ethernet, which is what
/// AF_XDP is for. The plan knows no interface yet.
fn in_front(node: &PlanNode, filter: &str, language: LanguageArgs) -> Option<String> {
    let is_xdp = |name: &str| CaptureBackend::of([name]).is_ok_and(|backend| backend.is_xdp());
    if node.class.name != "device" || !is_xdp(node.arguments.text("interface")) {
        return None;
    }
    let options = Options { handle: HandleKind::Front, ..language.options(Options::default()) };
    let filter = tapline_filter::compile_or_reject(filter, &options).ok()?;
    Some(FrontParts::of(&filter).summary())
}

/// Results and account of a run that goes on.
pub(super) fn running_text(options: &RunOptions, report: &RunningReport<'_>) -> String {
    let RunningReport { account, results: of_workers } = report;
    let results = numbered(of_workers);
    if options.json {
        return format!("{}\n{}\n", results_json(&results), report::json(account));
    }
    let text = match options.flows {
        Some(style) => flows::text(of_workers.iter().flatten(), style, None),
        None => String::new(),
    };
    text + tables_text(options.flows, account, &results).as_str() + report::running_text(account).as_str()
}

/// The results of all, with the worker's number behind the stage's name where there are several. The last are those of
/// the work that is done once.
fn numbered(results: &[Vec<StageResult>]) -> Vec<StageResult> {
    let workers = results.len() - 1;
    let numbered = |(worker, results): (usize, &Vec<StageResult>)| -> Vec<StageResult> {
        let name = |name: &str| match workers {
            2.. if worker < workers => format!("{name} (worker {} of {workers})", worker + 1),
            _ => name.to_owned(),
        };
        results.iter().map(|result| StageResult { stage: name(&result.stage), ..result.clone() }).collect()
    };
    results.iter().enumerate().flat_map(numbered).collect()
}

/// Results go to standard output, the account to standard error; as JSON both are the last objects of standard output.
pub(super) fn conclude(
    options: &RunOptions,
    account: &GraphAccount,
    results: &[StageResult],
    unfit: &UnfitLinkTypes,
) -> Result<()> {
    let unfit_text = unfit.text();
    if options.json {
        let mut object = report::json(account);
        if unfit_text.is_some() {
            object["account"]["unfit_link_types"] = unfit.to_json();
        }
        return output::tell(&format!("{}\n{object}\n", results_json(results)));
    }
    let mut text = String::new();
    if let Some(style) = options.flows {
        // Lines for a terminal are as wide as it is; files and pipes have one line a flow.
        let terminal = || TerminalSize::of(io::stdout().as_fd()).map(|size| usize::from(size.columns));
        let width = if options.results_aside || !io::stdout().is_terminal() { None } else { terminal() };
        text += &flows::text(results, style, width);
    }
    text += &tables_text(options.flows, account, results);
    let told = match options.results_aside {
        true => io::stderr().write_all(text.as_bytes()).map_err(Into::into),
        false if text.is_empty() => Ok(()),
        false => output::tell(&text),
    };
    report::tag_hints(account).for_each(say);
    unfit_text.iter().for_each(say);
    // The account is told whatever became of the results.
    let form = options.graph.report.account.form(options.flows.is_some_and(|style| style.verbose));
    io::stderr().write_all(report::text(account, form).as_bytes())?;
    told
}

fn results_json(results: &[StageResult]) -> Value {
    let members = results.iter().map(|result| (result.stage.clone(), result.table.to_json()));
    json!({ "results": members.collect::<Map<String, Value>>() })
}

/// Results as tables, each below the name of its stage; without those that are shown as flows, unless these are to be
/// seen too.
fn tables_text(style: Option<flows::Style>, account: &GraphAccount, results: &[StageResult]) -> String {
    let mut text = String::new();
    for result in results {
        let StageResult { stage: name, table, .. } = result;
        let stage = name.split(' ').next().unwrap_or_default();
        if style.is_some_and(|style| !style.verbose) && FlowResults::of(result).is_some() {
            continue;
        }
        let class = account.stages.iter().find(|other| other.name == stage).map_or("", |other| other.class);
        let what = if name.contains(class) { name.clone() } else { format!("{name} :: {class}") };
        let lines: String = table.to_string().lines().map(|line| format!("  {line}\n")).collect();
        text += &format!("{what}\n{lines}");
    }
    text
}
