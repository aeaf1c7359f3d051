//! Recipes: protocols, sizes, flows, payload and times of packets, and the text that describes them.
//!
//! ```text
//! recipe := { item }                               udp size=imix flows=1000 rate=100k vlan=5
//! item   := word | key "=" value
//! value  := characters without blanks | "'" ... "'" | '"' ... '"'
//! ```
//!
//! [`KEYS`] lists words and keys with their meanings; help and errors come from it.

mod keys;
mod parse;
mod units;

pub use keys::{KEYS, Key};
pub(crate) use parse::{span_of, span_of_value};
pub(crate) use units::{bits as address_bits, prefix};

use tapline_packet::headers::IpVersion;

use crate::share::Share;
use crate::space::NumberRanges;

/// The longest frame, in bytes without its check sequence: an IP packet of 65,535 bytes is the most that any frame
/// carries, headers before it included.
pub const SIZE_MAX: usize = 65_535;
/// The most flows: each takes about 50 bytes of memory, those of TCP and ICMP 20 more.
pub const FLOWS_MAX: u32 = 1_000_000;
/// 2000-01-01 00:00:00 UTC in nanoseconds since 1970: when the first packet leaves unless the recipe says otherwise.
const START_NS: i64 = 946_684_800_000_000_000;

/// The payload of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Datagrams from client to server.
    Udp,
    /// Connections: opened, data from the client that the server acknowledges, closed, and again.
    Tcp,
    /// Echo requests (ICMP, ICMPv6).
    Icmp,
}

/// Lengths of frames, in bytes from the Ethernet header to the end of the payload, without the frame check sequence
/// (4 bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike.
    Fixed(u32),
    /// Sizes and how many packets of each there are in every block of as many packets as the weights sum to; in a block
    /// they come in random order.
    Weighted(Vec<(u32, u32)>),
    /// From the first to the last by a step, and again.
    Sweep {
        /// The first size.
        first: u32,
        /// The last one, if a step reaches it.
        last: u32,
        /// From one to the next.
        step: u32,
    },
}

impl Sizes {
    /// The simple IMIX: 7 of 60 bytes, 4 of 590, 1 of 1514 (IP packets of 40 with padding, 576 and 1500 bytes).
    pub fn imix() -> Sizes {
        Sizes::Weighted(vec![(60, 7), (590, 4), (1514, 1)])
    }

    /// The smallest and the largest.
    pub fn bounds(&self) -> (u32, u32) {
        match self {
            Sizes::Fixed(size) => (*size, *size),
            Sizes::Weighted(list) => {
                let sizes = list.iter().map(|(size, _)| *size);
                (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0))
            }
            Sizes::Sweep { first, last, step } => (*first, last - (last - first) % step),
        }
    }
}

/// The order in which flows take their addresses and ports from the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOrder {
    /// One after the other: sources first, then source ports, destinations, destination ports.
    Step,
    /// In an order that the seed decides; no flow twice.
    Random,
}

/// The flow of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOrder {
    /// One after the other.
    Turns,
    /// Any.
    Random,
}

/// The payload of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Zeroes.
    Zero,
    /// 0, 1, 2, ... 255, 0, ...
    Counting,
    /// Bytes that the seed decides, others in each packet.
    Random,
    /// The given bytes, over and over.
    Text(Vec<u8>),
}

/// The fault of a malformed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformation {
    /// The checksum of UDP, TCP or ICMP.
    Checksum,
    /// The checksum of the IPv4 header.
    IpChecksum,
    /// A length: IP's longer or shorter than the packet, or UDP's.
    Length,
    /// The frame ends within its headers.
    Truncated,
}

/// The rate of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As fast as possible; in files and graphs a microsecond apart.
    Free,
    /// Packets a second.
    Packets(u64),
    /// Bits a second, of frames as their sizes count.
    Bits(u64),
    /// Bits a second on an Ethernet wire: with padding to 60 bytes, check sequence, preamble and gap, 24 bytes more for
    /// each frame.
    Wire(u64),
}

/// The gaps between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Always the same.
    Constant,
    /// Exponentially distributed: a Poisson process of the rate.
    Poisson,
    /// Bursts of this many packets, with gaps between them that keep the rate.
    Burst(u32),
}

