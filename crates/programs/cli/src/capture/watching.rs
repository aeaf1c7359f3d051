//! Messages while a capture runs: events, live counters, the account on request.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use tapline_graph::{GraphAccount, RunReport, grouped};

use super::args::CaptureArgs;
use crate::escape::event_line;
use crate::report;

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
    /// Accepted packets and the time at the last line of progress.
    last_line: Option<(i64, u64)>,
    has_line: bool,
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
                last_line: None,
                has_line: false,
            }),
        }
    }

    /// Takes a worker's report.
    pub(super) fn tell(&self, worker: usize, watch: &RunReport<'_>) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.accounts[worker] = watch.account.clone();
        for event in watch.events {
            state.clear_line();
            let _ = writeln!(io::stderr(), "tapline: {}", event_line(event));
        }
        if worker == 0 {
            self.report(&mut state, watch);
        }
    }

    /// Wipes the line of live counters before something else is printed.
    pub(super) fn clear(&self) {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear_line();
    }

    fn report(&self, state: &mut WatcherState, watch: &RunReport<'_>) {
        let now_ns = watch.steady_ns;
        let started_ns = *state.started_ns.get_or_insert(now_ns);
        let last_ns = state.last_stats_ns.unwrap_or(started_ns);
        let due = self.stats_ns.is_some_and(|period| now_ns.saturating_sub(last_ns) >= period);
        if due || watch.is_requested {
            state.last_stats_ns = Some(now_ns);
            state.clear_line();
            let account = state.sum();
            let text = if self.json {
                format!("{}\n", report::json(&account))
            } else {
                report::running_text(&account)
            };
            let _ = io::stderr().write_all(text.as_bytes());
        }
        if self.has_progress {
            state.line(watch);
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

    /// One line of live counters, over the last one.
    fn line(&mut self, watch: &RunReport<'_>) {
        let sum = self.sum();
        let in_kernel = sum.interfaces.iter().filter_map(|interface| interface.counted);
        let packets = sum.delivered + in_kernel.map(|counted| counted.packets).sum::<u64>();
        let (then, before) = self.last_line.unwrap_or((watch.steady_ns, packets));
        let seconds = watch.steady_ns.saturating_sub(then).max(1) as f64 / 1e9;
        let rate = if self.last_line.is_some() {
            ((packets.saturating_sub(before)) as f64 / seconds) as u64
        } else {
            0
        };
        self.last_line = Some((watch.steady_ns, packets));
        let part = match watch.progress {
            Some((done, all)) if all > 0 => format!("{:3} %  ", done.saturating_mul(100) / all),
            _ => String::new(),
        };
        let line = format!(
            "{part}{} packets  {} accepted  {} lost  {}/s",
            grouped(packets),
            grouped(sum.chain().unwrap_or_default().accepted),
            grouped(sum.lost()),
            grouped(rate)
        );
        let ends = if io::stderr().is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(io::stderr(), "{}{line}{}", ends.0, ends.1);
        self.has_line = ends.1.is_empty();
    }

    fn clear_line(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
