//! The interface of filters that are ready to run, whichever engine runs them.

use tapline_packet::{Batch, Packet, Selection};

use crate::Program;

/// A filter that is ready to run: an interpreter or native code. All engines give the same verdict on each packet.
pub trait PacketFilter: Send + Sync {
    /// Whether the filter accepts a packet.
    fn accepts(&self, packet: Packet<'_>) -> bool;

    /// The number that the filter returns for a packet: 0 rejects it. Engines that know no number return 1.
    fn verdict(&self, packet: Packet<'_>) -> u64 {
        self.accepts(packet).into()
    }

    /// Keeps in `selection` the packets of `batch` that the filter accepts. Engines that take a batch at once do
    /// better than packet by packet.
    ///
    /// # Panics
    /// If `selection` holds an index that the batch does not have.
    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        selection.retain(|index| self.accepts(batch.packet(index)));
    }
}

impl PacketFilter for Program {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.run(packet) != 0
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        Program::select(self, batch, selection);
    }
}
