//! The loop on a source and sinks made for the purpose: every path keeps the account balanced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapline_bpf::{Insn, Program};
use tapline_graph::{
    ChainCounts, Control, Engine, FlowShardSource, Graph, GraphAccount, Inlet, Out, Packets, RunEnd,
    RunReport, SourceStage, Stage, StageCounters, StageStatus, TickContext,
};
use tapline_ir::CompiledFilter;
use tapline_meters::Meters;
use tapline_packet::{Batch, ClockReading, Interface, LinkType, Meta, Record, Timestamp};
use tapline_source::{Advance, Count, Error, InterfaceAccount, Loss, LossPoint, OutputAccount, Source};
use tapline_stages::{Chain, CompileFilter, SharedOutput};

/// The longest wait of the engine.
const WAIT: Duration = Duration::from_millis(100);

/// Lends `batches` batches of `each` one-byte packets whose byte counts up from 0 within the batch.
struct Counting {
    interfaces: Vec<Interface>,
    bytes: Vec<u8>,
    records: Vec<Record>,
    batches: usize,
    lent: u64,
    fail_at_end: bool,
}

impl Counting {
    fn new(batches: usize, each: usize) -> Counting {
        let record = |offset| Record {
            offset,
            cap_len: 1,
            meta: Meta { wire_len: 1, ..Meta::default() },
            options_len: 0,
        };
        Counting {
            interfaces: vec![Interface::new("count0", LinkType::ETHERNET)],
            bytes: (0..each).map(|i| i as u8).collect(),
            records: (0..each).map(record).collect(),
            batches,
            lent: 0,
            fail_at_end: false,
        }
    }
}

impl Source for Counting {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, _wait: Duration) -> Result<Advance, Error> {
        if self.batches == 0 {
            return if self.fail_at_end { Err(Error::source("count0", "cut off")) } else { Ok(Advance::End) };
        }
        self.batches -= 1;
        self.lent += self.records.len() as u64;
        Ok(Advance::Batch)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.batches = self.batches.min(1); // one more batch was already on its way
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![InterfaceAccount::of_file("count0", self.lent)]
    }
}

/// Stores up to `room` packets, then fails.
struct Bounded {
    name: &'static str,
    room: u64,
    account: OutputAccount,
    finished: bool,
}

impl Bounded {
    fn boxed(name: &'static str, room: u64) -> Box<dyn Stage> {
        let account = OutputAccount { name: name.to_owned(), ..OutputAccount::default() };
        Box::new(Bounded { name, room, account, finished: false })
    }
}

impl Stage for Bounded {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let wanted = packets.len() as u64;
        let stored = wanted.min(self.room - self.account.written);
        self.account.written += stored;
        self.account.lost += wanted - stored;
        if stored < wanted { Err(Error::output(self.name, std::io::Error::other("full"))) } else { Ok(()) }
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        assert!(!std::mem::replace(&mut self.finished, true), "finished once");
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_output(self.account.clone())
    }
}

fn clock() -> ClockReading {
    ClockReading::default()
}

fn everything(_: &Interface) -> Result<Option<CompiledFilter>, Error> {
    Ok(None)
}

/// Accepts packets whose first byte is at least 4.
fn four_and_up(_: &Interface) -> Result<Option<CompiledFilter>, Error> {
    let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
    let program = vec![insn(0x30, 0, 0, 0), insn(0x35, 0, 1, 4), insn(0x06, 0, 0, 96), insn(0x06, 0, 0, 0)];
    Ok(Some(Program::new(program).expect("a valid program").into()))
}

/// The result of a run, as a capture gives it.
struct Ran {
    account: GraphAccount,
    counts: ChainCounts,
    ended: RunEnd,
}

/// Runs a source through the chain of a capture. `compile` makes the filter.
fn drive(
    compile: impl Fn(&Interface) -> Result<Option<CompiledFilter>, Error> + Send + Sync + 'static,
    source: &mut Counting,
    sinks: Vec<Box<dyn Stage>>,
    control: &Arc<Control>,
    clock: fn() -> ClockReading,
) -> Ran {
    let control = Arc::clone(control);
    let compile: CompileFilter = Arc::new(compile);
    let chain = Chain {
        compile,
        looks_for_tags: false,
        names: None,
        decide: None,
        shared: None,
        control: Arc::clone(&control),
        snap_len: u32::MAX,
        verify: false,
    };
    let (mut graph, node) = chain.graph(&Meters::private(), 0, sinks);
    let outcome = Engine::new(vec![Inlet::new(source, node)], &mut graph, &control, clock).run(&mut |_| {});
    let counts = outcome.account.chain().expect("a chain");
    Ran { account: outcome.account, counts, ended: outcome.ended }
}

