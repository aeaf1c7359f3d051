//! Details of flows: the same whatever carries the packets, bounded in memory, and none for flows that were not asked.

use std::collections::BTreeSet;

use tapline_flow::{DetailFields, Details, EndReason, Flow, FoundBy, Meter, MeterSettings};
use tapline_packet::{Batch, Interface, LinkType, Meta, Record, Selection, Timestamp};
use tapline_testkit::frames::application::{
    dns_query, dns_response, http_get, http_ok, tls_client_hello, tls_record,
};
use tapline_testkit::frames::*;
use tapline_testkit::random::Random;

use crate::journal::Replay;

const MS: i64 = 1_000_000;
const ALL: &str = "tcp,sizes,gaps,dns,tls,http,application,payload,ethernet,mpls";

fn settings(details: &str) -> MeterSettings {
    MeterSettings { details: DetailFields::parse(details).unwrap(), ..MeterSettings::default() }
}

/// The flows and statistics of frames, with times in milliseconds, cut to `captured` bytes.
fn metered(settings: &MeterSettings, frames: &[(i64, Vec<u8>)], captured: usize) -> (Vec<Flow>, Meter) {
    let (mut meter, mut flows) = (Meter::new(settings).unwrap(), Vec::new());
    meter.keep_journal();
    for (ms, frame) in frames {
        let data = &frame[..frame.len().min(captured)];
        let timestamp = Timestamp::from_nanos(1_700_000_000_000 * MS + ms * MS);
        let meta = Meta { timestamp, wire_len: frame.len() as u32, ..Meta::default() };
        let records = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta }];
        let mut selection = Selection::none();
        selection.select_all(1);
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        meter.push(&Batch::new(data, &records), &mut selection, &interfaces, &mut flows);
        while !meter.expire(&mut flows) {}
    }
    while !meter.finish(&mut flows) {}
    let mut replay = Replay::default();
    meter.journal().into_iter().for_each(|journal| replay.read(journal));
    replay.assert_ended(&flows);
    (flows, meter)
}

/// Layers between the IP packets of two hosts and the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Encapsulation {
    Plain,
    Tagged,
    V6,
    Extended,
    Tunnel,
}

impl Encapsulation {
    fn version(self) -> IpVersion {
        if matches!(self, Encapsulation::V6 | Encapsulation::Extended) {
            IpVersion::V6
        } else {
            IpVersion::V4
        }
    }

    fn frame(self, from: &Host, to: &Host, protocol: u8, transport: impl Fn(IpPair) -> Vec<u8>) -> Vec<u8> {
        let pair = IpPair::between(from, to, self.version());
        let segment = transport(pair);
        let link = Ethernet::between(from, to);
        match self {
            Encapsulation::Plain | Encapsulation::V6 => link.ip(&pair.packet(protocol, &segment)),
            Encapsulation::Tagged => vlan(&link.ip(&pair.packet(protocol, &segment)), 0x8100, 7),
            Encapsulation::Extended => link.ip(&pair.packet(0, &hop_by_hop(protocol, &segment))),
            Encapsulation::Tunnel => {
                let outer = IpPair::between(&Host::number(50), &Host::number(51), IpVersion::V4);
                link.ip(&outer.packet(47, &gre(0x0800, None, &pair.packet(protocol, &segment))))
            }
        }
    }
}

/// A TCP conversation. Each turn has the sending host, the time in milliseconds, the flags, the offset in the stream,
/// and the payload.
fn conversation(way: Encapsulation, turns: &[(usize, i64, u8, u32, &[u8])]) -> Vec<(i64, Vec<u8>)> {
    let hosts = [Host::number(9), Host::number(2)];
    turns
        .iter()
        .map(|&(sender, ms, flags, seq, payload)| {
            let (src, dst) = if sender == 0 { (50_000, 8443) } else { (8443, 50_000) };
            let options = match flags & flags::SYN {
                0 => Vec::new(),
                _ => vec![TcpOption::MaximumSegment(1400 + sender as u16), TcpOption::WindowScale(7)],
            };
            let seq = [1000, 9000][sender] + seq;
            let tcp = Tcp { src, dst, seq, ack: [9001, 1001][sender], flags, window: 500, options };
            (ms, way.frame(&hosts[sender], &hosts[1 - sender], 6, |pair| tcp.segment(pair, payload)))
        })
        .collect()
}

