//! Numbers by which headers name the next one, for all crates.
//!
//! ```text
//! link header --EtherType--> IP header --protocol--> transport header --port--> application
//! ```

/// EtherTypes (IANA, IEEE 802 Numbers), and which of them are VLAN tags.
pub mod ethertype {
    /// The largest number in the place of an EtherType that is a length (IEEE 802.3).
    pub const LENGTH_MAX: u16 = 1500;
    /// The smallest EtherType (IEEE 802.3, 3.2.6). Numbers between have no meaning.
    pub const MIN: u16 = 1536;

    /// XNS (Xerox).
    pub const XNS: u16 = 0x0600;
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Trailer encapsulation (RFC 893, historic).
    pub const TRAIL: u16 = 0x1000;
    /// ERSPAN of type III (Cisco), in GRE.
    pub const ERSPAN_III: u16 = 0x22eb;
    /// DEC MOP, dump and load.
    pub const MOP_DUMP: u16 = 0x6001;
    /// DEC MOP, remote console.
    pub const MOP_CONSOLE: u16 = 0x6002;
    /// DECnet, phase IV.
    pub const DECNET: u16 = 0x6003;
    /// DEC LAT.
    pub const LAT: u16 = 0x6004;
    /// DEC LAVC and SCA.
    pub const SCA: u16 = 0x6007;
    /// An Ethernet frame, as GRE and Geneve carry it.
    pub const TRANSPARENT_BRIDGING: u16 = 0x6558;
    /// Reverse ARP.
    pub const REVERSE_ARP: u16 = 0x8035;
    /// AppleTalk.
    pub const APPLETALK: u16 = 0x809b;
    /// AppleTalk ARP.
    pub const APPLETALK_ARP: u16 = 0x80f3;
    /// IPX (Novell).
    pub const IPX: u16 = 0x8137;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// PPP.
    pub const PPP: u16 = 0x880b;
    /// Slow protocols (IEEE 802.3, Annex 57A): LACP, OAM.
    pub const SLOW: u16 = 0x8809;
    /// MPLS.
    pub const MPLS: u16 = 0x8847;
    /// MPLS, upstream-assigned labels; multicast before RFC 5332.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// PPPoE, discovery stage.
    pub const PPPOE_DISCOVERY: u16 = 0x8863;
    /// PPPoE, session stage.
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// PPPoE of 3Com, discovery stage.
    pub const PPPOE_DISCOVERY_2: u16 = 0x3c12;
    /// PPPoE of 3Com, session stage.
    pub const PPPOE_SESSION_2: u16 = 0x3c13;
    /// A frame longer than a length field can say, with 802.2.
    pub const JUMBO: u16 = 0x8870;
    /// EAP over LAN (IEEE 802.1X).
    pub const EAPOL: u16 = 0x888e;
    /// ERSPAN of types I and II (Cisco), in GRE.
    pub const ERSPAN: u16 = 0x88be;
    /// LLDP.
    pub const LLDP: u16 = 0x88cc;
    /// Precision time protocol (IEEE 1588).
    pub const PTP: u16 = 0x88f7;
    /// Configuration test protocol, "loopback".
    pub const CONFIGURATION_TEST: u16 = 0x9000;
    /// ISO protocols as Cisco sends them; not assigned.
    pub const CISCO_OSI: u16 = 0xfefe;

    /// Tag of a customer's VLAN (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// Tag of a provider's VLAN (IEEE 802.1ad).
    pub const VLAN_PROVIDER: u16 = 0x88a8;
    /// Tag of stacked VLANs before 802.1ad.
    pub const VLAN_STACKED: u16 = 0x9100;
    /// Another such number of some switches, which only text shows as a tag: see [`is_shown_as_vlan`].
    pub const VLAN_STACKED_2: u16 = 0x9200;

    /// EtherTypes that are VLAN tags.
    ///
    /// These are the three that the filter language's `vlan` accepts, because libpcap generates these comparisons
    /// (gencode.c). Flows, tunnels, indexes and filters have to agree on where a header begins, so all of them take
    /// these and no others.
    pub const VLAN_TAGS: [u16; 3] = [VLAN, VLAN_PROVIDER, VLAN_STACKED];

