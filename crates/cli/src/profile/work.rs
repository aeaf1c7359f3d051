//! The work that is profiled: its graph, driven as `tapline run` drives it, and everything that can be read before and after.
//!
//! ```text
//! live: kernel's counters without the tap (baseline) --> sources opened --> [ engine ] --> counters again
//! file:                                                  sources opened --> [ engine ]
//!                                                                           measured
//! ```

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tapline_capture::af_packet::KernelRuns;
use tapline_graph::catalog::Common;
use tapline_graph::plan::{self, Maker, Plan, Source};
use tapline_graph::{Control, Engine, GraphAccount, Inlet};
use tapline_profile::{KernelCounters, Meters, Scheduling, Snapshot, merge_workers};
use tapline_sys::bpf::RunTimeStatistics;
use tapline_sys::usage::{CpuTime, Switches, process_time, thread_time};
use tapline_sys::{NetNs, Poller, RouteSocket, tsc};

use super::{DURATION, ProfileArgs};
use crate::args::SNAP_LEN;
use crate::compiler::{Compiler, filter_text};
use crate::live::bare_name;
use crate::run::opening::How;
use crate::run::{code, opening, sending};
use crate::session::{clocks, stop_after, title as process_title};
use crate::{privileges, signals};

/// The kernel is watched without the tap for a quarter of the time, and no longer than this.
const BASELINE_MAX: Duration = Duration::from_secs(3);
/// Groups of waits by which the cost of one is measured, of which the median counts; the waits of each; and how long each takes.
const GROUPS: usize = 9;
const WAITS: u32 = 25;
const WAIT: Duration = Duration::from_micros(50);
/// Readings of the clock in each group.
const READINGS: u32 = 1000;

/// A run, and all that was read of it.
pub(super) struct Measured {
    pub(super) title: String,
    pub(super) is_live: bool,
    /// How many sources there are.
    pub(super) sources: usize,
    pub(super) account: GraphAccount,
    /// Packets that the interfaces counted meanwhile, taken or not.
    pub(super) offered: Option<u64>,
    /// Stages, sources first.
    pub(super) stages: Vec<Snapshot>,
    /// Ticks of the loop, awake.
    pub(super) ticks: u64,
    pub(super) frequency_hz: f64,
    pub(super) spent: Spent,
    pub(super) kernel: KernelCounters,
    /// Of the same machine without the tap.
    pub(super) baseline: Option<KernelCounters>,
    /// What one wait for packets costs in processor time.
    pub(super) wait_cost: Duration,
    /// Ticks that giving packets their times took here.
    pub(super) stamp_ticks: u64,
    /// Ticks of one reading of the system's clock, as the kernel does for each packet before the tap.
    pub(super) clock_ticks: f64,
    /// Runs of the filter in the kernel, and nanoseconds that they took by its own word.
    pub(super) kernel_filter: Option<(u64, u64)>,
}

/// What the process used between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) wall: Duration,
    /// All threads of the process.
    pub(super) cpu: Duration,
    pub(super) by_mode: CpuTime,
    pub(super) switches: Switches,
    /// Of the thread of the engine.
    pub(super) scheduling: Option<Scheduling>,
}

struct Start {
    moment: Instant,
    cpu: Duration,
    by_mode: CpuTime,
    switches: Switches,
    scheduling: Option<Scheduling>,
}

impl Start {
    fn now() -> Start {
        let (scheduling, switches) = (Scheduling::of_thread(), Switches::of_process());
        let by_mode = CpuTime::of_process();
        Start { scheduling, switches, by_mode, moment: Instant::now(), cpu: process_time() }
    }

    fn spent(self) -> Spent {
        let (cpu, wall) = (process_time(), self.moment.elapsed());
        Spent {
            wall,
            cpu: cpu.saturating_sub(self.cpu),
            by_mode: CpuTime::of_process().since(self.by_mode),
            switches: Switches::of_process().since(self.switches),
            scheduling: Scheduling::of_thread().zip(self.scheduling).map(|(now, then)| now.since(then)),
        }
    }
}

