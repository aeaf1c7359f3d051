//! Packets cut to a snap length, as with `-s`.

use tapline_graph::{Out, Packets, Stage};
use tapline_source::Error;

/// Cuts every packet to this many bytes. Lengths on the wire stay.
pub struct Snap(pub u32);

impl Stage for Snap {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        packets.batch = packets.batch.cut(self.0);
        out.pass(packets)
    }
}
