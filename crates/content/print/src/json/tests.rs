use std::fmt;

use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tapline_packet::{Interface, LinkType, Meta, Packet, Timestamp, VlanTag};
use tapline_testkit::surroundings::captures_or_skip;

use super::packet;

/// JSON in which no object has a key twice, which [`Value`] would not notice.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        struct Checks;
        impl<'de> Visitor<'de> for Checks {
            type Value = Strict;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
                Ok(Strict)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
                while seq.next_element::<Strict>()?.is_some() {}
                Ok(Strict)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
                let mut keys = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if keys.contains(&key) {
                        return Err(serde::de::Error::custom(format!("the key {key} stands twice")));
                    }
                    keys.push(key);
                    map.next_value::<Strict>()?;
                }
                Ok(Strict)
            }
        }
        deserializer.deserialize_any(Checks)
    }
}

fn line(data: &[u8], meta: &Meta, link_type: LinkType) -> String {
    let mut out = Vec::new();
    packet(Packet { data, meta }, &Interface::new("eth0", link_type), 7, &mut out);
    let line = String::from_utf8(out).expect("JSON is UTF-8");
    assert!(line.ends_with('\n') && line.lines().count() == 1, "one line: {line:?}");
    line
}

fn checked(data: &[u8], meta: &Meta, link_type: LinkType) -> Value {
    let line = line(data, meta, link_type);
    serde_json::from_str::<Strict>(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let _: IgnoredAny = serde_json::from_str(&line).expect("JSON");
    serde_json::from_str(&line).expect("JSON")
}

fn whole(data: &[u8]) -> Meta {
    Meta {
        wire_len: data.len() as u32,
        timestamp: Timestamp::from_nanos(1_700_000_000_123_456_789),
        ..Meta::default()
    }
}

/// Ethernet, IPv4, UDP, and a question for the address of `a.example`.
const DNS_QUESTION: &[u8] = &[
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, // Ethernet
    0x45, 0, 0, 55, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, // IPv4
    0x30, 0x39, 0, 53, 0, 35, 0, 0, // UDP
    0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 7, b'e', b'x', b'a', b'm', b'p', b'l', b'e', 0, 0, 1,
    0, 1,
];

#[test]
fn a_question_of_the_domain_name_system() {
    let value = checked(DNS_QUESTION, &whole(DNS_QUESTION), LinkType::ETHERNET);
    assert_eq!(value["number"], 7);
    assert_eq!(value["time"], "2023-11-14T22:13:20.123456789Z");
    assert_eq!(value["time_ns"], "1700000000123456789");
    assert_eq!(value["interface"], "eth0");
    assert_eq!(value["eth"]["dst"], "02:00:00:00:00:01");
    assert_eq!(value["ipv4"]["src"], "192.0.2.1");
    assert_eq!(value["ipv4"]["dont_fragment"], true);
    assert_eq!(value["udp"]["dst_port"], 53);
    assert_eq!(value["payload_length"], 27);
    assert_eq!(value["dns"]["questions"][0]["name"], "a.example.");
    assert_eq!(value["dns"]["questions"][0]["type_name"], "A");
    assert_eq!(value["protocols"], serde_json::json!(["eth", "ipv4", "udp", "dns"]));
    assert!(value.get("truncated").is_none());
}

#[test]
fn a_packet_cut_anywhere_says_where() {
    for end in 0..DNS_QUESTION.len() {
        let value = checked(&DNS_QUESTION[..end], &whole(DNS_QUESTION), LinkType::ETHERNET);
        let expected = match end {
            0..14 => "eth",
            14..34 => "ipv4",
            34..42 => "udp",
            _ => "dns",
        };
        assert_eq!(value["truncated"], expected, "cut at {end}");
    }
}

#[test]
fn names_that_are_too_long_are_marked() {
    let long = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(5);
    let question = [&DNS_QUESTION[42..54], &long, &DNS_QUESTION[DNS_QUESTION.len() - 5..]].concat();
    let value = udp(53, &question);
    let question = &value["dns"]["questions"][0];
    assert_eq!((&question["name_truncated"], &question["type_name"]), (&true.into(), &"A".into()));
    assert_eq!(question["name"].as_str().map(str::len), Some(256), "with the last dot");
    let whole = checked(DNS_QUESTION, &whole(DNS_QUESTION), LinkType::ETHERNET);
    assert!(whole["dns"]["questions"][0].get("name_truncated").is_none());
}

#[test]
fn records_and_lines_beyond_the_most_are_marked() {
    let mut many = DNS_QUESTION[42..].to_vec();
    (many[6], many[7], many[9]) = (2, 1, 1);
    for _ in 0..513 {
        many.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
    let value = udp(53, &many);
    assert_eq!(value["dns"]["answers"].as_array().map(Vec::len), Some(512));
    assert_eq!(
        (&value["dns"]["records_truncated"], &value["dns"]["authorities"]),
        (&true.into(), &Value::Null)
    );
    for (len, expected) in [(1024, Value::Null), (1025, true.into())] {
        let line = [vec![b'a'; len], b"\r\n".to_vec()].concat();
        assert_eq!(udp(514, &line)["syslog"]["line_truncated"], expected, "{len}");
    }
}

/// A datagram to a port.
fn udp(port: u16, payload: &[u8]) -> Value {
    let mut frame = [&DNS_QUESTION[..42], payload].concat();
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    checked(&frame, &whole(&frame), LinkType::ETHERNET)
}

/// Lists whose bound is reached: each says so.
#[test]
fn lists_that_are_cut_are_marked() {
    let ethernet = |kind: u16, body: &[u8]| {
        let frame = [&[2; 12][..], &kind.to_be_bytes(), body].concat();
        checked(&frame, &whole(&frame), LinkType::ETHERNET)
    };
    let tags = |count: usize| [[0_u8, 1, 0x81, 0].repeat(count - 1), vec![0, 1, 0x90, 0, 1, 2]].concat();
    let labels = |count: usize| [[0_u8, 1, 0, 64].repeat(count - 1), vec![0, 1, 1, 64, 0x45]].concat();
    let headers = |count: usize| {
        let mut packet = [[0x60, 0, 0, 0, 0, 0, 60, 64].to_vec(), vec![0; 32]].concat();
        packet[4..6].copy_from_slice(&(8 * count as u16).to_be_bytes());
        packet.extend([60, 0, 0, 0, 0, 0, 0, 0].repeat(count - 1));
        packet.extend([59, 0, 0, 0, 0, 0, 0, 0]);
        packet
    };
    for (more, expected) in [(0, Value::Null), (1, Value::Bool(true))] {
        let value = ethernet(0x8100, &tags(8 + more));
        assert_eq!((value["vlan"].as_array().map(Vec::len), &value["vlan_truncated"]), (Some(8), &expected));
        let value = ethernet(0x8847, &labels(16 + more));
        assert_eq!((value["mpls"].as_array().map(Vec::len), &value["mpls_truncated"]), (Some(16), &expected));
        let value = ethernet(0x86dd, &headers(16 + more));
        assert_eq!(value["ipv6"]["extensions"].as_array().map(Vec::len), Some(16));
        assert_eq!(value["ipv6"]["extensions_truncated"], expected);
        let babel = [&[42, 2, 0, 64 + more as u8][..], &vec![0; 64 + more]].concat();
        assert_eq!(udp(6696, &babel)["babel"]["messages_truncated"], expected);
    }
}

#[test]
fn http_heads_are_parsed_as_leniently_as_browsers() {
    let many = "X-A: b\r\n".repeat(300);
    let head = format!(
        "http/1.1 200 Fine\r\n{many}X-B : c\r\n d\r\nnone\r\nServer : x\r\n y\r\nContent-Length: 4\r\n\r\nbody"
    );
    let mut frame =
        [&DNS_QUESTION[..34], &[0, 80, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]].concat();
    frame.extend_from_slice(head.as_bytes());
    frame[23] = 6;
    let len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    let value = checked(&frame, &whole(&frame), LinkType::ETHERNET);
    let expected = serde_json::json!({
        "kind": "response", "status": 200, "reason": "Fine", "version": "1.1", "server": "x y", "content_length": "4",
        "malformed_lines": 1,
    });
    assert_eq!(value["http"], expected);
}

/// The long header of QUIC, whole, and cut within its connection IDs.
#[test]
fn quic_headers_are_shown_as_far_as_captured() {
    let ids = [&[8_u8][..], &[0xaa; 8], &[1, 0xbb], &[0; 11]].concat();
    for (first, version, packet_type) in
        [(0xc0, 1_u32, "initial"), (0xc0, 0x6b33_43cf, "retry"), (0x80, 0, "version_negotiation")]
    {
        let mut frame = [&DNS_QUESTION[..42], &[first], &version.to_be_bytes(), &ids].concat();
        frame[36..38].copy_from_slice(&443_u16.to_be_bytes());
        let value = checked(&frame, &whole(&frame), LinkType::ETHERNET);
        let expected = serde_json::json!({
            "version": format!("0x{version:08x}"), "type": packet_type, "dcid": "aaaaaaaaaaaaaaaa", "scid": "bb",
        });
        assert_eq!(value["quic"], expected);
        let cut = checked(&frame[..42 + 14], &whole(&frame), LinkType::ETHERNET);
        assert_eq!((&cut["quic"]["dcid"], &cut["truncated"]), (&expected["dcid"], &"quic".into()));
        assert!(cut["quic"].get("scid").is_none());
    }
}

#[test]
fn stripped_tags_come_before_tags_in_the_bytes() {
    let frame = [&DNS_QUESTION[..12], &[0x81, 0, 0x20, 5], &DNS_QUESTION[12..]].concat();
    let meta = Meta { vlan: Some(VlanTag { tpid: 0x88a8, tci: 7 }), ..whole(&frame) };
    let value = checked(&frame, &meta, LinkType::ETHERNET);
    assert_eq!(
        value["vlan"][0],
        serde_json::json!({"tpid":"0x88a8","id":7,"priority":0,"drop_eligible":false})
    );
    assert_eq!(value["vlan"][1]["id"], 5);
    assert_eq!(value["vlan"][1]["priority"], 1);
    assert_eq!(value["ipv4"]["dst"], "192.0.2.2");
}

/// The four tags that tcpdump shows, one of which the filter's `vlan` does not match.
#[test]
fn text_and_json_show_the_same_tags() {
    for tpid in [0x8100_u16, 0x88a8, 0x9100, 0x9200, 0x9300] {
        let arp =
            [8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &tpid.to_be_bytes(), &[0, 7], &arp].concat();
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        let json = line(&frame, &meta, LinkType::ETHERNET);
        let mut text = Vec::new();
        let mut printer =
            crate::Printer::new(crate::Options { link_header: true, ..crate::Options::default() });
        let interface = Interface::new("eth0", LinkType::ETHERNET);
        printer.print(Packet { data: &frame, meta: &meta }, &interface, &mut text);
        let is_tag = tpid != 0x9300;
        assert_eq!(json.contains("\"vlan\":[{"), is_tag, "{tpid:#x}: {json}");
        assert_eq!(String::from_utf8_lossy(&text).contains("vlan 7"), is_tag, "{tpid:#x}");
    }
}

#[test]
fn a_tunnels_payload_is_a_nested_object() {
    let inner = &DNS_QUESTION[14..];
    let mut outer = DNS_QUESTION[14..34].to_vec();
    outer[2..4].copy_from_slice(&((20 + inner.len()) as u16).to_be_bytes());
    outer[9] = 4;
    let packet = [&outer[..], inner].concat();
    let value = checked(&packet, &whole(&packet), LinkType::RAW);
    assert_eq!(value["ipv4"]["protocol"], 4);
    assert_eq!(value["inner"]["ipv4"]["protocol"], 17);
    assert_eq!(value["inner"]["dns"]["id"], 0x1234);
}

#[test]
fn tunnels_in_tunnels_come_to_an_end() {
    let header = [0x45, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let packet = header.repeat(1000);
    checked(&packet, &whole(&packet), LinkType::RAW);
}

#[test]
fn every_packet_of_every_capture_is_one_object() {
    let Some(captures) = captures_or_skip("every_packet_of_every_capture_is_one_object") else { return };
    let mut packets = 0;
    for path in captures {
        let Ok(mut file) = tapline_file::FileSource::open(&path) else { continue };
        while let Ok(true) = file.advance() {
            for found in file.batch().iter() {
                let link_type = file.interfaces()[found.meta.interface.0 as usize].link_type;
                checked(found.data, found.meta, link_type);
                packets += 1;
            }
        }
    }
    assert!(packets > 10_000, "only {packets} packets");
}

/// Link types that lead everywhere.
fn link_types() -> impl Strategy<Value = LinkType> {
    prop::sample::select(vec![
        LinkType::ETHERNET,
        LinkType::RAW,
        LinkType::NULL,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType(9),
        LinkType(105),
        LinkType(127),
        LinkType(239),
        LinkType(9999),
    ])
}

proptest! {
    #[test]
    fn any_bytes_are_one_object(data in prop::collection::vec(any::<u8>(), 0..300), more in 0_u32..2000, link_type in link_types()) {
        let meta = Meta { wire_len: data.len() as u32 + more, ..Meta::default() };
        checked(&data, &meta, link_type);
    }

    #[test]
    fn a_packet_with_bytes_changed_is_one_object(changes in prop::collection::vec((0..DNS_QUESTION.len(), any::<u8>()), 1..6), port in prop::sample::select(vec![53_u16, 5353, 67, 123, 443, 2152, 4789, 6081, 5060])) {
        let mut data = DNS_QUESTION.to_vec();
        data[36..38].copy_from_slice(&port.to_be_bytes());
        for (at, value) in changes {
            data[at] = value;
        }
        checked(&data, &whole(&data), LinkType::ETHERNET);
    }
}
