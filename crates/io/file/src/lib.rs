//! pcap, pcapng and ERF files, plain or compressed: readers and writers.
//!
//! ```text
//! FileSource    one file  --advance--> batch      reading: packets are lent in place, 256 at a time
//! FilePieces    one large file that several threads read at once
//! MergedSource  several files, by time or one after the other
//! SectionReader sections of pcapng in memory         blocks         pcapng, block by block
//! ```
//!
//! Formats and all limits are in `docs/files.md`. No length in a file makes this crate allocate; a contradiction in a
//! file is an [`Error`] that names the byte.
#![forbid(unsafe_code)]

pub mod blocks;
mod byte_order;
mod copied;
mod error;
mod excerpt;
mod file_input;
mod input;
mod merge;
mod read;
mod section;
mod section_reader;
mod source;
mod write;
mod zone;

pub use byte_order::ByteOrder;
pub use copied::{BlockQueue, CopiedBlock, LeftOut, RawBlock, SecretsKind};
pub use error::{Error, FilePosition, WriteError};
pub use excerpt::{Excerpt, PacketNumbers};
pub use file_input::{FileInput, FilePieces, PieceCounts};
pub use input::Compression;
pub use merge::{MergeOrder, MergedSource};
pub use section::{InterfaceStatistics, Section};
pub use section_reader::SectionReader;
pub use source::{FileSource, InterfaceCounters, ReadMode};
pub use write::{
    DirectCreator, FileCreator, FileWriter, Format, Packer, Precision, Rotation, WriteOptions, WriteProgress,
    parse_size,
};
pub use zone::system_zone;
