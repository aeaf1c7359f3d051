//! Whole datagrams through the collector, made by hand.

mod messages;
mod records;

use std::net::{IpAddr, SocketAddr};

use messages::{ipfix, netflow5, netflow9, sflow};
use tapline_collect::{
    Collector, CollectorSettings, DatagramFault, Protocol, RefusedCause, SourceAccount, TemplateFile,
};
use tapline_flow::{EndReason, Flow, KnownField};
use tapline_packet::Timestamp;

const EXPORTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
/// 2023-11-14 22:13:20 UTC, at which all messages are sent and come.
const NOW: i64 = 1_700_000_000;

fn collector() -> Collector {
    Collector::new(CollectorSettings::default(), None)
}

fn read(collector: &mut Collector, datagram: &[u8]) -> Vec<Flow> {
    let mut flows = Vec::new();
    let _ = collector.read(from(EXPORTER), Timestamp::from_parts(NOW, 0), datagram, &mut flows);
    flows
}

fn from(exporter: IpAddr) -> SocketAddr {
    SocketAddr::new(exporter, 2055)
}

fn only(collector: &Collector) -> SourceAccount {
    let sources = collector.sources();
    assert_eq!(sources.len(), 1);
    sources[0].clone()
}

fn refused(account: &SourceAccount, cause: RefusedCause) -> u64 {
    account.refused[cause as usize]
}

/// sourceIPv4Address, destinationIPv4Address, ports, protocol, octets, packets, start and end in milliseconds.
const FIELDS: &[(u16, u16)] =
    &[(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (1, 8), (2, 4), (152, 8), (153, 8), (136, 1)];

fn record(packets: u32) -> Vec<u8> {
    let mut record = vec![10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0, 80, 6];
    record.extend(1000_u64.to_be_bytes());
    record.extend(packets.to_be_bytes());
    record.extend((NOW as u64 * 1000 - 2500).to_be_bytes());
    record.extend((NOW as u64 * 1000 - 500).to_be_bytes());
    record.push(3);
    record
}

#[test]
fn ipfix_records_become_flows() {
    let mut collector = collector();
    let message = ipfix(0).template(256, FIELDS).records(256, &[record(7), record(8)]);
    let flows = read(&mut collector, &message.octets());
    assert_eq!(flows.len(), 2);
    let flow = &flows[0];
    let [source, destination] = flow.endpoints;
    assert_eq!((source.address.to_string(), source.port), ("10.0.0.1".to_owned(), 40_000));
    assert_eq!((destination.address.to_string(), destination.port), ("10.0.0.2".to_owned(), 80));
    assert_eq!((source.packets, source.bytes, destination.packets), (7, 1000, 0));
    assert_eq!((flow.protocol, flow.end_reason), (6, EndReason::End));
    assert_eq!(flow.first(), Timestamp::from_parts(NOW - 3, 500_000_000));
    assert_eq!(flow.last(), Timestamp::from_parts(NOW - 1, 500_000_000));
    assert_eq!(flow.collected.as_ref().map(|collected| collected.exporter), Some(EXPORTER));
    let account = only(&collector);
    assert_eq!((account.protocol, account.flows, account.packets, account.lost), (Protocol::Ipfix, 2, 15, 0));
}

/// Both directions of a biflow, and fields that are not known between them.
#[test]
fn biflows_keep_both_directions() {
    let mut collector = collector();
    let fields = [(0, 8, 4), (0, 12, 4), (0, 2, 4), (9999, 77, 3), (29305, 2, 4), (29305, 1, 4)];
    let record = [10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 5, 9, 9, 9, 0, 0, 0, 6, 0, 0, 1, 0].to_vec();
    let message = ipfix(0).enterprise_template(300, &fields).records(300, &[record]);
    let flows = read(&mut collector, &message.octets());
    let [source, destination] = flows[0].endpoints;
    assert_eq!((source.packets, destination.packets, destination.bytes), (5, 6, 256));
    assert_eq!(source.first, Timestamp::from_parts(NOW, 0), "without times, that of the message");
}

#[test]
fn records_wait_for_their_template() {
    let mut collector = collector();
    assert!(read(&mut collector, &ipfix(0).records(256, &[record(1), record(2)]).octets()).is_empty());
    assert_eq!(only(&collector).held, 1);
    // What cannot be counted cannot be missed: no loss is told between the first two.
    let flows = read(&mut collector, &ipfix(2).template(256, FIELDS).records(256, &[record(4)]).octets());
    assert_eq!(flows.iter().map(Flow::packets).collect::<Vec<_>>(), [1, 2, 4]);
    let flows = read(&mut collector, &ipfix(13).records(256, &[record(1)]).octets());
    assert_eq!((flows.len(), only(&collector).lost, only(&collector).held), (1, 10, 0));
    read(&mut collector, &ipfix(14).records(999, &[record(1)]).octets());
    collector.finish();
    assert_eq!(refused(&only(&collector), RefusedCause::NoTemplate), 1);
}

#[test]
fn sets_are_held_up_to_a_bound() {
    let mut collector = collector();
    for number in 0..1000 {
        read(&mut collector, &ipfix(number).records(256, &[record(1)]).octets());
    }
    let account = only(&collector);
    assert_eq!((account.held, refused(&account, RefusedCause::NoTemplate)), (256, 744));
    let flows = read(&mut collector, &ipfix(1000).template(256, FIELDS).octets());
    assert_eq!((flows.len(), only(&collector).held), (256, 0));
}

#[test]
fn version_9_tells_times_by_its_uptime() {
    let mut collector = collector();
    // Started 100 s ago; the flow began at 90 s of uptime and ended at 95 s.
    let fields = [(8, 4), (12, 4), (1, 4), (2, 4), (22, 4), (21, 4)];
    let mut record = vec![10, 0, 0, 1, 10, 0, 0, 2];
    for number in [500_u32, 3, 90_000, 95_000] {
        record.extend(number.to_be_bytes());
    }
    let message = netflow9(7, 100_000).template(260, &fields).records(260, &[record]);
    let flows = read(&mut collector, &message.octets());
    assert_eq!(flows[0].first(), Timestamp::from_parts(NOW - 10, 0));
    assert_eq!(flows[0].last(), Timestamp::from_parts(NOW - 5, 0));
    // Datagrams are counted: 8 is next, and 8 and 9 are missing.
    read(&mut collector, &netflow9(10, 100_000).octets());
    assert_eq!((only(&collector).lost, only(&collector).protocol.unit()), (2, "datagrams"));
}

#[test]
fn sampling_is_told_or_applied() {
    for (scales, packets, interval) in [(false, 3, 100), (true, 300, 1)] {
        let mut collector =
            Collector::new(CollectorSettings { scales, ..CollectorSettings::default() }, None);
        let options = netflow9(0, 1000).options_template(258, &[(1, 4)], &[(34, 4), (35, 1)]);
        let options = options.records(258, &[vec![0, 0, 0, 1, 0, 0, 0, 100, 2]]);
        read(&mut collector, &options.octets());
        let flows = netflow9(1, 1000).template(256, &[(8, 4), (12, 4), (2, 4)]);
        let flows = flows.records(256, &[vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3]]);
        let flows = read(&mut collector, &flows.octets());
        let collected = flows[0].collected.as_ref().expect("it was collected");
        assert_eq!((flows[0].packets(), collected.sampling), (packets, Some(interval)));
        assert_eq!((only(&collector).sampling, only(&collector).options), (Some(100), 1));
    }
}

