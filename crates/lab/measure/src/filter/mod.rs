//! Cost of a filter: all engines side by side, on the same packets.
//!
//! ```text
//! filter text --libpcap--> libpcap's classic BPF --> libpcap's interpreter (a call per packet)
//!                                                --> the kernel's eBPF JIT (translated, not optimised)
//!             --Tapline--> Tapline's classic BPF --> Tapline's interpreter (a call per batch)
//!                                                --> the kernel's eBPF JIT (optimised by Tapline)
//!                                                --> native code (a call per packet; a call per batch)
//! packets: worst   256 frames of 64 bytes that pass every test of the filter and match the last one
//!          mixed   generated traffic of a small network
//!          FILE    packets of a capture file
//! ```
//!
//! On each set of packets all engines must accept the same packets; only then are they timed. The engines are timed in
//! turn, `runs` times each, so that a disturbance meets all of them; reports show the median of an engine's runs.

mod compile;
pub mod engines;
mod kernel;
mod libpcap_child;
mod native;
pub mod packets;
pub use libpcap_child::answered;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use tapline_arena::libpcap::{CompileSettings, Libpcap, LibpcapProgram};
use tapline_filter::{HandleKind, Options};
use tapline_packet::LinkType;
use tapline_syntax::units::count_in;

use crate::filters::{FILTERS, Filter};
use crate::runs::median;
use compile::CompileTimes;
use engines::{Cost, Engine};
use libpcap_child::LibpcapCompile;
use packets::Packets;
use table::Table;

/// Command-line arguments of `tapline filter bench`: filters, packets and duration.
#[derive(Clone, Debug, Args)]
pub struct FilterArgs {
    /// Filter in the pcap-filter language. Default: six built-in ones, from "ip" to ten hosts and ten ports.
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Also measure on the first packets of this capture file (pcap or pcapng, Ethernet).
    #[arg(short = 'r', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Duration of one run of one engine, in milliseconds, 1 to 60000.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = count_in::<u64>(1..=60_000))]
    pub time_ms: u64,
    /// Time limit for libpcap's compiler, in seconds, 1 to 3600. At this limit the compiler is killed. If it has no
    /// program by then, the engines that run libpcap's program are left out.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = count_in::<u64>(1..=3600))]
    pub libpcap_limit: u64,
    /// Print one JSON array instead of tables.
    #[arg(long)]
    pub json: bool,
}

impl Default for FilterArgs {
    fn default() -> FilterArgs {
        FilterArgs { filter: Vec::new(), file: None, time_ms: 50, libpcap_limit: 10, json: false }
    }
}

/// Measures every filter on every set of packets, with `runs` runs of each engine, and prints the result. In the child
/// that [`answered`] describes it only compiles. `confine` is called once all is loaded, before foreign packets are read.
///
/// # Errors
/// If a filter does not compile, the file cannot be read, or two engines accept different packets.
pub fn run(args: &FilterArgs, runs: usize, confine: impl FnOnce()) -> anyhow::Result<()> {
    if answered()? {
        return Ok(());
    }
    let typed = args.filter.join(" ");
    let is_empty = !args.filter.is_empty() && typed.trim().is_empty();
    anyhow::ensure!(
        !is_empty,
        "the empty filter accepts every packet: it is the baseline of the others; give one that tests something"
    );
    let one = [Filter { name: "filter", text: &typed, worst: None }];
    let filters = if args.filter.is_empty() { FILTERS } else { &one };
    let prepare = |filter: &Filter| {
        let libpcap = LibpcapCompile::run(filter.text, runs, Duration::from_secs(args.libpcap_limit))?;
        let compile_times = CompileTimes::measure(filter.text, runs)?;
        let subject = Subject::with_libpcap(filter.text, libpcap.program())?;
        anyhow::Ok((libpcap, compile_times, subject))
    };
    let filters = filters.iter().filter(|filter| !filter.text.trim().is_empty());
    let filters: Vec<_> =
        filters.map(|filter| Ok((filter, prepare(filter)?))).collect::<anyhow::Result<_>>()?;
    let empty = Subject::new("")?;
    let mut engines = filters
        .iter()
        .map(|(_, (_, _, subject))| Engines::load(subject, &empty))
        .collect::<anyhow::Result<Vec<_>>>()?;
    confine();
    let file = args.file.as_deref().map(Packets::of_file).transpose()?;
    let mixed = Packets::mixed();
    let mut table = Table::new(args.json);
    for ((filter, (libpcap, compile_times, subject)), engines) in filters.iter().zip(&mut engines) {
        table.filter(filter, subject, compile_times, libpcap);
        let worst = filter.worst.map(Packets::worst);
        for packets in worst.iter().chain([&mixed]).chain(&file) {
            let costs = engines
                .measure(packets, runs, Duration::from_millis(args.time_ms))
                .with_context(|| format!("{}, {}", filter.text, packets.name))?;
            table.engine_costs(packets, &costs);
        }
    }
    table.finish();
    Ok(())
}

