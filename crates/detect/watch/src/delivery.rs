//! Actions outside of this program: commands, holds, webhooks, each with a queue that never makes packets wait.
//!
//! ```text
//! event --try_send--> queue of 64 --thread--> the program, one after the other; its standard input is the event;
//!            |                                a confined process has it started by another (starter.rs)
//!            | full: counted, not waited for
//! event --try_send--> queue of 64 --thread--> a hold in a store (holding.rs)
//! event --try_send--> queue of 256 --thread--> POST, three tries --no--> spool: lines in a file, sent later
//!
//! the end: END_TIME for all; then the running command is killed with what it started, those that wait are not
//!          started, and calls are spooled
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tapline_sys::{Memfd, process};

use crate::event::Event;
use crate::faults::{Failure, Faults};
use crate::starter::CommandStarter;

/// The time that commands, webhooks and holds have together at the end of a run.
pub const END_TIME: Duration = Duration::from_secs(30);

/// Commands that wait.
const COMMANDS_MAX: usize = 64;
/// The longest time that a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// The signal that ends a process at once (signal(7)).
const SIGKILL: i32 = 9;
/// Interval at which it is looked whether a command has ended.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// Counters of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Done: commands that ended well, webhooks that were answered, holds that are in force.
    pub done: u64,
    /// Failed: commands that ended badly or took too long, or for which the end had no time; webhooks that found no
    /// place in the spool; holds that could not be made, or for which the end had no time.
    pub failed: u64,
    /// Webhooks that are in the spool at present.
    pub spooled: u64,
    /// Refused, as the queue was full; of holds also those of a rule that had its number of them.
    pub refused: u64,
}

impl DeliveryCounts {
    /// The sum with other counters.
    #[must_use]
    pub fn plus(self, other: DeliveryCounts) -> DeliveryCounts {
        DeliveryCounts {
            done: self.done + other.done,
            failed: self.failed + other.failed,
            spooled: self.spooled + other.spooled,
            refused: self.refused + other.refused,
        }
    }
}

/// Data shared by a thread and its stage: counters of each rule, and failures that wait to be reported.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    by_rule: Mutex<HashMap<String, DeliveryCounts>>,
    faults: Mutex<Faults>,
    /// Jobs that wait or are at work.
    jobs: AtomicU64,
    /// The job at work, in words.
    at_work: Mutex<String>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub(crate) fn count(&self, rule: &str, change: impl FnOnce(&mut DeliveryCounts)) {
        let mut all = lock(&self.by_rule);
        match all.get_mut(rule) {
            Some(counts) => change(counts),
            None => change(all.entry(rule.to_owned()).or_default()),
        }
    }

    #[cfg(feature = "webhook")]
    pub(crate) fn set_spooled(&self, numbers: &HashMap<String, u64>) {
        lock(&self.by_rule).values_mut().for_each(|counts| counts.spooled = 0);
        numbers.iter().for_each(|(rule, number)| self.count(rule, |counts| counts.spooled = *number));
    }

    pub(crate) fn fault(&self, rule: &str, failure: Failure) {
        lock(&self.faults).add(rule, failure);
    }

    /// A job has come to its end.
    pub(crate) fn end_job(&self) {
        self.jobs.fetch_sub(1, Ordering::Relaxed);
    }
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

/// A queue of actions, and the thread that works it off.
pub trait DeliveryQueue: Send {
    /// Takes no more actions. The thread does those that wait before `end`, or gives them up.
    fn end_by(&mut self, end: Instant);

    /// Waits for the thread, after [`end_by`](Self::end_by).
    fn finish(&mut self);

    /// The action that the end waits for and how many there are, in words. `None` once the thread has ended.
    fn waits_for(&self) -> Option<String>;

    /// Counters.
    fn counts(&self) -> DeliveryCounts;

    /// Counters of a rule.
    fn counts_of(&self, rule: &str) -> DeliveryCounts;

    /// Failures since the last call, as sentences.
    fn take_faults(&self) -> Vec<String>;
}

/// A queue of jobs.
pub(crate) struct Worker<T> {
    /// The jobs, in a word.
    name: &'static str,
    /// The most that wait.
    len: usize,
    sender: Option<SyncSender<T>>,
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
    ending: Arc<Ending>,
}

