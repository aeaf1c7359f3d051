//! Inputs for tests of filters: random texts for all link types, and packets: captured ones, captured payloads behind
//! other link headers, and noise.
//!
//! ```text
//! captures  --read by libpcap-->  frames per link type
//! Ethernet frame  --less 14 bytes-->  payload  --behind a random link header of the right length-->  other link types
//! ```

use std::collections::BTreeMap;

use crate::expressions::Expressions;
use crate::forms;
use crate::layers;
use crate::libpcap::{FilePacket, Libpcap};
use crate::random::Random;
use crate::surroundings::captures;

/// Packets taken from a file: a thousand segments of one transfer teach nothing.
const PER_FILE: usize = 24;

/// Longer packets are cut here; no filter of ours looks further, and copying them costs time.
const KEPT: usize = 400;

/// Filters that people write; those that papers measure come first.
pub const COMMON_FILTERS: [&str; 25] = [
    "ip",
    "udp",
    "src host 1.1.1.1 and dst host 2.2.2.2",
    "tcp port 10 or 20 or 30 or 40 or 50",
    "ip host (1.1.1.1 or 2.2.2.2 or 3.3.3.3 or 4.4.4.4 or 5.5.5.5 or 6.6.6.6 or 7.7.7.7 or 8.8.8.8 or 9.9.9.9 or \
     10.10.10.10) and tcp port (10 or 20 or 30 or 40 or 50 or 60 or 70 or 80 or 90 or 100)",
    "port 53",
    "host 10.0.0.1",
    "host 10.0.0.1 or host 10.0.0.2 or host 10.0.0.3",
    "(ip and udp port 1) or (ip and udp port 2)",
    "net 10.0.0.0/8 and not port 22",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] == tcp-syn|tcp-ack and not src net 192.168.0.0/16",
    "icmp or arp",
    "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply",
    "portrange 6000-6010",
    "vlan and ip",
    "vlan 100 and tcp port 443",
    "not broadcast and not multicast",
    "ip6 and udp port 53",
    "ether host 00:11:22:33:44:55 and not arp",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "greater 100 and less 1500",
    "mpls 1000 and host 10.0.0.1",
    "pppoes and ip",
    "(tcp or udp) and host 10.0.0.1 and port 5060",
];

/// The link types that filters are judged on, as DLTs, and their share of the texts.
pub const LINK_TYPES: &[(i32, u64)] = &[
    (1, 40),
    (0, 2),
    (6, 2),
    (7, 2),
    (8, 1),
    (9, 4),
    (10, 3),
    (11, 2),
    (12, 4),
    (15, 1),
    (16, 1),
    (19, 2),
    (50, 2),
    (51, 2),
    (99, 1),
    (104, 3),
    (105, 8),
    (107, 2),
    (108, 2),
    (109, 2),
    (113, 4),
    (114, 1),
    (117, 3),
    (119, 3),
    (122, 2),
    (123, 4),
    (127, 6),
    (129, 1),
    (130, 1),
    (131, 1),
    (132, 1),
    (133, 1),
    (134, 1),
    (135, 1),
    (136, 1),
    (137, 1),
    (138, 2),
    (139, 1),
    (140, 1),
    (141, 1),
    (147, 1),
    (163, 3),
    (164, 1),
    (166, 1),
    (167, 1),
    (168, 1),
    (178, 1),
    (179, 1),
    (180, 1),
    (181, 1),
    (183, 1),
    (192, 3),
    (194, 1),
    (200, 1),
    (226, 1),
    (227, 1),
    (228, 1),
    (229, 1),
    (232, 1),
    (233, 1),
    (234, 1),
    (238, 1),
    (240, 2),
    (241, 1),
    (276, 4),
];

/// Random texts, for all link types.
#[derive(Clone, Debug)]
pub struct Texts {
    streams: Vec<(i32, u64, Expressions)>,
    total_share: u64,
}

