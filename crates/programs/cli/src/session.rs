//! A command that reads packets, from its first right to its end.
//!
//! ```text
//! Session::new --sources and outputs opened with all rights--> confine --rights given up--> obey: signals, --duration
//!   --> Workers::run: an engine a thread, watched by a Watcher --> Finished: account, results --> failure, exit status
//! ```

mod watcher;
mod workers;

pub(crate) use watcher::{Counters, RunningReport, Watcher};
pub(crate) use workers::{BuiltGraph, Finished, Outputs, WorkerGraph, Workers, share};

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use tapline_graph::{Control, RunEnd, RunReport};
use tapline_meters::Meters;
use tapline_packet::{ClockReading, Timestamp};
use tapline_source::Error;
use tapline_store::moments::learn_zone;
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::{AllowedAccess, MissingConfinement};

use crate::escape::plain_lines;
use crate::privileges;
use crate::signals::{self, CaughtSignals};

/// The user, the rights and the signals of a command, and its order to stop.
pub(crate) struct Session {
    pub(crate) control: Arc<Control>,
    /// The user that the process becomes once all is open; `None` for no change.
    pub(crate) identity: Option<Identity>,
    caught: Option<CaughtSignals>,
}

impl Session {
    /// A session that becomes the user of `-Z`, or the caller of sudo, and ends after `packets_max` packets.
    pub(crate) fn new(user: Option<&str>, packets_max: Option<u64>) -> Result<Session> {
        let control = Arc::new(Control::new(packets_max));
        Ok(Session { control, identity: privileges::identity(user)?, caught: None })
    }

    /// Catches signals from the first call on. Live captures call it before they open their interfaces, so that they
    /// end with their account from the first packet on. A file may keep us waiting for its writer: until it is open,
    /// Ctrl-C may end the program as it ends any other, and SIGTERM ends it also where it was called before.
    pub(crate) fn catch(&mut self) -> io::Result<()> {
        if self.caught.is_none() {
            self.caught = Some(signals::catch()?);
        }
        Ok(())
    }

    /// Allows the making of files in folders: to this process, or to the one that kept its rights (`sys::opener`).
    pub(crate) fn allow_files(&self, needs: &mut AllowedAccess, folders: impl IntoIterator<Item = PathBuf>) {
        if self.identity.is_some() { &mut needs.writes } else { &mut needs.makes }.extend(folders);
    }

    /// Gives up rights and confines the process, once all is open and before threads are made. `meters` is called as the
    /// new user. Returns the meters, and the features that the kernel lacks for the confinement.
    pub(crate) fn confine(
        &self,
        needs: AllowedAccess,
        meters: impl FnOnce() -> Meters,
    ) -> Result<(Meters, MissingConfinement)> {
        privileges::give_up(self.identity.as_ref())?;
        let meters = meters();
        // Later the zone's file can no longer be read.
        learn_zone();
        let lacks = privileges::confine(needs, &meters);
        Ok((meters, lacks))
    }

    /// Ends the run on signals, SIGHUP too, and after `duration`. It makes threads, so the process is confined before.
    pub(crate) fn obey(&mut self, duration: Option<Duration>) -> io::Result<()> {
        let control = Arc::clone(&self.control);
        self.obey_with(duration, move || control.stop())
    }

    /// As [`obey`](Self::obey), with another action on SIGHUP, unless the terminal is gone.
    pub(crate) fn obey_with(
        &mut self,
        duration: Option<Duration>,
        on_hangup: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        self.catch()?;
        if let Some(caught) = self.caught.take() {
            caught.obey(Arc::clone(&self.control), on_hangup)?;
        }
        if let Some(duration) = duration {
            let control = Arc::clone(&self.control);
            signals::start_thread("duration", move || {
                thread::sleep(duration);
                control.stop();
            })?;
        }
        Ok(())
    }

    /// Runs workers to their end, whose progress `watcher` shows.
    pub(crate) fn drive(&self, mut workers: Workers, watcher: &Watcher<'_>) -> Result<Finished> {
        let tell = |worker: usize, report: &RunReport<'_>| {
            watcher.tell(worker, report);
        };
        let finished = workers.run(&self.control, &tell);
        watcher.clear();
        finished
    }

    /// Prints the error that ended a run, and returns it. A reader of lines that has enough (`| head`) ends the work
    /// without one, if nothing else is written (`only_lines`). So does a pipe whose writer Ctrl-C ended, too.
    pub(crate) fn failure(&self, ended: &RunEnd, only_lines: bool) -> Option<String> {
        let RunEnd::Failed(error) = ended else { return None };
        match error {
            Error::BrokenPipe { .. } if only_lines => return None,
            Error::File(error) if self.control.is_stop_requested() && is_broken_pipe(&**error) => {
                return None;
            }
            _ => {}
        }
        let error = error.to_string();
        let _ = writeln!(io::stderr(), "tapline: {}", plain_lines(&error));
        Some(error)
    }
}

