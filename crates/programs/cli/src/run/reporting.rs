//! Output about a graph: the plan, progress, results, the account.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde_json::{Map, Value, json};
use tapline_filter::{HandleKind, Options};
use tapline_graph::catalog::Property;
use tapline_graph::plan::{Plan, PlanNode};
use tapline_graph::{GraphAccount, RunReport, StageResult, grouped};
use tapline_stages::FlowResults;
use tapline_sys::TerminalSize;

use super::args::RunOptions;
use crate::args::LanguageArgs;
use crate::escape::event_line;
use crate::front_parts::FrontParts;
use crate::live::CaptureBackend;
use crate::session::CounterLine;
use crate::stored::UnfitLinkTypes;
use crate::{flows, output, report, session};

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

/// Reports the progress to the user.
pub(super) struct Watcher {
    json: bool,
    flows: Option<flows::Style>,
    state: Mutex<WatcherState>,
}

struct WatcherState {
    /// The newest account of each worker.
    accounts: Vec<GraphAccount>,
    /// The account of work that is done once for all workers.
    tail: GraphAccount,
    line: CounterLine,
    /// Results of each worker, then those of the tail, by the last requested report.
    results: Vec<Vec<StageResult>>,
    /// Whether each worker has answered the report that was requested, and whether each has ended.
    answered: Vec<bool>,
    ended: Vec<bool>,
}

impl Watcher {
    pub(super) fn new(options: &RunOptions, workers: usize) -> Watcher {
        let accounts = vec![GraphAccount::default(); workers];
        // With one worker there is nothing behind it.
        let ended = (0..=workers).map(|number| number == 1 && workers == 1).collect();
        let state = WatcherState {
            accounts,
            tail: GraphAccount::default(),
            line: CounterLine::default(),
            results: vec![Vec::new(); workers + 1],
            answered: vec![false; workers + 1],
            ended,
        };
        Watcher { json: options.json, flows: options.flows, state: Mutex::new(state) }
    }

    /// Takes a worker's report; the number after the last worker's is that of what is done once. The first worker's
    /// reports are those that people see.
    pub(super) fn tell(&self, worker: usize, watch: &RunReport<'_>) {
        let mut state = self.lock();
        match state.accounts.get_mut(worker) {
            Some(account) => *account = watch.account.clone(),
            None => state.tail = watch.account.clone(),
        }
        for event in watch.events {
            state.line.clear();
            let _ = writeln!(io::stderr(), "tapline: {}", event_line(event));
        }
        if watch.is_requested || watch.is_last {
            state.results[worker] = watch.results.clone();
        }
        state.answered[worker] |= watch.is_requested;
        state.ended[worker] |= watch.is_last;
        if state.is_answered() {
            state.answered.fill(false);
            state.line.clear();
            let text = self.running_text(&state);
            let _ = io::stderr().write_all(text.as_bytes());
        }
        if worker > 0 {
            return;
        }
        if io::stderr().is_terminal() && !io::stdout().is_terminal() {
            state.show_counters(watch);
        }
    }

    /// Results and account so far.
    fn running_text(&self, state: &WatcherState) -> String {
        let account = state.sum();
        let results = state.numbered_results();
        if self.json {
            return format!("{}\n{}\n", results_json(&results), report::json(&account));
        }
        let workers = &state.results;
        let text = match self.flows {
            Some(style) => flows::text(workers.iter().flatten(), style, None),
            None => String::new(),
        };
        text + tables_text(self.flows, &account, &results).as_str() + report::running_text(&account).as_str()
    }

    /// Wipes the line of live counters before something else is printed.
    pub(super) fn clear(&self) {
        self.lock().line.clear();
    }

    fn lock(&self) -> MutexGuard<'_, WatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatcherState {
    fn sum(&self) -> GraphAccount {
        let mut sum = GraphAccount::default();
        self.accounts.iter().for_each(|account| sum.merge(account.clone()));
        sum.join(self.tail.clone(), false);
        sum
    }

    /// Whether a report was asked for, and all have answered that still can.
    fn is_answered(&self) -> bool {
        let mut all = self.answered.iter().zip(&self.ended);
        self.answered.contains(&true) && all.all(|(answered, ended)| *answered || *ended)
    }

    /// The results of all, with the worker's number behind the stage's name where there are several.
    fn numbered_results(&self) -> Vec<StageResult> {
        let workers = self.accounts.len();
        let numbered = |(worker, results): (usize, &Vec<StageResult>)| -> Vec<StageResult> {
            let name = |name: &str| match workers {
                2.. if worker < workers => format!("{name} (worker {} of {workers})", worker + 1),
                _ => name.to_owned(),
            };
            results
                .iter()
                .map(|result| StageResult { stage: name(&result.stage), ..result.clone() })
                .collect()
        };
        self.results.iter().enumerate().flat_map(numbered).collect()
    }

    fn show_counters(&mut self, watch: &RunReport<'_>) {
        let sum = self.sum();
        let rate = self.line.rate(watch.steady_ns, sum.delivered);
        let (packets, lost, rate) = (grouped(sum.delivered), grouped(sum.lost()), grouped(rate));
        self.line.show(watch.progress, &format!("{packets} packets  {lost} lost  {rate}/s"));
    }
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
    report::tag_hints(account).for_each(|line| drop(writeln!(io::stderr(), "tapline: {line}")));
    unfit_text.iter().for_each(|line| drop(writeln!(io::stderr(), "tapline: {line}")));
    // The account is told whatever became of the results.
    let form = options.report.account.form(options.flows.is_some_and(|style| style.verbose));
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
