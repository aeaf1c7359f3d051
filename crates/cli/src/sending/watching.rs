//! What people are told while packets are sent: the account on SIGUSR1, a line of progress on a terminal.
//!
//! ```text
//! this thread, ten times a second: does somebody ask? --> wants_report
//! the thread that sends, between two calls:               wants_report --a copy of its counters--> channel --> this thread prints
//! ```
//!
//! So the thread that sends never waits for a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use tapline_capture::transmit::{PaceObserver, PaceReport, Sent};
use tapline_graph::{Control, grouped};

use super::Place;
use super::report::{Outcome, Taken, tell};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(100);

/// The counters at one moment.
struct Snapshot {
    /// Frames that were handed on.
    frames: u64,
    sent: Sent,
    /// How it went so far, where an account is wanted: it holds a whole histogram.
    pace: Option<PaceReport>,
}

/// What both threads see.
struct Shared {
    control: Arc<Control>,
    wants_report: AtomicBool,
    wants_account: AtomicBool,
    is_over: AtomicBool,
}

/// Watches over sending until [`end`](Watching::end).
pub(crate) struct Watching {
    shared: Arc<Shared>,
    answers: SyncSender<Snapshot>,
    teller: Option<JoinHandle<()>>,
}

impl Watching {
    /// Begins to watch. `whole` is how many packets there will be, if that is known.
    pub(crate) fn begin(
        place: &Place,
        verb: &'static str,
        is_paced: bool,
        json: bool,
        whole: Option<u64>,
        control: &Arc<Control>,
    ) -> Result<Watching> {
        let shared = Arc::new(Shared {
            control: Arc::clone(control),
            wants_report: AtomicBool::new(false),
            wants_account: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let (answers, questions) = sync_channel(1);
        let teller = Teller {
            shared: Arc::clone(&shared),
            snapshots: questions,
            place: place.clone(),
            verb,
            is_paced,
            json,
            whole,
            has_progress: io::stderr().is_terminal(),
            has_line: false,
            last: None,
        };
        let teller = thread::Builder::new().name("progress".to_owned()).spawn(move || teller.run())?;
        Ok(Watching { shared, answers, teller: Some(teller) })
    }

    /// Ends it, and wipes the line.
    pub(crate) fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(teller) = self.teller.take() {
            teller.thread().unpark();
            let _ = teller.join();
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PaceObserver for Watching {
    fn is_stopped(&self) -> bool {
        self.shared.control.stopped()
    }

    fn wants_report(&self) -> bool {
        self.shared.wants_report.load(Ordering::Relaxed)
    }

    fn tell(&self, report: &PaceReport, sent: &Sent) {
        self.shared.wants_report.store(false, Ordering::Relaxed);
        let pace = self.shared.wants_account.swap(false, Ordering::Relaxed).then(|| report.clone());
        // Of an answer that was not fetched in time another one is asked for.
        let _ = self.answers.try_send(Snapshot { frames: report.frames, sent: *sent, pace });
    }
}

/// Asks, and prints the answers.
struct Teller {
    shared: Arc<Shared>,
    snapshots: Receiver<Snapshot>,
    place: Place,
    verb: &'static str,
    is_paced: bool,
    json: bool,
    whole: Option<u64>,
    has_progress: bool,
    has_line: bool,
    /// When the last line was printed, and of how many packets.
    last: Option<(Instant, u64)>,
}

impl Teller {
    fn run(mut self) {
        let mut seen = self.shared.control.reports();
        let mut is_wanted = false;
        while !self.shared.is_over.load(Ordering::Relaxed) {
            thread::park_timeout(PERIOD);
            let reports = self.shared.control.reports();
            is_wanted |= std::mem::replace(&mut seen, reports) != reports;
            if !is_wanted && !self.has_progress {
                continue;
            }
            self.shared.wants_account.store(is_wanted, Ordering::Relaxed);
            self.shared.wants_report.store(true, Ordering::Relaxed);
            // The thread that sends may wait for its first packet, or be at its end: asked again in the next round.
            let Ok(snapshot) = self.snapshots.recv_timeout(PERIOD) else { continue };
            if let Some(pace) = snapshot.pace.as_ref().filter(|_| is_wanted) {
                self.clear();
                self.account(pace, &snapshot);
                is_wanted = false;
            }
            if self.has_progress {
                self.line(&snapshot);
            }
        }
        self.clear();
    }

    fn account(&self, pace: &PaceReport, snapshot: &Snapshot) {
        tell(&Outcome {
            pacer: pace,
            sent: &snapshot.sent,
            place: &self.place,
            dropped_later: None,
            // What the pacer handed on, by its own count: the transmitter's must be as many. How often the file began anew only the reader knows.
            taken: Taken { verb: self.verb, packets: snapshot.frames, passes: 1, backwards: 0, left: 0 },
            is_running: true,
            is_paced: self.is_paced,
            json: self.json,
        });
    }

    /// One line, over the last one.
    fn line(&mut self, snapshot: &Snapshot) {
        let (now, sent, done) = (Instant::now(), snapshot.sent.packets, snapshot.frames);
        let (then, before) = self.last.replace((now, sent)).unwrap_or((now, sent));
        let seconds = now.duration_since(then).as_secs_f64();
        let rate = if seconds > 0.0 { (sent.saturating_sub(before) as f64 / seconds) as u64 } else { 0 };
        let share = match self.whole {
            Some(all @ 1..) => format!("{:3} %  ", (u128::from(done) * 100 / u128::from(all)).min(100)),
            _ => String::new(),
        };
        let unsent = grouped(snapshot.sent.causes.lost());
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{share}{} packets  {unsent} not sent  {}/s",
            grouped(sent),
            grouped(rate)
        );
        self.has_line = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
