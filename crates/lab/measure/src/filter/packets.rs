//! The sets of packets that filters are measured on.

use std::path::Path;

use anyhow::{anyhow, ensure};
use tapline_arena::frame_batches::FrameBatches;
use tapline_arena::libpcap::Libpcap;
use tapline_arena::traffic::Traffic;
use tapline_packet::{BATCH_MAX, Batch};

use crate::filters::WorstCasePacket;

/// Number of packets in the mixed set.
const MIXED: usize = 4096;

/// The most packets taken from a file. At 500 bytes each they are 2 MB, so that filters are measured more than memory.
const FILE_MAX: usize = 4096;

/// Shortest packet that the kernel's test runs take: an Ethernet header.
const LEN_MIN: usize = 14;
/// Longest packet that is used: a test run takes at most a page less some hundred bytes.
const LEN_MAX: usize = 3000;

/// A set of packets with a name, stored in batches as a source lends them.
pub struct Packets {
    /// Name in reports.
    pub name: String,
    stored: FrameBatches,
}

impl Packets {
    /// 256 frames of 64 bytes that pass every test of the filter `worst` belongs to, and match the last one.
    pub fn worst(worst: WorstCasePacket) -> Packets {
        let frames: Vec<Vec<u8>> = (0..BATCH_MAX).map(|n| worst_frame(worst, n as u16)).collect();
        Packets::new("worst case, 256 frames of 64 bytes".to_owned(), &frames)
    }

    /// Generated traffic of a small network; the same packets each time.
    pub fn mixed() -> Packets {
        let frames: Vec<Vec<u8>> = Traffic::new(1).take(MIXED).map(|(_, frame)| frame).collect();
        Packets::new(format!("mixed, {MIXED} frames of a small network"), &frames)
    }

    /// The first 4,096 packets of 14 to 3,000 bytes in a pcap or pcapng file.
    ///
    /// # Errors
    /// If libpcap is not installed, or the file cannot be read, is not Ethernet, or has no packet of such a length.
    pub fn of_file(path: &Path) -> anyhow::Result<Packets> {
        let libpcap = Libpcap::get().map_err(|reason| anyhow!("files are read by libpcap: {reason}"))?;
        let (dlt, packets) =
            libpcap.read_file(path).map_err(|error| anyhow!(error).context(path.display().to_string()))?;
        ensure!(dlt == 1, "{}: link type {dlt}; only Ethernet is measured", path.display());
        let fits = |frame: &Vec<u8>| (LEN_MIN..=LEN_MAX).contains(&frame.len());
        let frames: Vec<Vec<u8>> =
            packets.into_iter().map(|packet| packet.data).filter(fits).take(FILE_MAX).collect();
        ensure!(!frames.is_empty(), "{}: no packet of {LEN_MIN} to {LEN_MAX} bytes", path.display());
        Ok(Packets::new(format!("{}, {} packets", path.display(), frames.len()), &frames))
    }

    /// A set of these frames, in their order.
    pub fn new(name: String, frames: &[Vec<u8>]) -> Packets {
        Packets { name, stored: FrameBatches::new(frames) }
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether the set has no packets.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// The packets in batches, all full except the last.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.stored.batches()
    }

    /// The bytes of each packet, in order.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.batches().flat_map(|batch| batch.iter().map(|packet| packet.data).collect::<Vec<_>>())
    }
}

/// An Ethernet frame of 64 bytes: IPv4, then a header with ports; `number` makes the source port differ.
fn worst_frame(worst: WorstCasePacket, number: u16) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&50_u16.to_be_bytes());
    frame[22] = 64;
    frame[23] = worst.protocol;
    frame[26..30].copy_from_slice(&worst.src);
    frame[30..34].copy_from_slice(&worst.dst);
    frame[34..36].copy_from_slice(&(10_000 + number).to_be_bytes());
    frame[36..38].copy_from_slice(&worst.dst_port.to_be_bytes());
    frame
}
