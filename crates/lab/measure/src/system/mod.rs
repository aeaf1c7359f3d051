//! `tapline bench`: the capture performance of this machine, measured end to end, for Tapline and other programs.
//!
//! ```text
//! workload (data) --cases--> trial: arena, generator, program --> outcome, every packet at its place
//!                                                                    |
//!                                        medians, limits, goals --> HTML with pictures, JSON, tables
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `workload` | the measurements, as data |
//! | `arena` | the namespace, the link, the cores |
//! | `programs` | the programs measured, and how each reports its losses |
//! | `trial` | one run and its account |
//! | `limit` | the highest rate without loss |
//! | `results`, `html`, `plot`, `show` | the results for machines, browsers and terminals |
//!
//! Programs take turns on each case, so that disturbances of the machine hit all; a different one begins each time.

pub mod arena;
pub(crate) mod html;
pub mod limit;
pub(crate) mod plot;
pub(crate) mod programs;
mod results;
mod show;
pub mod trial;
mod workload;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use tapline_arena::libpcap::{Libpcap, LiveSettings};
use tapline_arena::netns::FAR;
use tapline_syntax::units::{self, count_in, size_in};

use crate::papers::PapersOrder;
use arena::Arena;
use html::grouped;
use limit::Limit;
use programs::{CaptureOrder, Program};
use results::{CaseResult, LimitResult, Machine, Medians, Presence, Results, WorkloadResult};
use show::Progress;
use trial::{Load, Receiver, TrialOutcome};
use workload::{Case, Kind, Workload};

/// The first word that asks for the documents' tables in place of workloads.
const PAPERS: &str = "papers";
/// Runs of each case, and in a hurry.
const RUNS: usize = 3;
const RUNS_QUICK: usize = 2;
/// Time that the generator waits for a full link in a search for the limit.
const PATIENCE: Duration = Duration::from_millis(200);
/// Resolution of a limit, as a share of it, and with `--quick`.
const RESOLUTION: f64 = 0.03;
const RESOLUTION_QUICK: f64 = 0.06;

const EXAMPLES: &str = "\
Examples:
  tapline bench --quick                                     all workloads with fewer programs, under two minutes
  tapline bench                                             all workloads with every program and size, three times
  tapline bench table limit --runs 9                        two workloads, with more runs
  tapline bench papers --quick                              tables and figures of five documents, with ours
  tapline bench papers copies poll --resume                 two of them; the others stay as they are in the report
  tapline bench --limit -- tcpdump -i far0 -w /tmp/x.pcap   the highest rate without loss

The benchmark creates a network namespace with a virtual link, near0 to far0. It sends on near0 with `tapline generate`, and runs
one program after the other on far0. Nothing leaves the machine. Needs root, ip(8) and ethtool(8).";

/// Measure how much this machine can take: capture, filter and store at every rate, compared with other programs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Workloads: names (--list shows them), or files of your own. Default: all. `papers`, alone or followed by names of
    /// its sections: tables and figures of five documents, with ours
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Run fewer programs for less time: under two minutes for all workloads
    #[arg(long)]
    quick: bool,
    /// Runs of each case
    #[arg(long, value_name = "N", value_parser = count_in::<u16>(1..=1000))]
    runs: Option<u16>,
    /// Write the report to this file as HTML, and as JSON to a file of the same name that ends in .json
    #[arg(long, value_name = "FILE", default_value = "tapline-bench.html")]
    report: PathBuf,
    /// Print the results as JSON on standard output instead of tables
    #[arg(long)]
    json: bool,
    /// Put the files that programs write into this folder, up to a few GB at a time. Default: the folder of temporary
    /// files
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// With `papers`: keep finished sections of the report that is there
    #[arg(long)]
    resume: bool,
    /// List the workloads, or the sections of `papers`, and stop
    #[arg(long)]
    list: bool,
    /// Find the highest rate at which the command after `--` loses no packet, on interface far0
    #[arg(long, requires = "command", conflicts_with = "workloads", help_heading = "Limit")]
    limit: bool,
    /// Bytes of a frame
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = size_in::<u32>(1..=65_535), requires = "limit", help_heading = "Limit")]
    size: u32,
    /// Length of each run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration, requires = "limit", help_heading = "Limit")]
    seconds: Duration,
    /// Traffic: a recipe of `tapline generate` without size and rate
    #[arg(
        long,
        value_name = "RECIPE",
        default_value = "udp flows=100",
        requires = "limit",
        help_heading = "Limit"
    )]
    traffic: String,
    /// Command to measure: tapline, tcpdump, dumpcap, netsniff-ng or nfpcapd. Its own counters report its losses
    #[arg(last = true, value_name = "COMMAND", requires = "limit")]
    command: Vec<String>,
    /// Be the least program on top of libpcap: count packets of this interface until a signal ends it.
    #[arg(long, value_name = "IFACE", hide = true)]
    as_libpcap: Option<String>,
    #[arg(long, hide = true, default_value_t = 262_144)]
    snap: u32,
    #[arg(long, hide = true, default_value_t = 2 << 20)]
    ring: u32,
    #[arg(long, hide = true, default_value = "")]
    filter: String,
}

