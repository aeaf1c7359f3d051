//! The program that shares packets among workers: flows together, fragments with them, an even spread.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use tapline_ebpf::{FlowShare, flow_share};
use tapline_packet::mix::mixed;
use tapline_sys::bpf::LruTable;
use tapline_testkit::frames::{
    Ethernet, Host, IpPair, IpVersion, Ipv4, Ipv6, Udp, arp, destination_options, fragment_header,
    fragments_v4, gre, hop_by_hop, mpls, pppoe_session, vlan,
};

use super::*;

/// A loaded program with its maps.
struct Share {
    program: LoadedProgram,
    apart: SharedArray,
    _fragments: LruTable,
}

impl Share {
    fn load(seed: u64, entries: u32) -> Share {
        let (program, apart, fragments) = Share::of_header_len(seed, entries, 14);
        Share { program: load(&program), apart, _fragments: fragments }
    }

    fn of_header_len(seed: u64, entries: u32, len: u32) -> (ebpf::Program, SharedArray, LruTable) {
        let (key, value) = (FlowShare::KEY_LEN, FlowShare::VALUE_LEN);
        let fragments = LruTable::create("tapline_test", key, value, entries).expect("a table");
        let apart = SharedArray::create("tapline_test", 8, 1).expect("an array");
        let parameters = FlowShare {
            fragments: fragments.as_fd().as_raw_fd(),
            apart: apart.as_fd().as_raw_fd(),
            seed,
            sent_header_len: len,
        };
        (flow_share(parameters), apart, fragments)
    }

    fn member(&self, frame: &[u8]) -> u32 {
        run(&self.program, frame)
    }

    /// Later fragments so far without a first one.
    fn apart(&self) -> u64 {
        self.apart.word(0, 0)
    }

    /// The number of frames for each of four members.
    fn shares(&self, frames: &[Vec<u8>]) -> [u32; 4] {
        let mut shares = [0; 4];
        frames.iter().for_each(|frame| shares[self.member(frame) as usize % 4] += 1);
        shares
    }
}

/// An IPv6 packet in fragments of 800 bytes, behind two other extension headers.
fn fragments_v6(packet: &[u8], id: u32) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(40);
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).expect("16 bytes"));
    let last = payload.len().div_ceil(800) - 1;
    let fragment = |(index, part): (usize, &[u8])| {
        let part = fragment_header(header[6], id, (index * 100) as u16, index != last, part);
        let extensions = hop_by_hop(60, &destination_options(44, &part));
        Ipv6::new(address(8), address(24), 0).packet(&extensions)
    };
    payload.chunks(800).enumerate().map(fragment).collect()
}

/// A UDP datagram of 2,000 bytes in three packets.
fn fragments(a: &Host, b: &Host, version: IpVersion, udp: Udp, id: u16) -> Vec<Vec<u8>> {
    let pair = IpPair::between(a, b, version);
    let parts = match version {
        IpVersion::V4 => {
            let header = Ipv4 { id, dont_fragment: false, ..Ipv4::new(a.v4, b.v4, 17) };
            fragments_v4(&header, &udp.datagram(pair, &[7; 2000]), 800)
        }
        IpVersion::V6 => fragments_v6(&udp.packet(pair, &[7; 2000]), id.into()),
    };
    assert_eq!(parts.len(), 3);
    parts
}

/// Numbers of what carries IP: EtherType, protocol, PPP protocol.
fn numbers(packet: &[u8]) -> (u16, u8, u16) {
    if packet[0] >> 4 == 6 { (0x86dd, 41, 0x57) } else { (0x0800, 4, 0x21) }
}

/// An IP packet on its way between two routers, as it is and in all that leads to it.
fn carried(from: &Host, to: &Host, packet: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let ethernet = Ethernet::between(from, to);
    let (ether_type, protocol, ppp) = numbers(packet);
    let plain = ethernet.ip(packet);
    let tagged = |count| (0..count).fold(plain.clone(), |frame, tag| vlan(&frame, 0x8100, 5 + tag));
    let outer = |version, protocol, payload: &[u8]| {
        ethernet.ip(&IpPair::between(from, to, version).packet(protocol, payload))
    };
    let (v4, v6) = (IpVersion::V4, IpVersion::V6);
    let in_gre = gre(ether_type, Some(9), packet);
    // Key, sequence and acknowledgment.
    let ppp_bytes = ppp.to_be_bytes();
    let pptp_header = [0x30, 0x81, 0x88, 0x0b, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xff, 0x03];
    let pptp = [&pptp_header[..], &ppp_bytes, packet].concat();
    let deep = IpPair::between(from, to, v6).packet(47, &in_gre);
    vec![
        ("plain", plain.clone()),
        ("a tag", tagged(1)),
        ("two tags", vlan(&tagged(1), 0x88a8, 7)),
        ("three tags", tagged(3)),
        ("four tags", tagged(4)),
        ("PPPoE", ethernet.frame(0x8864, &pppoe_session(1, ppp, packet))),
        ("MPLS", ethernet.frame(0x8847, &mpls(&[17, 18, 19], 64, packet))),
        ("GRE", outer(v4, 47, &in_gre)),
        ("bridged GRE", outer(v6, 47, &gre(0x6558, None, &tagged(2)))),
        ("PPTP", outer(v4, 47, &pptp)),
        ("IP in IPv4", outer(v4, protocol, packet)),
        ("IP in IPv6", outer(v6, protocol, packet)),
        ("MPLS in IP", outer(v4, 137, &mpls(&[20], 64, packet))),
        ("GRE in IPv6 in IPv4", outer(v4, 41, &deep)),
    ]
}

