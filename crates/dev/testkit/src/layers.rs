//! Frames for testing the forms: layers upon layers at random, and frames of captures.
//!
//! ```text
//! frame   := Ethernet [tag]* network
//! network := IPv4 [options] carried | IPv6 [extension header]* carried | ARP
//! carried := TCP | UDP | ICMPv6 | a later fragment | tunnel around a network or a frame
//! ```

use crate::frames::{
    ERSPAN_I_II, ERSPAN_III, Ethernet, Gre, Host, IpPair, IpVersion, Ipv4, TRANSPARENT_BRIDGING, Tcp, Udp,
    arp, destination_options, erspan_ii, erspan_iii, flags, fragment_header, geneve, gtp_u, hop_by_hop,
    icmpv6, routing_header, vlan, vxlan,
};
use crate::libpcap::Libpcap;
use crate::random::Random;
use crate::surroundings::captures;

/// Frames taken from a file, and bytes kept of a frame.
const PER_FILE: usize = 20;
const KEPT: usize = 400;

/// Ethernet frames of the captures; without them, a few made up ones.
pub fn captured(pcap: Option<&Libpcap>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for path in captures() {
        if let Some(Ok((1, packets))) = pcap.map(|pcap| pcap.read_file(&path)) {
            frames.extend(packets.into_iter().take(PER_FILE).map(|mut packet| {
                packet.data.truncate(KEPT);
                packet.data
            }));
        }
    }
    if frames.is_empty() {
        eprintln!("no real captures, or no libpcap to read them: only made up frames are used");
        let mut random = Random::new(3);
        frames.extend((0..50).map(|_| frame(&mut random)));
    }
    frames
}

/// A frame; one in eight has a bit flipped.
pub fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = ethernet(random, 0);
    if random.one_of(1, 8) {
        let bit = random.below(frame.len().min(140) as u64 * 8) as usize;
        frame[bit / 8] ^= 1 << (bit % 8);
    }
    frame
}

fn hosts(random: &mut Random) -> (Host, Host) {
    (Host::number(random.below(3) as u16), Host::number(random.below(3) as u16))
}

fn ethernet(random: &mut Random, depth: u32) -> Vec<u8> {
    let (src, dst) = hosts(random);
    let link = Ethernet::between(&src, &dst);
    let mut frame = match random.below(12) {
        0 => link.frame(0x0806, &arp(1, &src, dst.mac, dst.v4)),
        _ => link.ip(&network(random, depth)),
    };
    for _ in 0..*random.pick(&[0, 0, 0, 1, 1, 2, 3]) {
        frame = vlan(&frame, *random.pick(&[0x8100, 0x8100, 0x88a8]), *random.pick(&[5, 7, 0x2005]));
    }
    frame
}

fn network(random: &mut Random, depth: u32) -> Vec<u8> {
    let (src, dst) = hosts(random);
    let version = *random.pick(&[IpVersion::V4, IpVersion::V6]);
    let pair = IpPair::between(&src, &dst, version);
    let (protocol, payload) = carried(random, pair, depth);
    match pair {
        IpPair::V4(from, to) => {
            let mut header = Ipv4::new(from, to, protocol);
            header.options = vec![1; *random.pick(&[0, 0, 0, 4, 12])];
            header.more_fragments = random.one_of(1, 10);
            header.fragment_offset = if random.one_of(1, 12) { 3 } else { 0 };
            header.packet(&payload)
        }
        IpPair::V6(_, hop) => {
            let (mut protocol, mut payload) = (protocol, payload);
            let most = *random.pick(&[0, 0, 0, 1, 2, 3, 8, 9]);
            for _ in 0..most {
                let (number, packet) = match random.below(5) {
                    0 => (0, hop_by_hop(protocol, &payload)),
                    1 => (60, destination_options(protocol, &payload)),
                    2 => (43, routing_header(protocol, hop, &payload)),
                    3 => (51, authentication(protocol, &payload)),
                    _ => {
                        let (offset, more) = *random.pick(&[(0, false), (0, true), (9, true), (9, false)]);
                        (44, fragment_header(protocol, 7, offset, more, &payload))
                    }
                };
                (protocol, payload) = (number, packet);
            }
            pair.packet(protocol, &payload)
        }
    }
}

