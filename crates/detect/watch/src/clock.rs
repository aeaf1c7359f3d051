//! The time of the packets, by which rules go.
//!
//! ```text
//! live:  time stamp --at most `latest`--> time      the wall clock is set back: `Watch::set_back`
//! file:  time stamp --------------------> time      all packets are 10 s behind the clock, by their own time: set back
//! ```

use tapline_packet::{Batch, Record, Selection, Timestamp};

/// Packets that are further behind the clock came late by more than their order on the way.
const LATE_NS: i64 = 1_000_000_000;
/// Late packets of so much time without one at the clock show that the clock of a file went back.
const BEHIND_NS: i64 = 10_000_000_000;
/// Times that the clock of a file goes back; later packets count at the time that was reached. Each costs a look at all
/// that rules remember.
const FILE_STEPS_MAX: u64 = 100;

/// A step back of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    pub(crate) from_ns: i64,
    /// At most `from_ns`.
    pub(crate) to_ns: i64,
}

impl ClockStep {
    /// A time before the step, as it would be after it.
    pub(crate) fn moved(self, time_ns: i64) -> i64 {
        time_ns.saturating_sub(self.from_ns.saturating_sub(self.to_ns))
    }
}

/// The clock of a run: the greatest time of a packet, or the last time that the caller gave.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// `None` before the first packet.
    now_ns: Option<i64>,
    /// Time stamps beyond are wrong; `None` for files, of which all are taken.
    latest_ns: Option<i64>,
    /// The time of the first of the packets that are late without a break.
    behind_since_ns: Option<i64>,
    file_steps: u64,
    ahead: u64,
}

impl Clock {
    pub(crate) fn now_ns(&self) -> Option<i64> {
        self.now_ns
    }

    pub(crate) fn set_latest(&mut self, latest_ns: i64) {
        self.latest_ns = Some(latest_ns);
    }

    /// Limits the times of packets to the latest; `records` is memory for batches that have one.
    pub(crate) fn limit<'a>(
        &mut self,
        batch: &Batch<'a>,
        selection: &Selection,
        records: &'a mut Vec<Record>,
    ) -> Batch<'a> {
        let Some(latest_ns) = self.latest_ns else { return *batch };
        let latest = Timestamp::from_nanos(latest_ns);
        let is_ahead = |index: &usize| batch.records()[*index].meta.timestamp > latest;
        let ahead = selection.iter().filter(is_ahead).count();
        if ahead == 0 {
            return *batch;
        }
        self.ahead += ahead as u64;
        records.clear();
        records.extend_from_slice(batch.records());
        for record in records.iter_mut() {
            record.meta.timestamp = record.meta.timestamp.min(latest);
        }
        Batch::new(batch.base(), records).cut(batch.snap_len())
    }

    /// Goes on to the time of a packet. By how much a file's clock was set back before this packet, if it was.
    pub(crate) fn follow(&mut self, time_ns: i64) -> Option<i64> {
        let now_ns = *self.now_ns.get_or_insert(time_ns);
        // A packet without a time says nothing about the clock.
        if time_ns == Timestamp::EPOCH.as_nanos() {
            return None;
        }
        if time_ns >= now_ns.saturating_sub(LATE_NS) {
            self.now_ns = Some(now_ns.max(time_ns));
            self.behind_since_ns = None;
            return None;
        }
        let since_ns = self.behind_since_ns.map_or(time_ns, |since_ns| since_ns.min(time_ns));
        self.behind_since_ns = Some(since_ns);
        let is_over = time_ns.saturating_sub(since_ns) >= BEHIND_NS;
        if !is_over || self.latest_ns.is_some() || self.file_steps >= FILE_STEPS_MAX {
            return None;
        }
        self.file_steps += 1;
        Some(now_ns.saturating_sub(time_ns))
    }

    /// Goes on to a time without packets.
    pub(crate) fn advance(&mut self, now_ns: i64) {
        self.now_ns = self.now_ns.max(Some(now_ns));
    }

    /// Goes back by `step_ns`; `None` before the first packet.
    pub(crate) fn set_back(&mut self, step_ns: i64) -> Option<ClockStep> {
        let from_ns = self.now_ns?;
        let to_ns = from_ns.saturating_sub(step_ns.max(0));
        (self.now_ns, self.behind_since_ns) = (Some(to_ns), None);
        Some(ClockStep { from_ns, to_ns })
    }

    /// Packets whose time stamps were beyond the latest.
    pub(crate) fn ahead(&self) -> u64 {
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn follow(clock: &mut Clock, seconds: &[i64]) -> Vec<Option<i64>> {
        seconds.iter().map(|second| clock.follow(second * SECOND).map(|step_ns| step_ns / SECOND)).collect()
    }

    #[test]
    fn only_lasting_steps_back_set_the_clock_back() {
        let mut clock = Clock::default();
        assert_eq!(follow(&mut clock, &[100, 99, 50, 101, 61, 102, 70]), [None; 7], "two clocks in turn");
        assert_eq!(follow(&mut clock, &[60, 69, 65, 70]), [None, None, None, Some(32)], "ten seconds behind");
        let step = ClockStep { from_ns: 102 * SECOND, to_ns: 70 * SECOND };
        assert_eq!(clock.set_back(32 * SECOND), Some(step));
        assert_eq!(step.moved(100 * SECOND), 68 * SECOND);
        assert_eq!(follow(&mut clock, &[70, 80]), [None; 2]);
        assert_eq!(clock.now_ns(), Some(80 * SECOND));
    }

    #[test]
    fn packets_without_a_time_set_no_clock_back() {
        let mut clock = Clock::default();
        assert_eq!(follow(&mut clock, &[100, 0, 98, 101, 0, 97]), [None; 6]);
        assert_eq!(clock.now_ns(), Some(101 * SECOND));
    }

    #[test]
    fn live_clocks_ignore_older_packets() {
        let mut clock = Clock::default();
        clock.set_latest(100 * SECOND);
        assert_eq!(follow(&mut clock, &[100, 50, 70, 90]), [None; 4]);
    }

    #[test]
    fn steps_back_of_a_file_are_bounded() {
        let mut clock = Clock::default();
        let mut steps = 0;
        for _ in 0..200 {
            let step_ns = follow(&mut clock, &[1000, 1, 11]).pop().flatten();
            steps += i32::from(step_ns.is_some());
            step_ns.map(|step_s| clock.set_back(step_s * SECOND));
        }
        assert_eq!(steps, 100);
    }
}
