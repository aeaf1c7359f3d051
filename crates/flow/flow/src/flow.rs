//! Expired flows: both directions, and the reason for the end.

use std::net::IpAddr;

use tapline_packet::Timestamp;

use crate::{Collected, Details, KnownField};

/// The time in flows of a packet whose source knows none: no capture file and no clock has this one.
pub(crate) const NO_TIME: Timestamp = Timestamp::from_nanos(-1);

/// An expired flow (RFC 7011, 5.1), with both directions (a biflow, RFC 5103).
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The source of the first packet, then its destination. The counters of a side are of the packets that this
    /// endpoint sent.
    pub endpoints: [Endpoint; 2],
    /// Number of the record (IANA's `flowId`): a meter counts the flows that it ends, from 1 on. Of a collected flow the
    /// exporter's, 0 if it gave none.
    pub id: u64,
    /// The IP protocol number; of IPv6 the one behind all extension headers.
    pub protocol: u8,
    /// The reason for the end.
    pub end_reason: EndReason,
    /// Fields of the first packet in addition to addresses, ports and protocol.
    pub context: FlowContext,
    /// The groups of details that the meter was asked for; `None` if there are none.
    pub details: Option<Box<Details>>,
    /// Fields of a record of another exporter; `None` for a flow that was metered here.
    pub collected: Option<Box<Collected>>,
}

/// An endpoint of a flow, and counters of the packets that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; 0 for protocols without ports. For ICMP the destination's is type * 256 + code.
    pub port: u16,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of IP packets, by the length fields of their headers; of frames with
    /// [`MeterSettings::counts_frames`](crate::MeterSettings::counts_frames).
    pub bytes: u64,
    /// Time stamp of the earliest packet; the epoch if there is none.
    pub first: Timestamp,
    /// Time stamp of the latest packet; the epoch if there is none.
    pub last: Timestamp,
    /// The union of the TCP flags of all packets, low eight bits.
    pub tcp_flags: u8,
    /// The TCP flags of the first packet.
    pub tcp_flags_first: u8,
    /// The least time to live, or hop limit, of any packet.
    pub ttl_min: u8,
    /// The greatest time to live, or hop limit.
    pub ttl_max: u8,
    /// The type of service, or traffic class, of the first packet.
    pub tos: u8,
}

/// Fields of a flow's first packet in addition to the five-tuple. Fields of the flow key have the same value in all
/// packets of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowContext {
    /// The outermost MPLS label; [`NO_LABEL`](Self::NO_LABEL) without.
    pub mpls: u32,
    /// The identifier of the innermost tunnel; 0 without.
    pub tunnel: u32,
    /// The kernel's index of the interface; for files, the position in the table of interfaces, counted from 1.
    pub interface: u32,
    /// The outer VLAN's identifier; [`NO_VLAN`](Self::NO_VLAN) without.
    pub vlan: u16,
    /// The type of service, where it is part of the key.
    pub tos: u8,
    /// The packet was carried by a tunnel that the meter removed.
    pub is_inner: bool,
}

impl FlowContext {
    /// The value of [`mpls`](Self::mpls) without a label.
    pub const NO_LABEL: u32 = u32::MAX;
    /// The value of [`vlan`](Self::vlan) without a tag.
    pub const NO_VLAN: u16 = u16::MAX;
    /// The context of a packet without labels, tunnels and tags.
    pub const NONE: FlowContext = FlowContext {
        mpls: FlowContext::NO_LABEL,
        tunnel: 0,
        interface: 0,
        vlan: FlowContext::NO_VLAN,
        tos: 0,
        is_inner: false,
    };
}

tapline_packet::named_enum! {
    /// The reason for a flow's end, with the numbers of the information element `flowEndReason` (IANA, 136).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum EndReason {
        /// Another exporter metered the flow and did not say. No meter here ends a flow for it.
        Unknown = "unknown",
        /// No packet for longer than the idle timeout.
        Idle = "idle",
        /// The active timeout; later packets begin another record.
        Active = "active",
        /// The end of the TCP connection: FIN from both sides or RST, then silence or a new SYN.
        End = "end",
        /// The meter stopped, or its flows were flushed.
        Forced = "forced",
        /// Lack of room in the table: the flow was the least recently active.
        Full = "full",
    }
}

impl EndReason {
    /// The reasons of meters, in the order of their numbers.
    pub const OF_METERS: [EndReason; 5] =
        [EndReason::Idle, EndReason::Active, EndReason::End, EndReason::Forced, EndReason::Full];

    /// The reason with this number; [`Unknown`](EndReason::Unknown) for numbers that are none's.
    #[inline]
    pub fn of_number(number: u8) -> EndReason {
        EndReason::ALL.get(usize::from(number)).copied().unwrap_or(EndReason::Unknown)
    }
}

impl Endpoint {
    /// Whether it sent anything: a record of its direction is due. Exporters elsewhere may count bytes alone.
    pub fn has_sent(&self) -> bool {
        self.packets > 0 || self.bytes > 0
    }
}

impl Flow {
    /// Packets of both sides.
    pub fn packets(&self) -> u64 {
        self.endpoints[0].packets + self.endpoints[1].packets
    }

    /// Packets of a side for which outputs answer in their accounts: those that it sent, but see
    /// [`Collected::is_beyond`](crate::Collected::is_beyond).
    #[inline]
    pub fn answered_packets_of(&self, side: usize) -> u64 {
        let packets = self.endpoints[side].packets;
        let is_beyond = self.collected.as_ref().is_some_and(|collected| collected.is_beyond);
        if is_beyond { packets.min(1) } else { packets }
    }

    /// Packets of both sides for which outputs answer in their accounts.
    #[inline]
    pub fn answered_packets(&self) -> u64 {
        self.answered_packets_of(0) + self.answered_packets_of(1)
    }

    /// Bytes of both sides.
    pub fn bytes(&self) -> u64 {
        self.endpoints[0].bytes + self.endpoints[1].bytes
    }

    /// Time stamp of the earliest packet of either side.
    pub fn first(&self) -> Timestamp {
        self.times(|side| side.first).min().unwrap_or_default()
    }

    /// Time stamp of the earliest packet of either side; `None` if that packet had no time.
    pub fn began(&self) -> Option<Timestamp> {
        Some(self.first()).filter(|first| *first != NO_TIME)
    }

    /// Time stamp of the latest packet of either side.
    pub fn last(&self) -> Timestamp {
        self.times(|side| side.last).max().unwrap_or_default()
    }

    /// The endpoints that a record is due of: those that sent, and the first one of an event that counts nothing.
    #[inline]
    pub fn senders(&self) -> impl Iterator<Item = usize> + use<> {
        let [first, second] = self.endpoints.each_ref().map(Endpoint::has_sent);
        let first =
            first || !second && self.collected.as_ref().is_some_and(|collected| collected.has_event());
        [first, second].into_iter().enumerate().filter_map(|(side, is_due)| is_due.then_some(side))
    }

    /// Whether a field of an endpoint is known, or with `side` 0 one that belongs to none. A meter knows all of them;
    /// other exporters leave some out.
    #[inline]
    pub fn knows(&self, field: KnownField, side: usize) -> bool {
        self.collected.as_ref().is_none_or(|collected| collected.known.has(field, side))
    }

    fn times(&self, of: fn(&Endpoint) -> Timestamp) -> impl Iterator<Item = Timestamp> {
        self.senders().map(move |side| of(&self.endpoints[side]))
    }
}