fn run(
    compile: impl Fn(&Interface) -> Result<Option<CompiledFilter>, Error> + Send + Sync + 'static,
    source: &mut Counting,
    limit: Option<u64>,
    sinks: Vec<Box<dyn Stage>>,
) -> Ran {
    let ran = drive(compile, source, sinks, &Arc::new(Control::new(limit)), clock);
    assert_eq!(ran.account.faults(), [""; 0], "{:?}", ran.account);
    ran
}

fn written(ran: &Ran) -> u64 {
    ran.account.outputs().map(|output| output.written).sum()
}

#[test]
fn everything_from_a_source_reaches_every_sink() {
    let sinks = vec![Bounded::boxed("a", u64::MAX), Bounded::boxed("b", u64::MAX)];
    let outcome = run(everything, &mut Counting::new(3, 10), None, sinks);
    assert!(matches!(outcome.ended, RunEnd::Source));
    assert_eq!(outcome.account.outputs().map(|o| o.written).collect::<Vec<_>>(), [30, 30]);
}

#[test]
fn refused_packets_are_counted() {
    let sinks = vec![Bounded::boxed("a", u64::MAX)];
    let outcome = run(four_and_up, &mut Counting::new(3, 10), None, sinks);
    assert_eq!((outcome.counts.filtered, outcome.counts.accepted), (12, 18));
}

#[test]
fn the_limit_is_exact_and_the_rest_is_not_examined() {
    let sinks = vec![Bounded::boxed("a", u64::MAX)];
    let outcome = run(four_and_up, &mut Counting::new(5, 10), Some(8), sinks);
    assert!(matches!(outcome.ended, RunEnd::Stopped));
    let (counts, written) = (&outcome.counts, written(&outcome));
    assert_eq!((counts.accepted, counts.filtered, written), (8, 12, 8));
    assert_eq!(
        counts.unexamined,
        4 + 6,
        "what the filter let through of the second batch, and of that on its way"
    );
}

#[test]
fn a_failing_sink_ends_the_run_of_another_cleanly() {
    let sinks = vec![Bounded::boxed("small", 15), Bounded::boxed("large", u64::MAX)];
    let outcome = run(everything, &mut Counting::new(9, 10), None, sinks);
    assert!(matches!(outcome.ended, RunEnd::Failed(Error::Output { .. })));
    let outputs: Vec<(u64, u64)> = outcome.account.outputs().map(|o| (o.written, o.lost)).collect();
    assert_eq!(outputs, [(15, 5), (20, 0)]);
    assert_eq!(outcome.counts.unexamined, 10);
}

#[test]
fn a_failing_source_loses_nothing_it_lent() {
    let mut source = Counting::new(2, 10);
    source.fail_at_end = true;
    let sinks = vec![Bounded::boxed("a", u64::MAX)];
    let outcome = run(everything, &mut source, None, sinks);
    assert!(matches!(outcome.ended, RunEnd::Failed(Error::Source { .. })));
    assert_eq!(written(&outcome), 20);
}

#[test]
fn a_limit_is_shared_by_workers() {
    let control = Control::new(Some(10));
    assert_eq!((control.take(6), control.is_stopped()), (6, false));
    assert_eq!((control.take(6), control.is_stopped()), (4, true));
    assert_eq!(control.take(1), 0);
}

