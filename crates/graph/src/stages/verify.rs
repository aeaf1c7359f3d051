//! `verify`: what became of marked packets.

use std::collections::BTreeMap;

use tapline_capture::Error;
use tapline_traffic::{Mark, Stream};

use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;
use crate::table::{Cell, Table, grouped};

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "verify",
    summary: "which marked packets are lost, doubled, reordered, and how long they took",
    description: "Reads the marks that generate and tapline generate write (mark in a recipe, docs/format/mark.md): a sequence number and a send time. Lost are \
        numbers between the lowest and the highest that came; what is missing behind the highest, only the sender knows. Reordered is a \
        packet behind one with a higher number (RFC 4737). Further behind than 65,536 numbers, packets are only counted as too late. Latency is \
        the time stamp less the send time, where that lies within a minute; otherwise the clocks differ, and it is unknown. All packets go on.",
    parameters: &[Parameter {
        name: "show",
        kind: Kind::Choice(&["streams", "latency"]),
        default: Some("streams"),
        meaning: "a line for each stream, or how latencies are spread, in nanoseconds",
    }],
    outputs: Outputs::One,
    order: Order::All,
    example: "device(eth0) -> verify -> drop",
    make: Make::Stage(|arguments, _| {
        let shows_latency = arguments.text("show") == "latency";
        Ok(Box::new(Verify { streams: BTreeMap::new(), unmarked: 0, shows_latency }))
    }),
};

struct Verify {
    streams: BTreeMap<u8, Stream>,
    unmarked: u64,
    shows_latency: bool,
}

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
            "median",
            "p99",
            "max",
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
        latency.permille_ns(500),
        latency.permille_ns(990),
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
