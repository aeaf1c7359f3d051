//! TCP streams of segments in any order, and HTTP in them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tapline_packet::headers::Headers;
use tapline_packet::{LinkType, Meta, Packet, Timestamp};
use tapline_stream::http::{BodyEvent, Conversation, StreamBytes};
use tapline_stream::{Event, Limits, Reassembler, Stream};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};
use tapline_testkit::random::Random;

/// The byte of this sequence number, in every stream.
fn byte(number: u32) -> u8 {
    (number.wrapping_mul(2_654_435_761) >> 11) as u8
}

/// The state of a stream, as its events tell it.
#[derive(Default)]
struct Seen {
    next: Option<u32>,
    position: u64,
    is_over: bool,
}

/// Streams of one input, checked as they come.
#[derive(Default)]
struct Checked {
    streams: HashMap<(u64, bool), Seen>,
    forgotten: HashSet<u64>,
    total: u64,
}

impl Checked {
    fn note(&mut self, stream: &Stream, event: Event<'_>) {
        assert!(!self.forgotten.contains(&stream.connection), "an event of a connection that is forgotten");
        if matches!(event, Event::Forgotten) {
            self.forgotten.insert(stream.connection);
            return;
        }
        let seen = self.streams.entry((stream.connection, stream.is_from_client)).or_default();
        assert_eq!(stream.offset, seen.position, "a stream has no holes but its gaps");
        match event {
            Event::Segment(piece) if piece.len > 0 => {
                assert!(!seen.is_over, "bytes after the end");
                let at = piece.payload_at - 20 + 4;
                let sent = piece.packet.data[at..at + 4].try_into().expect("four bytes");
                let first = u32::from_be_bytes(sent).wrapping_add(piece.skipped as u32);
                let syn = u32::from(piece.packet.data[piece.payload_at - 20 + 13] & 2 != 0);
                let next = seen.next.unwrap_or(first.wrapping_add(syn));
                for (ahead, found) in (0..).zip(piece.bytes()) {
                    assert_eq!(*found, byte(next.wrapping_add(ahead)), "bytes out of their order");
                }
                seen.next = Some(next.wrapping_add(piece.len as u32));
                seen.position += piece.len as u64;
                self.total += piece.len as u64;
            }
            Event::Segment(_) | Event::Forgotten => {}
            Event::Gap { len, .. } => {
                assert!(len > 0 && !seen.is_over);
                seen.next = seen.next.map(|next| next.wrapping_add(len as u32));
                seen.position += len;
                self.total += len;
            }
            Event::End(_) => assert!(!std::mem::replace(&mut seen.is_over, true), "it ends once"),
        }
    }
}

