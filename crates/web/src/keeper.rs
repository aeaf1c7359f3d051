//! Seconds on their way from the feed into the history, which a thread of its own writes.
//!
//! ```text
//! feed --push: never waits--> queue --> keep: History::add, where a write may wait for disks and other programs
//! ```
//!
//! A queue of a minute has tables, which the pages hold anyway. Beyond these a second comes by its totals, so that all its
//! packets are among the others; beyond an hour it is added to the last one. So sums stay true however slow the disk is.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tapline_pages::{WINDOW_MAX, second_without_rows};
use tapline_view::Reading;

use crate::complaint::Complaint;
use crate::history::History;

/// The most seconds that wait with their tables.
const RANKED_MAX: usize = WINDOW_MAX;
/// The most seconds that wait.
const SECONDS_MAX: usize = 3600;

/// A queue of seconds, from one thread to another.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    queue: Mutex<Queue>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    seconds: VecDeque<Arc<Reading>>,
    is_closed: bool,
}

impl Queue {
    fn push(&mut self, reading: Arc<Reading>) {
        let Queue { seconds, .. } = self;
        if seconds.len() < RANKED_MAX {
            seconds.push_back(reading);
        } else if seconds.len() < SECONDS_MAX {
            seconds.push_back(Arc::new(second_without_rows(reading.number, reading.second)));
        } else if let Some(last) = seconds.back_mut() {
            let mut both = last.second;
            both.append(&reading.second);
            *last = Arc::new(second_without_rows(reading.number, both));
        }
    }
}

impl Keeper {
    /// Hands a second over.
    pub(crate) fn push(&self, reading: Arc<Reading>) {
        self.lock().push(reading);
        self.change.notify_one();
    }

    /// Says that no second follows.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.change.notify_one();
    }

    /// Writes the history until the queue is closed and empty. `log` gets what an administrator should know.
    pub(crate) fn keep(&self, history: &mut History, log: &dyn Fn(&str)) {
        let (begin, mut complaint) = (Instant::now(), Complaint::default());
        while let Some(reading) = self.next() {
            match history.add(&reading, now_ns()) {
                Err(error) if complaint.is_due(&error, begin.elapsed()) => log(&error.to_string()),
                Ok(()) if history.waiting() == 0 && complaint.end() => {
                    log(&format!("history {}: kept again", history.path().display()));
                }
                _ => {}
            }
        }
        history.finish().err().into_iter().for_each(|error| log(&error.to_string()));
    }

    /// The next second; `None` after the last.
    fn next(&self) -> Option<Arc<Reading>> {
        let is_idle = |queue: &mut Queue| queue.seconds.is_empty() && !queue.is_closed;
        let queue = self.change.wait_while(self.lock(), is_idle);
        queue.unwrap_or_else(PoisonError::into_inner).seconds.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wall clock, in nanoseconds since 1970 UTC.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tapline_view::{Amount, Dimension, Key, Row, Second, Table};

    use super::*;
    use crate::history::HistoryLimits;

    #[test]
    fn seconds_that_wait_are_bounded_and_none_is_lost() {
        const BEGIN: u64 = 1_790_000_000 / 86_400 * 86_400;
        let reading = |number: u64| {
            let amount = Amount { packets: 7, bytes: 700 };
            let row = Row { key: Key::name("a"), amount, ..Row::default() };
            let table = Table { rows: vec![row], ..Table::default() };
            let end_ns = (BEGIN + number + 1) * 1_000_000_000;
            let second = Second {
                end_ns,
                len_ns: 1_000_000_000,
                metered: 7,
                flow_bytes: 700,
                lost_ring: 1,
                ..Second::default()
            };
            Arc::new(Reading { number, second, tables: std::array::from_fn(|_| table.clone()) })
        };
        let keeper = Keeper::default();
        (0..5000).for_each(|number| keeper.push(reading(number)));
        assert_eq!(keeper.lock().seconds.len(), SECONDS_MAX);
        let ranked = keeper.lock().seconds.iter().filter(|second| !second.tables[0].rows.is_empty()).count();
        assert_eq!(ranked, RANKED_MAX);
        keeper.close();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let mut history = History::open(&path, HistoryLimits::default()).expect("a history");
        keeper.keep(&mut history, &|line| panic!("{line}"));
        let answer = history.greatest(Dimension::Name, BEGIN, BEGIN + 6000, 10).expect("an answer");
        assert_eq!((answer.packets(), answer.table.sum().packets), ((5000 * 8, 5000), 5000 * 7));
        let row = answer.table.rows[0];
        assert_eq!((row.amount.packets, row.error.packets), (60 * 7, 4940 * 7));
    }
}
