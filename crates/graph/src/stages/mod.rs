//! The stages, one a file.

mod color;
mod decide;
mod filter;
mod fpl;
mod inlet;
mod limit;
mod lines;
mod sink;
mod snap;

pub use decide::{Decide, DecideStage};
pub use filter::{Compile, Faster, FilterStage, native};
pub use fpl::Fpl;
pub use inlet::SourceStage;
pub use limit::Limit;
pub use lines::{Format, LinesSink};
pub use sink::SinkStage;
pub use snap::Snap;
