//! The stages of one worker and the connections between them.
//!
//! ```text
//! nodes, in an order in which every node comes before those that it hands packets to:
//!
//!   0 source --0--> 1 filter --0--> 2 sample --0--> 3 record
//!                              \----------------0--> 4 count
//! ```
//!
//! A batch is pushed depth first: node 1 calls [`Out::pass`], which calls nodes 2 and 4 in turn, while node 1 waits. A
//! node can only reach nodes behind it, so each borrows its own state, and no state is borrowed twice. The clock is
//! read twice per node and batch: when the stage is called and when it returns; time in successors is counted for them.

use std::collections::HashMap;
use std::sync::Arc;

use tapline_flow::export::RecordLayout;
use tapline_meters::{Cost, Meter, Meters};
use tapline_packet::Interface;
use tapline_source::{Error, Event, InterfaceAccount};
use tapline_sys::tsc;

use crate::account::StageAccount;
use crate::interface_meters::InterfaceMeters;
use crate::packets::Packets;
use crate::stage::{CollectedRecords, ExpiredFlows, FlowChanges, Stage, StageStatus, TickContext};
use crate::table::StageResult;

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(usize);

/// A node's output: the node, and which of its outputs.
pub type Output = (NodeId, usize);

/// The stages of one worker and the connections between them.
pub struct Graph {
    nodes: Vec<Node>,
    meters: Meters,
    worker: u16,
    is_measured: bool,
    interface_meters: InterfaceMeters,
    /// Accounts of stages that a change removed.
    retired: Vec<StageAccount>,
    retired_results: Vec<StageResult>,
}

/// A stage of a graph that is to be built.
pub struct NewNode {
    /// Equal for stages that do the same to the same packets; a node keeps its stage when the graph changes if its key
    /// stays.
    pub key: u64,
    /// Name of the node.
    pub name: String,
    /// The stage's class.
    pub class: &'static str,
    /// The outputs that lead to the node: positions in the new order, and output numbers.
    pub inputs: Vec<(usize, usize)>,
    /// The stage; `None` to keep the one that has this key.
    pub stage: Option<Box<dyn Stage>>,
}

struct Node {
    key: u64,
    name: String,
    class: &'static str,
    stage: Box<dyn Stage>,
    ports: Vec<Port>,
    meter: Meter,
    /// The outputs that lead to the node.
    inputs: Vec<Input>,
    /// Whether a stage before it makes interfaces of its own.
    is_renumbered: bool,
    /// Packets that were handed to it before the last change.
    handed_before: u64,
    received: Amount,
}

impl Node {
    fn result(&self) -> Option<StageResult> {
        let table = self.stage.result()?;
        Some(StageResult { stage: self.name.clone(), table, values: self.stage.values() })
    }
}

/// An output that leads to a node.
#[derive(Clone, Copy)]
struct Input {
    from: usize,
    port: usize,
    /// Packets that had passed this output before the two were connected.
    before: u64,
}

/// One output of a node.
#[derive(Default)]
struct Port {
    successors: Vec<usize>,
    passed: Amount,
}

