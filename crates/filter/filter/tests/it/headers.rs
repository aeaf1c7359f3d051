//! Header views and filters find the same in the same packets.
//!
//! ```text
//! frame, without tags  --filter text-->  verdict  =  what `Headers` says
//! ```
//!
//! Filters look at no lengths and no versions in IP headers; `Headers` does. So lengths are taken out of the frames
//! (0 says nothing), and of frames whose IP header is malformed only that is asked: that `Headers` finds no IP there.

use std::net::IpAddr;

use tapline_filter::{Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::headers::{IpVersion, Tunnel};
use tapline_packet::{Headers, LinkType, Meta, Packet};
use tapline_testkit::frames::{
    Ethernet, Host, IpPair, IpVersion as Version, Tcp, Udp, destination_options, fragment_header, hop_by_hop,
    mpls, pppoe_session, sctp,
};
use tapline_testkit::layers;
use tapline_testkit::libpcap::Libpcap;
use tapline_testkit::random::Random;

/// A test on a packet's headers.
type Says = fn(&Headers, &[u8]) -> bool;

fn has_port(headers: &Headers, data: &[u8], protocol: u8, port: u16) -> bool {
    let ports = headers.ports(data).filter(|_| headers.protocol() == Some(protocol));
    ports.is_some_and(|(src, dst)| src == port || dst == port)
}

fn has_address(headers: &Headers, data: &[u8], text: &str) -> bool {
    let address: IpAddr = text.parse().expect("an address");
    headers.addresses(data).is_some_and(|(src, dst)| src == address || dst == address)
}

fn is_first(headers: &Headers) -> bool {
    headers.fragment().is_some_and(|fragment| !fragment.is_later())
}

fn is_later(headers: &Headers) -> bool {
    headers.fragment().is_some_and(|fragment| fragment.is_later())
}

/// Payloads of IPv4, and of IPv6 without extension headers.
const IN_IP: &[(&str, Says)] = &[
    ("ip", |h, _| h.ip() == Some(IpVersion::V4)),
    ("ip6", |h, _| h.ip() == Some(IpVersion::V6)),
    ("ip host 10.0.0.1", |h, data| has_address(h, data, "10.0.0.1")),
    ("ip6 host fd00::1", |h, data| has_address(h, data, "fd00::1")),
    ("ip proto 47", |h, _| h.ip() == Some(IpVersion::V4) && h.protocol() == Some(47)),
    ("ip and tcp port 80", |h, data| h.ip() == Some(IpVersion::V4) && has_port(h, data, 6, 80)),
    ("extensions(tcp port 80)", |h, data| has_port(h, data, 6, 80)),
    ("extensions(udp port 53)", |h, data| has_port(h, data, 17, 53)),
    ("extensions(sctp port 80)", |h, data| has_port(h, data, 132, 80)),
];

const IN_ETHERNET: &[(&str, Says)] = &[
    ("arp", |h, _| h.ether_type() == Some(0x0806)),
    ("ip and fragment(first)", |h, _| h.ip() == Some(IpVersion::V4) && is_first(h)),
    ("ip and fragment(later)", |h, _| h.ip() == Some(IpVersion::V4) && is_later(h)),
    ("inner(gre, ip)", |h, data| carries(h, data, Tunnel::Gre, 0x0800)),
    ("inner(gre, ip6)", |h, data| carries(h, data, Tunnel::Gre, 0x86dd)),
    ("inner(erspan, ip)", |h, data| carries(h, data, Tunnel::Erspan, 0x0800)),
    ("inner(erspan 5, ip6)", |h, data| {
        carries(h, data, Tunnel::Erspan, 0x86dd) && h.inner(data).is_some_and(|inner| inner.id == Some(5))
    }),
    ("inner(vxlan, ip)", |h, data| carries(h, data, Tunnel::Vxlan, 0x0800)),
    ("inner(vxlan 6, arp)", |h, data| {
        carries(h, data, Tunnel::Vxlan, 0x0806) && h.inner(data).is_some_and(|inner| inner.id == Some(6))
    }),
    ("inner(geneve, ip)", |h, data| carries(h, data, Tunnel::Geneve, 0x0800)),
    ("inner(geneve, ip6)", |h, data| carries(h, data, Tunnel::Geneve, 0x86dd)),
    ("inner(gtp, ip)", |h, data| carries(h, data, Tunnel::Gtp, 0x0800)),
    ("inner(gtp, ip6)", |h, data| carries(h, data, Tunnel::Gtp, 0x86dd)),
    ("inner(ipip, ip)", |h, data| carries(h, data, Tunnel::IpInIp, 0x0800)),
    ("inner(ipip, ip6)", |h, data| carries(h, data, Tunnel::IpInIp, 0x86dd)),
    ("inner(tcp port 80)", |h, data| {
        h.inner(data).is_some_and(|inner| {
            let (headers, data) = (inner.headers(data), inner.data(data));
            headers.vlan_count() == 0 && direct(&headers, data) && has_port(&headers, data, 6, 80)
        })
    }),
];

/// Whether a tunnel of a kind carries this EtherType, not behind tags.
fn carries(headers: &Headers, data: &[u8], tunnel: Tunnel, ether_type: u16) -> bool {
    headers.inner(data).filter(|inner| inner.tunnel == tunnel).is_some_and(|inner| {
        let headers = inner.headers(data);
        headers.vlan_count() == 0 && headers.ether_type() == Some(ether_type)
    })
}

/// Whether no IPv6 extension header precedes the transport header.
fn direct(headers: &Headers, data: &[u8]) -> bool {
    let next = |at: usize| data.get(at + 6).copied();
    headers.ip() == Some(IpVersion::V4) || headers.protocol() == headers.l3().and_then(next)
}

/// Writes 0 into the length of the IP header, and of those inside; `None` if there is one that is malformed.
fn without_lengths(link_type: LinkType, data: &mut [u8]) -> Option<()> {
    let headers = Headers::parse_data(link_type, data);
    let at = match (headers.ip(), headers.ether_type()) {
        (Some(IpVersion::V4), _) => headers.l3()? + 2,
        (Some(IpVersion::V6), _) => headers.l3()? + 4,
        (None, Some(0x0800 | 0x86dd)) => return None,
        _ => return Some(()),
    };
    data[at..at + 2].fill(0);
    let headers = Headers::parse_data(link_type, data);
    // The packet inside counts too. A tunnel in which we find none is left out: what it has may be IP of a wrong
    // version.
    if headers.protocol().is_some_and(|protocol| matches!(protocol, 4 | 41 | 47))
        || is_tunnel_port(&headers, data)
    {
        let inner = headers.inner(data)?;
        if headers.protocol() == Some(17) {
            data[headers.l4()? + 4..][..2].fill(0);
        }
        let inside = data.get_mut(inner.offset..)?;
        return without_lengths(inner.link_type, inside);
    }
    Some(())
}

fn is_tunnel_port(headers: &Headers, data: &[u8]) -> bool {
    headers.ports(data).is_some_and(|(_, port)| matches!(port, 4789 | 6081 | 2152 | 8472))
}

struct Question {
    text: &'static str,
    program: CompiledFilter,
    says: Says,
    yes: u32,
}

fn questions(link_type: LinkType, prefix: &str, of: &[&[(&'static str, Says)]]) -> Vec<Question> {
    let options = Options { optimise: false, ..Options::new(link_type) };
    let question = |&(text, says): &(&'static str, Says)| {
        let whole = format!("{prefix}{text}");
        let program = compile(&whole, &options).unwrap_or_else(|error| panic!("{}", error.render(&whole)));
        Question { text, program, says, yes: 0 }
    };
    of.iter().flat_map(|list| list.iter()).map(question).collect()
}

fn ask(questions: &mut [Question], link_type: LinkType, data: &[u8]) {
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    let packet = Packet { data, meta: &meta };
    let headers = Headers::parse(link_type, packet);
    for question in questions {
        let verdict = question.program.run(packet) != 0;
        let says = (question.says)(&headers, data);
        assert_eq!(verdict, says, "{} {link_type}: {headers:?} of {}", question.text, hex(data));
        question.yes += u32::from(verdict);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Frames that the layers at random do not have.
fn more_frames(random: &mut Random) -> Vec<u8> {
    let (src, dst) = (Host::number(random.below(3) as u16), Host::number(random.below(3) as u16));
    let version = *random.pick(&[Version::V4, Version::V6]);
    let pair = IpPair::between(&src, &dst, version);
    let port = *random.pick(&[80, 53, 9]);
    let packet = match random.below(3) {
        0 => pair.packet(132, &sctp(port, *random.pick(&[80, 81]), 1, &[(0, 3, &[1; 12])])),
        1 => Udp { src: port, dst: 53 }.packet(pair, &[1; 9]),
        _ => Tcp { src: 80, dst: port, ..Tcp::default() }.packet(pair, &[1; 9]),
    };
    Ethernet::between(&src, &dst).ip(&packet)
}

fn frames(count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::new(21);
    let made = move |at| if at % 8 == 0 { more_frames(&mut random) } else { layers::frame(&mut random) };
    (0..count).map(made).chain(layers::captured(Libpcap::get().ok()))
}

#[test]
fn ethernet_frames() {
    let link_type = LinkType::ETHERNET;
    let mut questions = questions(link_type, "", &[IN_IP, IN_ETHERNET]);
    let (mut asked, mut malformed) = (0, 0);
    for mut frame in frames(40_000) {
        let headers = Headers::parse_data(link_type, &frame);
        let is_802_3 = frame.get(12).is_some_and(|first| *first < 6);
        if headers.vlan_count() > 0 || headers.mpls().is_some() || is_802_3 {
            continue;
        }
        match without_lengths(link_type, &mut frame) {
            Some(()) => ask(&mut questions, link_type, &frame),
            None => malformed += 1,
        }
        asked += 1;
    }
    assert!(malformed < asked / 10, "{malformed} of {asked} malformed");
    for question in questions {
        assert!(question.yes > 10, "{} is true of {} packets", question.text, question.yes);
    }
}

/// The bytes before an IPv4 packet, or an IPv6 packet.
type LinkHeader<'a> = &'a dyn Fn(bool) -> Vec<u8>;

/// The packets behind other link headers.
#[test]
fn other_link_headers() {
    let v4 = |kind: [u8; 2], other: [u8; 2]| move |is_v4: bool| if is_v4 { kind } else { other };
    let (ether, ppp) = (v4([8, 0], [0x86, 0xdd]), v4([0, 0x21], [0, 0x57]));
    let null = |is_v4: bool| [if is_v4 { 2 } else { 24 }, 0, 0, 0];
    let cases: [(LinkType, LinkHeader<'_>); 11] = [
        (LinkType::LINUX_SLL, &|v4| [&[0; 14][..], &ether(v4)].concat()),
        (LinkType::LINUX_SLL2, &|v4| [&ether(v4)[..], &[0; 18]].concat()),
        (LinkType::RAW, &|_| Vec::new()),
        (LinkType::NULL, &|v4| null(v4).to_vec()),
        (LinkType::LOOP, &|v4| null(v4).into_iter().rev().collect()),
        (LinkType::C_HDLC, &|v4| [&[0x0f, 0][..], &ether(v4)].concat()),
        (LinkType::PPP, &|v4| [&[0xff, 3][..], &ppp(v4)].concat()),
        (LinkType::PPP_HDLC, &|v4| [&[0xff, 3][..], &ppp(v4)].concat()),
        (LinkType::PPP_ETHER, &|v4| [&[0x11, 0, 0, 1, 0, 0][..], &ppp(v4)].concat()),
        (LinkType::IEEE802_11, &|v4| {
            [&[0x88, 1][..], &[0; 24], &[0xaa, 0xaa, 3, 0, 0, 0], &ether(v4)].concat()
        }),
        (LinkType::IEEE802_11_RADIOTAP, &|v4| {
            let radio = [0, 0, 12, 0, 2, 0, 0, 0, 0x20, 0, 0, 0];
            [&radio[..], &[0x88, 1], &[0; 26], &[0xaa, 0xaa, 3, 0, 0, 0], &ether(v4)].concat()
        }),
    ];
    for (link_type, header) in cases {
        let mut questions = questions(link_type, "", &[IN_IP]);
        for frame in frames(4000).filter(|frame| matches!(frame.get(12..14), Some([8, 0] | [0x86, 0xdd]))) {
            let mut packet = header(frame[12] == 8);
            packet.extend_from_slice(&frame[14..]);
            if without_lengths(link_type, &mut packet).is_some() {
                ask(&mut questions, link_type, &packet);
            }
        }
        for question in questions {
            assert!(question.yes > 0, "{link_type}: {} is true of no packet", question.text);
        }
    }
}

/// A second fragment header is not noted here, and filters take the last: so these frames have one. They are whole:
/// a filter rejects what has a chain that was cut.
#[test]
fn fragments_of_ipv6() {
    let texts: &[(&'static str, Says)] = &[
        ("fragment(first)", |h, _| is_first(h)),
        ("fragment(later)", |h, _| is_later(h)),
        ("fragment()", |h, _| h.fragment().is_some()),
        ("extensions(ip6 proto 17)", |h, _| h.protocol() == Some(17)),
        ("extensions(udp port 53)", |h, data| has_port(h, data, 17, 53)),
    ];
    let mut questions = questions(LinkType::ETHERNET, "", &[texts]);
    let mut random = Random::new(6);
    for _ in 0..2000 {
        let (src, dst) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&src, &dst, Version::V6);
        let datagram = Udp { src: 9, dst: 53 }.datagram(pair, &[7; 30]);
        let inner =
            if random.one_of(1, 2) { (60, destination_options(17, &datagram)) } else { (17, datagram) };
        let offset = *random.pick(&[0, 0, 2, 0x1fff]);
        let fragment = fragment_header(inner.0, 77, offset, random.one_of(1, 2), &inner.1);
        let outer = if random.one_of(1, 2) { (0, hop_by_hop(44, &fragment)) } else { (44, fragment) };
        let frame = Ethernet::between(&src, &dst).ip(&pair.packet(outer.0, &outer.1));
        ask(&mut questions, LinkType::ETHERNET, &frame);
    }
    assert!(questions.iter().all(|question| question.yes > 20));
}

#[test]
fn behind_labels_and_in_sessions() {
    let texts: &[(&'static str, Says)] = &[
        ("tcp port 80", |h, data| has_port(h, data, 6, 80)),
        ("udp port 53", |h, data| has_port(h, data, 17, 53)),
    ];
    let mut labelled = questions(LinkType::ETHERNET, "mpls and mpls and ", &[texts]);
    let mut sessions = questions(LinkType::ETHERNET, "pppoes and ", &[texts]);
    let mut random = Random::new(5);
    for _ in 0..300 {
        let frame = more_frames(&mut random);
        let link = Ethernet { dst: [2; 6], src: [4; 6] };
        ask(&mut labelled, LinkType::ETHERNET, &link.frame(0x8847, &mpls(&[16, 17], 64, &frame[14..])));
        let protocol = if frame[12] == 8 { 0x21 } else { 0x57 };
        ask(
            &mut sessions,
            LinkType::ETHERNET,
            &link.frame(0x8864, &pppoe_session(7, protocol, &frame[14..])),
        );
    }
    assert!(labelled.iter().chain(&sessions).all(|question| question.yes > 20));
}
