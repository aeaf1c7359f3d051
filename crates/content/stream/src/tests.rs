//! Streams out of packets that were reordered, repeated, cut and lost.

use std::time::Duration;

use tapline_packet::headers::Headers;
use tapline_packet::{LinkType, Meta, Packet, Timestamp};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};
use tapline_testkit::random::Random;

use crate::{EndCause, Event, GapCause, Limits, PacketFate, Reassembler, Refusal, Stream};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Output of a reassembler: of each direction its bytes with gaps as `None`, and its end.
#[derive(Default)]
struct Reassembly {
    streams: Vec<(Stream, Vec<Option<u8>>, Option<EndCause>)>,
    gaps: Vec<(u64, GapCause)>,
    forgotten: Vec<u64>,
}

impl Reassembly {
    fn note(&mut self, stream: &Stream, event: Event<'_>) {
        assert!(!self.forgotten.contains(&stream.connection), "no event comes after the last");
        if matches!(event, Event::Forgotten) {
            self.forgotten.push(stream.connection);
            return;
        }
        let is_it = |(known, _, _): &(Stream, _, _)| {
            (known.connection, known.tuple) == (stream.connection, stream.tuple)
        };
        let at = self.streams.iter().position(is_it).unwrap_or_else(|| {
            self.streams.push((*stream, Vec::new(), None));
            self.streams.len() - 1
        });
        let (_, bytes, end) = &mut self.streams[at];
        assert_eq!(stream.offset, bytes.len() as u64, "offsets have no holes");
        let is_empty = matches!(event, Event::Segment(piece) if piece.len == 0);
        assert!(end.is_none() || is_empty, "no bytes come after the end");
        match event {
            Event::Segment(piece) => bytes.extend(piece.bytes().iter().copied().map(Some)),
            Event::Gap { len, cause } => {
                bytes.extend(std::iter::repeat_n(None, len as usize));
                self.gaps.push((len, cause));
            }
            Event::End(cause) => *end = Some(cause),
            Event::Forgotten => {}
        }
    }

    fn text(&self, at: usize) -> String {
        self.streams[at].1.iter().map(|byte| byte.map_or('-', char::from)).collect()
    }

    fn ends(&self) -> Vec<Option<EndCause>> {
        self.streams.iter().map(|(_, _, end)| *end).collect()
    }
}

struct Bench {
    reassembler: Reassembler,
    found: Reassembly,
    now_ms: i64,
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        Bench { reassembler: Reassembler::new(limits), found: Reassembly::default(), now_ms: 0 }
    }

    fn push(&mut self, frame: &[u8], cut: usize) -> PacketFate {
        let timestamp = Timestamp::from_nanos(self.now_ms * 1_000_000);
        let meta = Meta { timestamp, wire_len: frame.len() as u32, ..Meta::default() };
        let packet = Packet { data: &frame[..frame.len() - cut], meta: &meta };
        let headers = Headers::parse(LinkType::ETHERNET, packet);
        let found = &mut self.found;
        let taken = self.reassembler.push(&headers, packet, &mut |stream, event| found.note(stream, event));
        assert!(self.reassembler.account().is_balanced(), "{:?}", self.reassembler.account());
        taken
    }

    /// A segment from the client of connection `port`.
    fn sent(&mut self, port: u16, sequence: u32, flags: u8, payload: &[u8]) -> PacketFate {
        self.push(&frame(port, true, (sequence, 0), flags, payload), 0)
    }

    /// An acknowledgement of the server.
    fn acknowledged(&mut self, port: u16, ack: u32) {
        self.push(&frame(port, false, (9_000, ack), ACK, b""), 0);
    }

    fn finish(&mut self) {
        let found = &mut self.found;
        self.reassembler.finish(&mut |stream, event| found.note(stream, event));
        let account = self.reassembler.account();
        assert!(account.is_balanced() && account.held == 0 && account.memory == 0, "{account:?}");
        assert_eq!(
            self.found.forgotten.len() as u64,
            account.connections,
            "each connection is forgotten once"
        );
        let len: usize = self.found.streams.iter().map(|(_, bytes, _)| bytes.len()).sum();
        assert_eq!(len as u64, account.delivered + account.missing());
    }
}

