//! The thread that ranks: each packet of a second is in its tables, in a row or among the others.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tapline_flow::{
    Collected, EndReason, Endpoint, Flow, FlowBegin, FlowContext, Journal, KnownFields, NamedAddresses,
    PayloadFacts,
};
use tapline_meters::RunFolder;
use tapline_packet::Timestamp;
use tapline_view::{Amount, Dimension, Key, KeyValue, Ranker, Reader, Reading, Second, Segment, ViewFile};

/// More parts than the queue has room for, by far.
const PARTS: u64 = 3000;

fn host(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number))
}

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1));

fn words(addresses: [IpAddr; 2]) -> [[u64; 2]; 2] {
    addresses.map(FlowBegin::address_words)
}

/// A flow of TCP from a host's port 40,000 to the server's 443, of which two packets were sent.
fn begin(number: u32) -> FlowBegin {
    FlowBegin {
        addresses: words([host(number), SERVER]),
        ports: [40_000, 443],
        protocol: 6,
        tcp_flags: [0x02, 0],
        tcp_flags_first: 0x02,
        first_side: (number % 2) as u8,
        context: FlowContext { interface: 7, vlan: 12, ..FlowContext::NONE },
        began: Timestamp::from_nanos(i64::from(number)),
        application: (!number.is_multiple_of(3)).then_some("tls"),
    }
}

fn view() -> (tempfile::TempDir, Arc<ViewFile>, Reader) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Arc::new(ViewFile::create_in(&RunFolder::of(folder.path()), "test").expect("a view"));
    let reader = Reader::open(file.path().expect("a file")).expect("a reader");
    (folder, file, reader)
}

fn second(packets: u64) -> Second {
    Second { len_ns: 1_000_000_000, metered: packets, ..Second::default() }
}

/// Waits for the thread that ranks: until so many seconds are there.
fn wait_for_second(reader: &Reader, published: u64) {
    // A minute at least.
    for _ in 0..60_000 {
        if reader.published().expect("readable") >= published {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("second {published} was not published");
}

fn last(reader: &Reader) -> Reading {
    reader.last().expect("readable").expect("a second")
}

fn assert_sums(reading: &Reading, packets: u64) {
    for dimension in Dimension::ALL {
        let sum = reading.table(dimension).sum();
        assert_eq!(sum, Amount { packets, bytes: 100 * packets }, "{dimension:?}");
    }
}

/// A journal of one flow, of which `packets` are the packets.
fn journal(number: u32, packets: u32) -> Arc<Journal> {
    let mut journal = Journal::default();
    journal.begun(number, begin(number));
    (0..packets).for_each(|_| journal.packet(number, 0, 0x10, 100));
    Arc::new(journal)
}

/// Live traffic that does not fit is among the others, and each row has a bound of its share.
#[test]
fn a_full_queue_leaves_sums_and_bounds_right() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    let part = journal(1, 4096);
    (0..PARTS).for_each(|_| assert!(!ranker.add(&part, true), "the second goes on"));
    let all = PARTS * 4096;
    ranker.publish(second(all), (&[], 1), true);
    wait_for_second(&reader, 1);
    // The thread has caught up: the meter is asked to describe its flows again, and what comes then is ranked.
    assert!(ranker.add(&journal(1, 7), true), "flows are wanted again");
    assert!(!ranker.add(&journal(1, 5), true));
    ranker.publish(second(12), (&[], 1), true);
    wait_for_second(&reader, 2);
    assert!(!ranker.add(&journal(1, 5), true));
    ranker.publish(second(5), (&[], 1), true);
    ranker.finish();
    let seconds = reader.seconds(0, 3).expect("readable");
    let of_seconds =
        |of: fn(&Second) -> u64| seconds.iter().map(|(_, second)| of(second)).collect::<Vec<u64>>();
    assert_eq!(of_seconds(|second| second.metered), [all, 12, 5]);
    assert_eq!(of_seconds(|second| second.unranked)[1..], [7, 0]);
    assert_sums(&last(&reader), 5);
    for table in Dimension::ALL.map(|dimension| last(&reader).table(dimension).clone()) {
        assert!(table.rows.iter().all(|row| row.error == Amount::default()), "{table:?}");
    }
}

/// Reading that second: the unranked amount bounds every row and every key without one.
#[test]
fn what_was_not_ranked_is_a_bound_of_each_key() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    let part = journal(1, 4096);
    (0..PARTS).for_each(|_| assert!(!ranker.add(&part, true), "the second goes on"));
    let all = PARTS * 4096;
    ranker.publish(second(all), (&[], 1), true);
    ranker.finish();
    let reading = last(&reader);
    assert_sums(&reading, all);
    let pairs = reading.table(Dimension::Pair);
    let [row] = pairs.rows[..] else { panic!("{pairs:?}") };
    assert!(row.amount.packets < all, "the thread kept up: {row:?}");
    assert_eq!(row.amount.packets + row.error.packets, all);
    assert_eq!((pairs.missing, pairs.others), (row.error, row.error));
    assert_eq!(reading.second.unranked, pairs.others.packets);
}

