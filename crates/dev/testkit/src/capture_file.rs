//! Capture files in their plainest form, written without the product's own writer so that it can be judged by them.
//!
//! ```text
//! pcap     magic 4, version 2+2, zone 4, accuracy 4, snap 4, link type 4; per packet: s 4, µs or ns 4, cap 4, len 4, bytes
//! pcapng   Section Header Block, Interface Description Block (ns), Enhanced Packet Block for each packet
//! ```
//!
//! Numbers are little endian. Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

mod read;

pub use read::{StoredPacket, read_packets};

use crate::traffic::TimedFrame;
use std::io::{self, Write};
use std::time::Duration;

/// 2023-11-14 22:13:20 UTC: where the time of made-up traffic begins.
pub const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// The link type of Ethernet.
pub const ETHERNET: u16 = 1;

const SNAP_LEN: u32 = 262_144;

/// The unit of a pcap file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Magic a1b2c3d4, as most programs write.
    Microseconds,
    /// Magic a1b23c4d.
    Nanoseconds,
}

/// Writes frames as a pcap file. Gives the number of packets.
///
/// # Errors
/// Errors of `out`.
pub fn write_pcap(
    out: &mut impl Write,
    link_type: u16,
    unit: Unit,
    frames: impl Iterator<Item = TimedFrame>,
) -> io::Result<u64> {
    let (magic, unit_ns) = match unit {
        Unit::Microseconds => (0xa1b2_c3d4, 1000),
        Unit::Nanoseconds => (0xa1b2_3c4d, 1),
    };
    out.write_all(&words(&[magic, 4 << 16 | 2, 0, 0, SNAP_LEN, u32::from(link_type)]))?;
    let mut packets = 0;
    for (offset, frame) in frames {
        let time = EPOCH + offset;
        let len = frame.len() as u32;
        out.write_all(&words(&[time.as_secs() as u32, time.subsec_nanos() / unit_ns, len, len]))?;
        out.write_all(&frame)?;
        packets += 1;
    }
    out.flush()?;
    Ok(packets)
}

/// Writes frames as a pcapng file with one interface, `name`. Gives the number of packets.
///
/// # Errors
/// Errors of `out`.
pub fn write_pcapng(
    out: &mut impl Write,
    link_type: u16,
    name: &str,
    frames: impl Iterator<Item = TimedFrame>,
) -> io::Result<u64> {
    const SECTION_LEN_UNKNOWN: [u8; 8] = [0xff; 8];
    let section = [&words(&[0x1a2b_3c4d, 1])[..], &SECTION_LEN_UNKNOWN].concat();
    out.write_all(&block(0x0a0d_0d0a, &section))?;
    // Options: if_name (2), if_tsresol (9) 10^-9 s, end.
    let options = [option(2, name.as_bytes()), option(9, &[9]), option(0, &[])].concat();
    out.write_all(&block(1, &[&words(&[u32::from(link_type), SNAP_LEN])[..], &options].concat()))?;
    let mut packets = 0;
    for (offset, frame) in frames {
        let nanos = (EPOCH + offset).as_nanos() as u64;
        let len = frame.len() as u32;
        let head = words(&[0, (nanos >> 32) as u32, nanos as u32, len, len]);
        out.write_all(&block(6, &[&head, &frame[..]].concat()))?;
        packets += 1;
    }
    out.flush()?;
    Ok(packets)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = padded as u32 + 12;
    let mut bytes = [&words(&[kind, len]), body].concat();
    bytes.resize(padded + 8, 0);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [&code.to_le_bytes(), &(value.len() as u16).to_le_bytes()[..], value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
