//! `--fix`: changes while something runs.
//!
//! ```text
//! catch signals --> for each change: look, journal, make --> tell --> COMMAND or a signal --> put back, last first --> remove the journal
//! ```
//!
//! What cannot be made is said and left. What cannot be put back keeps its journal, so that the next run tells.

use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tapline_health::{Examined, Step, Undone};
use tapline_sys::{NetNs, process};

use super::journal::{Header, Journal, Line};
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
    // Before the first change, so that none is left by a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    let (facts, examined) = look(args)?;
    if !args.json {
        Report { facts: &facts, examined: &examined, left: &journal::left(), changes: None }.print(args)?;
    }
    let namespace = args.netns.as_deref().map(NetNs::open).transpose()?;
    let mut fixes = Fixes { namespace, journal: None, lines: Vec::new() };
    let changes = fixes.make(args, &examined)?;
    let (facts, examined) = look(&DoctorArgs::without_watch(args))?;
    let report = Report { facts: &facts, examined: &examined, left: &[], changes: Some(&changes) };
    if args.json {
        report.print(args)?;
    } else {
        say(&format!("now: {}", words::sum(&examined, args.all)));
    }
    let code = match (args.command.is_empty(), fixes.lines.is_empty()) {
        (false, _) => run_command(args, &mut signals)?,
        (true, true) => report.code(),
        (true, false) => {
            say("Ctrl-C puts everything back");
            let _ = signals.forever().next();
            report.code()
        }
    };
    Ok(if fixes.put_back() { code } else { ExitCode::FAILURE })
}

impl DoctorArgs {
    /// The same look again, at once.
    fn without_watch(args: &DoctorArgs) -> DoctorArgs {
        DoctorArgs {
            interfaces: args.interfaces.clone(),
            netns: args.netns.clone(),
            watch: None,
            command: Vec::new(),
            ..*args
        }
    }
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
        let refused = |error: tapline_health::Error| {
            say(&format!("not done: {}", plain(&error.to_string())));
            Ok(Some(Change::Refused { what: change.to_string(), why: error.to_string() }))
        };
        let line = match within(self.namespace.as_ref(), change.interface(), || change.step().map(Line::now))?
        {
            Ok(line) if line.step.before == line.step.change => return Ok(None),
            Ok(line) => line,
            Err(error) => return refused(error),
        };
        if self.journal.is_none() {
            self.journal = Some(Journal::create(&Header::now(args.netns.as_deref())?)?);
        }
        if let Some(journal) = &mut self.journal {
            journal.add(&line)?;
        }
        // From here on it is to be put back, also if only half of it is made.
        self.lines.push(line.clone());
        match within(self.namespace.as_ref(), change.interface(), || change.apply())? {
            Ok(()) => {
                say(&format!("changed: {}{}", plain(&change.to_string()), was(&line.step)));
                Ok(Some(Change::Made(line.step)))
            }
            Err(error) => refused(error),
        }
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
    let undo = || if line.has_its_interface() { line.step.undo().map(Some) } else { Ok(None) };
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

/// Runs COMMAND to its end. A terminal gives its Ctrl-C to both of us; all other signals are handed on.
fn run_command(args: &DoctorArgs, signals: &mut Signals) -> Result<ExitCode> {
    let (program, arguments) = args.command.split_first().context("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
    let status = wait(&mut child, signals)?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
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
