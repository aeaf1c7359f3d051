//! The engine: one loop that drives the sources and stages of every graph.
//!
//! ```text
//! advance -> Batch: push it through the graph
//!         -> Idle:  let nothing linger
//!         -> End:   finish
//! ten times a second: tell the stages the time; once a second, or when asked: read the counters, tell the watcher
//! ```

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tapline_packet::{Batch, ClockReading, Interface, InterfaceId, Record};
use tapline_source::{Advance, Error, Event, InterfaceAccount, Source, UncapturedCounts};
use tapline_sys::tsc;

pub use control::Control;
pub use phase::OrderRefused;

use crate::account::GraphAccount;
use crate::graph::{Graph, NodeId};
use crate::packets::Packets;
use crate::stage::{StageStatus, TickContext};
use crate::table::StageResult;
use crate::worker_merge::MergedSource;
use phase::Phase;
use timers::Timers;
use waiting::JointWait;

mod control;
mod pending;
mod phase;
mod timers;
mod waiting;

/// The longest wait for packets before the loop checks its flags and the clock.
const WAIT: Duration = Duration::from_millis(100);
/// The longest wait that a source may ask for.
const REST_MAX: Duration = Duration::from_millis(500);
/// The longest wait for each of several sources without packets, which wait in turn. Those that poll do not wait.
const WAIT_IN_TURN: Duration = Duration::from_millis(1);
/// The interval at which a paused run that reads files looks for orders.
const PAUSED_WAIT: Duration = Duration::from_millis(20);
/// Interval at which stages learn the time.
const TICK_NS: i64 = 100_000_000;
/// The interval at which counters are read: kernel counters of 32 bits wrap no sooner than in seconds.
const COUNTERS_NS: i64 = 1_000_000_000;

