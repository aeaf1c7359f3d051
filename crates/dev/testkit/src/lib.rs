//! Oracles, random inputs and capture files for Tapline's own tests.
//!
//! ```text
//! random --> expressions, forms, fpl, programs      inputs of the compilers
//!        --> stock, layers, gallery, sample         packets of real and made captures
//! libpcap, ebpf, flow_meter                         oracles: what another implementation answers
//! capture_file                                      pcap and pcapng files, written and read by other code than the product's
//! documents                                         command lines, examples and links of the documents
//! surroundings                                      captures, programs and rights that a test needs
//! own_process                                       a test in a process of its own
//! volume                                            how many random cases a test tries
//! ```
//!
//! No crate of the product depends on this one, which a test over the manifests holds. Network namespaces, traffic and
//! the loader of libpcap come from `tapline-arena`, which the benchmarks of the product use too, and are exported here
//! again, so that a test needs one name. Everything random comes from a seed: a failure is repeated by its number.
#![forbid(unsafe_code)]

pub use tapline_arena::{frame_batches, frames, libpcap, netns, random, sender, traffic};

pub mod capture_file;
pub mod documents;
pub mod ebpf;
pub mod expressions;
pub mod flow_meter;
pub mod forms;
pub mod fpl;
pub mod gallery;
pub mod layers;
pub mod own_process;
pub mod programs;
pub mod sample;
pub mod stock;
pub mod surroundings;
pub mod volume;
