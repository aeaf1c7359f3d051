//! `bounce`, `reflect`: packets go out of an interface again.
//!
//! ```text
//! device(a) -> bounce(b)      in at a, out of b            device(a) -> reflect      in at a, out of a
//! ```
//!
//! What this host sends itself is captured too, and never sent again: else every packet would go round. [`Transmitter`] has the rest.

use tapline_capture::transmit::{Cause, Causes, Transmitter};
use tapline_capture::{Error, InterfaceAccount, OutputAccount, Sink};
use tapline_packet::{Batch, Interface, Selection, Timestamp};

use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter, Takes};

/// Whether addresses change places.
const SWAP: Parameter = Parameter {
    name: "swap",
    kind: Kind::Choice(&["no", "mac"]),
    default: Some("no"),
    meaning: "mac: source and destination of the Ethernet header change places; all else stays",
};

/// The class of `bounce`.
pub(crate) const BOUNCE: Class = Class {
    name: "bounce",
    summary: "packets go out of another interface, unmodified",
    description: "Each byte is as it was on the wire: a VLAN tag that the kernel took out is put back, a checksum that was left to an adapter is completed, and what was merged is \
        cut into its segments again. What this host itself sends is not sent again; neither is what was not captured whole. Sending is refused on other interfaces \
        than loopback and veth unless --i-own-this-network names them. With --workers packets of a flow stay in their order.",
    parameters: &[
        Parameter { name: "interface", kind: Kind::Text, default: None, meaning: "where they are sent" },
        SWAP,
    ],
    outputs: Outputs::None,
    takes: Takes::Packets,
    order: Order::Flow,
    example: "device(eth0, direction=in) -> bounce(eth1)",
    make: Make::Sink,
};

/// The class of `reflect`.
pub(crate) const REFLECT: Class = Class {
    name: "reflect",
    summary: "packets go back out of the interface from which they came",
    description: "As bounce, but each packet goes to where it was captured.",
    parameters: &[SWAP],
    outputs: Outputs::None,
    takes: Takes::Packets,
    order: Order::Flow,
    example: "device(eth0, direction=in) -> filter(\"udp dst port 7\") -> reflect(swap=mac)",
    make: Make::Sink,
};

/// Sends every packet out of one interface.
pub struct BounceSink(Transmitter);

impl BounceSink {
    /// Sends with this transmitter.
    pub fn new(transmitter: Transmitter) -> BounceSink {
        BounceSink(transmitter)
    }
}

impl Sink for BounceSink {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        self.0.send(batch, selection.iter(), interfaces)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self, _: Timestamp, _: &[InterfaceAccount]) -> Result<(), Error> {
        Ok(())
    }

    fn account(&self) -> OutputAccount {
        account(format!("sent on {}", self.0.name()), self.0.sent().packets, self.0.sent().causes)
    }
}

/// Sends every packet out of the interface that it came from.
pub struct ReflectSink {
    /// By the kernel's number of the interface.
    transmitters: Vec<(u32, Transmitter)>,
    /// Packets for which there is none.
    causes: Causes,
}

impl ReflectSink {
    /// Sends with these transmitters, each for the packets of the interface with its number.
    pub fn new(transmitters: Vec<(u32, Transmitter)>) -> ReflectSink {
        ReflectSink { transmitters, causes: Causes::default() }
    }
}

impl Sink for ReflectSink {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        let of = |index: usize| batch.records()[index].meta.if_index;
        let mut result = Ok(());
        let mut left = selection.len();
        for (if_index, transmitter) in &mut self.transmitters {
            left -= selection.iter().filter(|index| of(*index) == *if_index).count();
            let which = selection.iter().filter(|index| of(*index) == *if_index);
            result = result.and(transmitter.send(batch, which, interfaces));
        }
        self.causes.add(Cause::NoInterface, left as u64);
        result
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self, _: Timestamp, _: &[InterfaceAccount]) -> Result<(), Error> {
        Ok(())
    }

    fn account(&self) -> OutputAccount {
        let mut causes = self.causes;
        self.transmitters.iter().for_each(|(_, transmitter)| causes.merge(&transmitter.sent().causes));
        let sent = self.transmitters.iter().map(|(_, transmitter)| transmitter.sent().packets).sum();
        account("sent back".to_owned(), sent, causes)
    }
}

fn account(name: String, sent: u64, unsent: Causes) -> OutputAccount {
    OutputAccount { name, written: sent, lost: unsent.lost(), buffered: 0, unsent }
}
