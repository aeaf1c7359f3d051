//! Progress of a run on standard error: events, live counters, the account on request or in intervals.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tapline_graph::{GraphAccount, RunReport, StageResult, grouped};

use super::CounterLine;
use crate::escape::event_line;
use crate::output::say;
use crate::report;

/// The line of live counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counters {
    None,
    /// Packets alone: nothing is lost, and no rate is of interest.
    Packets,
    All,
}

/// The state of a run at one moment.
pub(crate) struct RunningReport<'r> {
    /// The sum of all workers.
    pub(crate) account: &'r GraphAccount,
    /// The results of each worker, then of work that is done once for all, by the last requested report.
    pub(crate) results: &'r [Vec<StageResult>],
}

/// Makes the text of a report.
type ReportText<'t> = dyn Fn(&RunningReport<'_>) -> String + Send + Sync + 't;

/// Reports the progress to the user.
pub(crate) struct Watcher<'t> {
    text: Box<ReportText<'t>>,
    counters: Counters,
    interval_ns: Option<i64>,
    state: Mutex<WatcherState>,
}

struct WatcherState {
    /// The newest account of each worker.
    accounts: Vec<GraphAccount>,
    /// The account of work that is done once for all workers.
    tail: GraphAccount,
    line: CounterLine,
    /// By the steady clock: the last report, or the start.
    reported_ns: Option<i64>,
    results: Vec<Vec<StageResult>>,
    /// For each worker: number of requests that it has answered, and whether it has ended.
    answered: Vec<u64>,
    ended: Vec<bool>,
    /// Number of requests that all have answered.
    printed: u64,
}

impl<'t> Watcher<'t> {
    /// A watcher of `workers` workers, with a tail after them or without, whose reports are made by `text`.
    pub(crate) fn new(
        workers: usize,
        has_tail: bool,
        counters: Counters,
        text: impl Fn(&RunningReport<'_>) -> String + Send + Sync + 't,
    ) -> Watcher<'t> {
        let mut ended = vec![false; workers];
        ended.push(!has_tail);
        let state = WatcherState {
            accounts: vec![GraphAccount::default(); workers],
            tail: GraphAccount::default(),
            line: CounterLine::default(),
            reported_ns: None,
            results: vec![Vec::new(); workers + 1],
            answered: vec![0; workers + 1],
            ended,
            printed: 0,
        };
        Watcher { text: Box::new(text), counters, interval_ns: None, state: Mutex::new(state) }
    }

    /// A watcher whose reports are accounts.
    pub(crate) fn of_accounts(workers: usize, counters: Counters, json: bool) -> Watcher<'t> {
        Watcher::new(workers, false, counters, move |report| match json {
            true => format!("{}\n", report::json(report.account)),
            false => report::running_text(report.account),
        })
    }

    /// Reports in intervals, too.
    pub(crate) fn every(mut self, interval: Option<Duration>) -> Watcher<'t> {
        self.interval_ns = interval.map(|time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        self
    }

    /// Takes a worker's report; the number after the last worker's is that of what is done once. The first worker's
    /// reports are those that people see. Returns whether a report that was requested has been printed.
    pub(crate) fn tell(&self, worker: usize, watch: &RunReport<'_>) -> bool {
        let mut state = self.lock();
        match state.accounts.get_mut(worker) {
            Some(account) => *account = watch.account.clone(),
            None => state.tail = watch.account.clone(),
        }
        for event in watch.events {
            state.line.clear();
            say(event_line(event));
        }
        if watch.requested.is_some() || watch.is_last {
            state.results[worker].clone_from(&watch.results);
        }
        if let Some(requests) = watch.requested {
            state.answered[worker] = requests;
        }
        state.ended[worker] |= watch.is_last;
        let is_answered = state.is_answered();
        if is_answered || worker == 0 && state.is_due(watch.steady_ns, self.interval_ns) {
            state.reported_ns = Some(watch.steady_ns);
            state.line.clear();
            let text = (self.text)(&RunningReport { account: &state.sum(), results: &state.results });
            let _ = io::stderr().write_all(text.as_bytes());
        }
        if worker == 0 && self.counters != Counters::None {
            state.show_counters(watch, self.counters);
        }
        is_answered
    }

    /// Wipes the line of live counters before something else is printed.
    pub(crate) fn clear(&self) {
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

    /// Whether there are new requests that all have answered that still can.
    fn is_answered(&mut self) -> bool {
        let running = self.answered.iter().zip(&self.ended).filter(|(_, ended)| !**ended);
        let least = running.map(|(answered, _)| *answered).min();
        let answered = least.or(self.answered.iter().copied().max()).unwrap_or(0);
        let is_new = answered > self.printed;
        self.printed = self.printed.max(answered);
        is_new
    }

    /// Whether an interval is over.
    fn is_due(&mut self, now_ns: i64, interval_ns: Option<i64>) -> bool {
        let reported_ns = *self.reported_ns.get_or_insert(now_ns);
        interval_ns.is_some_and(|interval_ns| now_ns.saturating_sub(reported_ns) >= interval_ns)
    }

    fn show_counters(&mut self, watch: &RunReport<'_>, counters: Counters) {
        let sum = self.sum();
        let in_kernel = sum.interfaces.iter().filter_map(|interface| interface.counted);
        let packets = sum.delivered + in_kernel.map(|counted| counted.packets).sum::<u64>();
        let mut text = format!("{} packets", grouped(packets));
        if counters == Counters::All {
            let accepted = sum.chain().map(|chain| format!("  {} accepted", grouped(chain.accepted)));
            let rate = self.line.rate(watch.steady_ns, packets);
            let lost = grouped(sum.lost());
            text += &format!("{}  {lost} lost  {}/s", accepted.unwrap_or_default(), grouped(rate));
        }
        self.line.show(watch.progress, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_request_is_answered_once_by_all_who_run() {
        let printed = AtomicUsize::new(0);
        let text = |_: &RunningReport<'_>| {
            printed.fetch_add(1, Ordering::Relaxed);
            String::new()
        };
        let watcher = Watcher::new(2, false, Counters::None, text).every(Some(Duration::from_secs(1)));
        let account = GraphAccount::default();
        let report = |steady_ns: i64, requested: Option<u64>, is_last: bool| RunReport {
            steady_ns,
            account: &account,
            events: &[],
            progress: None,
            requested,
            is_last,
            results: Vec::new(),
        };
        let printed = || printed.load(Ordering::Relaxed);
        assert!(!watcher.tell(0, &report(0, Some(1), false)), "the other worker has not answered");
        assert!(!watcher.tell(0, &report(2_000_000_000, None, false)));
        assert_eq!(printed(), 1, "an interval is over");
        assert!(watcher.tell(1, &report(2_000_000_000, Some(1), false)), "the interval did not answer it");
        assert_eq!(printed(), 2);
        assert!(!watcher.tell(0, &report(2_100_000_000, Some(2), false)));
        assert!(watcher.tell(1, &report(2_200_000_000, Some(3), false)), "it answers two requests at once");
        assert!(watcher.tell(0, &report(2_300_000_000, Some(3), false)), "the second one is not lost");
        assert_eq!(printed(), 4);
        assert!(!watcher.tell(1, &report(2_500_000_000, None, true)));
        assert!(watcher.tell(0, &report(2_500_000_000, Some(4), false)), "an ended worker is not waited for");
        assert_eq!(printed(), 5);
    }
}
