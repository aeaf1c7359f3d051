//! A block's packets, as records.
//!
//! ```text
//! block  := head(48) frame*                    offset_to_first_pkt and num_pkts stand in the head (tapline-sys reads it)
//! frame  := tp_next_offset:u32 tp_sec:u32 tp_nsec:u32 tp_snaplen:u32 tp_len:u32 tp_status:u32 tp_mac:u16 tp_net:u16
//!           tp_rxhash:u32 tp_vlan_tci:u32 tp_vlan_tpid:u16 0:u16 0*8                 struct tpacket3_hdr, 48 bytes
//!           sll_family:u16 sll_protocol:be16 sll_ifindex:i32 sll_hatype:u16
//!           sll_pkttype:u8 sll_halen:u8 sll_addr:8                                   struct sockaddr_ll, 20 bytes
//!           ... virtio_net_hdr:10? packet                the packet starts tp_mac after the frame's start
//! ```
//!
//! All in host byte order but `sll_protocol`. Offsets are checked: a block that is not as the kernel makes them gives
//! fewer packets, never other memory and never a walk without end.

use tapline_packet::{BATCH_MAX, Direction, InterfaceId, Meta, PacketType, Record, Timestamp};
use tapline_sys::memory;

use super::{offload, vlan};

/// Bytes of a frame's two headers together.
pub(super) const HEADERS_LEN: usize = 68;

/// The kernel is done with the frame. Without it, it gave up half way and counted the packet as dropped.
pub(super) const STATUS_USER: u32 = 1;
/// The time is the adapter's (`TP_STATUS_TS_RAW_HARDWARE`).
const STATUS_HARDWARE_TIME: u32 = 1 << 31;

/// The state of a walk through a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The next frame, from the start of the block.
    pub(super) at: usize,
    /// Frames left, this one included.
    pub(super) left: u32,
}

/// AfPacketSettings that hold for every packet of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The interface of the capture.
    pub(super) interface: InterfaceId,
    /// Whether each packet has a virtio header in front.
    pub(super) has_vnet_header: bool,
    /// The snap length that the kernel was given.
    pub(super) snap_len: u32,
}

/// Counts of irregular packets in a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// Packets cut because they did not fit into a block.
    pub(super) clipped: u64,
    /// Packets stamped by the kernel's clock.
    pub(super) software_stamped: u64,
}

/// Headers ahead that are prefetched.
const HEADERS_AHEAD: usize = 4;

/// Adds records of frames from `cursor` on, until the table is full, the block has no more, or a packet is later than
/// `until`.
pub(super) fn read(
    block: &[u8],
    cursor: &mut Cursor,
    frame: &Frame,
    until: Timestamp,
    records: &mut Vec<Record>,
    oddities: &mut Oddities,
) {
    // Kept apart from the caller's, so that they stay in registers.
    let (mut next, mut odd) = (*cursor, *oddities);
    while next.left > 0 && records.len() < BATCH_MAX {
        let Some(headers) = headers_at(block, next.at) else {
            next.left = 0;
            break;
        };
        if timestamp(headers) > until {
            break;
        }
        let status = u32_at::<20>(headers);
        if status & STATUS_USER != 0 {
            let record = record(block, next.at, headers, frame);
            // Another processor wrote it: the next reader of the packet would wait for each line of it.
            memory::prefetch_element(block, record.offset);
            odd.clipped += u64::from(record.cap_len < record.meta.wire_len.min(frame.snap_len));
            odd.software_stamped += u64::from(status & STATUS_HARDWARE_TIME == 0);
            records.push(record);
        }
        let at = next.at;
        step(&mut next, headers);
        // Each header says where the next one is, and each is such a line too: often packets of one length follow each
        // other.
        let ahead = HEADERS_AHEAD.wrapping_mul(next.at - at);
        memory::prefetch_element(block, next.at.wrapping_add(ahead));
    }
    (*cursor, *oddities) = (next, odd);
}

