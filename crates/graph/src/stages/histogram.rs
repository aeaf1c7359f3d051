//! `histogram`: how packets are spread by size or by the gap before them.

use std::any::Any;

use tapline_capture::Error;
use tapline_packet::Timestamp;

use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;
use crate::table::{Cell, Table, grouped};

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "histogram",
    summary: "how packets are spread by size, or by the time since the one before",
    description: "Steps double: 64 to 127 bytes, 128 to 255, and so on; a gap in nanoseconds likewise. A packet with an earlier time stamp than the one before it \
        counts as a gap of 0. All packets go on.",
    parameters: &[Parameter {
        name: "of",
        kind: Kind::Choice(&["size", "gap"]),
        default: Some("size"),
        meaning: "bytes on the wire, or nanoseconds between time stamps",
    }],
    outputs: Outputs::One,
    order: Order::All,
    example: "file(\"a.pcap\") -> sizes :: histogram -> gaps :: histogram(gap)",
    make: Make::Stage(|arguments, _| {
        let is_of_gaps = arguments.text("of") == "gap";
        Ok(Box::new(Histogram { is_of_gaps, steps: [0; 65], last: None }))
    }),
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

    fn absorb(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Histogram>() {
            self.steps.iter_mut().zip(other.steps).for_each(|(ours, theirs)| *ours += theirs);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