#[test]
fn workers_share_a_sink_that_is_finished_once() {
    let control = &Arc::new(Control::new(Some(45)));
    let work = |handle: SharedOutput| {
        let ran = drive(everything, &mut Counting::new(2, 10), vec![Box::new(handle)], control, clock);
        ran.counts.accepted
    };
    let handles = SharedOutput::handles(Bounded::boxed("shared", u64::MAX), 3, true);
    let accepted: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = handles.into_iter().map(|handle| scope.spawn(|| work(handle))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    assert_eq!(accepted, 45);
}

#[test]
fn a_filter_that_fails_keeps_the_account_whole() {
    let refuse = |_: &Interface| Err(Error::Filter("no such thing here".to_owned()));
    let sinks = vec![Bounded::boxed("a", u64::MAX)];
    let outcome = run(refuse, &mut Counting::new(3, 10), None, sinks);
    assert!(matches!(outcome.ended, RunEnd::Failed(Error::Filter(_))));
    let counts = &outcome.counts;
    assert_eq!((outcome.account.delivered, counts.filtered, counts.unexamined), (30, 30, 0));
    assert_eq!(counts.filter.unfit[0].packets, 30);
}

#[test]
fn a_worker_whose_source_fails_ends_the_others() {
    let control = Arc::new(Control::new(None));
    let mut source = Counting::new(2, 10);
    source.fail_at_end = true;
    drive(everything, &mut source, Vec::new(), &control, clock);
    assert!(control.is_stopped() && !control.is_stop_requested());
}

/// Wants nothing more after the first tick, and then takes nothing.
struct Complete(Box<dyn Stage>, bool);

impl Stage for Complete {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if self.1 {
            Err(Error::output("complete", std::io::Error::other("closed")))
        } else {
            self.0.push(packets, out)
        }
    }

    fn tick(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.1 = true;
        Ok(StageStatus::Complete)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.0.finish(tick, out)
    }

    fn counters(&self) -> StageCounters {
        self.0.counters()
    }
}

/// A second later at each look.
fn fast_clock() -> ClockReading {
    static SECONDS: AtomicU64 = AtomicU64::new(0);
    ClockReading::unset(Timestamp::from_parts(SECONDS.fetch_add(1, Ordering::Relaxed) as i64, 0))
}

#[test]
fn outputs_complete_for_all_workers_at_once() {
    let control = Arc::new(Control::new(None));
    let output = Box::new(Complete(Bounded::boxed("shared", u64::MAX), false));
    let mut account = GraphAccount::default();
    for handle in SharedOutput::handles(output, 2, true) {
        let outcome =
            drive(everything, &mut Counting::new(9, 10), vec![Box::new(handle)], &control, fast_clock);
        assert!(matches!(outcome.ended, RunEnd::Stopped), "{:?}", outcome.ended);
        account.merge(outcome.account);
    }
    assert_eq!(account.faults(), [""; 0], "{account:?}");
    let counts = account.chain().expect("a chain");
    assert_eq!((counts.accepted, counts.unexamined), (10, 10 + 10), "one batch on its way in each");
}

#[test]
fn packets_after_completion_are_counted() {
    let complete = |is_only| {
        let output = Box::new(Complete(Bounded::boxed("shared", u64::MAX), false));
        let mut handles = SharedOutput::handles(output, 2, is_only);
        handles[0].tick(&TickContext::new(clock(), &[]), &mut Out::nowhere()).unwrap();
        Box::new(handles.remove(1))
    };
    // The only output decides what is accepted; beside another one, which took the packets, it has lost them.
    let Ran { account, counts, .. } = run(everything, &mut Counting::new(1, 10), None, vec![complete(true)]);
    assert_eq!((counts.accepted, counts.unexamined, account.lost()), (0, 10, 0));
    let both: Vec<Box<dyn Stage>> = vec![complete(false), Bounded::boxed("other", u64::MAX)];
    let Ran { account, counts, .. } = run(everything, &mut Counting::new(1, 10), None, both);
    assert_eq!((counts.accepted, counts.unexamined, account.lost()), (10, 0, 10));
}

/// A source without packets. It records the timeouts of its polls, and ends after a number of them.
struct Silent {
    waits: Vec<Duration>,
    questions: usize,
    preferred: Option<Duration>,
}

impl Silent {
    fn new(questions: usize, preferred: Option<Duration>) -> Silent {
        Silent { waits: Vec::new(), questions, preferred }
    }
}

impl Source for Silent {
    fn interfaces(&self) -> &[Interface] {
        &[]
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.waits.push(wait);
        Ok(if self.waits.len() < self.questions { Advance::Idle } else { Advance::End })
    }

    fn batch(&self) -> Batch<'_> {
        Batch::empty()
    }

    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let loss = Loss { place: LossPoint::File, counter: "all".to_owned(), count: Count::Known(7) };
        vec![InterfaceAccount { losses: vec![loss], ..InterfaceAccount::of_file("silent", 0) }]
    }

    fn preferred_wait(&self) -> Option<Duration> {
        self.preferred
    }
}