impl Texts {
    /// Streams of texts from seeds that `random` gives.
    pub fn new(random: &mut Random) -> Texts {
        let stream = |&(dlt, share): &(i32, u64)| (dlt, share, Expressions::new(random.bits(), dlt));
        let total_share = LINK_TYPES.iter().map(|&(_, share)| share).sum();
        Texts { streams: LINK_TYPES.iter().map(stream).collect(), total_share }
    }

    /// A link type, as a DLT, and a text for it.
    pub fn next(&mut self, random: &mut Random) -> (i32, String) {
        let mut place = random.below(self.total_share);
        let stream = self.streams.iter_mut().find(|(_, share, _)| {
            let here = place < *share;
            place = place.saturating_sub(*share);
            here
        });
        let (dlt, _, stream) = stream.expect("the shares add up");
        (*dlt, stream.text())
    }
}

/// A text, and how it is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wording {
    /// The link type, as a DLT.
    pub dlt: i32,
    /// The text.
    pub text: String,
    /// Read the text as in `scoped(...)`.
    pub scoped: bool,
    /// Read the text as in `extensions(...)`.
    pub ipv6_extensions: bool,
    /// Whether it is made of our own forms, which libpcap does not know.
    pub has_forms: bool,
}

impl Texts {
    /// As [`next`](Self::next), but one in four texts is made of forms.
    pub fn wording(&mut self, random: &mut Random) -> Wording {
        if random.one_of(1, 4) {
            return Wording::of_forms(random);
        }
        let (dlt, text) = self.next(random);
        Wording { dlt, text, scoped: false, ipv6_extensions: false, has_forms: false }
    }
}

impl Wording {
    /// A wording of forms, for Ethernet.
    pub fn of_forms(random: &mut Random) -> Wording {
        let (scoped, ipv6_extensions) = (random.one_of(1, 2), random.one_of(1, 2));
        let text = forms::tree(random, scoped, 0).to_string();
        Wording { dlt: 1, text, scoped, ipv6_extensions, has_forms: true }
    }
}

/// A packet to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The captured bytes.
    pub data: Vec<u8>,
    /// The length on the wire.
    pub wire_len: u32,
}

/// The packets that samples are made from.
#[derive(Clone, Debug)]
pub struct Stock {
    by_dlt: BTreeMap<i32, Vec<Sample>>,
}

impl Stock {
    /// The packets of the captures; without captures, frames of `random` bytes with the common EtherTypes.
    pub fn new(pcap: &Libpcap, random: &mut Random) -> Stock {
        let mut by_dlt: BTreeMap<i32, Vec<Sample>> = BTreeMap::new();
        for path in captures() {
            if let Ok((dlt, packets)) = pcap.read_file(&path) {
                by_dlt.entry(dlt).or_default().extend(packets.into_iter().take(PER_FILE).map(kept));
            }
        }
        if by_dlt.is_empty() {
            eprintln!("no real captures: only synthetic packets are used");
        }
        let ethernet = by_dlt.entry(1).or_default();
        ethernet.extend((0..200).map(|_| synthetic_frame(random)));
        Stock { by_dlt }
    }

    /// Number of packets: never 0.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.by_dlt.values().map(Vec::len).sum()
    }

    /// A packet of this link type.
    pub fn sample(&self, dlt: i32, random: &mut Random) -> Sample {
        let native = self.by_dlt.get(&dlt);
        match native {
            Some(samples) if random.one_of(7, 8) => random.pick(samples).clone(),
            _ if random.one_of(1, 16) => noise(random),
            _ => self.behind_header(dlt, random),
        }
    }

    /// A packet for a text: for forms mostly layers upon layers.
    pub fn sample_for(&self, wording: &Wording, random: &mut Random) -> Sample {
        if !wording.has_forms || random.one_of(1, 4) {
            return self.sample(wording.dlt, random);
        }
        let mut data = layers::frame(random);
        let wire_len = data.len() as u32;
        data.truncate(KEPT);
        Sample { data, wire_len }
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

fn kept(packet: FilePacket) -> Sample {
    let FilePacket { mut data, wire_len } = packet;
    data.truncate(KEPT);
    Sample { data, wire_len }
}

/// The offset of the network header on a link type; a guess is enough, as values are planted at it.
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