/// The only flow of a message.
fn flow_of(collector: &mut Collector, message: &messages::Message) -> Flow {
    let mut flows = read(collector, &message.octets());
    assert_eq!(flows.len(), 1);
    flows.remove(0)
}

fn sampling(flow: &Flow) -> Option<u32> {
    flow.collected.as_ref().expect("it was collected").sampling
}

/// An interval that no source gave is unknown: flows are not multiplied, and do not say that they were.
#[test]
fn an_unreported_interval_is_unknown() {
    let fields = &[(8, 4), (12, 4), (2, 4)];
    let record = || vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3];
    for scales in [false, true] {
        let mut collector =
            Collector::new(CollectorSettings { scales, ..CollectorSettings::default() }, None);
        let message = netflow9(1, 1000).template(256, fields).records(256, &[record()]);
        let flow = flow_of(&mut collector, &message);
        assert_eq!((flow.packets(), sampling(&flow)), (3, None));
        let account = only(&collector);
        assert_eq!((account.sampling, account.unscaled), (None, u64::from(scales)));
        let flows = read(&mut collector, &netflow5(0, 0, &[(1, 1)]));
        assert_eq!(sampling(&flows[0]), None, "version 5");
    }
}

/// 1 of 256 at random: elements 309 and 310 (RFC 5477), together with 305 of another algorithm.
#[test]
fn a_population_is_an_interval() {
    let mut collector = collector();
    let selector = ipfix(0).options_template(257, &[(302, 4)], &[(305, 4), (304, 2), (309, 4), (310, 4)]);
    let selector = selector.records(257, &[vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 3, 0, 0, 0, 1, 0, 0, 1, 0]]);
    read(&mut collector, &selector.octets());
    let message = ipfix(1).template(256, &[(8, 4), (12, 4), (2, 4), (302, 8)]);
    let message = message.records(256, &[vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]]);
    let flow = flow_of(&mut collector, &message);
    assert_eq!((sampling(&flow), only(&collector).sampling), (Some(256), Some(256)));
}

