//! The stages of graphs: a file or folder carries the name of the class that it declares. `tapline-graph` runs them.
//!
//! | file | is |
//! |---|---|
//! | `limit`, `snap`, `shared`, `store`, `packet_batches` | stages without a class: the commands put them into graphs |
//! | `arrow` | packets as Arrow, without a class |
//! | `lines` | `print` and `json` |
//! | `flow_export` | the halves that `ipfix`, `flowlog` and `batches` have in common |
//! | `flow_filter` | filters of packets, asked about flows |
//! | `streams` | `reassemble`, `streams` and `extract` |
//! | `publish` | a place of the graph as a capture, and its source |
//! | `held`, `tag_look`, `recent`, `color`, `folder`, `input_file` | parts of several stages |
#![forbid(unsafe_code)]

// Tests of stages share their harness with those outside of the crate, which know it by its name.
#[cfg(test)]
extern crate self as tapline_stages;

mod arista7150;
mod arrow;
mod balance;
mod batches;
mod bounce;
mod bursts;
mod chain;
mod changed_file;
mod classes;
mod collect;
mod color;
mod count;
mod cut;
mod decap;
mod dedup;
mod delay;
mod drop;
mod filter;
mod filters;
mod first;
mod flow;
mod flow_export;
mod flow_filter;
mod flow_results;
mod flowlog;
mod flowtop;
mod folder;
mod fpl;
mod generated;
mod held;
mod histogram;
pub mod input_file;
mod ipfix;
mod labels;
mod limit;
mod lines;
mod live_clock;
mod mask;
mod r#match;
mod merge;
mod names;
mod packet_batches;
mod passes;
mod places;
mod publish;
mod rate;
mod recent;
mod record;
mod reflect;
mod rtp;
mod rules;
mod sample;
mod script;
mod settings;
mod shared;
mod shunt;
mod signatures;
mod snap;
mod store;
mod streams;
mod switch;
mod tag_look;
mod tee;
mod top;
mod topic_source;
mod trailer;
mod unfit;
mod verify;
mod view;
mod watch;

pub use tapline_watch::CommandStarter;

pub use arrow::arrow_output;
pub use bounce::{Bounce, CLASS as BOUNCE};
pub use chain::Chain;
pub use classes::{DEVICE, FILE, FILTER_TEXT, JSON, LISTEN, PRINT, RECORD, STORE, catalog};
pub use filter::{CompileFilter, CompileNative, FilterStage, fits_any};
pub use flow_results::{FlowResults, FlowRow};
pub use fpl::{CompileFpl, FplProgram, FplStage, functions, search_function};
pub use generated::GeneratedSource;
pub use limit::Limit;
pub use lines::{LineFormat, LinesOutput};
pub use names::{Names, split_names};
pub use packet_batches::{ChunkOutput, ChunkSettings};
pub use passes::{filter_in_user_space, kernel_tally};
pub use places::PlaceFiles;
pub use publish::{CLASS as PUBLISH, Publish, PublishedSource};
pub use record::FileOutput;
pub use reflect::{CLASS as REFLECT, Reflect};
pub use rules::RuleFiles;
pub use settings::{InterfaceOptions, StageSettings};
pub use shared::SharedOutput;
pub use snap::Snap;
pub use store::StoreOutput;
pub use tag_look::TagLook;
pub use tapline_view::{Error as ViewError, ViewFile};
pub use topic_source::TopicSource;
pub use verify::Verify;
pub use watch::{STACK_LEN as WATCH_STACK_LEN, check as check_watch, counted};

#[cfg(test)]
#[path = "../tests/it/trial/mod.rs"]
mod trial;
