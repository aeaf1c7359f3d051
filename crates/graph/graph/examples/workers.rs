//! Cost and time of one file and several workers: `cargo run --release -p tapline-graph --example workers -- FILE count
//! WORKERS [FILTER]`, with `flow` in place of `count` to meter the packets.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use tapline_bpf::PacketFilter;
use tapline_file::{FileInput, MergeOrder};
use tapline_filter::{Options, compile};
use tapline_flow::{Meter, MeterSettings};
use tapline_graph::{FlowShardSource, PieceSource};
use tapline_packet::Selection;
use tapline_source::{Advance, Source};
use tapline_sys::usage::CpuTime;

/// Packets, packets of these that the filter accepts, and flows.
type Counts = [u64; 3];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, work, workers, filter @ ..] = words.as_slice() else {
        return Err("FILE count|flow WORKERS [FILTER]".into());
    };
    let filter = compile(&filter.join(" "), &Options::default()).map_err(|error| error.to_string())?;
    let (before, begin) = (CpuTime::of_process(), Instant::now());
    let file = FileInput::new(vec![FileInput::open_file(Path::new(path))?], MergeOrder::Given);
    let sources: Vec<Box<dyn Source>> = match (work.as_str(), workers.parse()?) {
        (_, 1) => vec![Box::new(file)],
        ("count", workers) => PieceSource::all(Box::new(file), workers),
        (_, workers) => FlowShardSource::all(Box::new(file), workers),
    };
    let counts = std::thread::scope(|scope| {
        let work = |mut source: Box<dyn Source>| match work.as_str() {
            "count" => count(source.as_mut(), &filter),
            _ => meter(source.as_mut()),
        };
        let threads: Vec<_> =
            sources.into_iter().map(|source| scope.spawn(move || work(source).unwrap_or_default())).collect();
        threads.into_iter().fold([0; 3], |sum: Counts, thread| {
            let counts = thread.join().unwrap_or_default();
            [0, 1, 2].map(|at| sum[at] + counts[at])
        })
    });
    let (wall, used) = (begin.elapsed(), CpuTime::of_process().since(before).total());
    let each = |time: Duration| time.as_nanos() as f64 / counts[0].max(1) as f64;
    println!(
        "{counts:?} in {:.3} s: {:.1} ns a packet, {:.1} ns of processor time",
        wall.as_secs_f64(),
        each(wall),
        each(used)
    );
    Ok(())
}

fn count(source: &mut dyn Source, filter: &dyn PacketFilter) -> Option<Counts> {
    let (mut packets, mut accepted, mut selection) = (0, 0, Selection::none());
    loop {
        match source.advance(Duration::from_millis(100)).ok()? {
            Advance::Batch => {
                let batch = source.batch();
                selection.select_all(batch.len());
                filter.select(&batch, &mut selection);
                packets += batch.len() as u64;
                accepted += selection.len() as u64;
            }
            Advance::Idle => {}
            Advance::End => return Some([packets, accepted, 0]),
        }
    }
}

fn meter(source: &mut dyn Source) -> Option<Counts> {
    let mut meter = Meter::new(&MeterSettings::default()).ok()?;
    let (mut ended, mut flows, mut selection) = (Vec::new(), 0, Selection::none());
    loop {
        match source.advance(Duration::from_millis(100)).ok()? {
            Advance::Batch => {
                let batch = source.batch();
                selection.select_all(batch.len());
                meter.push(&batch, &mut selection, source.interfaces(), &mut ended);
                while !meter.expire(&mut ended) {}
            }
            Advance::Idle => {}
            Advance::End => break,
        }
        flows += ended.len() as u64;
        ended.clear();
    }
    while !meter.finish(&mut ended) {
        flows += ended.len() as u64;
        ended.clear();
    }
    let packets = meter.statistics().read().packets;
    Some([packets, packets, flows + ended.len() as u64])
}