impl<T: Send + 'static> Worker<T> {
    /// A thread that gets the jobs of a queue of this length.
    pub(crate) fn start(
        name: &'static str,
        len: usize,
        work: impl FnOnce(Receiver<T>, Arc<Tally>, Arc<Ending>) + Send + 'static,
    ) -> io::Result<Worker<T>> {
        let (sender, receiver) = sync_channel(len);
        let (tally, ending) = (Arc::new(Tally::default()), Arc::new(Ending::default()));
        let theirs = (Arc::clone(&tally), Arc::clone(&ending));
        let work = move || work(receiver, theirs.0, theirs.1);
        let thread = thread::Builder::new().name(format!("{name}s")).spawn(work)?;
        Ok(Worker { name, len, sender: Some(sender), thread: Some(thread), tally, ending })
    }

    pub(crate) fn offer(&mut self, rule: &str, job: T) {
        self.tally.jobs.fetch_add(1, Ordering::Relaxed);
        match self.sender.as_ref().map(|sender| sender.try_send(job)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                self.tally.end_job();
                self.tally.count(rule, |counts| counts.refused += 1);
                let text = format!("no room: {} wait already", counted(self.len as u64, self.name));
                self.tally.fault(rule, Failure::new("no room", text));
            }
        }
    }

    /// Counts a job that the rule may not have.
    pub(crate) fn refuse(&self, rule: &str, failure: Failure) {
        self.tally.count(rule, |counts| counts.refused += 1);
        self.tally.fault(rule, failure);
    }
}

impl<T: Send + 'static> DeliveryQueue for Worker<T> {
    fn end_by(&mut self, end: Instant) {
        let _ = self.ending.0.set(end);
        self.sender = None;
    }

    fn finish(&mut self) {
        debug_assert!(self.ending.has_begun(), "the thread would wait for jobs");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn waits_for(&self) -> Option<String> {
        self.thread.as_ref().filter(|thread| !thread.is_finished())?;
        let (jobs, at_work) = (self.tally.jobs.load(Ordering::Relaxed), lock(&self.tally.at_work));
        let at_work = if at_work.is_empty() { String::new() } else { format!(" ({at_work})") };
        Some(format!("{}{at_work}", counted(jobs.max(1), self.name)))
    }

    fn counts(&self) -> DeliveryCounts {
        lock(&self.tally.by_rule).values().copied().fold(DeliveryCounts::default(), DeliveryCounts::plus)
    }

    fn counts_of(&self, rule: &str) -> DeliveryCounts {
        lock(&self.tally.by_rule).get(rule).copied().unwrap_or_default()
    }

    fn take_faults(&self) -> Vec<String> {
        lock(&self.tally.faults).take()
    }
}

/// A number of things with their word: `1 command`, `2 commands`.
pub fn counted(number: u64, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// A command that is to be started for an event.
#[derive(Serialize, Deserialize)]
pub(crate) struct CommandJob {
    pub(crate) words: Vec<String>,
    rule: String,
    kind: String,
    line: String,
}

impl CommandJob {
    pub(crate) fn program(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }
}

/// Commands of events.
pub struct Commands(Worker<CommandJob>);

impl Commands {
    /// The thread that has commands started: by `starter`, or without one by this process.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(starter: Option<Arc<CommandStarter>>) -> io::Result<Commands> {
        let work = move |jobs, tally, ending| work(jobs, tally, ending, starter);
        Worker::start("command", COMMANDS_MAX, work).map(Commands)
    }

    /// Queues a command for an event, unless too many wait.
    pub fn offer(&mut self, words: &[String], event: &Event) {
        let line = event.to_json().to_string() + "\n";
        let (rule, kind) = (event.name.clone(), event.kind.name().to_owned());
        self.0.offer(&event.name, CommandJob { words: words.to_vec(), rule, kind, line });
    }
}

