//! Times between the packets of one side.

/// Times between the packets of one side, in nanoseconds. A packet that came late, with a time before that of another,
/// has a gap of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InterarrivalTimes {
    /// Number of gaps: packets less one.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: u64,
    /// The standard deviation, of all gaps and not of a sample of them.
    pub deviation: f64,
}

/// As they come: mean and sum of squared differences by Welford's way (Technometrics 4, 1962), which loses no digits
/// when gaps are long and alike.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GapSums {
    packets: u64,
    last: i64,
    min: u64,
    max: u64,
    mean: f64,
    squares: f64,
}

impl GapSums {
    pub(super) fn add(&mut self, time: i64) {
        self.packets += 1;
        if self.packets == 1 {
            self.last = time;
            return;
        }
        let gap = time.saturating_sub(self.last).max(0) as u64;
        self.last = self.last.max(time);
        let count = self.packets - 1;
        self.min = if count == 1 { gap } else { self.min.min(gap) };
        self.max = self.max.max(gap);
        let from_old = gap as f64 - self.mean;
        self.mean += from_old / count as f64;
        self.squares += from_old * (gap as f64 - self.mean);
    }

    pub(super) fn finish(&self) -> InterarrivalTimes {
        let count = self.packets.saturating_sub(1);
        let deviation = if count == 0 { 0.0 } else { (self.squares.max(0.0) / count as f64).sqrt() };
        InterarrivalTimes { count, min: self.min, mean: self.mean, max: self.max, deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_the_definition() {
        let mut running = GapSums::default();
        // Gaps 10, 30, 0 (late), 20.
        [100, 110, 140, 130, 160].into_iter().for_each(|time| running.add(time));
        let gaps = running.finish();
        assert_eq!((gaps.count, gaps.min, gaps.max, gaps.mean), (4, 0, 30, 15.0));
        assert!((gaps.deviation - 125.0_f64.sqrt()).abs() < 1e-9, "{}", gaps.deviation);
        assert_eq!(GapSums::default().finish(), InterarrivalTimes::default());
    }

    #[test]
    fn no_time_overflows() {
        let mut running = GapSums::default();
        [i64::MIN, i64::MAX, i64::MIN].into_iter().for_each(|time| running.add(time));
        assert_eq!((running.finish().count, running.finish().max), (2, i64::MAX as u64));
    }
}
