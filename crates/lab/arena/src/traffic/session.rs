//! The kinds of session in the mix: the hosts, the protocol, and the number of bytes.

use super::conversation::{Conversation, Side};
use super::wrap::Encapsulation;
use crate::frames::application::{
    Dhcp, dhcp, dns_no_such_name, dns_query, dns_response, http_get, http_ok, ntp, tls_client_hello,
    tls_record,
};
use crate::frames::{
    BROADCAST, ETHERTYPE_ARP, Ethernet, Host, IpPair, IpVersion, Ipv4, Udp, arp, fragments_v4, hop_by_hop,
    icmp, icmpv6, igmp, sctp, spanning_tree,
};
use crate::random::Random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Frames with their times in nanoseconds from the session's beginning.
type Frames = Vec<(u64, Vec<u8>)>;
type Session = fn(&mut Random) -> Frames;

/// Each kind with its share of all sessions, in parts of the sum.
const MIX: &[(u64, Session)] = &[
    (22, dns),
    (20, tls),
    (8, web),
    (8, quic),
    (8, ping),
    (8, resolve_address),
    (5, ssh),
    (4, ntp_exchange),
    (4, neighbour_discovery),
    (4, refused),
    (3, hello_of_bridge),
    (2, lease),
    (2, group_membership),
    (1, large_datagram),
    (1, signalling),
];

const MILLISECOND_NS: u64 = 1_000_000;
const NAMES: &[&str] =
    &["www.example.com", "mail.example.org", "cdn.example.net", "api.shop.example", "files.campus.example"];

/// A session of any kind.
pub(super) fn any(random: &mut Random) -> Frames {
    let total: u64 = MIX.iter().map(|(share, _)| share).sum();
    let mut ticket = random.below(total);
    for (share, session) in MIX {
        if ticket < *share {
            return session(random);
        }
        ticket -= share;
    }
    Vec::new()
}

fn client(random: &mut Random) -> Host {
    Host::number(random.between(0x0101..=0x01fe) as u16)
}

fn server(random: &mut Random) -> Host {
    Host::number(random.between(0x0201..=0x0220) as u16)
}

fn name(random: &mut Random) -> &'static str {
    NAMES[random.below(NAMES.len() as u64) as usize]
}

fn high_port(random: &mut Random) -> u16 {
    random.between(32_768..=60_999) as u16
}

fn version(random: &mut Random) -> IpVersion {
    if random.one_of(1, 4) { IpVersion::V6 } else { IpVersion::V4 }
}

fn wrap(random: &mut Random) -> Encapsulation {
    match random.below(40) {
        0..4 => Encapsulation::Vlan(random.between(1..=4094) as u16),
        4 => Encapsulation::DoubleVlan(100, random.between(1..=4094) as u16),
        5 => Encapsulation::Mpls(random.between(16..=0xf_ffff) as u32),
        6 => Encapsulation::Pppoe(0x0123),
        7 => Encapsulation::Gre,
        8 => Encapsulation::Vxlan(5000),
        9 => Encapsulation::Geneve(77),
        _ => Encapsulation::Plain,
    }
}

fn rtt_ns(random: &mut Random) -> u64 {
    random.heavy_tailed(200_000, 80 * MILLISECOND_NS)
}

fn connection(random: &mut Random, port: u16) -> Conversation {
    let (client, server) = ((client(random), high_port(random)), (server(random), port));
    Conversation::new(client, server, version(random), wrap(random), rtt_ns(random))
}

fn web(random: &mut Random) -> Frames {
    let mut talk = connection(random, 80);
    talk.open();
    for _ in 0..random.between(1..=3) {
        let path = format!("/page/{}", random.below(1000));
        talk.send(Side::Client, &http_get(name(random), &path));
        let len = random.heavy_tailed(3_000, 500_000) as usize;
        talk.send(Side::Server, &[http_ok(len), page(len)].concat());
    }
    talk.close();
    talk.into_frames()
}

/// `len` bytes of text in lines.
fn page(len: usize) -> Vec<u8> {
    const LINE: &[u8] = b"One line of a page that says the same on every line.\n";
    LINE.iter().copied().cycle().take(len).collect()
}

