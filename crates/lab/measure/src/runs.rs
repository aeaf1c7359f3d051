//! Processor time of a child process alone.

use anyhow::{Context, bail};
use std::ops::RangeInclusive;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tapline_sys::usage::CpuTime;

/// One run of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// User and system time.
    pub cpu: Duration,
    /// From start to end.
    pub wall: Duration,
    /// Packets it handled.
    pub packets: u64,
    /// Packets that were offered and that it does not have.
    pub lost: u64,
}

impl Run {
    /// Processor time for each packet, in nanoseconds.
    pub fn cpu_ns_per_packet(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.packets.max(1) as f64
    }
}

/// Runs a command to its end, its output thrown away, and measures it.
pub fn run(command: &mut Command, packets: u64) -> anyhow::Result<Run> {
    let start = Instant::now();
    let child = start_quietly(command)?;
    let cpu = reap(child, command)?;
    Ok(Run { cpu, wall: start.elapsed(), packets, lost: 0 })
}

/// Starts a command without input and output; its messages are kept for [`reap`].
pub fn start_quietly(command: &mut Command) -> anyhow::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))
}

/// Waits for a child to end and returns its processor time.
///
/// The kernel adds a child's time to ours when it is waited for, so no other child may be waited for meanwhile.
pub fn reap(child: Child, command: &Command) -> anyhow::Result<Duration> {
    let before = CpuTime::of_children();
    let output = child.wait_with_output()?;
    let cpu = CpuTime::of_children().since(before).total();
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(cpu)
}

/// Word for a goal of a measured `value`. A value outside `plausible` meets nothing, whatever the goal: it is a mistake of
/// the measurement.
pub fn judge(value: f64, plausible: RangeInclusive<f64>, is_met: impl Fn(f64) -> bool) -> &'static str {
    match () {
        () if !plausible.contains(&value) => "not plausible",
        () if is_met(value) => "met",
        () => "MISSED",
    }
}

/// Ratios of two costs or two rates of peers on one machine: beyond it one of both was not measured.
pub const RATIOS: RangeInclusive<f64> = 1e-4..=1e4;

/// The middle value; the mean of the two middle ones if their number is even. 0 of nothing.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn values_that_cannot_be_right_meet_no_goal() {
        let judge = |value| judge(value, 0.1..=1e4, |value| value <= 30.0);
        assert_eq!([12.0, 31.0].map(judge), ["met", "MISSED"]);
        assert_eq!([-0.99, 0.0, 1e9, f64::NAN, f64::INFINITY].map(judge), ["not plausible"; 5]);
    }

    #[test]
    fn a_failing_peer_is_an_error() {
        let error = run(Command::new("sh").args(["-c", "echo broken >&2; exit 3"]), 1).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }

    #[test]
    fn work_costs_time() {
        let loops = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
        let cost = run(Command::new("sh").args(["-c", loops]), 1).unwrap();
        assert!(cost.cpu > Duration::from_millis(1), "{cost:?}");
        assert!(cost.wall > Duration::ZERO);
    }
}
