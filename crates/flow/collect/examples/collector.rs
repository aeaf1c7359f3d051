//! The collector without a graph around it: datagrams that come to a port become an IPFIX file, until an empty one comes.
//!
//! ```text
//! cargo run --release -p tapline-collect --example collector -- 127.0.0.1:4739 flows.ipfix
//! ```
//!
//! Standard output has the records as `collect-flows --json` has them. With `flows` behind the file each record becomes a
//! flow first, as it does where something else needs the flows. A file whose name ends in `.json` gets lines of JSON.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use tapline_collect::{Collector, CollectorSettings};
use tapline_flow::export::{
    ExportOptions, ExportTarget, Exporter, FlowSink, RecordBatch, RowFormat, RowWriter,
};
use tapline_packet::Timestamp;
use tapline_sys::{DATAGRAMS_PER_CALL, DatagramSocket, Poller, clock};

/// The elements of `collect-flows --export file:NAME`.
const TEMPLATE: &str = "default,samplingInterval,exporterIPv4Address,exporterIPv6Address,bgpSourceAsNumber,bgpDestinationAsNumber,ipNextHopIPv4Address";
/// Memory for one datagram.
const SLOT_LEN: usize = 65_536;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: collector ADDRESS:PORT FILE [flows]".into());
    };
    let makes_flows = arguments.next().is_some();
    let mut socket = DatagramSocket::bind(address.parse::<SocketAddr>()?)?;
    socket.set_receive_buffer(32 << 20)?;
    let mut collector = Collector::new(CollectorSettings::default(), None);
    let options = ExportOptions { template: TEMPLATE.into(), is_collected: true, ..ExportOptions::default() };
    let mut exporter: Box<dyn FlowSink> = match path.ends_with(".json") {
        true => Box::new(RowWriter::create(path.as_ref(), RowFormat::Json, &options)?),
        false => Box::new(Exporter::open(&[ExportTarget::File(path.into())], &options)?),
    };
    let layout = exporter.record_layout().filter(|_| !makes_flows);
    let mut memory = vec![0; SLOT_LEN * DATAGRAMS_PER_CALL];
    let (mut received, mut flows, mut poller) = (Vec::new(), Vec::new(), Poller::new());
    let mut records = RecordBatch::default();
    let mut is_open = true;
    while is_open {
        socket.receive(&mut memory, SLOT_LEN, 0, &mut received)?;
        if received.is_empty() {
            poller.clear();
            poller.add(socket.as_fd());
            poller.wait(Duration::from_secs(60))?;
            continue;
        }
        let now = Timestamp::from_nanos(clock::realtime_ns());
        for (datagram, memory) in received.iter().zip(memory.chunks(SLOT_LEN)) {
            is_open &= datagram.len > 0;
            let octets = &memory[..datagram.len];
            let _ = match &layout {
                Some(layout) => collector.read_records(datagram.from, now, octets, layout, &mut records),
                None => collector.read(datagram.from, now, octets, &mut flows),
            };
        }
        match layout {
            Some(_) => exporter.export_records(&records, now)?,
            None => exporter.export(&flows, now)?,
        }
        records.clear();
        collector.recycle(&mut flows);
    }
    exporter.finish(Timestamp::from_nanos(clock::realtime_ns()))?;
    let records: u64 = collector.sources().iter().map(|source| source.flows).sum();
    println!("{{\"results\":{{\"sources\":[{{\"flows\":{records}}}]}}}}");
    Ok(())
}
