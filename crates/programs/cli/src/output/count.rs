//! Packets counted and nothing else.

use tapline_graph::{Out, Packets, Stage, StageCounters};
use tapline_source::{Error, OutputAccount};

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
        let name = "count".to_owned();
        StageCounters::of_output(OutputAccount { name, written: self.packets, ..OutputAccount::default() })
    }
}
