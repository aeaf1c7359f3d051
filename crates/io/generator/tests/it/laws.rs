//! Laws of generated packets: right checksums and lengths, exact counts, the same for the same seed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use proptest::prelude::*;
use tapline_filter::{Options, compile};
use tapline_generator::{Batches, Departure, Error, Generator, MARK_LEN, Mark, Recipe, Stream};
use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::{FiveTuple, LinkType, Meta, Packet, Timestamp};
use tapline_testkit::frames::{
    Ethernet, IpPair, Ipv4, Ipv6, Tcp, Udp, flags, icmp, icmpv6, internet_checksum, mpls, vlan, vxlan,
};

fn recipe(text: &str) -> Recipe {
    Recipe::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

fn generator(text: &str) -> Generator {
    Generator::new(&recipe(text)).unwrap_or_else(|error| panic!("{}", error.in_text(text).render(text)))
}

/// The first `count` frames of a recipe.
fn made(text: &str, count: usize) -> Vec<(Departure, Vec<u8>)> {
    let mut generator = generator(text);
    let mut frame = vec![0xee; generator.frame_max()];
    let mut frames = Vec::new();
    while frames.len() < count {
        match generator.next_into(&mut frame).unwrap_or_else(|error| panic!("{text}: {error}")) {
            Some(departure) => frames.push((departure, frame[..departure.len as usize].to_vec())),
            None => break,
        }
    }
    frames
}

fn frames(text: &str, count: usize) -> Vec<Vec<u8>> {
    made(text, count).into_iter().map(|(_, frame)| frame).collect()
}

fn headers(frame: &[u8]) -> Headers {
    Headers::parse_data(LinkType::ETHERNET, frame)
}

fn accepts(filter: &str, frame: &[u8]) -> bool {
    let program = compile(filter, &Options::new(LinkType::ETHERNET)).expect("a filter");
    let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
    program.run(Packet { data: frame, meta: &meta }) != 0
}

fn flow(frame: &[u8]) -> FiveTuple {
    headers(frame).five_tuple(frame).expect("a flow").canonical()
}

/// Checks lengths and checksums of IP, and of its payload if that is whole.
fn check_ip(frame: &[u8], headers: &Headers, text: &str) {
    let l3 = headers.l3().unwrap_or_else(|| panic!("{text}: no network header in {frame:02x?}"));
    assert_eq!(headers.ip_end(), frame.len(), "{text}: IP ends where the frame does");
    let field = |at: usize| usize::from(u16::from_be_bytes([frame[l3 + at], frame[l3 + at + 1]]));
    let len = if headers.ip() == Some(IpVersion::V4) { field(2) } else { 40 + field(4) };
    assert_eq!(len, frame.len() - l3, "{text}: IP's length");
    let (src, dst) = headers.addresses(frame).expect("addresses");
    if headers.ip() == Some(IpVersion::V4) {
        assert_eq!(internet_checksum(&[&frame[l3..l3 + 20]]), 0, "{text}: IPv4 header");
    }
    let Some(l4) = headers.l4().filter(|_| headers.fragment().is_none()) else { return };
    let pair = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => IpPair::V4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpPair::V6(src, dst),
        _ => unreachable!("both of one version"),
    };
    let protocol = headers.protocol().expect("a protocol");
    let segment = &frame[l4..];
    let is_tunnel = protocol == 17 && segment[2..4] == 4789_u16.to_be_bytes() && segment[6..8] == [0, 0];
    match protocol {
        1 => assert_eq!(internet_checksum(&[segment]), 0, "{text}: ICMP"),
        _ if is_tunnel => {}
        _ => assert_eq!(pair.transport_checksum(protocol, segment), 0, "{text}: protocol {protocol}"),
    }
    if protocol == 17 {
        let len = usize::from(u16::from_be_bytes([segment[4], segment[5]]));
        assert_eq!(len, segment.len(), "{text}: UDP's length");
        assert!(is_tunnel || segment[6..8] != [0, 0], "{text}: a checksum of UDP");
    }
}

/// Checks a frame and every packet inside.
fn check(frame: &[u8], text: &str) {
    let mut data = frame;
    let mut found = headers(frame);
    loop {
        if found.mpls().is_none() || found.ip().is_some() {
            check_ip(data, &found, text);
        }
        match found.inner(data) {
            Some(inner) => {
                found = inner.headers(data);
                data = inner.data(data);
            }
            None => break,
        }
    }
    check_ip(data, &found, text);
}

