//! `bounce`: packets go out of another interface. `reflect` beside it sends them back.
//!
//! ```text
//! device(a) -> bounce(b)      in at a, out of b            device(a) -> reflect      in at a, out of a
//! ```
//!
//! Packets that this host sends are captured too, but not sent again: they would go round without end. See
//! [`Transmitter`].

use tapline_source::{DropReasons, Error, OutputAccount};
use tapline_transmit::Transmitter;

use crate::catalog::{Constructor, Order, Outputs, Parameter, ParameterType, StageClass, StageInput};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Stage, StageCounters};

/// Whether addresses change places.
pub(super) const SWAP: Parameter = Parameter {
    name: "swap",
    kind: ParameterType::Choice(&["no", "mac"]),
    default: Some("no"),
    meaning: "mac: source and destination of the Ethernet header change places; all else stays",
};

/// The class of this stage.
pub(crate) const CLASS: StageClass = StageClass {
    name: "bounce",
    summary: "packets go out of another interface, unmodified",
    description: "Each byte is as it was on the wire: a VLAN tag that the kernel took out is put back, a checksum that was left to an adapter is completed, and what was merged is \
        cut into its segments again. What this host itself sends is not sent again; neither is what was not captured whole. Sending is refused on other interfaces \
        than loopback and veth unless --i-own-this-network names them. With --workers packets of a flow stay in their order.",
    parameters: &[
        Parameter {
            name: "interface",
            kind: ParameterType::Text,
            default: None,
            meaning: "where they are sent",
        },
        SWAP,
    ],
    outputs: Outputs::None,
    input: StageInput::Packets,
    order: Order::Flow,
    example: "device(eth0, direction=in) -> bounce(eth1)",
    make: Constructor::Output,
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
        let sent = self.0.sent();
        counters(format!("sent on {}", self.0.name()), sent.packets, sent.causes)
    }
}

/// The counters of a stage that sends packets.
pub(super) fn counters(name: String, sent: u64, unsent: DropReasons) -> StageCounters {
    let lost = unsent.lost();
    StageCounters::of_output(OutputAccount { name, written: sent, lost, buffered: 0, unsent })
}
