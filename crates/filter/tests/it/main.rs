//! One program for the integration tests of this crate.

mod bpf;
mod deviations;
mod differential;
mod ebpf;
mod extensions;
mod forms;
mod fpl;
mod headers;
mod lengths;
mod lists;
mod metadata;
mod passes;
mod set;
mod set_fragments;
mod texts;
mod wide;
mod wide_bpf;
