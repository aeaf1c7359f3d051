//! Names of EtherTypes, as tcpdump writes them.

use crate::context::lookup;

pub(crate) use tapline_packet::numbers::ethertype::*;

/// The name of an EtherType, if it has one.
pub(crate) fn name(ethertype: u16) -> Option<&'static str> {
    match ethertype {
        IPV4 => Some("IPv4"),
        IPV6 => Some("IPv6"),
        ARP => Some("ARP"),
        _ => lookup(NAMES, ethertype),
    }
}

const NAMES: &[(u16, &str)] = &[
    (IPV4, "IPv4"),
    (MPLS, "MPLS unicast"),
    (MPLS_MULTICAST, "MPLS multicast"),
    (IPV6, "IPv6"),
    (VLAN, "802.1Q"),
    (VLAN_STACKED, "802.1Q-9100"),
    (VLAN_PROVIDER, "802.1Q-QinQ"),
    (VLAN_STACKED_2, "802.1Q-9200"),
    (0x0200, "PUP"),
    (ARP, "ARP"),
    (REVERSE_ARP, "Reverse ARP"),
    (0x0600, "NS"),
    (0x0500, "Sprite"),
    (TRAIL, "Trail"),
    (0x6001, "MOP DL"),
    (0x6002, "MOP RC"),
    (0x6003, "DN"),
    (0x6004, "LAT"),
    (0x6007, "SCA"),
    (TRANSPARENT_BRIDGING, "TEB"),
    (0x8038, "Lanbridge"),
    (0x803c, "DEC DNS"),
    (0x803e, "DEC DTS"),
    (0x805b, "VEXP"),
    (0x805c, "VPROD"),
    (0x809b, "Appletalk"),
    (0x80f3, "Appletalk ARP"),
    (0x8137, "IPX"),
    (PPP, "PPP"),
    (0x8808, "MPCP"),
    (SLOW, "Slow Protocols"),
    (PPPOE_DISCOVERY, "PPPoE D"),
    (PPPOE_SESSION, "PPPoE S"),
    (PPPOE_DISCOVERY_2, "PPPoE D 2"),
    (PPPOE_SESSION_2, "PPPoE S 2"),
    (EAPOL, "EAPOL"),
    (0x8899, "Realtek protocols"),
    (0x88e5, "802.1AE MACsec"),
    (0x886f, "MS NLB heartbeat"),
    (JUMBO, "Jumbo"),
    (0x894f, "NSH"),
    (CONFIGURATION_TEST, "Loopback"),
    (CISCO_OSI, "OSI"),
    (0x00fe, "GRE-OSI"),
    (0xabcd, "CFM (old)"),
    (0x8902, "CFM"),
    (0x893a, "IEEE1905.1"),
    (LLDP, "LLDP"),
    (0x88ca, "TIPC"),
    (0x0707, "GeoNet (old)"),
    (0x8947, "GeoNet"),
    (0x1111, "CALM FAST"),
    (0x88a2, "AoE"),
    (PTP, "PTP"),
    (0xd28b, "Arista Vendor Specific Protocol"),
];