/// The router reports its samplers under one source id, line cards export under theirs.
#[test]
fn domains_of_an_exporter_share_samplers() {
    let mut collector = collector();
    let options = netflow9(0, 1000).of_domain(6).options_template(258, &[(1, 4)], &[(48, 1), (50, 4)]);
    read(&mut collector, &options.records(258, &[vec![0, 0, 0, 0, 1, 0, 0, 0, 100]]).octets());
    let system = netflow9(1, 1000).of_domain(6).options_template(259, &[(1, 0)], &[(34, 4)]);
    read(&mut collector, &system.records(259, &[vec![0, 0, 0, 50]]).octets());
    let message = netflow9(0, 1000).of_domain(512).template(256, &[(8, 4), (12, 4), (2, 4), (48, 1)]);
    let message = message.records(256, &[vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 1]]);
    assert_eq!(sampling(&flow_of(&mut collector, &message)), Some(100));
    let message = netflow9(0, 1000).of_domain(513).template(256, &[(8, 4), (12, 4), (2, 4)]);
    let message = message.records(256, &[vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3]]);
    assert_eq!(sampling(&flow_of(&mut collector, &message)), Some(50), "of the system");
}

/// Intervals outlast the collector as templates do.
#[test]
fn intervals_are_kept_over_restarts() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("templates");
    let with_file = || {
        let file = TemplateFile::open(&path).expect("the file of templates");
        Collector::new(CollectorSettings { scales: true, ..CollectorSettings::default() }, Some(file))
    };
    let options = netflow9(0, 1000).options_template(258, &[(1, 4)], &[(48, 1), (50, 4)]);
    let told = options.records(258, &[vec![0, 0, 0, 1, 1, 0, 0, 0, 100]]);
    let told = told.template(256, &[(8, 4), (12, 4), (2, 4), (48, 1)]);
    read(&mut with_file(), &told.octets());
    let len = std::fs::metadata(&path).expect("the file").len();
    let record = || vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 1];
    let mut second = with_file();
    let flow = flow_of(&mut second, &netflow9(1, 1000).records(256, &[record()]));
    assert_eq!((flow.packets(), sampling(&flow), only(&second).unscaled), (300, Some(1), 0));
    read(&mut second, &told.octets());
    assert_eq!(std::fs::metadata(&path).expect("the file").len(), len, "what is known is not kept twice");
}

/// A missing field is unknown, and a field of 0 is 0.
#[test]
fn fields_that_are_not_given_are_unknown() {
    let mut collector = collector();
    let flow = flow_of(
        &mut collector,
        &ipfix(0)
            .template(256, &[(8, 4), (1, 4), (252, 4), (253, 4), (58, 2)])
            .records(256, &[vec![10, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0]]),
    );
    let known = [
        (KnownField::Address, 0),
        (KnownField::Bytes, 0),
        (KnownField::Ingress, 0),
        (KnownField::Egress, 0),
        (KnownField::Vlan, 0),
    ];
    let unknown = [
        (KnownField::Address, 1),
        (KnownField::Port, 0),
        (KnownField::Port, 1),
        (KnownField::Packets, 0),
        (KnownField::Bytes, 1),
        (KnownField::TcpFlags, 0),
        (KnownField::TtlMin, 0),
        (KnownField::Protocol, 0),
        (KnownField::EndReason, 0),
    ];
    known.iter().for_each(|&(field, side)| assert!(flow.knows(field, side), "{field:?}"));
    unknown.iter().for_each(|&(field, side)| assert!(!flow.knows(field, side), "{field:?}"));
    let egress = flow.collected.as_ref().map(|collected| collected.egress);
    assert_eq!((flow.context.interface, egress), (5, Some(6)), "physical interfaces");
    let flows = read(&mut collector, &sflow(5, 512));
    let of_sample = [KnownField::Vlan, KnownField::TtlMax, KnownField::Ingress, KnownField::Tos];
    of_sample.iter().for_each(|&field| assert!(flows[0].knows(field, 0), "{field:?}"));
    assert!(!flows[0].knows(KnownField::TcpFlags, 0), "UDP has none");
}

#[test]
fn version_5_has_fixed_fields() {
    let mut collector = collector();
    let flows = read(&mut collector, &netflow5(40, 100, &[(2, 900), (3, 800)]));
    assert_eq!(flows.iter().map(Flow::bytes).collect::<Vec<_>>(), [900, 800]);
    let flow = &flows[0];
    let collected = flow.collected.as_ref().expect("it was collected");
    assert_eq!(
        (collected.egress, collected.autonomous_systems, collected.sampling),
        (9, [65_000, 65_001], Some(100))
    );
    assert_eq!((flow.context.interface, flow.endpoints[0].tcp_flags), (8, 0x1b));
    assert_eq!(flow.first(), Timestamp::from_parts(NOW - 20, 0));
    read(&mut collector, &netflow5(45, 100, &[(1, 1)]));
    assert_eq!((only(&collector).lost, only(&collector).protocol.unit()), (3, "flows"));
}

