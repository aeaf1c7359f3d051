//! Exact rules: the cost of a packet with none, with a thousand and with a million of them.
//!
//! Each packet is parsed for its flow in all three, so that the difference is that of the lookups.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use tapline_flow_rules::{Decision, Flow, Probes, RuleSet, parse};
use tapline_packet::LinkType;
use tapline_packet::headers::Headers;
use tapline_sys::usage::thread_time;
use tapline_testkit::frame_batches::FrameBatches;
use tapline_testkit::random::Random;

use super::workload::{flow, frame};
use super::{SetsArgs, median};

/// Rules, and packets of which three of four belong to one of them; the number of flows does not depend on the number of rules.
struct Exact {
    count: usize,
    set: RuleSet,
    pool: FrameBatches,
    /// Packets that a rule decides.
    decided: usize,
}

impl Exact {
    fn new(count: usize, packets: usize) -> anyhow::Result<Exact> {
        let mut text = String::new();
        for number in 0..count {
            let tuple = flow(number as u32);
            let (src, dst) =
                (SocketAddr::new(tuple.src, tuple.src_port), SocketAddr::new(tuple.dst, tuple.dst_port));
            writeln!(
                text,
                "flow {} {src} <-> {dst} => drop",
                if tuple.protocol == 6 { "tcp" } else { "udp" }
            )?;
        }
        let file = parse(&text, &[]).map_err(|error| anyhow!(error.render(&text)))?;
        let mut random = Random::new(7);
        let mut numbers = HashSet::new();
        let frames = (0..packets).map(|_| {
            let is_met = random.one_of(3, 4) && count > 0;
            let number = random.below(count.max(1) as u64) as u32;
            numbers.extend(is_met.then_some(number));
            let tuple = flow(if is_met { number } else { number + 50_000_000 });
            frame(&if random.one_of(1, 2) { tuple.reversed() } else { tuple }, &mut random)
        });
        let pool = FrameBatches::new(&frames.collect::<Vec<_>>());
        let mut exact = Exact { count, set: RuleSet::new(file, false), pool, decided: 0 };
        exact.ensure_right()?;
        Ok(exact)
    }

    /// Each packet is decided exactly if its flow, either way, is that of a rule.
    fn ensure_right(&mut self) -> anyhow::Result<()> {
        let rules: HashSet<_> = (0..self.count).map(|number| flow(number as u32).canonical()).collect();
        let (mut wrong, mut decided, mut probes) = (0, 0, Probes::default());
        for batch in self.pool.batches() {
            let mut decisions = [Decision::default(); tapline_packet::BATCH_MAX];
            look_up(&self.set, &batch, &mut probes, &mut decisions);
            for (index, decision) in decisions.iter().take(batch.len()).enumerate() {
                let data = batch.packet(index).data;
                let tuple = Headers::parse_data(LinkType::ETHERNET, data).five_tuple(data);
                let is_met = tuple.is_some_and(|tuple| rules.contains(&tuple.canonical()));
                wrong += usize::from(is_met != decision.is_final);
                decided += usize::from(is_met);
            }
        }
        ensure!(wrong == 0, "{} exact rules: {wrong} packets are decided wrongly", self.count);
        self.decided = decided;
        Ok(())
    }

    /// Nanoseconds of processor time a packet.
    fn spin(&self, time: Duration) -> f64 {
        let (mut packets, mut probes) = (0, Probes::default());
        let mut decisions = [Decision::default(); tapline_packet::BATCH_MAX];
        let (start, before) = (Instant::now(), thread_time());
        while start.elapsed() < time {
            for batch in self.pool.batches() {
                look_up(&self.set, &batch, &mut probes, &mut decisions);
            }
            packets += self.pool.len();
        }
        std::hint::black_box(&decisions);
        (thread_time() - before).as_nanos() as f64 / packets as f64
    }
}

/// Looks up exact rules as the stage `rules` does.
fn look_up(
    set: &RuleSet,
    batch: &tapline_packet::Batch<'_>,
    probes: &mut Probes,
    decisions: &mut [Decision; tapline_packet::BATCH_MAX],
) {
    probes.clear();
    for index in 0..batch.len() {
        let data = batch.packet(index).data;
        let tuple = Headers::parse_data(LinkType::ETHERNET, data).five_tuple(data);
        if let Some(flow) = tuple.and_then(|tuple| Flow::of(&tuple)) {
            probes.add(index, flow);
        }
    }
    set.file().exact.find_all(probes, |index, rule| {
        if let Some(rule) = rule {
            let bytes = u64::from(batch.records()[index].meta.wire_len);
            set.obey_exact(rule, bytes, 1, &mut decisions[index]);
        }
    });
}

/// Measures all and prints the result, with the ratio to the cost without rules.
pub(super) fn run(args: &SetsArgs, runs: usize, ticks_per_ns: f64) -> anyhow::Result<()> {
    let all = [0, 1000, 1_000_000].map(|count| Exact::new(count, args.packets.max(1 << 17)));
    let all = all.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    for round in 0..runs.max(1) {
        for turn in 0..all.len() {
            let at = (turn + round) % all.len();
            costs[at].push(all[at].spin(Duration::from_millis(args.time_ms)));
        }
    }
    let medians: Vec<f64> = costs.iter().map(|costs| median(costs.iter().copied())).collect();
    for (exact, ns) in all.iter().zip(&medians) {
        let share = exact.decided as f64 / exact.pool.len() as f64;
        println!(
            "    {:<22} {:>8} {ns:>10.1} {:>8.0} {share:>9.2} {:>8}",
            format!("{} exact rules", exact.count),
            format!("{} B", exact.set.file().exact.memory().checked_div(exact.count).unwrap_or(0)),
            ns * ticks_per_ns,
            format!("{:.2}", ns / medians[0])
        );
    }
    println!();
    Ok(())
}
