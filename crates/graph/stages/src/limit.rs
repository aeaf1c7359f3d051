//! `limit`: the first packets of all workers, up to a number or a sum of bytes; then the run ends.

use std::sync::Arc;

use tapline_graph::{Control, Out, Packets, Stage, StageCounters};
use tapline_source::Error;

/// Lets packets through as long as the control's limit allows.
pub struct Limit {
    control: Arc<Control>,
    unexamined: u64,
}

impl Limit {
    /// The limit that `control` holds, shared by all workers.
    pub fn new(control: Arc<Control>) -> Limit {
        Limit { control, unexamined: 0 }
    }
}

impl Stage for Limit {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let wanted = packets.len();
        let mut granted = self.control.take(wanted as u64) as usize;
        if self.control.limits_bytes() {
            let lens =
                packets.selection.iter().take(granted).map(|at| packets.batch.packet(at).data.len() as u64);
            granted = lens.take_while(|len| self.control.take_bytes(*len)).count();
        }
        self.unexamined += (wanted - granted) as u64;
        packets.selection.truncate(granted);
        out.pass(packets)
    }

    fn counters(&self) -> StageCounters {
        StageCounters { unexamined: self.unexamined, ..StageCounters::default() }
    }
}
