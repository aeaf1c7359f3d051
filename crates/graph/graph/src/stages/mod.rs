//! The stages: a file or folder carries the name of the class that it declares.
//!
//! | file | is |
//! |---|---|
//! | `source`, `limit`, `snap`, `shared`, `store`, `packet_batches` | stages without a class: the commands put them into graphs |
//! | `arrow` | packets as Arrow, without a class |
//! | `lines` | `print` and `json` |
//! | `flow_export` | the halves that `ipfix`, `flowlog` and `batches` have in common |
//! | `flow_filter` | filters of packets, asked about flows |
//! | `streams` | `reassemble`, `streams` and `extract` |
//! | `publish` | a place of the graph as a capture, and its source |
//! | `held`, `recent`, `color`, `folder`, `input_file` | parts of several stages |

mod arrow;
pub(crate) mod balance;
pub(crate) mod batches;
pub(crate) mod bounce;
mod changed_file;
pub(crate) mod collect;
mod color;
pub(crate) mod count;
pub(crate) mod cut;
pub(crate) mod decap;
pub(crate) mod dedup;
pub(crate) mod delay;
pub(crate) mod drop;
mod filter;
pub(crate) mod filters;
pub(crate) mod first;
pub(crate) mod flow;
mod flow_export;
mod flow_filter;
pub(crate) mod flowlog;
pub(crate) mod flowtop;
mod folder;
pub(crate) mod fpl;
mod held;
pub(crate) mod histogram;
pub mod input_file;
pub(crate) mod ipfix;
mod limit;
mod lines;
pub(crate) mod mask;
pub(crate) mod r#match;
pub(crate) mod merge;
mod packet_batches;
mod places;
pub(crate) mod publish;
pub(crate) mod rate;
mod recent;
mod record;
pub(crate) mod reflect;
pub(crate) mod rtp;
pub(crate) mod rules;
pub(crate) mod sample;
mod shared;
pub(crate) mod shunt;
pub(crate) mod signatures;
mod snap;
mod source;
mod store;
pub(crate) mod streams;
pub(crate) mod switch;
pub(crate) mod tee;
pub(crate) mod top;
pub(crate) mod trailer;
mod unfit;
pub(crate) mod verify;
pub(crate) mod view;
pub(crate) mod watch;

pub use tapline_watch::CommandStarter;

pub use arrow::arrow_output;
pub use bounce::{Bounce, CLASS as BOUNCE};
pub use filter::{CompileFilter, CompileNative, FilterStage, fits_any};
pub use fpl::{CompileFpl, FplProgram, FplStage, functions, search_function};
pub use limit::Limit;
pub use lines::{LineFormat, LinesOutput};
pub use packet_batches::{ChunkOutput, ChunkSettings};
pub use places::PlaceFiles;
pub(crate) use places::add_place_files;
pub use publish::{CLASS as PUBLISH, Publish, PublishedSource};
pub use record::FileOutput;
pub use reflect::{CLASS as REFLECT, Reflect};
pub use rules::RuleFiles;
pub use shared::SharedOutput;
pub use snap::Snap;
pub use source::SourceStage;
pub use store::StoreOutput;
pub use verify::Verify;
pub use watch::{STACK_LEN as WATCH_STACK_LEN, check as check_watch, counted};
