//! Words for the meaning of parts of a filter, fields and numbers.
//!
//! The numbers are those of the IEEE 802 and IANA registries (EtherTypes, protocol numbers, PPP protocols).

use std::net::Ipv4Addr;
use tapline_packet::numbers::{ethertype, ip_protocol};

use crate::ast::{
    Direction, ExprKind, Fragments, IdKind, Modifier, Primitive, Protocol, Qualifiers, TunnelKind,
};

/// The meaning of an id with these qualifiers.
pub(super) fn of_qualifiers(qualifiers: Qualifiers) -> String {
    let Qualifiers { protocol, direction, kind } = qualifiers;
    let side = match direction {
        Some(Direction::Src) => "source",
        Some(Direction::Dst) => "destination",
        Some(Direction::SrcAndDst) => "source and destination",
        None | Some(Direction::SrcOrDst) => "source or destination",
        Some(_) => "that 802.11 address",
    };
    match (kind, protocol) {
        (Some(IdKind::Port | IdKind::Portrange), protocol) => {
            let transport = match protocol {
                Some(Protocol::Tcp) => "TCP",
                Some(Protocol::Udp) => "UDP",
                Some(Protocol::Sctp) => "SCTP",
                _ => "TCP, UDP or SCTP",
            };
            format!("{transport} with that {side} port, over IPv4 or IPv6")
        }
        (Some(IdKind::Proto), Some(Protocol::Ip)) => "IPv4 that carries it".to_owned(),
        (Some(IdKind::Proto), Some(Protocol::Ip6)) => {
            "IPv6 that carries it first or in a fragment".to_owned()
        }
        (Some(IdKind::Proto), Some(Protocol::Link)) => "frames of that EtherType or LLC protocol".to_owned(),
        (Some(IdKind::Proto), _) => "packets that carry that protocol".to_owned(),
        (Some(IdKind::Protochain), _) => "IP that carries it behind any chain of headers".to_owned(),
        (Some(IdKind::Gateway), _) => {
            "frames to or from its MAC address that are not its own IP packets".to_owned()
        }
        (None | Some(IdKind::Host | IdKind::Net), Some(Protocol::Link)) => {
            format!("link-layer {side} address")
        }
        (None | Some(IdKind::Host | IdKind::Net), None) => {
            format!("{side} address: IP, or sender and target of ARP")
        }
        (None | Some(IdKind::Host | IdKind::Net), Some(_)) => format!("{side} address"),
    }
}

/// The place where the content of a modifier is looked for, in words.
pub(super) fn of_modifier(modifier: Modifier) -> &'static str {
    match modifier {
        Modifier::Scoped => "shifts end with their parentheses and at `or`",
        Modifier::Extensions => "behind the extension headers of IPv6 too",
        Modifier::AnyVlan => "behind no VLAN tag, one or two",
        Modifier::Inner(None) => "in the packet inside GRE, VXLAN, Geneve, GTP-U, IP in IP or ERSPAN",
        Modifier::Inner(Some(tunnel)) => match tunnel.kind {
            TunnelKind::Gre => "in the packet inside GRE",
            TunnelKind::Vxlan => "in the frame inside VXLAN over UDP to port 4789",
            TunnelKind::Geneve => "in the packet inside Geneve over UDP to port 6081",
            TunnelKind::Gtp => "in the packet inside GTP-U over UDP to port 2152",
            TunnelKind::Ipip => "in the packet inside IPv4 or IPv6",
            TunnelKind::Erspan => "in the frame inside ERSPAN over GRE",
        },
    }
}

/// The meaning of a part that is not an id; empty if its text says it.
pub(super) fn of_kind(kind: &ExprKind) -> String {
    let text = match kind {
        ExprKind::Protocol(protocol) => of_protocol(*protocol),
        ExprKind::Primitive(primitive) => of_primitive(primitive),
        _ => "",
    };
    text.to_owned()
}

fn of_protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Ip => "IPv4",
        Protocol::Ip6 => "IPv6",
        Protocol::Arp => "ARP",
        Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Ah | Protocol::Esp | Protocol::Pim => {
            "over IPv4, or over IPv6 without extension headers but a fragment's"
        }
        Protocol::Icmp | Protocol::Igmp | Protocol::Igrp | Protocol::Vrrp | Protocol::Carp => "over IPv4",
        Protocol::Icmp6 => "over IPv6",
        _ => "",
    }
}

