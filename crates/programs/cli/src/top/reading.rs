//! The meters of all processes, read again and again: what each stage did between two readings.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use tapline_meters::{Activity, Kind, Process, Reader, Snapshot, activities, merge_workers};
use tapline_sys::clock;

/// A reading at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The moment, in nanoseconds since 1970 UTC.
    pub(super) time_ns: i64,
    pub(super) processes: Vec<ProcessReport>,
}

/// One process, or one of several sets of meters that it has.
#[derive(Debug, Serialize)]
pub(super) struct ProcessReport {
    pub(super) pid: u32,
    pub(super) title: String,
    /// Time since its start.
    pub(super) uptime_ns: u64,
    /// Time since the earlier reading; `None` for the first.
    pub(super) interval_ns: Option<u64>,
    pub(super) frequency_hz: u64,
    pub(super) stages: Vec<Stage>,
    /// Packets of each interface, by place.
    pub(super) interfaces: Vec<Snapshot>,
}

/// A stage, with its rates.
#[derive(Debug, Serialize)]
pub(super) struct Stage {
    pub(super) packets_per_second: Option<f64>,
    pub(super) bits_per_second: Option<f64>,
    #[serde(flatten)]
    pub(super) activity: Activity,
}

/// The observed processes, with their last readings.
pub(super) struct Readings {
    pid: Option<u32>,
    known: Vec<KnownProcess>,
}

struct KnownProcess {
    path: PathBuf,
    created_ns: u64,
    reader: Reader,
    last: Option<(Instant, Vec<Snapshot>)>,
}

impl Readings {
    /// Readings of one process, or of all.
    pub(super) fn new(pid: Option<u32>) -> Readings {
        Readings { pid, known: Vec::new() }
    }

    /// Reads all that run now. What cannot be read has ended meanwhile, or is not for us.
    pub(super) fn read(&mut self) -> Report {
        self.find();
        let time_ns = clock::realtime_ns();
        let processes = self.known.iter_mut().filter_map(|known| known.read(time_ns)).collect();
        Report { time_ns, processes }
    }

    fn find(&mut self) {
        let mut running = Reader::list();
        running.retain(|process| self.pid.is_none_or(|pid| pid == process.pid));
        running.sort_by_key(|process| (process.created_ns, process.pid));
        let mut before = std::mem::take(&mut self.known);
        self.known = running
            .iter()
            .filter_map(|process| {
                let at = before.iter().position(|known| known.is(process));
                at.map(|at| before.swap_remove(at)).or_else(|| KnownProcess::open(process))
            })
            .collect();
    }
}

impl KnownProcess {
    fn open(process: &Process) -> Option<KnownProcess> {
        let reader = Reader::open(&process.path).ok()?;
        Some(KnownProcess { path: process.path.clone(), created_ns: process.created_ns, reader, last: None })
    }

    fn is(&self, process: &Process) -> bool {
        (&self.path, self.created_ns) == (&process.path, process.created_ns)
    }

    fn read(&mut self, time_ns: i64) -> Option<ProcessReport> {
        let (interfaces, now): (Vec<_>, Vec<_>) =
            self.reader.snapshot().ok()?.into_iter().partition(|one| one.kind == Kind::Interface);
        let moment = Instant::now();
        let interval = self.last.as_ref().map(|(last, _)| moment.duration_since(*last));
        let earlier = self.last.as_ref().map_or(&now, |(_, earlier)| earlier);
        let stages = activities(&now, earlier).into_iter().map(|one| Stage::new(one, interval)).collect();
        let process = self.reader.process();
        let report = ProcessReport {
            pid: process.pid,
            title: process.title.clone(),
            uptime_ns: time_ns.unsigned_abs().saturating_sub(process.created_ns),
            interval_ns: interval.map(|interval| interval.as_nanos() as u64),
            frequency_hz: process.frequency_hz,
            stages,
            interfaces: merge_workers(&interfaces),
        };
        self.last = Some((moment, now));
        Some(report)
    }
}

impl Stage {
    fn new(activity: Activity, interval: Option<Duration>) -> Stage {
        let per_second = |count: u64| {
            interval
                .filter(|interval| !interval.is_zero())
                .map(|interval| count as f64 / interval.as_secs_f64())
        };
        Stage {
            packets_per_second: per_second(activity.recent.packets_in),
            bits_per_second: per_second(activity.recent.bytes_in).map(|bytes| bytes * 8.0),
            activity,
        }
    }
}