#[test]
fn samples_of_packets_become_flows() {
    let mut collector = collector();
    let flows = read(&mut collector, &sflow(5, 512));
    let [source, destination] = flows[0].endpoints;
    assert_eq!((source.address.to_string(), source.port), ("10.1.0.1".to_owned(), 1234));
    assert_eq!((destination.port, source.packets, source.bytes), (53, 1, 28));
    assert_eq!((flows[0].protocol, flows[0].context.vlan, flows[0].context.interface), (17, 42, 3));
    let account = only(&collector);
    assert_eq!(account.exporter.to_string(), "198.51.100.9", "the agent, not the sender");
    assert_eq!((account.flows, account.options, account.sampling), (1, 1, Some(512)));
    read(&mut collector, &sflow(8, 512));
    assert_eq!(only(&collector).lost, 2);
}

#[test]
fn templates_are_kept_over_restarts() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("templates");
    let with_file = || {
        let file = TemplateFile::open(&path).expect("the file of templates");
        Collector::new(CollectorSettings::default(), Some(file))
    };
    read(&mut with_file(), &ipfix(0).template(256, FIELDS).octets());
    let len = std::fs::metadata(&path).expect("the file").len();
    let mut second = with_file();
    assert!(second.sources().is_empty(), "no datagram has come yet");
    let flows = read(&mut second, &ipfix(0).template(256, FIELDS).records(256, &[record(3)]).octets());
    assert_eq!(flows.len(), 1);
    assert_eq!(std::fs::metadata(&path).expect("the file").len(), len, "what is known is not kept twice");
    let flows = read(&mut with_file(), &ipfix(9).records(256, &[record(4)]).octets());
    assert_eq!(flows.len(), 1);
}

/// Records of as many packets and bytes as one may have take nothing from other sources, and no sum wraps.
#[test]
fn sums_have_room_for_all_sources() {
    let mut collector = collector();
    let message = ipfix(0).template(256, &[(8, 4), (12, 4), (2, 8), (1, 8)]);
    let greatest =
        [&[10, 0, 0, 1, 10, 0, 0, 2][..], &(1_u64 << 42).to_be_bytes(), &(1_u64 << 48).to_be_bytes()];
    let records = vec![greatest.concat(); 2000];
    let octets = message.clone().records(256, &records).octets();
    let mut flows = Vec::new();
    let mut answered = 0_u128;
    for _ in 0..1100 {
        let _ = collector.read(from(EXPORTER), Timestamp::EPOCH, &octets, &mut flows);
        answered += flows.drain(..).map(|flow| u128::from(flow.answered_packets())).sum::<u128>();
    }
    assert!(collector.is_beyond() && answered <= u128::from(u64::MAX), "{answered}");
    let account = only(&collector);
    let sums = (2_200_000_u128 << 42, 2_200_000_u128 << 48);
    assert_eq!((account.packets, account.bytes), sums);
    let honest = message
        .records(256, &[[&[10, 0, 0, 1, 10, 0, 0, 2][..], &[0, 0, 0, 0, 0, 0, 0, 7].repeat(2)].concat()]);
    let _ =
        collector.read(from(IpAddr::from([192, 0, 2, 77])), Timestamp::EPOCH, &honest.octets(), &mut flows);
    assert_eq!((flows.len(), flows[0].packets(), flows[0].answered_packets()), (1, 7, 1));
}

#[test]
fn what_is_no_flow_is_counted_by_cause() {
    let mut collector = collector();
    let mut fault =
        |datagram: &[u8]| collector.read(from(EXPORTER), Timestamp::EPOCH, datagram, &mut Vec::new()).err();
    assert_eq!(fault(b""), Some(DatagramFault::NotExport));
    assert_eq!(fault(b"GET / HTTP/1.1"), Some(DatagramFault::NotExport));
    assert_eq!(fault(&[0, 10, 0, 40, 0, 0]), Some(DatagramFault::Short));
    assert_eq!(fault(&[0, 9, 0, 1]), Some(DatagramFault::Short));
    let mut empty = record(0);
    empty[13..21].fill(0);
    let too_great =
        record(9).iter().enumerate().map(|(at, octet)| if at == 13 { 0x7f } else { *octet }).collect();
    let message = ipfix(0).template(256, FIELDS).records(256, &[empty, too_great, record(1)]);
    let mut octets = message.octets();
    assert_eq!(fault(&octets), None);
    // A set that is longer than the message.
    let last = octets.len() - 42 * 3 - 1;
    octets[last] = 0xff;
    assert_eq!(fault(&octets), None);
    let account = only(&collector);
    assert_eq!(refused(&account, RefusedCause::NoCounters), 1);
    assert_eq!(refused(&account, RefusedCause::TooGreat), 1);
    assert_eq!((refused(&account, RefusedCause::Malformed), account.flows), (1, 1));
    assert_eq!((collector.datagrams(), collector.refused(DatagramFault::Short)), (2, 2));
}

