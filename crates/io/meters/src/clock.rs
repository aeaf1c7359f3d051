//! The clock that costs are measured with: the processor's counter where it can be trusted, else the system's clock.
//!
//! ```text
//! x86-64   time stamp counter, if the processor says that it is invariant and the kernel trusts it as a clock source
//! aarch64  virtual counter
//! else     CLOCK_MONOTONIC, in nanoseconds
//! ```
//!
//! Costs are given in *cycles*: ticks of this clock. With the time stamp counter these are cycles at the nominal
//! speed of the processor, at any actual speed; with the others they follow from the frequency.

use std::fmt;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tapline_sys::{clock, tsc};

/// Length of the frequency's measurement: with an uncertainty of about 50 ns at both ends these are 10 parts in a
/// million.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Length where 100 parts in a million do, and the command waits for it.
const SHORT_CALIBRATION: Duration = Duration::from_millis(1);
/// A reported frequency that differs by more than this is not believed: crystals are within 100 parts in a million,
/// and both clocks come from one.
const TOLD_ERROR_PPM: f64 = 1000.0;
/// Readings of which the one with the least uncertainty is taken.
const READINGS: usize = 16;

/// The counter that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockKind {
    /// The time stamp counter of x86-64.
    Tsc = 1,
    /// The virtual counter of aarch64 (`cntvct_el0`). It ticks slower than the processor: often 24 MHz to 1 GHz.
    VirtualCounter = 2,
    /// CLOCK_MONOTONIC.
    Monotonic = 3,
}

impl ClockKind {
    /// By its number in a file of meters.
    pub fn from_number(number: u64) -> Option<ClockKind> {
        [ClockKind::Tsc, ClockKind::VirtualCounter, ClockKind::Monotonic]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }
}

/// A clock that counts on at a constant rate, and the facts about it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Clock {
    kind: ClockKind,
    reason: String,
    frequency_hz: f64,
    frequency_source: String,
    error_ppm: f64,
    read_ticks: f64,
}

impl Clock {
    /// The clock of this machine. The first call in a process takes some 12 ms, because it measures.
    pub fn get() -> &'static Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(|| Clock::measure(CALIBRATION))
    }

    /// The clock for costs of stages, which every command counts: measured in a tenth of the time, with ten times the
    /// uncertainty.
    pub fn of_costs() -> &'static Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(|| Clock::measure(SHORT_CALIBRATION))
    }

    /// Measures the clock in `calibration`.
    fn measure(calibration: Duration) -> Clock {
        let (kind, reason) = choose(&Platform::read());
        let (frequency_hz, frequency_source, error_ppm) = match kind {
            ClockKind::Monotonic => (1e9, "by definition".to_owned(), 0.0),
            _ => settle(tsc::reported_frequency(), calibrate(calibration)),
        };
        let mut clock = Clock { kind, reason, frequency_hz, frequency_source, error_ppm, read_ticks: 0.0 };
        clock.read_ticks = clock.measure_read();
        clock
    }

    /// Ticks now.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.kind == ClockKind::Monotonic { clock::monotonic_ns() } else { tsc::now() }
    }

    /// The counter that is read.
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// The reason for the choice of this clock, in words.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Ticks in a second.
    pub fn frequency_hz(&self) -> f64 {
        self.frequency_hz
    }

    /// The source of the frequency, in words.
    pub fn frequency_source(&self) -> &str {
        &self.frequency_source
    }

    /// Uncertainty of the frequency in parts per million: that of the measurement, which also bounds the error of a
    /// frequency given by the kernel.
    pub fn error_ppm(&self) -> f64 {
        self.error_ppm
    }

    /// Cost of one reading in ticks: the median of many. Measuring adds two readings a batch to a stage.
    pub fn read_ticks(&self) -> f64 {
        self.read_ticks
    }

    /// `ticks` in nanoseconds.
    pub fn nanos(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.frequency_hz
    }

    fn measure_read(&self) -> f64 {
        // A reading of a virtual machine takes up to 25 ns, and every start waits for them.
        const RUNS: usize = 61;
        const READS: u32 = 32;
        let mut runs: Vec<u64> = (0..RUNS)
            .map(|_| {
                let before = self.now();
                for _ in 0..READS {
                    black_box(self.now());
                }
                self.now().wrapping_sub(before)
            })
            .collect();
        let middle = *runs.select_nth_unstable(RUNS / 2).1;
        middle as f64 / f64::from(READS + 1)
    }
}

