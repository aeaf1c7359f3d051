//! Detectors on frames: each option sees its own part of the frame.

use tapline_filter::Options;
use tapline_packet::headers::Headers;
use tapline_packet::{Batch, LinkType, Meta, Record, Selection};
use tapline_signature::{Conversation, Detector, Ruleset, StreamWindow, Variables};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};

/// The sids of the signatures that fit each frame, without flows.
pub(crate) fn sids(rules: &str, frames: &[Vec<u8>]) -> Vec<Vec<u32>> {
    let ruleset = Ruleset::parse(rules.as_bytes(), Variables::default());
    assert_eq!(ruleset.refusals, []);
    let (mut detector, refusals) = Detector::new(ruleset).expect("it can be searched");
    assert_eq!(refusals, []);
    sids_by(&mut detector, frames)
}

pub(crate) fn sids_by(detector: &mut Detector, frames: &[Vec<u8>]) -> Vec<Vec<u32>> {
    let set = detector.prepare(LinkType::ETHERNET, &Options::default()).expect("headers compile");
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    for frame in frames {
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        records.push(Record { offset: bytes.len(), cap_len: frame.len() as u32, meta, ..Record::default() });
        bytes.extend_from_slice(frame);
    }
    let batch = Batch::new(&bytes, &records);
    let mut selection = Selection::none();
    selection.select_all(frames.len());
    let headers = |index| Headers::parse(LinkType::ETHERNET, batch.packet(index));
    let payload = |index| {
        let (headers, data) = (headers(index), batch.packet(index).data);
        headers.payload().map_or(&data[..0], |start| &data[start..headers.ip_end().min(data.len())])
    };
    detector.search(set, &batch, &selection, payload);
    let mut all = Vec::new();
    let mut flow = Conversation::default();
    for index in 0..frames.len() {
        let (headers, data) = (headers(index), batch.packet(index).data);
        let tuple = headers.five_tuple(data);
        let is_lower = tuple.is_some_and(|tuple| tuple == tuple.canonical());
        let flags = headers.l4().filter(|_| headers.protocol() == Some(6)).map(|at| data[at + 13]);
        let ports = tuple.map_or((0, 0), |tuple| (tuple.src_port, tuple.dst_port));
        flow.observe(is_lower, ports, flags);
        let direction = flow.direction(is_lower);
        let mut found = Vec::new();
        detector.evaluate(index, data, &headers, payload(index), Some((&mut flow, direction)), |finding| {
            found.push(finding.signature.sid);
        });
        all.push(found);
    }
    all
}

fn tcp(src: u16, dst: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let (from, to) = if dst < src { (&a, &b) } else { (&b, &a) };
    let tcp = Tcp { src, dst, flags, ..Tcp::default() };
    Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), payload))
}

fn udp(dst: u16, payload: &[u8]) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    Ethernet::between(&a, &b)
        .ip(&Udp { src: 40_000, dst }.packet(IpPair::between(&a, &b, IpVersion::V4), payload))
}

#[test]
fn headers_contents_and_sizes_decide_together() {
    let rules = r#"
        alert tcp any any -> any 80 (content:"/admin"; sid:1;)
        alert tcp any any -> any 81 (content:"/admin"; sid:2;)
        alert udp any any -> any any (content:"ADMIN"; nocase; sid:3;)
        alert tcp any any <> any 80 (dsize:>9; sid:4;)
        alert ip any any -> any any (content:"secret"; content:!"public"; sid:5;)
        alert tcp any any -> any any (flags:S; sid:6;)
        alert tcp any any -> any any (flags:S+; sid:7;)
        alert ip any any -> any any (ip_proto:17; ttl:>1; sid:8;)
    "#;
    let frames = [
        tcp(40_000, 80, 0x18, b"GET /admin HTTP/1.1"),
        tcp(40_000, 81, 0x18, b"GET /admin"),
        udp(53, b"/admin secret public"),
        tcp(80, 40_000, 0x10, b"secret"),
        tcp(40_000, 80, 0x02, b""),
        tcp(80, 40_000, 0x12, b""),
    ];
    let wanted: [&[u32]; 6] = [&[1, 4], &[2], &[3, 8], &[5], &[6, 7], &[7]];
    assert_eq!(sids(rules, &frames), wanted);
}

#[test]
fn flows_have_directions_handshakes_and_bits() {
    let rules = r#"
        alert tcp any any -> any any (flow:to_server,established; content:"USER"; flowbits:set,user; flowbits:noalert; sid:1;)
        alert tcp any any -> any any (flow:to_client; content:"530"; flowbits:isset,user; sid:2;)
        alert tcp any any -> any any (flow:not_established; flags:S+; sid:3;)
        alert tcp any any -> any any (flow:to_server; content:"530"; sid:4;)
    "#;
    let frames = [
        tcp(40_000, 21, 0x02, b""),
        tcp(21, 40_000, 0x12, b""),
        tcp(21, 40_000, 0x18, b"530 too early"),
        tcp(40_000, 21, 0x18, b"USER root"),
        tcp(21, 40_000, 0x18, b"530 no"),
        tcp(40_000, 21, 0x18, b"530"),
    ];
    let wanted: [&[u32]; 6] = [&[3], &[], &[], &[], &[2], &[4]];
    assert_eq!(sids(rules, &frames), wanted);
}

