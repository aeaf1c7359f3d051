//! `drop`: the end of a way.

use tapline_graph::catalog::{Constructor, Outputs, StageClass};
use tapline_graph::{Out, Packets, Stage};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "drop",
    summary: "drops packets",
    description: "They count as refused there. A path may also end at any other stage.",
    outputs: Outputs::None,
    example: "device(eth0) -> top -> drop",
    refused: "dropped",
    make: Constructor::Stage(|_, _| Ok(Box::new(Drop))),
    ..StageClass::BASE
};

struct Drop;

impl Stage for Drop {
    fn push(&mut self, _: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        Ok(())
    }
}
