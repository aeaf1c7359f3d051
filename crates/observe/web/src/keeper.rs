//! Seconds on their way from the feed into the history, which a thread of its own writes.
//!
//! ```text
//! feed   --push: never waits-------> queue --> keep: History::add, where a write may wait for disks and other programs
//! events --push_told: never waits--> queue --> the same: History::add_told
//! ```
//!
//! A queue of a minute has tables, which the pages hold anyway. Beyond these a second comes by its totals, so that all its
//! packets are among the others; beyond an hour it is added to the last one. So sums stay true however slow the disk is.
//! Of events and tables the latest 10,000 wait, and 8 MiB at most: those before them are in their own file alone. What
//! could not be written of them waits likewise, and is tried again though no second comes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tapline_pages::{EventLine, RecorderTable, WINDOW_MAX, WatchEvent, second_without_rows};
use tapline_view::Reading;

use crate::complaint::Complaint;
use crate::error::Error;
use crate::history::History;

/// The most seconds that wait with their tables.
const RANKED_MAX: usize = WINDOW_MAX;
/// The most seconds that wait.
const SECONDS_MAX: usize = 3600;
/// The most events and tables that wait, and their bytes.
const TOLD_MAX: usize = 10_000;
const TOLD_BYTES_MAX: usize = 8 << 20;
/// The most events and tables of a transaction, and their bytes: the log of the history stays short.
const TRANSACTION_MAX: usize = 256;
const TRANSACTION_BYTES_MAX: usize = 1 << 20;
/// The time after which events are tried again: a write may have waited for half of it.
const RETRY: Duration = Duration::from_secs(10);

/// A queue of seconds, from one thread to another.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    queue: Mutex<Queue>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    seconds: VecDeque<Arc<Reading>>,
    /// The meter of the seconds that come, where that is another one than before.
    meter: Option<(String, u64)>,
    told: ToldQueue,
    is_closed: bool,
}

/// The next write; after a while without news, none.
struct Job {
    second: Option<Arc<Reading>>,
    meter: Option<(String, u64)>,
    told: ToldQueue,
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

    /// Announces that seconds from this time on are of another meter.
    pub(crate) fn set_meter(&self, name: String, since_ns: u64) {
        self.lock().meter = Some((name, since_ns));
        self.change.notify_one();
    }

    /// Hands events and tables over.
    pub(crate) fn push_told(&self, told: impl IntoIterator<Item = EventLine>) {
        let mut queue = self.lock();
        queue.told.extend(told);
        drop(queue);
        self.change.notify_one();
    }

    /// Announces that no second follows.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.change.notify_one();
    }

    /// Writes the history until the queue is closed and empty. `log` gets messages for the administrator.
    pub(crate) fn keep(&self, history: &mut History, log: &dyn Fn(&str)) {
        let subject = format!("history {}", history.path().display());
        let mut seconds = Faults::new(log, format!("{subject}: kept again"));
        let mut events = Faults::new(log, format!("{subject}: events are kept again"));
        let (mut waiting, mut failed_at, mut future) = (ToldQueue::default(), None, 0);
        while let Some(Job { second, meter, told }) = self.next() {
            waiting.append(told);
            if let Some((name, since_ns)) = meter {
                match history.set_meter(&name, since_ns) {
                    Ok(Some(before)) => log(&format!(
                        "{subject}: it was of the meter {before:?}; from now on it is of {name:?}"
                    )),
                    Ok(None) => {}
                    Err(error) => log(&error.to_string()),
                }
            }
            if let Some(reading) = second {
                let added = history.add(&reading, now_ns());
                seconds.tell(added, history.waiting() == 0);
            }
            // Events wait for no second. Those that failed are not tried with each: a try may wait for another program.
            if !waiting.told.is_empty() && failed_at.is_none_or(|at: Instant| at.elapsed() >= RETRY) {
                let written = waiting.write(|some| add(history, some, &mut future));
                failed_at = written.is_err().then(Instant::now);
                events.tell(written, true);
            }
        }
        let written = waiting.write(|some| add(history, some, &mut future));
        for error in [written.err(), history.finish().err()].into_iter().flatten() {
            log(&error.to_string());
        }
        for (count, why) in [(waiting.given_up, "found no room in memory"), (future, "were of the future")] {
            if count > 0 {
                log(&format!("{subject}: {count} events and tables of rules {why}: their own file has them"));
            }
        }
    }

    /// The next second and all events; `None` after the last.
    fn next(&self) -> Option<Job> {
        let is_idle = |queue: &mut Queue| {
            queue.seconds.is_empty()
                && queue.meter.is_none()
                && queue.told.told.is_empty()
                && !queue.is_closed
        };
        let waited = self.change.wait_timeout_while(self.lock(), RETRY, is_idle);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (meter, told) = (queue.meter.take(), std::mem::take(&mut queue.told));
        let job = Job { second: queue.seconds.pop_front(), meter, told };
        let is_last =
            queue.is_closed && job.second.is_none() && job.meter.is_none() && job.told.told.is_empty();
        (!is_last).then_some(job)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events and tables that wait, the oldest first.
#[derive(Debug, Default)]
struct ToldQueue {
    told: VecDeque<EventLine>,
    bytes: usize,
    /// Events that were dropped because the queue was full.
    given_up: u64,
}

impl ToldQueue {
    /// Adds some; the oldest give way.
    fn extend(&mut self, told: impl IntoIterator<Item = EventLine>) {
        for one in told {
            self.bytes += len(&one);
            self.told.push_back(one);
            while self.told.len() > TOLD_MAX || self.bytes > TOLD_BYTES_MAX {
                self.pop();
                self.given_up += 1;
            }
        }
    }

    /// Adds those of a queue.
    fn append(&mut self, queue: ToldQueue) {
        self.given_up += queue.given_up;
        self.extend(queue.told);
    }

    fn pop(&mut self) {
        let oldest = self.told.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, len);
    }

    /// Writes them, the oldest first; those of a write that failed stay, and those behind them.
    fn write(&mut self, mut add: impl FnMut(&[EventLine]) -> Result<(), Error>) -> Result<(), Error> {
        while !self.told.is_empty() {
            let count = self.of_a_transaction();
            add(&self.told.make_contiguous()[..count])?;
            (0..count).for_each(|_| self.pop());
        }
        Ok(())
    }

    /// Number of events in a transaction: at least one.
    fn of_a_transaction(&self) -> usize {
        let mut bytes = 0;
        let fitting = self.told.iter().take(TRANSACTION_MAX).take_while(|one| {
            bytes += len(one);
            bytes <= TRANSACTION_BYTES_MAX
        });
        fitting.count().max(1)
    }
}