impl fmt::Display for Clock {
    /// One line: the counter, its rate, the cost of a reading, and the reason for the choice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            ClockKind::Tsc => "time stamp counter",
            ClockKind::VirtualCounter => "virtual counter",
            ClockKind::Monotonic => "CLOCK_MONOTONIC",
        };
        let (mhz, ppm, ticks) = (self.frequency_hz / 1e6, self.error_ppm, self.read_ticks);
        let (nanos, source, reason) = (self.nanos(ticks), &self.frequency_source, &self.reason);
        write!(
            f,
            "{name} at {mhz:.3} MHz +- {ppm:.1} ppm ({source}), {ticks:.1} cycles or {nanos:.1} ns a reading; {reason}"
        )
    }
}

/// Facts on which the choice of a clock depends.
#[derive(Debug, Default)]
struct Platform {
    has_counter: bool,
    is_invariant: bool,
    /// `flags` in /proc/cpuinfo.
    flags: Option<String>,
    /// Files in /sys/devices/system/clocksource/clocksource0.
    current: Option<String>,
    available: Option<String>,
}

impl Platform {
    fn read() -> Platform {
        let source = |name: &str| {
            fs::read_to_string(format!("/sys/devices/system/clocksource/clocksource0/{name}"))
                .ok()
                .map(|text| text.trim().to_owned())
        };
        // Of the list of processors the first ones suffice: a paragraph of up to 3 KiB each.
        let processors = File::open("/proc/cpuinfo").and_then(|file| io::read_to_string(file.take(8 << 10)));
        let flags = processors.ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("flags"))?;
            Some(line.split_once(':')?.1.to_owned())
        });
        Platform {
            has_counter: cfg!(any(target_arch = "x86_64", target_arch = "aarch64")),
            is_invariant: tsc::is_invariant(),
            flags,
            current: source("current_clocksource"),
            available: source("available_clocksource"),
        }
    }

    fn has_flag(&self, name: &str) -> bool {
        self.flags.as_deref().is_some_and(|flags| flags.split_whitespace().any(|flag| flag == name))
    }
}

fn choose(platform: &Platform) -> (ClockKind, String) {
    if !platform.has_counter {
        return (ClockKind::Monotonic, "this processor has no counter that we know".into());
    }
    if cfg!(target_arch = "aarch64") {
        return (ClockKind::VirtualCounter, "the architecture makes it constant".into());
    }
    let is_constant = platform.has_flag("constant_tsc") && platform.has_flag("nonstop_tsc");
    if !(platform.is_invariant || is_constant) {
        let reason = "the time stamp counter changes its rate or stops (no constant_tsc and nonstop_tsc)";
        return (ClockKind::Monotonic, reason.into());
    }
    // The kernel takes "tsc" off the list once it saw counters disagree or drift. Guests may run on another source and
    // still have it.
    let lists_tsc = |list: &Option<String>| {
        list.as_deref().is_some_and(|list| list.split_whitespace().any(|name| name == "tsc"))
    };
    match &platform.current {
        None => {
            (ClockKind::Tsc, "constant and never stops; the kernel's clock source is not to be seen".into())
        }
        Some(current) if current == "tsc" || lists_tsc(&platform.available) => {
            (ClockKind::Tsc, format!("constant, never stops; the kernel's clock source is {current}"))
        }
        Some(current) => (
            ClockKind::Monotonic,
            format!("the kernel does not trust the time stamp counter: its clock source is {current}"),
        ),
    }
}

