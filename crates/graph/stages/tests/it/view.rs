//! The stage `view`: its tables against exact sums of random traffic, every second, with losses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tapline_graph::TickContext;
use tapline_meters::RunFolder;
use tapline_packet::{ClockReading, Meta, Timestamp};
use tapline_source::{InterfaceAccount, RingAccount};
use tapline_stages::ViewFile;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp, arp};
use tapline_view::{Amount, Dimension, Key, Reader, Reading, Table};

use crate::trial::{Trial, whole};

const GRAPH: &str = "file(\"in\") -> f :: flow(view=yes, idle=2s, active=5s, flows=4000) -> v :: view";

const SECOND_NS: u64 = 1_000_000_000;

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % sides
    }
}

/// The contents of a second, by each dimension that the frames have.
#[derive(Default)]
struct Exact {
    hosts_in: HashMap<Key, Amount>,
    hosts_out: HashMap<Key, Amount>,
    pairs: HashMap<Key, Amount>,
    services: HashMap<Key, Amount>,
    all: Amount,
    frames: u64,
    frame_bytes: u64,
    not_ip: u64,
}

impl Exact {
    /// A frame between two hosts; the server has the lower port.
    fn add(&mut self, from: IpAddr, to: IpAddr, (protocol, port): (u8, u16), frame: &[u8]) {
        let amount = Amount { packets: 1, bytes: frame.len() as u64 - 14 };
        self.hosts_in.entry(Key::host(to)).or_default().add(amount);
        self.hosts_out.entry(Key::host(from)).or_default().add(amount);
        self.pairs.entry(Key::pair(from, to)).or_default().add(amount);
        self.services.entry(Key::service(protocol, port)).or_default().add(amount);
        self.all.add(amount);
    }
}

/// A frame of some kind, counted.
fn frame(dice: &mut Dice, exact: &mut Exact, most: u64) -> Vec<u8> {
    let (a, b) = (Host::number(1 + dice.roll(most) as u16), Host::number(30_001 + dice.roll(most) as u16));
    let is_back = dice.roll(3) == 0;
    let (from, to) = if is_back { (&b, &a) } else { (&a, &b) };
    if dice.roll(20) == 0 {
        let frame = Ethernet::broadcast(from).frame(0x0806, &arp(1, from, [0; 6], to.v4));
        exact.not_ip += 1;
        return frame;
    }
    let version = if dice.roll(4) == 0 { IpVersion::V6 } else { IpVersion::V4 };
    let pair = IpPair::between(from, to, version);
    let payload = vec![7; 46 + dice.roll(1000) as usize];
    let (client, server) = (40_000 + dice.roll(100) as u16, [53, 80, 443, 5060][dice.roll(4) as usize]);
    let (src, dst) = if is_back { (server, client) } else { (client, server) };
    let (packet, protocol) = match dice.roll(2) {
        0 => (Udp { src, dst }.packet(pair, &payload), 17),
        _ => (Tcp { src, dst, flags: 0x10, ..Tcp::default() }.packet(pair, &payload), 6),
    };
    let frame = Ethernet::between(from, to).ip(&packet);
    let address = |host: &Host| -> IpAddr {
        match version {
            IpVersion::V4 => host.v4.into(),
            IpVersion::V6 => host.v6.into(),
        }
    };
    exact.add(address(from), address(to), (protocol, server), &frame);
    frame
}

fn assert_table(name: &str, table: &Table, exact: &HashMap<Key, Amount>, all: Amount) {
    assert_eq!(table.sum(), all, "{name}: rows and others");
    for row in &table.rows {
        let had = exact.get(&row.key).copied().unwrap_or_default();
        assert!(
            row.amount.bytes <= had.bytes && row.amount.packets <= had.packets,
            "{name}: {row:?}, {had:?}"
        );
        assert!(had.bytes <= row.amount.bytes + row.error.bytes, "{name}: {row:?}, {had:?}");
    }
    if table.missing == Amount::default() {
        assert_eq!(table.rows.len(), exact.len(), "{name}: every key has a row");
    }
}

