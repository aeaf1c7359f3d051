//! Encoding ERF. The layout is in `read/erf.rs`.
//!
//! | link type | kind of record |
//! |---|---|
//! | Ethernet | 2, with a colour 11; with two bytes before the frame and its check sequence behind |
//! | Cisco HDLC, PPP | 1, with a colour 10 |
//! | IPv4, IPv6, raw IP | 22, 23 |
//! | InfiniBand | 21 |
//! | ERF | as it is, with the length of what is there |

use flate2::Crc;
use tapline_packet::{Interface, LinkType, Meta, Packet, Timestamp};

use super::frame::Frame;
use crate::read::erf::{HEADER_LEN, is_packet};

/// Records are padded to this many bytes, as cards write them.
const ALIGNMENT: usize = 8;
/// The greatest length of a record, a multiple of [`ALIGNMENT`].
const RECORD_LEN_MAX: usize = u16::MAX as usize / ALIGNMENT * ALIGNMENT;

/// Bit 2 of the flags: records have the length of their packets.
const FLAG_VARYING_LENGTH: u8 = 4;
/// Number of interfaces that the two lowest bits can distinguish.
pub(super) const INTERFACES_MAX: u32 = 4;

/// An Ethernet frame's check sequence.
const FCS_LEN: usize = 4;

/// Whether records can hold packets of this link type.
pub(super) fn holds(link_type: LinkType) -> bool {
    const HELD: [LinkType; 8] = [
        LinkType::ETHERNET,
        LinkType::C_HDLC,
        LinkType::PPP_HDLC,
        LinkType::INFINIBAND,
        LinkType::IPV4,
        LinkType::IPV6,
        LinkType::RAW,
        LinkType::ERF,
    ];
    HELD.contains(&link_type)
}

/// Appends the record of a packet of this interface, whose link type [`holds`] has found to fit. `snap_len` bytes at
/// most are kept of the packet; 0 for no limit. Returns whether there is one: a packet of link type ERF may be none.
pub(super) fn packet(
    buffer: &mut Vec<u8>,
    packet: &Packet<'_>,
    interface: &Interface,
    snap_len: u32,
) -> bool {
    let frame = Frame::new(packet, interface.link_type, snap_len);
    if interface.link_type == LinkType::ERF {
        return whole_record(buffer, &frame);
    }
    let start = buffer.len();
    let pad: &[u8] = if interface.link_type == LinkType::ETHERNET { &[0, 0] } else { &[] };
    buffer.extend_from_slice(&[0; HEADER_LEN]);
    buffer.extend_from_slice(pad);
    let data = buffer.len();
    frame.write(buffer);
    let fcs_len = add_check_sequence(buffer, data, &frame, interface);
    let (kind, counter) = kind_and_counter(interface.link_type, buffer.get(data).copied(), packet.meta);
    buffer.truncate(buffer.len().min(start + RECORD_LEN_MAX));
    // Padding is told from data by the length on the wire: a packet that was cut has none.
    if buffer.len() - data >= frame.wire_len as usize + fcs_len {
        buffer.resize(start + (buffer.len() - start).next_multiple_of(ALIGNMENT), 0);
    }
    // Bytes behind the length on the wire would be read as padding.
    let wire_len = (frame.wire_len as usize).max(frame.len()) + fcs_len;
    let wire_len = u16::try_from(wire_len).unwrap_or(u16::MAX);
    let len = (buffer.len() - start) as u16; // at most RECORD_LEN_MAX
    let header = &mut buffer[start..start + HEADER_LEN];
    header[..8].copy_from_slice(&time(packet.meta.timestamp).to_le_bytes());
    header[8] = kind;
    header[9] = FLAG_VARYING_LENGTH | (packet.meta.interface.0 % INTERFACES_MAX) as u8;
    header[10..12].copy_from_slice(&len.to_be_bytes());
    header[12..14].copy_from_slice(&counter.to_be_bytes());
    header[14..16].copy_from_slice(&wire_len.to_be_bytes());
    true
}

/// Appends a packet that is a record itself, unless a reader would not find it. The length of a record that was cut is
/// that of the rest.
fn whole_record(buffer: &mut Vec<u8>, frame: &Frame<'_>) -> bool {
    let start = buffer.len();
    frame.write(buffer);
    let record = &mut buffer[start..];
    let (len, field) = (u16::try_from(record.len()), record.get_mut(10..12));
    if let (Ok(len), Some(field)) = (len, field) {
        field.copy_from_slice(&len.to_be_bytes());
    }
    let is_found = is_packet(record);
    if !is_found {
        buffer.truncate(start);
    }
    is_found
}

/// Appends the check sequence that Ethernet records end with, where the interface gives none and the frame is whole;
/// returns the bytes by which the frame is longer on the wire.
fn add_check_sequence(buffer: &mut Vec<u8>, data: usize, frame: &Frame<'_>, interface: &Interface) -> usize {
    if interface.link_type != LinkType::ETHERNET || interface.fcs_len.is_some_and(|len| len > 0) {
        return 0;
    }
    if frame.len() == frame.wire_len as usize {
        let mut crc = Crc::new();
        crc.update(&buffer[data..]);
        buffer.extend_from_slice(&crc.sum().to_le_bytes());
    }
    FCS_LEN
}

/// The kind of record, and its field, which holds a colour or counts losses: a record with a colour has no loss count.
fn kind_and_counter(link_type: LinkType, first: Option<u8>, meta: &Meta) -> (u8, u16) {
    match (kind(link_type, first), meta.color) {
        (2, Some(color)) => (11, color),
        (1, Some(color)) => (10, color),
        (kind, _) => (kind, u16::try_from(meta.drops_before).unwrap_or(u16::MAX)),
    }
}

fn kind(link_type: LinkType, first: Option<u8>) -> u8 {
    match link_type {
        LinkType::ETHERNET => 2,
        LinkType::C_HDLC | LinkType::PPP_HDLC => 1,
        LinkType::INFINIBAND => 21,
        LinkType::IPV6 => 23,
        LinkType::RAW if first.is_some_and(|byte| byte >> 4 == 6) => 23,
        _ => 22,
    }
}

/// Seconds since 1970 in units of 2^-32, to the nearest: reading gives the same nanosecond. Times outside of 1970 to
/// 2106 have the nearest that can be written.
fn time(timestamp: Timestamp) -> u64 {
    match u32::try_from(timestamp.seconds()) {
        Ok(seconds) => {
            let fraction = ((u64::from(timestamp.subsec_nanos()) << 32) + 500_000_000) / 1_000_000_000;
            u64::from(seconds) << 32 | fraction
        }
        Err(_) if timestamp.seconds() < 0 => 0,
        Err(_) => u64::MAX,
    }
}

/// The length of the record at the start of `records`, which this module wrote.
pub(super) fn record_len(records: &[u8]) -> Option<usize> {
    let len = u16::from_be_bytes(*records.get(10..)?.first_chunk()?);
    Some(usize::from(len).max(HEADER_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_takes_the_place_of_losses() {
        let of = |link_type, color| {
            kind_and_counter(link_type, None, &Meta { color, drops_before: 70_000, ..Meta::default() })
        };
        assert_eq!([None, Some(7)].map(|color| of(LinkType::ETHERNET, color)), [(2, u16::MAX), (11, 7)]);
        assert_eq!([None, Some(7)].map(|color| of(LinkType::C_HDLC, color)), [(1, u16::MAX), (10, 7)]);
        assert_eq!(of(LinkType::IPV6, Some(7)), (23, u16::MAX), "no kind of these has a color");
    }
}
