//! What a stage is.
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
//! use tapline_graph::{Error, Out, Packets, Stage};
//!
//! /// Lets every second packet through.
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

use tapline_capture::{Error, FilterAccount, InterfaceAccount, OutputAccount, Wants};
use tapline_flow::Flow;
use tapline_packet::{Now, Timestamp};

use crate::graph::Out;
use crate::packets::Packets;
use crate::table::Table;

/// One step of the work: it takes packets, and hands on what is to go on.
///
/// The engine counts what comes in and what goes out of each stage, and the cycles between; a stage does not count for the account.
pub trait Stage: Send {
    /// Takes packets, at least one. What goes on is handed to `out`; what is not has been refused, kept, or stored.
    ///
    /// # Errors
    /// The run ends; the other stages still get these packets, and every output is completed.
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error>;

    /// Flows that a stage before found to have ended. They travel beside the packets, and are not in the account of those.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn flows(&mut self, ended: &Ended<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        out.pass_flows(ended)
    }

    /// The source has nothing to lend: what lingers in buffers goes out.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn idle(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Ten times a second, with or without packets.
    ///
    /// # Errors
    /// As for [`push`](Stage::push).
    fn tick(&mut self, _moment: &Moment<'_>, _out: &mut Out<'_>) -> Result<Wants, Error> {
        Ok(Wants::More)
    }

    /// The end: what is kept goes on, outputs are completed. Called once, before that of the stages that follow.
    ///
    /// # Errors
    /// What could not be completed; the other stages are finished all the same.
    fn finish(&mut self, _moment: &Moment<'_>, _out: &mut Out<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// What the stage alone knows of the packets that it did not hand on.
    fn own(&self) -> Own {
        Own::default()
    }

    /// What it found out, for people and machines; `None` for stages that only hand on.
    fn result(&self) -> Option<Table> {
        None
    }

    /// What a person should know of while it runs, each thing once, as sentences without a full stop.
    fn events(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// What it holds now, for those who look on while it runs (`tapline top`): asked ten times a second. Up to
    /// [`EXTRAS_MAX`](tapline_profile::EXTRAS_MAX) names of at most 16 bytes. Over workers numbers are added; of a name that ends in `_max` the greatest counts.
    fn gauges(&self, _tell: &mut dyn FnMut(&str, u64)) {}

    /// Adds what the same stage found out in another worker. Whoever gives a [`result`](Stage::result) must.
    fn absorb(&mut self, _other: &dyn Any) {}

    /// Itself, for [`absorb`](Stage::absorb).
    fn as_any(&self) -> &dyn Any {
        &()
    }
}

/// When a stage is called by the clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The time by the wall clock.
    pub now: Timestamp,
    /// The same by the steady clock, for intervals: see [`Now`].
    pub steady_ns: i64,
    /// What became of packets before they were lent, by interface.
    pub interfaces: &'a [InterfaceAccount],
}

impl<'a> Moment<'a> {
    /// The moment at which the clocks show `now`.
    pub fn new(now: Now, interfaces: &'a [InterfaceAccount]) -> Moment<'a> {
        Moment { now: now.wall, steady_ns: now.steady_ns, interfaces }
    }

    /// What both clocks show.
    pub fn clocks(&self) -> Now {
        Now { wall: self.now, steady_ns: self.steady_ns }
    }
}

/// Flows that have ended, on their way from the meter to who wants them.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The flows.
    pub flows: &'a [Flow],
    /// What time it is where they come from: the packets' own time for files, the clock's for live interfaces.
    pub now: Timestamp,
    /// One of so many packets was metered; 1 for all.
    pub sampling: u32,
    /// They are of live interfaces: whoever keeps their meter waiting makes it miss packets.
    pub is_live: bool,
}

/// What a stage alone knows of packets that came in and did not go on.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Packets that it refused; `None` if that is all that did not go on.
    pub refused: Option<u64>,
    /// Packets that it keeps and will hand on.
    pub held: u64,
    /// Packets that came after the end was decided, which it did not look at.
    pub unexamined: u64,
    /// Packets that went on by at least one output, where one packet may go by several; `None` if each goes by one at most.
    pub matched: Option<u64>,
    /// What became of those that it stored; of all workers together, where they share the output.
    pub output: Option<OutputAccount>,
    /// Whether other workers store into the same output.
    pub is_shared: bool,
    /// What runs its filters.
    pub filter: Option<FilterAccount>,
}
