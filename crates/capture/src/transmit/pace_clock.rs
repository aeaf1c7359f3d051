//! The clock that frames are sent by: the processor's counter, held to CLOCK_MONOTONIC.
//!
//! ```text
//! time = anchor + (ticks now - ticks at the anchor) * nanoseconds a tick          the anchor is set anew every 50 ms
//! ```
//!
//! The counter is read in a few nanoseconds, and its pace is measured anew at each anchor, so that no error adds up. Where processor or kernel
//! do not trust it, CLOCK_MONOTONIC is read instead.

use std::fs;
use std::time::Duration;

use tapline_sys::clock::monotonic_ns;
use tapline_sys::tsc;

/// How long an anchor serves, in nanoseconds.
const ANCHOR_NS: u64 = 50_000_000;
/// How long the pace is measured at the start.
const CALIBRATION: Duration = Duration::from_millis(10);
/// What the kernel names its clock source where it trusts the counter, itself or through its hypervisor.
const TRUSTED: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// A clock in nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug)]
pub(super) struct PaceClock {
    /// Nanoseconds a tick; `None` where the counter is not trusted.
    pace: Option<f64>,
    anchor_ticks: u64,
    anchor_ns: u64,
}

impl PaceClock {
    /// The clock of this machine. Takes some 10 ms, because it measures.
    pub(super) fn start() -> PaceClock {
        let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let is_trusted = source.is_ok_and(|name| TRUSTED.contains(&name.trim())) && tsc::is_invariant();
        let pace = is_trusted.then(|| 1e9 / tsc::frequency(CALIBRATION)).filter(|pace| pace.is_finite());
        let (anchor_ticks, anchor_ns) = both();
        PaceClock { pace, anchor_ticks, anchor_ns }
    }

    /// Now.
    #[inline]
    pub(super) fn now(&mut self) -> u64 {
        let Some(pace) = self.pace else { return monotonic_ns() };
        let since = (tsc::now().wrapping_sub(self.anchor_ticks) as f64 * pace) as u64;
        if since < ANCHOR_NS { self.anchor_ns + since } else { self.anchor() }
    }

    #[cold]
    fn anchor(&mut self) -> u64 {
        let (ticks, nanos) = both();
        let passed = ticks.wrapping_sub(self.anchor_ticks) as f64;
        // A clock that was stopped (a machine put to sleep) gives no pace.
        self.pace = self.pace.map(|old| {
            let new = (nanos - self.anchor_ns) as f64 / passed;
            if (new / old - 1.0).abs() < 1e-3 { new } else { old }
        });
        (self.anchor_ticks, self.anchor_ns) = (ticks, nanos);
        nanos
    }
}

/// Both clocks at one moment: of a few readings, the one in which the counter went on least.
fn both() -> (u64, u64) {
    let reading = |_| {
        let before = tsc::now();
        let nanos = monotonic_ns();
        let took = tsc::now().wrapping_sub(before);
        (took, before.wrapping_add(took / 2), nanos)
    };
    let best = (0..4).map(reading).min_by_key(|(took, ..)| *took);
    best.map_or((0, 0), |(_, ticks, nanos)| (ticks, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_as_the_system_clock_goes() {
        let mut clock = PaceClock::start();
        let mut last = 0;
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(7));
            let (before, now, after) = (monotonic_ns(), clock.now(), monotonic_ns());
            // A hundred parts in a million of an anchor's time are 5 microseconds.
            assert!(now + 50_000 > before && now < after + 50_000, "{before} {now} {after}");
            assert!(now > last);
            last = now;
        }
    }
}
