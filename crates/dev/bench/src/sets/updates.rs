//! Cost of changes: compiled from text, made from five-tuples, filed, taken out, exchanged; alone, and while packets
//! flow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use tapline_filter::Options;
use tapline_filterset::{Filter, FilterId, FilterSet, FiveTuples, MatchPolicy, Matches, Replica, SetUpdater};
use tapline_packet::{Batch, Selection};
use tapline_sys::usage::thread_time;

use super::workload::{Workload, flow};

/// Changes of each kind that are timed.
const CHANGES: usize = 20_000;

/// Changes that become visible together.
const TOGETHER: usize = 64;

/// Changes a second that are asked for while packets flow.
const PACE: u32 = 100_000;

/// Runs all with `installed` filters.
pub(super) fn run(installed: usize) -> anyhow::Result<()> {
    let examples = FiveTuples::new(&Options::default()).map_err(|error| anyhow!(error))?;
    println!("changes, {installed} five-tuple filters installed");
    println!("    {:<34} {:>10} {:>10} {:>10} {:>12}", "", "p50 ns", "p99 ns", "most ns", "a second");
    let mut next = 0..;
    let mut number = || next.next().unwrap_or(0);
    timed("compile a five-tuple's text", CHANGES, |_| {
        Filter::compile(&flow(number()).to_string(), &Options::default()).map_err(|error| anyhow!(error))
    })?;
    timed("the same from an example", CHANGES, |_| Ok(examples.filter(&flow(number()))?))?;

    let mut set = FilterSet::new(MatchPolicy::All);
    let mut ids = Vec::with_capacity(installed + CHANGES);
    for _ in 0..installed {
        ids.push(set.insert(examples.filter(&flow(number()))?, 0));
    }
    timed("insert, with making the filter", CHANGES, |_| {
        ids.push(set.insert(examples.filter(&flow(number()))?, 0));
        Ok(())
    })?;
    timed("replace a port", CHANGES, |at| {
        let id = ids[at * 3 % ids.len()];
        Ok(set.set_constants(id, &port_of(&set, id, at))?)
    })?;
    timed("remove the oldest", CHANGES, |at| Ok(set.remove(ids[at])?))?;
    ensure!(set.len() == installed, "{} filters are left", set.len());
    while_packets_flow(&examples, installed)
}

/// The constants of the source port, and another port.
fn port_of(set: &FilterSet, id: FilterId, at: usize) -> Vec<(usize, u32)> {
    let constants = set.get(id).map_or(&[][..], |filter| filter.constants());
    let ports = constants.iter().enumerate().filter(|(_, constant)| constant.name == "source port");
    ports.map(|(index, _)| (index, 60_000 + at as u32 % 5000)).collect()
}

fn timed<T>(
    name: &str,
    times: usize,
    mut change: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let mut costs = Vec::with_capacity(times);
    let before = thread_time();
    for at in 0..times {
        let start = Instant::now();
        let made = change(at)?;
        costs.push(start.elapsed().as_nanos() as u64);
        drop(made);
    }
    let seconds = (thread_time() - before).as_secs_f64();
    print(name, &mut costs, times as f64 / seconds);
    Ok(())
}

fn print(name: &str, costs: &mut [u64], a_second: f64) {
    costs.sort_unstable();
    let at =
        |part: f64| costs.get((costs.len().saturating_sub(1) as f64 * part) as usize).copied().unwrap_or(0);
    println!("    {name:<34} {:>10} {:>10} {:>10} {a_second:>12.0}", at(0.5), at(0.99), at(1.0));
}