/// Both directions, whole packets and fragments of 200 flows, in whatever carries them.
#[test]
fn flows_share_a_member_with_their_fragments() {
    if !may_load("flows_share_a_member_with_their_fragments") {
        return;
    }
    let share = Share::load(1, 16_384);
    let (a, b, near, far) = (Host::number(1), Host::number(2), Host::number(3), Host::number(4));
    let mut shares = [0; 4];
    for flow in 0..200_u16 {
        let version = if flow % 2 == 0 { IpVersion::V4 } else { IpVersion::V6 };
        let (there, back) = (Udp { src: 1000 + flow, dst: 53 }, Udp { src: 53, dst: 1000 + flow });
        let whole = there.packet(IpPair::between(&a, &b, version), &[1; 40]);
        let answer = back.packet(IpPair::between(&b, &a, version), &[2; 40]);
        let member = share.member(&Ethernet::between(&near, &far).ip(&whole));
        for (number, (name, frame)) in (0_u16..).zip(carried(&near, &far, &whole)) {
            assert_eq!(share.member(&frame), member, "flow {flow}, {name}");
            let (_, frame) = carried(&far, &near, &answer).swap_remove(number.into());
            assert_eq!(share.member(&frame), member, "answer of flow {flow}, {name}");
            for part in fragments(&a, &b, version, there, 1 + flow + number * 200) {
                let (_, frame) = carried(&near, &far, &part).swap_remove(number.into());
                assert_eq!(share.member(&frame), member, "fragment of flow {flow}, {name}");
            }
        }
        shares[member as usize % 4] += 1;
    }
    assert!(shares.iter().all(|share| *share > 25), "{shares:?}");
    assert_eq!(share.apart(), 0);
}

/// A tunnel's own fragments follow the flow inside of it.
#[test]
fn fragments_of_tunnels_follow_the_inner_flow() {
    if !may_load("fragments_of_tunnels_follow_the_inner_flow") {
        return;
    }
    let share = Share::load(2, 1024);
    let (a, b, near, far) = (Host::number(1), Host::number(2), Host::number(3), Host::number(4));
    let ethernet = Ethernet::between(&near, &far);
    let mut members = HashSet::new();
    for flow in 0..40 {
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let whole = Udp { src: 1000 + flow, dst: 53 }.packet(pair, &[7; 1400]);
        let member = share.member(&ethernet.ip(&whole));
        let header = Ipv4 { id: flow, dont_fragment: false, ..Ipv4::new(near.v4, far.v4, 47) };
        for part in fragments_v4(&header, &gre(0x0800, None, &whole), 800) {
            assert_eq!(share.member(&ethernet.ip(&part)), member, "flow {flow}");
        }
        members.insert(member % 4);
    }
    assert_eq!((members.len(), share.apart()), (4, 0));
}

/// Flows whose ports, or addresses, add up to the same, in either version: as many senders make them, and an attacker.
#[test]
fn nobody_chooses_flows_for_one_member() {
    if !may_load("nobody_chooses_flows_for_one_member") {
        return;
    }
    let (a, b) = (Host::number(1), Host::number(2));
    let ethernet = Ethernet::between(&a, &b);
    let falling = |pair| {
        let udp = |flow: u16| Udp { src: 0x0400 + flow, dst: 0xea00 + 255 - flow };
        (0..200).map(|flow| ethernet.ip(&udp(flow).packet(pair, &[1; 32]))).collect::<Vec<_>>()
    };
    let udp = Udp { src: 1, dst: 2 };
    let address_v4 = |last: u8| Ipv4Addr::new(10, 0, 0, last);
    let address_v6 = |high: u16, low: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, high, 0, 0, 0, low);
    let pairs_v4 = (0..200).map(|n| IpPair::V4(address_v4(n), address_v4(255 - n)));
    let pairs_v6 = (0..200).map(|n| IpPair::V6(address_v6(n, 255 - n), address_v6(500 - n, n)));
    let sets = [
        falling(IpPair::between(&a, &b, IpVersion::V4)),
        falling(IpPair::between(&a, &b, IpVersion::V6)),
        pairs_v4.map(|pair| ethernet.ip(&udp.packet(pair, &[1; 32]))).collect(),
        pairs_v6.map(|pair| ethernet.ip(&udp.packet(pair, &[1; 32]))).collect(),
    ];
    for (number, frames) in sets.iter().enumerate() {
        let shares: HashSet<[u32; 4]> =
            (1..=8).map(|seed| Share::load(mixed(seed), 16).shares(frames)).collect();
        assert!(shares.iter().flatten().all(|share| *share > 20), "set {number}: {shares:?}");
        assert!(shares.len() > 4, "set {number} depends on the seed: {shares:?}");
    }
}

