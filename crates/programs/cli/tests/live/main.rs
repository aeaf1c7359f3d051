//! The program on virtual links in network namespaces, with other programs at their ends.

#[path = "../support/mod.rs"]
mod support;

mod backends;
mod bench;
mod capture;
mod counting;
mod doctor;
mod drops;
mod extcap;
mod hostile_daemon;
mod link_types;
mod metrics;
mod probe;
mod profile;
mod recorder;
mod replay;
mod send;
mod serve;
mod store;
mod sums;
mod top;
#[cfg(feature = "view")]
mod view;
mod watch;
mod xdp;