/// A change of a graph, applied between two batches. Returns the nodes of the sources, in their order.
pub type GraphChange = Box<dyn FnOnce(&mut Graph, &TickContext<'_>) -> Result<Vec<NodeId>, Error> + Send>;

/// The reason for which a run ended.
#[derive(Debug)]
pub enum RunEnd {
    /// The source is at its end.
    Source,
    /// A stop was requested, or the limit was reached.
    Stopped,
    /// An error. Packets accepted until then are in the outputs, or counted as lost.
    Failed(Error),
}

impl RunEnd {
    /// The more serious of two: a failure before a stop, a stop before the source's end.
    #[must_use]
    pub fn worse(self, other: RunEnd) -> RunEnd {
        match (self, other) {
            (RunEnd::Failed(error), _) | (_, RunEnd::Failed(error)) => RunEnd::Failed(error),
            (RunEnd::Stopped, _) | (_, RunEnd::Stopped) => RunEnd::Stopped,
            _ => RunEnd::Source,
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The packet account.
    pub account: GraphAccount,
    /// The reason for the end.
    pub ended: RunEnd,
    /// Ticks of the clock from the first poll of the sources to the end of the last stage, without sleep of sources and
    /// the time they took to stop. The part that is in no meter of the graph is the loop's own cost.
    pub ticks: u64,
}

/// A report to the watcher while the loop runs.
#[derive(Debug)]
pub struct RunReport<'a> {
    /// The time of the report by the steady clock, in nanoseconds: for rates and intervals.
    pub steady_ns: i64,
    /// The account so far; it balances except for packets that the ring still holds.
    pub account: &'a GraphAccount,
    /// Events since the last report.
    pub events: &'a [Event],
    /// Bytes read and bytes in all, if the total is known.
    pub progress: Option<(u64, u64)>,
    /// Number of requests with [`Control::request_report`] so far, if this report was requested.
    pub requested: Option<u64>,
    /// Whether this is the last report of the loop.
    pub is_last: bool,
    /// Results of the stages so far; empty unless the report was requested or is the last.
    pub results: Vec<StageResult>,
}

/// A source, and the node that gets its packets.
pub struct Inlet<'s> {
    source: &'s mut dyn Source,
    node: NodeId,
    /// For each interface of the source, its number in the graph; empty if both are the same.
    ids: Vec<InterfaceId>,
    /// Whether all inlets share one table of interfaces.
    is_merged: bool,
    is_at_end: bool,
}

impl<'s> Inlet<'s> {
    /// An inlet that hands packets of `source` to `node`.
    pub fn new(source: &'s mut dyn Source, node: NodeId) -> Inlet<'s> {
        Inlet { source, node, ids: Vec::new(), is_merged: false, is_at_end: false }
    }

    /// An inlet for packets that workers have handed on: all such inlets share one table of interfaces, and the workers
    /// account for their packets.
    pub fn merged(source: &'s mut MergedSource, node: NodeId) -> Inlet<'s> {
        Inlet { is_merged: true, ..Inlet::new(source, node) }
    }
}

/// The loop over sources and a graph.
pub struct Engine<'e> {
    inlets: Vec<Inlet<'e>>,
    graph: &'e mut Graph,
    control: &'e Control,
    clock: fn() -> ClockReading,
    interfaces: Vec<Interface>,
    filtered: Vec<bool>,
    account: GraphAccount,
    /// Failures of the sources to capture interfaces.
    uncaptured: UncapturedCounts,
    /// Ticks that sources took to stop: they wait for the kernel.
    stopping: u64,
    /// Records with the graph's interface numbers, if there are several sources.
    renumbered: Vec<Record>,
    /// Whether a source lent packets in the last round.
    is_busy: bool,
    joint: JointWait,
    phase: Phase,
    /// The changes of the phase that are known.
    phase_changes: u64,
}

impl<'e> Engine<'e> {
    /// A loop over `inlets`. `clock` is called once a batch; intervals follow its steady part.
    pub fn new(
        inlets: Vec<Inlet<'e>>,
        graph: &'e mut Graph,
        control: &'e Control,
        clock: fn() -> ClockReading,
    ) -> Engine<'e> {
        Engine {
            inlets,
            graph,
            control,
            clock,
            interfaces: Vec::new(),
            filtered: Vec::new(),
            account: GraphAccount::default(),
            uncaptured: UncapturedCounts::default(),
            stopping: 0,
            renumbered: Vec::new(),
            is_busy: false,
            joint: JointWait::default(),
            phase: Phase::Running { since: None },
            phase_changes: 0,
        }
    }

    /// Drives the sources until they end or a stop is requested, and completes every stage.
    pub fn run(mut self, watch: &mut dyn FnMut(&RunReport<'_>)) -> RunOutcome {
        let start = tsc::now();
        let slept = self.waited_ticks();
        // In the order of the sources, whichever has packets first: outputs were opened with this order.
        for at in 0..self.inlets.len() {
            self.learn_interfaces(at);
        }
        self.inlets.iter().for_each(|inlet| self.control.add_wakeup(inlet.source.wakeup()));
        let mut ended = self.drive(watch);
        self.control.end_changes();
        if matches!(ended, RunEnd::Failed(_)) {
            // Other workers would go on without this one's share of the packets.
            self.control.end();
        }
        self.refresh();
        let tick = TickContext {
            uncaptured: self.uncaptured,
            ..TickContext::new((self.clock)(), &self.account.interfaces)
        };
        if let Err(error) = self.graph.finish(&tick) {
            ended = match ended {
                RunEnd::Failed(first) => RunEnd::Failed(first),
                _ => RunEnd::Failed(error),
            };
        }
        self.account.stages = self.graph.account();
        self.graph.show_counters(&self.account.interfaces, &self.account.stages);
        self.tell(watch, None, true);
        let slept = self.waited_ticks().wrapping_sub(slept);
        let ticks = tsc::now().wrapping_sub(start).saturating_sub(slept + self.stopping);
        RunOutcome { account: self.account, ended, ticks }
    }

    fn waited_ticks(&self) -> u64 {
        let waited = self.inlets.iter().map(|inlet| inlet.source.waited_ticks());
        waited.fold(self.joint.ticks(), u64::wrapping_add)
    }

    fn drive(&mut self, watch: &mut dyn FnMut(&RunReport<'_>)) -> RunEnd {
        let mut timers = Timers::starting((self.clock)().steady_ns);
        let mut failure: Option<Error> = None;
        let mut stopping = false;
        loop {
            let is_over = failure.is_some() || self.control.is_complete();
            if is_over {
                self.control.end();
            }
            if !stopping && self.control.is_stopped() {
                stopping = true;
                let start = tsc::now();
                for inlet in &mut self.inlets {
                    if let Err(error) = inlet.source.stop() {
                        return RunEnd::Failed(failure.unwrap_or(error));
                    }
                }
                self.stopping = tsc::now().wrapping_sub(start);
            }
            self.learn_phase();
            let changed = self.make_change();
            let step = changed.and_then(|()| self.round(is_over));
            if matches!(step, Ok(Advance::End)) {
                return match failure {
                    Some(failure) => RunEnd::Failed(failure),
                    None if stopping => RunEnd::Stopped,
                    None => RunEnd::Source,
                };
            }
            let ticked = self.by_the_clock(&mut timers, watch);
            if matches!(ticked, Ok(StageStatus::Complete)) {
                self.control.complete();
            }
            failure = failure.or(step.err()).or(ticked.err());
        }
    }

    fn learn_phase(&mut self) {
        let changes = self.control.phase_changes.load(Ordering::Acquire);
        if changes != self.phase_changes {
            (self.phase, self.phase_changes) = (self.control.phase(), changes);
        }
    }

    fn make_change(&mut self) -> Result<(), Error> {
        let Some(change) = self.control.take_change() else { return Ok(()) };
        let tick = TickContext::new((self.clock)(), &self.account.interfaces);
        let nodes = change(self.graph, &tick)?;
        self.inlets.iter_mut().zip(nodes).for_each(|(inlet, node)| inlet.node = node);
        Ok(())
    }

    /// Polls each source once. [`Advance::End`] once all are at their ends.
    fn round(&mut self, is_over: bool) -> Result<Advance, Error> {
        let open = self.inlets.iter().filter(|inlet| !inlet.is_at_end).count();
        let mut found = Advance::End;
        let has_waited = open > 1 && !self.is_busy && self.wait_for_any()?;
        for at in 0..self.inlets.len() {
            if self.inlets[at].is_at_end {
                continue;
            }
            // A file waits for the end of the pause.
            if self.phase == Phase::Paused && self.inlets[at].source.progress().is_some() {
                thread::sleep(PAUSED_WAIT);
                found = if found == Advance::End { Advance::Idle } else { found };
                continue;
            }
            let wait = match open {
                0 | 1 => self.inlets[at].source.preferred_wait().unwrap_or(WAIT).clamp(WAIT, REST_MAX),
                // While one has packets, none is waited for: it would be slowed down to a batch a wait.
                _ if self.is_busy || has_waited || found == Advance::Batch => Duration::ZERO,
                _ => self.inlets[at].source.preferred_wait().unwrap_or(WAIT_IN_TURN).min(WAIT_IN_TURN),
            };
            let source = &mut self.inlets[at].source;
            let (start, slept) = (tsc::now(), source.waited_ticks());
            match source.advance(wait) {
                Ok(Advance::Batch) => {
                    found = Advance::Batch;
                    // The time in which nothing came is not a cost of what came then.
                    let slept = source.waited_ticks().wrapping_sub(slept);
                    self.batch(at, is_over, start.wrapping_add(slept))?;
                }
                Ok(Advance::Idle) if found == Advance::End => found = Advance::Idle,
                Ok(Advance::Idle) => {}
                Ok(Advance::End) => self.inlets[at].is_at_end = true,
                Err(error) => {
                    self.inlets[at].is_at_end = true;
                    return Err(error);
                }
            }
        }
        self.is_busy = found == Advance::Batch;
        if found == Advance::Idle {
            self.graph.idle()?;
        }
        Ok(found)
    }

    /// Waits for all open sources at once, if each can be waited for so.
    fn wait_for_any(&mut self) -> Result<bool, Error> {
        let open = self.inlets.iter().filter(|inlet| !inlet.is_at_end);
        self.joint.wait(open.map(|inlet| &*inlet.source), WAIT)
    }

    /// Pushes the batch that a source lends through the graph. After the end its packets are only counted, as
    /// unexamined.
    fn batch(&mut self, at: usize, is_over: bool, start: u64) -> Result<(), Error> {
        self.learn_interfaces(at);
        // An order may have come while the source waited for this batch.
        self.learn_phase();
        let Inlet { source, node, ids, is_merged, .. } = &self.inlets[at];
        let batch = source.batch();
        self.account.delivered += batch.len() as u64;
        if is_over {
            self.account.unexamined += batch.len() as u64;
            return Ok(());
        }
        let batch = match ids.as_slice() {
            [] => batch,
            ids => renumbered(&batch, ids, &mut self.renumbered),
        };
        let mut packets = Packets::all(batch, &self.interfaces, (self.clock)());
        packets.filtered = &self.filtered;
        // A batch of a file that was read before the order goes on: it would not come again.
        let is_kept = *is_merged || source.progress().is_some();
        let paused = of_pause(self.phase, is_kept, &mut packets);
        self.account.unexamined += paused;
        self.account.paused += paused;
        if packets.is_empty() {
            return Ok(());
        }
        self.graph.push(*node, &mut packets, start)
    }

    /// Assigns graph-wide numbers to interfaces that a source has found since.
    fn learn_interfaces(&mut self, at: usize) {
        let is_only = self.inlets.len() == 1 || self.inlets[at].is_merged;
        let Inlet { source, node, ids, .. } = &mut self.inlets[at];
        let known = if is_only { self.interfaces.len() } else { ids.len() };
        for (index, interface) in source.interfaces().iter().enumerate().skip(known) {
            if !is_only {
                ids.push(InterfaceId(self.interfaces.len() as u32));
            }
            self.interfaces.push(interface.clone());
            self.filtered.push(source.is_filtered(InterfaceId(index as u32)));
        }
        if source.interfaces().len() > known {
            self.graph.join(*node, &self.interfaces);
        }
    }

    fn by_the_clock(
        &mut self,
        timers: &mut Timers,
        watch: &mut dyn FnMut(&RunReport<'_>),
    ) -> Result<StageStatus, Error> {
        let now = (self.clock)();
        let steady_ns = now.steady_ns;
        let asked = timers.asked(self.control);
        if asked.is_some() || timers.counters.due(steady_ns, COUNTERS_NS) {
            self.refresh();
            self.account.stages = self.graph.account();
            self.graph.show_counters(&self.account.interfaces, &self.account.stages);
            self.tell(watch, asked, false);
        }
        if timers.tick.due(steady_ns, TICK_NS) {
            let interfaces = &self.account.interfaces;
            let tick = TickContext { uncaptured: self.uncaptured, ..TickContext::new(now, interfaces) };
            return self.graph.tick(&tick);
        }
        Ok(StageStatus::Running)
    }

    fn tell(&mut self, watch: &mut dyn FnMut(&RunReport<'_>), asked: Option<u64>, is_last: bool) {
        let mut events: Vec<Event> = self.inlets.iter_mut().flat_map(|inlet| inlet.source.events()).collect();
        events.extend(self.graph.events());
        let progress = self.inlets.iter().filter_map(|inlet| inlet.source.progress());
        let progress = progress.reduce(|(done, all), (more, more_in_all)| (done + more, all + more_in_all));
        let (steady_ns, account) = ((self.clock)().steady_ns, &self.account);
        let results = if asked.is_some() || is_last { self.graph.results() } else { Vec::new() };
        watch(&RunReport {
            steady_ns,
            account,
            events: &events,
            progress,
            requested: asked,
            is_last,
            results,
        });
    }

    /// Reads the sources' counters, in the order of the graph's interface numbers. Behind them come rows of sources that
    /// have met no interface yet.
    fn refresh(&mut self) {
        for at in 0..self.inlets.len() {
            self.learn_interfaces(at);
        }
        self.uncaptured = UncapturedCounts::default();
        self.inlets.iter().for_each(|inlet| self.uncaptured.add(inlet.source.uncaptured()));
        if self.inlets.iter().any(|inlet| inlet.is_merged) {
            return;
        }
        if let [only] = self.inlets.as_mut_slice() {
            self.account.interfaces = only.source.account();
            return;
        }
        let mut accounts = vec![None; self.interfaces.len()];
        let mut others = Vec::new();
        for inlet in &mut self.inlets {
            for (at, account) in inlet.source.account().into_iter().enumerate() {
                match inlet.ids.get(at) {
                    Some(id) => accounts[id.0 as usize] = Some(account),
                    None => others.push(account),
                }
            }
        }
        let named = accounts.into_iter().zip(&self.interfaces);
        let account = |(account, interface): (Option<InterfaceAccount>, &Interface)| {
            account.unwrap_or_else(|| InterfaceAccount::of_file(&interface.name, 0))
        };
        self.account.interfaces = named.map(account).chain(others).collect();
    }
}

/// Takes packets of a pause out of a batch that is not kept whole. Returns their number. What workers handed on was
/// captured before.
fn of_pause(phase: Phase, is_kept: bool, packets: &mut Packets<'_>) -> u64 {
    let all = packets.len();
    match phase {
        Phase::Running { since: None } | Phase::Stopping => {}
        _ if is_kept => {}
        Phase::Paused => packets.selection.truncate(0),
        Phase::Running { since: Some(since) } => {
            let (batch, interfaces) = (packets.batch, packets.interfaces);
            packets.selection.retain(|index| {
                let meta = &batch.records()[index].meta;
                let interface = interfaces.get(meta.interface.0 as usize);
                // Streams and files have times of their own.
                meta.timestamp >= since || interface.is_none_or(|interface| interface.if_index == 0)
            });
        }
    }
    (all - packets.len()) as u64
}

/// Renumbers the packets with the graph's interface numbers.
fn renumbered<'a>(batch: &Batch<'a>, ids: &[InterfaceId], records: &'a mut Vec<Record>) -> Batch<'a> {
    records.clear();
    records.extend(batch.records().iter().map(|record| {
        let mut record = *record;
        record.meta.interface = ids.get(record.meta.interface.0 as usize).copied().unwrap_or_default();
        record
    }));
    Batch::new(batch.base(), records).cut(batch.snap_len())
}
