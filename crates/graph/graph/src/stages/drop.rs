//! `drop`: the end of a way.

use tapline_source::Error;

use crate::catalog::{Constructor, Order, Outputs, StageClass, StageInput};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;

pub(crate) const CLASS: StageClass = StageClass {
    name: "drop",
    summary: "drops packets",
    description: "They count as refused there. A path may also end at any other stage.",
    parameters: &[],
    outputs: Outputs::None,
    input: StageInput::Packets,
    order: Order::Free,
    example: "device(eth0) -> top -> drop",
    make: Constructor::Stage(|_, _| Ok(Box::new(Drop))),
};

struct Drop;

impl Stage for Drop {
    fn push(&mut self, _: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        Ok(())
    }
}
