//! Packets made for these tests, written in `seeds.txt`; its first lines say how.

use std::collections::HashMap;
use std::ops::Range;

use tapline_packet::LinkType;

/// One packet.
pub(crate) struct Seed {
    pub(crate) link_type: LinkType,
    pub(crate) frame: Vec<u8>,
    /// The bytes that the test changes.
    pub(crate) changed: Range<usize>,
}

/// The seeds of one test.
pub(crate) fn named(wanted: &str) -> Vec<Seed> {
    let mut words: HashMap<&str, Vec<u8>> = HashMap::new();
    let mut seeds = Vec::new();
    let text = include_str!("seeds.txt").replace("\\\n", " ");
    let text: &'static str = Box::leak(text.into_boxed_str());
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        if let Some((name, hex)) = line.split_once('=') {
            let value = bytes(hex, &words);
            words.insert(name.trim(), value);
        } else if let Some((head, body)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            let mut head = head.split_whitespace();
            if head.next() != Some(wanted) {
                continue;
            }
            let carrier = head.next().expect("a link type or a carrier");
            let (link_type, mut frame) = carried(carrier, bytes(body, &words));
            let end = frame.len();
            let body_len = bytes(body, &words).len();
            let start = end - body_len;
            let changed = match head.next().and_then(|range| range.split_once("..")) {
                Some((from, to)) => start + number(from)..start + number(to),
                None => start..end,
            };
            frame.truncate(end);
            seeds.push(Seed { link_type, frame, changed });
        } else {
            assert!(line.is_empty(), "{line}");
        }
    }
    seeds
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// Words and hexadecimal digits between spaces; `1*20` is a byte 20 times, decimal count.
fn bytes(text: &str, words: &HashMap<&str, Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    for token in text.split_whitespace() {
        if let Some(value) = words.get(token) {
            out.extend_from_slice(value);
        } else if let Some((byte, count)) = token.split_once('*') {
            let byte = u8::from_str_radix(byte, 16).expect("a byte");
            out.resize(out.len() + number(count), byte);
        } else if let Some(text) = token.strip_prefix('"') {
            out.extend_from_slice(text.trim_end_matches('"').as_bytes());
        } else {
            assert!(token.len().is_multiple_of(2), "{token}");
            for at in (0..token.len()).step_by(2) {
                let byte = u8::from_str_radix(&token[at..at + 2], 16);
                out.push(byte.unwrap_or_else(|_| panic!("no hexadecimal and no word: {token}")));
            }
        }
    }
    out
}

/// The frame that carries a body: the name of a link type means its own frame, `udp:PORT`, `tcp:PORT`, `eth:TYPE` and
/// `snap:PROTOCOL` add the headers before it.
fn carried(carrier: &str, body: Vec<u8>) -> (LinkType, Vec<u8>) {
    let Some((kind, value)) = carrier.split_once(':') else {
        let link_type = LinkType::from_name(carrier).unwrap_or_else(|| panic!("no link type {carrier}"));
        return (link_type, body);
    };
    let (ethertype, packet) = match kind {
        "udp" => (0x0800, ipv4(17, udp(number(value) as u16, body))),
        "tcp" => (0x0800, ipv4(6, tcp(number(value) as u16, body))),
        "eth" => (u16::from_str_radix(value, 16).expect("a type"), body),
        "snap" => {
            let mut snap = vec![0xaa, 0xaa, 3];
            let protocol = u64::from_str_radix(value, 16).expect("five bytes");
            snap.extend_from_slice(&protocol.to_be_bytes()[3..]);
            snap.extend(body);
            (snap.len() as u16, snap)
        }
        _ => panic!("no carrier {carrier}"),
    };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend(packet);
    (LinkType::ETHERNET, frame)
}

fn ipv4(protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    let length = 20 + payload.len();
    let mut packet = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 1, 0, 0, 64, protocol, 0, 0];
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(payload);
    packet
}

fn udp(port: u16, payload: Vec<u8>) -> Vec<u8> {
    let mut datagram = Vec::new();
    for word in [5000, port, 8 + payload.len() as u16, 0] {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
    datagram.extend(payload);
    datagram
}

fn tcp(port: u16, payload: Vec<u8>) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend_from_slice(&5000_u16.to_be_bytes());
    segment.extend_from_slice(&port.to_be_bytes());
    segment.extend_from_slice(&[0, 0, 3, 0xe8, 0, 0, 7, 0xd0, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    segment
}
