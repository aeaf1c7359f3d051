//! Names of EtherTypes, as tcpdump writes them.

use crate::context::lookup;

/// The largest value that is a length of IEEE 802.3 and not a type.
pub(crate) const LENGTH_MAX: u16 = 1500;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const TRAIL: u16 = 0x1000;
pub(crate) const REVERSE_ARP: u16 = 0x8035;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const MPLS: u16 = 0x8847;
pub(crate) const MPLS_MULTICAST: u16 = 0x8848;
pub(crate) const PPP: u16 = 0x880b;
pub(crate) const PPPOE_DISCOVERY: u16 = 0x8863;
pub(crate) const PPPOE_SESSION: u16 = 0x8864;
pub(crate) const PPPOE_DISCOVERY_2: u16 = 0x3c12;
pub(crate) const PPPOE_SESSION_2: u16 = 0x3c13;
pub(crate) const JUMBO: u16 = 0x8870;

/// Whether a VLAN tag follows.
pub(crate) const fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, VLAN | 0x88a8 | 0x9100 | 0x9200)
}

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
    (0x9100, "802.1Q-9100"),
    (0x88a8, "802.1Q-QinQ"),
    (0x9200, "802.1Q-9200"),
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
    (0x6558, "TEB"),
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
    (0x8809, "Slow Protocols"),
    (PPPOE_DISCOVERY, "PPPoE D"),
    (PPPOE_SESSION, "PPPoE S"),
    (PPPOE_DISCOVERY_2, "PPPoE D 2"),
    (PPPOE_SESSION_2, "PPPoE S 2"),
    (0x888e, "EAPOL"),
    (0x8899, "Realtek protocols"),
    (0x88e5, "802.1AE MACsec"),
    (0x886f, "MS NLB heartbeat"),
    (JUMBO, "Jumbo"),
    (0x894f, "NSH"),
    (0x9000, "Loopback"),
    (0xfefe, "OSI"),
    (0x00fe, "GRE-OSI"),
    (0xabcd, "CFM (old)"),
    (0x8902, "CFM"),
    (0x893a, "IEEE1905.1"),
    (0x88cc, "LLDP"),
    (0x88ca, "TIPC"),
    (0x0707, "GeoNet (old)"),
    (0x8947, "GeoNet"),
    (0x1111, "CALM FAST"),
    (0x88a2, "AoE"),
    (0x88f7, "PTP"),
    (0xd28b, "Arista Vendor Specific Protocol"),
];
