//! `--fix`: changes while something runs.
//!
//! ```text
//! look --> catch signals --> for each change: journal, make, journal what came of it --> look again --> COMMAND, or wait for a signal
//!                                                                                                                   |
//!                                         remove the journal <-- put back, last first <-- its end, or a signal <----┘
//! ```
//!
//! What a driver takes otherwise than it was told is put back at once. What cannot be made is said and left. What cannot be put back keeps its journal, so that the next run tells.

use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tapline_health::{Examined, Step, Undone};
use tapline_sys::{NetNs, process};

use super::journal::{Header, Journal, Left, Line, Owner};
use super::words::{self, plain};
use super::{DoctorArgs, Report, journal, look};

/// How long an end of the command, or a signal, may go unnoticed.
const PAUSE: Duration = Duration::from_millis(20);

/// What became of a change.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// It was made.
    Made(Step),
    /// It was not.
    Refused { what: String, why: String },
}

/// Runs the command.
pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    // Before our own journal is among them; not held, for we may run for days.
    let left: Vec<Left> = journal::left().into_iter().map(Left::released).collect();
    let (facts, examined) = look(args, thread::sleep)?;
    if !args.json {
        Report { facts: &facts, examined: &examined, left: &left, changes: None }.print(args)?;
    }
    // Before the first change, so that none is left by a signal. Until here nothing is changed, and a signal simply ends us.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    let namespace = args.netns.as_deref().map(NetNs::open).transpose()?;
    let mut fixes = Fixes { namespace, journal: None, lines: Vec::new() };
    let changes = fixes.make(args, &examined)?;
    let mut early = None;
    let (facts, examined) = look(args, |time| early = signal_within(&mut signals, time))?;
    let report = Report { facts: &facts, examined: &examined, left: &left, changes: Some(&changes) };
    if args.json {
        report.print(args)?;
    } else {
        say(&format!("now: {}", words::sum(&examined, args.all)));
    }
    let early = early.or_else(|| signals.pending().next());
    let code = match (early, args.command.is_empty(), fixes.lines.is_empty()) {
        (Some(signal), ..) => exit_code(128 + signal),
        (None, false, _) => run_command(args, &mut signals)?,
        (None, true, true) => report.code(),
        (None, true, false) => {
            say("Ctrl-C puts everything back");
            let _ = signals.forever().next();
            report.code()
        }
    };
    Ok(if fixes.put_back() { code } else { ExitCode::FAILURE })
}

/// Waits for a signal, but no longer than this.
fn signal_within(signals: &mut Signals, time: Duration) -> Option<i32> {
    let start = Instant::now();
    loop {
        let signal = signals.pending().next();
        let left = time.saturating_sub(start.elapsed());
        if signal.is_some() || left.is_zero() {
            return signal;
        }
        thread::sleep(left.min(PAUSE));
    }
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// What was changed. Puts it back when dropped, too.
struct Fixes {
    namespace: Option<NetNs>,
    journal: Option<Journal>,
    lines: Vec<Line>,
}

impl Fixes {
    fn make(&mut self, args: &DoctorArgs, examined: &[Examined]) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for one in examined.iter().filter(|one| words::can_be_fixed(one)) {
            let Some(mend) = &one.finding.mend else { continue };
            let is_named = |name: &String| args.interfaces.contains(name);
            if mend.interrupts && !one.finding.interface.as_ref().is_some_and(is_named) {
                let why = "it may stop the link for a moment: name the interface to have it done".to_owned();
                let what = mend.command.clone();
                say(&format!("not done: {}: {why}", plain(&what)));
                changes.push(Change::Refused { what, why });
                continue;
            }
            for change in &mend.changes {
                changes.extend(self.change(args, change)?);
            }
        }
        Ok(changes)
    }

    /// Makes one change, if it is not so already.
    fn change(&mut self, args: &DoctorArgs, change: &tapline_health::Change) -> Result<Option<Change>> {
        let refused = |why: String| {
            say(&format!("not done: {}", plain(&why)));
            Ok(Some(Change::Refused { what: change.to_string(), why }))
        };
        let line = match within(self.namespace.as_ref(), change.interface(), || Line::now(change))? {
            Ok(line) if line.step.before == line.step.change => return Ok(None),
            Ok(line) => line,
            Err(error) => return refused(error.to_string()),
        };
        self.note(args, &line)?;
        // From here on it is to be put back, also if only half of it is made.
        self.lines.push(line.clone());
        let make = || (change.apply(), change.now().ok());
        let (made, taken) = within(self.namespace.as_ref(), change.interface(), make)?;
        let line = Line { taken, ..line };
        self.lines.pop();
        self.lines.push(line.clone());
        self.note(args, &line)?;
        match made {
            Ok(()) => {
                say(&format!("changed: {}{}", plain(&change.to_string()), was(&line.step)));
                Ok(Some(Change::Made(line.step)))
            }
            Err(error) => {
                if matches!(error, tapline_health::Error::NotInEffect { .. }) {
                    self.take_back(&line)?;
                }
                refused(error.to_string())
            }
        }
    }

    /// Notes a step before it is made, or what came of it.
    fn note(&mut self, args: &DoctorArgs, line: &Line) -> Result<()> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::create(&Header::now(args.netns.as_deref(), self.namespace.as_ref())?)?,
        };
        self.journal.insert(journal).add(line)
    }

    /// Puts the last step back at once, as the driver took something else than it was told. What cannot be is tried again at the end.
    fn take_back(&mut self, line: &Line) -> Result<()> {
        let before = &line.step.before;
        match within(self.namespace.as_ref(), before.interface(), || before.apply())? {
            Ok(()) => drop(self.lines.pop()),
            Err(error) => say(&format!("NOT put back: {}", plain(&error.to_string()))),
        }
        Ok(())
    }

    /// Puts everything back, last first, and says so. Returns whether all is as it was.
    fn put_back(&mut self) -> bool {
        let lines = std::mem::take(&mut self.lines);
        let failed = lines.iter().rev().filter(|line| !put_back(self.namespace.as_ref(), line)).count();
        let all = failed == 0;
        let Some(journal) = self.journal.take() else { return all };
        if !all {
            say(&format!(
                "{} tells what is left; tapline doctor --undo tries again",
                journal.path().display()
            ));
            return false;
        }
        journal.remove().map_err(|error| say(&format!("{error:#}"))).is_ok()
    }
}