/// Forged addresses or domains fill the table, but no exporter finds it closed.
#[test]
fn a_full_table_has_room_for_later_sources() {
    let settings = CollectorSettings { sources_max: 16, ..CollectorSettings::default() };
    let mut collector = Collector::new(settings, None);
    for domain in 0..500 {
        read(&mut collector, &ipfix(0).of_domain(domain).template(256, FIELDS).octets());
    }
    let message = ipfix(0).of_domain(9999).template(256, FIELDS).records(256, &[record(7)]);
    assert_eq!(read(&mut collector, &message.octets()).len(), 1);
    assert_eq!(read(&mut collector, &ipfix(1).of_domain(9999).records(256, &[record(7)]).octets()).len(), 1);
    let sources = collector.sources().len() as u64;
    assert!(sources <= 16 && collector.forgotten().sources == 501 - sources, "{sources}");
    let known: u64 = collector.sources().iter().map(|source| source.datagrams).sum();
    assert_eq!(known + collector.forgotten().account.datagrams, collector.datagrams());
}

/// The file of templates of an attack, with 20,000 sources, does not lock anyone out after a restart.
#[test]
fn a_file_of_forged_templates_locks_nobody_out() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("templates");
    let lines = (0..20_000).map(|at| format!("10.1.{}.{}:2055 ipfix 1 256 0 4:1 1:8\n", at / 256, at % 256));
    std::fs::write(&path, format!("tapline-templates 1\n{}", lines.collect::<String>()))
        .expect("there is room");
    let settings = CollectorSettings { sources_max: 1000, ..CollectorSettings::default() };
    let file = TemplateFile::open(&path).expect("the file of templates");
    let mut collector = Collector::new(settings, Some(file));
    let message = ipfix(0).template(256, FIELDS).records(256, &[record(7)]);
    assert_eq!(read(&mut collector, &message.octets()).len(), 1);
}

/// Templates, sampling intervals and sets of forged sources take no more memory than there is for all.
#[test]
fn memory_of_all_sources_has_a_bound() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
    };
    let before = resident();
    let mut collector = collector();
    // 4,096 samplers in each source, which are 48 bytes.
    let message = netflow9(0, 1000).options_template(258, &[(1, 4)], &[(48, 4), (34, 4)]);
    let records = (0..4096_u32).map(|sampler| [[0; 4], sampler.to_be_bytes(), [0, 0, 0, 100]].concat());
    let message = message.records(258, &records.collect::<Vec<_>>());
    for domain in 0..1000 {
        read(&mut collector, &message.clone().of_domain(domain).octets());
    }
    assert!(collector.forgotten().sources > 0);
    let grown = resident().saturating_sub(before);
    assert!(grown < 160 << 10, "{grown} KiB");
}

/// 65,000 octets that say nothing become no 65,000 flows.
#[test]
fn records_without_content_are_refused() {
    let mut collector = collector();
    let fields: &[&[(u16, u16)]] =
        &[&[(2, 1)], &[(4, 1), (2, 1)], &[(4, 0), (2, 1), (8, 0)], &[(7, 2), (1, 5)]];
    for (at, fields) in fields.iter().enumerate() {
        let message = ipfix(0).of_domain(at as u32).template(256, fields).records(256, &[vec![1; 60_000]]);
        assert!(read(&mut collector, &message.octets()).is_empty());
        let too_short = refused(collector.sources()[at], RefusedCause::TooShort);
        let len: u16 = fields.iter().map(|(_, len)| len).sum();
        assert_eq!(too_short, 60_000 / u64::from(len), "{fields:?}");
    }
    // Records of variable length are measured one by one.
    let message = ipfix(0).of_domain(9).template(256, &[(2, 4), (96, 65535)]);
    let message = message.records(256, &[vec![0, 0, 0, 1, 0], vec![0, 0, 0, 1, 3, b'd', b'n', b's']]);
    assert_eq!(read(&mut collector, &message.octets()).len(), 1);
}

/// Times that cannot be right are those of the message: a folder for each hour of a forged year would be made.
#[test]
fn wrong_times_become_that_of_the_message() {
    let mut collector = collector();
    let mut wrong = record(1);
    wrong[25..41].fill(0x11);
    let flows = read(&mut collector, &ipfix(0).template(256, FIELDS).records(256, &[wrong]).octets());
    assert_eq!(
        (flows[0].first(), flows[0].last()),
        (Timestamp::from_parts(NOW, 0), Timestamp::from_parts(NOW, 0))
    );
    assert_eq!(only(&collector).retimed, 1);
}

