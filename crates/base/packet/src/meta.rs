//! Metadata of a packet: facts that are not in its bytes.

use crate::{InterfaceId, Timestamp};

/// Metadata of a packet: facts that are not in its bytes. `Meta` is `Copy` and holds no reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The time of reception or sending.
    pub timestamp: Timestamp,
    /// Whether its source knows no time; `timestamp` is then 1970-01-01, and means nothing.
    pub is_untimed: bool,
    /// Length of the packet on the wire in bytes, with the link-layer header, without a VLAN tag that is in `vlan`.
    pub wire_len: u32,
    /// The interface of the capture: an index into its source's interfaces.
    pub interface: InterfaceId,
    /// The kernel's interface index; 0 where there is none (files).
    pub if_index: u32,
    /// The outer VLAN tag, if it was stripped from the bytes by the NIC or the kernel.
    pub vlan: Option<VlanTag>,
    /// To or from this host, where the source knows.
    pub direction: Direction,
    /// The way in which the packet was addressed, if the source knows.
    pub packet_type: PacketType,
    /// The transport checksum, as the kernel or the NIC judged it.
    pub checksum: Checksum,
    /// Segmentation that is still to be done (sent) or was undone (received); `None` for a frame as on the wire.
    pub gso: Option<Gso>,
    /// The NIC's or the kernel's receive hash; 0 where there is none.
    pub rx_hash: u32,
    /// Packets known to be lost just before this one on its interface (pcapng's `epb_dropcount`).
    pub drops_before: u64,
    /// The label that a reader of a shared capture asked for: the number, from 1, of the first of its labels whose
    /// filter accepts the packet; 0 for none.
    pub label: u8,
    /// The class that the filter of a capture card gave the packet (ERF's colour), if it gave one.
    pub color: Option<u16>,
}

/// An IEEE 802.1Q tag: 16 bits of protocol and 16 of control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol identifier: 0x8100 (802.1Q), 0x88a8 (802.1ad), 0x9100 (old QinQ).
    pub tpid: u16,
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// The VLAN identifier, 0 to 4095.
    pub const fn id(self) -> u16 {
        self.tci & 0x0fff
    }
}

/// To or from this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The source does not say.
    #[default]
    Unknown,
    /// Received.
    In,
    /// Sent.
    Out,
}

/// The way in which a packet was addressed: `sll_pkttype` of packet(7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// To this host (`PACKET_HOST`, 0); also the value of sources that do not know.
    #[default]
    Host,
    /// Link-layer broadcast (`PACKET_BROADCAST`, 1).
    Broadcast,
    /// Link-layer multicast (`PACKET_MULTICAST`, 2).
    Multicast,
    /// To another host, seen in promiscuous mode (`PACKET_OTHERHOST`, 3).
    OtherHost,
    /// Sent by this host (`PACKET_OUTGOING`, 4).
    Outgoing,
}

impl PacketType {
    /// From the kernel's number; numbers that user space never sees count as `Host`.
    pub const fn from_kernel(number: u8) -> PacketType {
        match number {
            1 => PacketType::Broadcast,
            2 => PacketType::Multicast,
            3 => PacketType::OtherHost,
            4 => PacketType::Outgoing,
            _ => PacketType::Host,
        }
    }

    /// The kernel's number, as `SKF_AD_PKTTYPE` loads it.
    pub const fn to_kernel(self) -> u8 {
        self as u8
    }
}

/// A transport checksum, as the kernel or the NIC judged it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// Nothing is known; the bytes decide.
    #[default]
    Unknown,
    /// Verified on receipt (`TP_STATUS_CSUM_VALID`).
    Valid,
    /// Left to the NIC, so the bytes hold only a partial sum (`TP_STATUS_CSUMNOTREADY`).
    NotReady,
}

/// Generic segmentation: a packet made of several frames on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gso {
    /// Payload bytes of each frame; 0 where the kernel did not say (no virtio header asked for).
    pub size: u16,
    /// `virtio_net_hdr.gso_type`: 1 TCP over IPv4, 3 UDP (fragments), 4 TCP over IPv6, 5 UDP (segments); 0x80 adds ECN.
    pub kind: u8,
}
