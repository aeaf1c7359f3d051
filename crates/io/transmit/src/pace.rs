//! Frames at their times.
//!
//! ```text
//! schedule --batch, times--> wait --due--> send all that are due in one call --> gap errors
//!                             |
//!                             far off: sleep        near: read the processor's counter until it is time
//! ```
//!
//! A frame that has its time to itself goes alone, at that time. If frames come faster than calls can be made, or the
//! process was kept from the processor for a while, all that are due by then go in one call: so the rate holds, and
//! gaps are as even as the machine allows. Frames count as due together within twice the lateness of recent sleeps,
//! from 20 to 200 microseconds.

use tapline_meters::{Clock, Clocks, Distribution, Stamp, StampMode};
use tapline_packet::{Batch, Interface, Timestamp};
use tapline_source::Error;
use tapline_sys::clock::monotonic_ns;
use tapline_sys::timer;

use super::{SendCounts, Transmitter};

/// Nearer than this to its time at most, and at least, a frame is waited for by reading the counter: sleeping threads
/// wake up late.
const SPIN_MAX_NS: u64 = 200_000;
const SPIN_MIN_NS: u64 = 20_000;
/// The longest sleep at once, so that an order to stop is heard.
const SLEEP_MAX_NS: u64 = 20_000_000;
/// Nanoseconds from when the first frame is at hand to when it goes.
pub const LEAD_NS: u64 = 1_000_000;

/// Frames with the times at which they are to go.
pub trait Schedule {
    /// Goes on to the next frames; `false` when there are no more.
    ///
    /// # Errors
    /// The error that ends the schedule; frames before it are sent.
    fn advance(&mut self) -> Result<bool, Error>;

    /// The frames, until the next [`advance`](Self::advance).
    fn batch(&self) -> Batch<'_>;

    /// The time of each frame, in nanoseconds after the start; never falling, also from batch to batch.
    fn times(&self) -> &[u64];

    /// The interfaces by the numbers in frames.
    fn interfaces(&self) -> &[Interface];
}

/// The owner of a paced run: asked between any two calls and every 20 ms while nothing is due. Its answers must not
/// block.
pub trait PaceObserver {
    /// Whether to stop.
    fn is_stopped(&self) -> bool;

    /// Whether it needs reports of the progress.
    fn wants_report(&self) -> bool {
        false
    }

    /// The progress of the run.
    fn tell(&self, report: &PaceReport, sent: &SendCounts) {
        let _ = (report, sent);
    }
}

/// Counters and times of a paced run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceReport {
    /// Frames that were handed to the transmitter, sent or not.
    pub frames: u64,
    /// Frames of the last batch that were not reached: an order to stop came, or a failure.
    pub left: u64,
    /// From the first frame's time to the last one's, as planned, in nanoseconds.
    pub planned_ns: u64,
    /// From the first frame's time to the last one's, as measured, in nanoseconds.
    pub elapsed_ns: u64,
    /// The longest that a frame went after its time, in nanoseconds.
    pub late_max_ns: u64,
    /// By how many nanoseconds gaps between frames differed from those planned, either way. Frames of one call are
    /// taken to go evenly during it.
    pub gaps: Distribution,
}