fn frame(port: u16, is_client: bool, (seq, ack): (u32, u32), flags: u8, payload: &[u8]) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let (from, to) = if is_client { (&a, &b) } else { (&b, &a) };
    let (src, dst) = if is_client { (port, 80) } else { (80, port) };
    let tcp = Tcp { src, dst, seq, ack, flags, ..Tcp::default() };
    let mut frame =
        Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), payload));
    // Padding of the link is not payload.
    frame.resize(frame.len().max(60), b'x');
    frame
}

/// The byte of a stream at an offset.
fn byte(offset: usize) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// However a stream is cut, reordered and repeated, it comes out as it was; the account has every byte.
#[test]
fn any_segments_give_the_stream() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let len = random.between(1..=4000) as usize;
        let text: Vec<u8> = (0..len).map(byte).collect();
        let start = if random.one_of(1, 2) {
            u32::MAX - random.below(4000) as u32
        } else {
            random.below(1 << 32) as u32
        };
        let mut segments: Vec<(usize, usize)> = Vec::new();
        let mut at = 0;
        while at < len {
            let end = (at + random.between(1..=400) as usize).min(len);
            let begin = if random.one_of(1, 4) { at.saturating_sub(random.below(300) as usize) } else { at };
            segments.push((begin, end));
            if random.one_of(1, 5) {
                segments.push(*random.pick(&segments.clone()));
            }
            at = end;
        }
        // Each swaps its place with one nearby.
        for place in 0..segments.len() {
            let other = (place + random.below(6) as usize).min(segments.len() - 1);
            segments.swap(place, other);
        }
        let mut bench = Bench::new(Limits::default());
        bench.sent(1024, start.wrapping_sub(1), SYN, b"");
        for (begin, end) in segments {
            let is_last = end == len;
            let flags = if is_last { ACK | FIN } else { ACK };
            bench.sent(1024, start.wrapping_add(begin as u32), flags, &text[begin..end]);
        }
        assert_eq!(bench.found.ends(), [Some(EndCause::Finished)], "seed {seed}");
        bench.finish();
        let found: Vec<Option<u8>> = text.iter().copied().map(Some).collect();
        assert!(bench.found.streams[0].1 == found, "seed {seed}");
        assert_eq!(bench.found.gaps, [], "seed {seed}");
    }
}

/// Lost segments are gaps where they were; delivered and missing bytes are all of the stream.
#[test]
fn what_is_lost_is_a_gap_of_its_size() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(Limits::default());
        let start = random.below(1 << 32) as u32;
        bench.sent(1024, start.wrapping_sub(1), SYN, b"");
        let (mut wanted, mut at) = (Vec::new(), 0_usize);
        for place in 0..40 {
            let end = at + random.between(1..=100) as usize;
            let is_lost = place < 39 && random.one_of(1, 3);
            wanted.extend((at..end).map(|offset| (!is_lost).then(|| byte(offset))));
            if !is_lost {
                let payload: Vec<u8> = (at..end).map(byte).collect();
                let flags = if place == 39 { ACK | FIN } else { ACK };
                bench.sent(1024, start.wrapping_add(at as u32), flags, &payload);
            }
            at = end;
        }
        bench.finish();
        assert!(bench.found.streams[0].1 == wanted, "seed {seed}");
    }
}

#[test]
fn gaps_that_the_receiver_filled_end_after_a_while() {
    let mut bench = Bench::new(Limits::default());
    for (sequence, text) in [(100, "abc"), (106, "ghi")] {
        bench.sent(1024, sequence, ACK, text.as_bytes());
    }
    bench.acknowledged(1024, 109);
    bench.now_ms += 99;
    bench.acknowledged(1024, 109);
    assert_eq!(bench.found.text(0), "abc", "it may come yet");
    bench.now_ms += 1;
    bench.acknowledged(1024, 109);
    assert_eq!(bench.found.text(0), "abc---ghi");
    assert_eq!(bench.found.gaps, [(3, GapCause::Acknowledged)]);
    // A gap that the receiver has too is waited for.
    bench.sent(1024, 112, ACK, b"mno");
    bench.now_ms += 1000;
    bench.acknowledged(1024, 109);
    assert_eq!(bench.found.text(0), "abc---ghi");
    bench.sent(1024, 109, ACK, b"jkl");
    assert_eq!(bench.found.text(0), "abc---ghijklmno");
    // Late, it is a duplicate.
    assert_eq!(bench.sent(1024, 103, ACK, b"def"), PacketFate::Refused);
    assert_eq!(bench.reassembler.account().duplicate, 3);
}

