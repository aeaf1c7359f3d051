//! Cost of a packet in a run of the engine: counters before and after, and the components that follow from them.
//!
//! ```text
//! PreparedRun::new    the cost of a wait; of a live run, the kernel's counters while no capture is open (the baseline)
//!   sources are opened
//! PreparedRun::start  processor time, switches, the kernel's counters
//!   the engine runs
//! StartedRun::stop    the same again --> Measured --> breakdown(), facts(), picture()
//! ```

mod breakdown;
mod facts;
mod picture;

pub use breakdown::breakdown;
pub use facts::{Facts, facts};
pub use picture::picture;

use std::thread;
use std::time::{Duration, Instant};

use tapline_graph::GraphAccount;
use tapline_meters::{Clock, ClockKind, KernelCounters, Scheduling, Snapshot};
use tapline_sys::usage::{CpuTime, SchedulerCounts, process_time, thread_time};
use tapline_sys::{NetNs, Poller, RouteSocket, SyscallError, measure_waits, measured_waits, tsc};

/// The baseline takes a quarter of the run's time, and this much at most.
const BASELINE_MAX: Duration = Duration::from_secs(3);
/// Groups of waits from which the cost of one is taken, as the median.
const GROUPS: usize = 9;
/// Waits in a group.
const WAITS: u32 = 25;
/// Length of a wait.
const WAIT: Duration = Duration::from_micros(50);
/// Readings of the clock in a group.
const READINGS: u32 = 1000;

/// A run of the engine as measured.
#[derive(Debug)]
pub struct Measured {
    /// Name of the run in tables and pictures.
    pub title: String,
    /// Whether packets came from interfaces.
    pub is_live: bool,
    /// Number of sources.
    pub sources: usize,
    /// The account of the run.
    pub account: GraphAccount,
    /// Packets that the interfaces counted meanwhile, captured or not; `None` where that is not known.
    pub offered: Option<u64>,
    /// Meters of the stages, sources first.
    pub stages: Vec<Snapshot>,
    /// Time of the engine's loop while awake, in ticks.
    pub ticks: u64,
    /// Ticks a second.
    pub frequency_hz: f64,
    /// Resources of the process.
    pub spent: ResourceUsage,
    /// Counters of the kernel over the run.
    pub kernel: KernelCounters,
    /// Counters of the kernel while no capture was open.
    pub baseline: Option<KernelCounters>,
    /// Processor time of one wait for packets, measured apart.
    pub wait_cost: Duration,
    /// Processor time of the engine's waits in the run; `None` if it was not measured.
    pub waits_cost: Option<Duration>,
    /// Time of the time stamps that the process gave packets, in ticks.
    pub stamp_ticks: u64,
    /// Time of one reading of the system's clock, in ticks: the kernel reads it for each packet before the tap.
    pub clock_ticks: f64,
    /// Runs of the filter in the kernel, and their time in nanoseconds by the kernel's own statistics.
    pub kernel_filter: Option<(u64, u64)>,
}

/// Resources of the process between two moments.
#[derive(Clone, Copy, Debug)]
pub struct ResourceUsage {
    /// Time by the wall clock.
    pub wall: Duration,
    /// Processor time of all threads.
    pub cpu: Duration,
    /// The time in user and kernel mode.
    pub by_mode: CpuTime,
    /// Context switches of all threads.
    pub switches: SchedulerCounts,
    /// Scheduling of the engine's thread.
    pub scheduling: Option<Scheduling>,
}

/// A run that is about to begin.
#[derive(Debug)]
pub struct PreparedRun {
    devices: Vec<String>,
    /// Source of the counters of the interfaces, in their network namespace.
    links: Option<RouteSocket>,
    wait_cost: Duration,
    baseline: Option<KernelCounters>,
    /// Counters of the interfaces before the sources were opened, and once they were.
    before_opening: Option<u64>,
    opened: Option<u64>,
}

