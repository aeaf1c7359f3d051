//! Exporters against receivers with prepared answers.

use std::net::IpAddr;
use std::sync::Mutex;

use tapline_flow::Flow;
use tapline_flow::export::{ExportOptions, FlowSink as _, JsonEncoder, TableShape};
use tapline_packet::Timestamp;

use super::*;
use crate::key_group::{KEY_GROUPS, key_group};
use crate::trial;
use crate::{BatchExporter, BlockId, Delivery, DeliveryAccount, Encoding, Sensor, Target, Threaded};

/// The next answer for a block, and all blocks that were delivered.
#[derive(Default)]
struct Receiving {
    answers: VecDeque<Outcome>,
    /// The answer once there are no more.
    usual: Option<Outcome>,
    seen: Vec<Block>,
}

#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Receiving>>);

impl Receiver {
    fn usually(outcome: Outcome) -> Receiver {
        Receiver(Arc::new(Mutex::new(Receiving { usual: Some(outcome), ..Receiving::default() })))
    }

    fn seen(&self) -> Vec<Block> {
        self.0.lock().expect("no test panics there").seen.clone()
    }
}

impl Target for Receiver {
    fn name(&self) -> &str {
        "receiver"
    }

    fn deliver(&mut self, block: &Block) -> Outcome {
        let mut state = self.0.lock().expect("no test panics there");
        let usual = state.usual.clone().unwrap_or(Outcome::Delivered);
        let outcome = state.answers.pop_front().unwrap_or(usual);
        if outcome == Outcome::Delivered {
            state.seen.push(block.clone());
        }
        outcome
    }
}

fn flow(number: u64) -> Flow {
    let time = Timestamp::from_nanos(1_700_000_000_000_000_000 + number as i64);
    let ends = [1, 2].map(|host| (IpAddr::from([10, 0, 0, host]), number as u16));
    trial::flow(17, ends, number, time)
}

/// Limits for receivers that answer in the end, however long their thread waits for a processor.
fn limits() -> Limits {
    Limits { rows: 20, block: 300, memory: 1 << 20, patience: Duration::from_secs(60), ..Limits::default() }
}

/// Limits for receivers that are away.
fn impatient() -> Limits {
    Limits { patience: Duration::from_millis(300), ..limits() }
}

fn exporter(receiver: &Receiver, epoch: u64, spool: Option<Spool>, limits: Limits) -> BatchExporter {
    start("octetDeltaCount,sourceIPv4Address", delivery(receiver, epoch, 1, spool, limits))
}

fn delivery(receiver: &Receiver, epoch: u64, groups: u64, spool: Option<Spool>, limits: Limits) -> Delivery {
    let id = BlockId { sensor: Sensor::new("test").expect("a name"), epoch, number: 0 };
    let carrier = Box::new(Threaded::start(receiver.clone()).expect("a thread"));
    let (name, encoding) = ("receiver".to_owned(), Encoding::JsonLines);
    Delivery { name, id, encoding, groups, carrier, spool, limits }
}

fn start(template: &str, delivery: Delivery) -> BatchExporter {
    let shape = TableShape::new(&ExportOptions::of_rows(template, false)).expect("a template");
    let encoder = Box::new(JsonEncoder::new(&shape));
    BatchExporter::start(delivery, shape, encoder).expect("a thread")
}

/// Exports flows with a key by flow, in blocks of about 13 flows.
fn run_by_flow(receiver: &Receiver, spool: Option<Spool>, limits: Limits) -> DeliveryAccount {
    let (epoch, limits) = (7, Limits { rows: 400, ..limits });
    let exporter = start("destinationTransportPort", delivery(receiver, epoch, KEY_GROUPS, spool, limits));
    run(exporter, 1000, false).0
}

/// Each block has flows of one key group, and those of a group came as they were made; each flow came once.
fn check_groups(blocks: &[Block]) {
    let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); KEY_GROUPS as usize];
    let mut ports = Vec::new();
    for block in blocks {
        let group = block.id.number % KEY_GROUPS;
        numbers[group as usize].push(block.id.number);
        for line in block.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let port = port_of(std::str::from_utf8(line).expect("text"));
            assert_eq!(key_group(&flow(port)), group, "port {port}");
            ports.push(port);
        }
    }
    for numbers in &numbers {
        assert!(numbers.len() > 2 && numbers.is_sorted(), "{numbers:?}");
    }
    ports.sort_unstable();
    let expected: Vec<u64> = (0..1000).flat_map(|port| [port; 2]).collect();
    assert!(ports == expected, "each flow has a row for either direction, once");
}