fn server_hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[5; 32], &[0, 0x13, 0x02, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    tls_record(22, &[&[2, 0, 0, body.len() as u8][..], &body].concat())
}

const SYN: u8 = flags::SYN;
const ACK: u8 = flags::ACK;

fn details(flow: &Flow) -> &Details {
    flow.details.as_deref().expect("it was asked for details")
}

/// A handshake, a hello in two pieces of which the second comes first, an answer, a retransmission.
#[test]
fn a_hello_is_read_over_every_transport() {
    let hello = tls_client_hello("www.example.org", [3; 32]);
    let (one, other) = hello.split_at(70);
    let answer = server_hello();
    for way in [
        Encapsulation::Plain,
        Encapsulation::Tagged,
        Encapsulation::V6,
        Encapsulation::Extended,
        Encapsulation::Tunnel,
    ] {
        let frames = conversation(
            way,
            &[
                (0, 0, SYN, 0, b""),
                (1, 40, SYN | ACK, 0, b""),
                (0, 50, ACK, 1, b""),
                (0, 52, ACK, 71, other),
                (0, 53, ACK, 1, one),
                (1, 95, ACK, 1, &answer),
                (0, 96, ACK, 1, one),
            ],
        );
        let settings = MeterSettings { inner: way == Encapsulation::Tunnel, ..settings(ALL) };
        let (flows, meter) = metered(&settings, &frames, 65_535);
        assert_eq!((flows.len(), meter.statistics().refused.texts), (1, 0), "{way:?}");
        let details = details(&flows[0]);
        let tls = details.tls.as_ref().expect("it is TLS");
        assert_eq!((&*tls.server_name, &*tls.alpn), ("www.example.org", "h2,http/1.1"), "{way:?}");
        assert_eq!((tls.version, tls.cipher), (Some(0x0304), Some(0x1302)));
        // Of what the testkit's hello has: suites 4865, 4866, 4867, 49199; extensions 0, 10, 13, 16, 43, 51; groups 29,
        // 23.
        assert!(tls.ja4.starts_with("t13d0406h2_") && tls.ja3.len() == 32, "{tls:?}");
        let tcp = details.tcp.as_ref().expect("it is TCP");
        assert_eq!((tcp.server_rtt, tcp.client_rtt), (Some(40_000_000), Some(10_000_000)));
        assert_eq!(tcp.response, Some(43_000_000), "from the piece that came first");
        let client = &tcp.sides[0];
        assert_eq!((client.mss, client.window_scale), (Some(1400), Some(7)));
        assert_eq!(
            (client.out_of_order, client.retransmitted, client.retransmitted_bytes),
            (1, 1, 70),
            "{way:?}"
        );
        assert_eq!((tcp.sides[1].mss, tcp.sides[1].retransmitted), (Some(1401), 0));
        assert_eq!((details.application, details.found_by), (Some("tls"), Some(FoundBy::Content)));
        assert_eq!([&details.payload[0][..3], &details.payload[1][..6]], [&other[..3], &answer[..6]]);
        let gaps = details.gaps.expect("asked for");
        assert_eq!((gaps[0].count, gaps[0].min, gaps[0].max), (4, 1_000_000, 50_000_000));
        let sizes = details.sizes.expect("asked for");
        assert_eq!((sizes[0].iter().sum::<u32>(), sizes[1].iter().sum::<u32>()), (5, 2));
    }
}

