//! What people and machines are told of a graph: the plan, how it goes, results, the account.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde_json::{Map, Value, json};
use tapline_graph::plan::Plan;
use tapline_graph::{GraphAccount, Table, Watch, grouped};

use crate::args::RunArgs;
use crate::{output, report};

/// What the meters' file says that this is.
pub(super) fn title(plan: &Plan) -> String {
    let sources = plan.nodes.iter().filter(|node| node.is_source()).map(|node| {
        let first = node.class.parameters.first().map_or("", |parameter| node.arguments.text(parameter.name));
        format!("{} {first}", node.class.name)
    });
    format!("run {}", sources.collect::<Vec<_>>().join(", "))
}

/// The stages in their order, and what the planner did.
pub(super) fn plan_text(title: &str, plan: &Plan) -> String {
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
            text += &format!("      in the kernel: {filter}\n");
        }
    }
    if !plan.notes.is_empty() {
        text += "what the planner did\n";
    }
    plan.notes.iter().for_each(|note| text += &format!("  {note}\n"));
    text
}

/// Tells people how the work goes.
pub(super) struct Watcher {
    json: bool,
    state: Mutex<State>,
}

struct State {
    /// The newest account of each worker.
    accounts: Vec<GraphAccount>,
    /// That of what is done once for all of them.
    tail: GraphAccount,
    /// Packets and the time at the last line of progress.
    last: Option<(i64, u64)>,
    has_line: bool,
}

impl Watcher {
    pub(super) fn new(args: &RunArgs, workers: usize) -> Watcher {
        let accounts = vec![GraphAccount::default(); workers];
        let state = State { accounts, tail: GraphAccount::default(), last: None, has_line: false };
        Watcher { json: args.json, state: Mutex::new(state) }
    }

    /// Takes a worker's report; the number after the last worker's is that of what is done once. The first worker's reports are those that people see.
    pub(super) fn tell(&self, worker: usize, watch: &Watch<'_>) {
        let mut state = self.lock();
        match state.accounts.get_mut(worker) {
            Some(account) => *account = watch.account.clone(),
            None => state.tail = watch.account.clone(),
        }
        for event in watch.events {
            state.clear();
            let sign = if event.warning { "warning: " } else { "" };
            let separator = if event.interface.is_empty() { "" } else { ": " };
            let _ = writeln!(io::stderr(), "tapline: {sign}{}{separator}{}", event.interface, event.text);
        }
        if worker > 0 {
            return;
        }
        if watch.asked {
            state.clear();
            let account = state.sum();
            let text = match self.json {
                true => format!("{}\n", report::graph_json(&account)),
                false => report::running_graph_text(&account),
            };
            let _ = io::stderr().write_all(text.as_bytes());
        }
        if io::stderr().is_terminal() && !io::stdout().is_terminal() {
            state.line(watch);
        }
    }

    /// Wipes the line of live counters before something else is printed.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn sum(&self) -> GraphAccount {
        let mut sum = GraphAccount::default();
        self.accounts.iter().for_each(|account| sum.merge(account.clone()));
        sum.join(self.tail.clone(), false);
        sum
    }

    fn line(&mut self, watch: &Watch<'_>) {
        let sum = self.sum();
        let delivered = sum.delivered;
        let (then, before) =
            self.last.replace((watch.steady_ns, delivered)).unwrap_or((watch.steady_ns, delivered));
        let seconds = watch.steady_ns.saturating_sub(then).max(1) as f64 / 1e9;
        let rate = (delivered.saturating_sub(before) as f64 / seconds) as u64;
        let part = match watch.progress {
            Some((done, all)) if all > 0 => format!("{:3} %  ", done.saturating_mul(100) / all),
            _ => String::new(),
        };
        let (packets, lost, rate) = (grouped(delivered), grouped(sum.lost()), grouped(rate));
        let _ = write!(io::stderr(), "\r\x1b[K{part}{packets} packets  {lost} lost  {rate}/s");
        self.has_line = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Results go to standard output, the account to standard error; as JSON both are the last objects of standard output.
pub(super) fn conclude(args: &RunArgs, account: &GraphAccount, results: &[(String, Table)]) -> Result<()> {
    if args.json {
        let members = results.iter().map(|(name, table)| (name.clone(), table.to_json()));
        let results: Map<String, Value> = members.collect();
        return output::tell(&format!(
            "{}\n{}\n",
            json!({ "results": results }),
            report::graph_json(account)
        ));
    }
    let mut text = String::new();
    for (name, table) in results {
        let class = account.stages.iter().find(|stage| stage.name == *name).map_or("", |stage| stage.class);
        let what = if name.contains(class) { name.clone() } else { format!("{name} :: {class}") };
        let table = table.to_string();
        let lines: String = table.lines().map(|line| format!("  {line}\n")).collect();
        text += &format!("{what}\n{lines}");
    }
    let told = match args.results_aside {
        true => io::stderr().write_all(text.as_bytes()).map_err(Into::into),
        false if text.is_empty() => Ok(()),
        false => output::tell(&text),
    };
    // The account is told whatever became of the results.
    io::stderr().write_all(report::graph_text(account).as_bytes())?;
    told
}
