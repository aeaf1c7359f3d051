//! Traffic, oracles and network namespaces for Tapline's own tests.
//!
//! ```text
//! random --> traffic (sessions side by side) --> frames (every protocol, sums right)
//!                |                |
//!             sender           capture_file          sends on an interface, or writes a file
//!                |
//!             netns                                   a namespace with a veth pair, gone when dropped
//! ```
//!
//! Nothing here is part of the product: it may ask programs of the system (`ip`, `ethtool`) and run libpcap as an
//! oracle. Everything that is made up comes from a seed, so a failure is repeated by its number.
#![deny(unsafe_code)]

pub mod capture_file;
pub mod ebpf;
pub mod expressions;
pub mod flow_meter;
pub mod forms;
pub mod fpl;
pub mod frames;
pub mod gallery;
pub mod layers;
pub mod lent;
pub mod libpcap;
pub mod netns;
pub mod own_process;
pub mod programs;
pub mod random;
pub mod sample;
pub mod sender;
pub mod stock;
pub mod traffic;
