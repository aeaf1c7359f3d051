//! The recorders: how to start each, and how to read its files at the end.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tapline_measure::answer;
use tapline_testkit::netns::{FAR, has_program};

use super::bytes_below;

/// Bytes of every recorder's ring, in MiB.
const RING_MIB: u64 = 256;
/// Bytes of a block of Stenographer's files.
const BLOCK_LEN: usize = 1 << 20;

tapline_packet::named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Recorder {
        Tapline = "tapline",
        TaplineNoIndex = "tapline, no index",
        /// stenotype, the recorder of Stenographer, alone.
        Stenotype = "stenographer",
        StenotypeNoIndex = "stenographer, no index",
        NetsniffNg = "netsniff-ng",
        Dumpcap = "dumpcap",
        Tcpdump = "tcpdump",
        Daemonlogger = "daemonlogger",
    }
}

/// Recorders with an index and recorders without, ours first.
pub(super) const ALL: [Recorder; 8] = [
    Recorder::Tapline,
    Recorder::Stenotype,
    Recorder::TaplineNoIndex,
    Recorder::StenotypeNoIndex,
    Recorder::NetsniffNg,
    Recorder::Dumpcap,
    Recorder::Tcpdump,
    Recorder::Daemonlogger,
];

/// Names of programs that are not here.
pub(super) fn missing() -> Vec<&'static str> {
    let programs = [
        "stenotype",
        "stenographer",
        "stenoread",
        "netsniff-ng",
        "dumpcap",
        "tcpdump",
        "daemonlogger",
        "fio",
    ];
    programs.into_iter().filter(|program| !has_program(program)).collect()
}

impl Recorder {
    /// Whether it is installed here.
    pub(super) fn is_here(self, tapline: &Path) -> bool {
        match self {
            Recorder::Tapline => true,
            Recorder::TaplineNoIndex => records_without_index(tapline),
            Recorder::Stenotype | Recorder::StenotypeNoIndex => has_program("stenotype"),
            other => has_program(other.name()),
        }
    }

    pub(super) fn has_index(self) -> bool {
        matches!(self, Recorder::Tapline | Recorder::Stenotype)
    }

    /// The command and its arguments, which record `far0` to files below `folder`, with room for `mib` MiB.
    pub(super) fn command(self, tapline: &Path, folder: &Path, mib: u64) -> Result<Vec<String>> {
        let path = |name: &str| folder.join(name).display().to_string();
        let here = format!("{}/", folder.display());
        let ring = RING_MIB.to_string();
        let words: Vec<String> = match self {
            Recorder::Tapline | Recorder::TaplineNoIndex => {
                let segment = if mib >= 1024 { "256MiB" } else { "64MiB" };
                let size = format!("{}MiB", (mib.max(128) / 64 + 1) * 64);
                let kib = (RING_MIB * 1024).to_string();
                let mut words = vec![tapline.display().to_string()];
                let options =
                    ["record", "-i", FAR, "-B", &kib, "--segment", segment, "--size", &size, "--to"];
                words.extend(options.map(str::to_owned));
                words.push(path("store"));
                words.extend((self == Recorder::TaplineNoIndex).then(|| "--no-index".to_owned()));
                words
            }
            Recorder::Stenotype | Recorder::StenotypeNoIndex => {
                fs::create_dir_all(folder.join("PKT0"))?;
                fs::create_dir_all(folder.join("IDX0"))?;
                let mut words =
                    ["stenotype", "--threads=1", "--fileage_sec=60", "--seccomp=none", "--no_watchdogs"]
                        .map(str::to_owned)
                        .to_vec();
                words.extend(["--uid=root", "--gid=root", "-q", "-q"].map(str::to_owned));
                words.push(format!("--iface={FAR}"));
                words.push(format!("--dir={here}"));
                words.push(format!("--blocks={RING_MIB}"));
                words.push(format!("--preallocate_file_mb={mib}"));
                words.extend((self == Recorder::StenotypeNoIndex).then(|| "--no_index".to_owned()));
                words
            }
            Recorder::NetsniffNg => {
                let ring = format!("{RING_MIB}MiB");
                ["netsniff-ng", "--in", FAR, "--out", &here, "--interval", "1GiB", "-s", "-m", "-S", &ring]
                    .map(str::to_owned)
                    .to_vec()
            }
            Recorder::Dumpcap => {
                let file = path("x.pcapng");
                ["dumpcap", "-q", "-i", FAR, "-b", "filesize:1000000", "-B", &ring, "-w", &file]
                    .map(str::to_owned)
                    .to_vec()
            }
            Recorder::Tcpdump => {
                let (file, kib) = (path("x.pcap"), (RING_MIB * 1024).to_string());
                ["tcpdump", "-i", FAR, "-Z", "root", "-B", &kib, "-C", "1000", "-w", &file]
                    .map(str::to_owned)
                    .to_vec()
            }
            Recorder::Daemonlogger => {
                ["daemonlogger", "-i", FAR, "-l", &here, "-S", "65535"].map(str::to_owned).to_vec()
            }
        };
        Ok(words)
    }