#[test]
fn blocks_are_of_one_key_group() {
    let receiver = Receiver::default();
    let account = run_by_flow(&receiver, None, limits());
    assert_eq!((account.acknowledged.flows, account.in_flight.flows), (1000, 0));
    check_groups(&receiver.seen());
}

/// Blocks that are refused for a while, spooled, and delivered by the next run keep the order of their group.
#[test]
fn key_groups_keep_their_order_in_a_spool() {
    let folder = tempfile::tempdir().expect("there is room");
    let spool = || Some(Spool::open(folder.path(), 1 << 20, Encoding::JsonLines).expect("a folder"));
    let away = Receiver::usually(Outcome::Again("away".to_owned()));
    away.0.lock().expect("no test panics there").answers = vec![Outcome::Delivered; 5].into();
    let account = run_by_flow(&away, spool(), impatient());
    assert!(account.spooled.flows > 500 && account.all_lost().flows == 0, "{account:?}");
    let back = Receiver::default();
    let (account, _) = run(exporter(&back, 8, spool(), limits()), 0, false);
    assert!(account.replayed.flows > 500, "{account:?}");
    let mut all = away.seen();
    all.extend(back.seen());
    check_groups(&all);
}

fn port_of(line: &str) -> u64 {
    let digits = line.split(':').nth(1).expect("one field").trim_end_matches('}');
    digits.trim().parse().expect("a port")
}

/// Exports this number of flows to the end.
fn run(mut exporter: BatchExporter, flows: u64, is_live: bool) -> (DeliveryAccount, Vec<String>) {
    export(&mut exporter, flows, is_live);
    end(exporter, flows)
}

fn export(exporter: &mut BatchExporter, flows: u64, is_live: bool) {
    exporter.set_live(is_live);
    for number in 0..flows {
        exporter.export(&[flow(number)], Timestamp::EPOCH).expect("losses are counted");
        assert!(exporter.deliveries().is_balanced());
    }
}

/// Ends a run of this number of flows.
fn end(mut exporter: BatchExporter, flows: u64) -> (DeliveryAccount, Vec<String>) {
    exporter.finish(Timestamp::EPOCH).expect("losses are counted");
    let account = exporter.deliveries();
    assert_eq!(exporter.account().packets.total(), account.ended.packets);
    assert!(account.is_balanced(), "{account:?}");
    assert_eq!((account.ended.flows, account.in_flight), (flows, Tally::default()));
    (account, exporter.take_events())
}

fn numbers(blocks: &[Block]) -> Vec<u64> {
    blocks.iter().map(|block| block.id.number).collect()
}

