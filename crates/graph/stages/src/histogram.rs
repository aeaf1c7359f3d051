//! `histogram`: how packets are spread by size or by the gap before them.

use std::any::Any;

use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Cell, Out, Packets, Stage, Table, grouped};
use tapline_packet::Timestamp;
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "histogram",
    summary: "distribution of packets by size, or by the time since the one before",
    description: "Steps double: 64 to 127 bytes, 128 to 255, and so on; a gap in nanoseconds likewise. A packet with an earlier time stamp than the one before it \
        counts as a gap of 0. All packets are passed on.",
    parameters: &[Parameter::new("of", ParameterType::Choice(&["size", "gap"]), "size")
        .means("bytes on the wire, or nanoseconds between time stamps")],
    order: Order::All,
    example: "file(\"a.pcap\") -> sizes :: histogram -> gaps :: histogram(gap)",
    make: Constructor::Stage(|arguments, _| {
        let is_of_gaps = arguments.text("of") == "gap";
        Ok(Box::new(Histogram { is_of_gaps, steps: [0; 65], last: None }))
    }),
    ..StageClass::BASE
};

struct Histogram {
    is_of_gaps: bool,
    /// Step n holds values of n significant bits.
    steps: [u64; 65],
    last: Option<Timestamp>,
}

impl Stage for Histogram {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        for index in packets.selection.iter() {
            let meta = packets.batch.packet(index).meta;
            let value = if self.is_of_gaps {
                match self.last.replace(meta.timestamp) {
                    Some(last) => u64::try_from(meta.timestamp.since(last)).unwrap_or(0),
                    None => continue,
                }
            } else {
                u64::from(meta.wire_len)
            };
            self.steps[(64 - value.leading_zeros()) as usize] += 1;
        }
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let used = |at: &(usize, &u64)| *at.1 > 0;
        let all: u64 = self.steps.iter().sum();
        let row = |(bits, &packets): (usize, &u64)| {
            let low = if bits == 0 { 0 } else { 1_u64 << (bits - 1) };
            let high = if bits == 64 { u64::MAX } else { (1_u64 << bits) - 1 };
            let range = format!("{} to {}", grouped(low), grouped(high));
            let share = format!("{:.2} %", packets as f64 * 100.0 / all as f64);
            vec![Cell::from(range), Cell::from(packets), Cell::from(share)]
        };
        let unit = if self.is_of_gaps { "nanoseconds" } else { "bytes" };
        let rows = self.steps.iter().enumerate().filter(used).map(row).collect();
        Some(Table { columns: vec![unit, "packets", "share"], rows })
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Histogram>() {
            self.steps.iter_mut().zip(other.steps).for_each(|(ours, theirs)| *ours += theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;

    use crate::trial::Trial;
    use tapline_graph::Cell;

    /// Ranges and their packets.
    fn steps(trial: &Trial) -> Vec<(String, u64)> {
        let row = |row: &Vec<Cell>| match row.as_slice() {
            [range, Cell::Number(packets), _] => (range.to_string(), *packets),
            other => panic!("{other:?}"),
        };
        trial.result("h").rows.iter().map(row).collect()
    }

    fn named(steps: &[(&str, u64)]) -> Vec<(String, u64)> {
        steps.iter().map(|(range, packets)| ((*range).to_owned(), *packets)).collect()
    }

    fn of_sizes(sizes: &[u32]) -> Trial {
        let mut trial = Trial::of("h :: histogram");
        let packets: Vec<_> =
            sizes.iter().map(|len| (vec![0; 20], Meta { wire_len: *len, ..Meta::default() })).collect();
        trial.push_all(&packets, 3);
        trial
    }

    #[test]
    fn sizes_stand_in_the_step_that_holds_them() {
        let trial = of_sizes(&[0, 1, 63, 64, 127, 128, 1500, u32::MAX]);
        let expected = [
            ("0 to 0", 1),
            ("1 to 1", 1),
            ("32 to 63", 1),
            ("64 to 127", 2),
            ("128 to 255", 1),
            ("1,024 to 2,047", 1),
            ("2,147,483,648 to 4,294,967,295", 1),
        ];
        assert_eq!(steps(&trial), named(&expected));
        assert_eq!(trial.result("h").rows[3][2], Cell::from("25.00 %".to_owned()));
        assert_eq!(trial.data().len(), 8);
        trial.assert_balanced();
    }

    #[test]
    fn gaps_lie_between_packets() {
        let mut trial = Trial::of("h :: histogram(gap)");
        trial.push_stamps(&[100]);
        assert_eq!(steps(&trial), []);
        trial.push_stamps(&[1100, 1103, 1103, 50, i64::MIN, i64::MAX]);
        let max = "4,611,686,018,427,387,904 to 9,223,372,036,854,775,807";
        assert_eq!(steps(&trial), named(&[("0 to 0", 3), ("2 to 3", 1), ("512 to 1,023", 1), (max, 1)]));
    }

    #[test]
    fn two_workers_give_the_result_of_one() {
        let (mut one, other) = (of_sizes(&[60, 1500]), of_sizes(&[61, 300]));
        one.graph.merge(&other.graph);
        assert_eq!(steps(&one), steps(&of_sizes(&[60, 1500, 61, 300])));
    }
}
