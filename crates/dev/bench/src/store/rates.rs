//! The cost of recording at one rate, and the highest rate without loss.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tapline_measure::system::arena::process_ns;
use tapline_measure::system::limit;
use tapline_measure::system::trial::{Load, TrialOutcome, send, wait_until_quiet};
use tapline_sys::usage::CpuTime;

use super::recorders::{ALL, Recorder};
use super::table::Goal;
use super::{Bench, disk};
use crate::live::interrupt;

/// Flows of the traffic: each packet of another one than the last, as an index likes it least.
const TRAFFIC: &str = "udp flows=20000 order=random";
/// Recorders on libpcap get a block after a second at the latest.
const SETTLE: Duration = Duration::from_millis(1500);
/// Time in which a recorder may write the rest, and its index; then it is killed. stenotype 1.0.1 waits for packets
/// before it checks whether to end, so that it seldom ends on a quiet link: the contents of its files count.
const END_MAX: Duration = Duration::from_secs(8);
/// Number of attempts for a run that lost packets: others disturb the machine.
const TRIES: usize = 3;
/// Resolution of a limit.
const RESOLUTION: f64 = 0.06;
/// Time for which the generator waits for a full link while limits are looked for.
const PATIENCE: Duration = Duration::from_millis(200);

/// The result of a recorder.
struct Recorded {
    outcome: TrialOutcome,
    /// Bytes of its index.
    index_len: u64,
}

impl Recorded {
    /// Nanoseconds of the recorder for each packet: from the first on, with the end and its index.
    fn cost_ns(&self) -> f64 {
        self.outcome.program_ns as f64 / self.outcome.received.max(1) as f64
    }

    /// The outcome, in which packets of the block that a killed recorder had not written yet are not a loss.
    fn without_rest(mut self, recorder: Recorder, size: &str) -> TrialOutcome {
        let missing = self.outcome.received.saturating_sub(self.outcome.captured);
        if missing <= recorder.unwritten_max(frame_len(size)) {
            (self.outcome.captured, self.outcome.stored) =
                (self.outcome.received, Some(self.outcome.received));
        }
        self.outcome
    }
}

/// Bytes that a size of recipes has on average, for room on the disk.
fn frame_len(size: &str) -> u64 {
    if size == "imix" { 362 } else { size.parse().unwrap_or(1514) }
}

impl Bench<'_> {
    fn load<'l>(&self, size: &'l str, rate: Option<u64>, patience: Duration) -> Load<'l> {
        Load {
            traffic: TRAFFIC,
            size,
            rate,
            time: Duration::from_secs_f64(self.args.seconds),
            queue_timeout: patience,
        }
    }

    /// Records once. `mib` is the room that the packets may need.
    fn record(&mut self, recorder: Recorder, load: &Load<'_>, mib: u64) -> Result<Recorded> {
        let folder = self.path("recording");
        fs::create_dir(&folder)?;
        let said = File::create(folder.join("said"))?;
        let words = recorder.command(&self.tapline, &folder, mib)?;
        let mut command = self.arena.namespace().command("taskset");
        command.arg("-c").arg(self.arena.cores.receiver.to_string()).args(&words);
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let mut child = command.spawn().with_context(|| format!("starting {}", words[0]))?;
        let recorded = self.send_to(&mut child, recorder, load);
        if recorded.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let recorded = recorded.with_context(|| {
            let said = fs::read_to_string(folder.join("said")).unwrap_or_default();
            format!("{}: {}", recorder.name(), said.lines().last().unwrap_or_default())
        });
        fs::remove_dir_all(&folder)?;
        recorded
    }

    fn send_to(&mut self, child: &mut Child, recorder: Recorder, load: &Load<'_>) -> Result<Recorded> {
        self.arena.wait_for_receiver(|| Ok(child.try_wait()?.is_none()))?;
        // Rings and files are made by now.
        sleep(Duration::from_millis(300));
        let before = self.arena.counters()?;
        let before_ns = process_ns(child.id());
        let sent = send(&mut self.arena, &self.tapline, load)?;
        wait_until_quiet(&mut self.arena)?;
        sleep(SETTLE);
        let after = self.arena.counters()?;
        interrupt(child)?;
        let all_ns = wait(child)?;
        let folder = self.path("recording");
        let stored = recorder.stored(&folder)?;
        let outcome = TrialOutcome {
            made: sent.made,
            refused: sent.refused,
            received: after.received - before.received,
            captured: stored,
            stored: Some(stored),
            seconds: sent.seconds,
            asked_rate: load.rate,
            kernel_ns: after.kernel_ns.saturating_sub(before.kernel_ns),
            program_ns: all_ns.saturating_sub(before_ns),
            ..TrialOutcome::default()
        };
        Ok(Recorded { outcome, index_len: recorder.index_len(&folder)? })
    }

    fn here(&self) -> Vec<Recorder> {
        ALL.into_iter().filter(|recorder| recorder.is_here(&self.tapline)).collect()
    }
}