fn assert_second(reading: &Reading, exact: &Exact, lost: u64) {
    let second = &reading.second;
    assert_eq!((second.metered, second.flow_bytes), (exact.all.packets, exact.all.bytes));
    assert_eq!((second.not_ip, second.lost_ring), (exact.not_ip, lost));
    assert_eq!(second.offered(), exact.frames + lost, "the interface");
    assert_eq!(second.offered_bytes(), exact.frame_bytes);
    for (name, dimension, exact_rows) in [
        ("hosts in", Dimension::HostIn, &exact.hosts_in),
        ("hosts out", Dimension::HostOut, &exact.hosts_out),
        ("pairs", Dimension::Pair, &exact.pairs),
        ("services", Dimension::Service, &exact.services),
    ] {
        assert_table(name, reading.table(dimension), exact_rows, exact.all);
    }
    for dimension in [Dimension::Name, Dimension::Segment, Dimension::Interface, Dimension::Flow] {
        assert_eq!(reading.table(dimension).sum(), exact.all, "{}", dimension.name());
    }
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

/// Pushes `seconds` seconds of random traffic between hosts, each with a loss, and checks each.
fn seconds_are_exact(seconds: u64, hosts: u64, seed: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let view = Arc::new(ViewFile::create_in(&RunFolder::of(folder.path()), "a test").expect("a view"));
    let reader = Reader::open(view.path().expect("a file")).expect("a reader");
    let mut trial = Trial::viewed(GRAPH, Some(view)).unwrap_or_else(|why| panic!("{why}"));
    let (mut dice, mut exact) = (Dice(seed), Exact::default());
    let (mut received, mut dropped, mut lost, mut checked) = (0, 0, 0, 0);
    for second in 0..seconds {
        let batches = 1 + dice.roll(12);
        let before = (std::mem::take(&mut exact), std::mem::take(&mut lost));
        for batch in 0..batches {
            let mut packets = Vec::new();
            for _ in 0..1 + dice.roll(256) {
                let frame = frame(&mut dice, &mut exact, hosts);
                exact.frames += 1;
                exact.frame_bytes += frame.len() as u64;
                let ns = second * 1_000_000_000 + batch * 1_000_000;
                let meta = Meta { timestamp: Timestamp::from_nanos(ns as i64), ..whole(&frame) };
                packets.push((frame, meta));
            }
            received += packets.len() as u64;
            trial.push_all(&packets, 256);
            // The first batch of a second ends the one before.
            if batch == 0 && second > 0 {
                checked += 1;
                wait_for_second(&reader, checked);
                let reading = reader.last().expect("readable").expect("a second");
                assert_second(&reading, &before.0, before.1);
                assert_eq!((reading.second.end_ns, reading.second.len_ns), (second * SECOND_NS, SECOND_NS));
            }
        }
        let more = dice.roll(5);
        (dropped, lost) = (dropped + more, lost + more);
        let ring = RingAccount { received: received + dropped, dropped, ..RingAccount::default() };
        let account = InterfaceAccount { ring: Some(ring), ..InterfaceAccount::of_file("eth0", received) };
        trial.graph.tick(&TickContext::new(ClockReading::default(), &[account])).expect("nothing fails");
    }
    let ring = RingAccount { received: received + dropped, dropped, ..RingAccount::default() };
    let account = InterfaceAccount { ring: Some(ring), ..InterfaceAccount::of_file("eth0", received) };
    trial.graph.finish(&TickContext::new(ClockReading::default(), &[account])).expect("nothing fails");
    assert_eq!(reader.published().expect("readable"), seconds);
    assert_second(&reader.last().expect("readable").expect("a second"), &exact, lost);
    trial.assert_balanced();
}

/// Seconds of a file are cut where they end, also within a batch, and time without packets is a second of its own.
#[test]
fn a_batch_of_several_seconds_is_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let view = Arc::new(ViewFile::create_in(&RunFolder::of(folder.path()), "a test").expect("a view"));
    let mut reader = Reader::open(view.path().expect("a file")).expect("a reader");
    let graph = GRAPH.replace("view=yes", "view=yes, sample=2, sample_by=flow, seed=1");
    for (graph, sampling) in [(GRAPH, 1), (graph.as_str(), 2)] {
        let before = reader.published().expect("readable");
        let mut trial = Trial::viewed(graph, Some(Arc::clone(&view))).unwrap_or_else(|why| panic!("{why}"));
        let (mut dice, mut exact) = (Dice(11), Exact::default());
        let packets: Vec<_> = [500, 1200, 1999, 500_000, 499_000]
            .map(|ms| {
                let frame = frame(&mut dice, &mut exact, 10);
                let timestamp = Timestamp::from_nanos(ms * 1_000_000);
                (frame.clone(), Meta { timestamp, ..whole(&frame) })
            })
            .into();
        trial.push_all(&packets, 256);
        trial.graph.finish(&TickContext::new(ClockReading::default(), &[])).expect("nothing fails");
        wait_for_second(&reader, before + 4);
        let seconds: Vec<(u64, u64, u64)> = (reader.seconds(before, 4).expect("readable").into_iter())
            .map(|(_, second)| (second.end_ns / SECOND_NS, second.len_ns / SECOND_NS, second.offered()))
            .collect();
        assert_eq!(seconds, [(1, 1, 1), (2, 1, 2), (500, 498, 0), (501, 1, 2)]);
        reader.refresh().expect("readable");
        assert_eq!(reader.process().sampling, sampling);
    }
}