/// STARTTLS: the protocol that the two agreed upon in words stays their application.
#[test]
fn tls_may_begin_in_the_middle() {
    let hello = tls_client_hello("mx.example.org", [3; 32]);
    let (one, other) = hello.split_at(70);
    let answer = server_hello();
    let frames = conversation(
        Encapsulation::Plain,
        &[
            (0, 0, SYN, 0, b""),
            (1, 40, SYN | ACK, 0, b""),
            (1, 41, ACK, 1, b"220 mx\r\n"),
            (0, 42, ACK, 1, b"EHLO me\r\n"),
            (1, 43, ACK, 9, b"250-mx\r\n250 STARTTLS\r\n"),
            (0, 44, ACK, 10, b"STARTTLS\r\n"),
            (1, 45, ACK, 31, b"220 go\r\n"),
            (0, 46, ACK, 20, one),
            (0, 47, ACK, 90, other),
            (1, 48, ACK, 39, &answer),
        ],
    );
    let (flows, _) = metered(&settings(ALL), &frames, 65_535);
    let details = details(&flows[0]);
    let tls = details.tls.as_ref().expect("it became TLS");
    assert_eq!((&*tls.server_name, tls.version, tls.cipher), ("mx.example.org", Some(0x0304), Some(0x1302)));
    assert!(tls.ja4.starts_with("t13d"), "{tls:?}");
    assert_eq!((details.application, details.found_by), (Some("smtp"), Some(FoundBy::Content)));
    let response = details.tcp.as_ref().expect("it is TCP").response;
    assert_eq!(response, Some(1_000_000), "the greeting came before the first request");
}

/// Both sides show FTP, in one piece or in several; a greeting alone leaves it to the port.
#[test]
fn applications_are_found_by_content_or_port() {
    let found = |turns: &[(usize, i64, u8, u32, &[u8])]| {
        let (flows, _) =
            metered(&settings("application"), &conversation(Encapsulation::Plain, turns), 65_535);
        let details = details(&flows[0]);
        (details.application.expect("the port has one"), details.found_by.expect("it was found"))
    };
    let (greeting, user) = ((1, 1, ACK, 1, &b"220 ready\r\n"[..]), (0, 2, ACK, 1, &b"USER joe\r\n"[..]));
    let syn = (0, 0, SYN, 0, &b""[..]);
    assert_eq!(found(&[syn, greeting, user]), ("ftp", FoundBy::Content));
    assert_eq!(found(&[syn, user, greeting]), ("ftp", FoundBy::Content));
    assert_eq!(found(&[syn, greeting]), ("pcsync-https", FoundBy::Port));
    assert_eq!(found(&[syn, user]), ("pcsync-https", FoundBy::Port));
    let pieces = [(0, 1, ACK, 1, &b"*1\r"[..]), (0, 2, ACK, 4, b"\n$4\r\nPI"), (0, 3, ACK, 11, b"NG\r\n")];
    assert_eq!(found(&[&[syn][..], &pieces].concat()), ("redis", FoundBy::Content));
    assert_eq!(found(&[syn, (0, 1, ACK, 1, b"OPTIONS * HTTP/1.1\r\n\r\n")]), ("http", FoundBy::Content));
    assert_eq!(found(&[syn, (0, 1, ACK, 1, b"OPTIONS sip:a@b SIP/2.0\r\n")]), ("sip", FoundBy::Content));
}

/// Datagrams of a client's call, behind others that say nothing: beyond the fourth it is too late.
#[test]
fn datagrams_are_looked_at_four_times() {
    let hosts = [Host::number(9), Host::number(2)];
    let frame = |payload: &[u8]| {
        let udp = Udp { src: 50_000, dst: 50_001 };
        Encapsulation::V6.frame(&hosts[0], &hosts[1], 17, |pair| udp.datagram(pair, payload))
    };
    let call = b"INVITE sip:bob@example.org SIP/2.0\r\n";
    for (before, application) in [(0, Some("sip")), (3, Some("sip")), (4, None)] {
        let mut frames: Vec<_> = (0..before).map(|at| (at, frame(b"\r\n\r\n"))).collect();
        frames.push((9, frame(call)));
        let (flows, _) = metered(&settings("application"), &frames, 65_535);
        assert_eq!(details(&flows[0]).application, application, "{before}");
    }
}

