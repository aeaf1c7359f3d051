//! `count`: packets and bytes.

use std::any::Any;

use tapline_capture::af_packet::KernelTally;
use tapline_graph::catalog::{Constructor, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_source::Error;

use crate::kernel_tally;

pub(crate) const CLASS: StageClass = StageClass {
    name: "count",
    summary: "counts packets and bytes",
    description: "Bytes are those on the wire, without the parts that the network card removes (preamble, checksum, gap). Other processes can read the \
        numbers while it runs: they are in the meters, `tapline top` shows them. All packets are passed on; with place=kernel they \
        end here, none is copied to this process, and the numbers are in the account of the interface. Where the kernel does not count, the stage does.",
    parameters: &[PLACE],
    example: "dns :: count; device(eth0) -> filter(\"port 53\") -> dns",
    make: Constructor::Stage(|_, site| {
        Ok(Box::new(Counter { tally: kernel_tally(site.tally).cloned(), ..Counter::default() }))
    }),
    ..StageClass::BASE
};

/// The place of a stage's work.
pub(super) const PLACE: Parameter =
    Parameter::new("place", ParameterType::Choice(&["here", "kernel"]), "here")
        .means("kernel: at the socket of the device that the stage follows, before packets are copied");

#[derive(Default)]
struct Counter {
    packets: u64,
    bytes: u64,
    tally: Option<KernelTally>,
}

impl Stage for Counter {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.packets += packets.len() as u64;
        self.bytes += packets.bytes();
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let counted = self.tally.as_ref().map(KernelTally::read).unwrap_or_default();
        let (packets, bytes) = (self.packets + counted.packets, self.bytes + counted.bytes_without_tags());
        Some(Table::of_numbers(&[("packets", packets), ("bytes", bytes)]))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Counter>() {
            self.packets += other.packets;
            self.bytes += other.bytes;
        }
    }
}