/// One filter text as two programs of classic BPF: Tapline's and, where there is one, libpcap's.
pub struct Subject {
    /// Tapline's program, as a capture runs it.
    pub ours: tapline_ir::CompiledFilter,
    /// libpcap's program; `None` if libpcap is not installed, refuses the text, or took longer than the time limit.
    pub theirs: Option<LibpcapProgram>,
}

/// The cost of an engine per packet: the median of its runs, and the fastest run.
pub(crate) struct EngineCosts {
    pub(crate) engine: &'static str,
    pub(crate) median: Cost,
    pub(crate) least: Cost,
    /// Overhead: the median of the same engine with the empty filter, which accepts all packets, so only the loop and
    /// the calls are timed. `None` where `median` and `least` exclude it already ([`Engine::excludes_overhead`]).
    pub(crate) empty: Option<Cost>,
}

impl Subject {
    /// Compiles `text` for Ethernet with both compilers, without a time limit.
    ///
    /// # Errors
    /// If Tapline's compiler refuses the text.
    pub fn new(text: &str) -> anyhow::Result<Subject> {
        // Without libpcap's program only the engines that run Tapline's are measured.
        let theirs = Libpcap::get().ok().and_then(|pcap| pcap.compile(text, CompileSettings::new(1)).ok());
        Subject::with_libpcap(text, theirs.as_ref())
    }

    /// Compiles `text` with Tapline only; `theirs` is libpcap's program for the same text.
    fn with_libpcap(text: &str, theirs: Option<&LibpcapProgram>) -> anyhow::Result<Subject> {
        let options =
            Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
        let ours = tapline_filter::compile(text, &options).map_err(|error| anyhow!(error.render(text)))?;
        Ok(Subject { ours, theirs: theirs.cloned() })
    }
}

/// All engines of this machine with one filter, then the same engines with the empty filter.
struct Engines<'a> {
    all: Vec<Box<dyn Engine + 'a>>,
    with_filter: usize,
}

impl<'a> Engines<'a> {
    fn load(subject: &'a Subject, empty: &'a Subject) -> anyhow::Result<Engines<'a>> {
        let mut all = engines::all(subject)?;
        let with_filter = all.len();
        all.extend(engines::all(empty)?.into_iter().filter(|engine| !engine.excludes_overhead()));
        Ok(Engines { all, with_filter })
    }

    /// Checks that all engines accept the same packets, then times them in turn for `time` each, `runs` times, with
    /// the filter and with the empty one.
    fn measure(
        &mut self,
        packets: &Packets,
        runs: usize,
        time: Duration,
    ) -> anyhow::Result<Vec<EngineCosts>> {
        let Engines { all: engines, with_filter } = self;
        ensure_equal(&mut engines[..*with_filter], packets)?;
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); engines.len()];
        for round in 0..runs.max(1) {
            for turn in 0..engines.len() {
                let at = (turn + round) % engines.len();
                costs[at].push(engines[at].measure(packets, time)?);
            }
        }
        let mut all_costs: Vec<EngineCosts> = engines
            .iter()
            .zip(&costs)
            .map(|(engine, costs)| EngineCosts::new(engine.name(), costs))
            .collect();
        let empty_costs = all_costs.split_off(*with_filter);
        for one in &mut all_costs {
            one.empty = empty_costs.iter().find(|empty| empty.engine == one.engine).map(|empty| empty.median);
        }
        Ok(all_costs)
    }
}

impl EngineCosts {
    fn new(engine: &'static str, costs: &[Cost]) -> EngineCosts {
        let median = Cost { ns: median(costs.iter().map(|cost| cost.ns)) };
        let least = Cost { ns: costs.iter().map(|cost| cost.ns).fold(f64::INFINITY, f64::min) };
        EngineCosts { engine, median, least, empty: None }
    }

    /// Cost of the filter alone, in nanoseconds per packet: the median less that of the empty filter, at least 0.
    pub(crate) fn above_empty(&self) -> f64 {
        (self.median.ns - self.empty.map_or(0.0, |empty| empty.ns)).max(0.0)
    }
}

/// Fails unless every engine accepts the same packets as the first.
fn ensure_equal(engines: &mut [Box<dyn Engine + '_>], packets: &Packets) -> anyhow::Result<()> {
    let Some((first, others)) = engines.split_first_mut() else { return Ok(()) };
    let expected = first.verdicts(packets)?;
    for engine in others {
        let verdicts = engine.verdicts(packets)?;
        let differs = expected.iter().zip(&verdicts).position(|(a, b)| a != b);
        ensure!(
            differs.is_none() && expected.len() == verdicts.len(),
            "{} and {} differ on packet {} of {}",
            first.name(),
            engine.name(),
            differs.unwrap_or(0) + 1,
            packets.name
        );
    }
    Ok(())
}
