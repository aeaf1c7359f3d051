//! `--fix`: changes as long as a command runs, or until a signal.
//!
//! ```text
//! look --> catch signals --> Fixer::fix --> look again --> COMMAND, or wait for a signal --> Fixer::undo_all
//! ```

use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tapline_doctor::Fixer;
use tapline_doctor::journal::{self, FoundJournal};
use tapline_sys::process;

use super::{DoctorArgs, Report, look, say, tell, words};
use crate::signals;

/// Longest time until the end of the command, or a signal, is noticed.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the command.
pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    // Read before our own journal is among them; not locked, for this run may take days.
    let left: Vec<FoundJournal> = journal::found().into_iter().map(FoundJournal::released).collect();
    let (facts, examined) = look(args, thread::sleep)?;
    if !args.json {
        Report { facts: &facts, examined: &examined, left: &left, changes: None }.print(args)?;
    }
    // Before the first change, so that a signal leaves none. Until here nothing is changed, and a signal simply ends
    // us.
    let mut signals = signals::queue(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    let mut fixer = Fixer::new(args.netns.as_deref(), tell)?;
    let changes = fixer.fix(&examined, &args.interfaces)?;
    let mut early = None;
    let (facts, examined) = look(args, |time| early = signal_within(&mut signals, time))?;
    let report = Report { facts: &facts, examined: &examined, left: &left, changes: Some(&changes) };
    if args.json {
        report.print(args)?;
    } else {
        say(&format!("now: {}", words::sum(&examined, args.all)));
    }
    let early = early.or_else(|| signals.pending().next());
    let code = match (early, args.command.is_empty(), fixer.has_changed()) {
        (Some(signal), ..) => exit_code(128 + signal),
        (None, false, _) => run_command(args, &mut signals)?,
        (None, true, false) => report.code(),
        (None, true, true) => {
            say("Ctrl-C puts everything back");
            let _ = signals.forever().next();
            report.code()
        }
    };
    Ok(if fixer.undo_all() { code } else { ExitCode::FAILURE })
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

/// Runs COMMAND to its end. A terminal gives its Ctrl-C and Ctrl-\ to both processes, so these are not forwarded there;
/// all others are.
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
            // The child may just have ended; its number stays reserved until it is waited for.
            let _ = process::signal(child.id(), signal);
        }
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None => thread::sleep(PAUSE),
        }
    }
}
