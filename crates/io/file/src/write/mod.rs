//! Writing capture files.
//!
//! ```text
//! batch --encode--> buffer (whole records) --one write--> Output: file, pipe, gzip, zstd, lz4
//!                                                           |
//!                                               Rotation: when to begin the next file, and its name
//! ```

mod blocks;
mod encoder;
mod endings;
mod erf;
#[cfg(test)]
mod failing;
mod frame;
mod name;
mod options;
mod output;
mod packer;
mod pcap;
pub(crate) mod pcapng;
mod rotation;
mod writer;

pub use name::parse_size;
pub use options::{DirectCreator, FileCreator, Format, Precision, WriteOptions};
pub use packer::Packer;
pub use rotation::Rotation;
pub use writer::{FileWriter, WriteProgress};
