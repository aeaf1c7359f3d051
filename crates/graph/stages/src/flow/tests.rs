//! The meter as a stage: timeouts, exporters, accounts.

use std::net::UdpSocket;

use tapline_graph::plan::{GraphText, Plan};
use tapline_graph::{Cell, TickContext};
use tapline_packet::{ClockReading, Timestamp};
use tapline_testkit::frames::*;

use crate::trial::{Trial, whole};

fn datagram(src: u16) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    Ethernet::between(&a, &b).ip(&Udp { src, dst: 53 }.packet(pair, b"twelve bytes"))
}

fn number(trial: &Trial, stage: &str, column: &str) -> u64 {
    let table = trial.result(stage);
    let at = table.columns.iter().position(|name| *name == column).expect("a column");
    match table.rows[0][at] {
        Cell::Number(number) => number,
        Cell::Sum(_) | Cell::Text(_) | Cell::Time(_) | Cell::Unknown => panic!("{column} is not a number"),
    }
}

/// A socket, and a graph whose flows go there.
fn exported(flow: &str, export: &str) -> (UdpSocket, Trial) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
    socket.set_nonblocking(true).expect("it can be");
    let to = socket.local_addr().expect("it has one");
    let text = format!("file(\"in\") -> f :: flow({flow}) -> json; f -> e :: ipfix(\"{to}\"{export})");
    (socket, Trial::graph(&text).unwrap_or_else(|why| panic!("{why}")))
}

fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2000];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
}

#[test]
fn packets_without_a_flow_are_refused() {
    let (socket, mut trial) = exported("", "");
    let arp_frame = Ethernet::broadcast(&Host::number(1))
        .frame(0x0806, &arp(1, &Host::number(1), [0; 6], Host::number(2).v4));
    trial.push_frames(&[datagram(1), arp_frame, datagram(1), datagram(2)]);
    assert_eq!(trial.data().len(), 3);
    assert_eq!(trial.refused_and_held("f"), (1, 0));
    trial.assert_balanced();
    assert!(received(&socket).is_empty(), "the flows go on");
    trial.finish();
    trial.assert_balanced();
    let counted = ["packets", "not_ip", "flows", "forced"].map(|column| number(&trial, "f", column));
    assert_eq!(counted, [3, 1, 2, 2]);
    assert_eq!(["flows", "records", "messages"].map(|column| number(&trial, "e", column)), [2, 2, 1]);
    assert_eq!(received(&socket).len(), 1);
}

/// A live interface falls silent: its flows end by the clock.
#[test]
fn flows_of_silent_interfaces_end() {
    const SECOND: i64 = 1_000_000_000;
    let (socket, mut trial) = exported("idle=5s", "");
    trial.interfaces[0].if_index = 3;
    let stamped = (
        datagram(1),
        tapline_packet::Meta { timestamp: Timestamp::from_nanos(100 * SECOND), ..whole(&datagram(1)) },
    );
    trial.now = ClockReading::unset(Timestamp::from_nanos(100 * SECOND));
    trial.push_all(&[stamped], 1);
    for second in 100..120 {
        (0..10).for_each(|tenth| trial.tick(second * SECOND + tenth * SECOND / 10));
        assert_eq!(number(&trial, "f", "idle") == 1, second >= 106, "at {second}");
    }
    let messages = received(&socket);
    assert_eq!(messages.len(), 1);
    // The header has the time of the message, in seconds.
    assert!((106..109).contains(&messages[0][7]), "{:?}", &messages[0][..16]);
    trial.assert_balanced();
}

/// Messages of a file are the same however long it takes to read it.
#[test]
fn messages_of_files_wait_until_they_are_full() {
    const SECOND: i64 = 1_000_000_000;
    let (socket, mut trial) = exported("idle=5s", "");
    for second in 0..20 {
        let timestamp = Timestamp::from_nanos(second * SECOND);
        let meta = tapline_packet::Meta { timestamp, ..whole(&datagram(1)) };
        trial.push_all(&[(datagram(second as u16), meta)], 1);
        (0..20).for_each(|tenth| trial.tick(2 * second * SECOND + tenth * SECOND / 10));
    }
    assert_eq!(number(&trial, "f", "idle"), 14);
    assert!(received(&socket).is_empty());
    trial.finish();
    assert_eq!(received(&socket).len(), 1);
    trial.assert_balanced();
}

#[test]
fn one_packet_of_each_block_is_metered() {
    let (_socket, mut trial) = exported("sample=10", "");
    trial.push_frames(&vec![datagram(1); 1000]);
    trial.finish();
    assert_eq!(["packets", "sampled_out"].map(|column| number(&trial, "f", column)), [100, 900]);
    trial.assert_balanced();
}

/// The sample of a file is the same in each run; that of a live interface cannot be predicted.
#[test]
fn chance_is_known_of_files_only() {
    let chosen = |if_index: u32| {
        let (_socket, mut trial) = exported("sample=10", "");
        trial.interfaces[0].if_index = if_index;
        trial.push_frames(&(0..2000).map(datagram).collect::<Vec<_>>());
        trial.data()
    };
    assert_eq!(chosen(0).len(), 200);
    assert_eq!(chosen(0), chosen(0));
    assert_ne!(chosen(3), chosen(3));
}

