//! The packets that filters are measured on.

use std::path::Path;

use anyhow::{anyhow, ensure};
use tapline_arena::frame_batches::FrameBatches;
use tapline_arena::libpcap::Libpcap;
use tapline_arena::traffic::Traffic;
use tapline_packet::{BATCH_MAX, Batch};

use crate::filters::Worst;

/// Different packets of the mixed set.
const MIXED: usize = 4096;

/// The most packets of a file: they fit the second cache, as a capture's own block would.
const FILE_MAX: usize = 4096;

/// Shortest packet that the kernel's test runs take.
const LEN_MIN: usize = 14;
const LEN_MAX: usize = 3000;

/// Packets under a name.
pub struct Packets {
    /// Name in reports.
    pub name: String,
    lent: FrameBatches,
}

impl Packets {
    /// 256 frames of 64 bytes that go through every test of a filter and match at its end.
    pub fn worst(worst: Worst) -> Packets {
        let frames: Vec<Vec<u8>> = (0..BATCH_MAX).map(|n| worst_frame(worst, n as u16)).collect();
        Packets::new("worst case, 256 frames of 64 bytes".to_owned(), &frames)
    }

    /// The traffic of a small network.
    pub fn mixed() -> Packets {
        let frames: Vec<Vec<u8>> = Traffic::new(1).take(MIXED).map(|(_, frame)| frame).collect();
        Packets::new(format!("mixed, {MIXED} frames of a small network"), &frames)
    }

    /// The first packets of an Ethernet capture.
    pub fn of_file(path: &Path) -> anyhow::Result<Packets> {
        let libpcap = Libpcap::get().map_err(|reason| anyhow!("files are read by libpcap: {reason}"))?;
        let (dlt, packets) =
            libpcap.read_file(path).map_err(|error| anyhow!(error).context(path.display().to_string()))?;
        ensure!(dlt == 1, "{}: link type {dlt}; only Ethernet is measured", path.display());
        let fits = |frame: &Vec<u8>| (LEN_MIN..=LEN_MAX).contains(&frame.len());
        let frames: Vec<Vec<u8>> =
            packets.into_iter().map(|packet| packet.data).filter(fits).take(FILE_MAX).collect();
        ensure!(!frames.is_empty(), "{}: no packets", path.display());
        Ok(Packets::new(format!("{}, {} packets", path.display(), frames.len()), &frames))
    }

    /// These frames.
    pub fn new(name: String, frames: &[Vec<u8>]) -> Packets {
        Packets { name, lent: FrameBatches::new(frames) }
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// Whether the set has no packets.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// The packets in batches, all full except the last.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.lent.batches()
    }

    /// The frames one by one.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.batches().flat_map(|batch| batch.iter().map(|packet| packet.data).collect::<Vec<_>>())
    }
}

/// An IPv4 packet with a transport header in a frame of 64 bytes.
fn worst_frame(worst: Worst, number: u16) -> Vec<u8> {
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