/// Two exporters behind one address (RFC 7011, 8.4).
#[test]
fn a_port_is_a_session_of_its_own() {
    let mut collector = collector();
    let mut read = |port: u16, message: messages::Message| {
        let (from, mut flows) = (SocketAddr::new(EXPORTER, port), Vec::new());
        let now = Timestamp::from_parts(NOW, 0);
        collector.read(from, now, &message.octets(), &mut flows).expect("a whole message");
        flows
    };
    read(1, ipfix(0).template(256, &[(8, 4), (1, 4), (2, 4)]));
    read(2, ipfix(1000).template(256, &[(8, 4), (2, 4), (1, 4)]));
    for at in 0..3 {
        let one = read(1, ipfix(at).records(256, &[vec![10, 0, 0, 1, 0, 0, 5, 0, 0, 0, 0, 1]]));
        let other = read(2, ipfix(1000 + at).records(256, &[vec![10, 0, 0, 1, 0, 0, 0, 1, 0, 0, 5, 0]]));
        assert!([&one[0], &other[0]].iter().all(|flow| (flow.packets(), flow.bytes()) == (1, 1280)));
    }
    let sources = collector.sources();
    assert_eq!(sources.iter().map(|source| source.port).collect::<Vec<_>>(), [1, 2]);
    assert!(sources.iter().all(|source| (source.flows, source.lost, source.restarts) == (3, 0, 0)));
}

/// Bytes of both directions, as firewalls count them (NSEL).
#[test]
fn firewalls_count_both_directions() {
    let mut collector = collector();
    let fields = &[(8, 4), (12, 4), (231, 4), (232, 4), (298, 4), (299, 4), (233, 1)];
    let record = vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 3, 232, 0, 13, 187, 160, 0, 0, 0, 10, 0, 0, 2, 188, 2];
    let flow = flow_of(&mut collector, &netflow9(0, 1000).template(256, fields).records(256, &[record]));
    let [there, back] = flow.endpoints;
    assert_eq!((there.bytes, back.bytes, there.packets, back.packets), (1000, 900_000, 10, 700));
    assert_eq!(flow.collected.as_ref().and_then(|collected| collected.firewall_event), Some(2));
}

/// Addresses and ports are those of one header, the outer one: others of the record belong to its payload.
#[test]
fn repeated_elements_are_of_the_outer_header() {
    let mut collector = collector();
    let outer = [(27, 16), (28, 16), (7, 2), (11, 2), (4, 1), (2, 4)];
    for inner in [[(8, 4), (12, 4)], [(27, 16), (28, 16)]] {
        let fields = [&outer[..], &inner, &[(7, 2), (11, 2), (4, 1)]].concat();
        let mut record = [[0x20; 16], [0x21; 16]].concat();
        record.extend([0, 0, 0, 0, 41, 0, 0, 0, 3]);
        record.resize(record.len() + usize::from(inner[0].1) * 2, 10);
        record.extend([0x9c, 0x40, 0, 80, 6]);
        let flow = flow_of(&mut collector, &ipfix(0).template(256, &fields).records(256, &[record]));
        let [source, destination] = flow.endpoints;
        assert_eq!((source.address, destination.address), ([0x20; 16].into(), [0x21; 16].into()));
        assert_eq!((source.port, destination.port, flow.protocol), (0, 0, 41));
    }
}

/// Totals that an exporter has counted since a flow began are not counted again with each record.
#[test]
fn totals_are_counted_once() {
    let mut collector = collector();
    let fields = &[(8, 4), (12, 4), (150, 4), (151, 4), (85, 4), (86, 4)];
    let record = |end: u32, bytes: u32| {
        let mut record = vec![10, 0, 0, 1, 10, 0, 0, 2];
        for number in [NOW as u32 - 500, end, bytes, bytes / 100] {
            record.extend(number.to_be_bytes());
        }
        record
    };
    let end = NOW as u32 - 400;
    let message = ipfix(0).template(256, fields).records(256, &[record(end, 1000), record(end + 60, 2500)]);
    let flows = read(&mut collector, &message.octets());
    assert_eq!(flows.iter().map(Flow::bytes).collect::<Vec<_>>(), [1000, 1500]);
    assert_eq!(flows[1].first(), Timestamp::from_parts(end.into(), 0), "since the record before");
    read(
        &mut collector,
        &ipfix(2).records(256, &[record(end + 120, 2500), record(end + 180, 4000)]).octets(),
    );
    let account = only(&collector);
    assert_eq!((account.bytes, account.packets), (4000, 40));
    assert_eq!(refused(&account, RefusedCause::NoCounters), 1, "nothing was added");
}

/// After a restart of the exporter its templates have to come again: records wait for them.
#[test]
fn templates_do_not_outlast_their_exporter() {
    let mut collector = collector();
    let (old, new) = (&[(8, 4), (1, 4), (2, 4)], &[(8, 4), (2, 4), (1, 4)]);
    let record = || vec![10, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0x11, 0x94];
    read(&mut collector, &netflow9(100, 3_600_000).template(256, old).octets());
    // An earlier message that is late, and an uptime that a clock made later, are not restarts.
    read(&mut collector, &netflow9(99, 3_599_000).octets());
    assert_eq!(only(&collector).templates, 1);
    assert!(read(&mut collector, &netflow9(1, 1000).later(60).records(256, &[record()]).octets()).is_empty());
    let message = netflow9(2, 2000).later(61).template(256, new).records(256, &[record()]);
    let flows = read(&mut collector, &message.octets());
    assert_eq!(flows.iter().map(|flow| (flow.packets(), flow.bytes())).collect::<Vec<_>>(), [(3, 4500); 2]);
    // 49.7 days of milliseconds: the uptime begins at 0 again, and the exporter does not.
    let mut collector = self::collector();
    let message = netflow9(7, u32::MAX - 999).template(256, new);
    read(&mut collector, &message.octets());
    assert_eq!(read(&mut collector, &netflow9(8, 1000).later(2).records(256, &[record()]).octets()).len(), 1);
}