/// One packet with a wrong time stamp does not delay the end of other flows.
#[test]
fn a_wrong_clock_stops_no_timer() {
    const SECOND: i64 = 1_000_000_000;
    let (_socket, mut trial) = exported("idle=5s", "");
    trial.interfaces[0].if_index = 3;
    for (src, second) in [(1, 100), (2, 1_000_000), (3, 101)] {
        let meta = tapline_packet::Meta {
            timestamp: Timestamp::from_nanos(second * SECOND),
            ..whole(&datagram(src))
        };
        trial.now = ClockReading::unset(Timestamp::from_nanos(second.min(101) * SECOND));
        trial.push_all(&[(datagram(src), meta)], 1);
    }
    for tenth in 1010..1200 {
        trial.tick(tenth * SECOND / 10);
    }
    assert_eq!(["idle", "ahead"].map(|column| number(&trial, "f", column)), [3, 1]);
}

/// An hour back: flows of before end at once, those of afterwards in their time.
#[test]
fn a_clock_that_is_set_back_stops_no_timer() {
    const SECOND: i64 = 1_000_000_000;
    let (_socket, mut trial) = exported("idle=5s", "");
    trial.interfaces[0].if_index = 3;
    let now = |hour: i64, second: i64| ClockReading {
        wall: Timestamp::from_nanos((hour * 3600 + second) * SECOND),
        steady_ns: second * SECOND,
    };
    let push = |trial: &mut crate::trial::Trial, src, now: ClockReading| {
        trial.now = now;
        let meta = tapline_packet::Meta { timestamp: now.wall, ..whole(&datagram(src)) };
        trial.push_all(&[(datagram(src), meta)], 1);
    };
    push(&mut trial, 1, now(9, 0));
    trial.tick_at(now(9, 1));
    trial.tick_at(now(8, 2));
    assert_eq!(["forced", "now"].map(|column| number(&trial, "f", column)), [1, 0]);
    push(&mut trial, 2, now(8, 3));
    trial.tick_at(now(8, 7));
    assert_eq!(["idle", "now"].map(|column| number(&trial, "f", column)), [0, 1]);
    trial.tick_at(now(8, 10));
    assert_eq!(["idle", "late", "now"].map(|column| number(&trial, "f", column)), [1, 0, 0]);
}

/// Files of records that cannot be written: all flows are handed on all the same, the error is reported, and the
/// account balances.
#[test]
fn a_full_disk_leaves_no_packet_out_of_the_account() {
    let text = "file(\"in\") -> f :: flow -> e :: ipfix(\"file:/dev/full\"); f -> t :: flowtop(n=5000)";
    let mut trial = Trial::graph(text).unwrap_or_else(|why| panic!("{why}"));
    trial.push_frames(&(0..3000).map(datagram).collect::<Vec<_>>());
    let tick = TickContext::new(ClockReading::default(), &[]);
    let failed = trial.graph.finish(&tick).expect_err("nothing can be written").to_string();
    assert!(failed.contains("No space left"), "{failed}");
    trial.assert_balanced();
    let account = trial.account();
    let export =
        account.stages.iter().find(|stage| stage.name == "e").and_then(|stage| stage.counters.output.clone());
    let export = export.expect("it is an output");
    assert_eq!((export.written, export.lost, export.buffered), (0, 3000, 0));
    assert_eq!(trial.result("t").rows.len(), 3000, "the other one has them all");
}

#[test]
fn an_exporter_takes_one_rate_of_sampling() {
    let plan = |text: &str| Plan::new(crate::catalog(), &[GraphText { name: "t", text }]).map(|_| ());
    let two = |one: u32, other: u32, more: &str| {
        plan(&format!(
            "e :: ipfix(\"127.0.0.1:9\"{more}); file(a) -> flow(sample={one}) -> e; file(b) -> flow(sample={other}) -> e"
        ))
    };
    assert!(two(10, 10, "").is_ok());
    let why = two(10, 1, "").unwrap_err();
    assert!(why.contains("one of 10") && why.contains("ipfix of its own"), "{why}");
    let why = two(16_384, 16_384, ", version=5").unwrap_err();
    assert!(why.contains("16383"), "{why}");
    assert!(two(16_383, 16_383, ", version=5").is_ok());
    assert!(two(16_384, 16_384, ", version=9").is_ok());
}

#[test]
fn only_a_meter_leads_to_takers_of_flows() {
    let plan = |text: &str| Plan::new(crate::catalog(), &[GraphText { name: "t", text }]).map(|_| ());
    let why = plan("file(a) -> ipfix(\"b:1\")").unwrap_err();
    assert!(why.contains("takes flows") && why.contains("-> flow ->"), "{why}");
    assert!(plan("file(a) -> flow -> sample(1/2) -> flowtop").is_err());
    assert!(plan("file(a) -> flow -> flowtop").is_ok());
}

#[test]
fn two_workers_give_the_result_of_one() {
    let text = "file(\"in\") -> f :: flow -> t :: flowtop(n=3); f -> json";
    let made = || Trial::graph(text).unwrap_or_else(|why| panic!("{why}"));
    let (mut one, mut other, mut all) = (made(), made(), made());
    let frames: Vec<Vec<u8>> = (0..100).map(|at| datagram(at % 7)).collect();
    let (left, right): (Vec<_>, Vec<_>) = frames.iter().cloned().partition(|frame| frame[35] % 2 == 0);
    one.push_frames(&left);
    other.push_frames(&right);
    all.push_frames(&frames);
    for trial in [&mut one, &mut other, &mut all] {
        trial.finish();
    }
    one.graph.merge(&other.graph);
    assert_eq!(number(&one, "f", "packets"), number(&all, "f", "packets"));
    assert_eq!(number(&one, "f", "flows"), 7);
    let packets = |trial: &Trial| trial.result("t").rows.iter().map(|row| row[3].clone()).collect::<Vec<_>>();
    assert_eq!(packets(&one), packets(&all));
}