/// Runs the work and measures it.
pub(super) fn run(args: &ProfileArgs) -> Result<(Measured, ExitCode)> {
    let text = graph_text(args)?;
    let mut plan =
        Plan::new(&[Source { name: "profile", text: &text }]).map_err(|error| anyhow!("{error}"))?;
    if args.no_kernel_filter {
        plan.filter_in_user_space();
    }
    let devices: Vec<&str> = plan
        .nodes
        .iter()
        .filter(|node| node.class.name == "device")
        .map(|node| bare_name(node.arguments.text("interface")))
        .collect();
    let is_live = !devices.is_empty();
    let duration = args.duration.or(is_live.then_some(DURATION));
    let how = How {
        netns: args.netns.clone(),
        xdp: args.xdp,
        kernel_runs: (is_live && !args.no_kernel_filter).then(KernelRuns::default),
        ..How::default()
    };
    // While this lives. Without the right for it the table says less.
    let _statistics = how.kernel_runs.as_ref().map(|_| RunTimeStatistics::enable());
    let wait_cost = wait_cost()?;
    let baseline = duration.filter(|_| is_live).map(baseline);

    let control = Arc::new(Control::new(None));
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    let compiler = Arc::new(Compiler::new(SNAP_LEN, true, args.language, is_live, args.netns.as_deref()));
    let caught = signals::catch()?;
    let mut opened = opening::sources(&how, &plan, &compiler, &control)?;
    let offered_before = interface_packets(&devices, args.netns.as_deref());
    let interfaces = opening::interfaces(opened.iter().map(AsRef::as_ref));
    opening::check_filters(&plan, &compiler, &interfaces)?;
    sending::check(&how, &plan, &interfaces)?;
    let mut outputs = opening::open_outputs(&how, &plan, &interfaces, identity.as_ref())?;
    let meters = Meters::create(&process_title());
    privileges::give_up(identity.as_ref())?;
    caught.obey(Arc::clone(&control))?;
    let common = Common {
        options: Arc::new(move |interface| compiler.options(interface)),
        workers: 1,
        interpret: args.interpret,
        directory: PathBuf::new(),
    };
    let mut take = |node: usize| Ok(outputs.remove(&node).expect("each output of the plan was opened"));
    let maker = Maker { worker: 0, control: &control, common: &common, exits: None, output: &mut take };
    let (mut graph, nodes) = plan::build(&plan, &meters, maker).map_err(|error| anyhow!(error))?;
    let inlets: Vec<Inlet<'_>> =
        opened.iter_mut().zip(nodes).map(|(source, node)| Inlet::new(source.as_mut(), node)).collect();
    let sources = inlets.len();
    let engine = Engine::new(inlets, &mut graph, &control, clocks);
    if let Some(duration) = duration {
        stop_after(duration, Arc::clone(&control));
    }
    let (kernel, start) = (KernelCounters::read(), Start::now());
    let outcome = engine.run(&mut |watch| {
        for event in watch.events.iter().filter(|event| event.warning) {
            let _ = writeln!(io::stderr(), "tapline: warning: {} {}", event.interface, event.text);
        }
    });
    let spent = start.spent();
    let kernel = KernelCounters::read().since(&kernel);
    let offered = interface_packets(&devices, args.netns.as_deref())
        .zip(offered_before)
        .map(|(after, before)| after.saturating_sub(before));
    let measured = Measured {
        title: args.title.clone().unwrap_or_else(|| title(args)),
        is_live,
        sources,
        account: outcome.account,
        offered,
        stages: merge_workers(&meters.snapshot()),
        ticks: outcome.ticks,
        frequency_hz: frequency_hz(),
        spent,
        kernel,
        baseline,
        wait_cost,
        stamp_ticks: how.stamp_ticks.get(),
        clock_ticks: clock_ticks(),
        kernel_filter: how.kernel_runs.as_ref().and_then(KernelRuns::read),
    };
    Ok((measured, code(&outcome.ended, 1)))
}