/// The time of the next packet, if there is one.
pub(super) fn next_time(block: &[u8], cursor: &Cursor) -> Option<Timestamp> {
    (cursor.left > 0).then(|| headers_at(block, cursor.at).map(timestamp))?
}

pub(super) fn step(cursor: &mut Cursor, headers: &Headers) {
    // The last frame's offset is 0 (prb_close_block).
    let next = u32_at::<0>(headers) as usize;
    cursor.left = if next == 0 { 0 } else { cursor.left - 1 };
    cursor.at += next;
}

pub(super) type Headers = [u8; HEADERS_LEN];

#[inline]
pub(super) fn headers_at(block: &[u8], at: usize) -> Option<&Headers> {
    block.get(at..)?.first_chunk()
}

#[inline]
pub(super) fn record(block: &[u8], at: usize, headers: &Headers, frame: &Frame) -> Record {
    let status = u32_at::<20>(headers);
    let offset = at + usize::from(u16_at::<24>(headers));
    let kind = headers[58];
    let meta = Meta {
        timestamp: timestamp(headers),
        wire_len: u32_at::<16>(headers),
        interface: frame.interface,
        if_index: u32_at::<52>(headers),
        vlan: vlan::tag(status, u32_at::<32>(headers), u16_at::<36>(headers)),
        direction: if kind == OUTGOING { Direction::Out } else { Direction::In },
        packet_type: PacketType::from_kernel(kind),
        checksum: offload::checksum(status),
        gso: offload::gso(status, u16::from_be_bytes([headers[50], headers[51]]), || {
            frame.has_vnet_header.then(|| vnet_header(block, offset))?
        }),
        rx_hash: u32_at::<28>(headers),
        drops_before: 0,
        label: 0,
        color: None,
        is_untimed: false,
    };
    // Bytes past the block are not ours to read.
    let room = block.len().saturating_sub(offset).min(u32::MAX as usize) as u32;
    Record { offset, cap_len: u32_at::<12>(headers).min(room), options_len: 0, meta }
}

/// `PACKET_OUTGOING` of linux/if_packet.h.
const OUTGOING: u8 = 4;

fn vnet_header(block: &[u8], packet_at: usize) -> Option<&[u8; offload::VNET_HEADER_LEN]> {
    block.get(packet_at.checked_sub(offload::VNET_HEADER_LEN)?..)?.first_chunk()
}

#[inline]
fn timestamp(headers: &Headers) -> Timestamp {
    let nanos = i64::from(u32_at::<4>(headers)) * 1_000_000_000 + i64::from(u32_at::<8>(headers));
    Timestamp::from_nanos(nanos)
}

#[inline]
pub(super) fn u32_at<const AT: usize>(headers: &Headers) -> u32 {
    u32::from_ne_bytes([headers[AT], headers[AT + 1], headers[AT + 2], headers[AT + 3]])
}