/// A worker classifies without a pause and applies changes between batches; a writer keeps its pace.
fn while_packets_flow(examples: &FiveTuples, installed: usize) -> anyhow::Result<()> {
    let (mut updates, mut replicas) = SetUpdater::new(MatchPolicy::All, 1);
    let mut ids = Vec::with_capacity(installed + CHANGES);
    for number in 0..installed {
        ids.push(updates.insert(examples.filter(&flow(number as u32))?, 0));
    }
    updates.commit();
    let Some(mut replica) = replicas.pop() else { return Ok(()) };
    replica.apply(usize::MAX);
    let workload = Workload::five_tuples(10, 4096)?;
    let still = Worker::default().run(&mut replica, &workload, None);
    let done = AtomicBool::new(false);
    let mut sent: Vec<Instant> = Vec::new();
    let start = Instant::now();
    let (busy, seconds) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let worker = scope.spawn(|| Worker::default().run(&mut replica, &workload, Some(&done)));
        for number in 0..CHANGES {
            ids.push(updates.insert(examples.filter(&flow((installed + number) as u32))?, 0));
            updates.remove(ids[number])?;
            if 2 * (number + 1) % TOGETHER == 0 {
                let due = Duration::from_secs(1) / PACE * 2 * (number + 1) as u32;
                while start.elapsed() < due {
                    std::thread::yield_now();
                }
                while updates.commit().is_none() {
                    std::thread::yield_now();
                }
                sent.push(Instant::now());
            }
        }
        updates.commit();
        let seconds = start.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        Ok((worker.join().map_err(|_| anyhow!("the worker ended early"))?, seconds))
    })?;
    ensure!(replica.set().len() == installed, "{} filters are left", replica.set().len());
    let a_second = 2.0 * CHANGES as f64 / seconds;
    println!(
        "  while packets flow: {a_second:.0} changes a second, {TOGETHER} in a commit (asked for: {PACE})"
    );
    println!(
        "    worker, ns of processor time a packet: {:.1}, and {:.1} without changes",
        busy.ns_per_packet, still.ns_per_packet
    );
    let waits =
        sent.iter().zip(&busy.applied).map(|(sent, applied)| applied.saturating_duration_since(*sent));
    let mut waits: Vec<u64> = waits.map(|wait| wait.as_nanos() as u64).collect();
    print("from commit until visible", &mut waits, a_second / TOGETHER as f64);
    let mut pauses = busy.pauses;
    let a_second = pauses.len() as f64 * 1e9 / pauses.iter().sum::<u64>().max(1) as f64;
    print("a change, in the worker", &mut pauses, a_second);
    Ok(())
}

/// Counts of a worker.
#[derive(Default)]
struct Worker {
    ns_per_packet: f64,
    /// When each commit was visible.
    applied: Vec<Instant>,
    /// Nanoseconds for each change.
    pauses: Vec<u64>,
}

impl Worker {
    /// Classifies until `done`, or for a while.
    fn run(mut self, replica: &mut Replica, workload: &Workload, done: Option<&AtomicBool>) -> Worker {
        let (mut matches, mut selection, mut packets) = (Matches::new(), Selection::none(), 0_usize);
        let (start, before) = (Instant::now(), thread_time());
        let batches: Vec<Batch<'_>> = workload.pool.batches().collect();
        let mut batches = batches.iter().cycle();
        loop {
            // Whatever was committed before the end is applied after it.
            let over = match done {
                Some(done) => done.load(Ordering::Relaxed),
                None => start.elapsed().as_millis() > 300,
            };
            let changes = self.apply(replica);
            if over && changes == 0 {
                let spent = thread_time() - before;
                self.ns_per_packet = spent.as_nanos() as f64 / packets.max(1) as f64;
                return self;
            }
            let Some(batch) = batches.next() else { return self };
            selection.select_all(batch.len());
            replica.set().classify(batch, &selection, &mut matches);
            packets += batch.len();
        }
    }

    /// One commit, if there is one.
    fn apply(&mut self, replica: &mut Replica) -> usize {
        let before = Instant::now();
        let changes = replica.apply(1);
        if changes > 0 {
            let now = Instant::now();
            self.pauses.push(now.duration_since(before).as_nanos() as u64 / changes as u64);
            self.applied.push(now);
        }
        changes
    }
}