/// Runs `tapline bench`. `is_over` says whether to come to an end.
///
/// # Errors
/// If the rights or programs are missing, a workload makes no sense, or nothing could be measured. Accounts that do
/// not balance are not an error; they give exit status 1.
pub fn run(args: &BenchArgs, is_over: &(dyn Fn() -> bool + Sync)) -> Result<ExitCode> {
    if let Some(interface) = &args.as_libpcap {
        return count_with_libpcap(args, interface, is_over);
    }
    if let Some((PAPERS, sections)) = args.workloads.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        return papers(args, sections, is_over);
    }
    ensure!(!args.resume, "--resume is for `tapline bench papers`");
    let workloads = Workload::load(&args.workloads, args.quick)?;
    if args.list {
        show::list(&mut io::stdout(), &workloads)?;
        return Ok(ExitCode::SUCCESS);
    }
    let arena = Arena::new()
        .context("making a network namespace with a virtual link (it takes root: sudo tapline bench)")?;
    let folder = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = tempfile::Builder::new().prefix("tapline-bench-").tempdir_in(&folder);
    let scratch = scratch.with_context(|| format!("making a folder in {}", folder.display()))?;
    let mut bench = Bench {
        arena,
        tapline: std::env::current_exe()?,
        folder: scratch.path(),
        runs: args.runs.map_or(if args.quick { RUNS_QUICK } else { RUNS }, usize::from),
        resolution: if args.quick { RESOLUTION_QUICK } else { RESOLUTION },
        is_over,
        progress: Progress::new(),
        generators: Vec::new(),
    };
    if args.limit {
        return bench.limit_of(args);
    }
    let machine = bench.describe(&workloads, &folder);
    if !args.json {
        show::machine(&mut io::stdout(), &machine)?;
    }
    let mut done = Vec::new();
    for workload in workloads {
        if is_over() {
            break;
        }
        let result = bench.workload(workload)?;
        if !args.json {
            show::workload(&mut io::stdout(), &result)?;
        }
        done.push(result);
    }
    let results = Results::new(machine, done, is_over());
    if results.outcomes().next().is_none() && !results.is_interrupted {
        let reasons: Vec<&str> =
            results.workloads.iter().flat_map(|result| &result.left_out).map(String::as_str).collect();
        bail!("nothing could be measured: {}", reasons.join("; "));
    }
    conclude(args, &results)
}

/// Tables and figures of the documents.
fn papers(args: &BenchArgs, sections: &[String], is_over: &(dyn Fn() -> bool + Sync)) -> Result<ExitCode> {
    let folder = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let order = PapersOrder {
        sections,
        is_quick: args.quick,
        runs: args.runs.map(usize::from),
        report: &args.report,
        folder: &folder,
        is_json: args.json,
        resumes: args.resume,
        lists: args.list,
    };
    crate::papers::run(&order, is_over)
}

