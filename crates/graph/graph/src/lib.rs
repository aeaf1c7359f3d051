//! Stages over batches, the graph that joins them, and the one loop that drives it.
//!
//! ```text
//! Source --lends--> Batch --> Graph: stage -> stage -> ... -> output
//!    ^                          |  each narrows the selection, counts, keeps, lends other packets
//!    |                          v
//!  Engine: advance, push, tick, finish        Meter: cycles, packets, bytes of each stage
//! ```
//!
//! - [`Stage`] is one step of the work, [`Graph`] joins steps for one worker, [`Engine`] drives sources through a
//!   graph.
//! - [`GraphAccount`] says where every packet went, and whether that adds up.
#![forbid(unsafe_code)]

// Tests of stages share their harness with those outside of the crate, which know it by its name.
#[cfg(test)]
extern crate self as tapline_graph;

mod account;
pub mod catalog;
mod chain;
mod cooked_source;
mod delegate;
mod engine;
mod generated;
mod graph;
mod interface_meters;

pub mod language;
mod live_clock;
mod packets;
pub mod plan;
mod reload;
mod restamped;
mod shard;
mod stage;
pub mod stages;
mod table;
mod topic_source;
mod worker_merge;
mod worker_source;

pub use account::{ChainCounts, GraphAccount, StageAccount};
pub use chain::Chain;
pub use cooked_source::CookedSource;
pub use engine::{Control, Engine, GraphChange, Inlet, OrderRefused, RunEnd, RunOutcome, RunReport};
pub use generated::GeneratedSource;
pub use graph::{Graph, NewNode, NodeId, Out, Output};
pub use packets::Packets;
pub use reload::ReloadRequests;
pub use restamped::{RestampedSource, StampTicks};
pub use shard::FlowShardSource;
pub use stage::{
    ChangesPart, ExpiredFlows, FlowChanges, MeteredSecond, Stage, StageCounters, StageStatus, TickContext,
};
pub use table::{Cell, Table, grouped};
pub use tapline_view::{Error as ViewError, ViewFile};
pub use topic_source::TopicSource;
pub use worker_merge::{MergeInputs, MergedSource, TimedSource, Watermark, WorkerMerge};
pub use worker_source::WorkerSource;

#[cfg(test)]
#[path = "../tests/it/trial/mod.rs"]
mod trial;
