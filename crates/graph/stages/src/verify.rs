//! `verify`: the outcome of marked packets.

use std::collections::BTreeMap;

use tapline_generator::{Mark, Stream};
use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Cell, Out, Packets, Stage, Table, grouped};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "verify",
    summary: "counts marked packets that are lost, doubled or reordered, and measures their latency",
    description: "Reads the marks that generate and tapline generate write (mark in a recipe, docs/format/mark.md): a sequence number and a send \
        time. Lost are numbers between the lowest and the highest that came; losses behind the highest are known to the sender only. Reordered is a \
        packet behind one with a higher number (RFC 4737). Further behind than 65,536 numbers, packets are only counted as too late. Latency is \
        the time stamp less the send time, if that is less than a minute; otherwise the clocks differ, and it is unknown. All packets are passed on.",
    parameters: &[Parameter::new("show", ParameterType::Choice(&["streams", "latency"]), "streams")
        .means("a line for each stream, or the distribution of latencies, in nanoseconds")],
    order: Order::All,
    example: "device(eth0) -> verify -> drop",
    make: Constructor::Stage(|arguments, _| {
        let shows_latency = arguments.text("show") == "latency";
        Ok(Box::new(Verify { shows_latency, ..Verify::default() }))
    }),
    ..StageClass::BASE
};

/// Reads the marks of packets ([`Mark`]) and lets all go on.
#[derive(Default)]
pub struct Verify {
    streams: BTreeMap<u8, Stream>,
    unmarked: u64,
    shows_latency: bool,
}

/// Other workers' packets cannot be put in their order later: there is one worker, which [`Order::All`] demands, and
/// nothing to absorb.
impl Stage for Verify {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            // The end of IP, because links pad short frames.
            let end = packets.headers(index).ip_end();
            match Mark::find(packet.data, end) {
                Some(mark) => self.streams.entry(mark.stream).or_default().take(mark, packet.meta.timestamp),
                None => self.unmarked += 1,
            }
        }
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        Some(if self.shows_latency { self.latencies() } else { self.table() })
    }
}

impl Verify {
    fn table(&self) -> Table {
        let columns = vec![
            "stream",
            "packets",
            "first",
            "last",
            "lost",
            "doubled",
            "reordered",
            "too late",
            "latency min",
            "latency median",
            "latency p99",
            "latency max",
        ];
        let mut rows: Vec<Vec<Cell>> =
            self.streams.iter().map(|(number, stream)| row(*number, stream)).collect();
        if self.unmarked > 0 {
            let mut row = vec![Cell::from("unmarked".to_owned()), Cell::from(self.unmarked)];
            row.resize(columns.len(), Cell::from(String::new()));
            rows.push(row);
        }
        Table { columns, rows }
    }

    fn latencies(&self) -> Table {
        let mut rows = Vec::new();
        for (number, stream) in &self.streams {
            let latency = stream.latency();
            for (from, to, packets) in latency.steps() {
                let range = format!("{} to {}", grouped(from), grouped(to));
                let share = format!("{:.2} %", packets as f64 * 100.0 / latency.known().max(1) as f64);
                rows.push(vec![u64::from(*number).into(), range.into(), packets.into(), share.into()]);
            }
        }
        Table { columns: vec!["stream", "nanoseconds", "packets", "share"], rows }
    }
}

fn row(number: u8, stream: &Stream) -> Vec<Cell> {
    let (first, last) = stream.bounds();
    let mut row = vec![Cell::from(number.to_string())];
    let counts = [
        stream.received(),
        first,
        last,
        stream.lost(),
        stream.doubled(),
        stream.reordered(),
        stream.too_late(),
    ];
    row.extend(counts.map(Cell::from));
    let latency = stream.latency();
    let bounds = latency.bounds_ns();
    let times = [
        bounds.map(|bounds| bounds.0),
        latency.percentile_ns(0.5),
        latency.percentile_ns(0.99),
        bounds.map(|bounds| bounds.1),
    ];
    row.extend(
        times
            .map(|time| time.map_or_else(|| Cell::from("unknown".to_owned()), |ns| Cell::from(duration(ns)))),
    );
    row
}

/// Nanoseconds with a unit that suits them.
fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use tapline_generator::{Generator, Recipe};
    use tapline_packet::{Meta, Timestamp};

    use crate::trial::{Trial, whole};
    use tapline_graph::Cell;

    /// Frames with marks, at the times that they carry.
    fn marked(text: &str, count: usize) -> Vec<(Vec<u8>, Meta)> {
        let recipe = Recipe::parse(text).expect("a recipe");
        let start = Timestamp::from_nanos(recipe.start_ns.expect("a time"));
        let mut generator = Generator::new(&recipe).expect("packets");
        let mut frame = vec![0; generator.frame_max()];
        let mut next = || {
            let departure = generator.next_into(&mut frame).expect("a frame").expect("no end");
            let data = frame[..departure.len as usize].to_vec();
            let meta = Meta { timestamp: start.plus_nanos(departure.at_ns as i64), ..whole(&data) };
            (data, meta)
        };
        (0..count).map(|_| next()).collect()
    }

    fn verified(packets: &[(Vec<u8>, Meta)]) -> Trial {
        let mut trial = Trial::of("v :: verify");
        trial.push_all(packets, 100);
        trial.assert_balanced();
        trial
    }

    #[test]
    fn losses_copies_and_orders_of_each_stream() {
        let mut packets = marked("mark=1 ip6 size=100", 1000);
        let other = marked("mark=2 tcp vlan=5 mpls=16 vxlan=3 size=300 oneway segments=1000000", 502);
        packets.extend(other);
        packets.remove(17); // of stream 1, number 17
        packets.swap(30, 31);
        let copy = packets[900].clone();
        packets.insert(903, copy);
        packets.push((vec![0; 60], Meta::default()));
        let trial = verified(&packets);
        assert_eq!(trial.numbers("v", Some("1")), [1000, 0, 999, 1, 1, 1, 0]);
        // The handshake carries no marks.
        assert_eq!(trial.numbers("v", Some("2")), [500, 0, 499, 0, 0, 0, 0]);
        assert_eq!(trial.numbers("v", Some("unmarked")), [3]);
        assert_eq!(trial.data().len(), packets.len(), "all go on");
    }

    #[test]
    fn latency_is_that_of_the_time_stamps() {
        let mut packets = marked("mark size=60", 100);
        packets.iter_mut().for_each(|(_, meta)| meta.timestamp = meta.timestamp.plus_nanos(25_000));
        let last =
            |trial: &Trial| trial.result("v").rows[0][8..].iter().map(Cell::to_string).collect::<Vec<_>>();
        assert_eq!(last(&verified(&packets)), ["25.0 us"; 4]);
        packets.iter_mut().for_each(|(_, meta)| meta.timestamp = Timestamp::EPOCH);
        assert_eq!(last(&verified(&packets)), ["unknown"; 4]);
    }

    #[test]
    fn padding_of_the_link_hides_no_mark() {
        let mut packets = marked("mark size=60", 10);
        packets.iter_mut().for_each(|(data, meta)| {
            data.extend_from_slice(&[0; 4]);
            meta.wire_len += 4;
        });
        assert_eq!(verified(&packets).numbers("v", Some("0"))[..4], [10, 0, 9, 0]);
        packets.iter_mut().for_each(|(data, _)| data.truncate(50));
        assert_eq!(verified(&packets).numbers("v", Some("unmarked")), [10]);
    }
}
