//! The trait of stages.
//!
//! ```text
//!            push(packets)            out.pass(packets)
//! stage A ------------------> stage B ------------------> stage C, D, ...
//!                               |  counts, keeps, narrows the selection, lends other packets
//! ```
//!
//! A whole stage:
//!
//! ```
//! use tapline_graph::{Out, Packets, Stage};
//! use tapline_source::Error;
//!
//! /// Passes every second packet.
//! struct Half(bool);
//!
//! impl Stage for Half {
//!     fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
//!         packets.selection.retain(|_| {
//!             self.0 = !self.0;
//!             self.0
//!         });
//!         out.pass(packets)
//!     }
//! }
//! ```

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use tapline_flow::export::{RecordBatch, RecordLayout};
use tapline_flow::{Flow, Journal, Sampling, Statistics};
use tapline_packet::{ClockReading, Interface, Timestamp};
use tapline_source::{Error, FilterAccount, InterfaceAccount, OutputAccount, SkipCause, UncapturedCounts};

use crate::graph::Out;
use crate::packets::Packets;
use crate::table::Table;

/// A stage of a graph: takes packets, and passes some of them on.
///
/// The graph counts the packets into and out of each stage, and its cycles; a stage counts only the quantities of its
/// [`StageCounters`].
pub trait Stage: Any + Send {
    /// Processes packets, at least one. Packets passed to `out` go on; all others are refused, held or stored by the
    /// stage.
    ///
    /// # Errors
    /// The run ends; the other stages still get these packets, and every output is completed.
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error>;

    /// Processes expired flows of a meter before this stage. Flows are not in the account of packets.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn flows(&mut self, ended: &ExpiredFlows<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        out.pass_flows(ended)
    }

    /// The layout of records that the stage takes at present in place of collected flows; `None` if it takes none.
    fn record_layout(&self) -> Option<Arc<RecordLayout>> {
        None
    }

    /// Processes records of collected flows in the stage's [`record_layout`](Stage::record_layout), as it would process the
    /// flows. Stages without a layout are given none.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn records(&mut self, _collected: &CollectedRecords<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Processes the counts of flows of a meter before this one: see [`FlowChanges`].
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn changes(&mut self, changes: &FlowChanges<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        out.pass_changes(changes)
    }

    /// Called with the table of interfaces when it has grown, before packets of the new ones come. Stages behind one
    /// that makes interfaces of its own ([`has_own_interfaces`](Stage::has_own_interfaces)) are not called.
    fn join(&mut self, _interfaces: &[Interface]) {}

    /// Whether packets that the stage hands on belong to interfaces of its own.
    fn has_own_interfaces(&self) -> bool {
        false
    }

    /// Called when the source has no packets: buffered output is flushed.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn idle(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Called ten times a second, with or without packets.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn tick(&mut self, _tick: &TickContext<'_>, _out: &mut Out<'_>) -> Result<StageStatus, Error> {
        Ok(StageStatus::Running)
    }

    /// Called once at the end, before the stages that follow: held packets go on, outputs are completed.
    ///
    /// # Errors
    /// The error of an output that could not be completed; the other stages are finished all the same.
    fn finish(&mut self, _tick: &TickContext<'_>, _out: &mut Out<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// The stage's counters of packets that it did not hand on.
    fn counters(&self) -> StageCounters {
        StageCounters::default()
    }

    /// The stage's result, for people and machines; `None` for stages that only hand on.
    fn result(&self) -> Option<Table> {
        None
    }

    /// The values of which the result is made, for programs that show them in another form.
    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Events since the last call for the user, as sentences without a full stop.
    fn events(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// As [`events`](Stage::events), for normal events: no warnings.
    fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Gauges for `tapline top`, read ten times a second: up to [`EXTRAS_MAX`](tapline_meters::EXTRAS_MAX) names of at
    /// most 16 bytes. Values are summed over workers; of a name that ends in `_max` the maximum counts.
    fn gauges(&self, _tell: &mut dyn FnMut(&str, u64)) {}

    /// Adds the result of the same stage in another worker. Required if [`result`](Stage::result) returns `Some`.
    fn merge(&mut self, _other: &dyn Any) {}
}

/// The state of a stage after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStatus {
    /// The stage takes more packets.
    Running,
    /// The stage is complete and ends the run: the requested number of files is written.
    Complete,
}

/// The clocks and counters at a tick.
#[derive(Clone, Copy, Debug)]
pub struct TickContext<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// The steady clock in nanoseconds, for intervals: see [`ClockReading`].
    pub steady_ns: i64,
    /// The account of each interface: packets before they reached the graph.
    pub interfaces: &'a [InterfaceAccount],
    /// Failures of the sources to capture interfaces.
    pub uncaptured: UncapturedCounts,
    /// Whether packets have other interface numbers than these rows: a stage before makes
    /// [interfaces of its own](Stage::has_own_interfaces).
    pub is_renumbered: bool,
}