impl Drop for Fixes {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// What was before, where it does not go without saying.
fn was(step: &Step) -> String {
    match step.before {
        tapline_health::Change::Features { .. } => String::new(),
        _ => format!(" (was: {})", plain(&step.before.to_string())),
    }
}

/// Puts one step back and says so. Returns whether nothing is left to do about it.
pub(super) fn put_back(namespace: Option<&NetNs>, line: &Line) -> bool {
    let interface = line.step.change.interface();
    let undo = || match line.owner()? {
        Owner::Same => Ok(Some(line.undo()?)),
        Owner::Gone => Ok(None),
        Owner::Called(name) => {
            anyhow::bail!("it is called {name} now; give it its name back, then: tapline doctor --undo")
        }
    };
    let before = plain(&line.step.before.to_string());
    match within(namespace, interface, undo) {
        Ok(Ok(Some(Undone::PutBack))) => say(&format!("put back: {before}")),
        Ok(Ok(Some(Undone::WasSo))) => {}
        Ok(Ok(Some(Undone::ChangedSince))) => {
            say(&format!("left as somebody else has set it since: {before}"))
        }
        Ok(Ok(None)) => say(&format!("the interface is gone, and nothing to put back: {before}")),
        Ok(Err(error)) => {
            say(&format!("NOT put back: {before}: {}", plain(&error.to_string())));
            return false;
        }
        Err(error) => {
            say(&format!("NOT put back: {before}: {error:#}"));
            return false;
        }
    }
    true
}

/// Runs work about an interface in its namespace; files of the machine are of ours.
fn within<T: Send>(
    namespace: Option<&NetNs>,
    interface: Option<&str>,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    match namespace.filter(|_| interface.is_some()) {
        None => Ok(work()),
        Some(namespace) => namespace.run(work).context("cannot enter the network namespace"),
    }
}

/// Runs COMMAND to its end. A terminal gives its Ctrl-C and Ctrl-\ to both of us, so where there is one those are not handed on; all others are.
fn run_command(args: &DoctorArgs, signals: &mut Signals) -> Result<ExitCode> {
    let (program, arguments) = args.command.split_first().context("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
    let status = wait(&mut child, signals)?;
    Ok(exit_code(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)))
}

fn wait(child: &mut Child, signals: &mut Signals) -> io::Result<ExitStatus> {
    let by_terminal = |signal| matches!(signal, SIGINT | SIGQUIT) && io::stdin().is_terminal();
    loop {
        for signal in signals.pending().filter(|signal| !by_terminal(*signal)) {
            // It may have ended this moment; nobody has its number before we have asked.
            let _ = process::signal(child.id(), signal);
        }
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None => thread::sleep(PAUSE),
        }
    }
}

/// To people, beside what programs may read. That they do not listen is no reason to leave a change.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SETTING: &str = "/proc/sys/net/core/netdev_max_backlog";

    fn now() -> Option<String> {
        Some(fs::read_to_string(SETTING).ok()?.trim().to_owned())
    }

    #[test]
    fn what_is_taken_otherwise_is_put_back_at_once() {
        let test = "what_is_taken_otherwise_is_put_back_at_once";
        let Some(before) = now() else { return eprintln!("skipped: {test}: no {SETTING} here") };
        if fs::write(SETTING, &before).is_err() {
            return eprintln!("skipped: {test}: {SETTING} cannot be written");
        }
        let args = DoctorArgs {
            interfaces: Vec::new(),
            netns: None,
            json: false,
            all: false,
            why: false,
            watch: None,
            fix: true,
            undo: false,
            command: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let journal = journal::create_in(folder.path()).unwrap();
        let path = journal.path().to_owned();
        let mut fixes = Fixes { namespace: None, journal: Some(journal), lines: Vec::new() };
        // The kernel takes hexadecimal numbers and gives them back in decimal: as a driver that rounds.
        let other = before.parse::<u64>().unwrap() + 1;
        let change = tapline_health::Change::File { path: SETTING.into(), value: format!("{other:#x}") };
        let Some(Change::Refused { why, .. }) = fixes.change(&args, &change).unwrap() else {
            panic!("it was")
        };
        assert!(why.contains("not in effect"), "{why}");
        assert_eq!(now(), Some(before));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let taken = tapline_health::Change::File { path: SETTING.into(), value: other.to_string() };
        assert_eq!(lines.iter().map(|line| line.taken.clone()).collect::<Vec<_>>(), [None, Some(taken)]);
        assert!(fixes.put_back() && !path.exists(), "nothing was left to be put back");
    }

    #[test]
    fn an_interface_without_a_number_is_left_alone() {
        let change =
            tapline_health::Change::Features { interface: "no-such-if".into(), features: Vec::new() };
        let text = Line::now(&change).unwrap_err().to_string();
        assert!(text.ends_with("no number by which no-such-if is known again"), "{text}");
    }
}
