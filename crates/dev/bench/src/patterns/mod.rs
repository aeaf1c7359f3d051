//! Many patterns at once: `tapline-search` compared with other engines, all reporting every occurrence.
//!
//! ```text
//! patterns/N/miss    nothing matches: what a byte costs
//! patterns/N/match   one occurrence planted in each payload
//! patterns/N/alike   patterns made of the words that the text is made of: many near misses
//! ```
//!
//! A cycle is one of the time stamp counter, at its measured rate; the time is processor time, so that waiting does not
//! count.

mod engines;

use crate::Options;
use crate::report::{Report, Series};
use anyhow::ensure;
use clap::Args;
use engines::Peer;
use std::time::{Duration, Instant};
use tapline_measure::payloads::{Traffic, Workload};
use tapline_measure::runs::{Run, judge, median};
use tapline_search::find_all_naive;
use tapline_sys::{tsc, usage::thread_time};

/// Arguments of `tapline-bench patterns`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PatternsArgs {
    /// Numbers of patterns: one workload each.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 64, 1_000, 10_000])]
    counts: Vec<usize>,
    /// Payloads of 1400 to 1500 bytes, half of them text, half random.
    #[arg(long, default_value_t = 4_000)]
    payloads: usize,
    /// Least length of one run, in milliseconds.
    #[arg(long, default_value_t = 100)]
    time_ms: u64,
    /// All patterns ignore case.
    #[arg(long)]
    nocase: bool,
}

impl Default for PatternsArgs {
    fn default() -> PatternsArgs {
        PatternsArgs { counts: vec![10, 64, 1_000, 10_000], payloads: 4_000, time_ms: 100, nocase: false }
    }
}

/// Bound of the naive search's comparisons, so that checking takes seconds.
const COMPARISONS_MAX: usize = 1 << 31;

pub(crate) fn run(args: &PatternsArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let rate = tsc::frequency(Duration::from_millis(100));
    println!("time stamp counter: {:.3} GHz\n", rate / 1e9);
    for count in &args.counts {
        for traffic in [Traffic::Miss, Traffic::Match, Traffic::Alike] {
            let workload = Workload::new(*count, traffic, args.payloads, args.nocase);
            measure(&workload, args, options, report, rate)?;
        }
    }
    Ok(())
}

fn measure(
    workload: &Workload,
    args: &PatternsArgs,
    options: &Options,
    report: &mut Report,
    rate: f64,
) -> anyhow::Result<()> {
    let peers = engines::peers(&workload.patterns)?;
    let matches = ensure_equal(workload, &peers)?;
    let case = if args.nocase { "-nocase" } else { "" };
    let name = format!("patterns{case}/{}/{}", workload.patterns.len(), workload.traffic.name());
    let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
    let mut series = Series::new(name, &names, None);
    let time = Duration::from_millis(args.time_ms);
    series.interleave(options.runs, |peer| Ok(spin(workload, time, &peers[peer])))?;
    println!("{}: {matches} matches in {} payloads", series.workload, workload.payloads.len());
    for (peer, (_, runs)) in peers.iter().zip(&series.peers) {
        println!("{}", line(peer, runs, workload, rate));
    }
    report.keep(&series)
}

/// All peers count the same matches, and a share of the payloads has what the naive search finds there.
fn ensure_equal(workload: &Workload, peers: &[Peer]) -> anyhow::Result<u64> {
    let share = (COMPARISONS_MAX / (workload.patterns.len() * 1500)).clamp(1, workload.payloads.len());
    let naive = |payload: &Vec<u8>| find_all_naive(&workload.patterns, payload).len() as u64;
    let expected: u64 = workload.payloads[..share].iter().map(naive).sum();
    let total = peers[0].count(&workload.payloads);
    for peer in peers {
        let (part, all) = (peer.count(&workload.payloads[..share]), peer.count(&workload.payloads));
        ensure!(peer.stops_early || part == expected, "{}: {part} matches, naive {expected}", peer.name);
        ensure!(peer.stops_early || all == total, "{}: {all} matches, {} {total}", peer.name, peers[0].name);
    }
    Ok(total)
}

/// Searches all payloads, over and over for `time`.
fn spin(workload: &Workload, time: Duration, peer: &Peer) -> Run {
    let (start, before) = (Instant::now(), thread_time());
    let mut done = 0;
    while done == 0 || start.elapsed() < time {
        std::hint::black_box(peer.count(&workload.payloads));
        done += workload.payloads.len() as u64;
    }
    Run { cpu: thread_time() - before, wall: start.elapsed(), packets: done, lost: 0 }
}

fn line(peer: &Peer, runs: &[Run], workload: &Workload, rate: f64) -> String {
    let ns = median(runs.iter().map(Run::cpu_ns_per_packet));
    let bytes = workload.bytes() as f64 / workload.payloads.len() as f64;
    let cycles = ns * rate / 1e9;
    let goal = match goal(workload, peer) {
        None => String::new(),
        // No processor reads more than 64 bytes in a cycle.
        Some(goal) => format!("goal {goal}: {}", judge(cycles / bytes, 1.0 / 64.0..=1e4, |cost| cost < goal)),
    };
    format!(
        "  {:<26} {:>6.2} GB/s {:>7.2} cycles/byte {:>8.0} cycles/payload {:>8} KiB  {goal}",
        peer.name,
        bytes / ns,
        cycles / bytes,
        cycles,
        peer.memory / 1024,
    )
}

/// Cycles a byte that were promised for traffic without a match.
fn goal(workload: &Workload, peer: &Peer) -> Option<f64> {
    let is_promised = workload.traffic == Traffic::Miss;
    match (workload.patterns.len(), peer.name.as_str()) {
        (..=64, name) if is_promised && name.starts_with("tapline") => Some(1.0),
        (..=1000, name) if is_promised && name.starts_with("tapline") => Some(5.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_agree_on_every_kind_of_traffic() {
        for nocase in [false, true] {
            for traffic in [Traffic::Miss, Traffic::Match, Traffic::Alike] {
                let workload = Workload::new(100, traffic, 20, nocase);
                let peers = engines::peers(&workload.patterns).unwrap();
                let matches = ensure_equal(&workload, &peers).unwrap();
                assert!(if traffic == Traffic::Miss { matches == 0 } else { matches >= 20 }, "{traffic:?}");
            }
        }
    }
}
