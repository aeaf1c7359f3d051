//! What the pages show: the last seconds of one meter, read once a second.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tapline_profile::{Activity, activities};
use tapline_view::{Dimension, Process, Reader, Reading, Second, Table, TableSum};

/// Seconds whose tables are kept.
pub const WINDOW_MAX: usize = 60;
/// Seconds whose totals are kept for charts.
pub const SECONDS_MAX: usize = 600;

/// What is known of a meter at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The meter; `None` if none runs.
    pub process: Option<Process>,
    /// Whether it still runs.
    pub is_alive: bool,
    /// How many meters run that we may read.
    pub processes: usize,
    /// The last seconds with their tables, the latest last; at most [`WINDOW_MAX`].
    pub readings: VecDeque<Arc<Reading>>,
    /// The totals of the last seconds, the latest last.
    pub seconds: VecDeque<(u64, Second)>,
    /// Work of the stages between the last two seconds.
    pub stages: Arc<Vec<Activity>>,
    /// The time between these, in seconds.
    pub stages_s: f64,
    /// Ticks of the clock of the stages in a second.
    pub frequency_hz: u64,
}

impl Snapshot {
    /// The table of a dimension over the last `seconds`, and the totals of these.
    pub fn window(&self, dimension: Dimension, seconds: usize) -> Table {
        let mut sum = TableSum::default();
        self.last(seconds).for_each(|reading| sum.append(reading.table(dimension)));
        sum.finish(tapline_view::ROWS_MAX)
    }

    /// Totals of the last `seconds`, as far as their tables are kept.
    pub fn totals(&self, seconds: usize) -> Second {
        self.last(seconds).fold(Second::default(), |mut sum, reading| {
            sum.append(&reading.second);
            sum
        })
    }

    /// The last readings.
    pub fn last(&self, seconds: usize) -> impl Iterator<Item = &Arc<Reading>> {
        self.readings.iter().skip(self.readings.len().saturating_sub(seconds))
    }
}

/// The reader of the files.
#[derive(Debug)]
pub struct Feed {
    /// The process that was asked for; `None` for the one that began last.
    pid: Option<u32>,
    open: Option<Open>,
    snapshot: Snapshot,
}

#[derive(Debug)]
struct Open {
    view: Reader,
    meters: Option<tapline_profile::Reader>,
    before: Vec<tapline_profile::Snapshot>,
    /// The next second.
    next: u64,
    read: Instant,
}

impl Feed {
    /// Nothing read yet. `pid` names the process; `None` takes the one that began last.
    pub fn new(pid: Option<u32>) -> Feed {
        Feed { pid, open: None, snapshot: Snapshot::default() }
    }

    /// View files that this user has no right to read: those of meters of other users.
    pub fn refused() -> Vec<PathBuf> {
        Reader::refused()
    }

    /// Reads what is new. Returns the seconds that came with their tables, for the history.
    pub fn read(&mut self) -> Vec<Arc<Reading>> {
        self.follow();
        let Some(open) = &mut self.open else {
            self.snapshot.is_alive = false;
            return Vec::new();
        };
        let snapshot = &mut self.snapshot;
        snapshot.is_alive = open.view.is_alive();
        let mut fresh = Vec::new();
        if let Ok(Some(reading)) = open.view.last()
            && reading.number >= open.next
        {
            if let Ok(seconds) = open.view.seconds(open.next, SECONDS_MAX) {
                snapshot.seconds.extend(seconds.into_iter().filter(|(number, _)| *number <= reading.number));
            }
            open.next = reading.number + 1;
            if open.view.refresh().is_ok() {
                snapshot.process = Some(open.view.process().clone());
            }
            let reading = Arc::new(reading);
            snapshot.readings.push_back(Arc::clone(&reading));
            fresh.push(reading);
        }
        while snapshot.seconds.len() > SECONDS_MAX {
            snapshot.seconds.pop_front();
        }
        while snapshot.readings.len() > WINDOW_MAX {
            snapshot.readings.pop_front();
        }
        if !fresh.is_empty()
            && let Some(meters) = &open.meters
            && let Ok(now) = meters.snapshot()
        {
            let earlier = if open.before.is_empty() { &now } else { &open.before };
            snapshot.stages = Arc::new(activities(&now, earlier));
            snapshot.frequency_hz = meters.process().frequency_hz;
            snapshot.stages_s = open.read.elapsed().as_secs_f64();
            open.before = now;
            open.read = Instant::now();
        }
        fresh
    }

    /// What is known now.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Stays with a meter as long as it runs; then with the one that began last.
    fn follow(&mut self) {
        let mut running = Reader::list();
        running.retain(|process| self.pid.is_none_or(|pid| pid == process.pid));
        running.sort_by_key(|process| process.created_ns);
        self.snapshot.processes = running.len();
        let stays = self.open.as_ref().is_some_and(|open| {
            let here = open.view.process();
            running.iter().any(|process| process.path == here.path && process.created_ns == here.created_ns)
        });
        if stays {
            return;
        }
        let Some(newest) = running.last() else { return };
        let Ok(view) = Reader::open(&newest.path) else { return };
        // Views of one process share its meters.
        let meters = newest.path.with_file_name(format!("{}.meters", newest.pid));
        let next = view.published().unwrap_or(0).saturating_sub(SECONDS_MAX as u64);
        self.snapshot = Snapshot {
            process: Some(view.process().clone()),
            processes: running.len(),
            ..Snapshot::default()
        };
        let meters = tapline_profile::Reader::open(&meters).ok();
        self.open = Some(Open { view, meters, before: Vec::new(), next, read: Instant::now() });
    }
}
