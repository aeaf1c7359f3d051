//! Packet fields by name, and constants to compare them with.
//!
//! ```text
//! frame  := link header, vlan tags (at most 2), network header, [extension headers], transport header, data
//! ```
//!
//! A field is found wherever its header is in this packet: behind VLAN tags, IPv4 options, IPv6 extension headers. A
//! header is present if the headers before say so and its fixed part was captured whole; a transport header is not in
//! later fragments. Fields of a header that is not present are 0.
//!
//! Sources: RFC 791, 792, 793/9293, 768, 826, 4443, 8200; IEEE 802.1Q.

use tapline_packet::LinkType;
use tapline_packet::numbers::{ethertype, ip_protocol};

use tapline_ir::Width;

/// The header that holds a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Header {
    /// Destination, source: Ethernet alone.
    Ethernet,
    /// The outermost VLAN tag in the bytes.
    Vlan,
    /// RFC 826, for IPv4 over Ethernet.
    Arp,
    /// RFC 791.
    Ip,
    /// RFC 8200.
    Ip6,
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 792.
    Icmp,
    /// RFC 4443.
    Icmp6,
}

impl Header {
    /// The bytes that must have been captured for the header to be present.
    pub(super) fn len_min(self) -> u32 {
        match self {
            Header::Vlan => 4,
            Header::Ethernet => 14,
            Header::Arp => 28,
            Header::Ip | Header::Tcp => 20,
            Header::Ip6 => 40,
            Header::Udp | Header::Icmp => 8,
            Header::Icmp6 => 4,
        }
    }

    /// The number that the header before announces it by: EtherType, or IP protocol.
    pub(super) fn number(self) -> Option<u32> {
        Some(match self {
            Header::Ip => ethertype::IPV4.into(),
            Header::Arp => ethertype::ARP.into(),
            Header::Ip6 => ethertype::IPV6.into(),
            Header::Icmp => ip_protocol::ICMP.into(),
            Header::Tcp => ip_protocol::TCP.into(),
            Header::Udp => ip_protocol::UDP.into(),
            Header::Icmp6 => ip_protocol::ICMPV6.into(),
            _ => return None,
        })
    }
}

/// The computation of a field's value once its header is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Bytes of the header, shifted right, and the low `bits` of the result.
    Bits { header: Header, offset: u32, width: Width, shift: u32, bits: u32, scale: u32 },
    /// 1 if the header is present.
    Present(Header),
    /// Bytes from the packet's start to the header.
    Start(Header),
    /// The EtherType behind all tags, or its substitute.
    EtherType,
    /// 4, 6, or 0.
    IpVersion,
    /// The protocol that IPv4 or IPv6 carries, behind extension headers; 0 without one, and in later fragments.
    Protocol,
    /// Bytes from the packet's start to the transport header; 0 if there is none.
    TransportStart,
    /// Bytes from the packet's start to the payload of TCP, UDP, ICMP or ICMPv6; 0 if none of them is present.
    DataStart,
    /// Captured bytes of the payload, without padding behind the IP packet.
    DataLength,
    /// 1 for fragments of either version, the first included.
    Fragment,
}

/// One line of the list of fields.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name behind `PKT.`.
    pub name: &'static str,
    /// A description of the field, as help shows it.
    pub meaning: &'static str,
    /// The greatest value.
    pub max: u64,
    pub(super) item: Item,
}

const fn bits(
    name: &'static str,
    meaning: &'static str,
    header: Header,
    offset: u32,
    width: Width,
    shift: u32,
    bits: u32,
) -> Field {
    let max = u64::MAX >> (64 - bits);
    Field { name, meaning, max, item: Item::Bits { header, offset, width, shift, bits, scale: 1 } }
}

const fn whole(
    name: &'static str,
    meaning: &'static str,
    header: Header,
    offset: u32,
    width: Width,
) -> Field {
    bits(name, meaning, header, offset, width, 0, width.bytes() * 8)
}

/// A header length in units of 4 bytes, given in bytes.
const fn length(name: &'static str, meaning: &'static str, header: Header, offset: u32, shift: u32) -> Field {
    let item = Item::Bits { header, offset, width: Width::Byte, shift, bits: 4, scale: 4 };
    Field { name, meaning, max: 60, item }
}

const fn flag(name: &'static str, meaning: &'static str, item: Item) -> Field {
    Field { name, meaning, max: 1, item }
}