#[test]
fn the_engine_waits_only_if_no_source_has_packets() {
    let mut graph = Graph::new(&Meters::private(), 0);
    let nodes = ["busy", "silent"].map(|name| graph.add(name, "device", Box::new(SourceStage), &[]));
    let (mut busy, mut silent) = (Counting::new(20, 3), Silent::new(30, None));
    let inlets = vec![Inlet::new(&mut busy, nodes[0]), Inlet::new(&mut silent, nodes[1])];
    let control = Control::new(None);
    let outcome = Engine::new(inlets, &mut graph, &control, clock).run(&mut |_| {});
    assert_eq!(outcome.account.delivered, 60);
    let rows: Vec<(&str, usize)> =
        outcome.account.interfaces.iter().map(|row| (row.name.as_str(), row.losses.len())).collect();
    assert_eq!(rows, [("count0", 0), ("silent", 1)], "a source that has met no interface has a row, too");
    // One question a round: twenty while the other lends, the rest when it is alone.
    assert_eq!(silent.waits[..20], [Duration::ZERO; 20]);
    assert!(silent.waits[21..].iter().all(|wait| *wait == WAIT), "{:?}", silent.waits);
}

/// A source that has its packets only when it is asked a second time.
struct Late(Counting, bool);

impl Source for Late {
    fn interfaces(&self) -> &[Interface] {
        self.0.interfaces()
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if std::mem::replace(&mut self.1, true) { self.0.advance(wait) } else { Ok(Advance::Idle) }
    }

    fn batch(&self) -> Batch<'_> {
        self.0.batch()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.0.stop()
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        self.0.account()
    }
}

/// Notes by which numbers packets of which interfaces came.
struct Names(Arc<Mutex<Vec<(u32, String)>>>);

impl Stage for Names {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let number = packets.batch.packet(0).meta.interface.0;
        let name = packets.interfaces[number as usize].name.clone();
        self.0.lock().unwrap().push((number, name));
        out.pass(packets)
    }
}

/// Outputs are opened with the interfaces of all sources in their order, before any has packets.
#[test]
fn interfaces_are_numbered_in_the_order_of_sources() {
    let mut graph = Graph::new(&Meters::private(), 0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let nodes = ["a", "b"].map(|name| graph.add(name, "names", Box::new(Names(Arc::clone(&seen))), &[]));
    let (mut late, mut early) = (Late(Counting::new(1, 3), false), Counting::new(1, 3));
    late.0.interfaces[0].name = "late".to_owned();
    early.interfaces[0].name = "early".to_owned();
    let inlets = vec![Inlet::new(&mut late, nodes[0]), Inlet::new(&mut early, nodes[1])];
    let outcome = Engine::new(inlets, &mut graph, &Control::new(None), clock).run(&mut |_| {});
    assert_eq!(*seen.lock().unwrap(), [(1, "early".to_owned()), (0, "late".to_owned())]);
    assert_eq!(outcome.account.faults(), [""; 0]);
}

/// A source that blocks until it is woken, and is at its end once it was stopped.
struct Sleeper {
    wakeup: Arc<tapline_sys::Wakeup>,
    waits: Vec<Duration>,
    is_stopped: bool,
}

impl Source for Sleeper {
    fn interfaces(&self) -> &[Interface] {
        &[]
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped {
            return Ok(Advance::End);
        }
        self.waits.push(wait);
        let mut poller = tapline_sys::Poller::new();
        poller.add(std::os::fd::AsFd::as_fd(&*self.wakeup));
        assert_eq!(poller.wait(Duration::from_secs(600)).unwrap(), 1, "the source was not woken");
        assert!(self.wakeup.take());
        Ok(Advance::Idle)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::empty()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }

    fn preferred_wait(&self) -> Option<Duration> {
        Some(Duration::from_millis(250))
    }

    fn wakeup(&self) -> Option<Arc<tapline_sys::Wakeup>> {
        Some(Arc::clone(&self.wakeup))
    }
}

#[test]
fn orders_end_the_wait_of_an_idle_source() {
    let mut graph = Graph::new(&Meters::private(), 0);
    let node = graph.add("sleeper", "device", Box::new(SourceStage), &[]);
    let wakeup = Arc::new(tapline_sys::Wakeup::new().unwrap());
    let mut sleeper = Sleeper { wakeup, waits: Vec::new(), is_stopped: false };
    let (control, is_over) = (Control::new(None), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A report that is asked for before the engine runs wakes no source.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                control.request_report();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let engine = Engine::new(vec![Inlet::new(&mut sleeper, node)], &mut graph, &control, clock);
        let mut watch = |watch: &RunReport<'_>| {
            if watch.requested.is_some() {
                control.stop();
            }
        };
        let outcome = engine.run(&mut watch);
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(outcome.ended, RunEnd::Stopped));
    });
    assert!(sleeper.waits.iter().all(|wait| *wait == Duration::from_millis(250)), "{:?}", sleeper.waits);
}

