//! The stages, one a file.

pub(crate) mod balance;
mod color;
pub(crate) mod count;
pub(crate) mod cut;
pub(crate) mod decap;
mod decide;
pub(crate) mod dedup;
pub(crate) mod delay;
pub(crate) mod drop;
mod filter;
pub(crate) mod first;
mod fpl;
mod held;
pub(crate) mod histogram;
mod inlet;
mod limit;
mod lines;
pub(crate) mod merge;
pub(crate) mod rate;
pub(crate) mod sample;
pub(crate) mod search;
pub(crate) mod set;
mod sink;
mod snap;
pub(crate) mod tee;
pub(crate) mod top;
pub(crate) mod verify;

pub use decide::{Decide, DecideStage};
pub use filter::{Compile, Faster, FilterStage, native};
pub use fpl::Fpl;
pub use inlet::SourceStage;
pub use limit::Limit;
pub use lines::{Format, LinesSink};
pub use sink::SinkStage;
pub use snap::Snap;
pub use verify::Verify;