/// A recipe for packets. [`Recipe::parse`] reads it from text; [`Recipe::default`] is UDP over IPv4 at 60 bytes, one
/// flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Flows take turns at these; empty is UDP, or the filter's transports.
    pub transports: Vec<Transport>,
    /// Flows take turns at these; empty is IPv4, or the filter's versions.
    pub versions: Vec<IpVersion>,
    /// Lengths of frames.
    pub sizes: Sizes,
    /// Number of flows, 1 to [`FLOWS_MAX`]: different in addresses, ports (identifiers of ICMP) or protocol. `None`
    /// is one, or two if only a share of the packets is to match.
    pub flows: Option<u32>,
    /// The order in which flows take addresses and ports.
    pub walk: AddressOrder,
    /// The order of flows.
    pub order: FlowOrder,
    /// IPv4 addresses of clients.
    pub src_v4: NumberRanges,
    /// IPv4 addresses of servers.
    pub dst_v4: NumberRanges,
    /// IPv6 addresses of clients.
    pub src_v6: NumberRanges,
    /// IPv6 addresses of servers.
    pub dst_v6: NumberRanges,
    /// Ports of clients; identifiers of ICMP.
    pub src_ports: NumberRanges,
    /// Ports of servers. `None` is 9 (discard) for UDP and 80 for TCP.
    pub dst_ports: Option<NumberRanges>,
    /// The link address of clients.
    pub src_mac: [u8; 6],
    /// The link address of servers.
    pub dst_mac: [u8; 6],
    /// Hops left.
    pub ttl: u8,
    /// Type of service, traffic class: DSCP and ECN.
    pub tos: u8,
    /// VLAN identifiers, 1 to 4094, outermost first: one 802.1Q tag, or 802.1ad and 802.1Q.
    pub vlans: Vec<u16>,
    /// MPLS labels, outermost first, below 2^20.
    pub labels: Vec<u32>,
    /// The VXLAN network that carries the packets, below 2^24.
    pub vxlan: Option<u32>,
    /// The payload.
    pub payload: Payload,
    /// Data segments of a TCP connection.
    pub segments: u32,
    /// Generates only the client's side of TCP connections.
    pub is_one_way: bool,
    /// IP packets longer than this are sent in fragments no longer than this.
    pub fragment: Option<u32>,
    /// Malformations, and the share of packets that have each.
    pub bad: Vec<(Malformation, Share)>,
    /// A filter, and which share of the packets it is to accept.
    pub matching: Option<(String, Share)>,
    /// The most packets.
    pub count: Option<u64>,
    /// The most time between the first packet and the last, in nanoseconds, exclusive.
    pub duration_ns: Option<u64>,
    /// Rate of packets.
    pub rate: Rate,
    /// The gaps between packets.
    pub gaps: Gaps,
    /// When the first packet leaves, in nanoseconds since 1970; `None` is the time at which the work begins, which only
    /// the caller knows.
    pub start_ns: Option<i64>,
    /// The seed of the random choices.
    pub seed: u64,
    /// The stream of marks at the end of payloads: each has stream, sequence number and send time. `None` for payloads
    /// without marks.
    pub mark: Option<u8>,
}

impl Default for Recipe {
    fn default() -> Recipe {
        const V6: u128 = 0xfd00 << 112;
        Recipe {
            transports: Vec::new(),
            versions: Vec::new(),
            sizes: Sizes::Fixed(60),
            flows: None,
            walk: AddressOrder::Step,
            order: FlowOrder::Turns,
            src_v4: NumberRanges::range(0x0a00_0001, 0x0a00_fffe),
            dst_v4: NumberRanges::one(0x0a01_0001),
            src_v6: NumberRanges::range(V6 + 1, V6 + 0xfffe),
            dst_v6: NumberRanges::one(V6 + (1 << 64) + 1),
            src_ports: NumberRanges::range(1024, 65_535),
            dst_ports: None,
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            ttl: 64,
            tos: 0,
            vlans: Vec::new(),
            labels: Vec::new(),
            vxlan: None,
            payload: Payload::Zero,
            segments: 10,
            is_one_way: false,
            fragment: None,
            bad: Vec::new(),
            matching: None,
            count: None,
            duration_ns: None,
            rate: Rate::Free,
            gaps: Gaps::Constant,
            start_ns: Some(START_NS),
            seed: 1,
            mark: None,
        }
    }
}

impl Recipe {
    /// Whether it comes to an end by itself.
    pub fn is_bounded(&self) -> bool {
        self.count.is_some() || self.duration_ns.is_some()
    }
}
