//! Cost of counting cycles: the same graph over the same file, with and without.
//!
//! ```text
//! file -> all :: count -> filter("tcp") -> hosts :: top(by=host) -> drop         the engine's loop, in this thread
//!         measured: two readings of the clock and an add for each stage and batch | unmeasured: none
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use clap::Args;
use tapline_file::{FileInput, MergeOrder};
use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, GraphText, Plan, WorkerContext};
use tapline_graph::{Control, Engine, Inlet};
use tapline_measure::runs::Run;
use tapline_meters::Meters;
use tapline_packet::{ClockReading, Timestamp};
use tapline_sys::clock;
use tapline_sys::usage::thread_time;

use crate::Options;
use crate::file::{make_file, parse_size};
use crate::report::{Goal, Report, Series};

/// Ways that a graph may look like, from the cheapest on.
const GRAPHS: [(&str, &str); 2] = [
    ("count", "count -> drop"),
    ("filter and top", "all :: count -> filter(\"tcp\") -> hosts :: top(by=host) -> drop"),
];

#[derive(Clone, Debug, Args)]
pub(crate) struct AccountingArgs {
    /// Size of the file: bytes, or with k, M or G.
    #[arg(long, default_value = "256M", value_parser = parse_size)]
    size: u64,
}

impl Default for AccountingArgs {
    fn default() -> AccountingArgs {
        AccountingArgs { size: 256 << 20 }
    }
}

pub(crate) fn run(args: &AccountingArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let path = folder.path().join("traffic.pcap");
    let packets = make_file(&path, args.size)?;
    for (name, graph) in GRAPHS {
        let goal = Some(Goal::ShareOfTime(1.01));
        let mut series = Series::new(format!("accounting/{name}"), &["measured", "unmeasured"], goal);
        series.interleave(options.runs, |peer| once(&path, graph, peer == 0, packets))?;
        report.add(&series)?;
    }
    Ok(())
}

/// One run of a graph behind the file, in this thread.
pub(crate) fn once(path: &Path, graph: &str, is_measured: bool, packets: u64) -> anyhow::Result<Run> {
    let text = format!("file(\"{}\") -> {graph}", path.display());
    let plan = Plan::new(tapline_stages::catalog(), &[GraphText { name: "bench", text: &text }])
        .map_err(|error| anyhow!(error))?;
    let control = Arc::new(Control::new(None));
    let common = GraphSettings::default();
    let mut no_output = |_: usize| Err("there is no output here".to_owned());
    let context =
        WorkerContext { worker: 0, control: &control, common: &common, exits: None, output: &mut no_output };
    let (graph, nodes) = plan::build(&plan, &Meters::private(), context).map_err(|error| anyhow!(error))?;
    let mut graph = if is_measured { graph } else { graph.unmeasured() };
    let mut file = FileInput::new(vec![FileInput::open_file(path)?], MergeOrder::Given);
    let inlets = vec![Inlet::new(&mut file, nodes[0])];
    let (start, before) = (Instant::now(), thread_time());
    let outcome = Engine::new(inlets, &mut graph, &control, clock).run(&mut |_| {});
    let (cpu, wall) = (thread_time() - before, start.elapsed());
    let counted = outcome.account.stages.get(1).map_or(0, |stage| stage.received);
    ensure!(counted == packets, "{counted} of {packets} packets were counted");
    Ok(Run { cpu, wall, packets, lost: 0 })
}

fn clock() -> ClockReading {
    let wall = Timestamp::from_nanos(clock::realtime_ns());
    ClockReading { wall, steady_ns: i64::try_from(clock::monotonic_ns()).unwrap_or(i64::MAX) }
}
