//! `drop`: the end of a way.

use tapline_source::Error;

use crate::catalog::{Constructor, Outputs, StageClass};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;

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