/// Records of a meter have numbers, in the order in which they end.
#[test]
fn records_are_numbered() {
    let hosts = [Host::number(9), Host::number(2)];
    let frame = |src: u16| {
        Encapsulation::Plain.frame(&hosts[0], &hosts[1], 17, |pair| Udp { src, dst: 9 }.datagram(pair, b"x"))
    };
    let frames: Vec<_> = (0..5).map(|at| (i64::from(at) * 20_000, frame(at))).collect();
    let (flows, _) = metered(&settings("none"), &frames, 65_535);
    assert_eq!(flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn requests_and_questions_are_told() {
    let (get, ok) = (http_get("www.example.org", "/a?b=c"), http_ok(7));
    let web = conversation(Encapsulation::V6, &[(0, 0, ACK, 1, &get), (1, 3, ACK, 1, &ok)]);
    let (flows, _) = metered(&settings(ALL), &web, 65_535);
    let http = details(&flows[0]).http.clone().expect("it is HTTP");
    assert_eq!((&*http.method, &*http.host, &*http.target), ("GET", "www.example.org", "/a?b=c"));
    assert_eq!((&*http.user_agent, http.status), ("probe/1.0", Some(200)));

    let hosts = [Host::number(9), Host::number(2)];
    let frame = |sender: usize, payload: &[u8]| {
        let (src, dst) = if sender == 0 { (50_000, 53) } else { (53, 50_000) };
        Encapsulation::Extended
            .frame(&hosts[sender], &hosts[1 - sender], 17, |pair| Udp { src, dst }.datagram(pair, payload))
    };
    let answer =
        dns_response(7, "a.example.org", 28, 60, &[hosts[0].ip(IpVersion::V6), hosts[1].ip(IpVersion::V6)]);
    let frames =
        [(0, frame(0, &dns_query(7, "a.example.org", 28))), (9, frame(1, &answer)), (20, frame(1, &answer))];
    let (flows, _) = metered(&settings(ALL), &frames, 65_535);
    let dns = details(&flows[0]).dns.clone().expect("it is DNS");
    assert_eq!((&*dns.name, dns.kind), ("a.example.org", 28));
    let answer = dns.answer.expect("it was answered");
    assert_eq!((answer.code, answer.count, answer.after), (0, 2, Some(9_000_000)));
    assert_eq!(details(&flows[0]).application, Some("domain"));
}

/// Bytes that were not captured are neither read nor taken for something else.
#[test]
fn cut_packets_give_the_details_they_have() {
    let hello = tls_client_hello("www.example.org", [3; 32]);
    let turns =
        [(0, 0, SYN, 0, &b""[..]), (0, 1, ACK, 1, &hello), (0, 2, ACK, 1 + hello.len() as u32, b"more")];
    let frames = conversation(Encapsulation::Plain, &turns);
    for captured in 48..=54 + hello.len() {
        let (flows, _) = metered(&settings(ALL), &frames, captured);
        let details = details(&flows[0]);
        let tcp = details.tcp.expect("it is TCP");
        assert_eq!(tcp.sides[0].retransmitted + tcp.sides[0].out_of_order, 0, "{captured}");
        if let Some(tls) = &details.tls {
            assert_eq!(tls.ja4.is_empty(), captured < 54 + hello.len(), "{captured}");
            assert!(["", "www.example.org"].contains(&&*tls.server_name));
        }
    }
    let (flows, _) = metered(&settings(ALL), &frames, 54 + 100);
    assert_eq!(details(&flows[0]).tls.as_ref().map(|tls| &*tls.server_name), Some("www.example.org"));
}

#[test]
fn a_meter_without_details_gives_none() {
    let get = http_get("www.example.org", "/");
    let frames = conversation(Encapsulation::Plain, &[(0, 0, ACK, 1, &get)]);
    assert_eq!(metered(&settings("none"), &frames, 65_535).0[0].details, None);
    let (flows, _) = metered(&settings("tcp"), &frames, 65_535);
    let only = details(&flows[0]);
    assert!(only.tcp.is_some() && only.http.is_none() && only.application.is_none());
    assert!(only.payload.iter().all(|bytes| bytes.is_empty()) && only.sizes.is_none());
}

/// Each new flow takes the place of the previous one: texts come back, and those that do not fit are counted.
#[test]
fn memory_is_bounded_and_comes_back() {
    let small = MeterSettings { flows_max: 1, ..settings("http") };
    let long = format!("/{}", "a".repeat(250));
    let frames = |path: &str| {
        let hosts = [Host::number(9), Host::number(2)];
        let pair = IpPair::between(&hosts[0], &hosts[1], IpVersion::V4);
        let frame = |src: u16| {
            let tcp = Tcp { src, dst: 80, seq: 1, flags: ACK, ..Tcp::default() };
            Ethernet::between(&hosts[0], &hosts[1]).ip(&tcp.packet(pair, &http_get("www.example.org", path)))
        };
        (0..500).map(|at| (i64::from(at), frame(1000 + at))).collect::<Vec<_>>()
    };
    let (flows, meter) = metered(&small, &frames("/"), 65_535);
    assert_eq!((flows.len(), meter.statistics().refused.texts), (500, 0));
    let told = |flow: &Flow| details(flow).http.as_ref().is_some_and(|http| &*http.target == "/");
    assert!(flows.iter().all(told));
    let (flows, meter) = metered(&small, &frames(&long), 65_535);
    assert!(meter.statistics().refused.texts >= 500, "{:?}", meter.statistics().refused);
    let has_host = |flow: &Flow| details(flow).http.as_ref().is_some_and(|http| &*http.method == "GET");
    assert!(flows.iter().all(has_host), "what has room is told");
}

/// A port that is used again: nothing of the flow before is left.
#[test]
fn a_new_flow_begins_with_nothing() {
    let get = http_get("www.example.org", "/");
    let turns: &[(usize, i64, u8, u32, &[u8])] = &[
        (0, 0, SYN, 0, b""),
        (0, 1, ACK, 1, &get),
        (0, 2, flags::RST, 60, b""),
        (0, 500, SYN, 5000, b""),
        (0, 501, ACK, 5001, b"nothing that is known"),
    ];
    let (flows, _) = metered(&settings(ALL), &conversation(Encapsulation::Plain, turns), 65_535);
    assert_eq!(flows.len(), 2);
    assert!(details(&flows[0]).http.is_some() && details(&flows[1]).http.is_none());
    assert_eq!(&details(&flows[1]).payload[0][..7], b"nothing");
    assert_eq!(details(&flows[1]).tcp.unwrap().sides[0].retransmitted, 0);
}

/// A stream whose segments are sent again, lost before here and sent again, and put out of order, as chance says; the
/// counts are known.
#[test]
fn retransmissions_are_counted_as_generated() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let (mut turns, mut truth) = (Vec::new(), [0, 0, 0]);
        // The handshake takes 30 ms both ways together.
        turns.push((0, 0, SYN, 0, 0));
        turns.push((1, 20, SYN | ACK, 0, 0));
        turns.push((0, 30, ACK, 1, 0));
        let (mut seq, mut ms) = (1, 40);
        for _ in 0..200 {
            let lens = [0; 3].map(|_| 1 + random.below(1400) as u32 + 1);
            let starts = [seq, seq + lens[0], seq + lens[0] + lens[1]];
            let mut send = |which: usize, after: i64| {
                turns.push((0, ms + after, ACK, starts[which], lens[which] as usize))
            };
            match random.below(4) {
                // In order.
                0 => (0..3).for_each(|which| send(which, which as i64)),
                // One of them twice, sooner or later.
                1 => {
                    let again = random.below(3) as usize;
                    (0..3).for_each(|which| send(which, which as i64));
                    send(again, 3 + random.below(90) as i64);
                    truth[0] += 1;
                    truth[1] += u64::from(lens[again]);
                }
                // The second one was lost on its way here, and comes more than a round trip later.
                2 => {
                    send(0, 0);
                    send(2, 1);
                    send(1, 1 + 31 + random.below(60) as i64);
                    truth[0] += 1;
                    truth[1] += u64::from(lens[1]);
                }
                // The second one took a longer way.
                _ => {
                    send(0, 0);
                    send(2, 1);
                    send(1, 1 + random.below(30) as i64);
                    truth[2] += 1;
                }
            }
            seq = starts[2] + lens[2];
            ms += 100;
        }
        let bytes = vec![b'.'; 1500];
        let turns: Vec<(usize, i64, u8, u32, &[u8])> = turns
            .iter()
            .map(|&(sender, ms, flags, seq, len)| (sender, ms, flags, seq, &bytes[..len]))
            .collect();
        let settings =
            MeterSettings { active_ns: 3_600_000 * MS, idle_ns: 3_600_000 * MS, ..settings("tcp") };
        let (flows, _) = metered(&settings, &conversation(Encapsulation::Plain, &turns), 65_535);
        let tcp = details(&flows[0]).tcp.expect("it is TCP");
        let client = &tcp.sides[0];
        let told = [client.retransmitted.into(), client.retransmitted_bytes, client.out_of_order.into()];
        assert_eq!((flows.len(), told), (1, truth), "seed {seed}");
        assert_eq!((tcp.server_rtt, tcp.client_rtt), (Some(20_000_000), Some(10_000_000)));
    }
}