/// IPFIX has no uptime, but its exporters count from 0.
#[test]
fn a_count_from_0_is_a_restart() {
    let mut collector = collector();
    let (old, new) = (&[(8, 4), (1, 4), (2, 4)], &[(8, 4), (2, 4), (1, 4)]);
    let record = || vec![10, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0x11, 0x94];
    read(&mut collector, &ipfix(500).template(256, old).records(256, &[record()]).octets());
    assert_eq!(read(&mut collector, &ipfix(501).records(256, &[record()]).octets()).len(), 1);
    assert!(read(&mut collector, &ipfix(0).records(256, &[record()]).octets()).is_empty());
    let flows = read(&mut collector, &ipfix(1).template(256, new).records(256, &[record()]).octets());
    assert_eq!(flows.iter().map(|flow| (flow.packets(), flow.bytes())).collect::<Vec<_>>(), [(3, 4500); 2]);
    // One that always says 0 has not restarted.
    let mut collector = self::collector();
    read(&mut collector, &ipfix(0).template(256, old).octets());
    (0..5).for_each(|_| {
        assert_eq!(read(&mut collector, &ipfix(0).records(256, &[record()]).octets()).len(), 1)
    });
}

/// An exporter that restarts while no collector runs has other templates than the file.
#[test]
fn kept_templates_do_not_outlast_their_exporter() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("templates");
    let with_file = || {
        let file = TemplateFile::open(&path).expect("the file of templates");
        Collector::new(CollectorSettings::default(), Some(file))
    };
    let fields = &[(8, 4), (1, 4), (2, 4)];
    let record = || vec![10, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0x11, 0x94];
    read(&mut with_file(), &netflow9(100, 3_600_000).template(256, fields).octets());
    // It goes on, and its clock is a little off.
    let message = netflow9(101, 3_605_000).later(3).records(256, &[record()]);
    assert_eq!(read(&mut with_file(), &message.octets()).len(), 1);
    let mut collector = with_file();
    let message = netflow9(1, 900_000).later(1000).records(256, &[record()]);
    assert!(read(&mut collector, &message.octets()).is_empty());
    assert_eq!(only(&collector).held, 1);
}

/// Events of address translation and of firewalls need not count anything.
#[test]
fn events_are_flows_that_count_nothing() {
    let mut collector = collector();
    let fields = &[(8, 4), (12, 4), (7, 2), (225, 4), (227, 2), (230, 1), (323, 8)];
    let mut record = vec![10, 0, 0, 1, 203, 0, 113, 9, 0x9c, 0x40, 198, 51, 100, 1, 0x4e, 0x21, 1];
    record.extend((NOW as u64 * 1000 - 5).to_be_bytes());
    let flow = flow_of(&mut collector, &netflow9(0, 1000).template(256, fields).records(256, &[record]));
    let collected = flow.collected.as_ref().expect("it was collected");
    assert_eq!(collected.post_addresses, [Some([198, 51, 100, 1].into()), None]);
    assert_eq!((collected.post_ports, collected.nat_event), ([Some(20_001), None], Some(1)));
    assert_eq!((flow.senders().collect::<Vec<_>>(), flow.packets()), (vec![0], 0));
    assert_eq!(flow.first(), Timestamp::from_parts(NOW - 1, 995_000_000));
    // With counters they are flows like others.
    let fields = &[(8, 4), (12, 4), (1, 4), (226, 4), (228, 2)];
    let record = vec![203, 0, 113, 9, 198, 51, 100, 1, 0, 0, 5, 0, 10, 0, 0, 1, 0x9c, 0x40];
    let flow = flow_of(&mut collector, &netflow9(1, 1000).template(257, fields).records(257, &[record]));
    let collected = flow.collected.as_ref().expect("it was collected");
    assert_eq!((collected.post_addresses[1], flow.bytes()), (Some([10, 0, 0, 1].into()), 1280));
}

