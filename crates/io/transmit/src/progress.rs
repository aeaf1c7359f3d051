//! Counters of a pacer for another thread, without keeping the pacer waiting.
//!
//! ```text
//! a thread that reports:  ProgressReader::ask --> is_asking
//! the pacer's thread, between two calls:          is_asking --a copy of its counters--> channel --> the thread that reports
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::{PaceObserver, PaceReport, SendCounts};

/// Counters of a pacer at one moment.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Frames that were handed to the transmitter, sent or not.
    pub frames: u64,
    /// Counters of the transmitter.
    pub sent: SendCounts,
    /// The pacer's report, where it was asked for: it holds a whole histogram.
    pub pace: Option<PaceReport>,
}

#[derive(Debug, Default)]
struct Shared {
    is_asking: AtomicBool,
    wants_report: AtomicBool,
}

/// The pacer's side: a [`PaceObserver`] that answers a [`ProgressReader`].
pub struct ProgressWriter {
    shared: Arc<Shared>,
    answers: SyncSender<Progress>,
    is_stopped: Box<dyn Fn() -> bool + Send>,
}

/// The side of the thread that reports.
#[derive(Debug)]
pub struct ProgressReader {
    shared: Arc<Shared>,
    answers: Receiver<Progress>,
}

/// Both sides. `is_stopped` is the order to stop that the pacer obeys.
pub fn progress(is_stopped: impl Fn() -> bool + Send + 'static) -> (ProgressWriter, ProgressReader) {
    let shared = Arc::new(Shared::default());
    let (sender, receiver) = sync_channel(1);
    let writer =
        ProgressWriter { shared: Arc::clone(&shared), answers: sender, is_stopped: Box::new(is_stopped) };
    (writer, ProgressReader { shared, answers: receiver })
}

impl ProgressReader {
    /// Asks the pacer, and waits for its answer; `None` where it makes no call for `timeout`: it waits for its first
    /// packet, or is at its end.
    pub fn ask(&self, wants_report: bool, timeout: Duration) -> Option<Progress> {
        self.shared.wants_report.store(wants_report, Ordering::Relaxed);
        self.shared.is_asking.store(true, Ordering::Relaxed);
        self.answers.recv_timeout(timeout).ok()
    }
}

impl PaceObserver for ProgressWriter {
    fn is_stopped(&self) -> bool {
        (self.is_stopped)()
    }

    fn wants_report(&self) -> bool {
        self.shared.is_asking.load(Ordering::Relaxed)
    }

    fn tell(&self, report: &PaceReport, sent: &SendCounts) {
        self.shared.is_asking.store(false, Ordering::Relaxed);
        let pace = self.shared.wants_report.swap(false, Ordering::Relaxed).then(|| report.clone());
        // An answer still stands in the channel: this one is left out, and the next question gets a fresh one.
        let _ = self.answers.try_send(Progress { frames: report.frames, sent: *sent, pace });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_gets_the_counters_of_its_time() {
        let (writer, reader) = progress(|| false);
        assert!(!writer.wants_report());
        assert!(reader.ask(false, Duration::ZERO).is_none());
        assert!(writer.wants_report());
        let report = PaceReport { frames: 7, ..PaceReport::default() };
        writer.tell(&report, &SendCounts::default());
        assert!(!writer.wants_report());
        let answer = reader.ask(true, Duration::ZERO).expect("an answer");
        assert_eq!((answer.frames, answer.pace.is_some()), (7, false));
        writer.tell(&report, &SendCounts::default());
        assert!(reader.ask(false, Duration::ZERO).expect("an answer").pace.is_some());
    }

    #[test]
    fn an_unread_answer_keeps_no_pacer_waiting() {
        let (writer, _reader) = progress(|| true);
        for _ in 0..10 {
            writer.tell(&PaceReport::default(), &SendCounts::default());
        }
        assert!(writer.is_stopped());
    }
}