/// Packets without IP go by their MAC addresses, ARP together.
#[test]
fn packets_without_ip_have_a_member() {
    if !may_load("packets_without_ip_have_a_member") {
        return;
    }
    let share = Share::load(3, 16);
    let mut members = HashSet::new();
    let mut of_arp = HashSet::new();
    for number in 0..64 {
        let (a, b) = (Host::number(number), Host::number(100 + number));
        let there = share.member(&Ethernet::between(&a, &b).frame(0x88b5, &[1; 46]));
        let back = share.member(&Ethernet::between(&b, &a).frame(0x88b5, &[2; 46]));
        assert_eq!(there, back);
        members.insert(there % 4);
        let request = Ethernet::broadcast(&a).frame(0x0806, &arp(1, &a, [0; 6], b.v4));
        let answer = Ethernet::between(&b, &a).frame(0x0806, &arp(2, &b, a.mac, a.v4));
        of_arp.extend([share.member(&request), share.member(&answer)]);
    }
    assert_eq!((members.len(), of_arp.len()), (4, 1));
    let mut random = Random::new(1);
    for _ in 0..2000 {
        // The kernel runs no packets with less than an IP header.
        let mut noise: Vec<u8> = (0..random.between(54..=200)).map(|_| random.bits() as u8).collect();
        let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0], [8, 6], [0x88, 0x64], [0x88, 0x47]];
        noise[12..14].copy_from_slice(random.pick::<[u8; 2]>(&kinds));
        (noise[14], noise[23]) = (0x45, *random.pick(&[4, 41, 47, 137, 17]));
        share.member(&noise);
    }
}

/// A later fragment that comes first goes by the flow that its hosts fragmented last, and is counted.
#[test]
fn fragments_before_the_first_are_counted() {
    if !may_load("fragments_before_the_first_are_counted") {
        return;
    }
    let share = Share::load(4, 64);
    let (a, b) = (Host::number(1), Host::number(2));
    let ethernet = Ethernet::between(&a, &b);
    for (version, base) in [(IpVersion::V4, 0), (IpVersion::V6, 10)] {
        let members = |udp, id| -> Vec<u32> {
            let parts = fragments(&a, &b, version, udp, id);
            parts.iter().rev().map(|part| share.member(&ethernet.ip(part))).collect()
        };
        // The first flow of which a later fragment goes elsewhere, by addresses.
        let udp = |number: u16| Udp { src: 1000 + number, dst: 53 };
        let (udp, id, backwards) = (base + 1..)
            .map(|number| (udp(number), number, members(udp(number), number)))
            .find(|(.., members)| members[1] != members[2])
            .expect("flows differ");
        assert_eq!(backwards[0], backwards[1], "fragments without a first one stay together");
        let whole = share.member(&ethernet.ip(&udp.packet(IpPair::between(&a, &b, version), &[1; 40])));
        assert_eq!(backwards[2], whole);
        let before = share.apart();
        assert_eq!(members(udp, id + 1000), [whole; 3], "by the flow that was fragmented last");
        assert_eq!(share.apart(), before + 2);
        assert_eq!(members(udp, id + 1000), [whole; 3]);
        assert_eq!(share.apart(), before + 2, "known by now");
    }
}

/// New packets in fragments take the places of old ones.
#[test]
fn the_table_of_fragments_is_bounded() {
    if !may_load("the_table_of_fragments_is_bounded") {
        return;
    }
    const ENTRIES: u16 = 1024;
    let share = Share::load(5, ENTRIES.into());
    let ethernet = |a: &Host, b: &Host, part: &[u8]| Ethernet::between(a, b).ip(part);
    let (a, b) = (Host::number(1), Host::number(2));
    let udp = Udp { src: 1000, dst: 53 };
    let parts = |id| fragments(&a, &b, IpVersion::V4, udp, id);
    let firsts: Vec<u32> =
        (0..8 * ENTRIES).map(|id| share.member(&ethernet(&a, &b, &parts(id)[0]))).collect();
    let last = 8 * ENTRIES - 1;
    assert_eq!(share.member(&ethernet(&a, &b, &parts(last)[1])), firsts[usize::from(last)]);
    assert_eq!(share.apart(), 0);
    for id in 0..ENTRIES {
        share.member(&ethernet(&a, &b, &parts(id)[1]));
    }
    assert_eq!(share.apart(), ENTRIES.into(), "all of the oldest are gone");
}

/// The right that the documentation names is enough.
#[test]
fn sharing_takes_the_right_to_load_programs() {
    if !may_load("sharing_takes_the_right_to_load_programs") {
        return;
    }
    let attempt = || {
        keep_only(&[Capability::Bpf]).expect("rights can be given up");
        for len in [14, 0] {
            let (program, _apart, _fragments) = Share::of_header_len(6, 16, len);
            load(&program);
        }
    };
    std::thread::scope(|scope| scope.spawn(attempt).join().expect("CAP_BPF is enough"));
}
