//! Stages over batches, the graph that joins them, and the one loop that drives it. The crate `tapline-stages` has the
//! stages themselves.
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

mod account;
pub mod catalog;
mod cooked_source;
mod delegate;
mod engine;
mod graph;
mod interface_meters;

pub mod language;
mod packets;
mod piece_source;
pub mod plan;
mod reload;
mod restamped;
mod shard;
mod source_stage;
mod stage;
mod table;
mod worker_merge;
mod worker_source;

pub use account::{ChainCounts, GraphAccount, StageAccount};
pub use cooked_source::CookedSource;
pub use engine::{Control, Engine, GraphChange, Inlet, OrderRefused, RunEnd, RunOutcome, RunReport};
pub use graph::{Graph, NewNode, NodeId, Out, Output};
pub use packets::Packets;
pub use piece_source::PieceSource;
pub use reload::ReloadRequests;
pub use restamped::{RestampedSource, StampTicks};
pub use shard::FlowShardSource;
pub use source_stage::SourceStage;
pub use stage::{
    ChangesPart, CollectedRecords, ExpiredFlows, FlowChanges, MeteredSecond, Stage, StageCounters,
    StageStatus, TickContext,
};
pub use table::{Cell, StageResult, Table, grouped};
pub use worker_merge::{MergeInputs, MergedSource, TimedSource, Watermark, WorkerMerge, append_packet};
pub use worker_source::WorkerSource;