/// Recipes whose wishes go together.
fn any_recipe() -> impl Strategy<Value = String> {
    let words = prop::sample::subsequence(vec!["udp", "tcp", "icmp", "ip", "ip6"], 0..=5);
    let outside = prop::sample::subsequence(
        vec!["vlan=5", "mpls=16.17.18", "vxlan=42", "mark=3", "tos=184", "ttl=9"],
        0..=6,
    );
    let size = prop::sample::select(vec![
        "size=200",
        "size=181",
        "size=180..300+7",
        "size=190:3,401:2,1514:1",
        "size=9000",
    ]);
    let payload =
        prop::sample::select(vec!["", "payload=counting", "payload=random", "payload='an odd text'"]);
    let fragment = prop::sample::select(vec!["", "", "fragment=100", "fragment=576"]);
    let flows = prop::sample::select(vec!["", "flows=7", "flows=100 walk=random", "flows=50 order=random"]);
    (words, outside, size, payload, fragment, flows, any::<u64>()).prop_map(
        |(words, outside, size, payload, fragment, flows, seed)| {
            let (words, outside) = (words.join(" "), outside.join(" "));
            format!("{words} {outside} {size} {payload} {fragment} {flows} segments=4 seed={seed}")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_is_whole_and_right(text in any_recipe()) {
        for frame in frames(&text, 150) {
            check(&frame, &text);
        }
    }

    #[test]
    fn the_same_recipe_makes_the_same(text in any_recipe()) {
        prop_assert_eq!(made(&text, 100), made(&text, 100));
    }

    #[test]
    fn batches_hold_the_frames_of_single_calls(text in any_recipe()) {
        let text = format!("{text} count=700");
        let single = made(&text, usize::MAX);
        let start = Timestamp::from_nanos(recipe(&text).start_ns.expect("a time"));
        let mut batches = Batches::new(generator(&text), start);
        let mut at = 0;
        while batches.advance().expect("no filter") {
            for packet in batches.batch().iter() {
                let (departure, frame) = &single[at];
                prop_assert_eq!(packet.data, &frame[..]);
                prop_assert_eq!(packet.meta.timestamp, start.plus_nanos(departure.at_ns as i64));
                at += 1;
            }
        }
        prop_assert_eq!(at, 700);
    }

    #[test]
    fn another_send_time_keeps_the_checksum(text in any_recipe(), nanos in any::<i64>()) {
        let sent = Timestamp::from_nanos(nanos);
        for (departure, mut frame) in made(&text, 60) {
            let Some(place) = departure.mark else { continue };
            let before = Mark::find(&frame, frame.len()).expect("a mark");
            place.restamp(&mut frame, sent);
            check(&frame, &text);
            prop_assert_eq!(Mark::find(&frame, frame.len()), Some(Mark { sent, ..before }));
        }
    }
}

#[test]
fn frames_are_those_that_the_test_kit_builds() {
    let text = "udp tcp icmp ip ip6 size=121 payload=counting vlan=100.5 mpls=16.17 src=192.0.2.1,2001:db8::1 dst=192.0.2.2,2001:db8::2 \
        sport=1000 dport=2000 ttl=7 tos=3 flows=6";
    let (v4, v6) = (IpPair::V4([192, 0, 2, 1].into(), [192, 0, 2, 2].into()), "2001:db8::1".parse().unwrap());
    let v6 = (v6, "2001:db8::2".parse().unwrap());
    let link = Ethernet { dst: [2, 0, 0, 0, 0, 2], src: [2, 0, 0, 0, 0, 1] };
    let payload = |len: usize| (0..len).map(|at| at as u8).collect::<Vec<u8>>();
    let made = frames(text, 6);
    for (number, frame) in made.iter().enumerate() {
        let is_v4 = number < 3;
        let room = 121 - 14 - 8 - 8 - if is_v4 { 20 } else { 40 };
        let pair = if is_v4 { v4 } else { IpPair::V6(v6.0, v6.1) };
        // A connection begins where its seed says.
        let seq = u32::from_be_bytes(frame[frame.len() - 16..frame.len() - 12].try_into().unwrap());
        let (protocol, segment) = match number % 3 {
            0 => (17, Udp { src: 1000, dst: 2000 }.datagram(pair, &payload(room - 8))),
            1 => {
                let tcp =
                    Tcp { src: 1000, dst: 2000, seq, flags: flags::SYN, window: 64_240, ..Tcp::default() };
                (6, tcp.segment(pair, &[]))
            }
            _ if is_v4 => (1, icmp(8, 0, [3, 232, 0, 1], &payload(room - 8))),
            _ => (58, icmpv6(v6.0, v6.1, 128, 0, [3, 232, 0, 1], &payload(room - 8))),
        };
        let packet = match pair {
            IpPair::V4(src, dst) => {
                Ipv4 { tos: 3, ttl: 7, id: number as u16, ..Ipv4::new(src, dst, protocol) }.packet(&segment)
            }
            IpPair::V6(src, dst) => {
                let mut packet = Ipv6 { hop_limit: 7, ..Ipv6::new(src, dst, protocol) }.packet(&segment);
                // Class 3.
                packet[1] |= 0x30;
                packet
            }
        };
        let whole = link.frame(0x8847, &mpls(&[16, 17], 7, &packet));
        let tagged = vlan(&vlan(&whole, 0x8100, 5), 0x88a8, 100);
        assert_eq!(frame, &tagged, "{number}");
    }
}

#[test]
fn a_tunnel_holds_the_frame_of_no_tunnel() {
    let inside = frames("udp size=100 payload=counting flows=9", 9);
    let around = frames("udp size=150 payload=counting flows=9 vxlan=77", 9);
    let mut ports = HashSet::new();
    for (number, (inside, around)) in inside.iter().zip(&around).enumerate() {
        assert_eq!(around[42..], vxlan(77, inside), "{number}");
        let port = u16::from_be_bytes([around[34], around[35]]);
        assert!(port >= 49_152);
        ports.insert(port);
    }
    assert!(ports.len() > 5, "flows are told apart by the tunnel's port: {ports:?}");
}

#[test]
fn flows_are_counted_exactly() {
    for (text, flows) in [
        ("", 1),
        ("flows=1000 size=60", 1000),
        ("tcp flows=100 size=100", 100),
        ("udp tcp ip ip6 flows=41 size=100", 41),
        ("flows=500 walk=random src=10.0.0.0/8 dst=10.0.0.0/8 sport=0-65535 dport=0-65535", 500),
        ("flows=6 walk=random src=10.0.0.1-10.0.0.2 sport=1-3", 6),
    ] {
        let seen: HashSet<FiveTuple> = frames(text, 20 * flows).iter().map(|frame| flow(frame)).collect();
        assert_eq!(seen.len(), flows, "{text}");
    }
    let echoes: HashSet<(IpAddr, [u8; 2])> = frames("icmp flows=70000", 140_000)
        .iter()
        .map(|frame| (headers(frame).addresses(frame).expect("addresses").0, [frame[38], frame[39]]))
        .collect();
    assert_eq!(echoes.len(), 70_000);
}

#[test]
fn one_way_is_the_clients_way() {
    let clients = frames("tcp oneway segments=2 size=100 payload=counting", 500);
    let both = frames("tcp segments=2 size=100 payload=counting", 1000);
    assert!(clients.iter().all(|frame| headers(frame).ports(frame) == Some((1024, 80))));
    let without_id = |frame: &Vec<u8>| {
        [&frame[..18], &frame[20..24], &frame[26..38], &frame[46..50], &frame[52..]].concat()
    };
    let ours = both.iter().filter(|frame| headers(frame).ports(frame) == Some((1024, 80))).map(without_id);
    assert!(ours.zip(clients.iter().map(without_id)).all(|(ours, theirs)| ours == theirs));
}

#[test]
fn addresses_walk_as_they_are_asked_to() {
    let sources = |text: &str| -> Vec<String> {
        frames(text, 4)
            .iter()
            .map(|frame| headers(frame).five_tuple(frame).expect("a flow"))
            .map(|f| format!("{}:{}", f.src, f.src_port))
            .collect()
    };
    assert_eq!(
        sources("flows=4 src=10.0.0.1-10.0.0.2 sport=5-6"),
        ["10.0.0.1:5", "10.0.0.2:5", "10.0.0.1:6", "10.0.0.2:6"]
    );
    assert_ne!(sources("flows=100 walk=random seed=1"), sources("flows=100 walk=random seed=2"));
}

#[test]
fn sizes_are_those_of_the_recipe() {
    let lens = |text: &str, count: usize| frames(text, count).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lens("size=64 vlan=3", 3), [64; 3]);
    assert_eq!(
        lens("size=60..1514+727 ip6 size=62..70".split(" ip6").next().unwrap(), 4),
        [60, 787, 1514, 60]
    );
    let mut counts: HashMap<usize, usize> = HashMap::new();
    lens("size=imix flows=12", 12_000).into_iter().for_each(|len| *counts.entry(len).or_default() += 1);
    assert_eq!([60, 590, 1514].map(|len| counts[&len]), [7000, 4000, 1000]);
    assert_eq!(lens("size=65535", 1), [65_535]);
}

#[test]
fn exactly_the_share_matches() {
    for (text, filter, over, under) in [
        ("udp tcp flows=50", "tcp port 80", 1, 10),
        ("flows=500 size=100", "host 192.0.2.9 and (udp port 53 or tcp port 443)", 3, 7),
        ("size=imix", "src net 10.9.0.0/16", 1, 2),
        ("flows=30 size=100", "ip6 and dst portrange 6000-6010", 29, 30),
        ("flows=30 vlan=5 mpls=16 size=100", "vlan 5 and mpls and host 172.16.0.1", 1, 3),
        ("flows=20 size=100", "udp[0:2] & 1 = 1", 1, 4),
        ("flows=20 size=100", "not src host 10.0.0.1 and not icmp", 1, 2),
        ("tcp udp oneway flows=20 size=100", "tcp dst port 443", 1, 2),
        ("size=60", "tcp", 0, 1),
        ("size=60 tcp ip6 size=100".split(" tcp").next().unwrap(), "icmp", 1, 1),
    ] {
        let text = format!("{text} match='{filter}' share={over}/{under}");
        let verdicts: Vec<bool> =
            frames(&text, 20 * under).iter().map(|frame| accepts(filter, frame)).collect();
        for block in verdicts.chunks(under) {
            assert_eq!(block.iter().filter(|verdict| **verdict).count(), over, "{text}");
        }
    }
    let flows: HashSet<FiveTuple> =
        frames("flows=200 oneway match='tcp dst port 80' share=1/4 size=60", 20_000)
            .iter()
            .map(|frame| flow(frame))
            .collect();
    assert_eq!(flows.len(), 200);
}

#[test]
fn unmeetable_recipes_are_errors() {
    for (text, message) in [
        ("udp match='tcp'", "0 of the 1 flows that are to match"),
        ("udp match='udp' share=1/2", "0 of the 1 flows that are not to match"),
        ("tcp size=100 match='tcp dst port 80'", "oneway leaves"),
        ("tcp size=100 match='tcp[tcpflags] & tcp-syn != 0'", "that are to match"),
        (
            "udp match='tcp port 99999'",
            "\n  udp match='tcp port 99999'\n                      ^^^^^\n  a port is 0 to 65535",
        ),
        ("match='ip and arp'", "expression rejects all packets"),
        ("flows=1 match='tcp' share=1/2", "one flow cannot match and not match"),
        ("fragment=576 match='tcp'", "of a packet in fragments"),
        ("bad=length match='tcp'", "malformed packets match by chance"),
        ("bad=length fragment=576", "either malformed or in fragments"),
        ("bad=ip-checksum ip6", "has no checksum"),
        ("size=41", "fewer than the headers have: 42"),
        ("size=imix vxlan=1", "fewer than the headers have: 92"),
        ("tcp size=71 mark", "no room for the headers and a mark"),
        ("mark fragment=68 size=500 ip6", "cut a mark in two"),
        ("flows=3 src=10.0.0.1 sport=1-2", "addresses and ports make 2"),
    ] {
        let error = match Generator::new(&recipe(text)) {
            Err(error) => error.in_text(text).render(text),
            Ok(_) => panic!("{text} can be made"),
        };
        assert!(error.contains(message) && error.contains('^'), "{text}: {error}");
    }
}

#[test]
fn a_filter_that_is_unsteady_ends_the_packets() {
    // Sizes between the smallest and the largest are only met on the way.
    let text = "size=60..100 match='less 60 or greater 100 or (greater 62 and less 98)' count=50";
    let mut generator = generator(text);
    let mut frame = vec![0; generator.frame_max()];
    assert!(matches!(generator.next_into(&mut frame), Ok(Some(_))));
    let error = generator.next_into(&mut frame).expect_err("61 bytes do not match");
    assert!(
        matches!(error, Error::Unsteady { number: 2, len: 61, verdict: "does not match", .. }),
        "{error}"
    );
    assert!(matches!(generator.next_into(&mut frame), Ok(None)));
}

#[test]
fn fragments_make_the_packet_that_they_are_of() {
    const L3: usize = 14;
    for (version, parts) in [("ip", 4), ("ip6", 5)] {
        let whole = frames(&format!("{version} size=1501 payload=counting count=3"), 3);
        let limit = 400;
        let pieces = frames(&format!("{version} size=1501 payload=counting fragment={limit}"), 3 * parts);
        let mut packets: HashMap<u32, Vec<(u16, bool, Vec<u8>)>> = HashMap::new();
        for piece in &pieces {
            check(piece, version);
            assert!(piece.len() <= L3 + limit, "{}", piece.len());
            let fragment = headers(piece).fragment().expect("a fragment");
            let start = if version == "ip" { 34 } else { 62 };
            packets.entry(fragment.id).or_default().push((
                fragment.offset,
                fragment.more,
                piece[start..].to_vec(),
            ));
        }
        assert_eq!(packets.len(), 3, "{version}");
        for parts in packets.values() {
            let mut bytes = Vec::new();
            for (number, (offset, more, part)) in parts.iter().enumerate() {
                assert_eq!(
                    (usize::from(*offset), *more),
                    (bytes.len(), number + 1 < parts.len()),
                    "{version}"
                );
                bytes.extend_from_slice(part);
            }
            let l4 = if version == "ip" { 34 } else { 54 };
            assert_eq!(bytes, whole[0][l4..], "{version}");
        }
    }
}

#[test]
fn malformed_packets_are_wrong_in_their_share_only() {
    let is_right = |frame: &[u8]| std::panic::catch_unwind(|| check(frame, "")).is_ok();
    std::panic::set_hook(Box::new(|_| {}));
    let counts: Vec<usize> = ["checksum", "ip-checksum", "length", "truncated"]
        .iter()
        .map(|bad| {
            let text = format!("udp tcp icmp size=100 flows=9 bad={bad}:1/5");
            frames(&text, 500).iter().filter(|frame| !is_right(frame)).count()
        })
        .collect();
    let all = frames("udp size=100 bad=checksum:1/5,length:1/5,truncated:1/5", 500);
    let wrong = all.iter().filter(|frame| !is_right(frame)).count();
    let truncated = all.iter().filter(|frame| frame.len() < 42).count();
    let _ = std::panic::take_hook();
    assert_eq!(counts, [100; 4]);
    // Three fall due at once, and a packet has one fault: the last two wait.
    assert_eq!((wrong, truncated), (298, 99));
}

#[test]
fn count_and_duration_end_it() {
    assert_eq!(frames("count=7", usize::MAX).len(), 7);
    assert_eq!(frames("rate=1000 duration=10ms", usize::MAX).len(), 10);
    assert_eq!(frames("rate=1000 duration=10ms count=3", usize::MAX).len(), 3);
    assert_eq!(frames("duration=1us", usize::MAX).len(), 1);
    assert_eq!(frames("count=0", usize::MAX).len(), 0);
    let mut generator = generator("");
    let short = generator.next_into(&mut [0; 10]).expect_err("too short");
    assert!(short.to_string().contains("frame_max"), "{short}");
}

#[test]
fn marks_number_the_packets_that_carry_them() {
    let mut stream = Stream::default();
    let made = made("udp tcp mark=5 size=100 flows=10 rate=1M bad=checksum:1/7", 2000);
    let mut marked = 0;
    for (departure, frame) in &made {
        let Some(mark) = Mark::find(frame, frame.len()) else { continue };
        marked += 1;
        let at = Timestamp::from_nanos(946_684_800_000_000_000 + departure.at_ns as i64);
        assert_eq!((mark.stream, mark.sent), (5, at));
        stream.take(mark, at.plus_nanos(1500));
    }
    assert!(marked > 1000, "{marked}");
    assert_eq!((stream.received(), stream.bounds(), stream.lost()), (marked, (0, marked - 1), 0));
    assert_eq!(stream.latency().bounds_ns(), Some((1500, 1500)));
    let last_of_fragments = frames("mark size=500 fragment=150 flows=3", 400);
    let found = last_of_fragments.iter().filter(|frame| Mark::find(frame, frame.len()).is_some()).count();
    assert!(found >= 90, "one in each packet: {found}");
    assert_eq!(MARK_LEN, 18);
}