/// Waits for a recorder to end; gives the processor time of its life, in nanoseconds.
fn wait(child: &mut Child) -> Result<u64> {
    let before = CpuTime::of_children();
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > END_MAX {
            child.kill()?;
            child.wait()?;
            break;
        }
        sleep(Duration::from_millis(5));
    }
    Ok(CpuTime::of_children().since(before).total().as_nanos() as u64)
}

/// Processor time of a packet at the same rate, and the size of the index.
pub(super) fn cost(bench: &mut Bench<'_>) -> Result<()> {
    let recorders = bench.here();
    for size in bench.args.sizes.clone() {
        let measure = format!("cost/{size}");
        let (mut costs, mut shares) = (vec![Vec::new(); ALL.len()], vec![Vec::new(); ALL.len()]);
        let packets = bench.args.rate as f64 * bench.args.seconds;
        let bytes = packets * frame_len(&size) as f64;
        let mib = (packets * (frame_len(&size) + 160) as f64) as u64 >> 20;
        for round in 0..bench.runs {
            for turn in 0..recorders.len() {
                let at = (turn + round) % recorders.len();
                let recorded = match bench.record_all(recorders[at], &size, mib) {
                    Ok(recorded) => recorded,
                    // The others are worth measuring all the same.
                    Err(error) => {
                        bench.table.note(format!("left out: {error:#}"));
                        None
                    }
                };
                let Some(recorded) = recorded else { continue };
                costs[at].push(recorded.cost_ns());
                shares[at].push(recorded.index_len as f64 / bytes * 100.0);
            }
        }
        for (at, recorder) in recorders.iter().enumerate() {
            bench.table.row(&measure, recorder.name(), "ns/packet", std::mem::take(&mut costs[at]));
        }
        let of_index = format!("index/{size}");
        for (at, recorder) in recorders.iter().enumerate().filter(|(_, recorder)| recorder.has_index()) {
            bench.table.row(&of_index, recorder.name(), "% of the bytes", std::mem::take(&mut shares[at]));
        }
        judge_costs(bench, &measure, &of_index);
    }
    Ok(())
}

impl Bench<'_> {
    /// Records until nothing is lost; `None`, said, if that does not come about.
    fn record_all(&mut self, recorder: Recorder, size: &str, mib: u64) -> Result<Option<Recorded>> {
        let mut lost = 0;
        for _ in 0..TRIES {
            let load = self.load(size, Some(self.args.rate), Duration::ZERO);
            let recorded = self.record(recorder, &load, mib)?;
            lost = recorded.outcome.received.saturating_sub(recorded.outcome.captured);
            if lost <= recorder.unwritten_max(frame_len(size)) {
                return Ok(Some(recorded));
            }
        }
        let rate = self.args.rate;
        self.table.note(format!("{} lost {lost} packets of {size} at {rate} a second", recorder.name()));
        Ok(None)
    }
}

