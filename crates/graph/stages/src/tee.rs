//! `tee`: the same packets to all outputs.

use tapline_graph::catalog::{Constructor, StageClass};
use tapline_graph::{Out, Packets, Stage};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "tee",
    summary: "the same packets to every stage that is connected",
    description: "Any output may lead to several stages, so a tee is never needed; it gives the place a name.",
    example: "all :: tee; device(eth0) -> all; all -> count; all -> top",
    make: Constructor::Stage(|_, _| Ok(Box::new(Tee))),
    ..StageClass::BASE
};

struct Tee;

impl Stage for Tee {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        out.pass(packets)
    }
}
