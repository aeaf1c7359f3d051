//! `tapline doctor`: finds what on this machine will lose, delay or alter packets, how bad it is, and how to fix it.
//!
//! ```text
//! look: Facts (twice with --watch) --examine--> findings --words--> lines, worst first      exit 1 if something loses or alters
//!                                                       --json---> one object
//! --fix: Fixer makes changes --> COMMAND, or wait for Ctrl-C --> Fixer puts them back
//! --undo: restore() of journals whose process is gone
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `words` | the report for people |
//! | `json` | the report for machines |
//! | `fixing` | changes while a command runs |
//! | `undoing` | changes that killed runs have left |

mod fixing;
mod json;
mod undoing;
mod words;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use tapline_doctor::journal::{self, FoundJournal};
use tapline_doctor::{Attempt, CheckResult, DropWatch, Drops, Event, Facts, Request, examine};
use tapline_sys::sandbox::AllowedAccess;

use crate::args::parse_interval;
use crate::privileges;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline doctor                                   this machine and each interface that is up
  tapline doctor eth0 --why                        one interface, with the reason for each finding
  tapline doctor --watch 10                        losses of the next ten seconds
  sudo tapline doctor eth0 --fix                   apply the remedies, until Ctrl-C
  sudo tapline doctor eth0 --fix -- tapline capture -i eth0 -w trace.pcapng     only while a command runs
  sudo tapline doctor --undo                       undo the changes of a run that was killed
  tapline doctor --json | jq '.findings[] | select(.severity == \"loses\")'

Findings are sorted by severity: first those that lose packets, then those that alter or delay them, then notes. Exit status: 0 if no finding is
rated loses or alters; 1 if one is, if the machine could not be examined, or if a change could not be undone; with a COMMAND, its status.
docs/doctor.md describes each check, with its reason and source.";

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Interfaces to check. Default: all that are up, except loopback.
    #[arg(value_name = "IFACE")]
    interfaces: Vec<String>,
    /// Check interfaces in this network namespace (`ip netns list`). COMMAND is not moved there: give it --netns too.
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Also show checks that are fine, and values that are unknown.
    #[arg(long)]
    all: bool,
    /// Show for each finding why it matters, and the source.
    #[arg(long)]
    why: bool,
    /// Watch the counters for this time, and show their growth: 10, 10s, 1m.
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    watch: Option<Duration>,
    /// Apply the remedies, and undo them when COMMAND ends, or on Ctrl-C or SIGTERM. Changes that stop the link for a
    /// moment are made only on interfaces named on the command line.
    #[arg(long)]
    fix: bool,
    /// Undo the changes of earlier runs with --fix that were killed.
    #[arg(long, conflicts_with_all = ["fix", "watch", "interfaces", "netns"])]
    undo: bool,
    /// Run this command with the remedies applied. The report then goes to standard error.
    #[arg(last = true, value_name = "COMMAND", requires = "fix")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    if args.undo {
        return undoing::run(args.json);
    }
    if args.fix {
        return fixing::run(args);
    }
    let (facts, examined) = look(args, thread::sleep)?;
    // The kernel is trusted, journals that others have left are not.
    privileges::confine_quietly(&AllowedAccess { reads: journal::directories(), ..AllowedAccess::default() });
    let report = Report { facts: &facts, examined: &examined, left: &journal::found(), changes: None };
    report.print(args)?;
    Ok(report.code())
}

/// Reads the facts of the machine, and runs the checks. With --watch, `wait` lets that time pass.
fn look(args: &DoctorArgs, wait: impl FnOnce(Duration)) -> Result<(Facts, Vec<CheckResult>)> {
    let request = Request { interfaces: args.interfaces.clone(), netns: args.netns.clone() };
    let mut facts = Facts::gather(&request)?;
    if let Some(time) = args.watch {
        let drops = DropWatch::start();
        let start = Instant::now();
        wait(time);
        let earlier = std::mem::replace(&mut facts, Facts::gather(&request)?);
        facts.watched(&earlier, start.elapsed().as_secs_f64());
        facts.drops = Some(drops.map_or_else(Drops::NotTold, |watch| watch.read()));
    }
    let examined = examine(&facts);
    Ok((facts, examined))
}

/// Reports an event on standard error.
fn tell(event: &Event) {
    say(&words::plain(&event.to_string()));
}

/// Writes a line to standard error. Ignores errors: after a change, a reader that is gone must not stop the work.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Contents of a report.
struct Report<'a> {
    facts: &'a Facts,
    examined: &'a [CheckResult],
    /// Journals left by earlier runs, or held by others.
    left: &'a [FoundJournal],
    /// Changes made by --fix; `None` without it.
    changes: Option<&'a [Attempt]>,
}

impl Report<'_> {
    /// To standard output, unless that is the command's.
    fn print(&self, args: &DoctorArgs) -> Result<()> {
        let text = if args.json { format!("{}\n", json::report(self)) } else { self.text(args) };
        match args.command.is_empty() {
            true => io::stdout().write_all(text.as_bytes())?,
            false => io::stderr().write_all(text.as_bytes())?,
        }
        Ok(())
    }

    fn text(&self, args: &DoctorArgs) -> String {
        let style = if args.command.is_empty() {
            words::Style::of(&io::stdout())
        } else {
            words::Style::of(&io::stderr())
        };
        words::report(self, &style, args.all, args.why)
    }

    fn is_bad(&self) -> bool {
        self.examined.iter().any(|examined| examined.finding.severity.is_bad())
    }

    fn code(&self) -> ExitCode {
        if self.is_bad() { ExitCode::from(1) } else { ExitCode::SUCCESS }
    }
}
