//! Collecting samples when they are asked for.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tapline_profile::Reader;
use tapline_tap::Client;

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
}

impl Collector {
    /// A collector that asks the daemon at `socket`; `version` is the program's.
    pub fn new(socket: &Path, version: &'static str) -> Collector {
        Collector { socket: socket.to_owned(), version }
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
        let mut read = 0;
        for process in &running {
            // A file that is gone belongs to a process that has ended meanwhile.
            let Ok(reader) = Reader::open(&process.path) else { continue };
            let Ok(snapshots) = reader.snapshot() else { continue };
            read += 1;
            process::add(exposition, reader.process(), &snapshots);
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
