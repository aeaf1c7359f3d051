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

    /// As [`select`](Self::select); `note` gets the number that the filter returns for each accepted packet.
    ///
    /// # Panics
    /// As for [`select`](Self::select).
    fn select_with(&self, batch: &Batch<'_>, selection: &mut Selection, note: &mut dyn FnMut(usize, u64)) {
        retain_with(selection, note, |index| self.verdict(batch.packet(index)));
    }
}

/// Keeps the packets of which `verdict` is not 0, and gives it to `note`.
pub fn retain_with(
    selection: &mut Selection,
    note: &mut dyn FnMut(usize, u64),
    mut verdict: impl FnMut(usize) -> u64,
) {
    selection.retain(|index| {
        let verdict = verdict(index);
        if verdict != 0 {
            note(index, verdict);
        }
        verdict != 0
    });
}

impl PacketFilter for Program {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.run(packet) != 0
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        Program::select(self, batch, selection);
    }
}
