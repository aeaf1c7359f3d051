//! From the measurements to the cost of a packet: the components and the source of each.
//!
//! ```text
//! live   interrupts            kernel       time of interrupts, all of the machine
//!        softirq               kernel       what it took a packet without the tap, times packets
//!        kernel time stamp     counted      packets times one reading of the system's clock, which is what the kernel does
//!        kernel filter         kernel       the run-time statistics of its BPF programs
//!        tap and copy          difference   softirq with the tap, less all these; with its error, and no number below it
//!        wake-up               timed        processor time of the waits; without it their number times the cost of one
//!        timestamp             timed        where times are given here, instead of the kernel's (-j)
//! both   read, stages, sinks   timed        the meters, less what other threads took meanwhile
//!        engine                difference   the loop less its stages, likewise
//! total  processor time of the process, and for live work that of interrupts and softirqs
//! ```

use std::time::Duration;

use tapline_meters::{Breakdown, CostBasis, CpuTimes, KernelCounters, Snapshot};
use tapline_sys::usage;

use super::Measured;

/// Cycles a packet, by component.
pub fn breakdown(measured: &Measured) -> Breakdown {
    let packets = packets(measured);
    let each = |cycles: f64| if packets == 0 { 0.0 } else { cycles / packets as f64 };
    let cycles_in = |time: Duration| time.as_secs_f64() * measured.frequency_hz;
    let times = measured.kernel.times.filter(|_| measured.is_live);
    let outside = times.map_or(Duration::ZERO, |times| times.interrupt + times.softirq);
    let total = each(cycles_in(measured.spent.cpu + outside));
    let mut run = Breakdown::new(&measured.title, packets, total, measured.frequency_hz);
    if let Some(times) = times {
        run = run.with("interrupts", each(cycles_in(times.interrupt)), CostBasis::Kernel);
        run = match without_tap(measured, times) {
            Some(network) => {
                let run = run.with("softirq", each(cycles_in(network)), CostBasis::Kernel);
                let error =
                    each((error_of(times.softirq) + error_of_network(measured)) * measured.frequency_hz);
                of_tap(measured, run, each(cycles_in(times.softirq) - cycles_in(network)), error)
            }
            None => run.with("softirq, tap and copy", each(cycles_in(times.softirq)), CostBasis::Kernel),
        };
    }
    of_process(measured, run)
}

/// With the components of the tap, which took `tap` cycles a packet, known to `error`.
fn of_tap(measured: &Measured, mut run: Breakdown, tap: f64, error: f64) -> Breakdown {
    // The kernel reads its clock for each packet once any socket wants time stamps.
    run = run.with("kernel time stamp", measured.clock_ticks, CostBasis::Counted);
    let mut rest = tap - measured.clock_ticks;
    if let Some((_, nanos)) = measured.kernel_filter {
        let filter = nanos as f64 / 1e9 * measured.frequency_hz / run.packets.max(1) as f64;
        run = run.with("kernel filter", filter, CostBasis::Kernel);
        rest -= filter;
    }
    run.with_difference("tap and copy", rest, error)
}

/// Error of a softirq time, in seconds: the kernel samples it with a tick, so that `n` ticks are known to the root of
/// `n`, twice that in 95 of 100 cases, and one tick at the ends.
fn error_of(time: Duration) -> f64 {
    let tick = 1.0 / usage::clock_units_per_second().max(1) as f64;
    2.0 * (time.as_secs_f64() * tick).sqrt() + tick
}

/// With the components of the process itself.
pub(super) fn of_process(measured: &Measured, mut run: Breakdown) -> Breakdown {
    let packets = run.packets.max(1) as f64;
    let each = |cycles: f64| cycles / packets;
    if measured.is_live {
        let basis = if measured.waits_cost.is_some() { CostBasis::Timed } else { CostBasis::Counted };
        run = run.with("wake-up", each(waits(measured) * measured.frequency_hz), basis);
    }
    let own = 1.0 - delayed_share(measured);
    let stamping = measured.stamp_ticks as f64;
    if measured.stamp_ticks > 0 {
        run = run.with("timestamp", each(stamping * own), CostBasis::Timed);
    }
    for stage in &measured.stages {
        // Times are given where packets are read.
        let stamping = if is_source(stage) { stamping / measured.sources.max(1) as f64 } else { 0.0 };
        let cycles = (stage.cycles as f64 - stamping).max(0.0);
        run = run.with(&name(measured, stage), each(cycles * own), CostBasis::Timed);
    }
    let in_stages: u64 = measured.stages.iter().map(|stage| stage.cycles).sum();
    run.with("engine", each(measured.ticks.saturating_sub(in_stages) as f64 * own), CostBasis::Difference)
}

