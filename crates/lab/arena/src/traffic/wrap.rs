//! Headers around a session's IP packets on their way.

use crate::frames::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Host, IpPair, Udp, geneve, gre, mpls, pppoe_session, vlan,
    vxlan,
};

/// The layers between Ethernet and the IP packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// None.
    Plain,
    /// One 802.1Q tag.
    Vlan(u16),
    /// An 802.1ad tag around an 802.1Q tag.
    DoubleVlan(u16, u16),
    /// One MPLS label.
    Mpls(u32),
    /// A PPPoE session.
    Pppoe(u16),
    /// GRE over IPv4.
    Gre,
    /// VXLAN over IPv4.
    Vxlan(u32),
    /// Geneve over IPv4.
    Geneve(u32),
}

const TUNNEL_FROM: u16 = 0xfe01;
const TUNNEL_TO: u16 = 0xfe02;

impl Encapsulation {
    /// The frame in which `packet` travels.
    pub fn frame(self, ethernet: Ethernet, packet: &[u8]) -> Vec<u8> {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        let ethertype = if is_v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        match self {
            Encapsulation::Plain => ethernet.ip(packet),
            Encapsulation::Vlan(id) => vlan(&ethernet.ip(packet), 0x8100, id),
            Encapsulation::DoubleVlan(outer, inner) => {
                vlan(&vlan(&ethernet.ip(packet), 0x8100, inner), 0x88a8, outer)
            }
            Encapsulation::Mpls(label) => ethernet.frame(0x8847, &mpls(&[label], 63, packet)),
            Encapsulation::Pppoe(id) => {
                let protocol = if is_v6 { 0x0057 } else { 0x0021 };
                ethernet.frame(0x8864, &pppoe_session(id, protocol, packet))
            }
            Encapsulation::Gre => tunnel(47, &gre(ethertype, Some(7), packet)),
            Encapsulation::Vxlan(network) => tunnel_udp(4789, &vxlan(network, &ethernet.ip(packet))),
            Encapsulation::Geneve(network) => {
                tunnel_udp(6081, &geneve(network, 0x6558, &[], &ethernet.ip(packet)))
            }
        }
    }

    /// Bytes that a packet of the session may have so that no frame exceeds the MTU.
    pub fn packet_max(self) -> usize {
        match self {
            Encapsulation::Plain | Encapsulation::Vlan(_) => 1500,
            Encapsulation::Mpls(_) => 1496,
            // The kernel lets a frame exceed the MTU by one tag of 802.1Q, not by two.
            Encapsulation::DoubleVlan(..) | Encapsulation::Pppoe(_) => 1492,
            Encapsulation::Gre => 1500 - 20 - 8,
            Encapsulation::Vxlan(_) | Encapsulation::Geneve(_) => 1500 - 20 - 8 - 8 - 14,
        }
    }
}

fn tunnel(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (Host::number(TUNNEL_FROM), Host::number(TUNNEL_TO));
    Ethernet::between(&from, &to).ip(&IpPair::V4(from.v4, to.v4).packet(protocol, payload))
}

fn tunnel_udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let ips = IpPair::V4(Host::number(TUNNEL_FROM).v4, Host::number(TUNNEL_TO).v4);
    tunnel(17, &Udp { src: 50_000, dst: port }.datagram(ips, payload))
}
