//! A program that embeds the crates, and adds a source, a stage and an output of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapline_graph::catalog::{
    Catalog, Constructor, GraphSettings, OpenContext, OpenError, OpenSite, Outputs, Parameter, ParameterType,
    Property, StageAccess, StageClass,
};
use tapline_graph::plan::{self, GraphText, Plan, PlanBuilder, StageDraft, WorkerContext};
use tapline_graph::{Control, Engine, Inlet, Out, Packets, RunEnd, Stage, StageCounters, WorkerSource};
use tapline_meters::Meters;
use tapline_packet::{Batch, ClockReading, Interface, LinkType};
use tapline_source::{Advance, Error, InterfaceAccount, OutputAccount, Source};
use tapline_testkit::frame_batches::FrameBatches;
use tapline_testkit::layers;
use tapline_testkit::random::Random;

/// State of the program, which its classes reach.
#[derive(Default)]
struct Program {
    lengths: Arc<Mutex<Vec<usize>>>,
}

impl Program {
    fn of<'a>(context: &OpenContext<'a>) -> &'a Program {
        context.site.program.downcast_ref().expect("the program of these classes")
    }
}

const LENGTH: Parameter =
    Parameter::new("length", ParameterType::Number(0, 65_535), "60").means("bytes of a frame");

static FRAMES: StageClass = StageClass {
    name: "frames",
    summary: "frames of random layers",
    properties: &[Property::Live],
    example: "frames -> count",
    make: Constructor::Source(|_| Ok(vec![WorkerSource::Whole(Box::new(Frames::new()))])),
    ..StageClass::BASE
};

static LONGER: StageClass = StageClass {
    name: "longer",
    summary: "frames of more than a length",
    parameters: &[LENGTH],
    access: |_, access| access.reads_file("/srv/lengths/table"),
    example: "frames -> longer(100) -> count",
    make: Constructor::Stage(|arguments, _| Ok(Box::new(Longer(arguments.number("length"))))),
    ..StageClass::BASE
};

static LENGTHS: StageClass = StageClass {
    name: "lengths",
    summary: "the lengths of frames",
    outputs: Outputs::None,
    example: "frames -> lengths",
    make: Constructor::Output(open_lengths),
    ..StageClass::BASE
};

fn open_lengths(context: &OpenContext<'_>) -> Result<Box<dyn Stage>, OpenError> {
    Ok(Box::new(Lengths { all: Arc::clone(&Program::of(context).lengths), written: 0 }))
}

/// Lends 200 frames once.
struct Frames {
    lent: FrameBatches,
    interfaces: Vec<Interface>,
    is_lent: bool,
}

impl Frames {
    fn new() -> Frames {
        let mut random = Random::new(3);
        let frames: Vec<Vec<u8>> = (0..200).map(|_| layers::frame(&mut random)).collect();
        let interfaces = vec![Interface::new("frames", LinkType::ETHERNET)];
        Frames { lent: FrameBatches::new(&frames), interfaces, is_lent: false }
    }
}

impl Source for Frames {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, _: Duration) -> Result<Advance, Error> {
        let is_over = std::mem::replace(&mut self.is_lent, true);
        Ok(if is_over { Advance::End } else { Advance::Batch })
    }

    fn batch(&self) -> Batch<'_> {
        self.lent.batch()
    }

    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![InterfaceAccount::of_file("frames", if self.is_lent { self.lent.len() as u64 } else { 0 })]
    }
}

struct Longer(u64);

impl Stage for Longer {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let records = packets.batch.records();
        packets.selection.retain(|index| u64::from(records[index].cap_len) > self.0);
        out.pass(packets)
    }
}

struct Lengths {
    all: Arc<Mutex<Vec<usize>>>,
    written: u64,
}

impl Stage for Lengths {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let lengths = packets.selection.iter().map(|index| packets.batch.packet(index).data.len());
        self.all.lock().expect("no panic").extend(lengths);
        self.written += packets.len() as u64;
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        let name = "lengths".to_owned();
        StageCounters::of_output(OutputAccount { name, written: self.written, ..OutputAccount::default() })
    }
}

fn catalog() -> Catalog {
    tapline_stages::catalog().clone().with(&FRAMES).with(&LONGER).with(&LENGTHS)
}

fn planned(text: &str) -> Result<Plan, String> {
    Plan::new(&catalog(), &[GraphText { name: "g", text }])
}

#[test]
fn a_program_adds_classes_of_its_own() {
    let mut graph = PlanBuilder::default();
    let stages = ["frames", "longer", "filter", "lengths"].map(StageDraft::new);
    let [frames, longer, filter, lengths] = stages;
    graph.add_chain([frames, longer.with("length", 100_u64), filter.arg("ip or ip6 or arp"), lengths]);
    let plan = graph.plan(&catalog()).expect("a graph");
    assert_eq!(plan.keys(), planned(&graph.to_string()).expect("the same graph").keys());
    assert!(plan.has(Property::Live) && !plan.has(Property::Archive));
    let StageAccess { allowed, .. } = plan.access();
    assert_eq!(allowed.reads, ["/srv/lengths".as_ref() as &std::path::Path]);

    let program = Program::default();
    let site = OpenSite { workers: 1, interfaces: &[], is_live: true, program: &program };
    let sources = plan.open_sources(&site).expect("sources").pop().expect("one worker");
    let mut sources: Vec<Box<dyn Source>> = sources.into_iter().map(WorkerSource::alone).collect();
    let interfaces = sources[0].interfaces().to_vec();
    let mut outputs = plan.open_outputs(&OpenSite { interfaces: &interfaces, ..site }).expect("outputs");
    let (control, common) = (Arc::new(Control::new(None)), GraphSettings::default());
    let mut output = |node: usize| outputs.remove(&node).ok_or_else(|| "each was opened".to_owned());
    let context =
        WorkerContext { worker: 0, control: &control, common: &common, exits: None, output: &mut output };
    let (mut graph, nodes) = plan::build(&plan, &Meters::private(), context).expect("stages");
    let inlets = sources.iter_mut().zip(nodes).map(|(source, node)| Inlet::new(source.as_mut(), node));
    let outcome = Engine::new(inlets.collect(), &mut graph, &control, ClockReading::default).run(&mut |_| {});
    assert!(matches!(outcome.ended, RunEnd::Source));
    assert_eq!(outcome.account.faults(), [""; 0]);
    let lengths = program.lengths.lock().expect("no panic");
    assert!(!lengths.is_empty() && lengths.len() < 200 && lengths.iter().all(|length| *length > 100));
}

#[test]
fn classes_of_a_program_are_in_its_messages() {
    let error = planned("frame -> count").expect_err("no such class");
    assert!(error.contains("did you mean `frames`?"), "{error}");
    assert!(catalog().index().contains("  longer      frames of more than a length\n"));
    assert!(tapline_stages::catalog().class("frames").is_none());
    // A class of the name of another one takes its place.
    static COUNT: StageClass = StageClass { name: "count", ..StageClass::BASE };
    let own = tapline_stages::catalog().clone().with(&COUNT);
    assert_eq!(own.classes().len(), tapline_stages::catalog().classes().len());
    assert!(own.class("count").is_some_and(StageClass::is_source));
}

#[test]
fn a_class_that_nobody_opens_says_so() {
    let plan = planned("device(eth0) -> lengths").expect("a graph");
    let site = OpenSite { workers: 1, interfaces: &[], is_live: true, program: &() };
    let error = plan.open_sources(&site).map(|_| ()).expect_err("no way to open it");
    assert_eq!(error.to_string(), "device@1: this program opens no device");
}