fn tls(random: &mut Random) -> Frames {
    let mut talk = connection(random, 443);
    talk.open();
    let mut nonce = [0; 32];
    nonce.copy_from_slice(&random.bytes(32));
    talk.send(Side::Client, &tls_client_hello(name(random), nonce));
    let certificate = random.between(2000..=4000) as usize;
    talk.send(Side::Server, &tls_record(23, &random.bytes(certificate)));
    for _ in 0..random.between(1..=4) {
        let request = random.between(100..=900) as usize;
        talk.send(Side::Client, &tls_record(23, &random.bytes(request)));
        let mut left = random.heavy_tailed(4_000, 1_000_000) as usize;
        while left > 0 {
            let part = left.min(16_384);
            talk.send(Side::Server, &tls_record(23, &random.bytes(part)));
            left -= part;
        }
    }
    talk.close();
    talk.into_frames()
}

fn ssh(random: &mut Random) -> Frames {
    let mut talk = connection(random, 22);
    talk.open();
    talk.send(Side::Server, b"SSH-2.0-server_1.0\r\n");
    talk.send(Side::Client, b"SSH-2.0-client_1.0\r\n");
    for _ in 0..random.between(5..=30) {
        talk.send(Side::Client, &random.bytes(36));
        talk.send(Side::Server, &random.bytes(36));
    }
    talk.close();
    talk.into_frames()
}

fn refused(random: &mut Random) -> Frames {
    let port = random.between(1..=10_000) as u16;
    let mut talk = connection(random, port);
    talk.reset();
    talk.into_frames()
}

/// A datagram and its answer, half a round trip apart.
fn exchange(random: &mut Random, port: u16, question: &[u8], answer: &[u8]) -> Frames {
    let (client, server) = (client(random), server(random));
    let (version, wrap, rtt_ns) = (version(random), wrap(random), rtt_ns(random));
    let client_port = high_port(random);
    let asked =
        Udp { src: client_port, dst: port }.packet(IpPair::between(&client, &server, version), question);
    let answered =
        Udp { src: port, dst: client_port }.packet(IpPair::between(&server, &client, version), answer);
    vec![
        (0, wrap.frame(Ethernet::between(&client, &server), &asked)),
        (rtt_ns / 2, wrap.frame(Ethernet::between(&server, &client), &answered)),
    ]
}

fn dns(random: &mut Random) -> Frames {
    let id = random.bits() as u16;
    let name = name(random);
    let server = server(random);
    let (kind, address) =
        if random.one_of(1, 3) { (28, IpAddr::V6(server.v6)) } else { (1, IpAddr::V4(server.v4)) };
    let answer = match random.below(10) {
        0 => dns_no_such_name(id, name, kind),
        _ => dns_response(id, name, kind, random.between(1..=86_400) as u32, &[address]),
    };
    exchange(random, 53, &dns_query(id, name, kind), &answer)
}

fn ntp_exchange(random: &mut Random) -> Frames {
    // 2023-11-14 in seconds since 1900, with a random fraction.
    let now = 3_908_988_800 << 32 | random.below(1 << 32);
    exchange(random, 123, &ntp(3, 0, 0, now), &ntp(4, 2, now, now + (1 << 22)))
}

fn quic(random: &mut Random) -> Frames {
    let (client, server, version) = (client(random), server(random), version(random));
    let port = high_port(random);
    let there = IpPair::between(&client, &server, version);
    let back = IpPair::between(&server, &client, version);
    // A long header of version 1 in a datagram of at least 1200 bytes (RFC 9000 section 14.1), then short headers.
    let initial = [&[0xc3, 0, 0, 0, 1, 8], &random.bytes(1194)[..]].concat();
    let mut frames = vec![(
        0,
        Ethernet::between(&client, &server).ip(&Udp { src: port, dst: 443 }.packet(there, &initial)),
    )];
    for index in 1..=random.heavy_tailed(12, 800) {
        let at_ns = index * 50_000;
        if index % 4 == 0 {
            let ack = [&[0x41], &random.bytes(38)[..]].concat();
            frames.push((
                at_ns,
                Ethernet::between(&client, &server).ip(&Udp { src: port, dst: 443 }.packet(there, &ack)),
            ));
        } else {
            let len = random.between(900..=1350) as usize;
            let data = [&[0x42], &random.bytes(len)[..]].concat();
            frames.push((
                at_ns,
                Ethernet::between(&server, &client).ip(&Udp { src: 443, dst: port }.packet(back, &data)),
            ));
        }
    }
    frames
}

