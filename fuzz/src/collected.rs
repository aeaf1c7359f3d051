//! The law that each datagram to a collector is read or refused, and that each flow out of it is in the account and is
//! exported. Records for an exporter that come without flows are those of the flows.
//!
//! ```text
//! input := settings 1 { source 1 | length 2 | datagram }
//! ```

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use tapline_collect::{Collector, CollectorSettings, DatagramFault, RefusedCause};
use tapline_flow::export::{
    ExportOptions, ExportTarget, Exporter, FlowSink as _, RecordBatch, RecordLayout, Version,
};
use tapline_flow::{EndReason, Endpoint, Flow, FlowContext, Sampling};
use tapline_packet::Timestamp;

/// When all datagrams come: 2023-11-14 22:13:20 UTC.
const NOW: i64 = 1_700_000_000_000_000_000;

/// Elements of exported records in addition to the default ones.
const MORE: &str =
    "exporterIPv4Address,exporterIPv6Address,bgpSourceAsNumber,ipNextHopIPv4Address,sourceIPv4PrefixLength";

/// Each datagram is read or refused, and each flow is in the account and is exported.
pub fn collected(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let settings =
        CollectorSettings { sources_max: if choice & 1 == 0 { 3 } else { 100 }, scales: choice & 2 != 0 };
    let mut collector = Collector::new(settings, None);
    let (mut of_records, mut records) = (Collector::new(settings, None), RecordBatch::default());
    let layout = Arc::new(layout());
    let now = Timestamp::from_nanos(NOW);
    let (mut datagrams, mut flows) = (0, Vec::new());
    while let Some((&[source, high, low], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (datagram, behind) = behind.split_at(len);
        rest = behind;
        let from = SocketAddr::from((Ipv4Addr::new(192, 0, 2, source % 4), u16::from(source >> 4)));
        let before = flows.len();
        let read = collector.read(from, now, datagram, &mut flows);
        assert!(read.is_ok() || flows.len() == before, "a refused datagram has no flows");
        assert_eq!(of_records.read_records(from, now, datagram, &layout, &mut records), read);
        datagrams += 1;
    }
    collector.finish();
    of_records.finish();
    let mut expected = RecordBatch::default();
    flows.iter().for_each(|flow| expected.add_flow(&layout, flow));
    assert_eq!(records, expected);
    assert_eq!(of_records.sources(), collector.sources());
    let refused: u64 = DatagramFault::ALL.into_iter().map(|fault| collector.refused(fault)).sum();
    assert_eq!(collector.datagrams() + refused, datagrams);
    let mut sources = collector.sources();
    sources.push(&collector.forgotten().account);
    assert_eq!(sources.iter().map(|source| source.flows).sum::<u64>(), flows.len() as u64);
    assert_eq!(sources.iter().map(|source| source.datagrams).sum::<u64>(), collector.datagrams());
    let sum = |of: fn(&Flow) -> u64| flows.iter().map(of).map(u128::from).sum::<u128>();
    assert_eq!(sources.iter().map(|source| source.packets).sum::<u128>(), sum(Flow::packets));
    assert_eq!(sources.iter().map(|source| source.bytes).sum::<u128>(), sum(Flow::bytes));
    assert!(sources.iter().all(|source| source.held == 0));
    assert!(flows.iter().all(|flow| flow.first() <= flow.last()
        && flow.endpoints[0].address.is_ipv4() == flow.endpoints[1].address.is_ipv4()));
    export(&flows, choice, now);
}

/// The layout of an exporter whose fields can be copied from many templates.
fn layout() -> RecordLayout {
    let template = format!("default,samplingInterval,bgpDestinationAsNumber,{MORE}");
    let options = ExportOptions { template, is_collected: true, ..ExportOptions::default() };
    RecordLayout::of(&options).expect("the elements exist").expect("their lengths are fixed")
}

/// Flows leave again, in messages whose records have the length of their template.
fn export(flows: &[Flow], choice: u8, now: Timestamp) {
    let is_ipfix = choice & 4 != 0;
    let options = ExportOptions {
        version: if is_ipfix { Version::Ipfix } else { Version::V9 },
        template: if is_ipfix { format!("default,{MORE}") } else { String::new() },
        biflow: is_ipfix && choice & 8 != 0,
        is_collected: true,
        ..ExportOptions::default()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
    socket.set_nonblocking(true).expect("a socket");
    let to = ExportTarget::Udp(socket.local_addr().expect("it is bound").to_string());
    let mut exporter = Exporter::open(&[to], &options).expect("loopback is there");
    exporter.export(flows, now).expect("nothing is written to files");
    exporter.flush(now).expect("nothing is written to files");
    let account = exporter.account();
    assert_eq!(account.packets.written + account.packets.lost, flows.iter().map(Flow::packets).sum::<u64>());
    let (mut again, mut collector) = (Vec::new(), Collector::new(CollectorSettings::default(), None));
    messages(&socket).iter().for_each(|message| {
        collector
            .read((Ipv4Addr::LOCALHOST, 4739).into(), now, message, &mut again)
            .expect("we make whole messages");
    });
    let source = collector.sources().into_iter().next().cloned();
    let Some(source) = source.filter(|source| source.lost == 0) else { return };
    let malformed =
        [RefusedCause::Malformed, RefusedCause::NoTemplate].map(|cause| source.refused[cause as usize]);
    assert_eq!(malformed, [0, 0], "our own messages are read whole");
}

/// The datagrams that wait in a socket.
fn messages(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut memory = vec![0; 65_536];
    let mut all = Vec::new();
    while let Ok(len) = socket.recv(&mut memory) {
        all.push(memory[..len].to_vec());
    }
    all
}

/// Messages of each version from our own exporter, and a datagram of sFlow.
pub fn collected_seeds() -> Vec<Vec<u8>> {
    let side = |last: u8, port: u16, packets: u64| Endpoint {
        address: Ipv4Addr::new(10, 0, 0, last).into(),
        port,
        packets,
        bytes: packets * 100,
        first: Timestamp::from_nanos(NOW - 5_000_000_000),
        last: Timestamp::from_nanos(NOW - 1_000_000_000),
        tcp_flags: 0x1b,
        tcp_flags_first: 2,
        ttl_min: 64,
        ttl_max: 64,
        tos: 0,
    };
    let flow = |number: u8| Flow {
        id: 0,
        endpoints: [side(number, 40_000, 3), side(200, 443, u64::from(number % 3))],
        protocol: 6,
        end_reason: EndReason::Idle,
        context: FlowContext::NONE,
        details: None,
        collected: None,
    };
    let flows: Vec<Flow> = (1..9).map(flow).collect();
    let mut seeds = Vec::new();
    for (choice, version) in [(1, Version::V5), (3, Version::V9), (5, Version::Ipfix), (15, Version::Ipfix)] {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        socket.set_nonblocking(true).expect("a socket");
        let to = ExportTarget::Udp(socket.local_addr().expect("it is bound").to_string());
        let options = ExportOptions { version, mtu: 400, biflow: choice == 15, ..ExportOptions::default() };
        let mut exporter = Exporter::open(&[to], &options).expect("loopback is there");
        exporter.set_sampling(Sampling::Packets(10)).expect("a rate of each version");
        exporter.export(&flows, Timestamp::from_nanos(NOW)).expect("nothing is written to files");
        exporter.flush(Timestamp::from_nanos(NOW)).expect("nothing is written to files");
        seeds.push(input(choice, &messages(&socket)));
    }
    seeds.push(input(3, &[sflow()]));
    seeds
}

fn input(choice: u8, datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut input = vec![choice];
    for datagram in datagrams {
        input.push(1);
        input.extend((datagram.len() as u16).to_be_bytes());
        input.extend(datagram);
    }
    input
}

/// A sample of a UDP packet, with the AS path and the next router, and one of counters.
fn sflow() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
    frame.extend([0x04, 0xd2, 0, 53, 0, 8, 0, 0, 0, 0]);
    let numbers = |all: &[u32]| all.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let header = [numbers(&[1, 68, 4, 42]), frame].concat();
    let gateway = numbers(&[1, 0x0a00_0001, 65_000, 65_001, 65_002, 1, 2, 2, 65_003, 65_004]);
    let router = numbers(&[1, 0x0a00_0001, 24, 16]);
    let record = |format: u32, body: &[u8]| [numbers(&[format, body.len() as u32]), body.to_vec()].concat();
    let records = [record(1, &header), record(1003, &gateway), record(1002, &router)].concat();
    let sample = [numbers(&[1, 3, 512, 1000, 0, 3, 4, 3]), records].concat();
    let head = numbers(&[5, 1, 0xc633_6409, 0, 7, 5000, 2]);
    [head, record(1, &sample), numbers(&[2, 8, 0, 0])].concat()
}
