//! Where packets go besides files: text, JSON lines, a count.

mod color;
mod count;
mod lines;

pub(crate) use count::CountSink;
pub(crate) use lines::{Format, LinesSink};
