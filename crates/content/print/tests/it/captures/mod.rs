//! Capture files as the tests need them: pcap and pcapng, read into memory.
//!
//! The product's readers live in another crate; these few lines keep the printer's tests independent of them.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};

use tapline_packet::{Interface, LinkType, Meta, Timestamp};
use tapline_testkit::surroundings::captures_or_skip;

/// One packet of a file.
pub(crate) struct Recorded {
    pub(crate) data: Vec<u8>,
    pub(crate) meta: Meta,
    pub(crate) interface: Interface,
}

/// Real captures in the two usual formats, by name.
pub(crate) fn files_or_skip(test: &str) -> Option<Vec<PathBuf>> {
    let mut files = captures_or_skip(test)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "pcap" || ending == "pcapng"));
    Some(files)
}

/// The packets of a file, up to where it breaks; none if it is of another form.
pub(crate) fn read(path: &Path) -> Vec<Recorded> {
    let bytes = std::fs::read(path).expect("the file can be read");
    match bytes.get(..4) {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => read_pcapng(&bytes),
        Some([0xd4, 0xc3, 0xb2, 0xa1]) => read_pcap(&bytes, false, 1000),
        Some([0xa1, 0xb2, 0xc3, 0xd4]) => read_pcap(&bytes, true, 1000),
        Some([0x4d, 0x3c, 0xb2, 0xa1]) => read_pcap(&bytes, false, 1),
        Some([0xa1, 0xb2, 0x3c, 0x4d]) => read_pcap(&bytes, true, 1),
        _ => Vec::new(),
    }
}

/// A pcap file (microseconds, little-endian) of these packets.
pub(crate) fn pcap(link_type: LinkType, packets: &[Recorded]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
    for word in [0, 0, 262_144, u32::from(link_type.0)] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for Recorded { data, meta, .. } in packets {
        let time = meta.timestamp;
        let words = [time.seconds() as u32, time.subsec_nanos() / 1000, data.len() as u32, meta.wire_len];
        for word in words {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(data);
    }
    file
}

fn u16_at(bytes: &[u8], at: usize, big: bool) -> Option<u16> {
    let raw = *bytes.get(at..)?.first_chunk::<2>()?;
    Some(if big { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) })
}

fn u32_at(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let raw = *bytes.get(at..)?.first_chunk::<4>()?;
    Some(if big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) })
}

fn read_pcap(bytes: &[u8], big: bool, unit: u64) -> Vec<Recorded> {
    let link_type = u32_at(bytes, 20, big).unwrap_or(0) as u16;
    let interface = Interface::new("", LinkType::from_dlt(link_type));
    // libpcap cuts packets that are longer than the file's snapshot length.
    let snap_len = match u32_at(bytes, 16, big).unwrap_or(0) {
        snap_len @ 1..=262_144 => snap_len as usize,
        _ => 262_144,
    };
    let mut packets = Vec::new();
    let mut at = 24;
    while let Some(mut packet) = pcap_record(bytes, at, big, unit, &interface) {
        at += 16 + packet.data.len();
        packet.data.truncate(snap_len);
        packets.push(packet);
    }
    packets
}

fn pcap_record(bytes: &[u8], at: usize, big: bool, unit: u64, interface: &Interface) -> Option<Recorded> {
    let cap_len = u32_at(bytes, at + 8, big)? as usize;
    let data = bytes.get(at + 16..at + 16 + cap_len)?.to_vec();
    let seconds = i64::from(u32_at(bytes, at, big)?);
    let nanos = u64::from(u32_at(bytes, at + 4, big)?) * unit;
    let meta = Meta {
        timestamp: Timestamp::from_parts(seconds, nanos),
        wire_len: u32_at(bytes, at + 12, big)?,
        ..Meta::default()
    };
    Some(Recorded { data, meta, interface: interface.clone() })
}

fn read_pcapng(bytes: &[u8]) -> Vec<Recorded> {
    let mut packets = Vec::new();
    let mut interfaces = Vec::new();
    let mut big = false;
    let mut at = 0;
    while let Some(kind) = u32_at(bytes, at, big) {
        if kind == 0x0a0d_0d0a {
            big = u32_at(bytes, at + 8, true) == Some(0x1a2b_3c4d);
            interfaces.clear();
        }
        let Some(length) = u32_at(bytes, at + 4, big).map(|l| l as usize) else { break };
        let Some(block) = bytes.get(at..at + length.max(12)) else { break };
        match kind {
            1 => interfaces.extend(pcapng_interface(block, big)),
            6 => packets.extend(enhanced_packet(block, big, &interfaces)),
            3 => packets.extend(simple_packet(block, big, &interfaces)),
            _ => {}
        }
        at += length.max(12);
    }
    packets
}

/// An interface and the nanoseconds of its unit of time.
type Unit = (Interface, f64, u32);

fn pcapng_interface(block: &[u8], big: bool) -> Option<Unit> {
    let interface = Interface::new("", LinkType::from_dlt(u16_at(block, 8, big)?));
    let snap_len = u32_at(block, 12, big)?;
    let mut unit = 1000.0;
    let mut at = 16;
    while let (Some(code), Some(length)) = (u16_at(block, at, big), u16_at(block, at + 2, big)) {
        if code == 9 {
            let resolution = *block.get(at + 4)?;
            let base: f64 = if resolution & 0x80 != 0 { 2.0 } else { 10.0 };
            unit = 1e9 / base.powi(i32::from(resolution & 0x7f));
        }
        if code == 0 {
            break;
        }
        at += 4 + usize::from(length).next_multiple_of(4);
    }
    Some((interface, unit, snap_len))
}

fn enhanced_packet(block: &[u8], big: bool, interfaces: &[Unit]) -> Option<Recorded> {
    let (interface, unit, _) = interfaces.get(u32_at(block, 8, big)? as usize)?;
    let count = (u64::from(u32_at(block, 12, big)?) << 32) | u64::from(u32_at(block, 16, big)?);
    // Whole microseconds and nanoseconds stay exact; odd units need no more than tests can see.
    let nanos = if *unit >= 1.0 { count.saturating_mul(*unit as u64) } else { (count as f64 * unit) as u64 };
    let cap_len = u32_at(block, 20, big)? as usize;
    let data = block.get(28..28 + cap_len)?.to_vec();
    let meta = Meta {
        timestamp: Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)),
        wire_len: u32_at(block, 24, big)?,
        ..Meta::default()
    };
    Some(Recorded { data, meta, interface: interface.clone() })
}

fn simple_packet(block: &[u8], big: bool, interfaces: &[Unit]) -> Option<Recorded> {
    let (interface, _, snap_len) = interfaces.first()?;
    let wire_len = u32_at(block, 8, big)?;
    let limit = if *snap_len == 0 { wire_len } else { wire_len.min(*snap_len) };
    let cap_len = (limit as usize).min(block.len() - 16);
    let data = block.get(12..12 + cap_len)?.to_vec();
    let meta = Meta { wire_len, ..Meta::default() };
    Some(Recorded { data, meta, interface: interface.clone() })
}

/// Numbers that are the same in each run (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        Random(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    /// Changes one to four bytes: to any value, or to those that break counts and lengths.
    pub(crate) fn change(&mut self, data: &mut [u8]) {
        if data.is_empty() {
            return;
        }
        for _ in 0..=self.next(4) {
            let at = self.next(data.len().min(200));
            data[at] = match self.next(4) {
                0 => 0,
                1 => 0xff,
                2 => data[at].wrapping_add(1),
                _ => self.next(256) as u8,
            };
        }
    }
}
