//! `tapline profile`: the cost of a packet here, component by component; what time stamps and small things cost; two
//! profiles side by side.
//!
//! ```text
//! -i, -r, -e  --> text --> work: opened, driven, measured --> Breakdown --> table, JSON, SVG
//! --timestamps, --micro --> measurements of their own        --compare A B --> two saved breakdowns
//! ```

mod text;
mod work;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use tapline_measure::{costs, micro};
use tapline_meters::{Breakdown, StampMode, compare, measure_stamps, stamps_to_text, tasks_to_text};
use tapline_syntax::units::count_in;
use tapline_sys::sandbox::{AllowedAccess, folder_of};
use tapline_sys::{disk, output_file};

use crate::args::{LanguageArgs, parse_interval};
use crate::live::XdpArgs;
use crate::mistakes::misuse;
use crate::privileges;
use crate::report::{self, AccountForm};

/// Default length of a live profile.
const DURATION: Duration = Duration::from_secs(10);
/// Default time for which errors of time stamps are observed.
const STAMPS_DURATION: Duration = Duration::from_secs(2);

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline profile -r trace.pcapng 'tcp port 443'                  read, filter, count: cycles a packet of each
  tapline profile -r trace.pcapng -w out.pcapng --svg costs.svg   with a file written, and a picture
  tapline profile -i eth0 -e 'top(by=flow)' --duration 30s        a graph behind an interface
  tapline profile -i eth0 udp --json > kernel.json
  tapline profile -i eth0 udp --no-kernel-filter --json > user.json
  tapline profile --compare kernel.json user.json --svg both.svg  side by side
  tapline profile -r trace.pcapng --interpret 'port 53 or port 80' --json > interpreted.json
  tapline profile --timestamps                                    cost and error of each time stamp mode
  tapline profile --micro                                         a call, a stage, a copy, a wake-up: FFPF's Table 1, here

docs/costs.md explains how each figure is measured.";

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Capture on this interface, for 10 seconds unless --duration is given.
    #[arg(short, long, value_name = "NAME", help_heading = "Work")]
    interface: Option<String>,
    #[command(flatten)]
    xdp: XdpArgs,
    /// Read packets from this file.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Work", conflicts_with = "interface")]
    read: Option<PathBuf>,
    /// Stages behind source and filter (default: count); without -i and -r a whole graph.
    #[arg(short = 'e', value_name = "GRAPH", help_heading = "Work")]
    graph: Option<String>,
    /// Write accepted packets to this file.
    #[arg(short, long, value_name = "FILE", help_heading = "Work", conflicts_with = "graph")]
    write: Option<PathBuf>,
    /// Stop after this time. With --timestamps: time for which errors are measured (default 2s).
    #[arg(long, value_name = "TIME", help_heading = "Work", value_parser = parse_interval)]
    duration: Option<Duration>,
    /// Source of time stamps with -i: kernel, tsc, tsc-sync, batch. Except for kernel, their cost is a component of its
    /// own.
    #[arg(short = 'j', long, value_name = "MODE", default_value_t, help_heading = "Work")]
    time_stamp_type: StampMode,
    /// Run filters in the interpreter, not as native code.
    #[arg(long, help_heading = "Work")]
    interpret: bool,
    #[command(flatten)]
    language: LanguageArgs,
    /// Run filters in this process, where each is timed, and not in the kernel.
    #[arg(long, help_heading = "Work")]
    no_kernel_filter: bool,
    /// Open devices in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME", help_heading = "Work")]
    netns: Option<String>,
    /// Run as this user once everything is open. Default: the caller of sudo, if any.
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Work")]
    relinquish_privileges: Option<String>,

    /// Title of the run in tables and pictures.
    #[arg(long, value_name = "TEXT", help_heading = "Reports")]
    title: Option<String>,
    /// Print the profile as one JSON object.
    #[arg(long, help_heading = "Reports")]
    json: bool,
    /// Draw stacked bars into this SVG file.
    #[arg(long, value_name = "FILE", help_heading = "Reports", conflicts_with_all = ["timestamps", "micro"])]
    svg: Option<PathBuf>,

    /// Compare two profiles that were saved with --json.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2, help_heading = "Instead", conflicts_with_all = WORK)]
    compare: Option<Vec<PathBuf>>,
    /// Measure the time stamp modes: cost, error, and steps backwards.
    #[arg(long, help_heading = "Instead", conflicts_with_all = WORK)]
    timestamps: bool,
    /// Measure single operations: a call of a filter or stage, storing a packet, waking a thread, searching, filters by
    /// engine.
    #[arg(long, help_heading = "Instead", conflicts_with_all = WORK)]
    micro: bool,
    /// Runs of each operation of --micro, 1 to 100000.
    #[arg(long, value_name = "N", default_value_t = 501, help_heading = "Instead", value_parser = count_in::<usize>(1..=100_000))]
    runs: usize,

    /// The filter, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// Options that give work to profile.