#[test]
fn memory_behind_gaps_is_bounded() {
    let limits = Limits { stream_bytes: 10_000, bytes: 25_000, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let mut random = Random::new(1);
    for round in 0..2000_u32 {
        let port = 1024 + random.below(6) as u16;
        bench.sent(port, round * 500 + 7, ACK, &[b'a'; 300]);
        let memory = bench.reassembler.account().memory;
        assert!(memory <= 25_000, "{memory}");
    }
    bench.finish();
    assert!(bench.found.gaps.iter().any(|(_, cause)| *cause == GapCause::Room));
    assert!(bench.reassembler.account().memory_peak > 20_000);
}

/// The connection that has held longest makes room, and the others go on waiting.
#[test]
fn the_longest_holder_gives_up_first() {
    let limits = Limits { bytes: 3_000, ..Limits::default() };
    let mut bench = Bench::new(limits);
    for port in [1, 2, 3] {
        bench.sent(port, 0, ACK, b"a");
    }
    for port in [2, 1, 3] {
        bench.sent(port, 100, ACK, &[b'b'; 900]);
    }
    assert_eq!(bench.found.gaps, [(99, GapCause::Room)]);
    let lens: Vec<usize> = bench.found.streams.iter().map(|(_, bytes, _)| bytes.len()).collect();
    assert_eq!(lens, [1, 1000, 1]);
}

#[test]
fn a_capture_may_begin_midway() {
    let mut bench = Bench::new(Limits::default());
    bench.sent(1024, 500, ACK, b"mid");
    assert_eq!(bench.sent(1024, 490, ACK, b"0123456789mi"), PacketFate::Refused);
    assert_eq!(bench.sent(1024, 498, ACK, b"xxmidway"), PacketFate::Passed);
    assert_eq!(bench.found.text(0), "midway");
    assert!(!bench.found.streams[0].0.has_syn);
    let account = bench.reassembler.account();
    assert_eq!((account.given_up[Refusal::BeforeStart as usize], account.duplicate), (12, 5));
    // Nothing of a stream is further away than any window.
    bench.sent(1024, 500_u32.wrapping_add(1 << 31), ACK, b"far");
    assert_eq!(bench.reassembler.account().given_up[Refusal::OutOfWindow as usize], 3);
}

#[test]
fn bytes_that_were_not_captured_are_a_gap_at_once() {
    let mut bench = Bench::new(Limits::default());
    bench.push(&frame(1024, true, (100, 0), ACK, b"0123456789"), 4);
    bench.sent(1024, 110, ACK, b"next");
    assert_eq!(bench.found.text(0), "0123456789----next".replace("6789----", "----"));
    assert_eq!(bench.found.gaps, [(4, GapCause::NotCaptured)]);
}

/// A segment that began before the stream, and of which the capture cut the rest.
#[test]
fn a_cut_segment_from_before_the_start_has_its_gap() {
    let mut bench = Bench::new(Limits::default());
    bench.sent(1024, 99, SYN, b"");
    // Of 95..110, 95..98 was captured: 100..110 is missing.
    bench.push(&frame(1024, true, (95, 0), ACK, b"012345678901234"), 12);
    bench.sent(1024, 110, ACK, b"next");
    assert_eq!(bench.found.text(0), "----------next");
    assert_eq!(bench.found.gaps, [(10, GapCause::NotCaptured)]);
    bench.finish();
}

/// An end from before the next byte is none to the receiver, and one too far ahead does not hide the right one.
#[test]
fn a_fin_with_a_wrong_number_hides_nothing() {
    let mut bench = Bench::new(Limits::default());
    bench.sent(1024, 99, SYN, b"");
    bench.sent(1024, 100, ACK, b"abc");
    assert_eq!(bench.sent(1024, 100, FIN | ACK, b"a"), PacketFate::Refused);
    bench.sent(1024, 5_000, FIN | ACK, b"");
    bench.sent(1024, 103, ACK, b"def");
    assert_eq!((bench.found.text(0), bench.found.ends()), ("abcdef".to_owned(), vec![None]));
    bench.sent(1024, 106, FIN | ACK, b"ghi");
    assert_eq!(
        (bench.found.text(0), bench.found.ends()),
        ("abcdefghi".to_owned(), vec![Some(EndCause::Finished)])
    );
    bench.finish();
}

#[test]
fn connections_end_in_each_of_their_ways() {
    let limits = Limits { connections: 2, idle: Duration::from_secs(10), ..Limits::default() };
    let mut bench = Bench::new(limits);
    bench.sent(1, 0, ACK, b"reset");
    bench.sent(1, 10, ACK, b"later");
    // A number out of reach resets nothing.
    bench.sent(1, 1 << 29, RST, b"");
    assert_eq!(bench.found.ends(), [None]);
    bench.sent(1, 5, RST, b"");
    assert_eq!(bench.found.ends(), [Some(EndCause::Reset)]);
    assert_eq!(bench.found.text(0), "reset-----later");
    assert_eq!(bench.sent(1, 15, ACK, b"dead"), PacketFate::Refused, "after the end");
    // The same ports again: SYN with another number.
    bench.sent(1, 5_000, SYN, b"");
    bench.sent(1, 5_001, ACK, b"again");
    bench.sent(1, 7_000, SYN, b"");
    assert_eq!(bench.found.ends()[1], Some(EndCause::Replaced));
    bench.sent(2, 0, ACK, b"two");
    bench.sent(3, 0, ACK, b"three");
    assert_eq!(bench.found.ends()[2..], [Some(EndCause::Evicted), None, None], "the one silent for longest");
    assert_eq!(bench.reassembler.account().evicted, 1);
    bench.now_ms += 9_999;
    bench.sent(2, 3, ACK, b"!");
    bench.now_ms += 1;
    bench.sent(2, 4, FIN | ACK, b"");
    assert_eq!(bench.found.ends()[3..], [Some(EndCause::Finished), Some(EndCause::Idle)]);
    // What is sent again after FIN begins no other stream.
    assert_eq!(bench.sent(2, 3, ACK, b"!"), PacketFate::Refused);
    bench.finish();
    assert_eq!(bench.found.streams.len(), 5);
}

/// Bytes on their way to the end that reset the connection are delivered.
#[test]
fn bytes_sent_before_a_reset_arrived_are_delivered() {
    let mut bench = Bench::new(Limits::default());
    bench.sent(1, 0, ACK, b"ask");
    bench.push(&frame(1, false, (50, 3), ACK, b"ans"), 0);
    bench.sent(1, 3, RST, b"");
    bench.push(&frame(1, false, (53, 3), ACK, b"wer"), 0);
    bench.finish();
    assert_eq!((bench.found.text(0), bench.found.text(1)), ("ask".to_owned(), "answer".to_owned()));
    assert_eq!(bench.found.ends(), [Some(EndCause::Reset); 2]);
}

/// The opening end is known by SYN, or by the answer to it.
#[test]
fn the_client_is_the_one_that_opens() {
    let mut bench = Bench::new(Limits::default());
    bench.push(&frame(1, false, (50, 8), SYN | ACK, b""), 0);
    bench.push(&frame(1, false, (51, 8), ACK, b"hello"), 0);
    bench.push(&frame(2, false, (50, 8), ACK, b"hello"), 0);
    let is_from_client: Vec<bool> =
        bench.found.streams.iter().map(|(stream, _, _)| stream.is_from_client).collect();
    assert_eq!(is_from_client, [false, true]);
    let numbers: Vec<u64> = bench.found.streams.iter().map(|(stream, _, _)| stream.connection).collect();
    assert_eq!(numbers, [0, 1]);
}