#[test]
fn sources_that_poll_do_not_wait_in_turn() {
    let mut graph = Graph::new(&Meters::private(), 0);
    let nodes = ["a", "b", "c"].map(|name| graph.add(name, "device", Box::new(SourceStage), &[]));
    let preferred = [Some(Duration::ZERO), None, Some(Duration::from_millis(250))];
    let mut sources = preferred.map(|preferred| Silent::new(4, preferred));
    let inlets = sources.iter_mut().zip(nodes).map(|(source, node)| Inlet::new(source, node)).collect();
    Engine::new(inlets, &mut graph, &Control::new(None), clock).run(&mut |_| {});
    let waits = sources.map(|source| source.waits[..3].to_vec());
    let turn = Duration::from_millis(1);
    assert_eq!(waits, [[Duration::ZERO; 3], [turn; 3], [turn; 3]].map(Vec::from));
}

/// Ten seconds by the steady clock, in which the wall clock is set back by an hour and forward by a day: as many ticks
/// and reports as without.
#[test]
fn intervals_go_by_the_steady_clock() {
    static TENTHS: AtomicU64 = AtomicU64::new(0);
    static JUMPS: [i64; 3] = [0, -3600, 86_400];
    /// A tenth of a second later at each look, jumping every 40 looks.
    fn jumping() -> ClockReading {
        let tenths = TENTHS.fetch_add(1, Ordering::Relaxed) as i64;
        let jump = JUMPS[(tenths / 40 % 3) as usize];
        let steady_ns = tenths * 100_000_000;
        ClockReading { wall: Timestamp::from_parts(1_000_000 + jump, steady_ns as u64), steady_ns }
    }
    let mut source = Counting::new(100, 10);
    let control = Arc::new(Control::new(None));
    let (compile, sinks): (CompileFilter, _) = (Arc::new(everything), vec![Bounded::boxed("a", u64::MAX)]);
    let chain = Chain {
        compile,
        looks_for_tags: false,
        names: None,
        decide: None,
        shared: None,
        control: Arc::clone(&control),
        snap_len: u32::MAX,
        verify: false,
    };
    let (mut graph, node) = chain.graph(&Meters::private(), 0, sinks);
    let mut told = Vec::new();
    Engine::new(vec![Inlet::new(&mut source, node)], &mut graph, &control, jumping)
        .run(&mut |watch| told.push(watch.steady_ns));
    let tenths = TENTHS.load(Ordering::Relaxed);
    assert!(tenths > 100, "{tenths} looks at the clock");
    // Once a second, and at the end.
    let seconds = tenths / 10;
    assert!((seconds..=seconds + 2).contains(&(told.len() as u64 + 1)), "{told:?} in {tenths} tenths");
    assert!(told.is_sorted());
}

/// A source whose first packets take their time.
struct LateBeginning(Counting);

impl Source for LateBeginning {
    fn interfaces(&self) -> &[Interface] {
        self.0.interfaces()
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.0.lent == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.0.advance(wait)
    }

    fn batch(&self) -> Batch<'_> {
        self.0.batch()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.0.stop()
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        self.0.account()
    }
}

#[test]
fn shared_sources_wait_for_their_first_packets() {
    let source = Box::new(LateBeginning(Counting::new(1, 3)));
    let mut shares = FlowShardSource::all(source, 1);
    let start = std::time::Instant::now();
    let found = shares[0].advance(Duration::ZERO).expect("it does not fail");
    // A machine that is slow for longer than the wait gets an idle round, as before it.
    assert!(found == Advance::Batch || start.elapsed() >= Duration::from_secs(1), "{found:?}");
}