fn ping(random: &mut Random) -> Frames {
    let (client, server, version) = (client(random), server(random), version(random));
    let id = random.bits() as u16;
    let data: Vec<u8> = (0..56).collect();
    let message = |from: &Host, to: &Host, is_reply: bool, sequence: u16| {
        let [[a, b], [c, d]] = [id.to_be_bytes(), sequence.to_be_bytes()];
        let packet = match version {
            IpVersion::V4 => {
                let kind = if is_reply { 0 } else { 8 };
                IpPair::V4(from.v4, to.v4).packet(1, &icmp(kind, 0, [a, b, c, d], &data))
            }
            IpVersion::V6 => {
                let kind = if is_reply { 129 } else { 128 };
                IpPair::V6(from.v6, to.v6).packet(58, &icmpv6(from.v6, to.v6, kind, 0, [a, b, c, d], &data))
            }
        };
        Ethernet::between(from, to).ip(&packet)
    };
    let mut frames = Frames::new();
    for sequence in 1..=random.between(1..=4) {
        let at_ns = sequence * 100 * MILLISECOND_NS;
        frames.push((at_ns, message(&client, &server, false, sequence as u16)));
        frames.push((at_ns + 300_000, message(&server, &client, true, sequence as u16)));
    }
    frames
}

fn resolve_address(random: &mut Random) -> Frames {
    let (client, server) = (client(random), server(random));
    let asked =
        Ethernet::broadcast(&client).frame(ETHERTYPE_ARP, &padded(arp(1, &client, [0; 6], server.v4)));
    let answered = Ethernet::between(&server, &client)
        .frame(ETHERTYPE_ARP, &padded(arp(2, &server, client.mac, client.v4)));
    vec![(0, asked), (150_000, answered)]
}

/// Ethernet's payload has at least 46 bytes.
fn padded(mut payload: Vec<u8>) -> Vec<u8> {
    payload.resize(payload.len().max(46), 0);
    payload
}

fn neighbour_discovery(random: &mut Random) -> Frames {
    let (client, server) = (client(random), server(random));
    let [.., x, y, z] = server.v6.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(x), u16::from_be_bytes([y, z]));
    let source_option = [&[1, 1], &client.mac[..]].concat();
    let target_option = [&[2, 1], &server.mac[..]].concat();
    let asked = [&server.v6.octets()[..], &source_option].concat();
    let answered = [&server.v6.octets()[..], &target_option].concat();
    let to_group = Ethernet { dst: [0x33, 0x33, 0xff, x, y, z], src: client.mac };
    let packet = |src: Ipv6Addr, dst: Ipv6Addr, kind, word, rest: &[u8]| {
        let header = crate::frames::Ipv6 { hop_limit: 255, ..crate::frames::Ipv6::new(src, dst, 58) };
        header.packet(&icmpv6(src, dst, kind, 0, word, rest))
    };
    vec![
        (0, to_group.ip(&packet(client.v6, group, 135, [0; 4], &asked))),
        (
            120_000,
            Ethernet::between(&server, &client).ip(&packet(
                server.v6,
                client.v6,
                136,
                [0x60, 0, 0, 0],
                &answered,
            )),
        ),
    ]
}

fn hello_of_bridge(random: &mut Random) -> Frames {
    let bridge = Host::number(0x0001);
    let to_bridges = Ethernet { dst: [0x01, 0x80, 0xc2, 0, 0, 0], src: bridge.mac };
    let port = random.between(1..=24) as u16 | 0x8000;
    vec![(0, to_bridges.frame_802_3(&padded(spanning_tree(bridge.mac, bridge.mac, 0, port))))]
}