/// Journals of files wait for room.
#[test]
fn a_full_queue_loses_nothing_of_files() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    let part = journal(1, 4096);
    (0..PARTS).for_each(|_| assert!(!ranker.add(&part, false)));
    ranker.publish(second(PARTS * 4096), (&[], 1), false);
    ranker.finish();
    let reading = last(&reader);
    assert_sums(&reading, PARTS * 4096);
    let pairs = reading.table(Dimension::Pair);
    assert_eq!((pairs.rows.len(), pairs.others), (1, Amount::default()));
    assert_eq!(pairs.rows[0].error, Amount::default());
}

/// Packets of undescribed slots are among the others.
#[test]
fn packets_of_unknown_flows_are_among_the_others() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    let mut journal = Journal::default();
    journal.packet(3, 0, 0, 100);
    journal.begun(3, begin(3));
    journal.packet(3, 1, 0, 100);
    journal.ended(3, EndReason::Idle);
    journal.packet(3, 1, 0, 100);
    journal.said(1 << 29, PayloadFacts::default());
    journal.ended((1 << 30) - 1, EndReason::Idle);
    ranker.add(&Arc::new(journal), false);
    ranker.publish(second(3), (&[], 1), false);
    ranker.finish();
    let reading = last(&reader);
    assert_sums(&reading, 3);
    let flows = reading.table(Dimension::Flow);
    assert_eq!((flows.rows.len(), flows.others.packets, flows.missing.packets), (1, 2, 2));
}

/// Rows have the values of the journals, and texts stay with their flows.
#[test]
fn rows_have_the_fields_of_their_flows() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    for numbers in [0..4, 4..6] {
        let mut journal = Journal::default();
        for number in numbers {
            let first = begin(number).first_side;
            journal.begun(number, begin(number));
            journal.packet(number, first, 0x10, 100);
            if number == 2 {
                journal.named(number, NamedAddresses { name: "www.example".into(), addresses: vec![SERVER] });
            }
            if number % 3 == 1 {
                let name = format!("host{}.example", number % 5).into();
                journal.said(number, PayloadFacts { application: Some("tls"), name: Some(name) });
            }
            journal.packet(number, 1 - first, 0x12, 100);
            journal.packet(number, first, 0, 100);
            if number % 2 == 1 {
                journal.ended(number, EndReason::Idle);
            }
        }
        ranker.add(&Arc::new(journal), false);
    }
    ranker.publish(second(18), (&[(7, "eth7".to_owned())], 1), false);
    ranker.finish();
    let last = last(&reader);
    let rows = |dimension: Dimension| {
        last.table(dimension).rows.iter().map(move |row| (row, row.key.value(dimension)))
    };
    assert_eq!(rows(Dimension::Flow).count(), 6);
    for (row, value) in rows(Dimension::Flow) {
        let KeyValue::Flow(6, (from, 40_000), (to, 443)) = value else { panic!("{value:?}") };
        let IpAddr::V4(from) = from else { panic!("{from}") };
        let number = u32::from(from) - 0x0a00_0000;
        assert_eq!(to, SERVER);
        assert_eq!((row.amount.packets, row.first.packets, row.began_ns), (3, 2, i64::from(number)));
        assert_eq!(row.state, 0x1212 | u64::from(number % 2) << 16, "flags of both sides, and the end");
        let name = match number % 3 {
            0 => String::new(),
            1 => format!("tls host{}.example", number % 5),
            _ => "tls ".to_owned(),
        };
        assert_eq!(row.name, Key::name(&name), "flow {number}");
    }
    let names: Vec<KeyValue> = rows(Dimension::Name).map(|(_, value)| value).collect();
    for name in ["", "tls", "host1.example", "host4.example"] {
        assert!(names.contains(&KeyValue::Name(name.to_owned())), "{name} in {names:?}");
    }
    let services: Vec<KeyValue> = rows(Dimension::Service).map(|(_, value)| value).collect();
    assert_eq!(services, [KeyValue::Service(6, 443)]);
    let segments: Vec<KeyValue> = rows(Dimension::Segment).map(|(_, value)| value).collect();
    assert_eq!(segments, [KeyValue::Segment(Segment::Vlan(12))]);
    let (interface, value) = rows(Dimension::Interface).next().expect("an interface");
    assert_eq!((value, interface.name), (KeyValue::Interface(7), Key::name("eth7")));
    for (row, value) in rows(Dimension::HostOut) {
        let name = if value == KeyValue::Host(SERVER) { "www.example" } else { "" };
        assert_eq!(row.name, Key::name(name), "of a DNS answer");
    }
    let pair = rows(Dimension::Pair).next().expect("a pair").0;
    assert_eq!((pair.amount.packets, pair.first.packets), (3, 2), "10.0.0.0 is the lower address");
}