/// Over how many packets costs are spread: those on the interfaces where that is known, so that a filter in the kernel
/// counts for all that it saw.
pub(super) fn packets(measured: &Measured) -> u64 {
    let delivered = measured.account.delivered;
    measured.offered.filter(|offered| *offered > delivered).unwrap_or(delivered)
}

/// Softirq time of the packets that came, at the cost of a packet before there was a tap; `None` if too few came by
/// then.
fn without_tap(measured: &Measured, times: CpuTimes) -> Option<Duration> {
    let before = measured.baseline.as_ref()?;
    let (packets, packets_before) = (measured.kernel.softnet?.processed, before.softnet?.processed);
    let each = before.times?.softirq.checked_div(u32::try_from(packets_before).ok()?)?;
    if each.is_zero() {
        return None;
    }
    let network = each.checked_mul(u32::try_from(packets).ok()?)?;
    (!times.softirq.is_zero()).then_some(network)
}

/// Error in seconds of the softirq time without the tap: that of the baseline, grown to the packets of the run.
fn error_of_network(measured: &Measured) -> f64 {
    let packets = |counters: &KernelCounters| counters.softnet.map(|softnet| softnet.processed as f64);
    let error = || {
        let before = measured.baseline.as_ref()?;
        Some(error_of(before.times?.softirq) * packets(&measured.kernel)? / packets(before)?.max(1.0))
    };
    error().unwrap_or(0.0)
}

/// The share of the engine thread's awake time in which another thread had the processor: the thread ran as long as
/// the kernel says, and the rest of the time that passed was others'. 0 where the kernel does not say.
pub(super) fn delayed_share(measured: &Measured) -> f64 {
    let awake = measured.ticks as f64 / measured.frequency_hz;
    let Some(scheduling) = measured.spent.scheduling else { return 0.0 };
    let ran = (scheduling.ran.as_secs_f64() - waits(measured)).max(0.0);
    if awake > 0.0 { (awake - ran).max(0.0) / awake } else { 0.0 }
}

/// Seconds of processor time that the engine's waits took.
fn waits(measured: &Measured) -> f64 {
    let counted = || measured.wait_cost.as_secs_f64() * measured.spent.switches.waiting as f64;
    measured.waits_cost.map_or_else(counted, |cost| cost.as_secs_f64())
}

pub(super) fn is_source(stage: &Snapshot) -> bool {
    matches!(stage.class.as_str(), "device" | "file" | "generate")
}

fn name(measured: &Measured, stage: &Snapshot) -> String {
    match (is_source(stage), measured.sources) {
        (true, 1) => "read".to_owned(),
        (true, _) => format!("read {}", stage.name),
        (false, _) if is_numbered(stage) && is_only(measured, stage) => stage.class.clone(),
        (false, _) => stage.name.clone(),
    }
}

/// Whether the planner named it: `filter@2`.
fn is_numbered(stage: &Snapshot) -> bool {
    stage.name.strip_prefix(stage.class.as_str()).is_some_and(|rest| rest.starts_with('@'))
}

fn is_only(measured: &Measured, stage: &Snapshot) -> bool {
    measured.stages.iter().filter(|other| other.class == stage.class).count() == 1
}

#[cfg(test)]
mod tests {
    use tapline_graph::GraphAccount;
    use tapline_meters::{KernelCounters, Scheduling, Softnet};
    use tapline_sys::usage::{CpuTime, SchedulerCounts};

    use super::*;
    use crate::costs::{ResourceUsage, facts};

    fn stage(name: &str, class: &str, cycles: u64) -> Snapshot {
        Snapshot { name: name.into(), class: class.into(), batches: 4, cycles, ..Snapshot::default() }
    }

    /// A thousand packets, a gigahertz: a microsecond is a cycle a packet.
    fn measured() -> Measured {
        let ms = Duration::from_millis;
        Measured {
            title: "x".into(),
            is_live: false,
            sources: 1,
            account: GraphAccount { delivered: 1000, ..GraphAccount::default() },
            offered: None,
            stages: vec![stage("in", "file", 6_000_000), stage("count@2", "count", 2_000_000)],
            ticks: 10_000_000,
            frequency_hz: 1e9,
            spent: ResourceUsage {
                wall: ms(10),
                cpu: ms(8),
                by_mode: CpuTime { user: ms(7), system: ms(1) },
                switches: SchedulerCounts { preempted: 3, ..SchedulerCounts::default() },
                scheduling: Some(Scheduling { ran: ms(8), delayed: ms(2) }),
            },
            kernel: KernelCounters::default(),
            baseline: None,
            wait_cost: Duration::from_micros(10),
            waits_cost: None,
            stamp_ticks: 0,
            clock_ticks: 60.0,
            kernel_filter: None,
        }
    }

