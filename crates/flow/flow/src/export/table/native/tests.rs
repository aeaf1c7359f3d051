//! Blocks read back as ClickHouse's documents describe them.

use std::net::{IpAddr, Ipv6Addr};

use super::*;
use crate::Flow;
use crate::export::ExportOptions;
use crate::export::table::tests::{flows, table};

fn shape(template: &str) -> TableShape {
    TableShape::new(&ExportOptions::of_rows(template, false)).expect("a template")
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

fn read_varint(bytes: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn read_text(bytes: &mut &[u8]) -> String {
    let len = read_varint(bytes);
    String::from_utf8_lossy(take(bytes, len)).into_owned()
}

/// Values of each column as text, of all blocks.
fn read(mut bytes: &[u8]) -> Vec<(String, String, Vec<String>)> {
    let mut all: Vec<(String, String, Vec<String>)> = Vec::new();
    while !bytes.is_empty() {
        let (columns, rows) = (read_varint(&mut bytes), read_varint(&mut bytes));
        for at in 0..columns {
            let (name, kind) = (read_text(&mut bytes), read_text(&mut bytes));
            let one = |bytes: &mut &[u8]| match kind.as_str() {
                "String" => read_text(bytes),
                "IPv6" | "FixedString(16)" => {
                    let octets: [u8; 16] = take(bytes, 16).try_into().expect("16");
                    Ipv6Addr::from(octets).to_canonical().to_string()
                }
                kind => {
                    let width = match kind {
                        "UInt8" => 1,
                        "UInt16" => 2,
                        "UInt32" | "DateTime('UTC')" => 4,
                        _ => 8,
                    };
                    let mut octets = [0; 8];
                    octets[..width].copy_from_slice(take(bytes, width));
                    u64::from_le_bytes(octets).to_string()
                }
            };
            let values: Vec<String> = (0..rows).map(|_| one(&mut bytes)).collect();
            match all.get_mut(at) {
                Some(column) => {
                    assert_eq!((&column.0, &column.1), (&name, &kind));
                    column.2.extend(values);
                }
                None => all.push((name, kind, values)),
            }
        }
    }
    all
}

fn column<'c>(columns: &'c [(String, String, Vec<String>)], name: &str) -> &'c [String] {
    &columns.iter().find(|column| column.0 == name).unwrap_or_else(|| panic!("no {name}")).2
}

/// Tables of both versions of IP, in which each column of one has nulls, and of each alone, whose columns are written
/// as a whole.
#[test]
fn columns_have_what_the_flows_have() {
    let all = flows(300);
    let (v4, v6): (Vec<Flow>, Vec<Flow>) =
        all.iter().cloned().partition(|flow| flow.endpoints[0].address.is_ipv4());
    let mut spare = SpareBuffers::default();
    for flows in [all, v4, v6] {
        assert!(flows.len() > 90);
        check_columns(&flows, &mut spare);
    }
}

fn check_columns(flows: &[Flow], spare: &mut SpareBuffers) {
    let shape = shape("default,octetTotalCount");
    let rows: Vec<_> =
        flows.iter().flat_map(|flow| flow.endpoints.iter().filter(|side| side.has_sent())).collect();
    for bytes_max in [1, 4000, usize::MAX] {
        let mut encoder = NativeEncoder::new(&shape, false);
        let parts = encoder.encode_into(&table(&shape, flows), bytes_max, spare).expect("rows");
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
        let columns = read(&bytes);
        assert!(columns.iter().all(|(_, _, values)| values.len() == rows.len()));
        for (at, side) in rows.iter().enumerate() {
            let address = match side.address {
                IpAddr::V6(address) => address.to_canonical(),
                address => address,
            };
            assert_eq!(column(&columns, "sourceAddress")[at], address.to_string());
            assert_eq!(column(&columns, "octetTotalCount")[at], side.bytes.to_string());
            assert_eq!(column(&columns, "sourceTransportPort")[at], side.port.to_string());
            assert_eq!(column(&columns, "flowStartNanoseconds")[at], side.first.as_nanos().to_string());
            assert!(column(&columns, "communityId")[at].starts_with("1:"));
        }
        let most = parts.iter().map(|part| part.bytes.len()).max().unwrap_or(0);
        let a_flow = 2 * 200 + 40 * columns.len();
        assert!(most <= bytes_max.saturating_add(a_flow), "{most} bytes of {bytes_max}");
        parts.into_iter().for_each(|part| spare.put(part.bytes));
    }
}

#[test]
fn old_servers_get_types_that_they_know() {
    let (flows, shape) = (flows(10), shape("flowStartMilliseconds,flowEndSeconds,sourceIPv4Address"));
    let mut encoder = NativeEncoder::new(&shape, true);
    let types: Vec<String> =
        encoder.columns().into_iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    assert_eq!(
        types,
        [
            "flowStartMilliseconds DateTime('UTC')",
            "flowEndSeconds DateTime('UTC')",
            "sourceAddress FixedString(16)"
        ]
    );
    let columns = read(&encoder.encode(&table(&shape, &flows), usize::MAX).expect("rows")[0].bytes);
    assert_eq!(columns[1].2[0], flows[0].endpoints[0].last.seconds().to_string());
}
