//! Where packets go besides files and lines: a count.

mod count;

pub(crate) use count::CountSink;
