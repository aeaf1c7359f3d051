//! A graph that changes while packets flow: remaining stages miss none, removed ones are accounted for, and every sum
//! agrees each time.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvError, Sender};
use std::thread;
use std::time::Duration;

use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, Plan, WorkerContext};
use tapline_graph::{Control, Engine, Graph, GraphAccount, GraphChange, Inlet, Packets, TickContext};
use tapline_meters::Meters;
use tapline_packet::{Batch, ClockReading, Interface, LinkType, Meta, Record, Timestamp};
use tapline_source::{Advance, Error, InterfaceAccount, Source};
use tapline_testkit::frame_batches::FrameBatches;
use tapline_testkit::traffic::Traffic;

/// Lends the same traffic over and over until it must stop.
struct Endless {
    lent: FrameBatches,
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

fn clock() -> ClockReading {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    ClockReading::unset(Timestamp::from_parts((TICKS.fetch_add(1, Ordering::Relaxed) / 1000) as i64, 0))
}

const STAYS: &str =
    "s :: file(endless); s -> mine :: count; s -> filter(\"tcp\") -> tcp :: count -> first -> flows :: count";

/// Other graphs that come and go at the same time, in turn.
const OTHERS: [&str; 4] = [
    "file(endless) -> filter(\"tcp\") -> other :: top(by=flow)",
    "file(endless) -> sample(1/10) -> delay(5ms) -> late :: count",
    "file(endless) -> b :: balance; b[0] -> left :: count; b[1] -> right :: count",
    "file(endless) -> dedup -> cut(l4) -> histogram -> drop",
];

fn planned(others: &[&str]) -> Plan {
    let texts: Vec<&str> = std::iter::once(STAYS).chain(others.iter().copied()).collect();
    let names: Vec<String> = (0..texts.len()).map(|number| format!("g{number}")).collect();
    let sources: Vec<plan::GraphText<'_>> =
        names.iter().zip(texts).map(|(name, text)| plan::GraphText { name, text }).collect();
    Plan::changeable(tapline_stages::catalog(), &sources).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn a_hundred_changes_lose_no_packet() {
    let frames: Vec<Vec<u8>> = Traffic::new(4).take(200).map(|(_, frame)| frame).collect();
    let lent = FrameBatches::new(&frames);
    let records: &[Record] = lent.batch().records();
    assert!(records.iter().all(|Record { meta: Meta { wire_len, .. }, .. }| *wire_len > 0));
    let interfaces = vec![Interface::new("endless", LinkType::ETHERNET)];
    let mut source = Endless { lent, interfaces, batches: 0, is_over: false };
    let control = Arc::new(Control::new(None));
    let common = GraphSettings::default();
    let mut no_output = |_: usize| Err("there is no output here".to_owned());
    let first = planned(&[]);
    let context =
        WorkerContext { worker: 0, control: &control, common: &common, exits: None, output: &mut no_output };
    let (mut graph, nodes) = plan::build(&first, &Meters::private(), context).expect("a graph");
    let reports = AtomicU64::new(0);
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let inlet = Inlet::new(&mut source, nodes[0]);
            Engine::new(vec![inlet], &mut graph, &control, clock).run(&mut |watch| {
                reports.fetch_add(1, Ordering::Relaxed);
                assert_eq!(watch.account.faults(), [""; 0], "{:?}", watch.account);
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
            let mut no_output = |_: usize| Err("there is no output here".to_owned());
            let context = WorkerContext {
                worker: 0,
                control: &control,
                common: &common,
                exits: None,
                output: &mut no_output,
            };
            let new = plan::nodes(&plan, &there, context).expect("stages");
            there = plan.keys().into_iter().collect();
            let mut change: GraphChange = Box::new(move |graph: &mut Graph, tick: &TickContext<'_>| {
                let ids = graph.change(new, tick)?;
                Ok(plan.sources(&ids))
            });
            while let Err(waits) = control.change(change) {
                change = waits;
                thread::yield_now();
            }
            control.request_report();
        }
        control.stop();
        running.join().expect("no panic")
    });
    assert_eq!(outcome.account.faults(), [""; 0], "{:?}", outcome.account);
    assert!(reports.load(Ordering::Relaxed) > 1);
    let named = |name: &'static str| outcome.account.stages.iter().filter(move |stage| stage.name == name);
    assert!(named("other").count() > 1, "what was taken out stays in the account, each time");
    let results = graph.results();
    let names: HashSet<&str> = results.iter().map(|result| result.stage.as_str()).collect();
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

/// A source that is at its end, and whose last act is to request a change.
struct Late<'c> {
    control: &'c Control,
    change: Option<GraphChange>,
}

