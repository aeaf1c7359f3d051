//! `tapline top`: what running processes do now, stage by stage, read from the meters that they all keep.
//!
//! ```text
//! Readings (meters of others) --> Report --> text (table), screen (the same in place), JSON
//! ```

mod reading;
mod screen;
mod table;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::parse_interval;
use crate::signals;
use reading::{Readings, Report};
use screen::Screen;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline top                          every process that you may read, refreshed each second; q ends it
  tapline top 4711 --interval 5s       one process
  tapline top --once --json | jq '.processes[].stages[] | {name: .total.name, packets: .recent.packets_in}'

Cycles are ticks of the processor's time stamp counter, without those of later stages; median and p99 are over the packets of the interval.
Counters of stages that have ended stay readable for a while, and are shown as ended.";

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show only the process with this id.
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    /// Print one table after one interval, and end.
    #[arg(long)]
    once: bool,
    /// Print one JSON object per refresh.
    #[arg(long)]
    json: bool,
    /// Refresh interval: 500ms, 1s, 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
}

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let mut readings = Readings::new(args.pid);
    let first = readings.read();
    if let Some(pid) = args.pid.filter(|_| first.processes.is_empty()) {
        bail!("process {pid} is none of tapline that you may read; {}", others(&Readings::new(None).read()));
    }
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if is_terminal && !args.json && !args.once {
        return on_terminal(args, readings, &first, &is_over);
    }
    while signals::sleep(args.interval, &is_over) {
        let report = readings.read();
        tell(args, &report)?;
        if args.once || report.processes.is_empty() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn others(report: &Report) -> String {
    if report.processes.is_empty() {
        return table::nothing();
    }
    let names = report.processes.iter().map(|process| format!("{} ({})", process.pid, process.title));
    format!("there are {}", names.collect::<Vec<_>>().join(", "))
}

fn tell(args: &TopArgs, report: &Report) -> Result<()> {
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(report)?)?,
        false => writeln!(out, "{}", table::text(report, usize::MAX).trim_end())?,
    }
    if !args.json && !args.once {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn on_terminal(
    args: &TopArgs,
    mut readings: Readings,
    first: &Report,
    is_over: &AtomicBool,
) -> Result<ExitCode> {
    let mut screen = Screen::open()?;
    screen.show(first)?;
    let mut ended = None;
    while screen.wait(args.interval, is_over)? {
        let report = readings.read();
        if let Some(pid) = args.pid.filter(|_| report.processes.is_empty()) {
            ended = Some(format!("process {pid} has ended"));
            break;
        }
        screen.show(&report)?;
    }
    drop(screen);
    if let Some(ended) = ended {
        writeln!(io::stderr(), "tapline: {ended}")?;
    }
    Ok(ExitCode::SUCCESS)
}