/// The bytes that one takes in memory.
fn len(told: &EventLine) -> usize {
    let text = |text: &String| size_of::<String>() + text.len();
    let texts = |texts: &Vec<String>| size_of::<Vec<String>>() + texts.iter().map(text).sum::<usize>();
    let len = match told {
        EventLine::Event(WatchEvent { rule, kind, text: message, recording, .. }) => {
            [rule, kind, message].into_iter().chain(recording).map(text).sum::<usize>()
        }
        EventLine::Table(RecorderTable { recorder, kind, columns, rows, .. }) => {
            text(recorder) + text(kind) + texts(columns) + rows.iter().map(texts).sum::<usize>()
        }
    };
    size_of::<EventLine>() + len
}

/// Adds events and tables to a history, and counts those of the future.
fn add(history: &mut History, told: &[EventLine], future: &mut u64) -> Result<(), Error> {
    *future += history.add_told(told, now_ns())?;
    Ok(())
}

/// Reports of failed writes of one kind to the administrator.
struct Faults<'a> {
    log: &'a dyn Fn(&str),
    begin: Instant,
    complaint: Complaint,
    /// The line that says that they are over.
    over: String,
}

impl Faults<'_> {
    fn new(log: &dyn Fn(&str), over: String) -> Faults<'_> {
        Faults { log, begin: Instant::now(), complaint: Complaint::default(), over }
    }

    /// Reports a write: that it failed, or that all is written again.
    fn tell(&mut self, written: Result<(), Error>, is_all: bool) {
        match written {
            Err(error) if self.complaint.is_due(&error, self.begin.elapsed()) => {
                (self.log)(&error.to_string())
            }
            Ok(()) if is_all && self.complaint.end() => (self.log)(&self.over),
            _ => {}
        }
    }
}

