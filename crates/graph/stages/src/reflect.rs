//! `reflect`: packets go back out of the interface from which they came.

use tapline_graph::catalog::{Constructor, Order, Outputs, Property, StageClass, refuse};
use tapline_graph::{Out, Packets, Stage, StageCounters};
use tapline_source::{Error, LossCause};
use tapline_transmit::{SendCounts, Transmitter};

use super::bounce::{SWAP, counters};

/// The class; programs open its stages.
pub const CLASS: StageClass = StageClass {
    name: "reflect",
    summary: "packets go back out of the interface from which they came",
    description: "As bounce, but each packet is sent on the interface that captured it.",
    parameters: &[SWAP],
    outputs: Outputs::None,
    order: Order::Flow,
    example: "device(eth0, direction=in) -> filter(\"udp dst port 7\") -> reflect(swap=mac)",
    properties: &[Property::Sends],
    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// Sends every packet out of the interface that it came from.
pub struct Reflect {
    /// By the kernel's number of the interface.
    transmitters: Vec<(u32, Transmitter)>,
    /// Packets for which there is none.
    without_interface: u64,
}

impl Reflect {
    /// Sends with these transmitters, each for the packets of the interface with its number.
    pub fn new(transmitters: Vec<(u32, Transmitter)>) -> Reflect {
        Reflect { transmitters, without_interface: 0 }
    }
}

impl Stage for Reflect {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let (batch, selection) = (&packets.batch, &packets.selection);
        let of = |index: usize| batch.records()[index].meta.if_index;
        let mut result = Ok(());
        let mut left = selection.len();
        for (if_index, transmitter) in &mut self.transmitters {
            left -= selection.iter().filter(|index| of(*index) == *if_index).count();
            let which = selection.iter().filter(|index| of(*index) == *if_index);
            result = result.and(transmitter.send(batch, which, packets.interfaces));
        }
        self.without_interface += left as u64;
        result
    }

    fn counters(&self) -> StageCounters {
        let mut sent = SendCounts::default();
        sent.lost.add(LossCause::NoInterface, self.without_interface);
        self.transmitters.iter().for_each(|(_, transmitter)| sent.merge(transmitter.sent()));
        counters("sent back".to_owned(), &sent)
    }
}