    /// Packets that may be missing in its files though none was lost: stenotype writes whole blocks of the kernel's,
    /// and neither the last one nor the rest of its index where it does not end by itself, which is in its favour.
    pub(super) fn unwritten_max(self, frame_len: u64) -> u64 {
        match self {
            Recorder::Stenotype | Recorder::StenotypeNoIndex => BLOCK_LEN as u64 / (frame_len + 48),
            _ => 0,
        }
    }

    /// Packets in its files.
    pub(super) fn stored(self, folder: &Path) -> Result<u64> {
        match self {
            Recorder::Tapline | Recorder::TaplineNoIndex => {
                let of = |path: PathBuf| packets_of_capture(&path);
                files(&folder.join("store/seg"), "pcapng")?.into_iter().map(of).sum()
            }
            Recorder::Stenotype | Recorder::StenotypeNoIndex => {
                files(&folder.join("PKT0"), "")?.iter().map(|path| packets_of_blocks(path)).sum()
            }
            _ => files(folder, "")?.iter().map(|path| packets_of_capture(path)).sum(),
        }
    }

    /// Bytes of its index, and of the packets that it is for.
    pub(super) fn index_len(self, folder: &Path) -> Result<u64> {
        Ok(match self {
            Recorder::Tapline => {
                let indexes = files(&folder.join("store/seg"), "tix")?;
                let of_segments: u64 =
                    indexes.iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
                of_segments + bytes_below(&folder.join("store/roll"))
            }
            Recorder::Stenotype => bytes_below(&folder.join("IDX0")),
            _ => 0,
        })
    }
}

/// Whether `tapline record` has an option to leave the index out.
pub(super) fn records_without_index(tapline: &Path) -> bool {
    let help = Command::new(tapline).args(["record", "--help"]).output();
    help.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--no-index"))
}

/// Files of a folder that end so, by name.
pub(super) fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        path.is_file() && (ending.is_empty() || path.extension().is_some_and(|found| found == ending))
    });
    files.retain(|path| path.file_name().is_some_and(|name| name != "said"));
    files.sort();
    Ok(files)
}

fn packets_of_capture(path: &Path) -> Result<u64> {
    if path.metadata()?.len() == 0 {
        return Ok(0);
    }
    let file = File::open(path)?;
    let answer = answer::read(&mut BufReader::with_capacity(1 << 20, file));
    Ok(answer.with_context(|| path.display().to_string())?.packets)
}

/// Packets in a file of blocks as the kernel made them: TPACKET_V3, `tpacket_block_desc` of linux/if_packet.h. Blocks
/// that were never written are zeros.
fn packets_of_blocks(path: &Path) -> Result<u64> {
    let mut file = BufReader::with_capacity(BLOCK_LEN, File::open(path)?);
    let (mut packets, mut block) = (0, vec![0; BLOCK_LEN]);
    loop {
        match file.read_exact(&mut block) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(packets),
            read => read?,
        }
        let word = |at: usize| u32::from_ne_bytes(*block[at..].first_chunk().expect("a block is longer"));
        let (version, count) = (word(0), word(12));
        if version == 0 {
            continue;
        }
        // TPACKET_V3 has the number 2.
        ensure!(version == 2, "{}: a block of version {version}", path.display());
        packets += u64::from(count);
    }
}
