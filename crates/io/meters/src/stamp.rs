//! When a packet came: four ways to say it, as WinPcap had them.
//!
//! ```text
//! kernel    the packet's own time, from the kernel or the interface     costs nothing here
//! tsc       anchor + ticks * rate                                        one counter reading, one multiplication
//! tsc-sync  likewise, and a new anchor every 100 ms                      follows the system's clock, never goes backwards
//! batch     the system's clock, once a batch                             all packets of a batch have one time
//! ```
//!
//! `tsc` is anchored once, and drifts from the system's clock by the error of the frequency, some parts in a million.
//! `tsc-sync` finds at each anchor by how much it is off. The part that came from a wrong rate corrects the rate; the
//! difference itself is made up for until the next anchor is due, so that time never jumps for it. If the system's
//! clock was set forward, it follows at once; if it was set back, it goes at half its speed until both agree: an hour
//! takes two.
//!
//! All but `kernel` say when the packet was looked at, not when it came.

mod measure;

use std::fmt;
use std::str::FromStr;

use tapline_packet::Timestamp;
use tapline_sys::clock;

use crate::clock::Clock;

pub use measure::{StampError, StampReport, measure_stamps, stamps_to_text};

/// Anchors of `tsc-sync` are this far apart.
const SYNC_NS: u64 = 100_000_000;
/// A difference beyond this is not drift: the clock was set, or the machine slept.
const STEP_NS: i64 = 1_000_000;
/// Readings of both clocks for an anchor, of which the one with the least uncertainty is taken.
const READINGS: usize = 3;
/// Bits behind the point of a rate.
const FRACTION_BITS: u32 = 32;
/// Weight of the drift seen at one anchor: readings are uncertain by some 20 ns.
const DRIFT_WEIGHT: f64 = 0.25;
/// The rate is corrected by no more than this; crystals are ten times better.
const DRIFT_MAX: f64 = 1e-3;

tapline_packet::named_enum! {
    /// Source of packets' time stamps.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum StampMode {
        /// As the kernel or the interface stamped them.
        #[default]
        Kernel = "kernel",
        /// The processor's counter, anchored once.
        Tsc = "tsc",
        /// The processor's counter, held to the system's clock.
        TscSync = "tsc-sync",
        /// The system's clock, once a batch.
        Batch = "batch",
    }
}

impl StampMode {
    /// A few words for people.
    pub fn description(self) -> &'static str {
        match self {
            StampMode::Kernel => "Host or adapter, when the packet came",
            StampMode::Tsc => "Processor's counter when the packet is read, anchored once",
            StampMode::TscSync => "Processor's counter when the packet is read, held to system time",
            StampMode::Batch => "System time, once for all packets that are read at once",
        }
    }
}