impl<'a> TickContext<'a> {
    /// A tick at `now`, without failures to capture interfaces.
    pub fn new(now: ClockReading, interfaces: &'a [InterfaceAccount]) -> TickContext<'a> {
        let uncaptured = UncapturedCounts::default();
        TickContext { now: now.wall, steady_ns: now.steady_ns, interfaces, uncaptured, is_renumbered: false }
    }

    /// As a stage gets it whose packets are renumbered or not.
    pub(crate) fn renumbered(self, is_renumbered: bool) -> TickContext<'a> {
        TickContext { is_renumbered, ..self }
    }

    pub(crate) fn finish(self, stage: &mut dyn Stage, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        stage.finish(&self, out).map(|()| StageStatus::Running)
    }

    /// Both clocks.
    pub fn clocks(&self) -> ClockReading {
        ClockReading { wall: self.now, steady_ns: self.steady_ns }
    }
}

/// Flows that have expired, on their way from the meter to the stages behind it.
#[derive(Clone, Copy, Debug)]
pub struct ExpiredFlows<'a> {
    /// The flows.
    pub flows: &'a [Flow],
    /// The time of the flows' source: the packets' own time for files, the wall clock for live interfaces.
    pub now: Timestamp,
    /// Sampling of packets or flows, as records report it; none if they are scaled.
    pub sampling: Sampling,
    /// The flows are of live interfaces, so a stage that blocks here makes the meter miss packets.
    pub is_live: bool,
    /// The factor by which the flows' packets and bytes were multiplied, as an estimate that includes sampled out
    /// packets; 1 for real counts.
    pub scale: u64,
    /// Packets of flows that ended and are not among these, and why they are not.
    pub left_out: (SkipCause, u64),
    /// Other exporters metered the flows: the packets that they count did not come along the graph's edges.
    pub is_collected: bool,
}

impl ExpiredFlows<'_> {
    /// Packets that the flows count if other exporters metered them, else 0.
    pub fn reported(&self) -> u64 {
        if self.is_collected { self.flows.iter().map(Flow::answered_packets).sum() } else { 0 }
    }
}

/// Records of collected flows, on their way to the only stage behind, which takes them in place of the flows.
#[derive(Clone, Copy, Debug)]
pub struct CollectedRecords<'a> {
    /// The records, in the layout of the stage behind.
    pub records: &'a RecordBatch,
    /// As of [`ExpiredFlows`].
    pub now: Timestamp,
    /// The records come from live interfaces.
    pub is_live: bool,
}

/// Counts of flows, on their way from a meter with `view=yes` to the stages behind it. The totals follow the last
/// part of a second.
#[derive(Clone, Copy, Debug)]
pub struct FlowChanges<'a> {
    /// A part.
    pub part: Option<ChangesPart<'a>>,
    /// Whether it is of live interfaces.
    pub is_live: bool,
    /// The totals, after all parts of a second.
    pub second: Option<&'a MeteredSecond>,
    /// To be set by a stage that has missed a part and can use journals again: behind this part each flow is described
    /// once more.
    pub is_wanted_again: &'a Cell<bool>,
}

/// A part of the counts of flows.
#[derive(Clone, Copy, Debug)]
pub enum ChangesPart<'a> {
    /// The work of the meter since the previous part.
    Journal(&'a Arc<Journal>),
    /// Flows that other exporters metered: all that they count.
    Collected(&'a [Flow]),
}

/// The totals of a meter at the end of a second: all numbers are since its start.
#[derive(Clone, Debug)]
pub struct MeteredSecond {
    /// The end of the second: by the wall clock on live interfaces, else by the packets.
    pub end: Timestamp,
    /// The counters of the meter. The parts add up to the packets metered.
    pub statistics: Statistics,
    /// The names of the interfaces, by the numbers that flows have; as far as packets came.
    pub interfaces: Vec<(u32, String)>,
    /// The account of each interface, as it was read last.
    pub accounts: Vec<InterfaceAccount>,
    /// The sampling interval: 1 in this many packets or flows is metered.
    pub sampling: u64,
}

/// A stage's counters of packets that came in and did not go on.
#[derive(Clone, Debug, Default)]
pub struct StageCounters {
    /// Packets refused; `None` if every packet that did not go on was.
    pub refused: Option<u64>,
    /// Packets from the counters of collected flows, in addition to the packets received.
    pub reported: u64,
    /// Packets kept, which will go on later.
    pub held: u64,
    /// Packets that came after the end was decided, and were not examined.
    pub unexamined: u64,
    /// Packets that went on by at least one output, where one packet may go by several; `None` if each goes by one at
    /// most.
    pub matched: Option<u64>,
    /// The account of an output; of all workers together, where they share it.
    pub output: Option<OutputAccount>,
    /// Packets that could not be written to recordings, which the stage makes in addition to its output. A packet may
    /// be in several of them.
    pub recordings_lost: u64,
    /// Other workers store into the same output.
    pub is_shared: bool,
    /// The engines that run the stage's filters.
    pub filter: Option<FilterAccount>,
}

impl StageCounters {
    /// The counters of an output.
    pub fn of_output(output: OutputAccount) -> StageCounters {
        StageCounters { output: Some(output), ..StageCounters::default() }
    }

    /// The counters of an output that has written all packets.
    pub fn of_written(name: &str, packets: u64) -> StageCounters {
        StageCounters::of_output(OutputAccount::of_written(name, packets))
    }
}
