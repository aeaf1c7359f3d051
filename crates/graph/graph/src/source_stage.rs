//! The first node of a graph, through which the packets of a source enter.

use tapline_source::Error;

use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;

/// Hands on the packets of a source. Its cycles are those of the source.
pub struct SourceStage;

impl Stage for SourceStage {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        out.pass(packets)
    }
}
