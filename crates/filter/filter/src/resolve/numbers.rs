//! EtherTypes, protocols and ports as the 32-bit numbers that predicates compare. The numbers are those of
//! [`tapline_packet::numbers`].

macro_rules! widened {
    ($module:ident: $($name:ident)*) => {
        pub(in crate::resolve) mod $module {
            $(pub(in crate::resolve) const $name: u32 = tapline_packet::numbers::$module::$name as u32;)*
        }
    };
}

widened!(ethertype: APPLETALK APPLETALK_ARP ARP CONFIGURATION_TEST DECNET ERSPAN ERSPAN_III IPV4 IPV6 IPX LAT LENGTH_MAX LLDP MOP_CONSOLE MOP_DUMP MPLS PPPOE_DISCOVERY PPPOE_SESSION REVERSE_ARP SCA SLOW TRANSPARENT_BRIDGING VLAN VLAN_PROVIDER VLAN_STACKED XNS);

widened!(port: GENEVE GTP_U VXLAN);

widened!(ip_protocol: AH DESTINATION_OPTIONS ESP FRAGMENT GRE HOP_BY_HOP ICMP ICMPV6 IGMP IGRP IPV4 IPV6 PIM ROUTING SCTP TCP UDP VRRP);
