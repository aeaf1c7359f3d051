//! Messages while a capture runs: events, live counters, the account on request.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use tapline_graph::{GraphAccount, RunReport, grouped};

use super::args::CaptureArgs;
use crate::escape::event_line;
use crate::report;
use crate::session::CounterLine;

/// Reports the progress to the user.
pub(super) struct Watcher {
    has_progress: bool,
    json: bool,
    stats_ns: Option<i64>,
    state: Mutex<WatcherState>,
}

struct WatcherState {
    /// The newest account of each worker.
    accounts: Vec<GraphAccount>,
    /// By the steady clock, as all times here.
    started_ns: Option<i64>,
    last_stats_ns: Option<i64>,
    line: CounterLine,
}

impl Watcher {
    pub(super) fn new(args: &CaptureArgs, workers: usize) -> Watcher {
        let quiet_terminal = io::stderr().is_terminal() && args.write.is_some() && !args.print;
        Watcher {
            has_progress: args.progress || quiet_terminal,
            json: args.json,
            stats_ns: args.stats.map(|interval| i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX)),
            state: Mutex::new(WatcherState {
                accounts: vec![GraphAccount::default(); workers],
                started_ns: None,
                last_stats_ns: None,
                line: CounterLine::default(),
            }),
        }
    }

    /// Takes a worker's report.
    pub(super) fn tell(&self, worker: usize, watch: &RunReport<'_>) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.accounts[worker] = watch.account.clone();
        for event in watch.events {
            state.line.clear();
            let _ = writeln!(io::stderr(), "tapline: {}", event_line(event));
        }
        if worker == 0 {
            self.report(&mut state, watch);
        }
    }

    /// Wipes the line of live counters before something else is printed.
    pub(super) fn clear(&self) {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).line.clear();
    }

    fn report(&self, state: &mut WatcherState, watch: &RunReport<'_>) {
        let now_ns = watch.steady_ns;
        let started_ns = *state.started_ns.get_or_insert(now_ns);
        let last_ns = state.last_stats_ns.unwrap_or(started_ns);
        let due = self.stats_ns.is_some_and(|period| now_ns.saturating_sub(last_ns) >= period);
        if due || watch.is_requested {
            state.last_stats_ns = Some(now_ns);
            state.line.clear();
            let account = state.sum();
            let text = if self.json {
                format!("{}\n", report::json(&account))
            } else {
                report::running_text(&account)
            };
            let _ = io::stderr().write_all(text.as_bytes());
        }
        if self.has_progress {
            state.show_counters(watch);
        }
    }
}

impl WatcherState {
    fn sum(&self) -> GraphAccount {
        let mut sum = GraphAccount::default();
        for account in &self.accounts {
            sum.merge(account.clone());
        }
        sum
    }

    fn show_counters(&mut self, watch: &RunReport<'_>) {
        let sum = self.sum();
        let in_kernel = sum.interfaces.iter().filter_map(|interface| interface.counted);
        let packets = sum.delivered + in_kernel.map(|counted| counted.packets).sum::<u64>();
        let rate = self.line.rate(watch.steady_ns, packets);
        let counters = format!(
            "{} packets  {} accepted  {} lost  {}/s",
            grouped(packets),
            grouped(sum.chain().unwrap_or_default().accepted),
            grouped(sum.lost()),
            grouped(rate)
        );
        self.line.show(watch.progress, &counters);
    }
}
