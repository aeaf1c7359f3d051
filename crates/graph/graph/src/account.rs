//! The packet account of a graph.
//!
//! ```text
//! each interface   received = dropped by the ring + unread at stop + delivered
//! each source      delivered = handed on + unexamined
//! each edge        what one stage handed on = what the next one received
//! each stage       received = passed + refused + held + unexamined            (stages that hand on)
//!                  received = written + lost + skipped + buffered + unexamined   (outputs;
//!                                         received also has the packets that collected flows count)
//! ```

use tapline_source::{FilterAccount, InterfaceAccount, OutputAccount, merge_interfaces};

use crate::stage::StageCounters;

/// The packet account of a run: every packet that reached the graph is in it.
#[derive(Clone, Debug, Default)]
pub struct GraphAccount {
    /// Before the sources, for each interface.
    pub interfaces: Vec<InterfaceAccount>,
    /// Packets that sources lent.
    pub delivered: u64,
    /// Packets that sources lent after the run's end or in a pause; no stage was given them.
    pub unexamined: u64,
    /// Packets of pauses among these.
    pub paused: u64,
    /// Each stage, sources first.
    pub stages: Vec<StageAccount>,
}

/// The packet account of one stage.
#[derive(Clone, Debug, Default)]
pub struct StageAccount {
    /// Name in the graph.
    pub name: String,
    /// The stage's class, such as `filter`.
    pub class: &'static str,
    /// Key of its node: equal for one stage in the graphs of all workers. Names need not be unique.
    pub key: u64,
    /// Packets that its predecessors handed to it; `None` for a source.
    pub handed: Option<u64>,
    /// Packets that came in.
    pub received: u64,
    /// Bytes of the packets on the wire.
    pub bytes: u64,
    /// Packets that went on; one that went to several successors counts once.
    pub passed: u64,
    /// The stage's own counters.
    pub counters: StageCounters,
}

impl StageAccount {
    /// Packets that the stage refused. An output refuses none: packets that it did not store are lost.
    pub fn refused(&self) -> u64 {
        match (&self.counters.output, self.counters.refused) {
            (Some(_), _) => 0,
            (None, Some(refused)) => refused,
            (None, None) => {
                self.received.saturating_sub(self.passed + self.counters.held + self.counters.unexamined)
            }
        }
    }

    fn faults(&self) -> impl Iterator<Item = String> {
        let handed = self.handed.filter(|handed| *handed != self.received).map(|handed| {
            format!("{}: {handed} packets were handed to it but {} arrived", self.name, self.received)
        });
        handed.into_iter().chain(self.imbalance())
    }

    fn imbalance(&self) -> Option<String> {
        let StageAccount {
            name,
            received,
            passed,
            counters: StageCounters { held, unexamined, output, reported, .. },
            ..
        } = self;
        if let Some(output) = output {
            let (sum, received) = (output.total() + unexamined, received + reported);
            return (sum != received).then(|| {
                let OutputAccount { written, lost, buffered, .. } = output;
                let skipped = output.skipped();
                format!("{name}: received {received} but written {written} + lost {lost} + skipped {skipped} + buffered {buffered} + unexamined {unexamined} = {sum}")
            });
        }
        let refused = self.refused();
        let sum = passed + refused + held + unexamined;
        (sum != *received).then(|| {
            format!("{name}: received {received} but passed {passed} + refused {refused} + held {held} + unexamined {unexamined} = {sum}")
        })
    }

    fn merge(&mut self, other: StageAccount) {
        self.handed = match (self.handed, other.handed) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
        self.received += other.received;
        self.bytes += other.bytes;
        self.passed += other.passed;
        let (counters, theirs) = (&mut self.counters, other.counters);
        counters.refused = match (counters.refused, theirs.refused) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
        counters.held += theirs.held;
        counters.reported += theirs.reported;
        counters.unexamined += theirs.unexamined;
        counters.recordings_lost += theirs.recordings_lost;
        counters.filter = match (counters.filter.take(), theirs.filter) {
            (Some(mut ours), Some(theirs)) => {
                ours.merge(theirs);
                Some(ours)
            }
            (ours, theirs) => ours.or(theirs),
        };
        counters.output = match (counters.output.take(), theirs.output) {
            // Each tells of all workers, as it was when it was asked: the one asked last knows most.
            (Some(ours), Some(theirs)) if counters.is_shared => {
                Some(if theirs.total() >= ours.total() { theirs } else { ours })
            }
            (Some(mut ours), Some(theirs)) => {
                ours.merge(&theirs);
                Some(ours)
            }
            (ours, theirs) => ours.or(theirs),
        };
    }
}