const fn place(name: &'static str, meaning: &'static str, item: Item) -> Field {
    Field { name, meaning, max: START_MAX, item }
}

use Header::{Arp, Ethernet, Icmp, Icmp6, Ip, Ip6, Tcp, Udp, Vlan};
use Width::{Byte, Double, Half, Word};

/// No header starts later: 8 extension headers of 2048 bytes and everything before them are less.
pub(super) const START_MAX: u64 = 0xffff;

/// All fields, by header.
pub const FIELDS: &[Field] = &[
    bits("ETH_DST", "destination address, 48 bits", Ethernet, 0, Double, 16, 48),
    bits("ETH_SRC", "source address, 48 bits", Ethernet, 6, Double, 16, 48),
    Field { name: "ETH_TYPE", meaning: "EtherType, behind tags", max: 0xffff, item: Item::EtherType },
    bits("VLAN_ID", "identifier of the outermost tag", Vlan, 0, Half, 0, 12),
    bits("VLAN_PCP", "priority in the outermost tag", Vlan, 0, Half, 13, 3),
    flag("IS_VLAN", "1 if there is a tag", Item::Present(Vlan)),
    flag("IS_ARP", "1 for ARP", Item::Present(Arp)),
    whole("ARP_OP", "1 request, 2 reply", Arp, 6, Half),
    bits("ARP_SENDER_MAC", "sender's address, 48 bits", Arp, 8, Double, 16, 48),
    whole("ARP_SENDER_IP", "sender's IPv4 address", Arp, 14, Word),
    bits("ARP_TARGET_MAC", "target's address, 48 bits", Arp, 18, Double, 16, 48),
    whole("ARP_TARGET_IP", "target's IPv4 address", Arp, 24, Word),
    flag("IS_IP", "1 for IPv4", Item::Present(Ip)),
    flag("IS_IP6", "1 for IPv6", Item::Present(Ip6)),
    flag("IS_FRAGMENT", "1 for fragments of either version", Item::Fragment),
    Field { name: "IP_VERSION", meaning: "4, 6, or 0", max: 6, item: Item::IpVersion },
    length("IP_HLEN", "header length in bytes", Ip, 0, 0),
    whole("IP_TOS", "type of service", Ip, 1, Byte),
    bits("IP_DSCP", "differentiated services", Ip, 1, Byte, 2, 6),
    bits("IP_ECN", "congestion notification", Ip, 1, Byte, 0, 2),
    whole("IP_LEN", "length in bytes, header included", Ip, 2, Half),
    whole("IP_ID", "identification", Ip, 4, Half),
    bits("IP_DF", "1: do not fragment", Ip, 6, Byte, 6, 1),
    bits("IP_MF", "1: more fragments follow", Ip, 6, Byte, 5, 1),
    bits("IP_FRAG", "fragment's place, in 8 bytes", Ip, 6, Half, 0, 13),
    whole("IP_TTL", "time to live", Ip, 8, Byte),
    whole("IP_PROTO", "protocol", Ip, 9, Byte),
    whole("IP_CSUM", "checksum", Ip, 10, Half),
    whole("IP_SRC", "source address", Ip, 12, Word),
    whole("IP_DST", "destination address", Ip, 16, Word),
    whole("IP_DEST", "destination address", Ip, 16, Word),
    place("IP_START", "bytes before the IPv4 header", Item::Start(Ip)),
    bits("IP6_CLASS", "traffic class", Ip6, 0, Word, 20, 8),
    bits("IP6_FLOW", "flow label", Ip6, 0, Word, 0, 20),
    whole("IP6_LEN", "payload length in bytes", Ip6, 4, Half),
    whole("IP6_NEXT", "next header, of the fixed header", Ip6, 6, Byte),
    whole("IP6_HOPS", "hop limit", Ip6, 7, Byte),
    whole("IP6_SRC_HIGH", "first half of the source address", Ip6, 8, Double),
    whole("IP6_SRC_LOW", "second half of the source address", Ip6, 16, Double),
    whole("IP6_DST_HIGH", "first half of the destination address", Ip6, 24, Double),
    whole("IP6_DST_LOW", "second half of the destination address", Ip6, 32, Double),
    place("IP6_START", "bytes before the IPv6 header", Item::Start(Ip6)),
    Field { name: "L4_PROTO", meaning: "protocol carried by IPv4 or IPv6", max: 255, item: Item::Protocol },
    place("L4_START", "bytes before the transport header", Item::TransportStart),
    flag("IS_TCP", "1 for TCP", Item::Present(Tcp)),
    whole("TCP_SPORT", "source port", Tcp, 0, Half),
    whole("TCP_DPORT", "destination port", Tcp, 2, Half),
    whole("TCP_SEQ", "sequence number", Tcp, 4, Word),
    whole("TCP_ACK", "acknowledgment number", Tcp, 8, Word),
    length("TCP_HLEN", "header length in bytes", Tcp, 12, 4),
    whole("TCP_FLAGS", "flags, see TCP_SYN and others", Tcp, 13, Byte),
    whole("TCP_WINDOW", "window", Tcp, 14, Half),
    whole("TCP_CSUM", "checksum", Tcp, 16, Half),
    whole("TCP_URGENT", "urgent pointer", Tcp, 18, Half),
    flag("IS_UDP", "1 for UDP", Item::Present(Udp)),
    whole("UDP_SPORT", "source port", Udp, 0, Half),
    whole("UDP_DPORT", "destination port", Udp, 2, Half),
    whole("UDP_LEN", "length in bytes, header included", Udp, 4, Half),
    whole("UDP_CSUM", "checksum", Udp, 6, Half),
    flag("IS_ICMP", "1 for ICMP", Item::Present(Icmp)),
    whole("ICMP_TYPE", "type", Icmp, 0, Byte),
    whole("ICMP_CODE", "code", Icmp, 1, Byte),
    whole("ICMP_CSUM", "checksum", Icmp, 2, Half),
    whole("ICMP_ID", "identifier of echoes", Icmp, 4, Half),
    whole("ICMP_SEQ", "sequence number of echoes", Icmp, 6, Half),
    flag("IS_ICMP6", "1 for ICMPv6", Item::Present(Icmp6)),
    whole("ICMP6_TYPE", "type", Icmp6, 0, Byte),
    whole("ICMP6_CODE", "code", Icmp6, 1, Byte),
    whole("ICMP6_CSUM", "checksum", Icmp6, 2, Half),
    place("DATA_START", "bytes before what TCP, UDP or ICMP carries", Item::DataStart),
    Field {
        name: "DATA_LEN",
        meaning: "captured bytes of that",
        max: u32::MAX as u64,
        item: Item::DataLength,
    },
];

