//! A flow that has ended, with both its directions.

use std::net::IpAddr;

use tapline_packet::Timestamp;

use crate::Details;

/// A flow that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its ends: that which sent the first packet, and the other one. What stands in a side is what that end sent.
    pub sides: [Side; 2],
    /// The IP protocol; with IPv6 that behind all extension headers.
    pub protocol: u8,
    /// Why it ended.
    pub end: EndReason,
    /// What its first packet had besides.
    pub context: Context,
    /// What the meter was asked for besides; `None` if that was nothing.
    pub details: Option<Box<Details>>,
}

/// One end of a flow, and what it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 where the protocol has none. Of ICMP the other end's is type * 256 + code.
    pub port: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets, by the length in their headers; whole frames if the meter was told so.
    pub bytes: u64,
    /// The earliest of its packets; the epoch if there is none.
    pub first: Timestamp,
    /// The latest of its packets.
    pub last: Timestamp,
    /// All TCP flags that it ever set, the low eight bits of them.
    pub tcp_flags: u8,
    /// The TCP flags of its first packet.
    pub tcp_flags_first: u8,
    /// The least time to live, or hop limit.
    pub ttl_min: u8,
    /// The greatest.
    pub ttl_max: u8,
    /// The type of service, or traffic class, of its first packet.
    pub tos: u8,
}

/// What the first packet of a flow had besides; fields of the key that were asked for are the same in all of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The outermost MPLS label; [`NO_LABEL`](Self::NO_LABEL) without.
    pub mpls: u32,
    /// The identifier of the innermost tunnel; 0 without.
    pub tunnel: u32,
    /// The kernel's index of the interface; of files, the place among their interfaces plus one.
    pub interface: u32,
    /// The outer VLAN's identifier; [`NO_VLAN`](Self::NO_VLAN) without.
    pub vlan: u16,
    /// The type of service, where it is part of the key.
    pub tos: u8,
    /// Whether the packet was inside of a tunnel that was taken off.
    pub is_inner: bool,
}

impl Context {
    /// No label.
    pub const NO_LABEL: u32 = u32::MAX;
    /// No tag.
    pub const NO_VLAN: u16 = u16::MAX;
    /// Nothing besides.
    pub const NONE: Context = Context {
        mpls: Context::NO_LABEL,
        tunnel: 0,
        interface: 0,
        vlan: Context::NO_VLAN,
        tos: 0,
        is_inner: false,
    };
}

/// Why a flow ended, by the numbers of the information element `flowEndReason` (IANA, 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// No packet for longer than the idle timeout.
    Idle = 1,
    /// It had lasted for the active timeout; its next packets are another record.
    Active = 2,
    /// TCP ended it: FIN from both sides or RST, and then silence, or a new SYN.
    End = 3,
    /// The meter stopped, or was told to give up its flows.
    Forced = 4,
    /// The table was full, and no flow had been silent for longer.
    Full = 5,
}

impl EndReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [EndReason; 5] =
        [EndReason::Idle, EndReason::Active, EndReason::End, EndReason::Forced, EndReason::Full];

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            EndReason::Idle => "idle",
            EndReason::Active => "active",
            EndReason::End => "end",
            EndReason::Forced => "forced",
            EndReason::Full => "full",
        }
    }
}

impl Flow {
    /// Packets of both sides.
    pub fn packets(&self) -> u64 {
        self.sides[0].packets + self.sides[1].packets
    }

    /// Bytes of both sides.
    pub fn bytes(&self) -> u64 {
        self.sides[0].bytes + self.sides[1].bytes
    }

    /// When the earliest packet of either side came.
    pub fn first(&self) -> Timestamp {
        self.times(|side| side.first).min().unwrap_or_default()
    }

    /// When the latest packet of either side came.
    pub fn last(&self) -> Timestamp {
        self.times(|side| side.last).max().unwrap_or_default()
    }

    fn times(&self, of: fn(&Side) -> Timestamp) -> impl Iterator<Item = Timestamp> {
        self.sides.iter().filter(|side| side.packets > 0).map(of)
    }
}