const WORK: [&str; 5] = ["interface", "read", "graph", "write", "filter"];

pub(crate) fn run(args: &ProfileArgs) -> Result<ExitCode> {
    match (&args.compare, args.timestamps, args.micro) {
        (Some(files), false, false) => side_by_side(args, files)?,
        (None, true, false) => timestamps(args)?,
        (None, false, true) => small_tasks(args)?,
        (None, false, false) => return profile(args),
        _ => misuse!("--compare, --timestamps and --micro are one at a time"),
    }
    Ok(ExitCode::SUCCESS)
}

fn profile(args: &ProfileArgs) -> Result<ExitCode> {
    let (measured, code) = work::run(args)?;
    if !args.json {
        io::stderr().write_all(report::text(&measured.account, AccountForm::Auto).as_bytes())?;
    }
    let breakdown = costs::breakdown(&measured);
    if breakdown.packets == 0 {
        bail!("no packet came, so there is no cost of one");
    }
    let facts = costs::facts(&measured);
    draw(args, std::slice::from_ref(&breakdown))?;
    let mut out = io::stdout().lock();
    if args.json {
        let mut value: Value = serde_json::from_str(&breakdown.to_json())?;
        value["facts"] = serde_json::to_value(&facts)?;
        value["account"] = report::json(&measured.account)["account"].take();
        writeln!(out, "{value}")?;
    } else {
        write!(out, "{}\n{}", breakdown.to_text(), facts.to_text())?;
    }
    Ok(code)
}

fn draw(args: &ProfileArgs, runs: &[Breakdown]) -> Result<()> {
    let Some(path) = &args.svg else { return Ok(()) };
    let picture = costs::picture(runs)?;
    let written = output_file::create(path).and_then(|mut file| file.write_all(picture.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn side_by_side(args: &ProfileArgs, files: &[PathBuf]) -> Result<()> {
    let makes = args.svg.as_deref().and_then(folder_of).map(Path::to_owned).into_iter().collect();
    privileges::confine_quietly(&AllowedAccess { reads: files.to_vec(), makes, ..AllowedAccess::default() });
    let runs = files.iter().map(|path| saved(path)).collect::<Result<Vec<_>>>()?;
    draw(args, &runs)?;
    let [before, after] = runs.as_slice() else { misuse!("--compare takes two files") };
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{{\"before\":{},\"after\":{}}}", before.to_json(), after.to_json())?,
        false => write!(out, "{}", compare(before, after))?,
    }
    Ok(())
}

/// The most bytes of a saved breakdown.
const SAVED_MAX: u64 = 16 << 20;

fn saved(path: &Path) -> Result<Breakdown> {
    let bytes =
        disk::read_at_most(path, SAVED_MAX).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes).with_context(|| format!("cannot read {}", path.display()))?;
    Breakdown::from_json(&text).with_context(|| path.display().to_string())
}

fn timestamps(args: &ProfileArgs) -> Result<()> {
    let reports = measure_stamps(args.duration.unwrap_or(STAMPS_DURATION));
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&reports)?)?,
        false => write!(out, "{}", stamps_to_text(&reports))?,
    }
    Ok(())
}

fn small_tasks(args: &ProfileArgs) -> Result<()> {
    let reports = micro::measure(args.runs)?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&reports)?)?,
        false => {
            let text = tasks_to_text(&reports, "FFPF: cycles at 1.2 GHz (OSDI'04, Table 1)");
            write!(out, "{}\n\n{text}", tapline_meters::Clock::get())?;
        }
    }
    Ok(())
}
