//! `first`: the first packets of each flow.

use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_packet::headers::Headers;
use tapline_source::Error;

use super::recent::Recent;

pub(crate) const CLASS: StageClass = StageClass {
    name: "first",
    summary: "the first packets of each flow, host pair or fragmented packet",
    description: "Earlier ones are recognized by a hash of 64 bits. Beyond `room` flows the oldest are forgotten: their next packet counts as their \
        first, and the result says how many were forgotten.",
    parameters: &[
        Parameter::new("n", ParameterType::Number(1, 1_000_000_000), "1").means("packets of each to pass on"),
        Parameter::new("by", ParameterType::Choice(&["flow", "pair", "fragment"]), "flow")
            .means("addresses, protocol and ports, both directions alike; addresses alone; or the IP packet that fragments belong to (other packets are refused)"),
        Parameter::new("room", ParameterType::Number(1, 100_000_000), "1000000")
            .means("flows that are remembered for certain; about 30 bytes each"),
    ],
    order: Order::Flow,
    example: "device(eth0) -> filter(\"tcp\") -> first(4) -> record(\"handshakes.pcap\")",
    make: Constructor::Stage(|arguments, _| {
        let by = match arguments.text("by") {
            "pair" => By::Pair,
            "fragment" => By::Fragment,
            _ => By::Flow,
        };
        let (n, room) = (arguments.number("n") as u32, arguments.number("room") as usize);
        Ok(Box::new(First { by, n, seen: Recent::new(room) }))
    }),
    ..StageClass::BASE
};

/// The seed of the hash.
const SEED: u64 = 0x6669_7273_7400;

#[derive(Clone, Copy)]
enum By {
    Flow,
    Pair,
    Fragment,
}

struct First {
    by: By,
    n: u32,
    /// Number of packets of each that have gone on.
    seen: Recent<u64, u32>,
}

impl First {
    fn key(&self, headers: &Headers, data: &[u8]) -> Option<u64> {
        match self.by {
            By::Flow => Some(headers.flow_hash(data, SEED)),
            By::Pair => Some(headers.host_hash(data, SEED)),
            By::Fragment => headers
                .fragment()
                .map(|fragment| headers.flow_hash(data, SEED ^ u64::from(fragment.id) << 32)),
        }
    }

    fn goes_on(&mut self, key: u64) -> bool {
        let seen = self.seen.of(key, || 0);
        let is_early = *seen < self.n;
        *seen += u32::from(is_early);
        is_early
    }
}

impl Stage for First {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let all = packets.clone();
        packets.selection.retain(|index| {
            let key = self.key(&all.headers(index), all.batch.packet(index).data);
            key.is_some_and(|key| self.goes_on(key))
        });
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let forgotten = self.seen.forgotten();
        (forgotten > 0).then(|| Table::of_numbers(&[("forgotten", forgotten)]))
    }

    fn merge(&mut self, other: &dyn std::any::Any) {
        if let Some(other) = other.downcast_ref::<First>() {
            self.seen.merge(&other.seen);
        }
    }
}
