//! What decides over packets, whichever engine it is.

use tapline_packet::{Batch, Packet, Selection};

use crate::Program;

/// A filter in a form that can be run: the interpreter ([`Program`]), or native code. All give the same verdict on each packet.
pub trait Select: Send + Sync {
    /// Whether the filter accepts a packet.
    fn accepts(&self, packet: Packet<'_>) -> bool;

    /// Keeps in `selection` the packets of `batch` that the filter accepts.
    ///
    /// # Panics
    /// If `selection` holds an index that the batch does not have.
    fn select(&self, batch: &Batch<'_>, selection: &mut Selection);
}

impl Select for Program {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.run(packet) != 0
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        Program::select(self, batch, selection);
    }
}