impl Source for Late<'_> {
    fn interfaces(&self) -> &[Interface] {
        &[]
    }

    fn advance(&mut self, _: Duration) -> Result<Advance, Error> {
        let change = self.change.take().expect("it is asked once");
        assert!(self.control.change(change).is_ok(), "the loop has not ended yet");
        Ok(Advance::End)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::empty()
    }

    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }
}

#[test]
fn a_change_that_comes_too_late_is_not_taken_for_applied() {
    let control = Control::new(None);
    let (done, applied) = mpsc::channel();
    let change = |done: Sender<()>| -> GraphChange {
        Box::new(move |_, _| {
            done.send(()).expect("it is waited for");
            Ok(Vec::new())
        })
    };
    let mut graph = Graph::new(&Meters::private(), 0);
    let node = graph.add("none", "none", Box::new(Nothing), &[]);
    let mut source = Late { control: &control, change: Some(change(done.clone())) };
    let inlet = Inlet::new(&mut source, node);
    Engine::new(vec![inlet], &mut graph, &control, clock).run(&mut |_| {});
    assert!(control.has_ended() && control.change(change(done)).is_err());
    assert_eq!(applied.recv(), Err(RecvError), "both were dropped");
}

fn plan_of(text: &str) -> Plan {
    Plan::changeable(tapline_stages::catalog(), &[plan::GraphText { name: "g", text }])
        .unwrap_or_else(|why| panic!("{why}"))
}

/// A graph that changes between batches.
struct Changing {
    graph: Graph,
    there: HashSet<u64>,
    source: tapline_graph::NodeId,
    lent: FrameBatches,
    interfaces: Vec<Interface>,
    delivered: u64,
}

impl Changing {
    fn new(frames: &[Vec<u8>]) -> Changing {
        let mut graph = Graph::new(&Meters::private(), 0);
        let source = graph.add("none", "none", Box::new(Nothing), &[]);
        let interfaces = vec![Interface::new("endless", LinkType::ETHERNET)];
        Changing {
            graph,
            there: HashSet::new(),
            source,
            lent: FrameBatches::new(frames),
            interfaces,
            delivered: 0,
        }
    }

    fn become_plan(&mut self, text: &str) {
        let plan = plan_of(text);
        let control = Arc::new(Control::new(None));
        let common = GraphSettings::default();
        let mut no_output = |_: usize| Err("there is no output here".to_owned());
        let context = WorkerContext {
            worker: 0,
            control: &control,
            common: &common,
            exits: None,
            output: &mut no_output,
        };
        let new = plan::nodes(&plan, &self.there, context).expect("stages");
        let tick = TickContext::new(ClockReading::default(), &[]);
        let ids = self.graph.change(new, &tick).expect("nothing fails");
        self.source = plan.sources(&ids)[0];
        self.there = plan.keys().into_iter().collect();
    }

    fn push(&mut self) {
        let batch = self.lent.batch();
        self.delivered += batch.len() as u64;
        let mut packets = Packets::all(batch, &self.interfaces, ClockReading::default());
        self.graph.push(self.source, &mut packets, 0).expect("nothing fails");
    }

    fn account(&self) -> GraphAccount {
        let interfaces = vec![InterfaceAccount::of_file("endless", self.delivered)];
        GraphAccount {
            interfaces,
            delivered: self.delivered,
            unexamined: 0,
            paused: 0,
            stages: self.graph.account(),
        }
    }
}

/// A stage for a place that has none yet.
struct Nothing;

