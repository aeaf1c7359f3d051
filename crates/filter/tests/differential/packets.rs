//! Packets to judge: real ones, real payloads behind other link headers, and noise.
//!
//! ```text
//! captures  --read by libpcap-->  frames per link type
//! Ethernet frame  --less 14 bytes-->  payload  --behind a random link header of the right length-->  other link types
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tapline_testkit::libpcap::{FilePacket, Libpcap};
use tapline_testkit::random::Random;

/// The captures beside the repository.
const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");

/// Of each file, only so many packets: a thousand segments of one transfer teach nothing.
const PER_FILE: usize = 24;

/// Longer packets are cut here; no filter of ours looks further, and copying them costs time.
const KEPT: usize = 400;

/// A packet to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The captured bytes.
    pub(crate) data: Vec<u8>,
    /// The length on the wire.
    pub(crate) wire_len: u32,
}

/// The packets that samples are made from.
pub(crate) struct Stock {
    by_dlt: BTreeMap<i32, Vec<Sample>>,
}

impl Stock {
    /// What the captures hold; without them, frames of `random` bytes with the common EtherTypes.
    pub(crate) fn new(pcap: &Libpcap, random: &mut Random) -> Stock {
        let mut by_dlt: BTreeMap<i32, Vec<Sample>> = BTreeMap::new();
        for path in capture_files() {
            if let Ok((dlt, packets)) = pcap.read_file(&path) {
                by_dlt.entry(dlt).or_default().extend(packets.into_iter().take(PER_FILE).map(kept));
            }
        }
        if by_dlt.is_empty() {
            eprintln!("no captures in {CAPTURES}: only synthetic packets are used");
        }
        let ethernet = by_dlt.entry(1).or_default();
        ethernet.extend((0..200).map(|_| synthetic_frame(random)));
        Stock { by_dlt }
    }

    /// How many packets it holds.
    pub(crate) fn len(&self) -> usize {
        self.by_dlt.values().map(Vec::len).sum()
    }

    /// A packet of this link type.
    pub(crate) fn sample(&self, dlt: i32, random: &mut Random) -> Sample {
        let native = self.by_dlt.get(&dlt);
        match native {
            Some(samples) if random.one_of(7, 8) => random.pick(samples).clone(),
            _ if random.one_of(1, 16) => noise(random),
            _ => self.behind_header(dlt, random),
        }
    }

    fn behind_header(&self, dlt: i32, random: &mut Random) -> Sample {
        let frame = random.pick(&self.by_dlt[&1]);
        let header = header_len(dlt, random);
        let mut data = random.bytes(header);
        data.extend_from_slice(frame.data.get(14..).unwrap_or(&[]));
        let wire_len = frame.wire_len.max(data.len() as u32);
        Sample { data, wire_len }
    }
}

fn capture_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(CAPTURES))
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
        .unwrap_or_default();
    files.sort();
    files
}

fn kept(packet: FilePacket) -> Sample {
    let FilePacket { mut data, wire_len } = packet;
    data.truncate(KEPT);
    Sample { data, wire_len }
}

/// Where the network header starts on a link type; a guess suffices, planting does the rest.
fn header_len(dlt: i32, random: &mut Random) -> usize {
    let lengths: &[usize] = match dlt {
        0 | 108 | 9 | 50 | 104 | 107 | 166 => &[4],
        12 | 228 | 229 => &[0],
        113 => &[16],
        276 => &[20],
        10 => &[21],
        6 => &[22, 24],
        7 | 129 => &[3, 6, 8],
        105 => &[32, 34, 38, 24],
        127 | 119 | 163 | 192 => &[40, 42, 48, 56, 64],
        117 => &[48, 64, 100],
        8 | 15 | 16 => &[16, 24, 4],
        11 | 19 | 123 => &[8, 12, 4, 22],
        138 | 109 | 122 => &[18, 12, 24],
        _ => &[0, 2, 4, 8, 12, 14, 16, 18, 20, 24],
    };
    *random.pick(lengths)
}

fn synthetic_frame(random: &mut Random) -> Sample {
    let ether_types =
        [0x0800_u16, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x9100, 0x8847, 0x8863, 0x8864, 0x0026, 0x8035];
    let len = random.between(14..=120) as usize;
    let mut data = random.bytes(len);
    data[12..14].copy_from_slice(&random.pick(&ether_types).to_be_bytes());
    let first = *random.pick(&[0x45, 0x46, 0x4f, 0x60, 0xaa, 0x42]);
    data.iter_mut().skip(14).take(1).for_each(|byte| *byte = first);
    Sample { wire_len: data.len() as u32, data }
}

fn noise(random: &mut Random) -> Sample {
    let len = random.below(100) as usize;
    Sample { data: random.bytes(len), wire_len: len as u32 }
}
