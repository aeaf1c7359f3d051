//! A graph that changes while packets flow: what stays misses none, what goes is accounted for, and every sum agrees each time.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tapline_capture::{Advance, Balance, Error, InterfaceAccount, Source};
use tapline_graph::catalog::Common;
use tapline_graph::plan::{self, Maker, Plan};
use tapline_graph::{Control, Engine, Graph, Inlet, Moment};
use tapline_packet::{Batch, Interface, LinkType, Meta, Record, Timestamp};
use tapline_profile::Meters;
use tapline_testkit::lent::Lent;
use tapline_testkit::traffic::Traffic;

/// Lends the same traffic over and over until it is told to stop.
struct Endless {
    lent: Lent,
    interfaces: Vec<Interface>,
    batches: u64,
    is_over: bool,
}

impl Source for Endless {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, _: Duration) -> Result<Advance, Error> {
        if self.is_over {
            return Ok(Advance::End);
        }
        self.batches += 1;
        Ok(Advance::Batch)
    }

    fn batch(&self) -> Batch<'_> {
        self.lent.batch()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_over = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![InterfaceAccount::of_file("endless", self.batches * self.lent.len() as u64)]
    }
}

fn clock() -> Timestamp {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    Timestamp::from_parts((TICKS.fetch_add(1, Ordering::Relaxed) / 1000) as i64, 0)
}

const STAYS: &str =
    "s :: file(endless); s -> mine :: count; s -> filter(\"tcp\") -> tcp :: count -> first -> flows :: count";

/// What is there besides, in turn.
const OTHERS: [&str; 4] = [
    "file(endless) -> filter(\"tcp\") -> other :: top(by=flow)",
    "file(endless) -> sample(1/10) -> delay(5ms) -> late :: count",
    "file(endless) -> b :: balance; b[0] -> left :: count; b[1] -> right :: count",
    "file(endless) -> dedup -> cut(l4) -> histogram -> drop",
];

fn planned(others: &[&str]) -> Plan {
    let texts: Vec<&str> = std::iter::once(STAYS).chain(others.iter().copied()).collect();
    let names: Vec<String> = (0..texts.len()).map(|number| format!("g{number}")).collect();
    let sources: Vec<plan::Source<'_>> =
        names.iter().zip(texts).map(|(name, text)| plan::Source { name, text }).collect();
    Plan::changeable(&sources).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn a_hundred_changes_cost_nobody_a_packet() {
    let frames: Vec<Vec<u8>> = Traffic::new(4).take(200).map(|(_, frame)| frame).collect();
    let lent = Lent::new(&frames);
    let records: &[Record] = lent.batch().records();
    assert!(records.iter().all(|Record { meta: Meta { wire_len, .. }, .. }| *wire_len > 0));
    let interfaces = vec![Interface::new("endless", LinkType::ETHERNET)];
    let mut source = Endless { lent, interfaces, batches: 0, is_over: false };
    let control = Arc::new(Control::new(None));
    let options = |interface: &Interface| tapline_filter::Options::new(interface.link_type);
    let common =
        Common { options: Arc::new(options), workers: 1, interpret: false, directory: PathBuf::new() };
    let mut no_sink = |_: usize| Err("there is no sink here".to_owned());
    let first = planned(&[]);
    let maker = Maker { worker: 0, control: &control, common: &common, exits: None, sink: &mut no_sink };
    let (mut graph, nodes) = plan::build(&first, &Meters::private(), maker).expect("a graph");
    let reports = AtomicU64::new(0);
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let inlet = Inlet::new(&mut source, nodes[0]);
            Engine::new(vec![inlet], &mut graph, &control, clock).run(&mut |watch| {
                reports.fetch_add(1, Ordering::Relaxed);
                assert_eq!(watch.account.balance(), Balance::Balanced, "{:?}", watch.account);
                let received = |name: &str| {
                    let stage = watch.account.stages.iter().find(|stage| stage.name == name);
                    stage.expect("it stays").received
                };
                assert_eq!(received("mine"), watch.account.delivered, "it missed none");
            })
        });
        let mut there: HashSet<u64> = first.keys().into_iter().collect();
        for round in 0..100_usize {
            let others: Vec<&str> = OTHERS
                .iter()
                .enumerate()
                .filter(|(bit, _)| (round + 1) >> bit & 1 == 1)
                .map(|(_, text)| *text)
                .collect();
            let plan = planned(&others);
            let mut no_sink = |_: usize| Err("there is no sink here".to_owned());
            let maker =
                Maker { worker: 0, control: &control, common: &common, exits: None, sink: &mut no_sink };
            let new = plan::nodes(&plan, &there, maker).expect("stages");
            there = plan.keys().into_iter().collect();
            let mut change: tapline_graph::Change =
                Box::new(move |graph: &mut Graph, moment: &Moment<'_>| {
                    let ids = graph.change(new, moment)?;
                    Ok(plan.sources(&ids))
                });
            while let Err(waits) = control.change(change) {
                change = waits;
                thread::yield_now();
            }
            control.report();
        }
        control.stop();
        running.join().expect("no panic")
    });
    assert_eq!(outcome.account.balance(), Balance::Balanced, "{:?}", outcome.account);
    assert!(reports.load(Ordering::Relaxed) > 1);
    let named = |name: &'static str| outcome.account.stages.iter().filter(move |stage| stage.name == name);
    assert!(named("other").count() > 1, "what was taken out stays in the account, each time");
    let results = graph.results();
    let names: HashSet<&str> = results.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), results.len(), "no result hides another");
    assert!(names.contains("other") && names.contains("other.2"), "{names:?}");
    let (mine, flows) = (named("mine").count(), named("flows").map(|stage| stage.received).sum::<u64>());
    assert_eq!(mine, 1);
    let distinct = {
        let mut seen = HashSet::new();
        for frame in &frames {
            let headers = tapline_packet::Headers::parse_data(LinkType::ETHERNET, frame);
            if headers.protocol() == Some(6) && headers.fragment().is_none() {
                seen.insert(headers.five_tuple(frame).map(|flow| flow.canonical()));
            }
        }
        seen.len() as u64
    };
    assert!(flows > 0 && flows <= distinct, "what a stage remembers outlives changes: {flows} of {distinct}");
}
