//! Messages while packets are sent: the account on SIGUSR1, a line of progress on a terminal. Both are printed by a
//! thread of their own, so the one that sends never waits for a terminal.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use tapline_graph::{Control, grouped};
use tapline_transmit::{PaceReport, Progress, ProgressReader, ProgressWriter, progress};

use super::SendTarget;
use super::report::{Outcome, SendInput, tell};
use crate::session::{CounterLine, clocks};

/// Interval between two questions to the pacer.
const PERIOD: Duration = Duration::from_millis(100);

/// The thread that reports until [`end`](Reporting::end).
pub(crate) struct Reporting {
    is_over: Arc<AtomicBool>,
    reporter: Option<JoinHandle<()>>,
}

impl Reporting {
    /// Starts it; the pacer is given the other half. `whole` is the number of packets to be sent, where known.
    pub(crate) fn begin(
        place: &SendTarget,
        verb: &'static str,
        is_paced: bool,
        json: bool,
        whole: Option<u64>,
        control: &Arc<Control>,
    ) -> Result<(Reporting, ProgressWriter)> {
        let is_over = Arc::new(AtomicBool::new(false));
        let orders = Arc::clone(control);
        let (writer, reader) = progress(move || orders.is_stopped());
        let reporter = Reporter {
            control: Arc::clone(control),
            is_over: Arc::clone(&is_over),
            progress: reader,
            place: place.clone(),
            verb,
            is_paced,
            json,
            whole,
            has_progress: io::stderr().is_terminal(),
            line: CounterLine::default(),
        };
        let reporter = thread::Builder::new().name("progress".to_owned()).spawn(move || reporter.run())?;
        Ok((Reporting { is_over, reporter: Some(reporter) }, writer))
    }

    /// Ends it, and wipes the line.
    pub(crate) fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(reporter) = self.reporter.take() {
            reporter.thread().unpark();
            let _ = reporter.join();
        }
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Asks, and prints the answers.
struct Reporter {
    control: Arc<Control>,
    is_over: Arc<AtomicBool>,
    progress: ProgressReader,
    place: SendTarget,
    verb: &'static str,
    is_paced: bool,
    json: bool,
    whole: Option<u64>,
    has_progress: bool,
    line: CounterLine,
}

impl Reporter {
    fn run(mut self) {
        // Also of orders that came before this thread.
        let mut seen = 0;
        let mut is_wanted = false;
        while !self.is_over.load(Ordering::Relaxed) {
            thread::park_timeout(PERIOD);
            let reports = self.control.reports_requested();
            is_wanted |= std::mem::replace(&mut seen, reports) != reports;
            if !is_wanted && !self.has_progress {
                continue;
            }
            let Some(snapshot) = self.progress.ask(is_wanted, PERIOD) else { continue };
            if let Some(pace) = snapshot.pace.as_ref().filter(|_| is_wanted) {
                self.line.clear();
                self.account(pace, &snapshot);
                is_wanted = false;
            }
            if self.has_progress {
                self.show_counters(&snapshot);
            }
        }
        self.line.clear();
    }

    fn account(&self, pace: &PaceReport, snapshot: &Progress) {
        tell(&Outcome {
            pacer: pace,
            sent: &snapshot.sent,
            place: &self.place,
            dropped_later: None,
            // Counted by the pacer; the transmitter's count must agree. Only the reader knows the number of passes.
            taken: SendInput { verb: self.verb, packets: snapshot.frames, passes: 1, backwards: 0, left: 0 },
            is_running: true,
            is_paced: self.is_paced,
            json: self.json,
        });
    }

    fn show_counters(&mut self, snapshot: &Progress) {
        let sent = snapshot.sent.packets;
        let rate = self.line.rate(clocks().steady_ns, sent);
        let unsent = grouped(snapshot.sent.lost.total());
        let counters = format!("{} packets  {unsent} not sent  {}/s", grouped(sent), grouped(rate));
        self.line.show(self.whole.map(|all| (snapshot.frames, all)), &counters);
    }
}