/// Each reason for which a flow ends, in one meter with room for three, by event and time.
#[test]
fn every_reason_ends_a_flow() {
    const SECOND: i64 = 1000;
    let settings = MeterSettings { flows_max: 3, ..MeterSettings::default() };
    let hosts = [Host::number(1), Host::number(2)];
    let pair = IpPair::between(&hosts[0], &hosts[1], IpVersion::V4);
    let udp = |src: u16| Ethernet::between(&hosts[0], &hosts[1]).ip(&Udp { src, dst: 9 }.packet(pair, b"."));
    let tcp = |src: u16, flags: u8| {
        let segment = Tcp { src, dst: 80, flags, ..Tcp::default() };
        Ethernet::between(&hosts[0], &hosts[1]).ip(&segment.packet(pair, b""))
    };
    // Goes on for more than a minute, and then falls silent.
    let mut frames: Vec<(i64, Vec<u8>)> = (0..=62).map(|second| (second * SECOND, udp(1))).collect();
    // Is reset, and waits for two seconds.
    frames.push((10 * SECOND + 1, tcp(2, SYN)));
    frames.push((10 * SECOND + 2, tcp(2, flags::RST)));
    // Is silent for longer than fifteen seconds.
    frames.push((20 * SECOND + 1, udp(3)));
    // The table is full at the fourth: the first is evicted. It starts again a second later, which evicts the one that
    // was silent longest then.
    frames.extend([4, 5, 6].map(|src| (61 * SECOND + 100 * i64::from(src), udp(src))));
    frames.sort_by_key(|(ms, _)| *ms);
    let (flows, meter) = metered(&settings, &frames, 65_535);
    let told: Vec<(u16, EndReason, u64)> = flows
        .iter()
        .map(|flow| {
            let sender = usize::from(flow.endpoints[1].packets > 0);
            (flow.endpoints[sender].port, flow.end_reason, flow.packets())
        })
        .collect();
    assert_eq!(told[..3], [(2, EndReason::End, 2), (3, EndReason::Idle, 1), (1, EndReason::Active, 60)]);
    assert_eq!(told[3..5], [(1, EndReason::Full, 2), (4, EndReason::Full, 1)]);
    let forced = [5, 6, 1].map(|src| (src, EndReason::Forced, 1));
    assert_eq!(told[5..].iter().collect::<BTreeSet<_>>(), forced.iter().collect());
    let ends = EndReason::OF_METERS.map(|reason| meter.statistics().ended.of(reason));
    assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
    assert_eq!(told.iter().map(|(.., packets)| packets).sum::<u64>(), frames.len() as u64);
}
