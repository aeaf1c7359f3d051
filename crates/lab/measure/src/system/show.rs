//! Output on a terminal: tables and progress.

use std::io::{self, IsTerminal, Write};

use super::html::grouped;
use super::limit::Limit;
use super::results::{CaseResult, Machine, Results, WorkloadResult};
use super::workload::{Case, Workload};

pub(super) fn list(out: &mut impl Write, workloads: &[Workload]) -> io::Result<()> {
    workloads.iter().try_for_each(|workload| {
        writeln!(out, "{:<8} {} ({} cases)", workload.name, workload.title, workload.cases().len())
    })
}

pub(super) fn machine(out: &mut impl Write, machine: &Machine) -> io::Result<()> {
    let Machine { processors, processor, kernel, load, .. } = machine;
    writeln!(out, "{processors} processors, {processor}, Linux {kernel}, load {load}")
}

/// Goals, and whether the accounts balance.
pub(super) fn verdicts(out: &mut impl Write, results: &Results) -> io::Result<()> {
    for goal in &results.goals {
        writeln!(out, "{}: {:.2} (goal {}: {})", goal.what, goal.ratio, goal.goal, goal.verdict)?;
    }
    let runs = results.outcomes().count();
    let mut faulty = results.outcomes().filter(|(_, run)| !run.faults.is_empty());
    match faulty.next() {
        None => writeln!(out, "every account balances ({runs} runs)"),
        Some((case, run)) => {
            let (name, faults, others) = (case.program.name(), run.faults.join("; "), faulty.count() + 1);
            writeln!(
                out,
                "{others} of {runs} runs have a fault, the first: {name}, {} bytes: {faults}",
                case.size
            )
        }
    }
}

/// The limit of a command.
pub(super) fn limit(out: &mut impl Write, found: &Limit, size: u32, seconds: f64) -> io::Result<()> {
    let whose = if found.is_generators { " (the generator can do no more)" } else { "" };
    writeln!(out, "{} packets a second of {size} bytes without loss{whose}", grouped(found.rate))?;
    let mbits = found.rate * f64::from(size) * 8.0 / 1e6;
    writeln!(out, "{mbits:.1} Mbit/s of frames; {} tries of {seconds:.1} s", found.probes.len())
}

/// One workload's medians.
pub(super) fn workload(out: &mut impl Write, result: &WorkloadResult) -> io::Result<()> {
    writeln!(out, "\n{}", result.workload.title)?;
    if !result.cases.is_empty() {
        writeln!(
            out,
            "  {:<13} {:>5} {:>7} {:>12} {:>12} {:>8} {:>10}  filter",
            "program", "bytes", "snap", "offered/s", "captured/s", "share", "ns/packet"
        )?;
    }
    for CaseResult { case, medians, .. } in &result.cases {
        writeln!(
            out,
            "  {:<13} {:>5} {:>7} {:>12} {:>12} {:>6.1} % {:>10.0}  {}",
            case.program.name(),
            case.size,
            case.snap,
            grouped(medians.offered_rate),
            grouped(medians.captured_rate),
            medians.share * 100.0,
            medians.cost_ns,
            case.filter
        )?;
    }
    for limit in &result.limits {
        let whose = if limit.is_generators { "  (the generator's limit)" } else { "" };
        writeln!(
            out,
            "  {:<13} {:>5} {:>12} packets/s without loss [{}, {}]{whose}",
            limit.case.program.name(),
            limit.case.size,
            grouped(limit.rate),
            grouped(limit.rate_min),
            grouped(limit.rate_max)
        )?;
    }
    result.left_out.iter().try_for_each(|text| writeln!(out, "  left out: {text}"))
}

/// Progress on a terminal.
pub(super) struct Progress {
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { is_terminal: io::stderr().is_terminal() }
    }

    pub(super) fn show(&self, workload: &str, at: usize, of: usize, case: &Case) {
        if self.is_terminal {
            let snap = if case.snap < case.size { format!(", first {}", case.snap) } else { String::new() };
            let _ = write!(
                io::stderr(),
                "\r\x1b[K{workload} {at}/{of}: {}, {} bytes{snap}",
                case.program.name(),
                case.size
            );
        }
    }

    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
