//! Sets of filters: what a packet costs as the number of filters grows, and what changes cost while packets flow.
//!
//! ```text
//! five-tuples   1, 10, 100, 1,000, 10,000 filters of one flow each; three packets of four belong to one of them
//! mixed         1,000 filters of many kinds on the traffic of a small network
//! readers       1, 4, 16 filters as those of `readers`, likewise
//! programs      10, 100 filters that compute with packet bytes: each is asked by its own program, interpreted and as native code
//! exact rules   none, 1,000, 1,000,000 rules of the stage `rules` for one flow each, with the parsing of flows; bytes a rule in place of layouts
//! ports         one filter, port 1 or port 2 ... or port n
//! updates       100,000 five-tuple filters: insert, remove, replace; then the same with a worker that classifies meanwhile
//! ```
//!
//! Before a set is measured its answer is compared with its filters' programs, run one by one.

mod exact;
mod updates;
mod workload;

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use tapline_filterset::{FilterSet, Matches};
use tapline_ir::CompiledFilter;
use tapline_packet::{BATCH_MAX, Batch, Selection};
use tapline_sys::usage::thread_time;
use tapline_testkit::frame_batches::FrameBatches;

use tapline_measure::runs::median;
use workload::Workload;

/// Measurements of this part.
#[derive(Clone, Debug, Args)]
pub(crate) struct SetsArgs {
    /// Different packets, gone through over and over.
    #[arg(long, default_value_t = 4096)]
    packets: usize,
    /// Length of one run, in milliseconds.
    #[arg(long, default_value_t = 50)]
    time_ms: u64,
    /// Five-tuple filters that are installed while changes are measured.
    #[arg(long, default_value_t = 100_000)]
    installed: usize,
}

impl Default for SetsArgs {
    fn default() -> SetsArgs {
        SetsArgs { packets: 4096, time_ms: 50, installed: 100_000 }
    }
}

/// Measures all and prints the result.
pub(crate) fn run(args: &SetsArgs, runs: usize) -> anyhow::Result<()> {
    let ticks_per_ns = tapline_sys::tsc::frequency(Duration::from_millis(20)) / 1e9;
    println!(
        "sets of filters, {} packets in batches of {BATCH_MAX}; processor time, medians of {runs} interleaved runs",
        args.packets
    );
    println!(
        "    {:<22} {:>8} {:>10} {:>8} {:>9} {:>8}",
        "filters", "layouts", "ns/packet", "cycles", "matches", "ratio"
    );
    let counts = [1, 10, 100, 1000, 10_000];
    let five_tuples = counts.iter().map(|count| Workload::five_tuples(*count, args.packets));
    measure(five_tuples.collect::<anyhow::Result<_>>()?, args, runs, ticks_per_ns)?;
    measure(vec![Workload::mixed(1000, args.packets)?], args, runs, ticks_per_ns)?;
    let readers = [1, 4, 16].iter().map(|count| Workload::readers(*count, args.packets));
    measure(readers.collect::<anyhow::Result<_>>()?, args, runs, ticks_per_ns)?;
    for count in [10, 100] {
        measure(Workload::programs(count, args.packets)?, args, runs, ticks_per_ns)?;
    }
    exact::run(args, runs, ticks_per_ns)?;
    let ports = [10, 100, 1000].iter().map(|count| Workload::ports(*count, args.packets));
    measure(ports.collect::<anyhow::Result<_>>()?, args, runs, ticks_per_ns)?;
    updates::run(args.installed)
}

/// Workloads that belong together; the ratio is that to the one of ten.
fn measure(mut all: Vec<Workload>, args: &SetsArgs, runs: usize, ticks_per_ns: f64) -> anyhow::Result<()> {
    for workload in &mut all {
        ensure_equal(workload)?;
    }
    let time = Duration::from_millis(args.time_ms);
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    for round in 0..runs.max(1) {
        for turn in 0..all.len() {
            let at = (turn + round) % all.len();
            costs[at].push(all[at].spin(time));
        }
    }
    let medians: Vec<f64> = costs.iter().map(|costs| median(costs.iter().copied())).collect();
    let ten = all.iter().position(|workload| workload.count == 10);
    for (workload, ns) in all.iter().zip(&medians) {
        let ratio = ten.map_or(String::new(), |ten| format!("{:.2}", ns / medians[ten]));
        let per_packet = workload.matches as f64 / workload.pool.len() as f64;
        println!(
            "    {:<22} {:>8} {ns:>10.1} {:>8.0} {per_packet:>9.2} {ratio:>8}",
            workload.name,
            workload.set.table_count(),
            ns * ticks_per_ns
        );
    }
    println!();
    Ok(())
}

impl Workload {
    /// Nanoseconds of processor time a packet, classifying over and over for `time`.
    fn spin(&mut self, time: Duration) -> f64 {
        let (mut matches, mut packets) = (Matches::new(), 0);
        let (start, before) = (Instant::now(), thread_time());
        while start.elapsed() < time {
            packets += classify(&mut self.set, &self.pool, &mut matches, |_, _| {});
        }
        (thread_time() - before).as_nanos() as f64 / packets as f64
    }
}

/// Classifies all batches. Gives the number of packets.
fn classify(
    set: &mut FilterSet,
    pool: &FrameBatches,
    matches: &mut Matches,
    mut see: impl FnMut(&Batch<'_>, &Matches),
) -> usize {
    let mut selection = Selection::none();
    for batch in pool.batches() {
        selection.select_all(batch.len());
        set.classify(&batch, &selection, matches);
        see(&batch, matches);
    }
    pool.len()
}

/// Every packet matches the filters whose programs accept it, and no others.
fn ensure_equal(workload: &mut Workload) -> anyhow::Result<()> {
    let programs: &[(u32, CompiledFilter)] = &workload.programs;
    let (mut matches, mut wrong, mut total) = (Matches::new(), 0, 0);
    classify(&mut workload.set, &workload.pool, &mut matches, |batch, matches| {
        for packet in 0..batch.len() {
            let accepts = |(_, program): &&(u32, CompiledFilter)| program.run(batch.packet(packet)) != 0;
            let mut alone: Vec<u32> = programs.iter().filter(accepts).map(|(index, _)| *index).collect();
            alone.sort_unstable();
            wrong += usize::from(alone != matches.of(packet));
            total += alone.len();
        }
    });
    ensure!(wrong == 0, "{}: {wrong} packets are answered otherwise than one by one", workload.name);
    workload.matches = total;
    Ok(())
}