/// An interface that was opened and has no packet yet is live, and its seconds have zeros.
#[test]
fn an_idle_interface_is_live() {
    let folder = tempfile::tempdir().expect("a folder");
    let view = Arc::new(ViewFile::create_in(&RunFolder::of(folder.path()), "a test").expect("a view"));
    view.set_live();
    let reader = Reader::open(view.path().expect("a file")).expect("a reader");
    assert!(reader.process().is_live);
    let mut trial = Trial::viewed(GRAPH, Some(view)).unwrap_or_else(|why| panic!("{why}"));
    for second in 1..=4 {
        let wall = Timestamp::from_nanos(second * SECOND_NS as i64);
        let now = ClockReading { wall, steady_ns: second * SECOND_NS as i64 };
        trial.graph.tick(&TickContext::new(now, &[])).expect("nothing fails");
    }
    wait_for_second(&reader, 3);
    let seconds = reader.seconds(0, 4).expect("readable");
    assert!(seconds.len() >= 3 && seconds.iter().all(|(_, second)| second.offered() == 0), "{seconds:?}");
}

#[test]
fn few_hosts_are_exact_every_second() {
    seconds_are_exact(40, 12, 1);
}

#[test]
fn many_hosts_sum_to_the_interface_every_second() {
    seconds_are_exact(20, 30_000, 2);
}

#[test]
fn a_full_flow_table_loses_nothing_to_the_view() {
    for seed in 3..6 {
        seconds_are_exact(8, 3000, seed);
    }
}

#[test]
fn a_view_needs_a_meter_that_tells_changes() {
    let why = Trial::graph("file(\"in\") -> flow -> view").err().expect("an error");
    assert!(why.contains("flow(view=yes)"), "{why}");
}

/// Slots of two meters are of different flows.
#[test]
fn a_view_has_one_meter() {
    let meter = "flow(view=yes)";
    let graph = format!("file(\"in\") -> t :: tee -> a :: {meter} -> v :: view; t -> b :: {meter} -> v");
    let why = Trial::graph(&graph).err().expect("an error");
    assert!(why.contains("several meters"), "{why}");
}
