//! Removes personal data from packets.
//!
//! ```text
//! | link | IP | extensions, options | TCP, UDP, ICMP ... | payload |      addresses: their images, wherever headers have them
//!                                     tunnel: | link | IP | ...          payload: zeros, or the packet ends before it
//!                                     ICMP:   | IP | TCP | ...           checksums: right where they were
//! ```
//!
//! [`Masker::mask`] changes a packet in place. What is not understood is taken for payload, so that no address stays
//! because a protocol is not known. `docs/mask.md` lists what is looked into, and what may stay.
#![forbid(unsafe_code)]

mod checksum;
mod icmp;
mod options;
mod prefix;
mod walk;

pub use prefix::{KEY_LEN, Key, PrefixPreserving};
pub use walk::{Counts, Masker, Payload, Settings};