#[derive(Clone, Copy, Default)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Amount {
    fn of(packets: &mut Packets<'_>) -> Amount {
        Amount { packets: packets.len() as u64, bytes: packets.bytes() }
    }

    fn add(&mut self, other: Amount) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl Graph {
    /// No stage yet; costs are kept in `meters`, under the number of this worker.
    pub fn new(meters: &Meters, worker: u16) -> Graph {
        Graph {
            nodes: Vec::new(),
            meters: meters.clone(),
            worker,
            is_measured: true,
            interface_meters: InterfaceMeters::default(),
            retired: Vec::new(),
            retired_results: Vec::new(),
        }
    }

    /// Stops the counting of cycles: to find out its cost, by running both.
    #[must_use]
    pub fn unmeasured(self) -> Graph {
        Graph { is_measured: false, ..self }
    }

    /// Adds a node that gets what the outputs `inputs` hand on; a source if there are none.
    ///
    /// # Panics
    /// If an input does not belong to this graph.
    pub fn add(
        &mut self,
        name: &str,
        class: &'static str,
        stage: Box<dyn Stage>,
        inputs: &[Output],
    ) -> NodeId {
        let key = self.nodes.len() as u64;
        let inputs = inputs.iter().map(|&(NodeId(from), port)| (from, port)).collect();
        self.append(NewNode { key, name: name.to_owned(), class, inputs, stage: Some(stage) }, None)
    }

    /// Adds a node; `old` is the former one under its key.
    fn append(&mut self, new: NewNode, old: Option<Node>) -> NodeId {
        let NewNode { key, name, class, inputs, stage } = new;
        let id = self.nodes.len();
        let mut joined = Vec::new();
        let renumbers = |node: &Node| node.is_renumbered || node.stage.has_own_interfaces();
        let is_renumbered = inputs.iter().any(|&(from, _)| renumbers(&self.nodes[from]));
        for (from, port) in inputs {
            let ports = &mut self.nodes[from].ports;
            if ports.len() <= port {
                ports.resize_with(port + 1, Port::default);
            }
            ports[port].successors.push(id);
            joined.push(Input { from, port, before: ports[port].passed.packets });
        }
        let node = match old {
            Some(old) => Node { inputs: joined, is_renumbered, ..old },
            None => Node {
                key,
                meter: self.meters.slot(&name, class, self.worker),
                name,
                class,
                stage: stage.expect("a new node has a stage"),
                ports: vec![Port::default()],
                inputs: joined,
                is_renumbered,
                handed_before: 0,
                received: Amount::default(),
            },
        };
        self.nodes.push(node);
        NodeId(id)
    }

    /// Puts other stages in place of these, between two batches. Stages whose keys stay keep what they know, and miss
    /// no packet; those whose keys are gone are finished first, and stay in the account. Gives the new places, in the
    /// order of `new`.
    ///
    /// # Errors
    /// The first of all stages that could not be finished; the change is made all the same.
    ///
    /// # Panics
    /// If a node has neither a stage nor an old one under its key, or a key occurs twice.
    pub fn change(&mut self, new: Vec<NewNode>, tick: &TickContext<'_>) -> Result<Vec<NodeId>, Error> {
        let stays = |key: u64| new.iter().any(|node| node.key == key);
        let mut finished = Ok(());
        for at in 0..self.nodes.len() {
            if !stays(self.nodes[at].key) {
                let end = self.call(at, |stage, others, out| tick.renumbered(others).finish(stage, out));
                finished = finished.and(end.map(|_| ()));
            }
        }
        for at in 0..self.nodes.len() {
            if !stays(self.nodes[at].key) {
                let account = self.account_of(&self.nodes[at]);
                self.retired.push(account);
                self.retired_results.extend(self.nodes[at].result());
            }
            self.nodes[at].handed_before = self.handed(&self.nodes[at]);
        }
        let mut old: HashMap<u64, Node> =
            std::mem::take(&mut self.nodes).into_iter().map(|node| (node.key, node)).collect();
        for node in old.values_mut() {
            node.ports.iter_mut().for_each(|port| port.successors.clear());
        }
        let places = new.into_iter().map(|node| {
            let old = old.remove(&node.key);
            self.append(node, old)
        });
        let places = places.collect();
        finished.map(|()| places)
    }

    /// Whether there is a stage under a key.
    pub fn has(&self, key: u64) -> bool {
        self.nodes.iter().any(|node| node.key == key)
    }

    /// Hands a batch that a source lends to all that want it. `start` is when work on the batch began, in ticks of the
    /// clock.
    ///
    /// # Errors
    /// The first of all stages that failed; the others got the batch all the same.
    pub fn push(&mut self, source: NodeId, packets: &mut Packets<'_>, start: u64) -> Result<(), Error> {
        let mut rest = Rest { nodes: &mut self.nodes, first: 0, is_measured: self.is_measured };
        rest.run(source.0, packets, start).1
    }

    /// Announces interfaces that have joined the table of `source` to the stages that its packets reach.
    pub(crate) fn join(&mut self, source: NodeId, interfaces: &[Interface]) {
        let mut reached = vec![false; self.nodes.len()];
        reached[source.0] = true;
        for at in source.0..self.nodes.len() {
            let node = &mut self.nodes[at];
            if !reached[at] {
                continue;
            }
            node.stage.join(interfaces);
            if !node.stage.has_own_interfaces() {
                node.ports.iter().flat_map(|port| &port.successors).for_each(|&next| reached[next] = true);
            }
        }
    }

    /// The source has nothing to lend.
    ///
    /// # Errors
    /// The first of all stages that failed.
    pub fn idle(&mut self) -> Result<(), Error> {
        self.each(|stage, _, _| stage.idle().map(|()| StageStatus::Running)).map(|_| ())
    }

    /// Passes the time to every stage. Returns [`StageStatus::Complete`] if one of them is complete, and so is the
    /// run.
    ///
    /// # Errors
    /// The first of all stages that failed.
    pub fn tick(&mut self, tick: &TickContext<'_>) -> Result<StageStatus, Error> {
        let ticked = self.each(|stage, others, out| stage.tick(&tick.renumbered(others), out));
        self.show_gauges();
        ticked
    }

    /// Takes the events of stages since the last call that are to be shown to the user; an event's interface is the
    /// stage's name.
    pub fn events(&mut self) -> Vec<Event> {
        let nodes = self.nodes.iter_mut();
        let told = nodes.flat_map(|node| {
            let name = node.name.clone();
            let warnings = node.stage.events().into_iter().map(|text| (text, true));
            let all: Vec<_> =
                warnings.chain(node.stage.notices().into_iter().map(|text| (text, false))).collect();
            all.into_iter().map(move |(text, is_warning)| Event { interface: name.clone(), text, is_warning })
        });
        told.collect()
    }

    /// Completes every stage, those before first.
    ///
    /// # Errors
    /// The first of all stages that failed.
    pub fn finish(&mut self, tick: &TickContext<'_>) -> Result<(), Error> {
        let finished = self.each(|stage, others, out| tick.renumbered(others).finish(stage, out));
        self.show_gauges();
        finished.map(|_| ())
    }

    /// Publishes the gauges of all stages in their meters.
    fn show_gauges(&self) {
        for Node { stage, meter, .. } in &self.nodes {
            stage.gauges(&mut |name, value| {
                if let Some(extra) = meter.extra(name) {
                    extra.set(value);
                }
            });
        }
    }

    /// Publishes the counters of interfaces and outputs in the meters.
    pub(crate) fn show_counters(&mut self, interfaces: &[InterfaceAccount], stages: &[StageAccount]) {
        self.interface_meters.show(&self.meters, self.worker, interfaces);
        for (Node { meter, .. }, account) in self.nodes.iter().zip(stages) {
            // Handles of an output that workers share all have its counts: those of the first are shown.
            let is_shown = !account.counters.is_shared || self.worker == 0;
            let Some(output) = account.counters.output.as_ref().filter(|_| is_shown) else { continue };
            for (name, count) in
                [("written", output.written), ("lost", output.lost), ("buffered", output.buffered)]
            {
                if let Some(extra) = meter.extra(name) {
                    extra.set(count);
                }
            }
        }
    }

    fn each(
        &mut self,
        mut act: impl FnMut(&mut dyn Stage, bool, &mut Out<'_>) -> Result<StageStatus, Error>,
    ) -> Result<StageStatus, Error> {
        let mut status = StageStatus::Running;
        let mut failure = Ok(());
        for at in 0..self.nodes.len() {
            match self.call(at, &mut act) {
                Ok(StageStatus::Complete) => status = StageStatus::Complete,
                Ok(StageStatus::Running) => {}
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        failure.map(|()| status)
    }

    /// Calls one stage without packets, and counts its output.
    fn call(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut dyn Stage, bool, &mut Out<'_>) -> Result<StageStatus, Error>,
    ) -> Result<StageStatus, Error> {
        let mut rest = Rest { nodes: &mut self.nodes, first: 0, is_measured: self.is_measured };
        let (node, rest) = rest.split(at);
        let start = rest.now();
        let mut out = Out { rest, ports: &mut node.ports, passed: Amount::default(), inner: 0 };
        let result = act(node.stage.as_mut(), node.is_renumbered, &mut out);
        let cycles = out.rest.now().wrapping_sub(start).saturating_sub(out.inner);
        let Amount { packets, bytes } = out.passed;
        node.add_cost(
            self.is_measured,
            &Cost { cycles, packets_out: packets, bytes_out: bytes, ..Cost::default() },
        );
        result
    }

    /// Packets that those before a node handed on to it.
    fn handed(&self, node: &Node) -> u64 {
        let since = |input: &Input| self.nodes[input.from].ports[input.port].passed.packets - input.before;
        node.handed_before + node.inputs.iter().map(since).sum::<u64>()
    }

    fn account_of(&self, node: &Node) -> StageAccount {
        let counters = node.stage.counters();
        let passed = || node.ports.iter().map(|port| port.passed.packets).sum();
        StageAccount {
            name: node.name.clone(),
            class: node.class,
            key: node.key,
            handed: (!node.inputs.is_empty()).then(|| self.handed(node)),
            received: node.received.packets,
            bytes: node.received.bytes,
            passed: counters.matched.unwrap_or_else(passed),
            counters,
        }
    }

    /// The account of each stage; stages that a change removed come last.
    pub fn account(&self) -> Vec<StageAccount> {
        let here = self.nodes.iter().map(|node| self.account_of(node));
        here.chain(self.retired.iter().cloned()).collect()
    }

    /// The result of each stage under a unique name; stages that a change removed come last.
    pub fn results(&self) -> Vec<StageResult> {
        let here = self.nodes.iter().filter_map(Node::result);
        let mut results: Vec<StageResult> = Vec::new();
        for result in here.chain(self.retired_results.iter().cloned()) {
            // A removed stage may have had the name of one that is still here.
            let numbered = (2..).map(|number| format!("{}.{number}", result.stage));
            let mut names = std::iter::once(result.stage.clone()).chain(numbered);
            let free = names.find(|name| results.iter().all(|other| other.stage != *name));
            results.push(StageResult { stage: free.unwrap_or_default(), ..result });
        }
        results
    }

    /// Adds the results of the same graph in another worker.
    pub fn merge(&mut self, other: &Graph) {
        for (node, other) in self.nodes.iter_mut().zip(&other.nodes) {
            node.stage.merge(&*other.stage);
        }
    }
}

/// The nodes behind the one at work.
struct Rest<'g> {
    nodes: &'g mut [Node],
    /// The number of the first of them.
    first: usize,
    is_measured: bool,
}

impl Node {
    #[inline]
    fn add_cost(&mut self, is_measured: bool, cost: &Cost) {
        if is_measured {
            self.meter.add(cost);
        }
    }
}

impl Rest<'_> {
    /// The time in ticks, if the graph is measured; else 0.
    #[inline]
    fn now(&self) -> u64 {
        if self.is_measured { tsc::now() } else { 0 }
    }

    /// A node, and those behind it.
    fn split(&mut self, at: usize) -> (&mut Node, Rest<'_>) {
        let (before, behind) = self.nodes.split_at_mut(at - self.first + 1);
        let node = before.last_mut().expect("a successor lies behind its node");
        (node, Rest { nodes: behind, first: at + 1, is_measured: self.is_measured })
    }

    /// Hands packets to one node. Returns when it was done.
    fn run(&mut self, at: usize, packets: &mut Packets<'_>, start: u64) -> (u64, Result<(), Error>) {
        let is_measured = self.is_measured;
        let (node, rest) = self.split(at);
        let received = Amount::of(packets);
        node.received.add(received);
        let mut out = Out { rest, ports: &mut node.ports, passed: Amount::default(), inner: 0 };
        let result = node.stage.push(packets, &mut out);
        let end = out.rest.now();
        let cycles = end.wrapping_sub(start).saturating_sub(out.inner);
        let passed = out.passed;
        node.add_cost(
            is_measured,
            &Cost {
                cycles,
                packets_in: received.packets,
                bytes_in: received.bytes,
                packets_out: passed.packets,
                bytes_out: passed.bytes,
            },
        );
        (end, result)
    }
}

/// Data that goes along the edges in addition to packets: no account but the stages' own counts it.
#[derive(Clone, Copy)]
enum Beside<'a> {
    Flows(&'a ExpiredFlows<'a>),
    Changes(&'a FlowChanges<'a>),
    Records(&'a CollectedRecords<'a>),
}

