use std::collections::VecDeque;
use std::sync::Arc;

use tapline_view::Reading;

use super::*;
use crate::answer::Page;

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";

fn amount(packets: u64, bytes: u64) -> Amount {
    Amount { packets, bytes }
}

fn flow_key(protocol: u8, from: (&str, u16), to: (&str, u16)) -> Key {
    let address = |host: &str| Key::host(host.parse().expect("an address")).0;
    let ([a, b, ..], [c, d, ..]) = (address(from.0), address(to.0));
    let rest = u64::from(protocol) << 32 | u64::from(from.1) << 16 | u64::from(to.1);
    Key([a, b, c, d, rest, 0, 0, 0])
}

/// A flow of 10 packets of 100 bytes, 4 of these of the side that began it.
fn flow(key: Key, name: &str, is_begun_by_server: bool) -> Row {
    let state = 0x1212 | u64::from(is_begun_by_server) << 24;
    let name = Key::name(name);
    Row { key, name, amount: amount(10, 1000), first: amount(4, 400), flows: 1, state, ..Row::default() }
}

/// A second with three flows that have rows, and 5 packets of others.
fn snapshot() -> Snapshot {
    let rows = vec![
        flow(flow_key(6, (CLIENT, 40_000), (SERVER, 50_051)), "grpc db.example", false),
        flow(flow_key(6, (SERVER, 20), (CLIENT, 40_001)), "ftp-data", true),
        flow(flow_key(17, (CLIENT, 5353), (SERVER, 53)), "domain example.org", false),
    ];
    let tables: [Table; Dimension::ALL.len()] = Dimension::ALL.map(|dimension| match dimension {
        Dimension::Flow => {
            Table { rows: rows.clone(), others: amount(5, 500), others_flows: 2, missing: amount(3, 300) }
        }
        _ => Table { others: amount(35, 3500), others_flows: 5, ..Table::default() },
    });
    let second = Second {
        len_ns: 1_000_000_000,
        metered: 35,
        metered_bytes: 3500 + 14 * 35,
        flow_bytes: 3500,
        not_ip: 2,
        not_ip_bytes: 120,
        lost_ring: 7,
        ..Second::default()
    };
    let reading = Arc::new(Reading { number: 0, second, tables });
    Snapshot { readings: VecDeque::from([reading]), ..Snapshot::default() }
}

/// The layers of a chart add up to the flows of each second; those of a filter to the flows that fit.
#[test]
fn layers_add_up_to_each_second() {
    let snapshot = snapshot();
    let stack = |filter: &str, dimension| {
        let filter = FilterLine::parse(filter).expect("a filter");
        let stack = Some(dimension);
        let request = PageRequest {
            page: Page::Overview,
            host: None,
            filter,
            window: 1,
            rows: 1,
            stack,
            rights: Rights::Look,
        };
        request.answer(&snapshot).stack.expect("layers")
    };
    // Each table but that of flows has no row here.
    let whole = stack("", Dimension::Service);
    assert_eq!(
        (whole.rows.len(), &whole.others.packets[..], &whole.others.bits[..]),
        (0, &[35.0][..], &[28_000.0][..])
    );
    let fitting = stack("host 10.0.0.1", Dimension::HostOut);
    let layers = fitting.rows.iter().map(|row| row.layer.packets[0]);
    assert_eq!((fitting.rows.len(), layers.sum::<f64>(), fitting.others.packets[0]), (2, 30.0, 0.0));
    assert_eq!(fitting.by, "host_out");
}

fn table(filter: &str, dimension: Dimension, rights: Rights) -> SumTable {
    let snapshot = snapshot();
    let request = PageRequest {
        stack: None,
        page: Page::Overview,
        host: None,
        filter: FilterLine::parse(filter).expect("a filter"),
        window: 1,
        rows: 100,
        rights,
    };
    let totals = snapshot.totals(1);
    Tables { request: &request, snapshot: &snapshot, totals: &totals }.table(dimension, 100)
}

/// Packets and bytes of all parts of a table.
fn parts_of(table: &SumTable) -> [u64; 2] {
    let rows = table.rows.iter().map(|row| row.amount);
    let [packets, bytes, _] = table.others;
    let rest = [[packets, bytes], table.unfitting, table.not_ip, table.unread];
    let [packets, bytes] = rows.chain(rest).fold([0, 0], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
    [packets + table.lost, bytes.checked_add_signed(table.framing).expect("no overflow")]
}

#[test]
fn tables_are_the_interface_with_any_filter() {
    for filter in ["", "tcp", "port 53", "host:10.0.0.1", "app:grpc", "app:nothing"] {
        for dimension in Dimension::ALL {
            let table = table(filter, dimension, Rights::Packets);
            assert_eq!(parts_of(&table), table.sum, "{filter:?}, {}", dimension.name());
            assert_eq!(table.sum, [35 + 2 + 7, 3500 + 14 * 35 + 120]);
        }
    }
}

#[test]
fn a_filter_leaves_the_services_of_the_meter() {
    let table = table("tcp", Dimension::Service, Rights::Packets);
    let mut rows: Vec<(String, [u64; 2])> = (table.rows.iter())
        .map(|row| (serde_json::to_value(row).expect("JSON")["port"].to_string(), row.first))
        .collect();
    rows.sort();
    // The first side is the client: in one flow it began, in the other the server did.
    assert_eq!(rows, [("20".to_owned(), [6, 600]), ("50051".to_owned(), [4, 400])]);
    assert_eq!(table.unfitting, [10, 1000]);
}

#[test]
fn without_names_tables_have_applications() {
    let keys = |rights: Rights| {
        let table = table("", Dimension::Name, rights);
        let key = |row: &SumRow| serde_json::to_value(row).expect("JSON")["key"].to_string();
        let mut keys: Vec<String> = table.rows.iter().map(key).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(Rights::Look), ["\"domain\"", "\"ftp-data\"", "\"grpc\""]);
    assert_eq!(keys(Rights::Packets), Vec::<String>::new(), "the table of names of the meter");
    let filtered = table("app:example", Dimension::Name, Rights::Packets);
    assert_eq!(filtered.rows.len(), 2);
}
