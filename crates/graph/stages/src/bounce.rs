//! `bounce`: packets go out of another interface. `reflect` sends them back.
//!
//! ```text
//! device(a) -> bounce(b)      in at a, out of b            device(a) -> reflect      in at a, out of a
//! ```
//!
//! Packets that this host sends are captured too, but not sent again: they would go round without end. See
//! [`Transmitter`].

use tapline_graph::catalog::{
    Constructor, Order, Outputs, Parameter, ParameterType, Property, StageClass, refuse,
};
use tapline_graph::{Out, Packets, Stage, StageCounters};
use tapline_source::{Error, OutputAccount, SkipCause};
use tapline_transmit::{SendCounts, Transmitter};

/// Whether addresses change places.
pub(super) const SWAP: Parameter = Parameter::new("swap", ParameterType::Choice(&["no", "mac"]), "no")
    .means("mac: source and destination of the Ethernet header are exchanged; nothing else changes");

/// The class; programs open its stages.
pub const CLASS: StageClass = StageClass {
    name: "bounce",
    summary: "packets go out of another interface, unmodified",
    description: "Each byte is as it was on the wire: a VLAN tag that the kernel took out is put back, a checksum that was left to an adapter is \
        completed, and merged packets are cut into segments again. Packets that this host itself sends are not sent again, nor are packets that \
        were not captured whole. Sending is refused on other interfaces \
        than loopback and veth unless --i-own-this-network names them. With --workers packets of a flow stay in their order.",
    parameters: &[
        Parameter::required("interface", ParameterType::Text).means("the interface to send on"),
        SWAP,
    ],
    outputs: Outputs::None,
    order: Order::Flow,
    example: "device(eth0, direction=in) -> bounce(eth1)",
    properties: &[Property::Sends],
    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// Sends every packet out of one interface.
pub struct Bounce(Transmitter);

impl Bounce {
    /// Sends with this transmitter.
    pub fn new(transmitter: Transmitter) -> Bounce {
        Bounce(transmitter)
    }
}

impl Stage for Bounce {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.0.send(&packets.batch, packets.selection.iter(), packets.interfaces)
    }

    fn counters(&self) -> StageCounters {
        counters(format!("sent on {}", self.0.name()), self.0.sent())
    }
}

/// The counters of a stage that sends packets.
pub(super) fn counters(name: String, sent: &SendCounts) -> StageCounters {
    let SendCounts { packets: written, lost: lost_by, own, .. } = *sent;
    let (lost, skipped) = (lost_by.total(), Some((SkipCause::Own, own)));
    StageCounters::of_output(OutputAccount { name, written, lost, lost_by, buffered: 0, skipped })
}