/// An authentication header (RFC 4302) of 16 bytes.
fn authentication(next: u8, payload: &[u8]) -> Vec<u8> {
    [&[next, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9], payload].concat()
}

fn carried(random: &mut Random, pair: IpPair, depth: u32) -> (u8, Vec<u8>) {
    let port = *random.pick(&[80, 53, 443]);
    let tcp = |bits| Tcp { src: 40_000, dst: port, flags: bits, ..Tcp::default() };
    if depth < 3 && random.one_of(2, 3) {
        return tunnel(random, pair, depth + 1);
    }
    match (random.below(4), pair) {
        (0, IpPair::V6(src, dst)) => (58, icmpv6(src, dst, 128, 0, [0, 1, 0, 2], &[7; 10])),
        (1, _) => (17, segment(&Udp { src: 40_000, dst: port }.packet(pair, &[7; 10]))),
        (2, _) => (6, segment(&tcp(flags::SYN).packet(pair, &[]))),
        _ => (6, segment(&tcp(flags::ACK).packet(pair, &[7; 10]))),
    }
}

/// The segment of a packet: the builders of segments give whole packets without options; the segment is behind the
/// header.
fn segment(packet: &[u8]) -> Vec<u8> {
    let header = if packet[0] >> 4 == 6 { 40 } else { 20 };
    packet[header..].to_vec()
}

fn tunnel(random: &mut Random, pair: IpPair, depth: u32) -> (u8, Vec<u8>) {
    let inner_frame = |random: &mut Random| ethernet(random, depth);
    let inner_packet = |random: &mut Random| network(random, depth);
    let kind_of = |packet: &[u8]| if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
    let id = *random.pick(&[5, 5, 6]);
    let udp = |dst, payload: &[u8]| (17, segment(&Udp { src: 12_345, dst }.packet(pair, payload)));
    let option = |random: &mut Random, value: u32| random.one_of(1, 2).then_some(value);
    match random.below(9) {
        0 => {
            let packet = inner_packet(random);
            (if packet[0] >> 4 == 6 { 41 } else { 4 }, packet)
        }
        1 | 2 => {
            let is_frame = random.one_of(1, 2);
            let payload = if is_frame { inner_frame(random) } else { inner_packet(random) };
            let ethertype = if is_frame { TRANSPARENT_BRIDGING } else { kind_of(&payload) };
            let (checksum, key) = (random.one_of(1, 2), option(random, id));
            let gre = Gre { ethertype, checksum, key, sequence: option(random, 9) };
            (47, gre.packet(&payload))
        }
        3 => {
            let frame = inner_frame(random);
            let sequence = option(random, 9);
            let gre = Gre { ethertype: ERSPAN_I_II, sequence, key: option(random, 1), ..Gre::default() };
            let payload = if sequence.is_some() { erspan_ii(id as u16, &frame) } else { frame };
            (47, gre.packet(&payload))
        }
        4 => {
            let gre = Gre { ethertype: ERSPAN_III, sequence: option(random, 9), ..Gre::default() };
            let frame_type = *random.pick(&[0, 0, 2, 1]);
            let payload = if frame_type == 0 { inner_frame(random) } else { inner_packet(random) };
            (47, gre.packet(&erspan_iii(id as u16, frame_type, random.one_of(1, 2), &payload)))
        }
        5 => udp(4789, &vxlan(id, &inner_frame(random))),
        6 => {
            let is_frame = random.one_of(1, 2);
            let payload = if is_frame { inner_frame(random) } else { inner_packet(random) };
            let ethertype = if is_frame { TRANSPARENT_BRIDGING } else { kind_of(&payload) };
            let options = vec![0xee; *random.pick(&[0, 0, 4, 16])];
            udp(6081, &geneve(id, ethertype, &options, &payload))
        }
        _ => {
            let extensions: [(u8, &[u8]); 5] =
                [(0x85, &[1, 2]), (0x40, &[3; 6]), (0x20, &[4; 2]), (0xc0, &[5; 10]), (0x84, &[6; 2])];
            let count = *random.pick(&[0, 0, 1, 2, 4, 5]);
            let sequence = random.one_of(1, 2).then_some(77);
            udp(2152, &gtp_u(id, sequence, &extensions[..count], &inner_packet(random)))
        }
    }
}