/// The first bytes of packets in records (RFC 5477, RFC 7133) are flows of one packet, as those of sFlow are.
#[test]
fn sections_of_packets_become_flows() {
    let mut collector = collector();
    let mut ip = vec![0x45, 0xb8, 5, 0xdc, 0, 1, 0x40, 0, 0x40, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip.extend([0x9c, 0x40, 1, 0xbb, 5, 0xc8, 0, 0]);
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &ip[..]].concat();
    let message =
        ipfix(0).template(256, &[(10, 4), (312, 2), (315, 65535)]).template(257, &[(302, 4), (313, 28)]);
    let message = message.template(258, &[(2, 4), (1, 4), (313, 28)]);
    let of_frame = [&[0, 0, 0, 5, 5, 0xea, frame.len() as u8], &frame[..]].concat();
    let of_packet = [&[0, 0, 0, 1], &ip[..]].concat();
    let not_ip = [&[0, 0, 0, 5, 0, 60, 14], &frame[..12], &[8, 6]].concat();
    let message = message.records(256, &[of_frame, not_ip]).records(257, &[of_packet]);
    let with_counters = [&[0, 0, 0, 9, 0, 0, 0x10, 0], &ip[..]].concat();
    let flows = read(&mut collector, &message.records(258, &[with_counters]).octets());
    assert_eq!(flows.len(), 3);
    for (flow, counters) in flows.iter().zip([(1, 1500), (1, 1500), (9, 4096)]) {
        let [source, destination] = flow.endpoints;
        assert_eq!((source.port, destination.port, flow.protocol), (40_000, 443, 17));
        assert_eq!((source.packets, source.bytes), counters);
        assert_eq!((source.ttl_min, source.ttl_max, source.tos), (64, 64, 0xb8));
    }
    assert_eq!(refused(&only(&collector), RefusedCause::NotIp), 1);
}

/// Zeros up to the length of all datagrams, and padding that is in no set.
#[test]
fn padding_is_no_fault() {
    let mut collector = collector();
    let record = || vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 6];
    let fields = &[(8, 4), (12, 4), (2, 4), (4, 1)];
    read(&mut collector, &netflow9(0, 1000).template(256, fields).behind(&[0; 400]).octets());
    let message = netflow9(1, 1000).records(256, &[record()]).behind(&[0; 3]).records(256, &[record()]);
    assert_eq!(read(&mut collector, &message.behind(&[0; 403]).octets()).len(), 2);
    let unpadded =
        netflow9(2, 1000).records(256, &[record()]).template(257, fields).records(256, &[record()]);
    assert_eq!(read(&mut collector, &unpadded.octets()).len(), 2);
    let ipfix = ipfix(0).template(256, fields).records(256, &[record()]).template(300, fields);
    assert_eq!(read(&mut collector, &ipfix.records(300, &[record()]).octets()).len(), 2);
    assert!(collector.sources().iter().all(|source| refused(source, RefusedCause::Malformed) == 0));
}

/// Versions 1 and 7 are version 5 with other headers and longer records.
#[test]
fn older_versions_are_read() {
    let mut collector = collector();
    let version_5 = netflow5(3, 0, &[(2, 900), (3, 800)]);
    for (version, header) in [(1_u16, 16), (7, 24)] {
        let mut octets = [&version.to_be_bytes(), &version_5[2..header]].concat();
        for record in version_5[24..].chunks(48) {
            octets.extend([record, &[0; 4]].concat());
            if version == 1 {
                let at = octets.len() - 52 + 36;
                octets[at..].fill(0);
                octets[at + 2..at + 5].copy_from_slice(&[6, 0, 0x1b]);
            }
        }
        let flows = read(&mut collector, &octets);
        assert_eq!(flows.iter().map(Flow::bytes).collect::<Vec<_>>(), [900, 800]);
        let flow = &flows[1];
        assert_eq!((flow.protocol, flow.endpoints[0].tcp_flags, flow.endpoints[1].port), (6, 0x1b, 80));
        assert_eq!(flow.first(), Timestamp::from_parts(NOW - 20, 0));
    }
    let names: Vec<&str> = collector.sources().iter().map(|source| source.protocol.name()).collect();
    assert_eq!(names, ["v1", "v7"]);
}

/// Cut anywhere, and with any octet replaced, each message is read or refused.
#[test]
fn damaged_messages_never_panic() {
    let message = ipfix(0).template(256, FIELDS).records(256, &[record(7), record(8)]);
    let options = netflow9(0, 1000).options_template(258, &[(1, 4)], &[(34, 4), (35, 1)]);
    let options = options.records(258, &[vec![0, 0, 0, 1, 0, 0, 0, 100, 2]]);
    let section = ipfix(9).template(256, &[(312, 2), (315, 65535), (86, 4)]).records(256, &[vec![7; 60]]);
    let all = [message.octets(), options.octets(), section.octets(), netflow5(1, 1, &[(2, 3)]), sflow(1, 1)];
    for octets in all {
        let mut all = collector();
        for at in 0..octets.len() {
            read(&mut all, &octets[..at]);
            for octet in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = octets.clone();
                damaged[at] = octet;
                read(&mut all, &damaged);
            }
        }
        let refused: u64 = DatagramFault::ALL.into_iter().map(|fault| all.refused(fault)).sum();
        assert_eq!(all.datagrams() + refused, 6 * octets.len() as u64);
    }
}
