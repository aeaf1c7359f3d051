//! One frame of every kind we know how to print, each with its name: for printers, fuzz seeds and tests.

use crate::frames::application::{
    Dhcp, dhcp, dns_no_such_name, dns_query, dns_response, http_get, http_ok, ntp, tls_client_hello,
};
use crate::frames::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, Ethernet, Host, IpPair, Ipv4, Ipv6, Tcp, TcpOption, Udp, arp,
    destination_options, flags, fragment_header, fragments_v4, geneve, gre, hop_by_hop, icmp, icmpv6, igmp,
    llc, mpls, pppoe_session, routing_header, sctp, snap, spanning_tree, vlan, vxlan,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use crate::random::Random;

/// A frame and its name.
pub type NamedFrame = (&'static str, Vec<u8>);

/// All of them, in order from the link layer up.
pub fn exhibits() -> Vec<NamedFrame> {
    [link_layer(), ipv4(), ipv6(), transport(), applications(), tunnels()].concat()
}

/// The bytes of one of them. All are made once.
pub fn exhibit(random: &mut Random) -> &'static [u8] {
    static ALL: LazyLock<Vec<NamedFrame>> = LazyLock::new(exhibits);
    &random.pick(&ALL).1
}

const fn client() -> Host {
    Host {
        mac: [2, 0, 0, 0, 0, 1],
        v4: Ipv4Addr::new(192, 0, 2, 1),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    }
}

const fn server() -> Host {
    Host {
        mac: [2, 0, 0, 0, 0, 2],
        v4: Ipv4Addr::new(192, 0, 2, 2),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    }
}

const FORTH: Ethernet = Ethernet { dst: server().mac, src: client().mac };
const V4: IpPair = IpPair::V4(client().v4, server().v4);
const V6: IpPair = IpPair::V6(client().v6, server().v6);

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    Udp { src: 40_000, dst: port }.packet(V4, payload)
}

fn tcp(port: u16, payload: &[u8]) -> Vec<u8> {
    let header = Tcp {
        src: 40_000,
        dst: port,
        seq: 1000,
        ack: 2000,
        flags: flags::PSH | flags::ACK,
        ..Tcp::default()
    };
    header.packet(V4, payload)
}

fn ping() -> Vec<u8> {
    V4.packet(1, &icmp(8, 0, [0, 7, 0, 1], b"payload of a ping"))
}

fn link_layer() -> Vec<NamedFrame> {
    let bridges = Ethernet { dst: [0x01, 0x80, 0xc2, 0, 0, 0], src: client().mac };
    let ask = arp(1, &client(), [0; 6], server().v4);
    let answer = arp(2, &server(), client().mac, client().v4);
    let tagged = vlan(&FORTH.ip(&ping()), 0x8100, 0x2064);
    vec![
        ("arp request", Ethernet::broadcast(&client()).frame(ETHERTYPE_ARP, &ask)),
        ("arp reply", Ethernet::between(&server(), &client()).frame(ETHERTYPE_ARP, &answer)),
        ("802.1ad around 802.1q", vlan(&tagged, 0x88a8, 200)),
        ("802.1q", tagged),
        ("spanning tree", bridges.frame_802_3(&spanning_tree(client().mac, client().mac, 4, 0x8001))),
        ("llc", FORTH.frame_802_3(&llc(0x04, 0x04, &[0xff; 30]))),
        ("snap", FORTH.frame_802_3(&snap([0, 0, 0], ETHERTYPE_IPV4, &ping()))),
        ("mpls", FORTH.frame(0x8847, &mpls(&[1000, 17], 61, &ping()))),
        ("pppoe session", FORTH.frame(0x8864, &pppoe_session(0x1234, 0x0021, &ping()))),
        ("unknown ethertype", FORTH.frame(0x9999, b"what this is, nobody knows")),
    ]
}

