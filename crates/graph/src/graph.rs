//! Stages joined, for one worker.
//!
//! ```text
//! nodes, in an order in which every node comes before those that it hands packets to:
//!
//!   0 source --0--> 1 filter --0--> 2 sample --0--> 3 record
//!                              \----------------0--> 4 count
//! ```
//!
//! A batch is pushed depth first: node 1 calls [`Out::pass`], which calls nodes 2 and 4 in turn, while node 1 waits. Each node may only
//! reach nodes behind it, so each holds its own state and nobody holds two. The clock is read twice a node and batch: when
//! its stage is called and when it returns; what its successors took in between is theirs.

use tapline_capture::{Error, Wants};
use tapline_profile::{Cost, Meter, Meters};
use tapline_sys::tsc;

use crate::account::StageAccount;
use crate::packets::Packets;
use crate::stage::{Moment, Stage};
use crate::table::Table;

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(usize);

/// A node's output: the node, and which of its outputs.
pub type Output = (NodeId, usize);

/// Stages joined, for one worker.
pub struct Graph {
    nodes: Vec<Node>,
    meters: Meters,
    worker: u16,
}

struct Node {
    name: String,
    class: &'static str,
    stage: Box<dyn Stage>,
    ports: Vec<Port>,
    meter: Meter,
    /// Whence packets come.
    inputs: Vec<Output>,
    received: Amount,
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
        Graph { nodes: Vec::new(), meters: meters.clone(), worker }
    }

    /// Adds a node that gets what the outputs `inputs` hand on; a source if there are none.
    ///
    /// # Panics
    /// If an input is none of this graph.
    pub fn add(
        &mut self,
        name: &str,
        class: &'static str,
        stage: Box<dyn Stage>,
        inputs: &[Output],
    ) -> NodeId {
        let id = self.nodes.len();
        for &(NodeId(from), port) in inputs {
            let ports = &mut self.nodes[from].ports;
            if ports.len() <= port {
                ports.resize_with(port + 1, Port::default);
            }
            ports[port].successors.push(id);
        }
        let meter = self.meters.slot(name, class, self.worker);
        let name = name.to_owned();
        let (inputs, ports) = (inputs.to_vec(), vec![Port::default()]);
        let received = Amount::default();
        self.nodes.push(Node { name, class, stage, ports, meter, inputs, received });
        NodeId(id)
    }

    /// Hands a batch that a source lends to all that want it. `start` is when work on the batch began, in ticks of the clock.
    ///
    /// # Errors
    /// The first of all stages that failed; the others got the batch all the same.
    pub fn push(&mut self, source: NodeId, packets: &mut Packets<'_>, start: u64) -> Result<(), Error> {
        Rest { nodes: &mut self.nodes, first: 0 }.run(source.0, packets, start).1
    }

    /// The source has nothing to lend.
    ///
    /// # Errors
    /// The first of all stages that failed.
    pub fn idle(&mut self) -> Result<(), Error> {
        self.each(|stage, _| stage.idle().map(|()| Wants::More)).map(|_| ())
    }

    /// Tells every stage the time. [`Wants::Nothing`] if one of them is complete, and so is the run.
    ///
    /// # Errors
    /// The first of all stages that failed.
    pub fn tick(&mut self, moment: &Moment<'_>) -> Result<Wants, Error> {
        self.each(|stage, out| stage.tick(moment, out))
    }

    /// Completes every stage, those before first.
    ///
    /// # Errors
    /// The first of all stages that failed.
    pub fn finish(&mut self, moment: &Moment<'_>) -> Result<(), Error> {
        self.each(|stage, out| stage.finish(moment, out).map(|()| Wants::More)).map(|_| ())
    }

    fn each(
        &mut self,
        mut act: impl FnMut(&mut dyn Stage, &mut Out<'_>) -> Result<Wants, Error>,
    ) -> Result<Wants, Error> {
        let mut wants = Wants::More;
        let mut failure = Ok(());
        for at in 0..self.nodes.len() {
            let mut rest = Rest { nodes: &mut self.nodes, first: 0 };
            let (node, rest) = rest.split(at);
            let start = tsc::now();
            let mut out = Out { rest, ports: &mut node.ports, passed: Amount::default(), inner: 0 };
            let result = act(node.stage.as_mut(), &mut out);
            let cycles = tsc::now().wrapping_sub(start).saturating_sub(out.inner);
            let Amount { packets, bytes } = out.passed;
            node.meter.add(&Cost { cycles, packets_out: packets, bytes_out: bytes, ..Cost::default() });
            match result {
                Ok(Wants::Nothing) => wants = Wants::Nothing,
                Ok(Wants::More) => {}
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        failure.map(|()| wants)
    }

    /// What became of the packets of each stage.
    pub fn account(&self) -> Vec<StageAccount> {
        let passed = |&(NodeId(from), port): &Output| self.nodes[from].ports[port].passed.packets;
        let account = |node: &Node| {
            let own = node.stage.own();
            StageAccount {
                name: node.name.clone(),
                class: node.class,
                handed: match node.inputs.as_slice() {
                    [] => None,
                    inputs => Some(inputs.iter().map(passed).sum()),
                },
                received: node.received.packets,
                bytes: node.received.bytes,
                passed: own
                    .matched
                    .unwrap_or_else(|| node.ports.iter().map(|port| port.passed.packets).sum()),
                own,
            }
        };
        self.nodes.iter().map(account).collect()
    }

    /// What the stages found out, by name.
    pub fn results(&self) -> Vec<(String, Table)> {
        let result = |node: &Node| Some((node.name.clone(), node.stage.result()?));
        self.nodes.iter().filter_map(result).collect()
    }

    /// Adds what the same graph found out in another worker.
    pub fn absorb(&mut self, other: &Graph) {
        for (node, other) in self.nodes.iter_mut().zip(&other.nodes) {
            node.stage.absorb(other.stage.as_any());
        }
    }
}

/// The nodes behind the one at work.
struct Rest<'g> {
    nodes: &'g mut [Node],
    /// The number of the first of them.
    first: usize,
}

impl Rest<'_> {
    /// A node, and those behind it.
    fn split(&mut self, at: usize) -> (&mut Node, Rest<'_>) {
        let (before, behind) = self.nodes.split_at_mut(at - self.first + 1);
        let node = before.last_mut().expect("a successor lies behind its node");
        (node, Rest { nodes: behind, first: at + 1 })
    }

    /// Hands packets to one node. Returns when it was done.
    fn run(&mut self, at: usize, packets: &mut Packets<'_>, start: u64) -> (u64, Result<(), Error>) {
        let (node, rest) = self.split(at);
        let received = Amount::of(packets);
        node.received.add(received);
        let mut out = Out { rest, ports: &mut node.ports, passed: Amount::default(), inner: 0 };
        let result = node.stage.push(packets, &mut out);
        let end = tsc::now();
        let cycles = end.wrapping_sub(start).saturating_sub(out.inner);
        let passed = out.passed;
        node.meter.add(&Cost {
            cycles,
            packets_in: received.packets,
            bytes_in: received.bytes,
            packets_out: passed.packets,
            bytes_out: passed.bytes,
        });
        (end, result)
    }
}

/// Where a stage hands on packets.
pub struct Out<'g> {
    rest: Rest<'g>,
    ports: &'g mut [Port],
    passed: Amount,
    /// Ticks that the successors took.
    inner: u64,
}

impl Out<'_> {
    /// Hands the selected packets on. Afterwards the selection is what the last successor left of it.
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
        let begin = tsc::now();
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

    /// The outputs that lead somewhere.
    pub fn connected(&self) -> impl Iterator<Item = usize> + use<'_> {
        let leads = |port: &(usize, &Port)| !port.1.successors.is_empty();
        self.ports.iter().enumerate().filter(leads).map(|(number, _)| number)
    }

    /// How many outputs lead somewhere, counted to the last that does.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }
}