impl Deref for Commands {
    type Target = dyn DeliveryQueue;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Commands {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the thread owns its end of the queue")]
fn work(
    jobs: Receiver<CommandJob>,
    tally: Arc<Tally>,
    ending: Arc<Ending>,
    starter: Option<Arc<CommandStarter>>,
) {
    let is_over = || ending.is_over();
    let run = |job: &CommandJob| match &starter {
        Some(starter) => starter.run(job, &is_over),
        None => start_and_wait(job, &mut || ending.is_over()),
    };
    let mut not_started = 0;
    for job in jobs.iter() {
        let has_time = !ending.is_over();
        not_started += u64::from(!has_time);
        *lock(&tally.at_work) = format!("{} of rule {}", job.program(), job.rule);
        let failure = if has_time { run(&job).map_err(Some) } else { Err(None) };
        tally.count(&job.rule, |counts| match failure {
            Ok(()) => counts.done += 1,
            Err(_) => counts.failed += 1,
        });
        failure.err().flatten().into_iter().for_each(|failure| tally.fault(&job.rule, failure));
        tally.end_job();
    }
    if not_started > 0 {
        let _ =
            writeln!(io::stderr(), "tapline: the end had no time for {}", counted(not_started, "command"));
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

/// Starts a command and waits for its end, or until `is_over`.
pub(crate) fn start_and_wait(job: &CommandJob, is_over: &mut dyn FnMut() -> bool) -> Result<(), Failure> {
    let program = job.program();
    let child = input(&job.line).and_then(|input| {
        let mut command = Command::new(program);
        command.args(job.words.iter().skip(1));
        command.env("TAPLINE_RULE", &job.rule).env("TAPLINE_EVENT", &job.kind);
        // A group of its own, so that what it starts ends with it.
        command.stdin(input).stdout(Stdio::null()).process_group(0).spawn()
    });
    let mut child =
        child.map_err(|error| Failure::new("start", format!("cannot start {program}: {error}")))?;
    let begin = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return checked(program, status);
        }
        let (has_ended, is_late) = (is_over(), begin.elapsed() >= COMMAND_TIME);
        if has_ended || is_late {
            // Its number is its own until it is waited for.
            let _ = process::signal_group(child.id(), SIGKILL);
            let _ = child.kill();
            let _ = child.wait();
            return Err(match has_ended {
                true => {
                    Failure::new("end", format!("{program} was killed: the run ended before it was done"))
                }
                false => {
                    let text = format!("{program} was killed: it took longer than {COMMAND_TIME:?}");
                    Failure::new("time", text)
                }
            });
        }
        thread::sleep(LOOK);
    }
}

fn checked(program: &str, status: ExitStatus) -> Result<(), Failure> {
    let how = match (status.code(), status.signal()) {
        (Some(0), _) => return Ok(()),
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    };
    Err(Failure::new(&how, format!("{program} ended with {how}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that have to end soon: their counts.
    fn ended(events: &[Event], words: &[&str], time: Duration) -> DeliveryCounts {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut commands = Commands::start(None).unwrap();
        events.iter().for_each(|event| commands.offer(&words, event));
        let begin = Instant::now();
        commands.end_by(begin + time);
        commands.finish();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        commands.counts()
    }

    #[test]
    fn the_end_waits_for_commands_up_to_their_timeout() {
        let events = [Event::of_rule("r"), Event::of_rule("r"), Event::of_rule("r")];
        let counts = ended(&events, &["sleep", "60"], Duration::from_millis(300));
        assert_eq!(counts, DeliveryCounts { failed: 3, ..DeliveryCounts::default() });
    }

    /// A command that waits for one that it started; both write their numbers.
    #[test]
    fn what_a_command_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let code = format!("sleep 778 & echo $! > {}; wait", file.display());
        let mut commands = Commands::start(None).unwrap();
        commands.offer(&["sh", "-c", &code].map(str::to_owned), &Event::of_rule("r"));
        let number = || std::fs::read_to_string(&file).ok()?.strip_suffix('\n')?.parse::<u32>().ok();
        let begin = Instant::now();
        while number().is_none() && begin.elapsed() < Duration::from_secs(60) {
            thread::sleep(LOOK);
        }
        let number = number().unwrap();
        assert!(commands.waits_for().unwrap().starts_with("1 command (sh of rule r)"));
        commands.end_by(Instant::now() + Duration::from_millis(50));
        commands.finish();
        assert_eq!(commands.waits_for(), None);
        assert!(commands.take_faults()[0].contains("was killed"));
        // It is gone once init has waited for it.
        let state = || std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let is_there = || !state().is_empty() && !state().contains(") Z");
        while is_there() && begin.elapsed() < Duration::from_secs(60) {
            thread::sleep(LOOK);
        }
        assert!(!is_there(), "{}", state());
    }

    /// Two commands of a rule fail in one way, one in another, and one of another rule does not start.
    #[test]
    fn failures_of_commands_are_told_once_and_counted() {
        let mut commands = Commands::start(None).unwrap();
        for (rule, code) in [("r", "exit 3"), ("r", "exit 3"), ("r", "kill -9 $$"), ("r", "exit 0")] {
            commands.offer(&["sh", "-c", code].map(str::to_owned), &Event::of_rule(rule));
        }
        commands.offer(&["/none/such".to_owned()], &Event::of_rule("s"));
        commands.end_by(Instant::now() + Duration::from_secs(60));
        commands.finish();
        let of = |done, failed| DeliveryCounts { done, failed, ..DeliveryCounts::default() };
        assert_eq!((commands.counts_of("r"), commands.counts_of("s")), (of(1, 3), of(0, 1)));
        let told = commands.take_faults();
        let expected =
            ["rule r: sh ended with status 3;", "rule r: sh ended with signal 9;", "rule s: cannot start"];
        assert_eq!(told.len(), 3, "{told:?}");
        expected.iter().zip(&told).for_each(|(words, told)| assert!(told.starts_with(words), "{told}"));
    }

    /// An event that no pipe holds: one command reads none of it, one all.
    #[test]
    fn a_long_event_waits_for_no_reader() {
        let event = Event { message: "x".repeat(1 << 20), ..Event::of_rule("r") };
        let unread = ended(std::slice::from_ref(&event), &["sleep", "60"], Duration::from_millis(300));
        assert_eq!(unread, DeliveryCounts { failed: 1, ..DeliveryCounts::default() });
        let len = event.to_json().to_string().len() + 1;
        let test = format!("test $(wc -c) = {len}");
        let read = ended(&[event], &["sh", "-c", &test], Duration::from_secs(10));
        assert_eq!(read, DeliveryCounts { done: 1, ..DeliveryCounts::default() });
    }
}
