//! The settings of a writer of files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tapline_packet::{Interface, Resolution};

use super::Rotation;
use crate::copied::BlockQueue;
use crate::input::Compression;
use crate::section::Section;

/// A format of written files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap, which every tool reads: packets of one link type.
    Pcap,
    /// pcapng: several interfaces, statistics, comments.
    Pcapng,
    /// ERF, the records of Endace DAG cards: Ethernet, HDLC, IP and InfiniBand, of up to four interfaces.
    Erf,
}

impl Format {
    /// The format by the ending of a file's name, before one that names a compression: pcapng for `.pcapng` and
    /// `.ntar`, ERF for `.erf`, else pcap.
    ///
    /// ```
    /// use tapline_file::Format;
    /// assert_eq!(Format::from_name("a.pcapng.zst".as_ref()), Format::Pcapng);
    /// assert_eq!(Format::from_name("a.cap".as_ref()), Format::Pcap);
    /// ```
    pub fn from_name(path: &Path) -> Format {
        let path = match Compression::from_name(path) {
            Some(_) => path.with_extension(""),
            None => path.to_owned(),
        };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "pcapng" | "ntar" => Format::Pcapng,
            "erf" => Format::Erf,
            _ => Format::Pcap,
        }
    }
}

/// The unit of times in a pcap file. pcapng is always written in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Microseconds: magic a1b2c3d4, which every tool reads.
    Micro,
    /// Nanoseconds: magic a1b23c4d.
    Nano,
}

impl Precision {
    /// The coarsest unit that loses nothing: microseconds, for old tools, if no interface has finer times.
    pub fn of(interfaces: &[Interface]) -> Precision {
        let is_micro = |interface: &Interface| match interface.resolution {
            Resolution::Decimal(n) => n <= 6,
            Resolution::Binary(n) => n == 0,
        };
        if interfaces.iter().all(is_micro) { Precision::Micro } else { Precision::Nano }
    }
}

/// The settings of a writer of files.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The name of the file; with rotation, the pattern of the names. `-` is standard output.
    pub path: PathBuf,
    /// The format.
    pub format: Format,
    /// The unit of times in pcap.
    pub precision: Precision,
    /// The compression of the file, if there is one.
    pub compression: Option<Compression>,
    /// The conditions for a new file.
    pub rotation: Rotation,
    /// Whether each batch is written at once, so that readers see it (`-U`).
    pub is_flushed_each_batch: bool,
    /// Whether a file in progress is called `NAME.part`.
    pub has_part_name: bool,
    /// The most bytes of a packet, for the header if the interface gives none; 0 for no limit.
    pub snap_len: u32,
    /// Whether packets that are longer than the snap length of their interface keep all bytes. `snap_len` is 0 then:
    /// descriptions in pcapng give no limit, a pcap header that of the link type.
    pub keeps_all_bytes: bool,
    /// The section header of pcapng: the program that writes, and its machine.
    pub section: Section,
    /// Nanoseconds between interface statistics in pcapng. 0: only at the end of each file.
    pub statistics_interval_ns: i64,
    /// Blocks without packets for pcapng files: those of the files that are copied, and secrets.
    pub blocks: Option<BlockQueue>,
}

impl WriteOptions {
    /// Defaults: format and compression by the name's ending, precision by the interfaces, one file, no `.part`.
    pub fn new(path: &Path, interfaces: &[Interface]) -> WriteOptions {
        WriteOptions {
            path: path.to_owned(),
            format: Format::from_name(path),
            precision: Precision::of(interfaces),
            compression: Compression::from_name(path),
            rotation: Rotation::default(),
            is_flushed_each_batch: false,
            has_part_name: false,
            snap_len: 0,
            keeps_all_bytes: false,
            section: Section::default(),
            statistics_interval_ns: 10_000_000_000,
            blocks: None,
        }
    }

    /// Whether the output is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}

/// A creator of files: this process, or one that kept its rights when this one gave them up.
pub trait FileCreator: Send {
    /// Creates the file, or empties it if it exists, for writing.
    ///
    /// # Errors
    /// As open(2).
    fn create(&mut self, path: &Path) -> io::Result<File>;

    /// Renames a file, replacing what bears the new name.
    ///
    /// # Errors
    /// As rename(2).
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
}

/// Creates files as this process itself; as root by the rules of [`tapline_sys::output_file`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectCreator;

impl FileCreator for DirectCreator {
    /// A file that another program writes with a lock (flock(2)), as this one does, is refused before it is emptied.
    fn create(&mut self, path: &Path) -> io::Result<File> {
        tapline_sys::output_file::create_locked(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        tapline_sys::output_file::rename(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::LinkType;

    #[test]
    fn formats_by_name() {
        let cases = [
            ("x", Format::Pcap),
            ("x.PCAPNG", Format::Pcapng),
            ("x.pcapng.gz", Format::Pcapng),
            ("x.Erf.zst", Format::Erf),
            ("x.gz", Format::Pcap),
        ];
        for (name, format) in cases {
            assert_eq!(Format::from_name(name.as_ref()), format, "{name}");
        }
    }

    #[test]
    fn nanoseconds_only_where_they_are_needed() {
        let mut micro = Interface::new("a", LinkType::ETHERNET);
        micro.resolution = Resolution::MICRO;
        let nano = Interface::new("b", LinkType::ETHERNET);
        assert_eq!(Precision::of(&[]), Precision::Micro);
        assert_eq!(Precision::of(&[micro.clone()]), Precision::Micro);
        assert_eq!(Precision::of(&[micro, nano]), Precision::Nano);
    }
}