fn ipv4() -> Vec<NamedFrame> {
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let report = Ipv4 { ttl: 1, options: vec![0x94, 4, 0, 0], ..Ipv4::new(client().v4, group, 2) };
    let recorded = Ipv4 { options: vec![7, 7, 4, 0, 0, 0, 0], ..Ipv4::new(client().v4, server().v4, 1) };
    let header = Ipv4 { id: 0x4242, ..Ipv4::new(client().v4, server().v4, 17) };
    let datagram = Udp { src: 40_000, dst: 2049 }.datagram(V4, &[0x55; 60]);
    let mut fragments = fragments_v4(&header, &datagram, 48).into_iter().map(|packet| FORTH.ip(&packet));
    let unreachable = icmp(3, 3, [0; 4], &udp(161, b"asked for")[..28]);
    vec![
        ("icmp echo", FORTH.ip(&ping())),
        ("icmp port unreachable", FORTH.ip(&V4.packet(1, &unreachable))),
        ("ipv4 options", FORTH.ip(&recorded.packet(&icmp(0, 0, [0, 7, 0, 1], b"pong")))),
        ("ipv4 first fragment", fragments.next().unwrap_or_default()),
        ("ipv4 last fragment", fragments.next().unwrap_or_default()),
        ("igmp report", Ethernet::multicast_v4(&client(), group).ip(&report.packet(&igmp(0x16, 0, group)))),
        ("ipv4 unknown protocol", FORTH.ip(&V4.packet(253, b"for experiments"))),
    ]
}

fn ipv6() -> Vec<NamedFrame> {
    let (src, dst) = (client().v6, server().v6);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let to_nodes = Ethernet { dst: [0x33, 0x33, 0, 0, 0, 1], src: server().mac };
    let datagram = Udp { src: 40_000, dst: 9 }.datagram(V6, b"discard");
    let echo = icmpv6(src, dst, 128, 0, [0, 7, 0, 1], b"payload");
    let solicitation = [&dst.octets()[..], &[1, 1], &client().mac].concat();
    let advertisement = [&[0, 0, 0, 0, 0, 0, 0, 0][..], &[1, 1], &server().mac].concat();
    let labelled = Ipv6 { traffic_class: 0xb8, flow_label: 0x12345, ..Ipv6::new(src, dst, 17) };
    let query = icmpv6(src, all_nodes, 130, 0, [0x27, 0x10, 0, 0], &[0; 16]);
    let near = |dst, payload: &[u8]| Ipv6 { hop_limit: 255, ..Ipv6::new(src, dst, 58) }.packet(payload);
    vec![
        ("icmpv6 echo", FORTH.ip(&V6.packet(58, &echo))),
        ("neighbour solicitation", FORTH.ip(&near(dst, &icmpv6(src, dst, 135, 0, [0; 4], &solicitation)))),
        (
            "router advertisement",
            to_nodes.ip(&near(all_nodes, &icmpv6(src, all_nodes, 134, 0, [64, 0, 7, 8], &advertisement))),
        ),
        (
            "multicast listener query",
            to_nodes.ip(&Ipv6::new(src, all_nodes, 0).packet(&hop_by_hop(58, &query))),
        ),
        ("ipv6 flow label", FORTH.ip(&labelled.packet(&datagram))),
        ("ipv6 destination options", FORTH.ip(&V6.packet(60, &destination_options(17, &datagram)))),
        ("ipv6 routing header", FORTH.ip(&V6.packet(43, &routing_header(17, dst, &datagram)))),
        (
            "ipv6 fragment",
            FORTH.ip(&V6.packet(44, &fragment_header(17, 0x1234_5678, 0, true, &datagram[..8]))),
        ),
    ]
}