fn judge_costs(bench: &mut Bench<'_>, measure: &str, of_index: &str) {
    let table = &mut bench.table;
    let of = |recorder: Recorder| table.median(measure, recorder.name());
    let (ours, theirs) = (of(Recorder::Tapline), of(Recorder::Stenotype));
    let (bare, their_bare) = (of(Recorder::TaplineNoIndex), of(Recorder::StenotypeNoIndex));
    let peers = [
        Recorder::StenotypeNoIndex,
        Recorder::NetsniffNg,
        Recorder::Dumpcap,
        Recorder::Tcpdump,
        Recorder::Daemonlogger,
    ];
    let best = peers.into_iter().filter_map(of).reduce(f64::min);
    let by = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let index = ours.zip(bare).map(|(with, without)| with - without);
    let their_index = theirs.zip(their_bare).map(|(with, without)| with - without);
    let sizes =
        [Recorder::Tapline, Recorder::Stenotype].map(|recorder| table.median(of_index, recorder.name()));
    table.judge(
        measure,
        "packets a processor second with index, by Stenographer's",
        by(theirs, ours),
        Goal::AtLeast(3.0),
    );
    table.judge(
        measure,
        "packets a processor second without index, by the best peer's",
        by(best, bare),
        Goal::AtLeast(1.3),
    );
    table.judge(measure, "nanoseconds a packet of the index", index, Goal::AtMost(100.0));
    table.judge(measure, "the index by Stenographer's", by(index, their_index), Goal::AtMost(0.2));
    table.judge(of_index, "the index, % of the packets' bytes", sizes[0], Goal::AtMost(0.5));
    table.judge(of_index, "the index by Stenographer's", by(sizes[0], sizes[1]), Goal::AtMost(0.125));
}

/// The highest rate without loss of each recorder, and what part of the disk's own rate that is.
pub(super) fn limit(bench: &mut Bench<'_>) -> Result<()> {
    let recorders = bench.here();
    let ceiling = disk::direct_write(bench.folder.path())?;
    if let Some(rate) = ceiling {
        bench.table.row("limit/disk", "fio", "MB/s", vec![rate / 1e6]);
    }
    // A search is many runs already.
    let rounds = bench.runs.div_ceil(3);
    for size in bench.args.sizes.clone() {
        let measure = format!("limit/{size}");
        let mut rates = vec![Vec::new(); recorders.len()];
        for round in 0..rounds {
            for turn in 0..recorders.len() {
                let at = (turn + round) % recorders.len();
                let recorder = recorders[at];
                let found = limit::find(RESOLUTION, f64::INFINITY, |rate| {
                    let packets = rate.unwrap_or(1_200_000) as f64 * bench.args.seconds;
                    let mib = (packets * (frame_len(&size) + 160) as f64) as u64 >> 20;
                    let load = bench.load(&size, rate, PATIENCE);
                    Ok(bench.record(recorder, &load, mib)?.without_rest(recorder, &size))
                });
                match found {
                    Ok(found) => rates[at].push(found.rate),
                    Err(error) => bench.table.note(format!("left out: {error:#}")),
                }
            }
        }
        for (recorder, rates) in recorders.iter().zip(rates) {
            bench.table.row(&measure, recorder.name(), "packets/s", rates);
        }
        judge_limits(bench, &measure, &size, ceiling);
    }
    Ok(())
}

fn judge_limits(bench: &mut Bench<'_>, measure: &str, size: &str, ceiling: Option<f64>) {
    let table = &mut bench.table;
    let of = |recorder: Recorder| table.median(measure, recorder.name());
    let (ours, theirs) = (of(Recorder::Tapline), of(Recorder::Stenotype));
    let bare = of(Recorder::TaplineNoIndex);
    let peers = [
        Recorder::StenotypeNoIndex,
        Recorder::NetsniffNg,
        Recorder::Dumpcap,
        Recorder::Tcpdump,
        Recorder::Daemonlogger,
    ];
    let best = peers.into_iter().filter_map(of).reduce(f64::max);
    let by = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let of_disk = bare.or(ours).map(|rate| rate * frame_len(size) as f64);
    table.judge(measure, "highest rate with index, by Stenographer's", by(ours, theirs), Goal::AtLeast(3.0));
    table.judge(
        measure,
        "highest rate without index, by the best peer's",
        by(bare, best),
        Goal::AtLeast(1.3),
    );
    if size == "1514" {
        table.judge(
            measure,
            "bytes a second by fio's direct write",
            by(of_disk, ceiling),
            Goal::AtLeast(0.9),
        );
    }
}
