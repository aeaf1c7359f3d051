//! Cost of a stage that does nothing: the call, the account, two readings of the clock, a meter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapline_arena::frame_batches::FrameBatches;
use tapline_graph::{Graph, NodeId, Out, Packets, Stage};
use tapline_meters::{Meters, Task};
use tapline_packet::{BATCH_MAX, Batch, ClockReading};
use tapline_source::Error;
use tapline_sys::tsc;

/// Stages in a row.
const STAGES: usize = 8;
/// Batches in a round.
const BATCHES: usize = 64;
/// FFPF's figure for a stage.
const STAGE: f64 = 171.0;

/// Hands on, and counts at the end of the row.
struct Pass(Option<Arc<AtomicU64>>);

impl Stage for Pass {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if let Some(passed) = &self.0 {
            passed.fetch_add(packets.len() as u64, Ordering::Relaxed);
        }
        out.pass(packets)
    }
}

/// A packet at one stage, alone and in a full batch.
pub(super) fn tasks(tasks: &mut Vec<Task<'static>>) {
    tasks.push(task(1).with_reference(STAGE));
    tasks.push(task(BATCH_MAX));
}

fn task(packets: usize) -> Task<'static> {
    let passed = Arc::new(AtomicU64::new(0));
    let (mut graph, source) = row(&passed);
    let lent = FrameBatches::new(&vec![vec![0; 64]; packets]);
    let name = match packets {
        1 => "an empty stage, batches of 1 packet".to_owned(),
        _ => format!("an empty stage, batches of {packets}"),
    };
    let count = (BATCHES * packets) as u64;
    Task::new(&name, "packet", (STAGES * BATCHES * packets) as f64, count, move || {
        let before = passed.load(Ordering::Relaxed);
        for _ in 0..BATCHES {
            push(&mut graph, source, lent.batch());
        }
        passed.load(Ordering::Relaxed) - before
    })
}

/// The row's first node and its graph.
fn row(passed: &Arc<AtomicU64>) -> (Graph, NodeId) {
    let mut graph = Graph::new(&Meters::private(), 0);
    let first = graph.add("0", "pass", Box::new(Pass(None)), &[]);
    let mut last = first;
    for number in 1..STAGES {
        let count = (number + 1 == STAGES).then(|| Arc::clone(passed));
        last = graph.add(&number.to_string(), "pass", Box::new(Pass(count)), &[(last, 0)]);
    }
    (graph, first)
}

fn push(graph: &mut Graph, source: NodeId, batch: Batch<'_>) {
    let mut packets = Packets::all(batch, &[], ClockReading::default());
    graph.push(source, &mut packets, tsc::now()).expect("stages that do nothing do not fail");
}
