//! Signatures on packets: the cost of thousands compared with none, and with the search for their contents alone.
//!
//! ```text
//! headers only          headers and payload of each packet are found, as every detector must
//! patterns alone        and all payloads are searched for the contents of the signatures
//! N signatures          and what is found is looked up by header, and evaluated
//! ```

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use tapline_filter::Options as FilterOptions;
use tapline_measure::payloads::{Traffic, Workload};
use tapline_measure::runs::{Run, median};
use tapline_packet::headers::Headers;
use tapline_packet::{BATCH_MAX, Batch, LinkType, Meta, Record, Selection};
use tapline_search::Patterns;
use tapline_signature::{Detector, Ruleset, Variables};
use tapline_sys::usage::thread_time;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};

use crate::Options;
use crate::report::{Report, Series};

/// Arguments of `tapline-bench signatures`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignaturesArgs {
    /// Numbers of signatures: one workload each.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000])]
    counts: Vec<usize>,
    /// Packets with payloads of 1400 to 1500 bytes, half of them text, half random.
    #[arg(long, default_value_t = 4_000)]
    payloads: usize,
    /// Least length of one run, in milliseconds.
    #[arg(long, default_value_t = 100)]
    time_ms: u64,
}

impl Default for SignaturesArgs {
    fn default() -> SignaturesArgs {
        SignaturesArgs { counts: vec![100, 1_000, 10_000], payloads: 4_000, time_ms: 100 }
    }
}

/// The peers of a workload, in this order.
const PEERS: [&str; 3] = ["headers only", "patterns alone", "signatures"];

pub(crate) fn run(args: &SignaturesArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    for count in &args.counts {
        for traffic in [Traffic::Miss, Traffic::Match] {
            measure(&Workload::new(*count, traffic, args.payloads, false), args, options, report)?;
        }
    }
    Ok(())
}

fn measure(
    workload: &Workload,
    args: &SignaturesArgs,
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut trial = Trial::new(workload)?;
    let name = format!("signatures/{}/{}", workload.patterns.len(), workload.traffic.name());
    let found: Vec<u64> = (0..PEERS.len()).map(|peer| trial.pass(peer)).collect();
    ensure!(
        found[1] == found[2],
        "{name}: {} payloads have a pattern, {} packets are found",
        found[1],
        found[2]
    );
    let mut series = Series::new(name, &PEERS, None);
    let time = Duration::from_millis(args.time_ms);
    series.interleave(options.runs, |peer| Ok(trial.spin(peer, time)))?;
    let costs: Vec<f64> =
        series.peers.iter().map(|(_, runs)| median(runs.iter().map(Run::cpu_ns_per_packet))).collect();
    println!("{}: {} of {} packets are found", series.workload, found[2], workload.payloads.len());
    for (name, cost) in PEERS.iter().zip(&costs) {
        println!("  {name:<16} {cost:>8.0} ns/packet  {:>6.2} times headers only", cost / costs[0]);
    }
    println!("  signatures by patterns alone: {:.2}", costs[2] / costs[1]);
    report.keep(&series)
}

struct Trial {
    detector: Detector,
    patterns: Patterns,
    set: usize,
    frames: Vec<u8>,
    records: Vec<Record>,
}

impl Trial {
    fn new(workload: &Workload) -> anyhow::Result<Trial> {
        let lines = workload.patterns.iter().map(|pattern| {
            let hex: Vec<String> = pattern.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let (hex, sid) = (hex.join(" "), pattern.id + 1);
            format!("alert udp any any -> any any (msg:\"number {sid}\"; content:\"|{hex}|\"; sid:{sid};)\n")
        });
        let ruleset = Ruleset::parse(lines.collect::<String>().as_bytes(), Variables::default());
        ensure!(ruleset.refusals.is_empty(), "{}", ruleset.refusals[0]);
        let (mut detector, _) = Detector::new(ruleset)?;
        let set = detector.prepare(LinkType::ETHERNET, &FilterOptions::default())?;
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let (mut frames, mut records) = (Vec::new(), Vec::new());
        for payload in &workload.payloads {
            let frame = Ethernet::between(&a, &b).ip(&Udp { src: 4000, dst: 4001 }.packet(pair, payload));
            let len = frame.len() as u32;
            let meta = Meta { wire_len: len, ..Meta::default() };
            records.push(Record { offset: frames.len(), cap_len: len, meta, ..Record::default() });
            frames.extend_from_slice(&frame);
        }
        Ok(Trial { detector, patterns: Patterns::new(workload.patterns.clone())?, set, frames, records })
    }

    /// Goes over all packets; the number of those in which a pattern, or a signature, is found.
    fn pass(&mut self, peer: usize) -> u64 {
        let Trial { detector, patterns, set, frames, records } = self;
        let mut found = 0;
        for records in records.chunks(BATCH_MAX) {
            let batch = Batch::new(frames, records);
            let headers = |index: usize| Headers::parse(LinkType::ETHERNET, batch.packet(index));
            let payload = |index: usize| {
                let (headers, data) = (headers(index), batch.packet(index).data);
                headers.payload().map_or(&data[..0], |start| &data[start..headers.ip_end()])
            };
            match peer {
                0 => (0..batch.len()).for_each(|index| _ = std::hint::black_box(payload(index))),
                1 => {
                    found +=
                        (0..batch.len()).filter(|index| has_any(patterns, payload(*index))).count() as u64
                }
                _ => {
                    let mut selection = Selection::none();
                    selection.select_all(batch.len());
                    detector.search(*set, &batch, &selection, payload);
                    for index in 0..batch.len() {
                        if detector.is_suspect(index) {
                            let (headers, mut is_found) = (headers(index), false);
                            let data = batch.packet(index).data;
                            detector
                                .evaluate(index, data, &headers, payload(index), None, |_| is_found = true);
                            found += u64::from(is_found);
                        }
                    }
                }
            }
        }
        found
    }

    fn spin(&mut self, peer: usize, time: Duration) -> Run {
        let (start, before) = (Instant::now(), thread_time());
        let mut packets = 0;
        while packets == 0 || start.elapsed() < time {
            std::hint::black_box(self.pass(peer));
            packets += self.records.len() as u64;
        }
        Run { cpu: thread_time() - before, wall: start.elapsed(), packets, lost: 0 }
    }
}

/// Every occurrence is looked for, as a detector does.
fn has_any(patterns: &Patterns, payload: &[u8]) -> bool {
    let mut is_found = false;
    patterns.for_each(payload, |_| is_found = true);
    is_found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_find_what_their_patterns_find() {
        for traffic in [Traffic::Miss, Traffic::Match, Traffic::Alike] {
            let mut trial = Trial::new(&Workload::new(100, traffic, 50, false)).unwrap();
            let found = trial.pass(1);
            assert_eq!(found, trial.pass(2));
            assert!(if traffic == Traffic::Miss { found == 0 } else { found >= 50 }, "{traffic:?} {found}");
        }
    }
}