fn conclude(args: &BenchArgs, results: &Results) -> Result<ExitCode> {
    let json = serde_json::to_string_pretty(results)?;
    let beside = args.report.with_extension("json");
    for (path, text) in [(&args.report, html::page(results)?), (&beside, json.clone())] {
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    if args.json {
        writeln!(io::stdout(), "{json}")?;
    } else {
        show::verdicts(&mut io::stdout(), results)?;
    }
    let _ = writeln!(io::stderr(), "tapline: report in {} and {}", args.report.display(), beside.display());
    Ok(if results.is_balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything that runs need.
struct Bench<'a> {
    arena: Arena,
    tapline: PathBuf,
    folder: &'a Path,
    runs: usize,
    resolution: f64,
    is_over: &'a (dyn Fn() -> bool + Sync),
    progress: Progress,
    /// For each size, the generator's rate.
    generators: Vec<(u32, f64)>,
}

impl Bench<'_> {
    fn describe(&self, workloads: &[Workload], folder: &Path) -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let mut programs: Vec<Program> =
            workloads.iter().flat_map(|workload| workload.programs.clone()).collect();
        programs.sort_unstable();
        programs.dedup();
        let presence =
            |program: Program| Presence { program, version: program.version(), absence: program.absence() };
        Machine {
            processor: crate::machine::processor_name(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: text("/proc/sys/kernel/osrelease"),
            load: text("/proc/loadavg"),
            began: jiff::Timestamp::now().to_string(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            tsc_ghz: tapline_sys::tsc::frequency(Duration::from_millis(50)) / 1e9,
            cores: self.arena.cores,
            runs: self.runs,
            folder: folder.display().to_string(),
            file_system: file_system(folder),
            programs: programs.into_iter().map(presence).collect(),
        }
    }

    fn workload(&mut self, mut workload: Workload) -> Result<WorkloadResult> {
        let mut left_out: Vec<String> =
            workload.programs.iter().filter_map(|program| program.absence()).collect();
        workload.programs.retain(|program| program.absence().is_none());
        let mut cases = Vec::new();
        for case in workload.cases() {
            match case.program.refusal(&case, workload.store) {
                Some(refusal) if !left_out.iter().any(|known| known == refusal) => {
                    left_out.push(refusal.to_owned())
                }
                Some(_) => {}
                None => cases.push(case),
            }
        }
        let mut result = WorkloadResult { workload, cases: Vec::new(), limits: Vec::new(), left_out };
        match result.workload.kind {
            Kind::Matrix => self.matrix(&mut result, &cases)?,
            Kind::Limit => self.limits(&mut result, &cases)?,
        }
        self.progress.clear();
        Ok(result)
    }

    /// Programs that share everything else take turns.
    fn matrix(&mut self, result: &mut WorkloadResult, cases: &[Case]) -> Result<()> {
        let is_same = |one: &Case, other: &Case| {
            (one.size, one.snap, &one.filter, one.buffer)
                == (other.size, other.snap, &other.filter, other.buffer)
        };
        let mut failed: Vec<Program> = Vec::new();
        let mut at = 0;
        for group in cases.chunk_by(is_same) {
            let mut runs: Vec<Vec<TrialOutcome>> = vec![Vec::new(); group.len()];
            for round in 0..self.runs {
                for turn in 0..group.len() {
                    let index = (turn + round) % group.len();
                    let case = &group[index];
                    if (self.is_over)() || failed.contains(&case.program) {
                        continue;
                    }
                    at += 1;
                    self.progress.show(&result.workload.name, at, cases.len() * self.runs, case);
                    match self.trial(&result.workload, case, result.workload.rate) {
                        Ok(outcome) => runs[index].push(outcome),
                        Err(_) if (self.is_over)() => {}
                        Err(error) => {
                            result.left_out.push(format!("{}: {error:#}", case.program.name()));
                            failed.push(case.program);
                        }
                    }
                }
            }
            for (case, runs) in group.iter().zip(runs).filter(|(_, runs)| !runs.is_empty()) {
                result.cases.push(CaseResult { case: case.clone(), medians: Medians::of(&runs), runs });
            }
        }
        Ok(())
    }

    fn limits(&mut self, result: &mut WorkloadResult, cases: &[Case]) -> Result<()> {
        let mut found: Vec<Vec<Limit>> = vec![Vec::new(); cases.len()];
        // A search is many runs already.
        let rounds = self.runs.div_ceil(2);
        for round in 0..rounds {
            for turn in 0..cases.len() {
                let index = (turn + round) % cases.len();
                if (self.is_over)() {
                    continue;
                }
                self.progress.show(
                    &result.workload.name,
                    round * cases.len() + turn + 1,
                    rounds * cases.len(),
                    &cases[index],
                );
                let case = &cases[index];
                let (resolution, generators) = (self.resolution, self.generators(&result.workload, case));
                let search = limit::find(resolution, generators, |rate| {
                    ensure!(!(self.is_over)(), "it was ended");
                    self.trial(&result.workload, case, rate)
                });
                match search {
                    Ok(limit) => found[index].push(limit),
                    Err(_) if (self.is_over)() => {}
                    Err(error) => result.left_out.push(format!("{}: {error:#}", cases[index].program.name())),
                }
            }
        }
        for (case, searches) in cases.iter().zip(found).filter(|(_, searches)| !searches.is_empty()) {
            result.limits.push(LimitResult::of(case.clone(), searches));
        }
        Ok(())
    }

    fn trial(&mut self, workload: &Workload, case: &Case, rate: Option<u64>) -> Result<TrialOutcome> {
        let file = workload.store.then(|| self.folder.join("captured.pcap"));
        let order = CaptureOrder {
            interface: FAR,
            snap: case.snap,
            filter: &case.filter,
            store: file.as_deref(),
            buffer: u64::from(case.buffer) << 20,
        };
        let receiver = Receiver::new(case.program, &self.tapline, &order);
        let time = Duration::from_secs_f64(workload.seconds);
        // Limits are looked for with flow control: a link of 256 packets would otherwise lose at every disturbance of
        // the machine, at any rate.
        let patience = if workload.kind == Kind::Limit { PATIENCE } else { Duration::ZERO };
        let size = case.size.to_string();
        let load = Load { traffic: &workload.traffic, size: &size, rate, time, queue_timeout: patience };
        trial::run(&mut self.arena, &self.tapline, &receiver, &load)
    }

    /// The generator's own limit, where XDP drops every packet at once; no limit where that is not available.
    fn generators(&mut self, workload: &Workload, case: &Case) -> f64 {
        if let Some((_, rate)) = self.generators.iter().find(|(size, _)| *size == case.size) {
            return *rate;
        }
        let dropping = Case { program: Program::XdpDrop, ..case.clone() };
        let rate = self.trial(workload, &dropping, None).map_or(f64::INFINITY, |flood| flood.offered_rate());
        self.generators.push((case.size, rate));
        rate
    }

    /// The limit of a command of the user's.
    fn limit_of(&mut self, args: &BenchArgs) -> Result<ExitCode> {
        let name = args.command.first().map_or("", String::as_str);
        let program = Program::of_command(&args.command).with_context(|| {
            format!(
                "the losses of {name} are unknown: only tapline, tcpdump, dumpcap, netsniff-ng and nfpcapd report them"
            )
        })?;
        let is_sensible = !args.seconds.is_zero() && args.seconds <= Duration::from_secs(600);
        ensure!(is_sensible, "--seconds: more than 0, up to 600");
        let mut command = args.command.clone();
        if program.is_ours() && !command.iter().any(|argument| argument == "--json") {
            command.push("--json".to_owned());
        }
        let receiver = Receiver { program, command, is_filtered: false, file: None };
        let time = args.seconds;
        let dropping =
            Receiver { program: Program::XdpDrop, command: Vec::new(), is_filtered: false, file: None };
        let size = args.size.to_string();
        let load = |rate| Load { traffic: &args.traffic, size: &size, rate, time, queue_timeout: PATIENCE };
        let generators = trial::run(&mut self.arena, &self.tapline, &dropping, &load(None));
        let generators = generators.map_or(f64::INFINITY, |flood| flood.offered_rate());
        let found = limit::find(self.resolution, generators, |rate| {
            ensure!(!(self.is_over)(), "it was ended");
            let load = load(rate);
            let outcome = trial::run(&mut self.arena, &self.tapline, &receiver, &load)?;
            let verdict = if outcome.lost() == 0 {
                "no loss".to_owned()
            } else {
                format!("lost {}", grouped(outcome.lost() as f64))
            };
            let _ = writeln!(
                io::stderr(),
                "tapline: {:>11} packets/s: {verdict}",
                grouped(outcome.offered_rate())
            );
            Ok(outcome)
        })?;
        if args.json {
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&found)?)?;
        } else {
            show::limit(&mut io::stdout(), &found, args.size, args.seconds.as_secs_f64())?;
        }
        if let Some(fault) = found.probes.iter().find_map(|probe| probe.outcome.faults.first()) {
            bail!("an account does not balance: {fault}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Counts packets as the least program on top of libpcap does, and says how many, as JSON.
fn count_with_libpcap(
    args: &BenchArgs,
    interface: &str,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<ExitCode> {
    let pcap = Libpcap::get().map_err(|reason| anyhow!(reason))?;
    let settings = LiveSettings {
        interface,
        snap_len: args.snap,
        buffer: args.ring,
        timeout_ms: 100,
        filter: &args.filter,
    };
    let count = pcap.count_live(&settings, || (), is_over).map_err(|error| anyhow!(error))?;
    let (captured, received, dropped) = (count.captured, count.received, count.dropped);
    let said = serde_json::json!({ "captured": captured, "received": received, "dropped": dropped });
    writeln!(io::stdout(), "{said}")?;
    Ok(ExitCode::SUCCESS)
}

/// The file system of a folder, by its mount point: the longest that the folder's path begins with.
fn file_system(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let entries = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = entries.filter(|(place, _)| folder.starts_with(place));
    holding.max_by_key(|(place, _)| place.len()).map_or("unknown", |(_, kind)| kind).to_owned()
}
