//! A packet's metadata as the first eight words of its record: `docs/format/ring.md`, "Record".

use tapline_packet::{Checksum, Direction, Gso, InterfaceId, Meta, PacketType, Timestamp, VlanTag};

use crate::layout::LINE_WORDS;

const HAS_VLAN: u64 = 1 << 48;
const HAS_GSO: u64 = 1 << 49;

/// The header before a packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) cap_len: u32,
    pub(crate) number: u64,
    pub(crate) position: u64,
    pub(crate) meta: Meta,
}

#[inline]
pub(crate) fn encode(meta: &Meta, cap_len: u32, number: u64, position: u64) -> [u64; LINE_WORDS] {
    let VlanTag { tpid, tci } = meta.vlan.unwrap_or(VlanTag { tpid: 0, tci: 0 });
    [
        pair(cap_len, meta.wire_len),
        meta.timestamp.as_nanos() as u64,
        meta.drops_before,
        pair(meta.interface.0, meta.if_index),
        pair(meta.rx_hash, u32::from(tpid) | u32::from(tci) << 16),
        flags(meta),
        number,
        position,
    ]
}

#[inline]
fn flags(meta: &Meta) -> u64 {
    let direction = match meta.direction {
        Direction::Unknown => 0,
        Direction::In => 1,
        Direction::Out => 2,
    };
    let checksum = match meta.checksum {
        Checksum::Unknown => 0,
        Checksum::Valid => 1,
        Checksum::NotReady => 2,
    };
    let vlan = if meta.vlan.is_some() { HAS_VLAN } else { 0 };
    let gso =
        meta.gso.map_or(0, |Gso { size, kind }| u64::from(kind) << 24 | u64::from(size) << 32 | HAS_GSO);
    direction | u64::from(meta.packet_type.to_kernel()) << 8 | checksum << 16 | gso | vlan
}

/// Any words are a head; position and length show whether it is the right one.
#[inline]
pub(crate) fn decode(words: &[u64; LINE_WORDS]) -> RecordHead {
    let (cap_len, wire_len) = halves(words[0]);
    let (interface, if_index) = halves(words[3]);
    let (rx_hash, vlan) = halves(words[4]);
    let flags = words[5];
    let meta = Meta {
        timestamp: Timestamp::from_nanos(words[1] as i64),
        wire_len,
        interface: InterfaceId(interface),
        if_index,
        vlan: (flags & HAS_VLAN != 0).then_some(VlanTag { tpid: vlan as u16, tci: (vlan >> 16) as u16 }),
        direction: match flags as u8 {
            1 => Direction::In,
            2 => Direction::Out,
            _ => Direction::Unknown,
        },
        packet_type: PacketType::from_kernel((flags >> 8) as u8),
        checksum: match (flags >> 16) as u8 {
            1 => Checksum::Valid,
            2 => Checksum::NotReady,
            _ => Checksum::Unknown,
        },
        gso: (flags & HAS_GSO != 0).then_some(Gso { size: (flags >> 32) as u16, kind: (flags >> 24) as u8 }),
        rx_hash,
        drops_before: words[2],
        label: 0,
        color: None,
        is_untimed: false,
    };
    RecordHead { cap_len, number: words[6], position: words[7], meta }
}

#[inline]
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
pub(crate) fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}
