//! Cost of a filter: all engines side by side, on the same packets.
//!
//! ```text
//! filter --libpcap--> its program --> libpcap's interpreter, the kernel's JIT          the peers
//!        --ours-----> our program --> interpreted, native one packet a call, native a batch a call
//! packets: worst   256 frames of 64 bytes that go through every test of the filter
//!          mixed   frames of a small network       FILE  real ones
//! ```
//!
//! Every engine's verdicts are compared before anything is measured. Runs of the engines take turns; the median counts.

mod compile;
pub mod engines;
mod kernel;
mod native;
pub mod packets;
mod peer;
pub use peer::answered;
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
use compile::Compiling;
use engines::{Cost, Engine};
use packets::Packets;
use peer::Peer;
use table::Table;

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct FilterArgs {
    /// The filter. By default those of the papers (3, 21 and 50 instructions) and a few common ones.
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Measure on the packets of this file too (pcap or pcapng, Ethernet).
    #[arg(short = 'r', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Length of each run of an engine, in milliseconds, 1 to 60000.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = count_in::<u64>(1..=60_000))]
    pub time_ms: u64,
    /// Time limit for libpcap's compiler, in seconds, 1 to 3600; beyond it the compiler is ended, and the other engines are
    /// measured without it.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = count_in::<u64>(1..=3600))]
    pub libpcap_limit: u64,
    /// One JSON array instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Default for FilterArgs {
    fn default() -> FilterArgs {
        FilterArgs { filter: Vec::new(), file: None, time_ms: 50, libpcap_limit: 10, json: false }
    }
}

/// Measures all and prints the result.
///
/// # Errors
/// If a filter or a file cannot be read, or two engines give different verdicts.
pub fn run(args: &FilterArgs, runs: usize) -> anyhow::Result<()> {
    if peer::answered()? {
        return Ok(());
    }
    let typed = args.filter.join(" ");
    let is_empty = !args.filter.is_empty() && typed.trim().is_empty();
    anyhow::ensure!(
        !is_empty,
        "the empty filter is what all others are compared with: give one that asks something"
    );
    let one = [Filter { name: "filter", text: &typed, worst: None }];
    let filters = if args.filter.is_empty() { FILTERS } else { &one };
    let file = args.file.as_deref().map(Packets::of_file).transpose()?;
    let mixed = Packets::mixed();
    let empty = Subject::new("")?;
    let mut table = Table::new(args.json);
    for filter in filters.iter().filter(|filter| !filter.text.trim().is_empty()) {
        let peer = Peer::compile(filter.text, runs, Duration::from_secs(args.libpcap_limit))?;
        let compiling = Compiling::measure(filter.text, runs)?;
        let subject = Subject::beside(filter.text, peer.program())?;
        table.filter(filter, &subject, &compiling, &peer);
        let worst = filter.worst.map(Packets::worst);
        for packets in worst.iter().chain([&mixed]).chain(&file) {
            let series = subject
                .measure(&empty, packets, runs, Duration::from_millis(args.time_ms))
                .with_context(|| format!("{}, {}", filter.text, packets.name))?;
            table.series(packets, &series);
        }
    }
    table.finish();
    Ok(())
}

/// A filter, compiled by Tapline and by libpcap.
pub struct Subject {
    /// The compiled filter: the object that captures run.
    pub ours: tapline_ir::CompiledFilter,
    /// The program of libpcap's compiler; `None` without libpcap, or if it refuses the text.
    pub theirs: Option<LibpcapProgram>,
}

/// One engine's costs: the median of its runs, and the best.
pub(crate) struct Series {
    pub(crate) engine: &'static str,
    pub(crate) median: Cost,
    pub(crate) least: Cost,
    /// The median of the same engine with the empty filter, which accepts all: what its loop and its calls cost. `None` where the figure is
    /// without them already.
    pub(crate) empty: Option<Cost>,
}

impl Subject {
    /// Compiles `text` for Ethernet.
    ///
    /// # Errors
    /// If Tapline's compiler refuses the text.
    pub fn new(text: &str) -> anyhow::Result<Subject> {
        // Without libpcap, or where it knows no such filter, our engines are measured alone.
        let theirs = Libpcap::get().ok().and_then(|pcap| pcap.compile(text, CompileSettings::new(1)).ok());
        Subject::beside(text, theirs.as_ref())
    }

    /// Our program, beside one of libpcap that is there already.
    fn beside(text: &str, theirs: Option<&LibpcapProgram>) -> anyhow::Result<Subject> {
        let options =
            Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
        let ours = tapline_filter::compile(text, &options).map_err(|error| anyhow!(error.render(text)))?;
        Ok(Subject { ours, theirs: theirs.cloned() })
    }

    /// All engines take turns, with this filter and with the empty one.
    fn measure(
        &self,
        empty: &Subject,
        packets: &Packets,
        runs: usize,
        time: Duration,
    ) -> anyhow::Result<Vec<Series>> {
        let mut engines = engines::all(self)?;
        ensure_equal(&mut engines, packets)?;
        let filters = engines.len();
        engines.extend(engines::all(empty)?.into_iter().filter(|engine| !engine.is_above_empty()));
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); engines.len()];
        for round in 0..runs.max(1) {
            for turn in 0..engines.len() {
                let at = (turn + round) % engines.len();
                costs[at].push(engines[at].measure(packets, time)?);
            }
        }
        let mut series: Vec<Series> =
            engines.iter().zip(&costs).map(|(engine, costs)| Series::new(engine.name(), costs)).collect();
        let of_empty = series.split_off(filters);
        for one in &mut series {
            one.empty = of_empty.iter().find(|empty| empty.engine == one.engine).map(|empty| empty.median);
        }
        Ok(series)
    }
}

impl Series {
    fn new(engine: &'static str, costs: &[Cost]) -> Series {
        let median = Cost { ns: median(costs.iter().map(|cost| cost.ns)) };
        let least = Cost { ns: costs.iter().map(|cost| cost.ns).fold(f64::INFINITY, f64::min) };
        Series { engine, median, least, empty: None }
    }

    /// Nanoseconds that a packet takes more than with the empty filter.
    pub(crate) fn above_empty(&self) -> f64 {
        (self.median.ns - self.empty.map_or(0.0, |empty| empty.ns)).max(0.0)
    }
}

/// Every engine accepts the same packets.
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