impl PreparedRun {
    /// Measures the cost of a wait and, if packets come from `devices`, the baseline. To be called before the sources
    /// are opened; `duration` is that of the run.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn new(
        devices: &[&str],
        netns: Option<&str>,
        duration: Option<Duration>,
    ) -> Result<PreparedRun, SyscallError> {
        let wait_cost = wait_cost()?;
        let baseline = duration.filter(|_| !devices.is_empty()).map(baseline);
        let devices = devices.iter().map(|&name| name.to_owned()).collect();
        let links = match netns {
            None => RouteSocket::open().ok(),
            Some(name) => NetNs::open(name).ok().and_then(|inside| inside.run(RouteSocket::open).ok()?.ok()),
        };
        let mut run = PreparedRun { devices, links, wait_cost, baseline, before_opening: None, opened: None };
        run.before_opening = run.interface_packets();
        Ok(run)
    }

    /// Reads the interfaces' counters; to be called once the sources are open.
    pub fn opened(&mut self) {
        self.opened = self.interface_packets();
    }

    /// Reads the counters of kernel and process, right before the engine runs in this thread.
    pub fn start(self) -> StartedRun {
        measure_waits();
        StartedRun { watch: self, kernel: KernelCounters::read(), process: Resources::now() }
    }

    /// Packets that the devices have received and sent; `None` if a device is a pattern, or the kernel does not
    /// report them.
    fn interface_packets(&mut self) -> Option<u64> {
        let links = self.links.as_mut()?.links().ok()?;
        let of = |name: &String| {
            let counted = links.iter().find(|link| link.name == *name)?.statistics?;
            Some(counted.rx_packets + counted.tx_packets)
        };
        (!self.devices.is_empty()).then(|| self.devices.iter().map(of).sum::<Option<u64>>()).flatten()
    }
}

/// A run that has begun.
#[derive(Debug)]
pub struct StartedRun {
    watch: PreparedRun,
    kernel: KernelCounters,
    process: Resources,
}

/// Results of the engine itself.
#[derive(Debug)]
pub struct EngineOutcome {
    /// The account of the run.
    pub account: GraphAccount,
    /// Time of the engine's loop while awake, in ticks.
    pub ticks: u64,
    /// Number of sources.
    pub sources: usize,
}

/// Counters read at the end, in the thread of the engine.
#[derive(Debug)]
pub struct FinishedRun {
    watch: PreparedRun,
    kernel: KernelCounters,
    spent: ResourceUsage,
    waits_cost: Option<Duration>,
    /// Counters of the interfaces at the end.
    ended: Option<u64>,
}

impl StartedRun {
    /// Reads the counters again, right after the engine.
    pub fn stop(mut self) -> FinishedRun {
        let spent = self.process.spent();
        let waits_cost = measured_waits();
        let kernel = KernelCounters::read().since(&self.kernel);
        let ended = self.watch.interface_packets();
        FinishedRun { watch: self.watch, kernel, spent, waits_cost, ended }
    }
}

impl FinishedRun {
    /// Packets on the interfaces while the sources were open, of which `captured` came to the tap.
    ///
    /// A tap takes packets from the moment at which it is bound, which is between two readings of the counters: of
    /// the packets between these readings only the captured ones count.
    fn offered(&self, captured: u64) -> Option<u64> {
        let since = |start: Option<u64>| Some(self.ended?.saturating_sub(start?));
        let (least, most) = (since(self.watch.opened)?, since(self.watch.before_opening)?);
        Some(captured.clamp(least, most.max(least)))
    }

    /// All figures of the run. `stages` are the meters, `stamp_ticks` and `kernel_filter` as in [`Measured`].
    pub fn measured(
        self,
        title: String,
        outcome: EngineOutcome,
        stages: Vec<Snapshot>,
        stamp_ticks: u64,
        kernel_filter: Option<(u64, u64)>,
    ) -> Measured {
        let EngineOutcome { account, ticks, sources } = outcome;
        let offered = self.offered(account.delivered.saturating_add(account.lost()));
        Measured {
            title,
            is_live: !self.watch.devices.is_empty(),
            sources,
            account,
            offered,
            stages,
            ticks,
            frequency_hz: frequency_hz(),
            spent: self.spent,
            kernel: self.kernel,
            baseline: self.watch.baseline,
            wait_cost: self.watch.wait_cost,
            waits_cost: self.waits_cost,
            stamp_ticks,
            clock_ticks: clock_ticks(),
            kernel_filter,
        }
    }
}

