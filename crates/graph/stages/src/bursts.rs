//! `bursts`: short windows with many packets or bytes, and times without a packet.
//!
//! ```text
//! packets --> window of 1 ms to 1 s, by their time stamps --> burst that is over --> the largest `rows`, and sums
//!        '--> time since the packet before > gap -----------> gap                --> the longest `rows`, and sums
//! ```

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Parameter, ParameterType, StageClass,
};
use tapline_graph::{Cell, Out, Packets, Stage, Table, TickContext};
use tapline_packet::Timestamp;
use tapline_source::Error;
use tapline_watch::{BURST_WINDOW_NS, Burst, BurstLimits, BurstMeter, Late, per_second};

pub(crate) const CLASS: StageClass = StageClass {
    name: "bursts",
    summary: "short bursts, and times without a packet",
    description: "A burst is a run of windows next to each other, each with at least the given rate; windows begin at multiples of their length since 1970, by \
        the time stamps of packets. A burst of twice the window's length is always found; a shorter one may be split between two windows. Packets \
        must come in the order of their time (`merge` makes it): one that is behind the start of the window that was reached, by up to a second, belongs to no \
        window, and is counted (late). A gap is a time between two packets; packets without a time are counted alone. The result has a row for each of the largest bursts (by \
        bytes) and the longest gaps: the time of the first packet (nanoseconds since 1970), the length to the last one, packets, bytes on the wire, and \
        the greatest rates of a window; before them the sums of all, also of those without a row. All packets are passed on.",
    parameters: &[
        Parameter::new("window", ParameterType::Duration, "10ms").means("length of a window, 1ms to 1s"),
        Parameter::new("bits", ParameterType::Number(0, 10_000_000_000_000), "0")
            .means("a window with this rate or more, in bits a second, is part of a burst; 0: bits do not matter"),
        Parameter::new("packets", ParameterType::Number(0, 1_000_000_000_000), "0")
            .means("a window with this rate or more, in packets a second, is part of a burst; 0: packets do not matter"),
        Parameter::new("gap", ParameterType::Duration, "0s")
            .means("a time without a packet that is longer than this is a gap; 0s: gaps do not matter"),
        Parameter::new("rows", ParameterType::Number(1, 100_000), "100")
            .means("the most bursts, and the most gaps, with a row of their own"),
    ],
    order: Order::All,
    example: "device(eth0) -> bursts(window=1ms, bits=9G, gap=50ms)",
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn make(arguments: &Arguments, _: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let window_ns = arguments.nanoseconds("window");
    if !BURST_WINDOW_NS.contains(&window_ns) {
        return Err("window: from 1ms to 1s".to_owned());
    }
    // The least amount in a window that is at the rate.
    let amount = |rate: u64| {
        let amount = (u128::from(rate) * u128::from(window_ns)).div_ceil(1_000_000_000);
        u64::try_from(amount).unwrap_or(u64::MAX)
    };
    let (bits, packets) = (arguments.number("bits"), arguments.number("packets"));
    let limits = BurstLimits { window_ns, packets: amount(packets), bytes: amount(bits).div_ceil(8) };
    let rows = arguments.number("rows") as usize;
    Ok(Box::new(Bursts {
        limits,
        meter: BurstMeter::default(),
        last_ns: None,
        gap_ns: arguments.nanoseconds("gap"),
        bursts: Findings::new(rows),
        gaps: Findings::new(rows),
        late: 0,
        untimed: 0,
    }))
}

/// Packets that are further behind the latest one show that the clock was set back.
const SET_BACK_NS: i64 = 1_000_000_000;

struct Bursts {
    limits: BurstLimits,
    meter: BurstMeter,
    /// The latest time stamp; that of a packet which is more than a second behind it, as its clock was set back.
    last_ns: Option<i64>,
    /// 0 for no gaps.
    gap_ns: u64,
    bursts: Findings,
    gaps: Findings,
    /// Packets that belong to no window.
    late: u64,
    /// Packets without a time, which belong to no window and no gap.
    untimed: u64,
}

/// Findings of a kind: the largest, and the sums of all.
struct Findings {
    /// With the size by which they are compared, and the start, so that equal ones have an order.
    largest: BinaryHeap<Reverse<(u64, i64, Finding)>>,
    rows: usize,
    count: u64,
    length_ns: u64,
    sum: Burst,
}

/// A burst that can be part of an ordered tuple; its order says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Finding(Burst);

impl PartialOrd for Finding {
    fn partial_cmp(&self, other: &Finding) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Finding {
    fn cmp(&self, other: &Finding) -> std::cmp::Ordering {
        self.0.end_ns.cmp(&other.0.end_ns)
    }
}

impl Findings {
    fn new(rows: usize) -> Findings {
        Findings { largest: BinaryHeap::new(), rows, count: 0, length_ns: 0, sum: Burst::default() }
    }

    fn add(&mut self, size: u64, burst: Burst) {
        match self.count {
            0 => self.sum = burst,
            _ => self.sum.merge(&burst),
        }
        self.count += 1;
        self.length_ns = self.length_ns.saturating_add(burst.length_ns());
        self.keep((size, burst.start_ns, Finding(burst)));
    }

    fn keep(&mut self, finding: (u64, i64, Finding)) {
        self.largest.push(Reverse(finding));
        if self.largest.len() > self.rows {
            self.largest.pop();
        }
    }

    fn merge(&mut self, other: &Findings) {
        match self.count {
            0 => self.sum = other.sum,
            _ if other.count > 0 => self.sum.merge(&other.sum),
            _ => {}
        }
        self.count += other.count;
        self.length_ns = self.length_ns.saturating_add(other.length_ns);
        other.largest.iter().for_each(|Reverse(finding)| self.keep(*finding));
    }

    /// The sums, then the largest in the order of time.
    fn rows(&self, all: &'static str, each: &'static str, window_ns: u64) -> Vec<Vec<Cell>> {
        let row = |what: &str, count: u64, start: Cell, length_ns: u64, burst: &Burst| {
            vec![
                Cell::from(what.to_owned()),
                Cell::from(count),
                start,
                Cell::from(length_ns),
                Cell::from(burst.packets),
                Cell::from(burst.bytes),
                Cell::from(per_second(burst.bytes_peak.saturating_mul(8), window_ns)),
                Cell::from(per_second(burst.packets_peak, window_ns)),
            ]
        };
        let mut largest: Vec<Burst> = self.largest.iter().map(|Reverse((_, _, finding))| finding.0).collect();
        largest.sort_unstable_by_key(|burst| (burst.start_ns, burst.end_ns));
        let sum = row(all, self.count, Cell::Unknown, self.length_ns, &self.sum);
        let rows =
            largest.iter().map(|burst| row(each, 1, Cell::Time(burst.start_ns), burst.length_ns(), burst));
        [sum].into_iter().chain(rows).collect()
    }
}

impl Bursts {
    fn take(&mut self, time_ns: i64, bytes: u64) {
        match self.meter.add(&self.limits, time_ns, 1, bytes) {
            Ok(over) => over.iter().for_each(|burst| self.bursts.add(burst.bytes, *burst)),
            Err(Late) => self.late += 1,
        }
        let last_ns = self.last_ns.unwrap_or(time_ns);
        let gap_ns = time_ns.saturating_sub(last_ns);
        if self.gap_ns > 0 && gap_ns > 0 && gap_ns.unsigned_abs() > self.gap_ns {
            let gap = Burst { start_ns: last_ns, end_ns: time_ns, ..Burst::default() };
            self.gaps.add(gap.length_ns(), gap);
        }
        let is_set_back = gap_ns < -SET_BACK_NS;
        self.last_ns = Some(if is_set_back { time_ns } else { last_ns.max(time_ns) });
    }
}

impl Stage for Bursts {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        for index in packets.selection.iter() {
            let meta = packets.batch.packet(index).meta;
            match meta.timestamp {
                Timestamp::EPOCH => self.untimed += 1,
                timestamp => self.take(timestamp.as_nanos(), u64::from(meta.wire_len)),
            }
        }
        out.pass(packets)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        if let Some(burst) = self.meter.finish(&self.limits) {
            self.bursts.add(burst.bytes, burst);
        }
        Ok(())
    }

    fn result(&self) -> Option<Table> {
        let window_ns = self.limits.window_ns;
        let bursts = self.bursts.rows("all bursts", "burst", window_ns);
        let gaps = if self.gap_ns > 0 { self.gaps.rows("all gaps", "gap", window_ns) } else { Vec::new() };
        let others = [("late", self.late), ("without a time", self.untimed)].map(|(what, count)| {
            let cells = [Cell::from(what.to_owned()), Cell::from(count)];
            (count > 0).then(|| cells.into_iter().chain([const { Cell::Unknown }; 6]).collect())
        });
        Some(Table {
            columns: vec![
                "what",
                "count",
                "start",
                "length_ns",
                "packets",
                "bytes",
                "peak_bits",
                "peak_packets",
            ],
            rows: bursts.into_iter().chain(gaps).chain(others.into_iter().flatten()).collect(),
        })
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Bursts>() {
            self.bursts.merge(&other.bursts);
            self.gaps.merge(&other.gaps);
            self.late += other.late;
            self.untimed += other.untimed;
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Meta, Timestamp};

    use crate::trial::Trial;
    use tapline_graph::Cell;

    const MS: i64 = 1_000_000;

    /// The rows as text, without those of sums.
    fn rows(trial: &Trial) -> Vec<(String, String)> {
        let table = trial.result("b");
        let row = |row: &Vec<Cell>| {
            (row[0].to_string(), row[1..].iter().map(Cell::to_string).collect::<Vec<_>>().join(" "))
        };
        table.rows.iter().map(row).collect()
    }

    fn pushed(text: &str, packets: &[(i64, u32)]) -> Trial {
        let mut trial = Trial::of(text);
        let packet = |&(ms, wire_len): &(i64, u32)| {
            let timestamp = Timestamp::from_nanos(ms * MS);
            (vec![0; 20], Meta { timestamp, wire_len, ..Meta::default() })
        };
        trial.push_all(&packets.iter().map(packet).collect::<Vec<_>>(), 3);
        trial.finish();
        trial
    }

    const PACKETS: [(i64, u32); 8] =
        [(1, 100), (10, 1250), (11, 1250), (25, 1250), (40, 100), (200, 2500), (205, 60), (290, 60)];

    #[test]
    fn bursts_and_gaps_have_rows() {
        let trial = pushed("b :: bursts(bits=1M, gap=50ms)", &PACKETS);
        let expected = [
            ("all bursts", "2 - 20,000,000 5 6,310 2,048,000 200"),
            ("burst", "1 10,000,000 15,000,000 3 3,750 2,000,000 200"),
            ("burst", "1 200,000,000 5,000,000 2 2,560 2,048,000 200"),
            ("all gaps", "2 - 245,000,000 0 0 0 0"),
            ("gap", "1 40,000,000 160,000,000 0 0 0 0"),
            ("gap", "1 205,000,000 85,000,000 0 0 0 0"),
        ];
        assert_eq!(rows(&trial), expected.map(|(what, row)| (what.to_owned(), row.to_owned())));
        assert_eq!(trial.data().len(), PACKETS.len());
        trial.assert_balanced();
    }

    #[test]
    fn the_largest_are_kept_and_all_are_counted() {
        let packets: Vec<(i64, u32)> = (1..501).map(|n| (n * 30, 2000 + (n as u32 * 37) % 500)).collect();
        let trial = pushed("b :: bursts(packets=100, gap=1ms, rows=5)", &packets);
        let rows = rows(&trial);
        assert_eq!(rows.len(), 12);
        assert!(rows[0].1.starts_with("500 - 0 500 "), "{rows:?}");
        let bytes = |at: usize| trial.result("b").rows[at][5].clone();
        let mut sizes: Vec<u32> = packets.iter().map(|packet| packet.1).collect();
        sizes.sort_unstable();
        let mut kept: Vec<u64> = (1..6)
            .map(|at| match bytes(at) {
                Cell::Number(bytes) => bytes,
                other => panic!("{other:?}"),
            })
            .collect();
        kept.sort_unstable();
        assert_eq!(kept, sizes[495..].iter().map(|size| u64::from(*size)).collect::<Vec<_>>());
    }

    fn expect(text: &str, packets: &[i64], expected: &[(&str, &str)]) {
        let trial = pushed(text, &packets.iter().map(|ms| (*ms, 100)).collect::<Vec<_>>());
        assert_eq!(
            rows(&trial),
            expected.iter().map(|(what, row)| ((*what).to_owned(), (*row).to_owned())).collect::<Vec<_>>()
        );
        assert_eq!(trial.data().len(), packets.len());
    }

    #[test]
    fn packets_without_a_time_are_counted_alone() {
        let none = "0 - 0 0 0 0 0";
        let packets = [0, 0, 5000, 5001, 0, 5002, 5100];
        let expected = [
            ("all bursts", "1 - 2,000,000 3 300 240,000 300"),
            ("burst", "1 5,000,000,000 2,000,000 3 300 240,000 300"),
            ("all gaps", "1 - 98,000,000 0 0 0 0"),
            ("gap", "1 5,002,000,000 98,000,000 0 0 0 0"),
            ("without a time", "3 - - - - - -"),
        ];
        expect("b :: bursts(packets=200, gap=50ms)", &packets, &expected);
        let expected = [("all bursts", none), ("all gaps", none), ("without a time", "30 - - - - - -")];
        expect("b :: bursts(packets=200, gap=50ms)", &[0; 30], &expected);
    }

    #[test]
    fn a_stamp_of_the_future_hides_no_later_gap() {
        let expected = [
            ("all bursts", "0 - 0 0 0 0 0"),
            ("all gaps", "3 - 8,640,019,999,000,000 0 0 0 0"),
            ("gap", "1 5,000,000,000 8,640,000,000,000,000 0 0 0 0"),
            ("gap", "1 5,001,000,000 9,999,000,000 0 0 0 0"),
            ("gap", "1 15,000,000,000 10,000,000,000 0 0 0 0"),
        ];
        let packets = [5000, 5000 + 8_640_000_000, 5001, 15_000, 25_000];
        expect("b :: bursts(packets=200, gap=50ms)", &packets, &expected);
    }

    #[test]
    fn late_packets_have_a_row_and_no_window() {
        let packets: Vec<i64> = [900].into_iter().chain((0..80).map(|at| 1 + at * 10)).collect();
        let expected = [("all bursts", "0 - 0 0 0 0 0"), ("late", "80 - - - - - -")];
        expect("b :: bursts(window=1ms, packets=2k)", &packets, &expected);
    }

    #[test]
    fn a_window_has_bounds() {
        for text in ["b :: bursts(window=999us)", "b :: bursts(window=1001ms)"] {
            let graph = format!("file(\"in\") -> {text} -> json");
            assert!(Trial::graph(&graph).is_err_and(|why| why.contains("from 1ms to 1s")), "{text}");
        }
    }
}