fn transport() -> Vec<NamedFrame> {
    let offers = vec![
        TcpOption::MaximumSegment(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps(100, 0),
        TcpOption::Nop,
        TcpOption::WindowScale(7),
    ];
    let ports = Tcp { src: 40_000, dst: 443, seq: 4_294_967_000, window: 64_240, ..Tcp::default() };
    let open = Tcp { flags: flags::SYN, options: offers, ..ports.clone() };
    let edges = vec![TcpOption::Nop, TcpOption::Nop, TcpOption::Sack(vec![(3000, 4000), (5000, 6000)])];
    let selective = Tcp { flags: flags::ACK, ack: 2000, options: edges, ..ports.clone() };
    let reset = Tcp { flags: flags::RST, ..ports };
    let init = [0, 0, 0, 1, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1];
    let data = [&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0], &b"signal"[..]].concat();
    vec![
        ("tcp syn", FORTH.ip(&open.packet(V4, &[]))),
        ("tcp syn over ipv6", FORTH.ip(&open.packet(V6, &[]))),
        ("tcp sack", FORTH.ip(&selective.packet(V4, &[]))),
        ("tcp reset", FORTH.ip(&reset.packet(V4, &[]))),
        ("tcp data", FORTH.ip(&tcp(9, b"discarded"))),
        ("udp", FORTH.ip(&udp(9, b"discarded"))),
        ("sctp init", FORTH.ip(&V4.packet(132, &sctp(5000, 5000, 0, &[(1, 0, &init)])))),
        (
            "sctp data",
            FORTH.ip(&V4.packet(132, &sctp(5000, 5000, 9, &[(0, 3, &data), (4, 0, &[0, 1, 0, 4])]))),
        ),
    ]
}

fn applications() -> Vec<NamedFrame> {
    let name = "www.example.com";
    let addresses = [server().v4.into(), server().v6.into()];
    let nobody = IpPair::V4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let discover = dhcp(Dhcp::Discover, 0x1234, client().mac, client().v4, server().v4);
    let granted = dhcp(Dhcp::Ack, 0x1234, client().mac, client().v4, server().v4);
    let back = Ethernet::between(&server(), &client());
    let from_server = IpPair::V4(server().v4, client().v4);
    let from_port =
        |port: u16, payload: &[u8]| back.ip(&Udp { src: port, dst: 40_000 }.packet(from_server, payload));
    vec![
        ("dns query", FORTH.ip(&udp(53, &dns_query(0x1234, name, 1)))),
        ("dns response", from_port(53, &dns_response(0x1234, name, 1, 300, &addresses))),
        ("dns no such name", from_port(53, &dns_no_such_name(0x1234, "nowhere.example.com", 28))),
        (
            "dhcp discover",
            Ethernet::broadcast(&client()).ip(&Udp { src: 68, dst: 67 }.packet(nobody, &discover)),
        ),
        ("dhcp ack", back.ip(&Udp { src: 67, dst: 68 }.packet(from_server, &granted))),
        (
            "ntp client",
            FORTH.ip(&Udp { src: 123, dst: 123 }.packet(V4, &ntp(3, 0, 0, 0xe8fe_1234_0000_0000))),
        ),
        ("ntp server", from_port(123, &ntp(4, 1, 0xe8fe_1234_0000_0000, 0xe8fe_1234_0010_0000))),
        ("tls client hello", FORTH.ip(&tcp(443, &tls_client_hello(name, [0x5a; 32])))),
        ("http request", FORTH.ip(&tcp(80, &http_get(name, "/index.html")))),
        ("http response", FORTH.ip(&tcp(80, &http_ok(0)))),
    ]
}

fn tunnels() -> Vec<NamedFrame> {
    let inner = FORTH.ip(&ping());
    // One option: class 0x0102, type 3, one word.
    let option = [0x01, 0x02, 0x03, 0x01, 0, 0, 0, 9];
    vec![
        ("gre", FORTH.ip(&V4.packet(47, &gre(ETHERTYPE_IPV4, None, &ping())))),
        ("gre with key", FORTH.ip(&V4.packet(47, &gre(ETHERTYPE_IPV4, Some(0x0102_0304), &ping())))),
        ("vxlan", FORTH.ip(&udp(4789, &vxlan(5000, &inner)))),
        ("geneve", FORTH.ip(&udp(6081, &geneve(77, 0x6558, &option, &inner)))),
        ("ip in ip", FORTH.ip(&V4.packet(4, &ping()))),
        ("ipv6 in ipv4", FORTH.ip(&V4.packet(41, &Udp { src: 40_000, dst: 9 }.packet(V6, b"discard")))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_frames_are_whole() {
        let all = exhibits();
        let names: BTreeSet<&str> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all.len());
        for (name, frame) in &all {
            assert!((34..=1514).contains(&frame.len()), "{name}: {} bytes", frame.len());
        }
    }
}
