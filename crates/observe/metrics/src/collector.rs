//! Collects samples on request.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapline_meters::{Process, Reader, meter_name};
use tapline_tap_client::Client;

use crate::daemon;
use crate::exposition::Exposition;
use crate::process;

/// Longest wait for each answer of the daemon. A daemon that is stopped costs this at each scrape, and no more.
const DAEMON_PATIENCE: Duration = Duration::from_millis(200);

/// Processes of which there are samples. The folders of meters are writable for every user whose folder it is.
const PROCESSES_MAX: usize = 64;

/// Reads the meters of all processes that this user may read, and asks the daemon.
#[derive(Clone, Debug)]
pub struct Collector {
    socket: PathBuf,
    version: &'static str,
    labels: Arc<Mutex<MeterLabels>>,
}

/// The labels of the meters that run. A meter keeps its label as long as it runs; of several with one name the
/// further ones get a number, the least that is free. So a meter that restarts continues its series.
#[derive(Debug, Default)]
struct MeterLabels(HashMap<(PathBuf, u64), String>);

impl MeterLabels {
    /// Assigns labels to the processes, in their order, and forgets those of others.
    fn follow(&mut self, running: &[Process]) {
        let key = |process: &Process| (process.path.clone(), process.created_ns);
        let keys: HashSet<_> = running.iter().map(key).collect();
        self.0.retain(|known, _| keys.contains(known));
        for process in running {
            if self.0.contains_key(&key(process)) {
                continue;
            }
            let name = meter_name(&process.title);
            let numbered = (2..).map(|number| format!("{name}#{number}"));
            let is_free = |label: &String| !self.0.values().any(|taken| taken == label);
            let label = std::iter::once(name.clone()).chain(numbered).find(is_free);
            self.0.insert(key(process), label.unwrap_or(name));
        }
    }

    fn of(&self, process: &Process) -> &str {
        self.0.get(&(process.path.clone(), process.created_ns)).map_or("other", String::as_str)
    }
}

impl Collector {
    /// A collector that asks the daemon at `socket`; `version` is the program's.
    pub fn new(socket: &Path, version: &'static str) -> Collector {
        Collector { socket: socket.to_owned(), version, labels: Arc::default() }
    }

    /// The samples as they are now.
    pub fn collect(&self) -> Exposition {
        let start = Instant::now();
        let mut exposition = Exposition::new();
        exposition.count("tapline_build", &[self.version], 1);
        self.processes(&mut exposition);
        self.daemon(&mut exposition);
        exposition.number("tapline_scrape_duration_seconds", &[], start.elapsed().as_secs_f64());
        exposition
    }

    fn processes(&self, exposition: &mut Exposition) {
        let mut running = Reader::list();
        running.sort_by_key(|process| (process.created_ns, process.pid));
        let left_out = running.len().saturating_sub(PROCESSES_MAX);
        running.truncate(PROCESSES_MAX);
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        labels.follow(&running);
        let mut read = 0;
        for process in &running {
            // A file that is gone belongs to a process that has ended meanwhile.
            let Ok(reader) = Reader::open(&process.path) else { continue };
            let Ok(snapshots) = reader.snapshot() else { continue };
            read += 1;
            process::add(exposition, process, labels.of(process), &snapshots);
        }
        exposition.count("tapline_processes", &[], read);
        if left_out > 0 {
            exposition.count("tapline_left_out", &["processes"], left_out as u64);
        }
    }

    fn daemon(&self, exposition: &mut Exposition) {
        let program = format!("tapline metrics {}", self.version);
        match Client::status_within(&self.socket, &program, DAEMON_PATIENCE) {
            Ok(status) => daemon::add(exposition, &status),
            Err(_) if self.socket.exists() => exposition.count("tapline_daemon_up", &[], 0),
            // A host may have captures without a daemon.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, title: &str) -> Process {
        Process {
            path: format!("{pid}.meters").into(),
            pid,
            title: title.to_owned(),
            created_ns: pid.into(),
            clock: None,
            frequency_hz: 1,
            read_ticks: 1.0,
        }
    }

    #[test]
    fn restarted_meters_continue_their_series() {
        let mut labels = MeterLabels::default();
        let [a, b, other] =
            [process(1, "probe -i eth0"), process(2, "probe -i eth0"), process(3, "probe -i lo")];
        labels.follow(&[a.clone(), b.clone(), other.clone()]);
        assert_eq!([&a, &b, &other].map(|one| labels.of(one)), ["probe eth0", "probe eth0#2", "probe lo"]);
        let again = process(4, "probe -i eth0 --top 5");
        labels.follow(&[b.clone(), other, again.clone()]);
        assert_eq!([&b, &again].map(|one| labels.of(one)), ["probe eth0#2", "probe eth0"]);
    }
}