#[inline]
fn u16_at<const AT: usize>(headers: &Headers) -> u16 {
    u16::from_ne_bytes([headers[AT], headers[AT + 1]])
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Checksum, VlanTag};

    use super::*;

    const FRAME: Frame = Frame { interface: InterfaceId(3), has_vnet_header: false, snap_len: 262_144 };

    /// A block as the kernel lays it out: a head, then frames with their packets at offset 82.
    fn block(packets: &[&[u8]]) -> (Vec<u8>, Cursor) {
        let mut block = vec![0; 48];
        for (number, packet) in packets.iter().enumerate() {
            let len = (82 + packet.len()).next_multiple_of(8);
            let is_last = number + 1 == packets.len();
            let mut frame = vec![0; len];
            let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
            put(0, &(if is_last { 0 } else { len as u32 }).to_ne_bytes());
            put(4, &1_700_000_000u32.to_ne_bytes());
            put(8, &(number as u32).to_ne_bytes());
            put(12, &(packet.len() as u32).to_ne_bytes());
            put(16, &(packet.len() as u32 + 4).to_ne_bytes());
            put(20, &(1u32 | 0x50 | 0x80).to_ne_bytes());
            put(24, &82u16.to_ne_bytes());
            put(28, &0xabcdu32.to_ne_bytes());
            put(32, &0x2005u32.to_ne_bytes());
            put(36, &0x8100u16.to_ne_bytes());
            put(52, &7u32.to_ne_bytes());
            put(58, &[4]);
            put(82, packet);
            block.extend(frame);
        }
        (block, Cursor { at: 48, left: packets.len() as u32 })
    }

    fn read_all(block: &[u8], cursor: &mut Cursor, records: &mut Vec<Record>) -> Oddities {
        let mut oddities = Oddities::default();
        read(block, cursor, &FRAME, Timestamp::from_nanos(i64::MAX), records, &mut oddities);
        oddities
    }

    #[test]
    fn every_field_arrives() {
        let (block, mut cursor) = block(&[b"first", b"second packet"]);
        let mut records = Vec::new();
        let oddities = read_all(&block, &mut cursor, &mut records);
        assert_eq!(oddities, Oddities { clipped: 2, software_stamped: 2 });
        assert_eq!((records.len(), cursor.left), (2, 0));
        let Record { offset, cap_len, meta, .. } = records[1];
        assert_eq!(&block[offset..offset + cap_len as usize], b"second packet");
        let expected = Meta {
            timestamp: Timestamp::from_parts(1_700_000_000, 1),
            wire_len: 17,
            interface: InterfaceId(3),
            if_index: 7,
            vlan: Some(VlanTag { tpid: 0x8100, tci: 0x2005 }),
            direction: Direction::Out,
            packet_type: PacketType::Outgoing,
            checksum: Checksum::Valid,
            gso: None,
            rx_hash: 0xabcd,
            drops_before: 0,
            label: 0,
            color: None,
            is_untimed: false,
        };
        assert_eq!(meta, expected);
    }

    #[test]
    fn a_walk_resumes_after_a_full_table_or_a_time() {
        let packets: Vec<&[u8]> = vec![b"x"; 600];
        let (block, mut cursor) = block(&packets);
        let mut seen = 0;
        while cursor.left > 0 {
            let mut records = Vec::with_capacity(BATCH_MAX);
            let until = Timestamp::from_parts(1_700_000_000, seen + 99);
            read(&block, &mut cursor, &FRAME, until, &mut records, &mut Oddities::default());
            assert_eq!(records[0].meta.timestamp.subsec_nanos() as u64, seen);
            assert_eq!(records.len(), 100);
            seen += 100;
            let next = next_time(&block, &cursor).map(|time| u64::from(time.subsec_nanos()));
            assert_eq!(next, (seen < 600).then_some(seen));
        }
        assert_eq!(seen, 600);
    }

    #[test]
    fn a_frame_that_the_kernel_gave_up_is_no_packet() {
        let (mut block, mut cursor) = block(&[b"first", b"second"]);
        block[48 + 20] &= !1;
        let mut records = Vec::new();
        read_all(&block, &mut cursor, &mut records);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].cap_len, 6);
    }

    #[test]
    fn blocks_of_any_content_end_and_stay_in_bounds() {
        let (good, start) = block(&[b"first", b"second", b"third"]);
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            let mut block = good.clone();
            for _ in 0..4 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % block.len();
                block[at] = random as u8;
            }
            block.truncate(block.len() - (random >> 40) as usize % 64);
            let (mut cursor, mut records) = (Cursor { left: 9, ..start }, Vec::new());
            read_all(&block, &mut cursor, &mut records);
            assert!(records.len() <= 9);
            for record in &records {
                assert!(record.cap_len == 0 || record.offset + record.cap_len as usize <= block.len());
            }
        }
    }
}
