//! A sink as the end of a way through the graph.

use tapline_capture::{Error, Sink, Wants};

use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Moment, Own, Stage};

/// Gives packets to a sink: a file, lines of text.
pub struct SinkStage {
    sink: Box<dyn Sink>,
    /// The packets that come here go nowhere else.
    is_only: bool,
    is_shared: bool,
    unexamined: u64,
}

impl SinkStage {
    /// The end of a way. `is_only` says that packets which the sink no longer takes, because another worker completed it, went nowhere else:
    /// they count as not examined then, not as lost.
    pub fn new(sink: Box<dyn Sink>, is_only: bool) -> SinkStage {
        SinkStage { sink, is_only, is_shared: false, unexamined: 0 }
    }

    /// Several workers store into the same sink.
    #[must_use]
    pub fn shared(self, is_shared: bool) -> SinkStage {
        SinkStage { is_shared, ..self }
    }
}

impl Stage for SinkStage {
    fn push(&mut self, packets: &mut Packets<'_>, _out: &mut Out<'_>) -> Result<(), Error> {
        let written = self.sink.write(&packets.batch, &packets.selection, packets.interfaces);
        if self.is_only {
            self.unexamined += self.sink.take_refused();
        }
        written
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.sink.flush()
    }

    fn tick(&mut self, moment: &Moment<'_>, _out: &mut Out<'_>) -> Result<Wants, Error> {
        self.sink.tick(moment.clocks(), moment.interfaces)
    }

    fn finish(&mut self, moment: &Moment<'_>, _out: &mut Out<'_>) -> Result<(), Error> {
        self.sink.finish(moment.now, moment.interfaces)
    }

    fn own(&self) -> Own {
        let (unexamined, is_shared) = (self.unexamined, self.is_shared);
        Own { unexamined, is_shared, output: Some(self.sink.account()), ..Own::default() }
    }
}