    /// Whether an EtherType is one of [`VLAN_TAGS`].
    #[inline]
    pub const fn is_vlan(kind: u16) -> bool {
        matches!(kind, VLAN | VLAN_PROVIDER | VLAN_STACKED)
    }

    /// Whether text and JSON show an EtherType as a VLAN tag: [`VLAN_TAGS`] and 0x9200.
    ///
    /// tcpdump decodes four tags (print-ether.c), one more than `vlan` matches in libpcap: a frame with 0x9200 shows
    /// its tag, and `vlan` does not find it.
    #[inline]
    pub const fn is_shown_as_vlan(kind: u16) -> bool {
        is_vlan(kind) || kind == VLAN_STACKED_2
    }
}

/// Protocol numbers of IPv4 and next headers of IPv6 (IANA, Assigned Internet Protocol Numbers).
pub mod ip_protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// EGP.
    pub const EGP: u8 = 8;
    /// IGRP; assigned to interior gateway protocols in general.
    pub const IGRP: u8 = 9;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// GRE.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AH: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 without a next header.
    pub const NONE: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// Mobile IPv6 in its drafts.
    pub const MOBILITY_OLD: u8 = 62;
    /// Sun's network disk.
    pub const ND: u8 = 77;
    /// EIGRP.
    pub const EIGRP: u8 = 88;
    /// OSPF.
    pub const OSPF: u8 = 89;
    /// IP in IP (IANA: IP-within-IP encapsulation protocol).
    pub const IPIP: u8 = 94;
    /// PIM.
    pub const PIM: u8 = 103;
    /// IP payload compression.
    pub const IPCOMP: u8 = 108;
    /// VRRP; CARP uses the same number.
    pub const VRRP: u8 = 112;
    /// L2TP, version 3.
    pub const L2TP: u8 = 115;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// Mobile IPv6 (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// Ethernet in IPv6 (RFC 8986).
    pub const ETHERNET: u8 = 143;

    /// IPv6 extension headers of which a packet may have several (RFC 8200, 4.1), and that filters step over:
    /// hop-by-hop options, routing, fragment, authentication, destination options.
    pub const IPV6_EXTENSIONS: [u8; 5] = [HOP_BY_HOP, ROUTING, FRAGMENT, AH, DESTINATION_OPTIONS];

    /// Protocols that begin with a source and a destination port, which flows and filters read.
    pub const WITH_PORTS: [u8; 3] = [TCP, UDP, SCTP];

    /// Whether a protocol begins with a source and a destination port, which flows and filters read: TCP, UDP, SCTP.
    #[inline]
    pub const fn has_ports(protocol: u8) -> bool {
        matches!(protocol, TCP | UDP | SCTP)
    }
}

/// Ports (IANA, Service Name and Transport Protocol Port Number Registry) that decide how a payload is read.
pub mod port {
    /// DNS.
    pub const DNS: u16 = 53;
    /// Multicast DNS.
    pub const MDNS: u16 = 5353;
    /// LLMNR.
    pub const LLMNR: u16 = 5355;
    /// GTP-U.
    pub const GTP_U: u16 = 2152;
    /// VXLAN.
    pub const VXLAN: u16 = 4789;
    /// VXLAN in Linux before a port was assigned.
    pub const VXLAN_LINUX: u16 = 8472;
    /// Geneve.
    pub const GENEVE: u16 = 6081;

    /// Whether a port is that of DNS, multicast DNS or LLMNR, whose messages have one format.
    #[inline]
    pub const fn is_dns(port: u16) -> bool {
        matches!(port, DNS | MDNS | LLMNR)
    }
}

#[cfg(test)]
mod tests {
    use super::ethertype;

    #[test]
    fn text_shows_one_tag_more_than_filters_know() {
        let tags: Vec<u16> = (0..=u16::MAX).filter(|kind| ethertype::is_vlan(*kind)).collect();
        assert_eq!(tags, ethertype::VLAN_TAGS);
        let shown = (0..=u16::MAX).filter(|kind| ethertype::is_shown_as_vlan(*kind));
        assert_eq!(shown.filter(|kind| !ethertype::is_vlan(*kind)).collect::<Vec<_>>(), [0x9200]);
    }
}