/// A slot that another flow got has that flow's fields, and no name of the one before; each flow counts once a second.
#[test]
fn a_slot_that_is_used_again_has_nothing_of_before() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    for n in 1..=3 {
        let mut journal = Journal::default();
        if n == 1 {
            journal.begun(0, begin(1));
            journal.said(0, PayloadFacts { application: Some("tls"), name: Some("old.example".into()) });
        }
        journal.packet(0, 0, 0, 100);
        journal.packet(0, 0, 0, 100);
        if n == 2 {
            journal.ended(0, EndReason::Active);
            journal.begun(0, begin(3));
            journal.packet(0, 0, 0, 100);
        }
        ranker.add(&Arc::new(journal), false);
        ranker.publish(second(0), (&[], 1), false);
        if n == 2 {
            ranker.add(&Arc::new(Journal::default()), false);
        }
    }
    ranker.finish();
    let reading = last(&reader);
    let flows = reading.table(Dimension::Flow);
    let [row] = flows.rows[..] else { panic!("{flows:?}") };
    assert!(matches!(row.key.value(Dimension::Flow), KeyValue::Flow(_, (from, _), _) if from == host(3)));
    assert_eq!((row.amount.packets, row.flows, row.name), (2, 1, Key::default()));
}

/// Flows that others metered count with all their parts, and are bounded likewise.
#[test]
fn collected_flows_count_once() {
    let side = |address: IpAddr, port: u16, packets: u64| Endpoint {
        address,
        port,
        packets,
        bytes: 100 * packets,
        first: Timestamp::from_nanos(5),
        last: Timestamp::from_nanos(9),
        tcp_flags: 0x12,
        tcp_flags_first: 0x02,
        ttl_min: 64,
        ttl_max: 64,
        tos: 0,
    };
    let flow = |number: u32| Flow {
        endpoints: [side(host(number), 40_000, 2), side(SERVER, 443, 1)],
        protocol: 6,
        end_reason: EndReason::Idle,
        context: FlowContext::NONE,
        details: None,
        collected: None,
        id: 0,
    };
    let flows: Vec<Flow> = (0..5000).map(|number| flow(number % 100)).collect();
    for is_live in [false, true] {
        let (_folder, file, reader) = view();
        let mut ranker = Ranker::new(file);
        let times = if is_live { 400 } else { 1 };
        (0..times).for_each(|_| ranker.add_collected(&flows, is_live));
        ranker.publish(second(15_000 * times), (&[], 1), is_live);
        ranker.finish();
        let reading = last(&reader);
        assert_sums(&reading, 15_000 * times);
        let table = reading.table(Dimension::Flow);
        let row = table.rows[0];
        let most = 150 * times;
        assert!(row.amount.packets <= most && most <= row.amount.packets + row.error.packets, "{row:?}");
        if !is_live {
            assert_eq!((row.amount.packets, row.flows, row.state), (150, 50, 0x1_1212));
        }
    }
}