/// Segments of any number, order and length give bytes in order, each once; every byte is accounted for, and memory
/// has its bound. HTTP in any bytes begins and ends bodies in turn.
pub fn check(data: &[u8]) {
    let (head, commands) = data.split_at(data.len().min(6));
    let of = |at: usize| u32::from(head.get(at).copied().unwrap_or_default());
    let limits = Limits {
        connections: 1 + of(0) as usize % 4,
        stream_bytes: 300 * (1 + of(1) as usize % 16),
        bytes: 400 * (1 + of(1) as usize / 16),
        patience: Duration::from_millis(5),
        idle: Duration::from_millis(200),
    };
    let start = of(2) << 24 | of(3) << 16 | of(4) << 8 | of(5);
    let (mut reassembler, mut checked) = (Reassembler::new(limits), Checked::default());
    let (mut http, mut is_in_body) = (Conversation::default(), [false; 2]);
    let mut now_ms = 0_i64;
    let (a, b) = (Host::number(1), Host::number(2));
    for command in commands.chunks_exact(6) {
        let &[kind, port, high, low, len, flags] = command else { return };
        now_ms += i64::from(kind >> 3);
        let is_client = kind & 1 == 0;
        let (from, to) = if is_client { (&a, &b) } else { (&b, &a) };
        let number = start.wrapping_add(u32::from(high) << 8 | u32::from(low));
        let payload: Vec<u8> = (0..u32::from(len)).map(|ahead| byte(number.wrapping_add(ahead))).collect();
        let (src, dst) = if is_client { (port % 6, 80) } else { (80, port % 6) };
        let seq = number.wrapping_sub(u32::from(flags & 2 != 0));
        let tcp = Tcp { src: src.into(), dst: dst.into(), seq, ack: number, flags, ..Tcp::default() };
        let mut frame =
            Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), &payload));
        let wire_len = frame.len() as u32;
        if kind & 6 == 6 {
            frame.truncate(frame.len() - usize::from(len) / 2);
        }
        let meta = Meta { timestamp: Timestamp::from_nanos(now_ms * 1_000_000), wire_len, ..Meta::default() };
        let packet = Packet { data: &frame, meta: &meta };
        let headers = Headers::parse(LinkType::ETHERNET, packet);
        reassembler.push(&headers, packet, &mut |stream, event| checked.note(stream, event));
        let account = reassembler.account();
        assert!(account.is_balanced(), "{account:?}");
        assert!(account.memory <= limits.bytes as u64, "{account:?}");
        let mut sink = |event: BodyEvent<'_>| match event {
            BodyEvent::Begin(_) => assert!(!std::mem::replace(&mut is_in_body[usize::from(is_client)], true)),
            BodyEvent::Message { .. } | BodyEvent::Other(_) => {}
            BodyEvent::Data(_) => assert!(is_in_body[usize::from(is_client)]),
            BodyEvent::End { .. } => {
                assert!(std::mem::replace(&mut is_in_body[usize::from(is_client)], false))
            }
        };
        match flags >> 6 {
            0 => http.gap(is_client, len.into(), &mut sink),
            1 => http.end(is_client, len & 1 == 0, &mut sink),
            _ => {
                let (offset, acknowledged) = (now_ms as u64, (flags & 1 == 0).then_some(u64::from(low)));
                http.data(is_client, StreamBytes { bytes: command, offset, acknowledged }, &mut sink);
            }
        }
    }
    reassembler.finish(&mut |stream, event| checked.note(stream, event));
    let account = reassembler.account();
    assert!(account.is_balanced() && account.held == 0 && account.memory == 0, "{account:?}");
    assert_eq!(checked.total, account.delivered + account.missing());
    feed(data);
}

/// The input itself as an answer of a server, in pieces that the input says.
fn feed(data: &[u8]) {
    let (mut http, mut open) = (Conversation::default(), 0_i32);
    let mut sink = |event: BodyEvent<'_>| {
        open += match event {
            BodyEvent::Begin(_) => 1,
            BodyEvent::Data(_) | BodyEvent::Message { .. } | BodyEvent::Other(_) => 0,
            BodyEvent::End { .. } => -1,
        };
        assert!((0..=1).contains(&open), "bodies in each other");
    };
    let step = usize::from(data.first().copied().unwrap_or(1)).max(1);
    for bytes in data.chunks(step) {
        http.data(false, StreamBytes { bytes, offset: 0, acknowledged: None }, &mut sink);
    }
    http.end(false, true, &mut sink);
    assert_eq!(open, 0, "a body that does not end");
}

/// Segments in some disorder, with losses; and messages.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let mut seeds: Vec<Vec<u8>> = (0..6_u8)
        .map(|seed| {
            let mut input = vec![seed, seed * 40, 0xff, 0xff, 0xff, 0x80];
            for at in 0..120_u32 {
                let offset = (at * 30 + random.below(60) as u32) as u16;
                let [high, low] = offset.to_be_bytes();
                let flags = if at == 110 { 0x11 } else { 0x10 };
                let kind = random.below(16) as u8;
                input.extend([kind, random.below(2) as u8, high, low, random.below(60) as u8, flags]);
            }
            input
        })
        .collect();
    seeds.push(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx"
            .to_vec(),
    );
    seeds.push(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nA: b\r\n\r\n"
            .to_vec(),
    );
    seeds
}
