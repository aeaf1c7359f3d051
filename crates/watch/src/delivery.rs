//! What follows events outside of this program: commands and webhooks, each with a queue that never makes packets wait.
//!
//! ```text
//! event --try_send--> queue of 64 --thread--> the program, one after the other; its standard input is the event
//!            | full: counted, not waited for
//! event --try_send--> queue of 256 --thread--> POST, three tries --no--> spool: lines in a file, sent later
//! ```

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::event::Event;

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
    /// Failed: commands that ended badly or took too long, webhooks that found no place in the spool.
    pub failed: u64,
    /// Refused, as the queue was full.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// A queue, and the thread that works it off.
pub(crate) struct Worker<T> {
    sender: Option<SyncSender<T>>,
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
    refused: u64,
}

impl<T: Send + 'static> Worker<T> {
    /// A thread that gets the jobs of a queue of this length.
    pub(crate) fn start(
        name: &str,
        len: usize,
        work: impl FnOnce(Receiver<T>, Arc<Tally>) + Send + 'static,
    ) -> std::io::Result<Worker<T>> {
        let (sender, receiver) = sync_channel(len);
        let tally = Arc::new(Tally::default());
        let theirs = Arc::clone(&tally);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(receiver, theirs))?;
        Ok(Worker { sender: Some(sender), thread: Some(thread), tally, refused: 0 })
    }

    pub(crate) fn offer(&mut self, job: T) {
        let refused = match self.sender.as_ref().map(|sender| sender.try_send(job)) {
            Some(Ok(())) => 0,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => 1,
        };
        self.refused += refused;
    }

    /// Lets the thread finish what waits.
    pub(crate) fn finish(&mut self) {
        self.sender = None;
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
    pub fn start() -> std::io::Result<Commands> {
        Worker::start("commands", COMMANDS_MAX, work).map(Commands)
    }

    /// Has a command started for an event, unless too many wait.
    pub fn offer(&mut self, words: &[String], event: &Event) {
        let line = event.to_json().to_string() + "\n";
        let (rule, kind) = (event.name.clone(), event.kind.name());
        self.0.offer(CommandJob { words: words.to_vec(), rule, kind, line });
    }

    /// Waits for the commands that are due.
    pub fn finish(&mut self) {
        self.0.finish();
    }

    /// Counters.
    pub fn counts(&self) -> DeliveryCounts {
        self.0.counts()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the thread owns its end of the queue")]
fn work(jobs: Receiver<CommandJob>, tally: Arc<Tally>) {
    for job in jobs.iter() {
        let counter = if run(&job) { &tally.done } else { &tally.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts a command and waits for it. Whether it ended well.
fn run(job: &CommandJob) -> bool {
    let Some((program, arguments)) = job.words.split_first() else { return false };
    let child = Command::new(program)
        .args(arguments)
        .env("TAPLINE_RULE", &job.rule)
        .env("TAPLINE_EVENT", job.kind)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ =
                writeln!(std::io::stderr(), "tapline: rule {}: cannot start {program}: {error}", job.rule);
            return false;
        }
    };
    // A line is shorter than a pipe, so a command that reads nothing keeps nothing waiting.
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(job.line.as_bytes());
    }
    let end = Instant::now() + COMMAND_TIME;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}