/// The wall clock, in nanoseconds since 1970 UTC.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tapline_view::{Amount, Dimension, Key, Row, Second, Table};

    use super::*;
    use crate::history::HistoryLimits;

    fn event(time_ns: i64) -> EventLine {
        let (rule, kind) = ("a".to_owned(), "seen".to_owned());
        EventLine::Event(WatchEvent {
            time_ns,
            rule,
            kind,
            text: String::new(),
            swallowed: 0,
            recording: None,
        })
    }

    /// A table with a row of `bytes` bytes.
    fn table(to_ns: i64, bytes: usize) -> EventLine {
        EventLine::Table(RecorderTable {
            recorder: "a".to_owned(),
            kind: "list".to_owned(),
            from_ns: to_ns - 1,
            to_ns,
            columns: vec!["key".to_owned()],
            rows: vec![vec!["x".repeat(bytes)]],
        })
    }

    #[test]
    fn waiting_events_are_bounded() {
        let keeper = Keeper::default();
        keeper.push_told((0..12_000).map(event));
        let told = std::mem::take(&mut keeper.lock().told);
        assert_eq!((told.told.len(), told.given_up), (TOLD_MAX, 2000));
        assert_eq!(told.told.front(), Some(&event(2000)), "the oldest gave way");
        keeper.push_told((0..100).map(|at| table(at, 256 << 10)));
        let mut waiting = ToldQueue::default();
        waiting.append(told);
        waiting.append(std::mem::take(&mut keeper.lock().told));
        let tables = waiting.told.iter().filter(|one| matches!(one, EventLine::Table(_))).count();
        assert_eq!(tables, 31, "8 MiB, but for what they take beside their texts");
        assert_eq!(waiting.told.len() as u64 + waiting.given_up, 12_000 + 100);
        assert!(waiting.bytes <= TOLD_BYTES_MAX && waiting.told.back() == Some(&table(99, 256 << 10)));
        assert_eq!(waiting.bytes, waiting.told.iter().map(len).sum::<usize>());
        let empty = EventLine::Table(RecorderTable {
            recorder: String::new(),
            kind: String::new(),
            from_ns: 0,
            to_ns: 0,
            columns: Vec::new(),
            rows: vec![vec![String::new(); 16]; 100],
        });
        assert!(len(&empty) > 1600 * size_of::<String>(), "texts without letters take room, too");
    }

    #[test]
    fn transactions_are_small_and_what_failed_stays() {
        let mut waiting = ToldQueue::default();
        waiting.extend((0..600).map(event).chain((0..10).map(|at| table(at, 300 << 10))));
        let all: Vec<EventLine> = waiting.told.iter().cloned().collect();
        let (mut sizes, mut written) = (Vec::new(), Vec::new());
        let failed = waiting.write(|some| {
            sizes.push(some.len());
            if sizes.len() == 2 {
                return Err(Error::Future { path: "history".into() });
            }
            written.extend_from_slice(some);
            Ok(())
        });
        assert!(failed.is_err() && waiting.told.len() == 610 - TRANSACTION_MAX);
        waiting
            .write(|some| {
                sizes.push(some.len());
                written.extend_from_slice(some);
                Ok(())
            })
            .expect("it is written");
        assert_eq!(sizes, [256, 256, 256, 91, 3, 3, 1]);
        assert!(written == all && waiting.bytes == 0, "each once, in their order");
    }

    /// A fault of the file that is over by the end, and no meter whose seconds would be written.
    #[test]
    fn events_that_failed_are_written_by_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let mut history = History::open(&path, HistoryLimits::default()).expect("a history");
        let other = rusqlite::Connection::open(&path).expect("the file");
        let fault = "CREATE TRIGGER fault BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'a fault'); END";
        other.execute_batch(fault).expect("a trigger");
        let keeper = Keeper::default();
        keeper.push_told((0..3).map(event));
        keeper.close();
        let log = RefCell::new(Vec::new());
        keeper.keep(&mut history, &|line| {
            log.borrow_mut().push(line.to_owned());
            other.execute_batch("DROP TRIGGER fault").expect("it goes");
        });
        assert_eq!(log.borrow().len(), 1, "{log:?}");
        assert!(log.borrow()[0].contains("a fault"), "{log:?}");
        let (events, _) = history.told_between(0, 3, (10, 10)).expect("an answer");
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn a_history_knows_whose_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let keep = |name: &str, since_ns: u64| {
            let mut history = History::open(&path, HistoryLimits::default()).expect("a history");
            let (keeper, log) = (Keeper::default(), RefCell::new(Vec::new()));
            keeper.set_meter(name.to_owned(), since_ns);
            keeper.close();
            keeper.keep(&mut history, &|line| log.borrow_mut().push(line.to_owned()));
            assert_eq!(history.meter().as_deref(), Some(name));
            log.into_inner()
        };
        assert_eq!(keep("probe eth0", 1), Vec::<String>::new());
        assert_eq!(keep("probe eth0", 2), Vec::<String>::new());
        let told = keep("probe lo", 3);
        assert!(
            told.len() == 1 && told[0].contains("probe eth0") && told[0].contains("probe lo"),
            "{told:?}"
        );
    }

    #[test]
    fn events_wait_for_no_second_that_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let mut history = History::open(&path, HistoryLimits::default()).expect("a history");
        let keeper = Keeper::default();
        let second = Second { end_ns: u64::MAX, len_ns: 1, ..Second::default() };
        let tables = std::array::from_fn(|_| Table::default());
        keeper.push(Arc::new(Reading { number: 0, second, tables }));
        keeper.push_told([event(1), event(i64::MAX)]);
        keeper.close();
        let log = RefCell::new(Vec::new());
        keeper.keep(&mut history, &|line| log.borrow_mut().push(line.to_owned()));
        let (events, _) = history.told_between(0, i64::MAX, (10, 10)).expect("an answer");
        assert_eq!(events.len(), 1);
        let log = log.borrow();
        assert_eq!(log.len(), 2, "the second, and the event of the future: {log:?}");
        assert!(log[1].contains("1 events and tables of rules were of the future"), "{log:?}");
    }

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
