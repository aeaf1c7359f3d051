//! The thread that ranks: all changes of a second are in its tables, whatever the queue had room for.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tapline_flow::{EndReason, Endpoint, FlowChange, FlowContext};
use tapline_packet::Timestamp;
use tapline_profile::RunFolder;
use tapline_view::{Dimension, KeyValue, Ranker, Reader, Second, Segment, ViewFile};

/// More changes than the queue has room for.
const MANY: u32 = 700_000;

fn side(address: u32, port: u16, packets: u64) -> Endpoint {
    Endpoint {
        address: IpAddr::V4(Ipv4Addr::from(address)),
        port,
        packets,
        bytes: 100 * packets,
        first: Timestamp::default(),
        last: Timestamp::default(),
        tcp_flags: 0x12,
        tcp_flags_first: 0x02,
        ttl_min: 64,
        ttl_max: 64,
        tos: 0,
    }
}

fn change(number: u32) -> FlowChange {
    FlowChange {
        endpoints: [side(0x0a00_0000 + number, 40_000, 2), side(0xc0a8_0001, 443, 1)],
        protocol: 6,
        end_reason: (number % 2 == 1).then_some(EndReason::Idle),
        context: FlowContext { interface: 7, vlan: 12, ..FlowContext::NONE },
        began: Timestamp::from_nanos(i64::from(number)),
        application: (!number.is_multiple_of(3)).then_some("tls"),
        name: (number % 3 == 1).then(|| format!("host{}.example", number % 5).into()),
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

/// Changes of live traffic that find no room, and those of files, which wait.
#[test]
fn a_full_queue_loses_no_change() {
    for is_live in [true, false] {
        let (_folder, file, reader) = view();
        let mut ranker = Ranker::new(Arc::clone(&file));
        for n in 1..=2 {
            let changes: Vec<FlowChange> = (0..1000).map(change).collect();
            for _ in 0..MANY / 1000 {
                ranker.add(&changes, is_live);
            }
            ranker.add(&changes[..n], is_live);
            ranker.publish(second(n as u64), &[(7, "eth7".to_owned())], is_live);
        }
        ranker.finish();
        assert_eq!(reader.published().expect("readable"), 2);
        let last = reader.last().expect("readable").expect("a second");
        for dimension in Dimension::ALL {
            let sum = last.table(dimension).sum();
            assert_eq!(sum.packets, 3 * (u64::from(MANY) + 2), "{dimension:?}, live {is_live}");
            assert_eq!(sum.bytes, 100 * sum.packets, "{dimension:?}, live {is_live}");
        }
    }
}

/// Rows have what changes said, and texts stay with their flows.
#[test]
fn rows_have_the_fields_of_their_flows() {
    let (_folder, file, reader) = view();
    let mut ranker = Ranker::new(file);
    let changes: Vec<FlowChange> = (0..6).map(change).collect();
    ranker.add(&changes[..4], false);
    ranker.add(&changes[4..], false);
    ranker.publish(second(18), &[(7, "eth7".to_owned())], false);
    ranker.finish();
    let last = reader.last().expect("readable").expect("a second");
    let rows = |dimension: Dimension| {
        last.table(dimension).rows.iter().map(move |row| (row, row.key.value(dimension)))
    };
    for (row, value) in rows(Dimension::Flow) {
        let KeyValue::Flow(6, (from, 40_000), (to, 443)) = value else { panic!("{value:?}") };
        let IpAddr::V4(from) = from else { panic!("{from}") };
        let number = u32::from(from) - 0x0a00_0000;
        assert_eq!(to, IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)));
        assert_eq!((row.amount.packets, row.first.packets, row.began_ns), (3, 2, i64::from(number)));
        assert_eq!(row.state, 0x1212 | u64::from(number % 2) << 16, "flags of both sides, and the end");
        let name = match number % 3 {
            0 => String::new(),
            1 => format!("tls host{}.example", number % 5),
            _ => "tls ".to_owned(),
        };
        assert_eq!(row.name, tapline_view::Key::name(&name), "flow {number}");
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
    assert_eq!((value, interface.name), (KeyValue::Interface(7), tapline_view::Key::name("eth7")));
    let pair = rows(Dimension::Pair).next().expect("a pair").0;
    assert_eq!((pair.amount.packets, pair.first.packets), (3, 2), "10.0.0.0 is the lower address");
}
