//! A link in a network namespace, traffic to send over it, and the system's libpcap: the ground of benchmarks and live
//! tests.
//!
//! ```text
//! random --> traffic (sessions side by side) --> frames (every protocol, checksums right) --> frame_batches (batches in memory)
//!                |
//!             sender --> near0 ===veth=== far0 --> the program under test      netns makes the pair and removes it
//!                                          |
//!                                       libpcap, loaded at run time            the peer to compare with
//! ```
//!
//! Traffic comes from a seed: the same seed gives the same frames on every machine. Namespaces are made with the
//! programs `ip` and `ethtool`, and need root.
#![deny(unsafe_code)]

pub mod frame_batches;
pub mod frames;
pub mod libpcap;
pub mod netns;
pub mod random;
pub mod sender;
pub mod traffic;