/// A flow whose exporter gave no addresses does not belong to the host 0.0.0.0.
#[test]
fn unknown_addresses_are_no_hosts() {
    let side = |packets: u64| Endpoint {
        address: IpAddr::from([0, 0, 0, 0]),
        port: 0,
        packets,
        bytes: 100 * packets,
        first: Timestamp::from_nanos(5),
        last: Timestamp::from_nanos(9),
        tcp_flags: 0,
        tcp_flags_first: 0,
        ttl_min: 0,
        ttl_max: 0,
        tos: 0,
    };
    let collected = Collected {
        known: KnownFields::default(),
        exporter: host(1),
        domain: 0,
        sampling: None,
        egress: 0,
        direction: 0,
        prefix_lens: [0; 2],
        autonomous_systems: [0; 2],
        next_hop: None,
        post_addresses: [None; 2],
        post_ports: [None; 2],
        nat_event: None,
        firewall_event: None,
        is_beyond: false,
    };
    let flow = Flow {
        endpoints: [side(7), side(0)],
        protocol: 6,
        end_reason: EndReason::Unknown,
        context: FlowContext::NONE,
        details: None,
        collected: Some(Box::new(collected)),
        id: 0,
    };
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    ranker.add_collected(&[flow], false);
    ranker.publish(second(7), (&[], 1), false);
    ranker.finish();
    let reading = last(&reader);
    assert!(reading.table(Dimension::HostOut).rows.is_empty());
    assert_sums(&reading, 7);
}

/// Addresses are read at the start and every ten seconds; here the second reading fails.
#[test]
fn own_addresses_stay_when_they_cannot_be_read() {
    static READINGS: AtomicU32 = AtomicU32::new(0);
    let (_folder, file, _) = view();
    let read = || (READINGS.fetch_add(1, Ordering::Relaxed) == 0).then(|| vec![SERVER]);
    let mut ranker = Ranker::new(Arc::clone(&file)).with_own(read);
    (0..10).for_each(|_| ranker.publish(second(0), (&[], 1), true));
    ranker.finish();
    assert_eq!(READINGS.load(Ordering::Relaxed), 2);
    let reader = Reader::open(file.path().expect("a file")).expect("a reader");
    assert_eq!(reader.process().own, [SERVER]);
}

/// Flows of this host with another one, begun by either; and flows of neither.
#[test]
fn what_this_host_sends_and_receives_is_added_up() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(Arc::clone(&file)).with_own(|| Some(vec![SERVER, host(4)]));
    let part = |number: u32, addresses: [IpAddr; 2]| {
        let mut journal = Journal::default();
        journal.begun(number, FlowBegin { addresses: words(addresses), first_side: 0, ..begin(number) });
        (0..5).for_each(|_| journal.packet(number, 0, 0x10, 100));
        (0..7).for_each(|_| journal.packet(number, 1, 0x10, 10));
        Arc::new(journal)
    };
    for (number, addresses) in
        [[host(1), SERVER], [SERVER, host(2)], [host(1), host(2)], [SERVER, host(4)]].into_iter().enumerate()
    {
        ranker.add(&part(number as u32, addresses), true);
    }
    ranker.publish(second(48), (&[], 1), true);
    ranker.finish();
    let Second { sent, received, .. } = last(&reader).second;
    assert_eq!(received, Amount { packets: 5 + 7, bytes: 500 + 70 });
    assert_eq!(sent, Amount { packets: 7 + 5, bytes: 70 + 500 });
    let reader = Reader::open(file.path().expect("a file")).expect("a reader");
    assert_eq!((reader.process().own.clone(), reader.process().own_count), (vec![SERVER, host(4)], 2));
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file).with_own(|| Some(vec![SERVER]));
    ranker.add(&part(1, [host(1), SERVER]), false);
    ranker.publish(second(12), (&[], 1), false);
    ranker.finish();
    assert_eq!(last(&reader).second.received, Amount::default(), "packets of a file are not of this host");
}
