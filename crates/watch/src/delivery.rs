//! What follows events outside of this program: commands and webhooks, each with a queue that never makes packets wait.
//!
//! ```text
//! event --try_send--> queue of 64 --thread--> the program, one after the other; its standard input is the event
//!            | full: counted, not waited for
//! event --try_send--> queue of 256 --thread--> POST, three tries --no--> spool: lines in a file, sent later
//!
//! the end: END_TIME for all; then the running command is killed, those that wait are not started, calls are spooled
//! ```

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tapline_sys::Memfd;

use crate::event::Event;

/// The time that commands and webhooks have together at the end of a run.
pub const END_TIME: Duration = Duration::from_secs(30);

/// Commands that wait.
const COMMANDS_MAX: usize = 64;
/// The longest time that a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// Interval at which it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Counters of what left this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Done: commands that ended well, webhooks that were answered.
    pub done: u64,
    /// Failed: commands that ended badly or took too long, or for which the end had no time; webhooks that found no
    /// place in the spool.
    pub failed: u64,
    /// Refused, as the queue was full.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// The end of a run, as its threads see it.
#[derive(Debug, Default)]
pub(crate) struct Ending(OnceLock<Instant>);

impl Ending {
    pub(crate) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// The time that is left for something that may take `most`.
    pub(crate) fn left(&self, most: Duration) -> Duration {
        self.0.get().map_or(most, |end| end.saturating_duration_since(Instant::now()).min(most))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left(Duration::MAX).is_zero()
    }
}

/// A queue, and the thread that works it off.
pub(crate) struct Worker<T> {
    sender: Option<SyncSender<T>>,
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
    ending: Arc<Ending>,
    refused: u64,
}

impl<T: Send + 'static> Worker<T> {
    /// A thread that gets the jobs of a queue of this length.
    pub(crate) fn start(
        name: &str,
        len: usize,
        work: impl FnOnce(Receiver<T>, Arc<Tally>, Arc<Ending>) + Send + 'static,
    ) -> io::Result<Worker<T>> {
        let (sender, receiver) = sync_channel(len);
        let (tally, ending) = (Arc::new(Tally::default()), Arc::new(Ending::default()));
        let theirs = (Arc::clone(&tally), Arc::clone(&ending));
        let work = move || work(receiver, theirs.0, theirs.1);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Worker { sender: Some(sender), thread: Some(thread), tally, ending, refused: 0 })
    }

    pub(crate) fn offer(&mut self, job: T) {
        let refused = match self.sender.as_ref().map(|sender| sender.try_send(job)) {
            Some(Ok(())) => 0,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => 1,
        };
        self.refused += refused;
    }

    /// No more jobs come, and the thread has until `end` for those that wait.
    pub(crate) fn end_by(&mut self, end: Instant) {
        let _ = self.ending.0.set(end);
        self.sender = None;
    }

    /// Waits for the thread, which was told when to end.
    pub(crate) fn finish(&mut self) {
        debug_assert!(self.ending.has_begun(), "the thread would wait for jobs");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    pub(crate) fn counts(&self) -> DeliveryCounts {
        DeliveryCounts {
            done: self.tally.done.load(Ordering::Relaxed),
            failed: self.tally.failed.load(Ordering::Relaxed),
            refused: self.refused,
        }
    }
}

struct CommandJob {
    words: Vec<String>,
    rule: String,
    kind: &'static str,
    line: String,
}

/// Commands of events.
pub struct Commands(Worker<CommandJob>);

impl Commands {
    /// The thread that starts commands.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start() -> io::Result<Commands> {
        Worker::start("commands", COMMANDS_MAX, work).map(Commands)
    }

    /// Has a command started for an event, unless too many wait.
    pub fn offer(&mut self, words: &[String], event: &Event) {
        let line = event.to_json().to_string() + "\n";
        let (rule, kind) = (event.name.clone(), event.kind.name());
        self.0.offer(CommandJob { words: words.to_vec(), rule, kind, line });
    }

    /// Has the commands that are due started and ended before `end`.
    pub fn end_by(&mut self, end: Instant) {
        self.0.end_by(end);
    }

    /// Waits for the commands that are due, after [`end_by`](Self::end_by).
    pub fn finish(&mut self) {
        self.0.finish();
    }

    /// Counters.
    pub fn counts(&self) -> DeliveryCounts {
        self.0.counts()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the thread owns its end of the queue")]
fn work(jobs: Receiver<CommandJob>, tally: Arc<Tally>, ending: Arc<Ending>) {
    let mut not_started = 0;
    for job in jobs.iter() {
        let has_time = !ending.is_over();
        not_started += u64::from(!has_time);
        let counter = if has_time && run(&job, &ending) { &tally.done } else { &tally.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    if not_started > 0 {
        let _ = writeln!(io::stderr(), "tapline: the end had no time for {not_started} commands");
    }
}

/// An event as a file in memory. A command that does not read it keeps nothing waiting, as a pipe would.
fn input(line: &str) -> io::Result<Stdio> {
    let memory = Memfd::create(c"event", line.len() as u64).map_err(io::Error::other)?;
    let mut file = File::from(OwnedFd::from(memory));
    file.write_all(line.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Starts a command and waits for it. Whether it ended well.
fn run(job: &CommandJob, ending: &Ending) -> bool {
    let Some((program, arguments)) = job.words.split_first() else { return false };
    let child = input(&job.line).and_then(|input| {
        let mut command = Command::new(program);
        command.args(arguments).env("TAPLINE_RULE", &job.rule).env("TAPLINE_EVENT", job.kind);
        command.stdin(input).stdout(Stdio::null()).spawn()
    });
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tapline: rule {}: cannot start {program}: {error}", job.rule);
            return false;
        }
    };
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if begin.elapsed() < COMMAND_TIME && !ending.is_over() => thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that were told to end soon: how they were counted.
    fn ended(events: &[Event], words: &[&str], time: Duration) -> DeliveryCounts {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut commands = Commands::start().unwrap();
        events.iter().for_each(|event| commands.offer(&words, event));
        let begin = Instant::now();
        commands.end_by(begin + time);
        commands.finish();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        commands.counts()
    }

    #[test]
    fn the_end_waits_for_no_command_longer_than_its_time() {
        let events = [Event::of_rule("r"), Event::of_rule("r"), Event::of_rule("r")];
        let counts = ended(&events, &["sleep", "60"], Duration::from_millis(300));
        assert_eq!(counts, DeliveryCounts { done: 0, failed: 3, refused: 0 });
    }

    /// An event that no pipe holds: one command reads none of it, one all.
    #[test]
    fn a_long_event_waits_for_no_reader() {
        let event = Event { message: "x".repeat(1 << 20), ..Event::of_rule("r") };
        let unread = ended(std::slice::from_ref(&event), &["sleep", "60"], Duration::from_millis(300));
        assert_eq!(unread, DeliveryCounts { done: 0, failed: 1, refused: 0 });
        let len = event.to_json().to_string().len() + 1;
        let test = format!("test $(wc -c) = {len}");
        let read = ended(&[event], &["sh", "-c", &test], Duration::from_secs(10));
        assert_eq!(read, DeliveryCounts { done: 1, failed: 0, refused: 0 });
    }
}