/// Numbers with names.
pub const CONSTANTS: &[(&str, u64)] = &[
    ("TRUE", 1),
    ("FALSE", 0),
    ("PROTO_ICMP", ip_protocol::ICMP as u64),
    ("PROTO_IGMP", ip_protocol::IGMP as u64),
    ("PROTO_TCP", ip_protocol::TCP as u64),
    ("PROTO_UDP", ip_protocol::UDP as u64),
    ("PROTO_GRE", ip_protocol::GRE as u64),
    ("PROTO_ESP", ip_protocol::ESP as u64),
    ("PROTO_AH", ip_protocol::AH as u64),
    ("PROTO_ICMP6", ip_protocol::ICMPV6 as u64),
    ("PROTO_SCTP", ip_protocol::SCTP as u64),
    ("TYPE_IP", ethertype::IPV4 as u64),
    ("TYPE_ARP", ethertype::ARP as u64),
    ("TYPE_IP6", ethertype::IPV6 as u64),
    ("TCP_FIN", 1),
    ("TCP_SYN", 2),
    ("TCP_RST", 4),
    ("TCP_PSH", 8),
    ("TCP_ACK", 16),
    ("TCP_URG", 32),
    ("TCP_ECE", 64),
    ("TCP_CWR", 128),
];

pub(super) fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

pub(super) fn constant(name: &str) -> Option<u64> {
    CONSTANTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The beginning of frames of a link type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Bytes before the network header, tags not counted.
    pub(super) header_len: u32,
    /// The offset of the EtherType; without one the packet begins with IP, and the version field decides.
    pub(super) type_at: Option<u32>,
    pub(super) is_ethernet: bool,
}

impl Link {
    /// `None` where fields are not known.
    pub(super) fn of(link_type: LinkType) -> Option<Link> {
        let (header_len, type_at) = match link_type {
            LinkType::ETHERNET => (14, Some(12)),
            LinkType::LINUX_SLL => (16, Some(14)),
            LinkType::LINUX_SLL2 => (20, Some(0)),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => (0, None),
            _ => return None,
        };
        Some(Link { header_len, type_at, is_ethernet: link_type == LinkType::ETHERNET })
    }
}