/// The given frequency if the measurement confirms it, else the measured one.
fn settle(told: Option<(u64, &'static str)>, (measured_hz, error_ppm): (f64, f64)) -> (f64, String, f64) {
    let Some((told_hz, source)) = told else {
        return (measured_hz, "measured against CLOCK_MONOTONIC_RAW".into(), error_ppm);
    };
    let difference_ppm = (told_hz as f64 / measured_hz - 1.0).abs() * 1e6;
    if difference_ppm > TOLD_ERROR_PPM + error_ppm {
        let source =
            format!("measured against CLOCK_MONOTONIC_RAW; {source} says {told_hz} Hz, which is wrong");
        return (measured_hz, source, error_ppm);
    }
    (told_hz as f64, source.into(), difference_ppm + error_ppm)
}

/// Ticks in a second, and the uncertainty in parts in a million.
fn calibrate(time: Duration) -> (f64, f64) {
    let start = Reading::best();
    thread::sleep(time);
    let end = Reading::best();
    let (ticks, nanos) = (end.ticks.wrapping_sub(start.ticks), end.nanos - start.nanos);
    let doubt = (start.doubt + end.doubt) as f64 / ticks.max(1) as f64;
    (ticks as f64 * 1e9 / nanos.max(1) as f64, doubt * 1e6)
}

/// Both clocks at one moment.
struct Reading {
    ticks: u64,
    nanos: u64,
    /// Ticks by which the moments may differ.
    doubt: u64,
}

impl Reading {
    fn take() -> Reading {
        let before = tsc::now();
        let nanos = clock::monotonic_raw_ns();
        let gap = tsc::now().wrapping_sub(before);
        Reading { ticks: before.wrapping_add(gap / 2), nanos, doubt: gap / 2 }
    }

    fn best() -> Reading {
        let mut best = Reading::take();
        for _ in 1..READINGS {
            let next = Reading::take();
            if next.doubt <= best.doubt {
                best = next;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(current: &str, available: &str) -> Platform {
        Platform {
            has_counter: true,
            is_invariant: true,
            flags: Some(" fpu constant_tsc nonstop_tsc".into()),
            current: Some(current.into()),
            available: Some(available.into()),
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_tsc_is_used_if_kernel_and_cpu_trust_it() {
        let kind = |platform: &Platform| choose(platform).0;
        assert_eq!(kind(&platform("tsc", "tsc hpet acpi_pm")), ClockKind::Tsc);
        assert_eq!(kind(&platform("kvm-clock", "kvm-clock tsc acpi_pm")), ClockKind::Tsc);
        assert_eq!(kind(&platform("hpet", "hpet acpi_pm")), ClockKind::Monotonic);
        let mut blind = platform("", "");
        (blind.current, blind.available) = (None, None);
        assert_eq!(kind(&blind), ClockKind::Tsc);
        let mut varying = platform("tsc", "tsc");
        varying.is_invariant = false;
        assert_eq!(kind(&varying), ClockKind::Tsc, "the kernel's flags say the same");
        varying.flags = Some(" fpu constant_tsc".into());
        assert_eq!(kind(&varying), ClockKind::Monotonic, "it stops when the processor sleeps");
        assert_eq!(kind(&Platform::default()), ClockKind::Monotonic);
    }

    #[test]
    fn a_told_frequency_counts_unless_it_is_wrong() {
        let (hz, _, ppm) = settle(Some((2_000_000_000, "firmware")), (2_000_020_000.0, 5.0));
        assert_eq!(hz, 2e9);
        assert!((14.0..16.0).contains(&ppm), "{ppm}");
        let (hz, source, _) = settle(Some((1_000_000_000, "firmware")), (2e9, 5.0));
        assert_eq!(hz, 2e9);
        assert!(source.contains("wrong"), "{source}");
        assert_eq!(settle(None, (2e9, 5.0)).0, 2e9);
    }

    #[test]
    fn this_machine_has_a_clock() {
        let clock = Clock::get();
        let before = clock.now();
        assert!(clock.now() >= before);
        assert!(clock.frequency_hz() > 1e6 && clock.read_ticks() > 0.0);
        assert!((clock.nanos(clock.frequency_hz()) - 1e9).abs() < 1.0);
        assert!(clock.to_string().contains(clock.reason()));
        assert!(!clock.reason().is_empty() && !clock.frequency_source().is_empty());
    }
}
