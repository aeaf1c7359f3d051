//! Cost of each time stamp mode, and its error against the system clock.
//!
//! ```text
//! cost    t0, begin_batch, 256 stamps, t1                    median of many batches
//! error   CLOCK_REALTIME, stamp, CLOCK_REALTIME              stamp - middle, known to half the distance of the two readings
//! ```
//!
//! Modes take turns, so that a disturbance of the machine affects all. A pair of readings between which the thread
//! was interrupted says nothing about the stamp; those that are much farther apart than most are counted and left
//! out.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tapline_packet::Timestamp;
use tapline_sys::clock;

use super::{Stamp, StampMode};
use crate::clock::Clock;

/// Packets in a batch when costs are measured: as many as a batch may have.
const BATCH: u32 = 256;
/// Batches of each mode.
const BATCHES: usize = 1001;
/// Readings this many times farther apart than half of all are left out.
const DISTANCE_MAX: i64 = 3;
/// Between two samples, so that the anchors of a second are seen, and the machine is left to others.
const PAUSE: Duration = Duration::from_micros(200);

/// Cost and accuracy of a time stamp mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StampReport {
    /// The mode.
    pub mode: StampMode,
    /// Ticks of the [`Clock`] for each packet, in batches of 256; the median.
    pub ticks_per_packet: f64,
    /// Cost of a packet in nanoseconds.
    pub ns_per_packet: f64,
    /// Against CLOCK_REALTIME; `None` for `kernel`, whose times come with packets.
    pub error: Option<StampError>,
}

/// Times against CLOCK_REALTIME.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StampError {
    /// Stamps that were compared.
    pub samples: usize,
    /// Stamps that were not, because the thread was interrupted at them.
    pub left_out: usize,
    /// Half of all errors are smaller than this, in nanoseconds.
    pub median_ns: i64,
    /// 99 of 100 errors are.
    pub p99_ns: i64,
    /// All are.
    pub max_ns: i64,
    /// The uncertainty of an error: half of the median distance of two readings of the system's clock.
    pub uncertainty_ns: i64,
    /// Growth of the error over the measurement, in parts per million of its length.
    pub drift_ppm: f64,
    /// Stamps that were earlier than the one before, of all that were made.
    pub backwards: u64,
}

/// Measures all modes, errors for so long. A second is enough for all but the drift of a good clock.
pub fn measure_stamps(time: Duration) -> Vec<StampReport> {
    let clock = Clock::get();
    let mut trials = StampMode::ALL.map(Trial::new);
    for _ in 0..BATCHES {
        trials.iter_mut().for_each(|trial| trial.time_batch(clock));
    }
    let start = Instant::now();
    while start.elapsed() < time {
        trials.iter_mut().for_each(Trial::compare);
        // The first after a pause finds cold caches.
        trials.rotate_left(1);
        thread::sleep(PAUSE);
    }
    trials.sort_by_key(|trial| trial.stamp.mode() as usize);
    trials.into_iter().map(|trial| trial.report(clock)).collect()
}

/// Reports as a table, a line for each mode.
pub fn stamps_to_text(reports: &[StampReport]) -> String {
    let mut text = format!(
        "{:8}  {:>13}  {:>9}  {:>9}  {:>7}  {:>7}  {:>5}  {:>10}  {:>9}\n",
        "mode",
        "cycles/packet",
        "ns/packet",
        "median ns",
        "p99 ns",
        "max ns",
        "+- ns",
        "drift, ppm",
        "backwards"
    );
    for report in reports {
        text +=
            &format!("{:8}  {:13.1}  {:9.1}  ", report.mode, report.ticks_per_packet, report.ns_per_packet);
        text += &match &report.error {
            Some(error) => format!(
                "{:>9}  {:>7}  {:>7}  {:>5}  {:>10.3}  {:>9}\n",
                error.median_ns,
                error.p99_ns,
                error.max_ns,
                error.uncertainty_ns,
                error.drift_ppm,
                error.backwards
            ),
            None => "times come with the packets\n".to_owned(),
        };
    }
    text
}

struct Trial {
    stamp: Stamp,
    batches: Vec<u64>,
    samples: Vec<Sample>,
    last: Timestamp,
    backwards: u64,
}

#[derive(Clone, Copy)]
struct Sample {
    error_ns: i64,
    distance_ns: i64,
    at_ns: i64,
}

impl Trial {
    fn new(mode: StampMode) -> Trial {
        let last = Timestamp::from_nanos(i64::MIN);
        Trial { stamp: Stamp::new(mode), batches: Vec::new(), samples: Vec::new(), last, backwards: 0 }
    }

    fn time_batch(&mut self, clock: &Clock) {
        let before = clock.now();
        self.stamp.begin_batch();
        for _ in 0..BATCH {
            black_box(self.stamp.stamp(black_box(Timestamp::EPOCH)));
        }
        self.batches.push(clock.now().wrapping_sub(before));
        self.take();
    }

    fn compare(&mut self) {
        if self.stamp.mode() == StampMode::Kernel {
            return;
        }
        let before = clock::realtime_ns();
        self.stamp.begin_batch();
        let ours = self.stamp.stamp(Timestamp::EPOCH).as_nanos();
        let after = clock::realtime_ns();
        let distance_ns = after.saturating_sub(before);
        let middle = before.saturating_add(distance_ns / 2);
        self.samples.push(Sample { error_ns: ours.saturating_sub(middle), distance_ns, at_ns: middle });
        self.take();
    }

