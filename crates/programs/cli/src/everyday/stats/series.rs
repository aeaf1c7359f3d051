//! Packets and bytes per interval, in columns.
//!
//! ```text
//! packets --interval of their time--> rows that are open --the oldest of too many, or by the clock--> rows to print
//! ```

use std::collections::VecDeque;

/// Intervals that are open at a time: packets of files may be out of order.
const OPEN_MAX: usize = 16;
/// The longest run of intervals without packets that are rows of their own.
const EMPTY_MAX: i64 = 1000;

/// Packets, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// The next item of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// An interval by its start, and its columns.
    Interval(i64, Vec<Amount>),
    /// So many intervals without packets, of which the first starts here.
    Empty(i64, i64),
}

/// All intervals. Times are nanoseconds since 1970; intervals begin at the first packet's.
pub(super) struct Series {
    interval_ns: i64,
    columns: usize,
    start_ns: Option<i64>,
    /// Open rows, each of the interval behind that of the row before, and the number of the first.
    open: VecDeque<Vec<Amount>>,
    first: i64,
    /// Rows that are complete.
    pub(super) rows: Vec<Row>,
    pub(super) totals: Vec<Amount>,
    /// Packets whose interval was complete when they came, and packets without a time: both are in the totals alone.
    pub(super) late: u64,
    pub(super) untimed: u64,
}

impl Series {
    /// No packet yet. `interval_ns` is at least a microsecond, so that numbers of intervals stay small.
    pub(super) fn new(interval_ns: i64, columns: usize) -> Series {
        Series {
            interval_ns,
            columns,
            start_ns: None,
            open: VecDeque::new(),
            first: 0,
            rows: Vec::new(),
            totals: vec![Amount::default(); columns],
            late: 0,
            untimed: 0,
        }
    }

    /// Counts a packet in the columns whose bits are set.
    pub(super) fn add(&mut self, time_ns: Option<i64>, wire_len: u32, columns: u64) {
        let amounts = |amounts: &mut [Amount]| {
            for (at, amount) in amounts.iter_mut().enumerate() {
                if columns >> at & 1 == 1 {
                    amount.packets += 1;
                    amount.bytes += u64::from(wire_len);
                }
            }
        };
        amounts(&mut self.totals);
        let Some(time_ns) = time_ns else {
            self.untimed += 1;
            return;
        };
        let number = self.number(time_ns);
        if self.open.is_empty() && number >= self.first {
            self.skip_to(number);
        }
        match number - self.first {
            ..0 => self.late += 1,
            at if (at as usize) < self.open.len() => amounts(&mut self.open[at as usize]),
            _ => {
                self.open_up_to(number);
                amounts(self.open.back_mut().expect("its row is the last"));
            }
        }
    }

    fn number(&mut self, time_ns: i64) -> i64 {
        let start_ns = *self.start_ns.get_or_insert(time_ns);
        time_ns.saturating_sub(start_ns).div_euclid(self.interval_ns)
    }

    fn time(&self, number: i64) -> i64 {
        self.start_ns.unwrap_or(0).saturating_add(number.saturating_mul(self.interval_ns))
    }

    /// Opens rows up to that of an interval, which is the last then. No more than [`OPEN_MAX`] stay open.
    fn open_up_to(&mut self, number: i64) {
        let next = self.first + self.open.len() as i64;
        if number - next >= OPEN_MAX as i64 {
            self.close(usize::MAX);
            self.skip_to(number);
        }
        while self.first + self.open.len() as i64 <= number {
            self.open.push_back(vec![Amount::default(); self.columns]);
        }
        self.close(self.open.len().saturating_sub(OPEN_MAX));
    }

    /// Has rows of empty intervals before this one, which is opened: one row for a long run of them.
    fn skip_to(&mut self, number: i64) {
        let empty = number - self.first;
        if empty > EMPTY_MAX {
            self.rows.push(Row::Empty(self.time(self.first), empty));
        } else {
            let rows = (self.first..number)
                .map(|at| Row::Interval(self.time(at), vec![Amount::default(); self.columns]));
            let rows: Vec<Row> = rows.collect();
            self.rows.extend(rows);
        }
        self.first = number;
        self.open.push_back(vec![Amount::default(); self.columns]);
    }

    /// Completes the first rows.
    fn close(&mut self, count: usize) {
        for _ in 0..count.min(self.open.len()) {
            let amounts = self.open.pop_front().expect("there are so many");
            self.rows.push(Row::Interval(self.time(self.first), amounts));
            self.first += 1;
        }
    }

    /// Completes the intervals that end before a time: of live traffic, by the clock.
    pub(super) fn complete_before(&mut self, time_ns: i64) {
        if self.start_ns.is_none() {
            return;
        }
        let number = self.number(time_ns);
        if number > self.first {
            self.open_up_to(number);
            self.close(usize::try_from(number - self.first).unwrap_or(0));
        }
    }

    /// Completes all intervals.
    pub(super) fn finish(&mut self) {
        self.close(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(series: &mut Series) -> Vec<(i64, u64, u64)> {
        let rows = std::mem::take(&mut series.rows).into_iter().map(|row| match row {
            Row::Interval(time, amounts) => (time, amounts[0].packets, amounts[1].bytes),
            Row::Empty(time, count) => (time, u64::MAX, count as u64),
        });
        rows.collect()
    }

    #[test]
    fn packets_are_counted_in_their_interval() {
        let mut series = Series::new(10, 2);
        for (time, columns) in [(105, 3), (114, 1), (115, 3), (112, 2), (144, 3)] {
            series.add(Some(time), 100, columns);
        }
        series.add(None, 7, 1);
        assert_eq!(rows(&mut series), []);
        series.finish();
        assert_eq!(rows(&mut series), [(105, 2, 200), (115, 1, 100), (125, 0, 0), (135, 1, 100)]);
        assert_eq!((series.totals[0], series.untimed), (Amount { packets: 5, bytes: 407 }, 1));
    }

    #[test]
    fn late_packets_and_long_gaps_are_told() {
        const STEP: i64 = 1_000_000;
        let mut series = Series::new(STEP, 2);
        for time in [0, 20 * STEP, 0, i64::MAX, i64::MIN, 3 * STEP] {
            series.add(Some(time), 1, 3);
        }
        series.finish();
        let all = rows(&mut series);
        assert_eq!((all.len(), series.late), (1 + 19 + 1 + 1 + 1, 3));
        let last = i64::MAX / STEP;
        assert_eq!(all[21], (21 * STEP, u64::MAX, last as u64 - 21));
        assert_eq!(all[22], (last * STEP, 1, 1));
        assert_eq!(series.totals[0].packets, 6);
    }

    #[test]
    fn live_intervals_end_by_the_clock() {
        let mut series = Series::new(10, 2);
        series.complete_before(1000);
        series.add(Some(1000), 1, 3);
        series.complete_before(1009);
        assert_eq!(rows(&mut series), []);
        series.complete_before(1031);
        assert_eq!(rows(&mut series), [(1000, 1, 1), (1010, 0, 0), (1020, 0, 0)]);
        series.add(Some(1029), 1, 3);
        series.add(Some(1030), 1, 3);
        series.finish();
        assert_eq!((rows(&mut series), series.late), (vec![(1030, 1, 1)], 1));
    }
}
