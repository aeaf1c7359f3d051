//! The contents of the pages: the last seconds of one meter, read once a second.
//!
//! ```text
//! PID.view --copy----> the last second, with its tables ---------------+--> Snapshot, and the seconds for a history
//!          --ring----> seconds that were missed meanwhile: totals -----'    all packets of these are among the others
//! ```

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tapline_meters::{Activity, RunFolder, activities};
use tapline_view::{Amount, Dimension, Process, Reader, Reading, SECONDS, Second, Table, TableSum};

use crate::names::HostNames;

/// Seconds whose tables are kept.
pub const WINDOW_MAX: usize = 60;
/// Seconds whose totals are kept for charts.
pub const SECONDS_MAX: usize = 600;

/// The knowledge about a meter at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The meter; `None` if none runs.
    pub process: Option<Process>,
    /// Whether it still runs.
    pub is_alive: bool,
    /// Number of running meters that we may read.
    pub processes: usize,
    /// The names of others that run, while the meter has ended and is waited for.
    pub others: Vec<String>,
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
    /// Names of hosts since the meter was first read.
    pub(crate) names: Arc<Mutex<HostNames>>,
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

    /// Addresses of the host of the meter.
    pub fn own(&self) -> &[IpAddr] {
        self.process.as_ref().map_or(&[], |process| &process.own)
    }

    /// Names of hosts.
    pub fn names(&self) -> MutexGuard<'_, HostNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last readings.
    pub fn last(&self, seconds: usize) -> impl Iterator<Item = &Arc<Reading>> {
        self.readings.iter().skip(self.readings.len().saturating_sub(seconds))
    }
}

/// A second of which the totals alone are known: in each table all packets are among the others, and any key may have
/// had them.
pub fn second_without_rows(number: u64, second: Second) -> Reading {
    let all = Amount { packets: second.metered, bytes: second.flow_bytes };
    let table = || Table { others: all, missing: all, ..Table::default() };
    Reading { number, second, tables: std::array::from_fn(|_| table()) }
}

/// The reader of the files.
#[derive(Debug)]
pub struct Feed {
    /// The folder of the meters; `None` for those of this system.
    folder: Option<RunFolder>,
    /// The requested process; `None` for any.
    pid: Option<u32>,
    /// The name of the requested meter; `None` for any.
    name: Option<String>,
    /// The name of the meter that is taken first, if it runs.
    preferred: Option<String>,
    open: Option<Open>,
    /// Meters that ran at the same time when ours was last seen.
    beside: HashSet<(PathBuf, u64)>,
    snapshot: Snapshot,
}

#[derive(Debug)]
struct Open {
    view: Reader,
    meters: Option<tapline_meters::Reader>,
    before: Vec<tapline_meters::Snapshot>,
    /// The next second.
    next: u64,
    /// Whether a second was read with its tables: from then on none is to be missed.
    has_read: bool,
    read: Instant,
}

impl Feed {
    /// Nothing read yet. `pid` names the process; `None` takes the one that began last.
    pub fn new(pid: Option<u32>) -> Feed {
        Feed {
            folder: None,
            pid,
            name: None,
            preferred: None,
            open: None,
            beside: HashSet::new(),
            snapshot: Snapshot::default(),
        }
    }

    /// A feed of the meters in one folder.
    pub fn of_folder(folder: RunFolder) -> Feed {
        Feed { folder: Some(folder), ..Feed::new(None) }
    }

    /// Follows the meter of this name alone.
    #[must_use]
    pub fn named(self, name: Option<&str>) -> Feed {
        Feed { name: name.map(str::to_owned), ..self }
    }

    /// Takes the meter of this name first, if it runs.
    pub fn prefer(&mut self, name: Option<String>) {
        self.preferred = name;
    }

    /// View files that this user has no right to read: those of meters of other users.
    pub fn refused() -> Vec<PathBuf> {
        Reader::refused()
    }

