//! Whole datagrams through the collector, made by hand.

mod messages;

use std::net::IpAddr;

use messages::{ipfix, netflow5, netflow9, sflow};
use tapline_collect::{
    Collector, CollectorSettings, DatagramFault, Protocol, RefusedCause, SourceAccount, TemplateFile,
};
use tapline_flow::{EndReason, Flow};
use tapline_packet::Timestamp;

const EXPORTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
/// 2023-11-14 22:13:20 UTC, at which all messages are sent and come.
const NOW: i64 = 1_700_000_000;

fn collector() -> Collector {
    Collector::new(CollectorSettings::default(), None)
}

fn read(collector: &mut Collector, datagram: &[u8]) -> Vec<Flow> {
    let mut flows = Vec::new();
    let _ = collector.read(EXPORTER, Timestamp::from_parts(NOW, 0), datagram, &mut flows);
    flows
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
        assert_eq!((flows[0].packets(), collected.sampling), (packets, interval));
        assert_eq!((only(&collector).sampling, only(&collector).options), (100, 1));
    }
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
        (9, [65_000, 65_001], 100)
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
    assert_eq!((account.flows, account.options, account.sampling), (1, 1, 512));
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

#[test]
fn what_is_no_flow_is_counted_by_cause() {
    let mut collector = collector();
    let mut fault =
        |datagram: &[u8]| collector.read(EXPORTER, Timestamp::EPOCH, datagram, &mut Vec::new()).err();
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

#[test]
fn sources_have_a_bound() {
    let settings = CollectorSettings { sources_max: 2, ..CollectorSettings::default() };
    let mut collector = Collector::new(settings, None);
    for domain in 0..5 {
        read(&mut collector, &ipfix(0).of_domain(domain).octets());
    }
    assert_eq!((collector.sources().len(), collector.refused(DatagramFault::NoRoom)), (2, 3));
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

/// Cut anywhere, and with any octet replaced, each message is read or refused.
#[test]
fn damaged_messages_never_panic() {
    let message = ipfix(0).template(256, FIELDS).records(256, &[record(7), record(8)]);
    let options = netflow9(0, 1000).options_template(258, &[(1, 4)], &[(34, 4), (35, 1)]);
    let options = options.records(258, &[vec![0, 0, 0, 1, 0, 0, 0, 100, 2]]);
    for octets in [message.octets(), options.octets(), netflow5(1, 1, &[(2, 3)]), sflow(1, 1)] {
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