impl fmt::Display for StampMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not a [`StampMode`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time stamp mode {0:?}; there are kernel, tsc, tsc-sync and batch")]
pub struct UnknownStampMode(pub String);

impl FromStr for StampMode {
    type Err = UnknownStampMode;

    fn from_str(name: &str) -> Result<StampMode, UnknownStampMode> {
        StampMode::of_name(name).ok_or_else(|| UnknownStampMode(name.to_owned()))
    }
}

/// The two clocks that stamps are made from. Tests have their own.
pub trait Clocks {
    /// A counter.
    fn ticks(&mut self) -> u64;
    /// The system's clock: nanoseconds since 1970 UTC.
    fn system_ns(&mut self) -> i64;
    /// Ticks of the counter in a second.
    fn frequency_hz(&self) -> f64;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClocks(&'static Clock);

impl SystemClocks {
    /// With [`Clock::get`].
    pub fn get() -> SystemClocks {
        SystemClocks(Clock::get())
    }
}

impl Clocks for SystemClocks {
    #[inline]
    fn ticks(&mut self) -> u64 {
        self.0.now()
    }

    #[inline]
    fn system_ns(&mut self) -> i64 {
        clock::realtime_ns()
    }

    fn frequency_hz(&self) -> f64 {
        self.0.frequency_hz()
    }
}

/// Sets the times of packets, in one of the modes. For one thread.
#[derive(Clone, Debug)]
pub struct Stamp<C = SystemClocks> {
    mode: StampMode,
    clocks: C,
    line: Line,
    /// Ticks until an anchor is due.
    sync_ticks: i64,
    /// By how much the counter's frequency is off, as a share of it.
    drift: f64,
    /// The last time that was given, in modes that never go backwards; that of the batch in `batch`.
    last: i64,
}

/// Time as a function of ticks: at one rate for a while, then at another.
#[derive(Clone, Copy, Debug)]
struct Line {
    ticks: u64,
    nanos: i64,
    /// Nanoseconds a tick, with 32 bits behind the point, for the first `bend` ticks.
    rate: u64,
    bend: i64,
    /// Rate from there on.
    rate_after: u64,
}

impl Stamp {
    /// With the clocks of this machine.
    pub fn new(mode: StampMode) -> Stamp {
        Stamp::with_clocks(mode, SystemClocks::get())
    }
}

impl<C: Clocks> Stamp<C> {
    /// With clocks of the caller's.
    pub fn with_clocks(mode: StampMode, mut clocks: C) -> Stamp<C> {
        let (ticks, nanos) = read_both(&mut clocks);
        let rate = rate(clocks.frequency_hz(), 1.0);
        let line = Line { ticks, nanos, rate, bend: i64::MAX, rate_after: rate };
        let sync_ticks = (SYNC_NS as f64 * clocks.frequency_hz() / 1e9) as i64;
        Stamp { mode, clocks, line, sync_ticks: sync_ticks.max(1), drift: 0.0, last: nanos }
    }

    /// The time stamp source in use.
    pub fn mode(&self) -> StampMode {
        self.mode
    }

    /// To be called when a batch has come. Reads the system's clock in mode `batch`, else does nothing.
    #[inline]
    pub fn begin_batch(&mut self) {
        if self.mode == StampMode::Batch {
            self.last = self.clocks.system_ns();
        }
    }

    /// The time of a packet whose own time is `own`.
    #[inline]
    pub fn stamp(&mut self, own: Timestamp) -> Timestamp {
        let nanos = match self.mode {
            StampMode::Kernel => return own,
            StampMode::Batch => self.last,
            StampMode::Tsc => {
                let since = self.clocks.ticks().wrapping_sub(self.line.ticks) as i64;
                self.line.nanos.saturating_add(nanos_in(since, self.line.rate))
            }
            StampMode::TscSync => self.held(),
        };
        Timestamp::from_nanos(nanos)
    }

    #[inline]
    fn held(&mut self) -> i64 {
        let mut ticks = self.clocks.ticks();
        let since = ticks.wrapping_sub(self.line.ticks) as i64;
        // Before the anchor: another processor's counter, or one that restarted while the machine slept.
        if !(0..self.sync_ticks).contains(&since) {
            ticks = self.synchronise();
        }
        self.last = self.last.max(self.line.at(ticks));
        self.last
    }

    /// A new anchor. Returns its ticks.
    #[cold]
    #[inline(never)]
    fn synchronise(&mut self) -> u64 {
        let (ticks, system) = read_both(&mut self.clocks);
        let ours = self.line.at(ticks).max(self.last);
        let elapsed = ticks.wrapping_sub(self.line.ticks) as i64;
        let hz = self.clocks.frequency_hz();
        let behind = system.saturating_sub(ours);
        self.line = if behind > STEP_NS || elapsed <= 0 {
            let nanos = system.max(ours);
            let rate = rate(hz, 1.0 + self.drift);
            Line { ticks, nanos, rate, bend: i64::MAX, rate_after: rate }
        } else {
            if behind >= -STEP_NS {
                let seen = behind as f64 * hz / (elapsed as f64 * 1e9);
                self.drift = (self.drift + seen * DRIFT_WEIGHT).clamp(-DRIFT_MAX, DRIFT_MAX);
            }
            let correction = (behind as f64 / SYNC_NS as f64).max(-0.5);
            let rate_after = rate(hz, 1.0 + self.drift);
            Line {
                ticks,
                nanos: ours,
                rate: rate(hz, 1.0 + self.drift + correction),
                bend: self.sync_ticks,
                rate_after,
            }
        };
        ticks
    }
}

impl Line {
    #[inline]
    fn at(&self, ticks: u64) -> i64 {
        let since = (ticks.wrapping_sub(self.ticks) as i64).max(0);
        let (before, after) = (since.min(self.bend), since.saturating_sub(self.bend).max(0));
        self.nanos
            .saturating_add(nanos_in(before, self.rate))
            .saturating_add(nanos_in(after, self.rate_after))
    }
}

/// `ticks` in nanoseconds.
#[inline]
fn nanos_in(ticks: i64, rate: u64) -> i64 {
    let nanos = (i128::from(ticks) * i128::from(rate)) >> FRACTION_BITS;
    nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Nanoseconds a tick at this frequency, times `factor`, with 32 bits behind the point.
fn rate(frequency_hz: f64, factor: f64) -> u64 {
    (1e9 / frequency_hz * factor * (1u64 << FRACTION_BITS) as f64) as u64
}

/// Both clocks at one moment, as nearly as possible.
fn read_both(clocks: &mut impl Clocks) -> (u64, i64) {
    let mut read = || {
        let before = clocks.ticks();
        let nanos = clocks.system_ns();
        let gap = clocks.ticks().wrapping_sub(before);
        (gap, before.wrapping_add(gap / 2), nanos)
    };
    let mut best = read();
    for _ in 1..READINGS {
        let next = read();
        if next.0 <= best.0 {
            best = next;
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests;