fn rows(blocks: &[Block]) -> Vec<String> {
    let lines =
        |block: &Block| String::from_utf8_lossy(&block.bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    blocks.iter().flat_map(lines).collect()
}

#[test]
fn all_flows_arrive_in_order() {
    let receiver = Receiver::default();
    let (account, events) = run(exporter(&receiver, 1, None, limits()), 105, false);
    assert_eq!((account.acknowledged.flows, account.acknowledged.rows), (105, 210));
    let seen = receiver.seen();
    assert!(seen.len() >= 11 && account.blocks == seen.len() as u64);
    assert_eq!(numbers(&seen), (0..seen.len() as u64).collect::<Vec<_>>());
    let rows = rows(&seen);
    assert_eq!(rows.len(), 210);
    assert_eq!(rows[209], "{\"octetDeltaCount\":104,\"sourceIPv4Address\":\"10.0.0.2\"}");
    assert_eq!(events, [""; 0]);
}

#[test]
fn what_is_not_taken_comes_again_under_its_id() {
    let receiver = Receiver::default();
    let away = Outcome::Again("away".to_owned());
    receiver.0.lock().expect("at rest").answers.extend(vec![away; 3]);
    let (account, events) = run(exporter(&receiver, 1, None, limits()), 50, false);
    assert_eq!((account.acknowledged.flows, account.repeated), (50, 3));
    let mut seen = numbers(&receiver.seen());
    seen.sort_unstable();
    assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(events, ["receiver: away; flows wait in memory", "receiver: takes flows again"]);
}

#[test]
fn each_loss_has_its_cause() {
    let receiver = Receiver::usually(Outcome::Refused("no such column".to_owned()));
    let (account, events) = run(exporter(&receiver, 1, None, limits()), 50, false);
    assert_eq!(account.lost[Cause::Refused as usize].flows, 50);
    assert_eq!(events, ["receiver: flows are lost: no such column"]);
    let away = Receiver::usually(Outcome::Again("away".to_owned()));
    let (account, _) = run(exporter(&away, 1, None, impatient()), 50, false);
    assert_eq!(account.lost[Cause::Undelivered as usize].flows, 50);
    // A batch has 20 rows, of which a block has no more than 300 bytes.
    let (account, _) = run(exporter(&away, 1, None, Limits { memory: 1000, ..impatient() }), 500, true);
    let [memory, _, _, undelivered] = account.lost;
    assert!(memory.flows > 0 && memory.flows + undelivered.flows == 500, "{account:?}");
}

#[test]
fn readers_of_files_wait_for_room() {
    let receiver = Receiver::default();
    let limits = Limits { memory: 1000, ..limits() };
    let (account, _) = run(exporter(&receiver, 1, None, limits), 2000, false);
    assert_eq!(account.acknowledged.flows, 2000);
}

#[test]
fn a_spool_keeps_flows_for_the_next_run() {
    let folder = tempfile::tempdir().expect("there is room");
    let spool = || Spool::open(folder.path(), 1 << 20, Encoding::JsonLines).expect("a folder");
    let away = Receiver::usually(Outcome::Again("away".to_owned()));
    let mut to_away = exporter(&away, 1, Some(spool()), impatient());
    export(&mut to_away, 100, true);
    // That the receiver is away is known before the end, which waits a short time.
    while to_away.deliveries().repeated == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (account, events) = end(to_away, 100);
    assert_eq!((account.spooled.flows, account.all_lost()), (100, Tally::default()));
    assert_eq!(events, ["receiver: away; flows wait in the spool"]);
    let receiver = Receiver::default();
    let (account, _) = run(exporter(&receiver, 2, Some(spool()), limits()), 30, true);
    assert_eq!((account.found.flows, account.replayed.flows, account.acknowledged.flows), (100, 100, 30));
    let seen = receiver.seen();
    let ids: std::collections::HashSet<BlockId> = seen.iter().map(|block| block.id.clone()).collect();
    assert_eq!((ids.len(), rows(&seen).len()), (seen.len(), 260));
    let (account, _) = run(exporter(&receiver, 3, Some(spool()), limits()), 0, true);
    assert_eq!(account.found, Tally::default());
}

#[test]
fn a_full_spool_loses_what_comes_last() {
    let folder = tempfile::tempdir().expect("there is room");
    let spool = Spool::open(folder.path(), 3000, Encoding::JsonLines).expect("a folder");
    let away = Receiver::usually(Outcome::Again("away".to_owned()));
    let (account, events) = run(exporter(&away, 1, Some(spool), impatient()), 100, true);
    let lost = account.lost[Cause::SpoolFull as usize].flows;
    assert!(account.spooled.flows > 0 && lost > 0 && account.spooled.flows + lost == 100, "{account:?}");
    assert!(events.contains(&"receiver: flows are lost: the spool is full".to_owned()), "{events:?}");
}

#[test]
fn an_outage_in_a_run_is_caught_up_from_the_spool() {
    let folder = tempfile::tempdir().expect("there is room");
    let spool = Spool::open(folder.path(), 1 << 20, Encoding::JsonLines).expect("a folder");
    let receiver = Receiver::default();
    let away = Outcome::Again("away".to_owned());
    receiver.0.lock().expect("at rest").answers.extend(vec![away; 4]);
    let mut exporter = exporter(&receiver, 1, Some(spool), limits());
    exporter.set_live(true);
    for number in 0..300 {
        exporter.export(&[flow(number)], Timestamp::EPOCH).expect("losses are counted");
    }
    // The end of the run does not wait for a receiver that is away: first it has to be there again.
    while exporter.deliveries().acknowledged.flows < 100 {
        std::thread::sleep(Duration::from_millis(10));
    }
    exporter.finish(Timestamp::EPOCH).expect("losses are counted");
    let account = exporter.deliveries();
    assert_eq!((account.acknowledged.flows, account.spooled.flows, account.found.flows), (300, 0, 0));
    assert_eq!(rows(&receiver.seen()).len(), 600);
}
