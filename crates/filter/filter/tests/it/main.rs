//! One program for the integration tests of this crate.

mod bpf;
mod deviations;
mod differential;
mod ebpf;
mod extensions;
mod headers;
mod lengths;
mod lists;
mod metadata;
mod modifiers;
mod passes;
mod program_lengths;
mod texts;
mod wide;