fn lease(random: &mut Random) -> Frames {
    let (client, server) = (client(random), server(random));
    let transaction = random.bits() as u32;
    let to_server = |kind| {
        let ips = IpPair::V4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        let message = dhcp(kind, transaction, client.mac, client.v4, server.v4);
        Ethernet::broadcast(&client).ip(&Udp { src: 68, dst: 67 }.packet(ips, &message))
    };
    let to_client = |kind| {
        let message = dhcp(kind, transaction, client.mac, client.v4, server.v4);
        let frame = Ethernet { dst: BROADCAST, src: server.mac };
        frame.ip(&Udp { src: 67, dst: 68 }.packet(IpPair::V4(server.v4, Ipv4Addr::BROADCAST), &message))
    };
    vec![
        (0, to_server(Dhcp::Discover)),
        (2 * MILLISECOND_NS, to_client(Dhcp::Offer)),
        (3 * MILLISECOND_NS, to_server(Dhcp::Request)),
        (5 * MILLISECOND_NS, to_client(Dhcp::Ack)),
    ]
}

fn group_membership(random: &mut Random) -> Frames {
    let host = client(random);
    let group = Ipv4Addr::new(239, 1, 2, random.between(1..=9) as u8);
    // RFC 2236 section 2: sent with TTL 1 and the router alert option.
    let header = |dst| Ipv4 { ttl: 1, options: vec![0x94, 4, 0, 0], ..Ipv4::new(host.v4, dst, 2) };
    let report = header(group).packet(&igmp(0x16, 0, group));
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
    let listener = [&[4, 0, 0, 0], &Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9).octets()[..]].concat();
    let message = icmpv6(host.v6, all_nodes, 143, 0, [0, 0, 0, 1], &listener);
    let header_v6 = crate::frames::Ipv6 { hop_limit: 1, ..crate::frames::Ipv6::new(host.v6, all_nodes, 0) };
    let to_nodes = Ethernet { dst: [0x33, 0x33, 0, 0, 0, 0x16], src: host.mac };
    vec![
        (0, Ethernet::multicast_v4(&host, group).ip(&report)),
        (MILLISECOND_NS, to_nodes.ip(&header_v6.packet(&hop_by_hop(58, &message)))),
    ]
}

fn large_datagram(random: &mut Random) -> Frames {
    let (client, server) = (client(random), server(random));
    let len = random.between(2000..=8000) as usize;
    let ips = IpPair::V4(server.v4, client.v4);
    let datagram = Udp { src: 2049, dst: high_port(random) }.datagram(ips, &random.bytes(len));
    let header = Ipv4 { id: random.bits() as u16, ..Ipv4::new(server.v4, client.v4, 17) };
    let ethernet = Ethernet::between(&server, &client);
    let fragments = fragments_v4(&header, &datagram, 1480).into_iter().enumerate();
    fragments.map(|(index, packet)| (index as u64 * 12_304, ethernet.ip(&packet))).collect()
}

fn signalling(random: &mut Random) -> Frames {
    let (client, server, version) = (client(random), server(random), version(random));
    let tag = random.bits() as u32;
    let packet = |from: &Host, to: &Host, chunks: &[(u8, u8, &[u8])]| {
        let ips = IpPair::between(from, to, version);
        Ethernet::between(from, to).ip(&ips.packet(132, &sctp(5000, 5000, tag, chunks)))
    };
    // A DATA chunk (type 0, whole message): sequence number, stream, position, payload protocol; and its SACK (type 3).
    let body = random.between(20..=300) as usize;
    let data = [&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0], &random.bytes(body)[..]].concat();
    let sack = [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
    let heartbeat = [&[0, 1, 0, 12], &random.bytes(8)[..]].concat();
    vec![
        (0, packet(&client, &server, &[(0, 3, &data)])),
        (200_000, packet(&server, &client, &[(3, 0, &sack)])),
        (30 * MILLISECOND_NS, packet(&client, &server, &[(4, 0, &heartbeat)])),
        (31 * MILLISECOND_NS, packet(&server, &client, &[(5, 0, &heartbeat)])),
    ]
}
