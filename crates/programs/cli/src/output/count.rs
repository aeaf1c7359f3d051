//! Packets counted and nothing else.

use tapline_graph::{Out, Packets, Stage, StageCounters};
use tapline_source::Error;

/// Counts packets: `--count`.
#[derive(Default)]
pub(crate) struct CountOutput {
    packets: u64,
}

impl Stage for CountOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.packets += packets.len() as u64;
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_written("count", self.packets)
    }
}
