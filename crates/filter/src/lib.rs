//! The pcap-filter language compiled to classic BPF, and the interpreter that is its reference.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod cfg;