impl tapline_graph::Stage for Nothing {
    fn push(&mut self, _: &mut Packets<'_>, _: &mut tapline_graph::Out<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Makes interfaces of its own or not, and keeps the answer to whether a stage before it does.
struct NumberWitness {
    renumbers: bool,
    is_renumbered: Arc<AtomicBool>,
}

impl tapline_graph::Stage for NumberWitness {
    fn has_own_interfaces(&self) -> bool {
        self.renumbers
    }

    fn push(&mut self, packets: &mut Packets<'_>, out: &mut tapline_graph::Out<'_>) -> Result<(), Error> {
        out.pass(packets)
    }

    fn tick(
        &mut self,
        tick: &TickContext<'_>,
        _: &mut tapline_graph::Out<'_>,
    ) -> Result<tapline_graph::StageStatus, Error> {
        self.is_renumbered.store(tick.is_renumbered, Ordering::Relaxed);
        Ok(tapline_graph::StageStatus::Running)
    }
}

#[test]
fn stages_know_whether_packets_have_the_numbers_of_the_source() {
    let mut graph = Graph::new(&Meters::private(), 0);
    let answers = [(); 4].map(|()| Arc::<AtomicBool>::default());
    let mut node = graph.add("source", "none", Box::new(Nothing), &[]);
    for (at, is_renumbered) in answers.iter().enumerate() {
        let stage = NumberWitness { renumbers: at == 1, is_renumbered: Arc::clone(is_renumbered) };
        node = graph.add(&format!("stage {at}"), "none", Box::new(stage), &[(node, 0)]);
    }
    graph.tick(&TickContext::new(ClockReading::default(), &[])).expect("nothing fails");
    assert_eq!(answers.map(|answer| answer.load(Ordering::Relaxed)), [false, false, true, true]);
}

/// A collector that comes to a meter that runs gets no flows with packets that it has not seen: the meter restarts,
/// and so do all that take its flows. The rest goes on.
#[test]
fn collectors_come_and_go_and_every_sum_agrees() {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("loopback is there"));
    let to = sockets.each_ref().map(|socket| socket.local_addr().expect("it has one").to_string());
    let one = format!("file(endless) -> c :: count -> m :: flow; m -> e :: ipfix(\"{}\")", to[0]);
    let other = format!("file(endless) -> c :: count -> m :: flow; m -> e :: ipfix(\"{}\")", to[1]);
    let both = format!("{one}; m -> e2 :: ipfix(\"{}\", version=9)", to[1]);
    let table = format!("{one}; m -> t :: flowtop");
    let beside = format!("{one}; m -> d :: drop");
    let frames: Vec<Vec<u8>> = Traffic::new(4).take(200).map(|(_, frame)| frame).collect();
    let mut changing = Changing::new(&frames);
    for text in [&one, &other, &both, &one, &table, &beside, &one] {
        changing.become_plan(text);
        assert_eq!(changing.account().faults(), [""; 0]);
        changing.push();
        assert_eq!(changing.account().faults(), [""; 0]);
    }
    let tick = TickContext::new(ClockReading::default(), &[]);
    changing.graph.finish(&tick).expect("nothing fails");
    let account = changing.account();
    assert_eq!(account.faults(), [""; 0], "{account:?}");
    let exports = account
        .stages
        .iter()
        .filter(|stage| stage.class == "ipfix")
        .filter_map(|stage| stage.counters.output.as_ref());
    assert!(exports.clone().all(|output| output.lost == 0 && output.buffered == 0));
    let metered: u64 =
        account.stages.iter().filter(|stage| stage.class == "flow").map(|stage| stage.passed).sum();
    // In one round of seven two collectors take them.
    assert_eq!(exports.map(|output| output.written).sum::<u64>(), metered + metered / 7);
    let counts = account.stages.iter().filter(|stage| stage.name == "c");
    assert_eq!(
        counts.map(|stage| stage.received).collect::<Vec<_>>(),
        [changing.delivered],
        "one, all the time"
    );
}

#[test]
fn takers_of_packets_change_no_meter() {
    let key = |text: &str| plan_of(text).keys()[1];
    let one = "file(a) -> m :: flow -> ipfix(\"127.0.0.1:9\")";
    assert_eq!(key(one), key(&format!("{one}; m -> drop")));
    assert_ne!(key(one), key(&format!("{one}; m -> flowtop")));
    assert_ne!(key(one), key("file(a) -> m :: flow -> ipfix(\"127.0.0.1:10\")"));
    assert_eq!(key(&format!("{one}; m -> flowtop")), key(&format!("{one}; m -> t :: flowtop")));
}