fn of_primitive(primitive: &Primitive) -> &'static str {
    match primitive {
        Primitive::Broadcast(_) => "all ones in the destination",
        Primitive::Multicast(_) => "a group address in the destination",
        Primitive::Less(_) => "at most this number of bytes on the wire",
        Primitive::Greater(_) => "at least this number of bytes on the wire",
        Primitive::Vlan(_) => "an 802.1Q or 802.1ad tag; the rest is looked for behind it",
        Primitive::Mpls(_) => "an MPLS label; the rest is looked for behind it",
        Primitive::Pppoed => "PPPoE discovery",
        Primitive::Pppoes(_) => "a PPPoE session; the rest is looked for behind it",
        Primitive::Geneve(_) => "Geneve over UDP to port 6081; the rest is looked for inside",
        Primitive::Vxlan(_) => "VXLAN over UDP to port 4789; the rest is looked for inside",
        Primitive::Llc(_) => "an IEEE 802.2 frame",
        Primitive::Fragment(Fragments::Any) => "a fragment of an IP packet",
        Primitive::Fragment(Fragments::First) => "the first fragment, which has the transport header",
        Primitive::Fragment(Fragments::Later) => "a later fragment, which has no transport header",
        Primitive::Inbound => "received by this host",
        Primitive::Outbound => "sent by this host",
        _ => "",
    }
}

/// A number in the terms of its field.
pub(crate) fn of_number(field: &str, k: u32) -> String {
    let name = match field {
        "EtherType" | "Ethernet length" => ether_type(k),
        "PPP protocol" => ppp_protocol(k),
        "IPv4 protocol" | "IPv6 next header" | "IPv6 fragment's next header" | "IP protocol" => {
            ip_protocol(k)
        }
        "IPv4 source" | "IPv4 destination" | "ARP sender address" | "ARP target address" => {
            return Ipv4Addr::from(k).to_string();
        }
        "IPv6 source" | "IPv6 destination" => return format!("{:x}:{:x}", k >> 16, k & 0xffff),
        "link-layer source" | "link-layer destination" | "802.11 address" => return octets(k),
        "IP version" => return (k >> 4).to_string(),
        _ => None,
    };
    match name {
        Some(name) => name.to_owned(),
        None if field.contains("port") || field.starts_with("length") || k < 10 => k.to_string(),
        None => format!("{k:#x}"),
    }
}

/// Part of a MAC address: the four low bytes or the two high ones.
fn octets(k: u32) -> String {
    let bytes = k.to_be_bytes();
    let from = if k > 0xffff { 0 } else { 2 };
    bytes[from..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn ether_type(k: u32) -> Option<&'static str> {
    use ethertype::*;
    Some(match u16::try_from(k).ok()? {
        IPV4 => "IPv4",
        ARP => "ARP",
        REVERSE_ARP => "RARP",
        VLAN => "802.1Q (VLAN)",
        VLAN_PROVIDER => "802.1ad (provider VLAN)",
        VLAN_STACKED => "old QinQ",
        IPV6 => "IPv6",
        MPLS => "MPLS",
        MPLS_MULTICAST => "MPLS multicast",
        PPPOE_DISCOVERY => "PPPoE discovery",
        PPPOE_SESSION => "PPPoE session",
        LLDP => "LLDP",
        SLOW => "slow protocols (LACP)",
        APPLETALK => "AppleTalk",
        APPLETALK_ARP => "AppleTalk ARP",
        IPX => "IPX",
        DECNET => "DECnet",
        TRANSPARENT_BRIDGING => "Ethernet in a tunnel",
        _ => return None,
    })
}

fn ppp_protocol(k: u32) -> Option<&'static str> {
    Some(match k {
        0x0021 => "IPv4",
        0x0057 => "IPv6",
        0x0281 => "MPLS",
        0x0031 => "bridged frames",
        0x002b => "IPX",
        0x0023 => "OSI",
        0x0027 => "DECnet",
        0x0029 => "AppleTalk",
        _ => return None,
    })
}

fn ip_protocol(k: u32) -> Option<&'static str> {
    use ip_protocol::*;
    Some(match u8::try_from(k).ok()? {
        ICMP => "ICMP",
        IGMP => "IGMP",
        IPV4 => "IPv4 in IP",
        TCP => "TCP",
        IGRP => "IGRP",
        UDP => "UDP",
        IPV6 => "IPv6 in IP",
        FRAGMENT => "a fragment",
        GRE => "GRE",
        ESP => "ESP",
        AH => "AH",
        ICMPV6 => "ICMPv6",
        NONE => "nothing more",
        OSPF => "OSPF",
        PIM => "PIM",
        VRRP => "VRRP or CARP",
        SCTP => "SCTP",
        _ => return None,
    })
}