/// Resources of the process so far.
#[derive(Debug)]
struct Resources {
    moment: Instant,
    cpu: Duration,
    by_mode: CpuTime,
    switches: SchedulerCounts,
    scheduling: Option<Scheduling>,
}

impl Resources {
    fn now() -> Resources {
        let (scheduling, switches) = (Scheduling::of_thread(), SchedulerCounts::of_process());
        let by_mode = CpuTime::of_process();
        Resources { scheduling, switches, by_mode, moment: Instant::now(), cpu: process_time() }
    }

    fn spent(self) -> ResourceUsage {
        let (cpu, wall) = (process_time(), self.moment.elapsed());
        ResourceUsage {
            wall,
            cpu: cpu.saturating_sub(self.cpu),
            by_mode: CpuTime::of_process().since(self.by_mode),
            switches: SchedulerCounts::of_process().since(self.switches),
            scheduling: Scheduling::of_thread().zip(self.scheduling).map(|(now, then)| now.since(then)),
        }
    }
}

/// Counters of the kernel over a time without a capture.
fn baseline(duration: Duration) -> KernelCounters {
    let before = KernelCounters::read();
    thread::sleep((duration / 4).min(BASELINE_MAX));
    KernelCounters::read().since(&before)
}

/// Processor time of one wait that ends by its timeout: the call, the sleep, the wake-up.
fn wait_cost() -> Result<Duration, SyscallError> {
    let mut poller = Poller::new();
    let mut group = || -> Result<Duration, SyscallError> {
        let before = thread_time();
        for _ in 0..WAITS {
            poller.wait(WAIT)?;
        }
        Ok((thread_time() - before) / WAITS)
    };
    let mut costs = (0..GROUPS).map(|_| group()).collect::<Result<Vec<_>, _>>()?;
    costs.sort();
    Ok(costs[GROUPS / 2])
}

/// Time of one reading of the system's clock, in ticks: the median of some groups.
fn clock_ticks() -> f64 {
    let mut times: Vec<u64> = (0..GROUPS)
        .map(|_| {
            let start = tsc::now();
            (0..READINGS).for_each(|_| {
                std::hint::black_box(tapline_sys::clock::realtime_ns());
            });
            tsc::now().wrapping_sub(start)
        })
        .collect();
    times.sort_unstable();
    times[GROUPS / 2] as f64 / READINGS as f64
}

/// Ticks a second of the clock of the meters.
fn frequency_hz() -> f64 {
    let clock = Clock::get();
    match clock.kind() {
        ClockKind::Monotonic => tsc::frequency(Duration::from_millis(20)),
        _ => clock.frequency_hz(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_from_the_opening_on_count_once() {
        let watch = PreparedRun {
            devices: vec!["eth0".to_owned()],
            links: None,
            wait_cost: Duration::ZERO,
            baseline: None,
            before_opening: Some(1_000),
            opened: Some(1_100),
        };
        let (kernel, spent) = (KernelCounters::default(), Resources::now().spent());
        let finished = FinishedRun { watch, kernel, spent, waits_cost: None, ended: Some(2_000) };
        assert_eq!(finished.offered(957), Some(957), "57 packets came before the counters were read");
        assert_eq!(finished.offered(10), Some(900), "a filter took the others");
        assert_eq!(finished.offered(5_000), Some(1_000), "never more than the interfaces counted");
    }

    #[test]
    fn a_wait_costs_something() {
        assert!(wait_cost().unwrap() > Duration::ZERO);
    }
}
