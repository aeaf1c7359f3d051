//! Names with the packets before them, in their order, within their bounds.

use tapline_graph::Cell;
use tapline_packet::{Meta, Timestamp};
use tapline_testkit::frames::application::{dns_query, http_get, tls_client_hello};
use tapline_testkit::frames::*;

use crate::trial::{Trial, whole};

/// A segment of a client's connection: its number, the time in milliseconds, the payload.
fn segment(client: u16, ms: i64, flags: u8, seq: u32, payload: &[u8]) -> (Vec<u8>, Meta) {
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    let tcp = Tcp { src: 50_000 + client, dst: 443, seq, ack: 1, flags, window: 500, options: Vec::new() };
    let frame = Ethernet::between(&a, &b).ip(&pair.packet(6, &tcp.segment(pair, payload)));
    let meta = Meta { timestamp: Timestamp::from_nanos(ms * 1_000_000), ..whole(&frame) };
    (frame, meta)
}

/// A connection of four packets, with a hello in two pieces.
fn connection(client: u16, ms: i64, name: &str) -> Vec<(Vec<u8>, Meta)> {
    let hello = tls_client_hello(name, [3; 32]);
    let (one, other) = hello.split_at(70);
    vec![
        segment(client, ms, flags::SYN, 0, b""),
        segment(client, ms + 1, flags::ACK, 1, b""),
        segment(client, ms + 2, flags::ACK, 1, one),
        segment(client, ms + 3, flags::ACK, 71, other),
        segment(client, ms + 4, flags::ACK, 1 + hello.len() as u32, b"more"),
    ]
}

fn trial(arguments: &str) -> Trial {
    Trial::graph(&format!("s :: names({arguments}); file(\"in\") -> s -> json"))
        .unwrap_or_else(|why| panic!("{why}"))
}

fn count(trial: &Trial, column: &str) -> u64 {
    let table = trial.result("s");
    let at = table.columns.iter().position(|name| *name == column).expect("a column");
    match table.rows[0][at] {
        Cell::Number(number) => number,
        _ => panic!("{column} is not a number"),
    }
}

/// All packets of connections to a name, from the first on, in the order in which they came.
#[test]
fn flows_pass_with_their_first_packets() {
    for batch in [1, 3, 256] {
        let mut packets = Vec::new();
        for (at, name) in
            ["www.example.org", "other.test", "example.org", "www.example.org"].iter().enumerate()
        {
            packets.extend(connection(at as u16, at as i64 * 2, name));
        }
        packets.sort_by_key(|(_, meta)| meta.timestamp);
        let other = |frame: &[u8]| frame.windows(2).any(|ports| ports == 50_001_u16.to_be_bytes());
        let expected: Vec<Vec<u8>> =
            packets.iter().map(|(frame, _)| frame.clone()).filter(|frame| !other(frame)).collect();
        let mut trial = trial("\"sni(.example.org)\"");
        trial.push_all(&packets, batch);
        trial.assert_balanced();
        trial.finish();
        trial.assert_balanced();
        assert_eq!(trial.data(), expected, "{batch}");
        assert_eq!((count(&trial, "flows"), count(&trial, "others"), count(&trial, "refused")), (3, 1, 5));
    }
}

#[test]
fn each_word_is_for_its_protocol() {
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    let query = dns_query(7, "a.example.org", 1);
    let query = Ethernet::between(&a, &b).ip(&Udp { src: 9000, dst: 53 }.packet(pair, &query));
    let mut packets = connection(1, 0, "a.example.org");
    packets.push(segment(2, 5, flags::ACK, 1, &http_get("a.example.org", "/")));
    packets.push((query.clone(), Meta { timestamp: Timestamp::from_nanos(6_000_000), ..whole(&query) }));
    for (words, passed) in [
        ("sni(a.example.org)", 5),
        ("http_host(a.example.org)", 1),
        ("dns_name(a.example.org)", 1),
        ("sni(.org) or http_host(b, a.example.org)", 6),
        ("dns_name(example.org)", 0),
    ] {
        let mut trial = trial(&format!("\"{words}\""));
        trial.push_all(&packets, 256);
        trial.finish();
        trial.assert_balanced();
        assert_eq!(trial.data().len(), passed, "{words}");
    }
}

/// A connection without a name is refused once its packets are too many, or have waited for too long.
#[test]
fn packets_wait_within_their_bounds() {
    let data = |ms: i64, seq: u32| segment(9, ms, flags::ACK, seq, &[7; 100]);
    let mut few = trial("\"sni(a.test)\", packets=3");
    let packets: Vec<_> = (0..5).map(|at| data(at, 1 + 100 * at as u32)).collect();
    few.push_all(&packets[..3], 256);
    assert_eq!(few.refused_and_held("s"), (0, 3));
    few.push_all(&packets[3..], 256);
    assert_eq!((few.refused_and_held("s"), count(&few, "late")), ((5, 0), 1));

    let mut short = trial("\"sni(a.test)\", hold=10ms");
    short.push_all(&[data(0, 1)], 256);
    short.push_all(&connection(1, 5, "a.test"), 256);
    assert_eq!(
        (short.refused_and_held("s"), short.data().len()),
        ((0, 6), 0),
        "they wait for the one before"
    );
    short.push_all(&connection(2, 30, "a.test"), 256);
    assert_eq!((short.refused_and_held("s"), short.data().len()), ((1, 0), 10));

    let mut small = trial("\"sni(a.test)\", packets=1000, room=1M, hold=1h");
    let many: Vec<_> =
        (0..300_u16).flat_map(|client| [segment(client, 1, flags::ACK, 1, &[7; 8000])]).collect();
    small.push_all(&many, 256);
    let (refused, held) = small.refused_and_held("s");
    assert!(refused > 100 && held > 100 && count(&small, "no_room") == refused, "{refused} {held}");
    small.finish();
    small.assert_balanced();
    assert!(small.data().is_empty());
}