/// The processor's counter, held to the clock that sleeps go by.
#[derive(Clone, Debug)]
struct Monotonic(&'static Clock);

impl Clocks for Monotonic {
    #[inline]
    fn ticks(&mut self) -> u64 {
        self.0.now()
    }

    fn system_ns(&mut self) -> i64 {
        monotonic_ns() as i64
    }

    fn frequency_hz(&self) -> f64 {
        self.0.frequency_hz()
    }
}

/// Sends frames at their times.
#[derive(Debug)]
pub struct Pacer {
    clock: Stamp<Monotonic>,
    /// The clock's time that is 0 in the schedule.
    start: u64,
    /// Nanoseconds before a frame's time at which a sleep should end.
    spin_ns: u64,
    first: Option<(u64, u64)>,
    last: (u64, u64),
    report: PaceReport,
}

impl Pacer {
    /// Measures the clock, which takes some 10 ms.
    pub fn new() -> Pacer {
        Pacer {
            clock: Stamp::with_clocks(StampMode::TscSync, Monotonic(Clock::get())),
            start: 0,
            spin_ns: SPIN_MIN_NS,
            first: None,
            last: (0, 0),
            report: PaceReport::default(),
        }
    }

    /// Sends all frames of a schedule, until the overseer stops it. The calling thread does nothing else meanwhile, and
    /// keeps a processor busy where gaps are short.
    ///
    /// # Errors
    /// The error of the schedule or the transmitter; the report then has the progress.
    pub fn run(
        &mut self,
        schedule: &mut dyn Schedule,
        transmitter: &mut Transmitter,
        overseer: &dyn PaceObserver,
    ) -> Result<(), Error> {
        // Without it sleeps end up to 50 microseconds late; what is left of them is spent spinning.
        let _ = timer::set_timer_slack(std::time::Duration::from_nanos(1));
        let mut is_begun = false;
        while !overseer.is_stopped() && schedule.advance()? {
            if !std::mem::replace(&mut is_begun, true) {
                self.start = self.now() + LEAD_NS;
            }
            let (batch, times) = (schedule.batch(), schedule.times());
            let count = batch.len().min(times.len());
            let mut at = 0;
            while at < count {
                let time = self.start.saturating_add(times[at]);
                let Some(now) = self.wait_until(time, transmitter.sent(), overseer) else {
                    self.report.left = (count - at) as u64;
                    return Ok(());
                };
                let due = now.saturating_sub(self.start);
                let end = at + times[at..count].iter().take_while(|time| **time <= due).count().max(1);
                let sent = transmitter.send(&batch, at..end, schedule.interfaces());
                let after = self.now();
                self.note(&times[at..end], now, after);
                at = end;
                if sent.is_err() {
                    self.report.left = (count - at) as u64;
                    return sent;
                }
            }
        }
        Ok(())
    }

    /// The report so far.
    pub fn report(&self) -> &PaceReport {
        &self.report
    }

    /// Now, in nanoseconds of CLOCK_MONOTONIC.
    #[inline]
    fn now(&mut self) -> u64 {
        self.clock.stamp(Timestamp::EPOCH).as_nanos() as u64
    }

    /// Waits; gives the time, or `None` if an order to stop came first.
    fn wait_until(&mut self, time: u64, sent: &SendCounts, overseer: &dyn PaceObserver) -> Option<u64> {
        let mut has_slept = false;
        if overseer.wants_report() {
            overseer.tell(&self.report, sent);
        }
        loop {
            let now = self.now();
            if now >= time {
                // Forgotten slowly: lateness may come again. With short gaps, sleeping is tried now and then.
                let part = if has_slept { 16 } else { 64 };
                self.spin_ns = (self.spin_ns - self.spin_ns / part).max(SPIN_MIN_NS);
                return Some(now);
            }
            if overseer.is_stopped() {
                return None;
            }
            let left = time - now;
            if left > self.spin_ns {
                let until = now + (left - self.spin_ns).min(SLEEP_MAX_NS);
                timer::sleep_until(until);
                let late = self.now().saturating_sub(until);
                self.spin_ns = (2 * late).clamp(self.spin_ns, SPIN_MAX_NS);
                has_slept = true;
                if overseer.wants_report() {
                    overseer.tell(&self.report, sent);
                }
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Notes when frames went that were handed over in one call.
    fn note(&mut self, times: &[u64], before: u64, after: u64) {
        let count = times.len() as u64;
        let each = (after.saturating_sub(before) as f64) / count as f64;
        for (number, &time) in times.iter().enumerate() {
            let went = before + (number as f64 * each) as u64;
            match self.first {
                None => self.first = Some((time, went)),
                Some(_) => {
                    let (planned, was) = (time.abs_diff(self.last.0), went.abs_diff(self.last.1));
                    self.report.gaps.add(planned.abs_diff(was));
                }
            }
            let late = went.saturating_sub(self.start.saturating_add(time));
            self.report.late_max_ns = self.report.late_max_ns.max(late);
            self.last = (time, went);
        }
        let (first_time, first_went) = self.first.unwrap_or_default();
        self.report.frames += count;
        self.report.planned_ns = self.last.0 - first_time;
        self.report.elapsed_ns = self.last.1 - first_went;
    }
}

impl Default for Pacer {
    fn default() -> Pacer {
        Pacer::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_clock_goes_as_the_one_that_sleeps_go_by() {
        let mut pacer = Pacer::new();
        let mut last = 0;
        for _ in 0..40 {
            std::thread::sleep(std::time::Duration::from_millis(7));
            let (before, now, after) = (monotonic_ns(), pacer.now(), monotonic_ns());
            // Another clock is off by far more than a thread that waited for a processor between two readings.
            assert!(now + 1_000_000 > before && now < after + 1_000_000, "{before} {now} {after}");
            assert!(now > last);
            last = now;
        }
    }
}