    /// One more stamp, to see that it is not before the last.
    fn take(&mut self) {
        let next = self.stamp.stamp(self.last);
        self.backwards += u64::from(next < self.last);
        self.last = next;
    }

    fn report(mut self, clock: &Clock) -> StampReport {
        let middle = *self.batches.select_nth_unstable(BATCHES / 2).1 as f64;
        let ticks_per_packet = (middle - clock.read_ticks()).max(0.0) / f64::from(BATCH);
        let error = error(&self.samples).map(|error| StampError { backwards: self.backwards, ..error });
        StampReport {
            mode: self.stamp.mode(),
            ticks_per_packet,
            ns_per_packet: clock.nanos(ticks_per_packet),
            error,
        }
    }
}

fn error(samples: &[Sample]) -> Option<StampError> {
    let mut distances: Vec<i64> = samples.iter().map(|sample| sample.distance_ns).collect();
    distances.sort_unstable();
    let usual = *distances.get(distances.len() / 2)?;
    let good: Vec<Sample> = samples
        .iter()
        .filter(|sample| (0..=usual.saturating_mul(DISTANCE_MAX)).contains(&sample.distance_ns))
        .copied()
        .collect();
    let mut errors: Vec<i64> = good.iter().map(|sample| sample.error_ns.saturating_abs()).collect();
    errors.sort_unstable();
    let at =
        |share: usize| errors.get((errors.len() * share / 100).min(errors.len().saturating_sub(1))).copied();
    Some(StampError {
        samples: good.len(),
        left_out: samples.len() - good.len(),
        median_ns: at(50)?,
        p99_ns: at(99)?,
        max_ns: at(100)?,
        uncertainty_ns: usual / 2,
        drift_ppm: drift_ppm(&good),
        backwards: 0,
    })
}

/// The slope from the first tenth of the samples to the last.
fn drift_ppm(samples: &[Sample]) -> f64 {
    let tenth = samples.len().div_ceil(10);
    if samples.len() < 2 {
        return 0.0;
    }
    let (first, last) = (&samples[..tenth], &samples[samples.len() - tenth..]);
    let mean = |samples: &[Sample], value: fn(&Sample) -> i64| {
        // From the first sample on: an f64 holds no nanoseconds since 1970.
        let base = value(&first[0]);
        samples.iter().map(|sample| value(sample).saturating_sub(base) as f64).sum::<f64>() / tenth as f64
    };
    let growth = |value| mean(last, value) - mean(first, value);
    let elapsed = growth(|sample| sample.at_ns);
    if elapsed > 0.0 { growth(|sample| sample.error_ns) / elapsed * 1e6 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(error_ns: i64, distance_ns: i64, at_ns: i64) -> Sample {
        Sample { error_ns, distance_ns, at_ns }
    }

    #[test]
    fn errors_are_sorted_and_interruptions_left_out() {
        let mut samples: Vec<Sample> = (0..100).map(|index| sample(-index, 40, index * 1_000_000)).collect();
        samples.push(sample(900_000, 2_000_000, 0));
        let error = error(&samples).expect("samples");
        assert_eq!((error.samples, error.left_out), (100, 1));
        assert_eq!((error.median_ns, error.p99_ns, error.max_ns), (50, 99, 99));
        assert_eq!(error.uncertainty_ns, 20);
        assert!((error.drift_ppm + 1.0).abs() < 1e-9, "{}: 1 ns less each millisecond", error.drift_ppm);
    }

    #[test]
    fn few_samples_are_no_harm() {
        assert_eq!(error(&[]), None);
        let one = error(&[sample(i64::MIN, 0, 0)]).expect("a sample");
        assert_eq!((one.median_ns, one.drift_ppm), (i64::MAX, 0.0));
        assert_eq!(error(&[sample(1, 0, 0), sample(2, 0, 1000)]).expect("samples").drift_ppm, 1000.0);
        assert_eq!(error(&[sample(1, -5, 0)]), None, "the system's clock was set back between the readings");
    }

    #[test]
    fn columns_stand_below_their_titles() {
        let error = StampError { median_ns: 5, backwards: 3, ..StampError::default() };
        let report = StampReport {
            mode: StampMode::TscSync,
            ticks_per_packet: 32.25,
            ns_per_packet: 13.2,
            error: Some(error),
        };
        let text = stamps_to_text(&[report]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].len(), lines[1].len());
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["tsc-sync", "32.2", "13.2", "5", "0", "0", "0", "0.000", "3"]
        );
    }

    #[test]
    fn all_modes_are_measured() {
        let reports = measure_stamps(Duration::from_millis(20));
        assert_eq!(reports.iter().map(|report| report.mode).collect::<Vec<_>>(), StampMode::ALL);
        assert!(
            reports.iter().skip(1).all(|report| report.error.as_ref().is_some_and(|error| error.samples > 0))
        );
        assert!(reports[0].error.is_none());
        let sync = reports.iter().find(|report| report.mode == StampMode::TscSync).expect("a report");
        assert_eq!(sync.error.as_ref().map(|error| error.backwards), Some(0));
    }
}
