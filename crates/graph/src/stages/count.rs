//! `count`: packets and bytes.

use std::any::Any;

use tapline_capture::Error;

use crate::catalog::{Constructor, Order, Outputs, StageClass, StageInput};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;
use crate::table::Table;

/// The class of this stage.
pub(crate) const CLASS: StageClass = StageClass {
    name: "count",
    summary: "how many packets and bytes came this way",
    description: "Bytes are those on the wire, without what the network card input off (preamble, checksum, gap). Other processes can read the \
        numbers while it runs: they stand in the meters, `tapline top` shows them. All packets go on.",
    parameters: &[],
    outputs: Outputs::One,
    input: StageInput::Packets,
    order: Order::Free,
    example: "dns :: count; device(eth0) -> filter(\"port 53\") -> dns",
    make: Constructor::Stage(|_, _| Ok(Box::new(Counter::default()))),
};

#[derive(Default)]
struct Counter {
    packets: u64,
    bytes: u64,
}

impl Stage for Counter {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.packets += packets.len() as u64;
        self.bytes += packets.bytes();
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        Some(Table::of_numbers(&[("packets", self.packets), ("bytes", self.bytes)]))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Counter>() {
            self.packets += other.packets;
            self.bytes += other.bytes;
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