/// The graph as a text: source, filter, and what follows.
fn graph_text(args: &ProfileArgs) -> Result<String> {
    let filter = filter_text(None, &args.filter)?;
    let source = match (&args.interface, &args.read, &args.graph) {
        (Some(interface), _, _) => format!("device({}, stamp={})", quoted(interface), args.time_stamp_type),
        (_, Some(file), _) => format!("file({})", quoted(path_text(file)?)),
        (None, None, Some(_)) if !filter.is_empty() || args.write.is_some() => {
            bail!("a whole graph has its own filter and outputs; give -i or -r to put -e behind a source")
        }
        (None, None, Some(graph)) => return Ok(graph.clone()),
        (None, None, None) => {
            bail!(
                "what is to be profiled? -i INTERFACE, -r FILE or -e GRAPH; or --timestamps, --micro, --compare"
            )
        }
    };
    let filter = if filter.is_empty() { String::new() } else { format!(" -> filter({})", quoted(&filter)) };
    let rest = match (&args.graph, &args.write) {
        (Some(graph), _) => graph.clone(),
        (None, Some(path)) => format!("count -> record({})", quoted(path_text(path)?)),
        (None, None) => "count".to_owned(),
    };
    Ok(format!("{source}{filter} -> {rest}"))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| anyhow!("{}: a graph cannot name a file that is not UTF-8", path.display()))
}

/// A text of the graph language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn title(args: &ProfileArgs) -> String {
    let source = match (&args.interface, &args.read) {
        (Some(interface), _) => interface.clone(),
        (_, Some(file)) => file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
        _ => "graph".to_owned(),
    };
    let filter = args.filter.join(" ");
    let mut title =
        [source, filter].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    if args.no_kernel_filter {
        title += ", no kernel filter";
    }
    title
}

/// What the kernel counts while nobody listens.
fn baseline(duration: Duration) -> KernelCounters {
    let before = KernelCounters::read();
    thread::sleep((duration / 4).min(BASELINE_MAX));
    KernelCounters::read().since(&before)
}

/// Packets that these interfaces have received and sent; `None` where patterns or the kernel leave that open.
fn interface_packets(names: &[&str], netns: Option<&str>) -> Option<u64> {
    let links = || RouteSocket::open().and_then(|mut socket| socket.links());
    let links = match netns {
        None => links().ok()?,
        Some(name) => NetNs::open(name).ok()?.run(links).ok()?.ok()?,
    };
    let of = |name: &&str| {
        let counted = links.iter().find(|link| link.name == **name)?.statistics?;
        Some(counted.rx_packets + counted.tx_packets)
    };
    (!names.is_empty()).then(|| names.iter().map(of).sum::<Option<u64>>()).flatten()
}

/// Processor time of one wait that ends by itself: the call, sleep, and waking up.
fn wait_cost() -> Result<Duration> {
    let mut poller = Poller::new();
    let mut group = || -> Result<Duration> {
        let before = thread_time();
        for _ in 0..WAITS {
            poller.wait(WAIT)?;
        }
        Ok((thread_time() - before) / WAITS)
    };
    let mut costs = (0..GROUPS).map(|_| group()).collect::<Result<Vec<_>>>()?;
    costs.sort();
    Ok(costs[GROUPS / 2])
}

/// Of one reading of the system's clock: the median of some.
fn clock_ticks() -> f64 {
    let mut times: Vec<u64> = (0..GROUPS)
        .map(|_| {
            let start = tsc::now();
            (0..READINGS).for_each(|_| {
                std::hint::black_box(tapline_sys::clock::realtime_ns());
            });
            tsc::now().wrapping_sub(start)
        })
        .collect();
    times.sort_unstable();
    times[GROUPS / 2] as f64 / READINGS as f64
}

/// Of the counter that meters are kept in.
fn frequency_hz() -> f64 {
    let clock = tapline_profile::Clock::get();
    match clock.kind() {
        tapline_profile::ClockKind::Monotonic => tsc::frequency(Duration::from_millis(20)),
        _ => clock.frequency_hz(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_graph_language_are_quoted() {
        assert_eq!(quoted(r#"a "b" \c"#), r#""a \"b\" \\c""#);
    }

    #[test]
    fn a_wait_costs_something() {
        assert!(wait_cost().unwrap() > Duration::ZERO);
    }
}