    /// Reads the file. Returns the new seconds, in their order, for the history: the last one with its tables, those
    /// that were missed since the read before by their totals alone. The file has an hour of these.
    pub fn read(&mut self) -> Vec<Arc<Reading>> {
        self.follow();
        let Some(open) = &mut self.open else {
            self.snapshot.is_alive = false;
            return Vec::new();
        };
        let snapshot = &mut self.snapshot;
        snapshot.is_alive = open.view.is_alive();
        let mut fresh = Vec::new();
        // A second is half a megabyte, and most reads find none.
        if open.view.published().is_ok_and(|count| count > open.next)
            && let Ok(Some(reading)) = open.view.last()
            && reading.number >= open.next
        {
            let mut seconds = open.view.seconds(open.next, SECONDS).unwrap_or_default();
            seconds.retain(|(number, _)| *number <= reading.number);
            if open.has_read {
                let missed = seconds.iter().filter(|(number, _)| *number < reading.number);
                fresh.extend(missed.map(|(number, second)| Arc::new(second_without_rows(*number, *second))));
            }
            snapshot.seconds.extend(seconds);
            (open.next, open.has_read) = (reading.number + 1, true);
            if open.view.refresh().is_ok() {
                snapshot.process = Some(open.view.process().clone());
            }
            for hosts in [Dimension::HostIn, Dimension::HostOut] {
                snapshot.names().learn_answers(reading.table(hosts));
            }
            snapshot.names().learn(reading.table(Dimension::Flow));
            fresh.push(Arc::new(reading));
            snapshot.readings.extend(fresh.iter().cloned());
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

    /// The present knowledge.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Follows a meter as long as it runs. Then it waits for one of the same name that did not run at the same time:
    /// that is the same one after a restart. Another meter is not followed, since its packets are not a continuation
    /// of these.
    fn follow(&mut self) {
        let mut running = match &self.folder {
            Some(folder) => Reader::list_in(folder),
            None => Reader::list(),
        };
        running.retain(|process| self.pid.is_none_or(|pid| pid == process.pid));
        running.retain(|process| self.name.as_ref().is_none_or(|name| *name == process.name()));
        running.sort_by_key(|process| process.created_ns);
        self.snapshot.processes = running.len();
        let key = |process: &Process| (process.path.clone(), process.created_ns);
        let ours = self.open.as_ref().map(|open| key(open.view.process()));
        if running.iter().any(|process| Some(key(process)) == ours) {
            self.beside = running.iter().map(key).filter(|other| Some(other) != ours.as_ref()).collect();
            self.snapshot.others.clear();
            return;
        }
        let name = self.open.as_ref().map(|open| open.view.process().name());
        let is_same = |process: &&Process| match &name {
            Some(name) => process.name() == *name && !self.beside.contains(&key(process)),
            None => true,
        };
        let is_preferred = |process: &&Process| self.preferred.as_ref() == Some(&process.name());
        let same = || running.iter().rev().filter(is_same);
        let Some(newest) = same().find(is_preferred).or_else(|| same().next()) else {
            self.snapshot.others = running.iter().map(Process::name).collect();
            return;
        };
        let Ok(view) = Reader::open(&newest.path) else { return };
        // Views of one process share its meters.
        let meters = newest.path.with_file_name(format!("{}.meters", newest.pid));
        let next = view.published().unwrap_or(0).saturating_sub(SECONDS_MAX as u64);
        self.snapshot = Snapshot {
            process: Some(view.process().clone()),
            processes: running.len(),
            ..Snapshot::default()
        };
        let meters = tapline_meters::Reader::open(&meters).ok();
        self.beside = running.iter().filter(|process| process.path != newest.path).map(key).collect();
        let (before, read) = (Vec::new(), Instant::now());
        self.open = Some(Open { view, meters, before, next, has_read: false, read });
    }
}

#[cfg(test)]
mod tests {
    use tapline_view::{Row, Tables, ViewFile};

    use super::*;

    /// A second of `packets` packets, all of one host.
    fn second(packets: u64) -> (Second, Tables) {
        let amount = Amount { packets, bytes: 100 * packets };
        let table = Table { rows: vec![Row { amount, ..Row::default() }], ..Table::default() };
        let second =
            Second { metered: packets, flow_bytes: 100 * packets, lost_ring: 1, ..Second::default() };
        (second, std::array::from_fn(|_| table.clone()))
    }

    /// A meter that restarts is the same one; neither another one nor its running twin is.
    #[test]
    fn a_meter_is_waited_for_and_no_other_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = RunFolder::of(folder.path());
        let begin = |title: &str| {
            let view = ViewFile::create_in(&place, title).expect("a view");
            let worker = view.join();
            let (second, tables) = second(1);
            view.contribute(worker, &second, &tables);
            view
        };
        let _other = begin("probe -i lo --view");
        let _twin = begin("probe -i eth0 --view");
        let ours = begin("probe -i eth0 --view");
        let path = ours.path().expect("a file").to_owned();
        let mut feed = Feed::of_folder(place.clone());
        feed.prefer(Some("probe eth0".to_owned()));
        let path_of = |feed: &Feed| feed.snapshot().process.map(|process| process.path);
        assert_eq!((feed.read().len(), path_of(&feed)), (1, Some(path.clone())));
        drop(ours);
        for _ in 0..3 {
            assert!(feed.read().is_empty());
            let snapshot = feed.snapshot();
            assert_eq!((snapshot.is_alive, snapshot.others.len()), (false, 2));
            assert_eq!(path_of(&feed), Some(path.clone()));
        }
        let _another = begin("capture -i eth1 --view");
        assert!(feed.read().is_empty() && !feed.snapshot().is_alive);
        let again = begin("probe -i eth0 --top 5 --view");
        assert_eq!((feed.read().len(), path_of(&feed)), (1, again.path().map(std::path::Path::to_owned)));
        assert!(feed.snapshot().is_alive && feed.snapshot().others.is_empty());
    }

    #[test]
    fn seconds_that_were_missed_are_among_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = RunFolder::of(folder.path());
        let view = ViewFile::create_in(&place, "probe").expect("a view");
        let worker = view.join();
        let publish = |packets: u64| {
            let (second, tables) = second(packets);
            view.contribute(worker, &second, &tables);
        };
        let mut feed = Feed::of_folder(place);
        publish(1);
        publish(2);
        let first = feed.read();
        assert_eq!(
            first.iter().map(|reading| reading.number).collect::<Vec<_>>(),
            [1],
            "those before are past"
        );
        (3..=700).for_each(publish);
        let fresh = feed.read();
        assert_eq!(
            fresh.iter().map(|reading| reading.number).collect::<Vec<_>>(),
            (2..700).collect::<Vec<_>>()
        );
        for reading in &fresh {
            let Second { metered, flow_bytes, lost_ring, .. } = reading.second;
            assert_eq!((metered, lost_ring), (reading.number + 1, 1));
            for table in &reading.tables {
                assert_eq!(table.sum(), Amount { packets: metered, bytes: flow_bytes }, "tables add up");
            }
        }
        let window = feed.snapshot().window(Dimension::HostIn, 10);
        let missed = (691..=699).sum::<u64>();
        assert_eq!((window.rows[0].amount.packets, window.rows[0].error.packets), (700, missed));
        assert_eq!((window.others.packets, window.missing.packets), (missed, missed));
        assert_eq!(feed.snapshot().totals(10).metered, 700 + missed);
        assert!(feed.read().is_empty());
    }
}