impl GraphAccount {
    /// Checks every equation. Returns a line for each that does not hold.
    pub fn faults(&self) -> Vec<String> {
        let interfaces = self.interfaces.iter().filter_map(InterfaceAccount::imbalance);
        let before = interfaces.chain(self.delivery_fault());
        before.chain(self.stages.iter().flat_map(StageAccount::faults)).collect()
    }

    /// Returns the accounts of all outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &OutputAccount> {
        self.stages.iter().filter_map(|stage| stage.counters.output.as_ref())
    }

    fn delivery_fault(&self) -> Option<String> {
        let by_interface: u64 = self.interfaces.iter().map(|interface| interface.delivered).sum();
        let sources = self.stages.iter().filter(|stage| stage.handed.is_none());
        let taken = sources.map(|stage| stage.received).sum::<u64>() + self.unexamined;
        let delivered = self.delivered;
        (by_interface != delivered || taken != delivered).then(|| {
            format!("interfaces delivered {by_interface}, {delivered} arrived, and stages with those unexamined took {taken}")
        })
    }

    /// Packets known to be lost anywhere: in rings and at outputs.
    pub fn lost(&self) -> u64 {
        let before = self.interfaces.iter().map(InterfaceAccount::lost);
        before.chain(self.outputs().map(|output| output.lost)).fold(0, u64::saturating_add)
    }

    /// Adds another worker's account: stages with one key are one.
    pub fn merge(&mut self, other: GraphAccount) {
        merge_interfaces(&mut self.interfaces, other.interfaces);
        self.delivered += other.delivered;
        self.unexamined += other.unexamined;
        self.paused += other.paused;
        for theirs in other.stages {
            match self.stages.iter_mut().find(|ours| ours.key == theirs.key) {
                Some(ours) => ours.merge(theirs),
                None => self.stages.push(theirs),
            }
        }
    }

    /// Adds the account of the stages that run once for all workers. Packets that workers handed to them are in `tail`,
    /// or still queued; after the end, queued packets count as unexamined. The planner gives both ends of a queue a name
    /// that no other stage has.
    pub fn join(&mut self, tail: GraphAccount, has_ended: bool) {
        for stage in tail.stages {
            let Some(ours) = self.stages.iter_mut().find(|ours| ours.name == stage.name) else {
                self.stages.push(stage);
                continue;
            };
            let rest = ours.received.saturating_sub(stage.received);
            ours.passed = stage.passed;
            (ours.counters.held, ours.counters.unexamined) = if has_ended { (0, rest) } else { (rest, 0) };
        }
    }

    /// Returns the counts of a `Chain` of `tapline-stages`; `None` for another graph.
    pub fn chain(&self) -> Option<ChainCounts> {
        let limit = self.stages.iter().find(|stage| stage.class == "limit")?;
        let filters = || self.stages.iter().filter(|stage| stage.counters.filter.is_some());
        let names = self.stages.iter().filter(|stage| stage.class == "names");
        let mut outputs = self.stages.iter().filter(|stage| stage.counters.output.is_some());
        // Packets that came to the only output after another worker had completed it went nowhere else.
        let late = match (outputs.next(), outputs.next()) {
            (Some(only), None) => only.counters.unexamined,
            _ => 0,
        };
        let mut filter = FilterAccount::default();
        filters().filter_map(|stage| stage.counters.filter.clone()).for_each(|theirs| filter.merge(theirs));
        let unexamined = self.stages.iter().map(|stage| stage.counters.unexamined).sum::<u64>();
        Some(ChainCounts {
            filtered: filters().chain(names).map(StageAccount::refused).sum(),
            filter,
            accepted: limit.passed.saturating_sub(late),
            unexamined: self.unexamined + unexamined,
        })
    }
}

/// The counts of a chain of filters, a limit and outputs, in the words of `tapline capture`.
#[derive(Clone, Debug, Default)]
pub struct ChainCounts {
    /// Packets that the filters refused.
    pub filtered: u64,
    /// The engines that run the filters.
    pub filter: FilterAccount,
    /// Packets that went to the outputs.
    pub accepted: u64,
    /// Packets that came after the end was decided.
    pub unexamined: u64,
}
