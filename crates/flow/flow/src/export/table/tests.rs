//! Tables against the lines that `RowWriter` writes of the same flows.

use std::path::Path;

use super::*;
use crate::export::{FlowSink as _, RowFormat, RowWriter};
use crate::{Collected, EndReason, Endpoint, FlowContext, KnownField, KnownFields};

/// A side of a flow, whose numbers follow from its own.
fn side(address: IpAddr, number: u64) -> Endpoint {
    Endpoint {
        address,
        port: number as u16,
        packets: number % 7,
        bytes: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        first: Timestamp::from_nanos(1_700_000_000_000_000_000 + number as i64 * 1_234_567),
        last: Timestamp::from_nanos(1_700_000_001_000_000_000 + number as i64 * 7_654_321),
        tcp_flags: number as u8,
        tcp_flags_first: 2,
        ttl_min: 60,
        ttl_max: 64,
        tos: 0,
    }
}

/// Flows of both versions of IP and of several protocols, of which some have one direction.
pub(super) fn flows(count: u64) -> Vec<Flow> {
    let flow = |number: u64| {
        let address = |host: u64| match number % 3 {
            0 => IpAddr::from(std::net::Ipv6Addr::from(u128::from(host) << 64 | 1)),
            1 => IpAddr::from([0, 0, 0, 0, 0, 0xffff, host as u16, 1]),
            _ => IpAddr::from((host as u32).to_be_bytes()),
        };
        let mut one = side(address(number), number);
        one.packets += 1;
        Flow {
            endpoints: [one, side(address(number + 1), number / 2)],
            protocol: [6, 17, 1, 58][(number % 4) as usize],
            end_reason: EndReason::Idle,
            context: FlowContext::NONE,
            details: None,
            collected: None,
            id: 0,
        }
    };
    (0..count).map(flow).collect()
}

/// The data of another exporter: fields that follow from the number.
fn collected(number: usize) -> Collected {
    let mut known = KnownFields::default();
    for (at, field) in [
        KnownField::Protocol,
        KnownField::Address,
        KnownField::Port,
        KnownField::Packets,
        KnownField::Bytes,
        KnownField::TcpFlags,
        KnownField::TtlMin,
        KnownField::Vlan,
        KnownField::EndReason,
    ]
    .into_iter()
    .enumerate()
    {
        for side in (0..2).filter(|side| number >> (at % 4 + side) & 1 == 0) {
            known.add(field, side);
        }
    }
    Collected {
        known,
        exporter: IpAddr::from([192, 0, 2, 1]),
        domain: 7,
        sampling: number.is_multiple_of(2).then_some(100),
        egress: 3,
        direction: 1,
        prefix_lens: [24, 0],
        autonomous_systems: [64_496, 0],
        next_hop: None,
        post_addresses: [None; 2],
        post_ports: [None, Some(40_000)],
        nat_event: None,
        firewall_event: number.is_multiple_of(3).then_some(2),
        is_beyond: false,
    }
}

pub(super) fn table(shape: &TableShape, flows: &[Flow]) -> FlowTable {
    let mut table = FlowTable::new(shape);
    flows.chunks(7).for_each(|flows| table.push(shape, flows, Sampling::NONE));
    table
}

#[test]
fn json_of_a_table_is_that_of_rows() {
    let folder = tempfile::tempdir().expect("there is room");
    let everything: Vec<&str> = crate::export::ELEMENTS
        .iter()
        .map(|element| element.name)
        // Uptimes have 32 bits, and lines have what is since 1970, as they know no start of an exporter.
        .filter(|name| !["exporter", "IPv6", "UpTime"].iter().any(|part| name.contains(part)))
        .collect();
    let mut flows = flows(500);
    // Every fifth was metered elsewhere, with some of its fields.
    for (number, flow) in flows.iter_mut().enumerate().step_by(5) {
        flow.collected = Some(Box::new(collected(number)));
    }
    let networks =
        b"network,name,country,as,as_name\n0.0.0.0/0,\"all \"\"of\"\" it\",DE,64496,a\\b\n".to_vec();
    let places = Arc::new(Places::parse(Path::new("networks"), networks).expect("a file of places"));
    for template in ["", &everything.join(","), "mplsTopLabelStackSection,flowEndSeconds"] {
        for biflow in [false, true] {
            let options = ExportOptions { has_places: true, ..ExportOptions::of_rows(template, biflow) };
            let path = folder.path().join("rows");
            let mut rows = RowWriter::create(&path, RowFormat::Json, &options).expect("it can be made");
            rows.set_places(&places);
            rows.export(&flows, Timestamp::EPOCH)
                .and_then(|()| rows.flush(Timestamp::EPOCH))
                .expect("there is room");
            let mut shape = TableShape::new(&options).expect("a template");
            shape.set_places(&places);
            let parts = JsonEncoder::new(&shape).encode(&table(&shape, &flows), usize::MAX).expect("rows");
            assert_eq!(parts.len(), 1);
            let written = std::fs::read_to_string(&path).expect("it is there");
            let encoded = String::from_utf8_lossy(&parts[0].bytes).into_owned();
            for (line, of_table) in written.lines().zip(encoded.lines()) {
                assert_eq!(line, of_table);
            }
            assert_eq!(written, encoded);
            assert_eq!((parts[0].flows, parts[0].rows), (500, rows.account().records));
            assert_eq!(parts[0].packets, flows.iter().map(Flow::packets).sum::<u64>());
        }
    }
}

#[test]
fn parts_have_whole_flows_and_lack_nothing() {
    let (flows, shape) = (flows(100), TableShape::new(&ExportOptions::default()).expect("the default"));
    let table = table(&shape, &flows);
    let mut encoder = JsonEncoder::new(&shape);
    let whole = &encoder.encode(&table, usize::MAX).expect("rows")[0];
    for bytes_max in [1, 1000, 5000] {
        let parts = encoder.encode(&table, bytes_max).expect("rows");
        assert!(parts.len() > 5, "{bytes_max}");
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
        assert_eq!(bytes, whole.bytes);
        assert_eq!(parts.iter().map(|part| part.flows).sum::<u64>(), table.flows());
        assert_eq!(parts.iter().map(|part| part.rows).sum::<u64>(), table.rows());
        assert_eq!(parts.iter().map(|part| part.packets).sum::<u64>(), table.packets());
        assert!(parts.iter().all(|part| part.first >= whole.first && part.last <= whole.last));
    }
    let none = FlowTable::new(&shape);
    assert!(none.is_empty() && encoder.encode(&none, 1).expect("no rows").is_empty());
}

#[test]
fn other_columns_are_another_version() {
    let version = |template: &str| {
        TableShape::new(&ExportOptions::of_rows(template, false)).expect("a template").version()
    };
    assert_eq!(version("octetDeltaCount"), version("octetdeltacount"));
    assert_ne!(version("octetDeltaCount"), version("packetDeltaCount"));
}
