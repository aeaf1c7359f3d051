//! `flowtop`: the greatest flows as a table.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tapline_capture::{Error, OutputAccount};
use tapline_flow::{Flow, Side};

use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter, Takes};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Ended, Own, Stage};
use crate::table::{Cell, Table};

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "flowtop",
    summary: "the greatest flows as a table",
    description: "Right behind `flow`. A flow that outlives the active timeout is several here. With --json on tapline run, one object each.",
    parameters: &[
        Parameter {
            name: "n",
            kind: Kind::Number(1, 1_000_000),
            default: Some("10"),
            meaning: "how many are shown",
        },
        Parameter {
            name: "order",
            kind: Kind::Choice(&["bytes", "packets"]),
            default: Some("bytes"),
            meaning: "by what they are ranked",
        },
    ],
    outputs: Outputs::None,
    takes: Takes::Flows(|_, _| Ok(())),
    order: Order::Flow,
    example: "file(\"a.pcap\") -> flow -> flowtop(n=20)",
    make: Make::Stage(|arguments, _| {
        Ok(Box::new(FlowTop {
            n: arguments.number("n") as usize,
            by_packets: arguments.text("order") == "packets",
            greatest: BinaryHeap::new(),
            received: 0,
        }))
    }),
};

struct FlowTop {
    n: usize,
    by_packets: bool,
    /// The least of them first.
    greatest: BinaryHeap<Ranked>,
    received: u64,
}

/// A flow by its amount; of equal ones that which came first is greater.
struct Ranked(Reverse<(u64, Reverse<i64>)>, Box<Flow>);

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.0 == other.0
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl FlowTop {
    fn add(&mut self, flow: &Flow) {
        let amount = if self.by_packets { flow.packets() } else { flow.bytes() };
        let rank = Reverse((amount, Reverse(flow.first().as_nanos())));
        let is_room = self.greatest.len() < self.n;
        if is_room || self.greatest.peek().is_some_and(|least| rank < least.0) {
            self.greatest.push(Ranked(rank, Box::new(*flow)));
            if !is_room {
                self.greatest.pop();
            }
        }
    }
}

impl Stage for FlowTop {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        Ok(())
    }

    fn flows(&mut self, ended: &Ended<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        ended.flows.iter().for_each(|flow| self.add(flow));
        Ok(())
    }

    fn own(&self) -> Own {
        let output =
            OutputAccount { name: "table".to_owned(), written: self.received, ..OutputAccount::default() };
        Own { output: Some(output), ..Own::default() }
    }

    fn result(&self) -> Option<Table> {
        let mut flows: Vec<&Ranked> = self.greatest.iter().collect();
        flows.sort_unstable();
        let columns = vec![
            "protocol",
            "source",
            "destination",
            "packets",
            "bytes",
            "packets_back",
            "bytes_back",
            "ms",
            "end",
        ];
        Some(Table { columns, rows: flows.into_iter().map(|ranked| row(&ranked.1)).collect() })
    }

    fn absorb(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<FlowTop>() {
            other.greatest.iter().for_each(|ranked| self.add(&ranked.1));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn row(flow: &Flow) -> Vec<Cell> {
    let [source, destination] = &flow.sides;
    let milliseconds = flow.last().since(flow.first()).max(0) as u64 / 1_000_000;
    vec![
        Cell::from(protocol(flow.protocol)),
        Cell::from(end(source, flow.protocol)),
        Cell::from(end(destination, flow.protocol)),
        source.packets.into(),
        source.bytes.into(),
        destination.packets.into(),
        destination.bytes.into(),
        milliseconds.into(),
        Cell::from(flow.end.name().to_owned()),
    ]
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        132 => "sctp".to_owned(),
        number => number.to_string(),
    }
}

fn end(side: &Side, protocol: u8) -> String {
    match protocol {
        6 | 17 | 132 => std::net::SocketAddr::new(side.address, side.port).to_string(),
        _ => side.address.to_string(),
    }
}
