//! Removes personal data from packets.
//!
//! ```text
//! | link | IP | extensions, options | TCP, UDP, ICMP ... | payload |      addresses: their images, wherever headers have them
//!                                     tunnel: | link | IP | ...          payload: zeros, or the packet ends before it
//!                                     ICMP:   | IP | TCP | ...           checksums: right where they were
//! ```
//!
//! [`Masker::mask`] changes a packet in place. Unknown bytes count as payload, so that no address stays because a
//! protocol is not known. `docs/mask.md` lists the parsed protocols, and the bytes that may stay.
#![forbid(unsafe_code)]

mod checksum;
mod icmp;
mod options;
mod prefix;
mod walk;

pub use prefix::{KEY_LEN, Key, PrefixPreserving};
pub use walk::{Counts, Masker, Payload, Settings};