impl Rest<'_> {
    /// Hands flows, their changes or their records to a node.
    fn run_beside(&mut self, at: usize, beside: Beside<'_>, start: u64) -> (u64, Result<(), Error>) {
        let is_measured = self.is_measured;
        let (node, rest) = self.split(at);
        let mut out = Out { rest, ports: &mut node.ports, passed: Amount::default(), inner: 0 };
        let result = match beside {
            Beside::Flows(ended) => node.stage.flows(ended, &mut out),
            Beside::Changes(changes) => node.stage.changes(changes, &mut out),
            Beside::Records(collected) => node.stage.records(collected),
        };
        let end = out.rest.now();
        let cycles = end.wrapping_sub(start).saturating_sub(out.inner);
        node.add_cost(is_measured, &Cost { cycles, ..Cost::default() });
        (end, result)
    }
}

/// The outputs of a node, through which its stage hands on packets.
pub struct Out<'g> {
    rest: Rest<'g>,
    ports: &'g mut [Port],
    passed: Amount,
    /// Ticks that the successors took.
    inner: u64,
}

impl Out<'_> {
    /// For a stage that is driven without a graph: leads nowhere.
    pub fn nowhere() -> Out<'static> {
        let rest = Rest { nodes: &mut [], first: 0, is_measured: false };
        Out { rest, ports: &mut [], passed: Amount::default(), inner: 0 }
    }

    /// Hands the selected packets on. Afterwards the selection is as the last successor left it.
    ///
    /// # Errors
    /// The first of all successors that failed; the others got the packets all the same.
    #[inline]
    pub fn pass(&mut self, packets: &mut Packets<'_>) -> Result<(), Error> {
        self.pass_to(0, packets)
    }

    /// Hands the selected packets to one of several outputs. An output that leads nowhere takes them too.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    pub fn pass_to(&mut self, port: usize, packets: &mut Packets<'_>) -> Result<(), Error> {
        if packets.is_empty() {
            return Ok(());
        }
        let Some(port) = self.ports.get_mut(port) else { return Ok(()) };
        let amount = Amount::of(packets);
        self.passed.add(amount);
        port.passed.add(amount);
        let Some((&last, others)) = port.successors.split_last() else { return Ok(()) };
        let begin = self.rest.now();
        let mut start = begin;
        let mut failure = Ok(());
        for &successor in others {
            let (end, result) = self.rest.run(successor, &mut packets.clone(), start);
            start = end;
            failure = failure.and(result);
        }
        let (end, result) = self.rest.run(last, packets, start);
        self.inner += end.wrapping_sub(begin);
        failure.and(result)
    }

    /// Hands on flows that have ended, to all that follow.
    ///
    /// # Errors
    /// The first of all successors that failed; the others got the flows all the same.
    pub fn pass_flows(&mut self, ended: &ExpiredFlows<'_>) -> Result<(), Error> {
        self.pass_beside(Beside::Flows(ended))
    }

    /// The layout of records that the stage behind takes in place of collected flows; `None` if it takes none, or if there
    /// are other stages.
    pub fn record_layout(&self) -> Option<Arc<RecordLayout>> {
        let mut successors = self.ports.iter().flat_map(|port| &port.successors);
        let (Some(only), None) = (successors.next(), successors.next()) else { return None };
        self.rest.nodes.get(only.checked_sub(self.rest.first)?)?.stage.record_layout()
    }

    /// Hands on records of collected flows in the [`record_layout`](Self::record_layout).
    ///
    /// # Errors
    /// The error of the stage behind.
    pub fn pass_records(&mut self, collected: &CollectedRecords<'_>) -> Result<(), Error> {
        self.pass_beside(Beside::Records(collected))
    }

    /// Hands on what flows counted, to all that follow.
    ///
    /// # Errors
    /// The first of all successors that failed; the others got the changes all the same.
    pub fn pass_changes(&mut self, changes: &FlowChanges<'_>) -> Result<(), Error> {
        self.pass_beside(Beside::Changes(changes))
    }

    fn pass_beside(&mut self, beside: Beside<'_>) -> Result<(), Error> {
        let begin = self.rest.now();
        let mut start = begin;
        let mut failure = Ok(());
        for port in self.ports.iter() {
            for &successor in &port.successors {
                let (end, result) = self.rest.run_beside(successor, beside, start);
                start = end;
                failure = failure.and(result);
            }
        }
        self.inner += start.wrapping_sub(begin);
        failure
    }

    /// The outputs that lead somewhere.
    pub fn connected(&self) -> impl Iterator<Item = usize> + use<'_> {
        let leads = |port: &(usize, &Port)| !port.1.successors.is_empty();
        self.ports.iter().enumerate().filter(leads).map(|(number, _)| number)
    }
}