    fn cycles(run: &Breakdown, name: &str) -> f64 {
        run.components.iter().find(|part| part.name == name).unwrap_or_else(|| panic!("no {name}")).cycles
    }

    #[test]
    fn time_of_other_processes_is_no_cost() {
        let run = breakdown(&measured());
        assert_eq!(run.total_cycles, 8000.0);
        let all = ["read", "count", "engine"].map(|name| cycles(&run, name).round());
        assert_eq!(all, [4800.0, 1600.0, 1600.0], "a fifth is taken off each");
        assert!(run.unexplained_cycles().abs() < 1e-6);
        assert!(facts(&measured()).to_text().contains("20.0% taken off"));
    }

    #[test]
    fn timed_work_is_at_least_the_threads_run_time() {
        let mut measured = measured();
        let (ran, delayed) = (Duration::from_millis(9), Duration::from_millis(500));
        measured.spent.scheduling = Some(Scheduling { ran, delayed });
        measured.spent.cpu = ran;
        let run = breakdown(&measured);
        assert_eq!(
            ["read", "count", "engine"].map(|name| cycles(&run, name).round()),
            [5400.0, 1800.0, 1800.0]
        );
        assert!(run.unexplained_cycles().abs() < 1e-6);
    }

    #[test]
    fn the_kernels_part_is_told_apart_by_difference() {
        let ms = Duration::from_millis;
        let counters = |softirq: Duration, processed: u64| KernelCounters {
            times: Some(CpuTimes { interrupt: ms(1), softirq, ..CpuTimes::default() }),
            softnet: Some(Softnet { processed, ..Softnet::default() }),
            softirqs: Some(vec![("NET_RX".into(), 50)]),
            ..KernelCounters::default()
        };
        let mut measured = measured();
        measured.is_live = true;
        measured.spent.switches.waiting = 100;
        measured.kernel = counters(ms(5), 1000);
        measured.baseline = Some(counters(ms(1), 500));
        let run = breakdown(&measured);
        assert_eq!(run.total_cycles, 14_000.0);
        let parts = ["interrupts", "softirq", "kernel time stamp", "tap and copy", "wake-up"]
            .map(|name| cycles(&run, name).round());
        assert_eq!(parts, [1000.0, 2000.0, 60.0, 2940.0, 1000.0]);
        // Some milliseconds, sampled every ten: that is no measurement.
        let tap = run.components.iter().find(|part| part.name == "tap and copy").expect("a component");
        assert!(tap.error.is_some_and(|error| error > 2940.0) && tap.at_most > Some(2940.0), "{tap:?}");
        assert!(run.to_text().contains("at most"), "{}", run.to_text());
        measured.kernel_filter = Some((1000, 40_000));
        measured.stamp_ticks = 500_000;
        let run = breakdown(&measured);
        let parts =
            ["kernel filter", "tap and copy", "timestamp", "read"].map(|name| cycles(&run, name).round());
        assert_eq!(parts, [40.0, 2900.0, 350.0, 3850.0], "a share of what is timed went to others");
        assert!(facts(&measured).to_text().contains("ran 1,000 times in the kernel, 40.0 ns each"));
        let text = facts(&measured).to_text();
        assert!(text.contains("20.0 a softirq") && text.contains("100 waits, 10.0 packets each"), "{text}");
        assert!(text.contains("the process  8000.0 cycles a packet, "), "{text}");
        measured.offered = Some(2000);
        assert_eq!(breakdown(&measured).total_cycles, 7000.0, "spread over all that came by");
        for quiet in [None, Some(counters(Duration::ZERO, 3))] {
            measured.baseline = quiet;
            assert_eq!(cycles(&breakdown(&measured), "softirq, tap and copy"), 2500.0);
        }
    }

    #[test]
    fn without_packets_nothing_is_divided() {
        let mut measured = measured();
        measured.account.delivered = 0;
        assert_eq!((breakdown(&measured).packets, breakdown(&measured).total_cycles), (0, 0.0));
    }
}
