//! Facts behind the costs of a run: time, batches, wake-ups, other threads, the kernel.

use std::time::Duration;

use serde::Serialize;
use tapline_graph::grouped;
use tapline_meters::{Breakdown, CpuTimes, KernelCounters};

use super::Measured;
use super::breakdown::{delayed_share, is_source, of_process, packets};

/// Facts that explain a cost without being one.
#[derive(Debug, Serialize)]
pub struct Facts {
    delivered: u64,
    lost: u64,
    offered: Option<u64>,
    wall_seconds: f64,
    cpu_seconds: f64,
    user_seconds: f64,
    system_seconds: f64,
    /// The engine's thread was ready, and another one ran.
    delayed_seconds: Option<f64>,
    /// The part of it that is taken off from timed components, as a share of each.
    delayed_share: f64,
    waits: u64,
    preempted: u64,
    packets_per_wake_up: Option<f64>,
    packets_per_batch: Option<f64>,
    bytes_per_batch: Option<f64>,
    process: ProcessFacts,
    kernel: Option<KernelFacts>,
}

/// The process alone, without interrupts and softirqs: their sum equals the kernel's figure by definition, and hides
/// the unexplained part.
#[derive(Debug, Serialize)]
struct ProcessFacts {
    cycles: f64,
    unexplained_cycles: f64,
}

/// Facts about the whole machine.
#[derive(Debug, Serialize)]
struct KernelFacts {
    interrupts: Option<u64>,
    net_rx_softirqs: Option<u64>,
    received: Option<u64>,
    packets_per_softirq: Option<f64>,
    interrupt_seconds: Option<f64>,
    softirq_seconds: Option<f64>,
    /// Runs of the filter in the kernel, if it reports them.
    filter_runs: Option<u64>,
    filter_seconds: Option<f64>,
}

/// All facts of the run.
pub fn facts(measured: &Measured) -> Facts {
    let spent = &measured.spent;
    let delivered = measured.account.delivered;
    let sources = || measured.stages.iter().filter(|stage| is_source(stage));
    let batches: u64 = sources().map(|stage| stage.batches).sum();
    let bytes: u64 = sources().map(|stage| stage.bytes_in).sum();
    let ratio = |amount: u64, of: u64| (of > 0).then(|| amount as f64 / of as f64);
    Facts {
        delivered,
        lost: measured.account.lost(),
        offered: measured.offered,
        wall_seconds: spent.wall.as_secs_f64(),
        cpu_seconds: spent.cpu.as_secs_f64(),
        user_seconds: spent.by_mode.user.as_secs_f64(),
        system_seconds: spent.by_mode.system.as_secs_f64(),
        delayed_seconds: spent.scheduling.map(|scheduling| scheduling.delayed.as_secs_f64()),
        delayed_share: delayed_share(measured),
        waits: spent.switches.waiting,
        preempted: spent.switches.preempted,
        packets_per_wake_up: ratio(delivered, spent.switches.waiting).filter(|_| measured.is_live),
        packets_per_batch: ratio(delivered, batches),
        bytes_per_batch: ratio(bytes, batches),
        process: process_facts(measured),
        kernel: measured.is_live.then(|| kernel_facts(&measured.kernel, measured.kernel_filter)),
    }
}

fn process_facts(measured: &Measured) -> ProcessFacts {
    let packets = packets(measured);
    let cycles = measured.spent.cpu.as_secs_f64() * measured.frequency_hz / packets.max(1) as f64;
    let run = of_process(measured, Breakdown::new("", packets, cycles, measured.frequency_hz));
    ProcessFacts { cycles, unexplained_cycles: run.unexplained_cycles() }
}

fn kernel_facts(kernel: &KernelCounters, filter: Option<(u64, u64)>) -> KernelFacts {
    let received = kernel.softnet.map(|softnet| softnet.processed);
    let softirqs = kernel.softirq("NET_RX");
    let seconds = |time: fn(CpuTimes) -> Duration| kernel.times.map(|times| time(times).as_secs_f64());
    KernelFacts {
        interrupts: kernel.interrupts.as_ref().map(|lines| lines.iter().map(|line| line.count).sum()),
        net_rx_softirqs: softirqs,
        received,
        packets_per_softirq: received
            .zip(softirqs.filter(|count| *count > 0))
            .map(|(packets, count)| packets as f64 / count as f64),
        interrupt_seconds: seconds(|times| times.interrupt),
        softirq_seconds: seconds(|times| times.softirq),
        filter_runs: filter.map(|(runs, _)| runs),
        filter_seconds: filter.map(|(_, nanos)| nanos as f64 / 1e9),
    }
}

impl Facts {
    /// A line for each subject.
    pub fn to_text(&self) -> String {
        let number = |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.1}"));
        let mut text = format!(
            "packets      {} delivered, {} lost{}\n",
            grouped(self.delivered),
            grouped(self.lost),
            self.offered
                .map(|offered| format!(", {} on the interfaces", grouped(offered)))
                .unwrap_or_default()
        );
        text += &format!(
            "time         {:.3} s, processor {:.3} s: user {:.3} s, system {:.3} s\n",
            self.wall_seconds, self.cpu_seconds, self.user_seconds, self.system_seconds
        );
        text += &format!(
            "batches      {} packets, {} bytes each\n",
            number(self.packets_per_batch),
            number(self.bytes_per_batch)
        );
        text += &format!(
            "wake-ups     {} waits, {} packets each\n",
            grouped(self.waits),
            self.packets_per_wake_up.map_or("-".to_owned(), |packets| format!("{packets:.1}"))
        );
        text += &format!(
            "others       had the processor {} s while work was ready, {} times; {:.1}% taken off the timed total\n",
            self.delayed_seconds.map_or("unknown".to_owned(), |seconds| format!("{seconds:.3}")),
            grouped(self.preempted),
            self.delayed_share * 100.0
        );
        if let Some(kernel) = &self.kernel {
            let ProcessFacts { cycles, unexplained_cycles } = self.process;
            text += &format!(
                "the process  {cycles:.1} cycles a packet, {unexplained_cycles:.1} of them unexplained\n"
            );
            text += &kernel.to_text();
        }
        text
    }
}

impl KernelFacts {
    fn to_text(&self) -> String {
        let count = |value: Option<u64>| value.map_or("unknown".to_owned(), grouped);
        let seconds =
            |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.2} s"));
        let filter = self.filter_runs.zip(self.filter_seconds).map(|(runs, seconds)| {
            let each = seconds * 1e9 / runs.max(1) as f64;
            format!("the filter   ran {} times in the kernel, {each:.1} ns each\n", grouped(runs))
        });
        let machine = format!(
            "the machine  {} interrupts ({}), {} receive softirqs (all softirqs {}), {} packets{}\n",
            count(self.interrupts),
            seconds(self.interrupt_seconds),
            count(self.net_rx_softirqs),
            seconds(self.softirq_seconds),
            count(self.received),
            self.packets_per_softirq.map(|packets| format!(", {packets:.1} a softirq")).unwrap_or_default()
        );
        filter.unwrap_or_default() + machine.as_str()
    }
}