/// Whether a pipe ended within a packet, as it does when its writer is stopped, or its reader is. A file ends there
/// without anybody's order.
fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(tapline_file::Error::Truncated { is_file: false, .. }))
}

/// The wall clock.
pub(crate) fn clock() -> Timestamp {
    Timestamp::from_nanos(tapline_sys::clock::realtime_ns())
}

/// Both clocks, which the engine reads once a batch.
pub(crate) fn clocks() -> ClockReading {
    ClockReading {
        wall: clock(),
        steady_ns: i64::try_from(tapline_sys::clock::monotonic_ns()).unwrap_or(i64::MAX),
    }
}

/// The title of this process for others: its command line.
pub(crate) fn title() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// One line of live counters on standard error, which is written over.
#[derive(Default)]
pub(crate) struct CounterLine {
    /// The time of the last line by the steady clock, and its packets.
    last: Option<(i64, u64)>,
    is_shown: bool,
}

impl CounterLine {
    /// Packets per second since the last call; 0 at the first.
    pub(crate) fn rate(&mut self, steady_ns: i64, packets: u64) -> u64 {
        let (then, before) = self.last.replace((steady_ns, packets)).unwrap_or((steady_ns, packets));
        let seconds = steady_ns.saturating_sub(then).max(1) as f64 / 1e9;
        (packets.saturating_sub(before) as f64 / seconds) as u64
    }

    /// Shows `counters` behind the share that is done, if the whole is known. Without a terminal each call is a line.
    pub(crate) fn show(&mut self, progress: Option<(u64, u64)>, counters: &str) {
        let share = match progress {
            Some((done, all @ 1..)) => {
                format!("{:3} %  ", (u128::from(done) * 100 / u128::from(all)).min(100))
            }
            _ => String::new(),
        };
        self.is_shown = io::stderr().is_terminal();
        let (start, end) = if self.is_shown { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(io::stderr(), "{start}{share}{counters}{end}");
    }

    /// Wipes the line before something else is printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::OwnedFd;

    use tapline_file::{FileInput, FileSource};

    use super::*;

    #[test]
    fn a_rate_is_that_since_the_last_line() {
        let mut line = CounterLine::default();
        let calls = [(5, 1000), (5 + 2_000_000_000, 3000), (5 + 2_500_000_000, 3000), (4, 9)];
        assert_eq!(calls.map(|(steady_ns, packets)| line.rate(steady_ns, packets)), [0, 1000, 0, 0]);
    }

    #[test]
    fn a_run_fails_unless_its_reader_or_its_user_ended_it() {
        let control = Arc::new(Control::new(None));
        let session = Session { control: Arc::clone(&control), identity: None, caught: None };
        let has_failed = |ended: &RunEnd, only_lines| session.failure(ended, only_lines).is_some();
        let cut =
            |file: Result<FileSource, Error>| RunEnd::Failed(file.err().expect("a head that is not whole"));
        let head = [0xd4, 0xc3, 0xb2, 0xa1, 2];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.pcap");
        fs::write(&path, head).unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&head).unwrap();
        drop(writer);
        let pipe = cut(FileInput::open_handle(File::from(OwnedFd::from(reader)), "standard input"));
        let files = [
            cut(FileInput::open_file(&path)),
            cut(FileInput::open_handle(File::open(&path).unwrap(), "standard input")),
        ];
        // Its name says nothing any more.
        fs::remove_file(&path).unwrap();
        let broken = RunEnd::Failed(Error::BrokenPipe { what: "standard output".to_owned() });
        assert!(!has_failed(&RunEnd::Source, false) && !has_failed(&RunEnd::Stopped, false));
        assert!(has_failed(&broken, false) && !has_failed(&broken, true));
        assert!(has_failed(&pipe, true), "nobody stopped its writer");
        control.stop();
        assert!(!has_failed(&pipe, true), "Ctrl-C ended its writer, too");
        assert!(files.iter().all(|file| has_failed(file, true)), "they were cut before");
    }
}
