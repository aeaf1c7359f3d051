//! A carrier of a target: a thread that delivers one block after the other.
//!
//! ```text
//! offer --queue of 2--> thread: deliver --> reports --> poll
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Block, Carrier, Error, Offer, Outcome, Report, Target};

/// Blocks that are taken at a time: one on its way, and one behind it, so that the target never waits for the next.
const TAKEN_MAX: usize = 2;

/// A target with a thread of its own.
pub struct Threaded {
    name: String,
    jobs: Option<SyncSender<Arc<Block>>>,
    reports: Receiver<Report>,
    /// Blocks that are not reported yet, in their order.
    taken: Vec<Arc<Block>>,
    is_given_up: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Threaded {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be none.
    pub fn start(target: impl Target + 'static) -> Result<Threaded, Error> {
        let name = target.name().to_owned();
        let (jobs, theirs) = sync_channel(TAKEN_MAX);
        // Room for all that can be taken: the thread never waits here.
        let (answers, reports) = sync_channel(TAKEN_MAX);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&is_given_up);
        let thread = thread::Builder::new().name("carrier".to_owned());
        let thread = thread.spawn(move || work(target, &theirs, &answers, &given_up));
        let thread = thread.map_err(|source| Error::Thread { name: name.clone(), source })?;
        Ok(Threaded { name, jobs: Some(jobs), reports, taken: Vec::new(), is_given_up, thread: Some(thread) })
    }

    fn forget(&mut self, report: &Report) {
        self.taken.retain(|block| !Arc::ptr_eq(block, &report.block));
    }

    /// A block that a thread which panicked has left.
    fn orphan(&mut self) -> Option<Report> {
        let block = (!self.taken.is_empty()).then(|| self.taken.remove(0))?;
        Some(Report { block, outcome: Outcome::Again("the thread that delivers has ended".to_owned()) })
    }
}

fn work(
    mut target: impl Target,
    jobs: &Receiver<Arc<Block>>,
    answers: &SyncSender<Report>,
    is_given_up: &AtomicBool,
) {
    for block in jobs {
        let outcome = match is_given_up.load(Ordering::Relaxed) {
            true => Outcome::Again("given up".to_owned()),
            false => target.deliver(&block),
        };
        if answers.send(Report { block, outcome }).is_err() {
            return;
        }
    }
}

impl Carrier for Threaded {
    fn name(&self) -> &str {
        &self.name
    }

    fn offer(&mut self, block: &Arc<Block>) -> Offer {
        let Some(jobs) = self.jobs.as_ref().filter(|_| self.taken.len() < TAKEN_MAX) else {
            return Offer::Full;
        };
        if jobs.try_send(Arc::clone(block)).is_err() {
            return Offer::Full;
        }
        self.taken.push(Arc::clone(block));
        Offer::Taken
    }

    fn poll(&mut self, wait: Duration) -> Option<Report> {
        if self.taken.is_empty() {
            return None;
        }
        match self.reports.recv_timeout(wait) {
            Ok(report) => {
                self.forget(&report);
                Some(report)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => self.orphan(),
        }
    }

    fn give_up(&mut self) -> Vec<Report> {
        self.is_given_up.store(true, Ordering::Relaxed);
        let mut reports = Vec::new();
        while !self.taken.is_empty() {
            let report = self.reports.recv().ok();
            if let Some(report) = &report {
                self.forget(report);
            }
            reports.extend(report.or_else(|| self.orphan()));
        }
        self.is_given_up.store(false, Ordering::Relaxed);
        reports
    }
}

impl Drop for Threaded {
    /// Waits for the block that is on its way.
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::trial::block;

    const LONG: Duration = Duration::from_secs(60);

    /// A target with prepared answers; without an answer it waits, and panics once there will be none.
    struct PreparedTarget(Receiver<Outcome>);

    impl Target for PreparedTarget {
        fn name(&self) -> &str {
            "told"
        }

        fn deliver(&mut self, _: &Block) -> Outcome {
            self.0.recv().expect("an answer")
        }
    }

    fn told() -> (Sender<Outcome>, Threaded) {
        let (tell, answers) = channel();
        (tell, Threaded::start(PreparedTarget(answers)).expect("a thread"))
    }

    #[test]
    fn each_block_that_is_taken_is_reported_once() {
        let (tell, mut carrier) = told();
        assert_eq!(carrier.poll(LONG), None, "nothing is taken: no wait");
        let blocks: Vec<_> = (0..3).map(|number| Arc::new(block(number, b"rows"))).collect();
        assert_eq!(carrier.offer(&blocks[0]), Offer::Taken);
        assert_eq!(carrier.offer(&blocks[1]), Offer::Taken);
        assert_eq!(carrier.offer(&blocks[2]), Offer::Full);
        let outcomes = [Outcome::Again("away".to_owned()), Outcome::Refused("no".to_owned())];
        for outcome in &outcomes {
            tell.send(outcome.clone()).expect("it waits");
        }
        for (block, outcome) in blocks.iter().zip(&outcomes) {
            let report = carrier.poll(LONG).expect("a report");
            assert_eq!((report.block.id.number, &report.outcome), (block.id.number, outcome));
        }
        assert_eq!(carrier.offer(&blocks[2]), Offer::Taken);
        tell.send(Outcome::Delivered).expect("it waits");
        assert_eq!(carrier.poll(LONG).map(|report| report.outcome), Some(Outcome::Delivered));
        assert_eq!(carrier.poll(LONG), None);
    }

    #[test]
    fn blocks_that_are_given_up_are_reported() {
        let (tell, mut carrier) = told();
        for number in 0..2 {
            assert_eq!(carrier.offer(&Arc::new(block(number, b"rows"))), Offer::Taken);
        }
        tell.send(Outcome::Delivered).expect("it waits");
        tell.send(Outcome::Delivered).expect("it waits");
        let numbers: Vec<u64> = carrier.give_up().iter().map(|report| report.block.id.number).collect();
        assert_eq!(numbers, [0, 1]);
        assert_eq!(carrier.poll(LONG), None);
    }

    #[test]
    fn a_target_that_panics_leaves_no_block_unreported() {
        let (tell, mut carrier) = told();
        for number in 0..2 {
            assert_eq!(carrier.offer(&Arc::new(block(number, b"rows"))), Offer::Taken);
        }
        drop(tell);
        for number in 0..2 {
            let report = carrier.poll(LONG).expect("a report");
            assert_eq!(report.block.id.number, number);
            assert!(matches!(report.outcome, Outcome::Again(_)));
        }
        assert_eq!(carrier.offer(&Arc::new(block(2, b"rows"))), Offer::Full);
    }
}