#[test]
fn a_pass_signature_silences_the_others() {
    let rules = r#"
        alert tcp any any -> any any (content:"admin"; sid:1;)
        pass tcp any any -> any 80 (content:"healthcheck"; sid:2;)
    "#;
    let frames = [tcp(40_000, 80, 0x18, b"admin healthcheck"), tcp(40_000, 81, 0x18, b"admin healthcheck")];
    let wanted: [&[u32]; 2] = [&[], &[1]];
    assert_eq!(sids(rules, &frames), wanted);
}

#[test]
fn tags_of_virtual_networks_do_not_hide_packets() {
    let rules = r#"alert tcp any any -> any 80 (content:"x"; sid:1;)"#;
    let plain = tcp(40_000, 80, 0x18, b"x");
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    let twice = [&plain[..12], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5], &plain[12..]].concat();
    assert_eq!(sids(rules, &[plain, tagged, twice]), [[1], [1], [1]]);
}

#[test]
fn headers_that_fit_no_packet_are_refused() {
    let rules =
        "alert tcp 10.0.0.1 any -> any any (sid:1;)\nalert tcp [10.0.0.1,!10.0.0.1] any -> any any (sid:2;)";
    let ruleset = Ruleset::parse(rules.as_bytes(), Variables::default());
    let (detector, refusals) = Detector::new(ruleset).expect("it can be searched");
    assert_eq!(detector.signatures().len(), 1);
    assert_eq!((refusals[0].sid, refusals[0].line), (Some(2), 2));
    assert!(refusals[0].reason.contains("fits no packet"), "{}", refusals[0]);
}

#[test]
fn slow_payloads_are_abandoned_and_counted() {
    let contents = "content:\"a\"; distance:0; ".repeat(8);
    let rules = format!("alert tcp any any -> any any ({contents} content:\"b\"; distance:0; sid:1;)");
    let ruleset = Ruleset::parse(rules.as_bytes(), Variables::default());
    let (mut detector, _) = Detector::new(ruleset).expect("it can be searched");
    let mut payload = vec![b'b'];
    payload.resize(1400, b'a');
    assert_eq!(sids_by(&mut detector, &[tcp(40_000, 80, 0x18, &payload)]), [[0_u32; 0]]);
    assert_eq!(detector.counts().given_up, 1);
}

/// The sids that fit a stream only when its next packet comes.
fn sids_in_stream(rules: &str, before: &[u8], fresh: &[u8], has_start: bool) -> Vec<u32> {
    let ruleset = Ruleset::parse(rules.as_bytes(), Variables::default());
    let (mut detector, refusals) = Detector::new(ruleset).expect("it can be searched");
    assert_eq!(refusals, []);
    detector.expect_streams();
    let frame = tcp(40_000, 80, 0x18, fresh);
    let alone = sids_by(&mut detector, std::slice::from_ref(&frame));
    let headers = Headers::parse_data(LinkType::ETHERNET, &frame);
    let bytes = [before, fresh].concat();
    let window = StreamWindow { bytes: &bytes, fresh: before.len(), has_start };
    let mut found = Vec::new();
    detector.evaluate_stream(0, &frame, &headers, &window, None, |finding| found.push(finding.signature.sid));
    assert!(found.iter().all(|sid| !alone[0].contains(sid)), "{found:?} {alone:?}");
    found
}

#[test]
fn contents_in_several_packets_match_once() {
    let rules = r#"
        alert tcp any any -> any 80 (content:"needle"; sid:1;)
        alert tcp any any -> any 80 (content:"GET"; offset:0; depth:3; content:"admin"; sid:2;)
        alert tcp any any -> any 80 (content:"GET"; pcre:"/ad.in$/R"; sid:3;)
        alert tcp any any -> any 80 (content:"needle"; flow:no_stream; sid:4;)
        alert tcp any any -> any 81 (content:"needle"; sid:5;)
        alert tcp any any -> any 80 (content:"ne"; dsize:<9; sid:6;)
    "#;
    let of = |before: &str, fresh: &str, has_start| {
        sids_in_stream(rules, before.as_bytes(), fresh.as_bytes(), has_start)
    };
    assert_eq!(of("hay nee", "dle hay", true), [1]);
    assert_eq!(of("needle", " hay", true), [0; 0], "it fitted before");
    assert_eq!(of("hay ", "needle", true), [0; 0], "the packet alone fits");
    assert_eq!(of("GET /ad", "min", true), [2, 3]);
    assert_eq!(of("GET /ad", "min", false), [3], "the start of the stream is not there");
}
