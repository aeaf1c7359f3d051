//! Whole datagrams through the collector.
