//! Meters a capture file and reports the cost: `cargo run --release -p tapline-flow --example meter -- FILE
//! [flows-max [LINES [details]]]`. LINES is a file for the flows as lines of JSON; - for none.

use std::error::Error;
use std::path::Path;

use tapline_file::FileSource;
use tapline_flow::export::{ExportOptions, FlowSink as _, RowFormat, RowWriter};
use tapline_flow::{DetailFields, Meter, MeterSettings};
use tapline_packet::{Selection, Timestamp};
use tapline_sys::usage::CpuTime;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file?")?;
    let mut settings = MeterSettings::default();
    if let Some(flows_max) = arguments.next() {
        settings.flows_max = flows_max.parse()?;
    }
    let lines = arguments
        .next()
        .filter(|path| path != "-")
        .map(|path| RowWriter::create(Path::new(&path), RowFormat::Json, &ExportOptions::of_rows("", false)));
    let mut lines = lines.transpose()?;
    if let Some(details) = arguments.next() {
        settings.details = DetailFields::parse(&details)?;
    }
    let before = CpuTime::of_process();
    let mut file = FileSource::open(Path::new(&path))?;
    let mut meter = Meter::new(&settings)?;
    let (mut ended, mut flows) = (Vec::new(), 0);
    let mut selection = Selection::none();
    while file.advance()? {
        let batch = file.batch();
        selection.select_all(batch.len());
        meter.push(&batch, &mut selection, file.interfaces(), &mut ended);
        while !meter.expire(&mut ended) {}
        flows += ended.len();
        lines.iter_mut().try_for_each(|lines| lines.export(&ended, Timestamp::EPOCH))?;
        ended.clear();
    }
    loop {
        let is_done = meter.finish(&mut ended);
        flows += ended.len();
        lines.iter_mut().try_for_each(|lines| lines.export(&ended, Timestamp::EPOCH))?;
        ended.clear();
        if is_done {
            break;
        }
    }
    lines.iter_mut().try_for_each(|lines| lines.flush(Timestamp::EPOCH))?;
    let metered = CpuTime::of_process().since(before).total();
    let statistics = meter.statistics();
    let packets = statistics.read().packets;
    let rate = packets as f64 / metered.as_secs_f64() / 1e6;
    println!("{packets} packets, {flows} flows, {rate:.1} million packets a processor second");
    println!("{statistics:?}");
    Ok(())
}
