//! `rtp`: the streams of calls, and their losses.
//!
//! ```text
//! SIP with SDP --> expected: address, port --> call, formats
//! UDP to such a place or from it, or RTP by its look --> streams: both ends, source --> statistics
//! ```
//!
//! Media comes from the port at which its sender receives (RFC 4961): so it is known behind an address translator,
//! whose other side no SDP names. A later call may have the ends and the source of an earlier one: it has streams of
//! its own.
//!
//! All tables have a maximum; further entries are counted.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tapline_dissect::rtp::{self, Codec, Header, Stream};
use tapline_dissect::sip::{self, Message, Start};
use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Cell, Out, Packets, Stage, Table};
use tapline_packet::headers::FiveTuple;
use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "rtp",
    summary: "the streams of calls: loss, jitter, quality",
    description: "Follows SIP in UDP and in single TCP segments to the ports that its SDP announces, and measures the RTP that comes there or from there: packets lost by \
        their numbers, late and doubled ones, interarrival jitter (RFC 3550), the longest gap, and the quality as MOS by the E-model of ITU-T G.107, simplified \
        (Cole and Rosenbluth), for codecs with figures in G.113: G.711, G.729, G.723.1, GSM-EFR; the delay of the network counts as 0. All packets are passed on. \
        The row without addresses has the packets of streams beyond the limit.",
    parameters: &[
        Parameter::new("guess", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether UDP that looks like RTP counts without a call: four packets of a source with successive numbers"),
        Parameter::new("streams", ParameterType::Number(1, 1_000_000), "10000")
            .means("the most streams that are measured, about 300 bytes each, and the most ports that are waited for"),
    ],
    order: Order::All,
    example: "device(eth0) -> rtp",
    make: Constructor::Stage(|arguments, _| {
        Ok(Box::new(Rtp {
            guesses: arguments.text("guess") == "yes",
            streams_max: arguments.number("streams") as usize,
            expected: HashMap::new(),
            calls: Vec::new(),
            call_ids: HashMap::new(),
            changes: 0,
            ended: 0,
            streams: HashMap::new(),
            measured: Vec::new(),
            candidates: HashMap::new(),
            unfollowed: 0,
        }))
    }),
    ..StageClass::BASE
};

/// Bytes that are kept of a name in SIP.
const TEXT_MAX: usize = 256;
/// Packets with successive numbers by which RTP is recognised without a call.
const SUCCESSIVE: u8 = 4;

struct Rtp {
    guesses: bool,
    streams_max: usize,
    /// Where media of calls are to be sent.
    expected: HashMap<(IpAddr, u16), Expected>,
    calls: Vec<Call>,
    /// The place of each call among `calls`.
    call_ids: HashMap<String, usize>,
    /// Number of times that another call announced a port, or a call ended.
    changes: u64,
    /// Calls that ended since their ports were forgotten.
    ended: usize,
    /// The place of each stream among `measured`.
    streams: HashMap<(FiveTuple, u32), usize>,
    measured: Vec<Measured>,
    /// The next number of streams that look like RTP, and the number of successive packets.
    candidates: HashMap<(FiveTuple, u32), (u16, u8)>,
    /// Packets of streams without room.
    unfollowed: u64,
}

/// A call, as its first message describes it.
struct Call {
    id: String,
    from: String,
    to: String,
    is_over: bool,
}

/// A port that a call has announced.
struct Expected {
    call: usize,
    /// Names and clocks of payload types.
    formats: Vec<(u8, String, u32)>,
}

struct Measured {
    ends: FiveTuple,
    ssrc: u32,
    call: Option<usize>,
    /// The changes of announced ports up to which the call is that of the ports.
    changes: u64,
    /// The format of the first packet.
    name: String,
    payload_type: u8,
    clock: u32,
    stream: Stream,
}

impl Rtp {
    /// Notes the media that a message announces, and the end of a call.
    fn message(&mut self, message: &Message<'_>) {
        if message.start == Start::Request("BYE") {
            return self.end_call(message);
        }
        // Answers to requests without media carry descriptions of what could be.
        if matches!(message.start, Start::Status(status) if !(100..300).contains(&status)) {
            return;
        }
        let Some(sdp) = message.sdp else { return };
        let Some(call) = self.call(message) else { return };
        if std::mem::take(&mut self.calls[call].is_over) {
            // The end was refused.
            self.changes += 1;
            self.ended = self.ended.saturating_sub(1);
        }
        self.forget_ended();
        sip::media(sdp, |media| {
            let place = (media.address, media.port);
            if self.expected.len() >= self.streams_max && !self.expected.contains_key(&place) {
                return;
            }
            let formats = media.formats().iter().filter(|format| format.clock > 0);
            let formats = formats.map(|format| (format.payload_type, cut(format.name), format.clock));
            let before = self.expected.insert(place, Expected { call, formats: formats.collect() });
            self.changes += u64::from(before.is_none_or(|before| before.call != call));
        });
    }

    fn end_call(&mut self, message: &Message<'_>) {
        let known = self.call_ids.get(&cut(message.call_id)).and_then(|at| self.calls.get_mut(*at));
        if let Some(call) = known.filter(|call| !call.is_over) {
            call.is_over = true;
            self.changes += 1;
            self.ended += 1;
        }
    }

    /// Forgets the ports of calls that ended, once there are many of them and the table is full.
    fn forget_ended(&mut self) {
        if self.expected.len() >= self.streams_max && self.ended > self.streams_max / 4 {
            let calls = &self.calls;
            self.expected.retain(|_, expected| !calls[expected.call].is_over);
            self.ended = 0;
        }
    }

    fn call(&mut self, message: &Message<'_>) -> Option<usize> {
        let id = cut(message.call_id);
        if let Some(known) = self.call_ids.get(&id) {
            return Some(*known);
        }
        if self.calls.len() >= self.streams_max {
            return None;
        }
        let (from, to) = (cut(sip::address(message.from)), cut(sip::address(message.to)));
        self.call_ids.insert(id.clone(), self.calls.len());
        self.calls.push(Call { id, from, to, is_over: false });
        Some(self.calls.len() - 1)
    }

    /// The call that announced the receiver's port, else the sender's.
    fn announced(&self, ends: FiveTuple) -> Option<&Expected> {
        let of = |place| self.expected.get(&place).filter(|expected| !self.calls[expected.call].is_over);
        of((ends.dst, ends.dst_port)).or_else(|| of((ends.src, ends.src_port)))
    }

    /// A datagram that is not SIP.
    fn datagram(&mut self, ends: FiveTuple, payload: &[u8], time_ns: i64) {
        let Some(header) = Header::parse(payload) else { return };
        let key = (ends, header.ssrc);
        let known = self.streams.get(&key).copied();
        if let Some(at) = known
            && !self.is_other(at, &header, time_ns)
        {
            let Measured { stream, clock, payload_type, .. } = &mut self.measured[at];
            let clock = if header.payload_type == *payload_type { *clock } else { 0 };
            return stream.packet(&header, time_ns, clock);
        }
        let is_expected = self.announced(ends).is_some();
        let is_likely = self.guesses && (known.is_some() || !is_expected && self.is_likely(key, &header));
        if !is_expected && !is_likely {
            self.streams.remove(&key);
            return;
        }
        if self.measured.len() >= self.streams_max {
            self.unfollowed += 1;
            return;
        }
        self.begin(key, &header, time_ns);
    }

    /// Whether a packet belongs to another stream than that of the same ends and source: to that of another call, or to
    /// one that begins after a silence.
    fn is_other(&mut self, at: usize, header: &Header, time_ns: i64) -> bool {
        let measured = &self.measured[at];
        let is_over = measured.call.is_some_and(|call| self.calls[call].is_over);
        if measured.stream.is_over_before(header, time_ns, is_over) {
            return true;
        }
        if measured.changes == self.changes {
            return false;
        }
        let announced = self.announced(measured.ends).map(|expected| expected.call);
        let is_other = measured.call.is_some() && announced.is_some_and(|call| measured.call != Some(call));
        self.measured[at].changes = self.changes;
        is_other
    }

    /// Whether packets like this one have come with successive numbers.
    fn is_likely(&mut self, key: (FiveTuple, u32), header: &Header) -> bool {
        let next = header.sequence.wrapping_add(1);
        match self.candidates.get_mut(&key) {
            Some((expected, count)) => {
                *count = if *expected == header.sequence { *count + 1 } else { 1 };
                *expected = next;
                let is_likely = *count >= SUCCESSIVE;
                if is_likely {
                    self.candidates.remove(&key);
                }
                is_likely
            }
            None => {
                // Traffic of other kinds fills the table: what did not become a stream gives way.
                if self.candidates.len() >= self.streams_max {
                    self.candidates.clear();
                }
                self.candidates.insert(key, (next, 1));
                false
            }
        }
    }

    fn begin(&mut self, key: (FiveTuple, u32), header: &Header, time_ns: i64) {
        let (ends, ssrc) = key;
        // Formats are those that the receiver has announced, else those of the sender, who uses the same numbers.
        let expected = self.announced(ends);
        let of_call = expected
            .and_then(|expected| expected.formats.iter().find(|(number, ..)| *number == header.payload_type));
        let (name, clock) = match (of_call, rtp::static_format(header.payload_type)) {
            (Some((_, name, clock)), _) => (name.clone(), *clock),
            (None, Some((name, clock))) => (name.to_owned(), clock),
            (None, None) => (format!("type {}", header.payload_type), 0),
        };
        let stream = Stream::new(header, time_ns);
        let (call, payload_type) = (expected.map(|expected| expected.call), header.payload_type);
        self.streams.insert(key, self.measured.len());
        let changes = self.changes;
        self.measured.push(Measured { ends, ssrc, call, changes, name, payload_type, clock, stream });
    }

    fn row(&self, measured: &Measured) -> Vec<Cell> {
        let Measured { ends, ssrc, call, name, stream, .. } = measured;
        let call = call.and_then(|call| self.calls.get(call));
        let of_call = |text: fn(&Call) -> &str| Cell::Text(call.map_or("-", text).to_owned());
        let microseconds = |ns: Option<u64>| match ns {
            Some(ns) => Cell::Number(ns / 1000),
            None => Cell::Text("-".to_owned()),
        };
        let quality = Codec::of_name(name).zip(stream.jitter_mean_ns());
        let quality = quality.map_or_else(
            || "-".to_owned(),
            |(codec, jitter)| format!("{:.2}", rtp::mos(codec, stream.lost(), stream.expected(), jitter)),
        );
        vec![
            of_call(|call| &call.id),
            of_call(|call| &call.from),
            of_call(|call| &call.to),
            Cell::Text(SocketAddr::new(ends.src, ends.src_port).to_string()),
            Cell::Text(SocketAddr::new(ends.dst, ends.dst_port).to_string()),
            Cell::Text(format!("0x{ssrc:08x}")),
            Cell::Text(name.clone()),
            stream.received().into(),
            stream.lost().into(),
            stream.late().into(),
            stream.duplicates().into(),
            microseconds(stream.jitter_mean_ns()),
            microseconds(stream.jitter_max_ns()),
            microseconds(Some(stream.gap_max_ns())),
            Cell::Text(quality),
        ]
    }
}

/// A text of a packet without control characters, of bounded length.
fn cut(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(TEXT_MAX)];
    text.chars().filter(|character| !character.is_control()).collect()
}

impl Stage for Rtp {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        for index in packets.selection.iter() {
            let headers = packets.headers(index);
            let packet = packets.batch.packet(index);
            let protocol = headers.protocol().filter(|protocol| matches!(*protocol, TCP | UDP));
            let is_part = headers.fragment().is_some_and(|fragment| fragment.is_later());
            let (Some(protocol), Some(start), false) = (protocol, headers.payload(), is_part) else {
                continue;
            };
            let Some(payload) = packet.data.get(start..headers.ip_end()) else { continue };
            // Both kinds are told by the first byte: a letter, or version 2 of RTP.
            if payload.first().is_some_and(u8::is_ascii_uppercase) {
                if let Some(message) = Message::parse(payload) {
                    self.message(&message);
                }
            } else if protocol == UDP
                && let Some(ends) = headers.five_tuple(packet.data)
            {
                self.datagram(ends, payload, packet.meta.timestamp.as_nanos());
            }
        }
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let columns = vec![
            "call",
            "from",
            "to",
            "src",
            "dst",
            "ssrc",
            "payload",
            "packets",
            "lost",
            "late",
            "duplicates",
            "jitter_mean_us",
            "jitter_max_us",
            "gap_max_us",
            "mos",
        ];
        let mut rows: Vec<_> = self.measured.iter().map(|measured| self.row(measured)).collect();
        if self.unfollowed > 0 {
            let mut row = vec![Cell::Text("-".to_owned()); columns.len()];
            row[7] = self.unfollowed.into();
            rows.push(row);
        }
        Some(Table { columns, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Trial;
    use tapline_packet::{Meta, Timestamp};
    use tapline_testkit::frames::*;

    fn ip() -> IpPair {
        IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V4)
    }

    fn frame(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
        Ethernet::between(&Host::number(1), &Host::number(2)).ip(&Udp { src, dst }.packet(ip(), payload))
    }

    fn packet(sequence: u16) -> Vec<u8> {
        let mut packet = vec![0x80, 0];
        packet.extend(sequence.to_be_bytes());
        packet.extend((u32::from(sequence) * 160).to_be_bytes());
        packet.extend([0, 0, 0, 9]);
        packet.extend([0xff; 160]);
        packet
    }

    fn invite() -> Vec<u8> {
        let address = match ip() {
            IpPair::V4(_, dst) => dst,
            IpPair::V6(..) => unreachable!("it was asked for IPv4"),
        };
        format!(
            "INVITE sip:b@x SIP/2.0\r\nCall-ID: c1\r\nFrom: <sip:a@x>\r\nTo: <sip:b@x>\r\n\
             Content-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 {address}\r\nm=audio 4000 RTP/AVP 0\r\n"
        )
        .into_bytes()
    }

    fn rows(text: &str, frames: &[Vec<u8>]) -> Vec<Vec<Cell>> {
        let mut trial = Trial::of(text);
        trial.push_frames(frames);
        trial.assert_balanced();
        trial.result("r").rows
    }

    #[test]
    fn a_call_leads_to_its_stream() {
        let mut frames = vec![frame(5060, 5060, &invite())];
        frames.extend([1, 2, 4, 5].map(|sequence| frame(3000, 4000, &packet(sequence))));
        frames.push(frame(3000, 5000, &packet(1)));
        let rows = rows("r :: rtp", &frames);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0][0], Cell::Text("c1".to_owned()));
        assert_eq!(rows[0][1], Cell::Text("sip:a@x".to_owned()));
        assert_eq!(rows[0][6], Cell::Text("PCMU".to_owned()));
        assert_eq!(rows[0][7..11], [4, 1, 0, 0].map(Cell::Number));
    }

    /// Packets of a stream from a second on, each 20 ms behind the one before.
    fn stream(ports: (u16, u16), second: i64, first: u16) -> Vec<(Vec<u8>, Meta)> {
        let at = |number: u16| {
            let frame = frame(ports.0, ports.1, &packet(first + number));
            let timestamp = Timestamp::from_nanos(second * 1_000_000_000 + i64::from(number) * 20_000_000);
            let meta = Meta { timestamp, ..crate::trial::whole(&frame) };
            (frame, meta)
        };
        (0..20).map(at).collect()
    }

    fn sip(second: i64, text: &[u8]) -> (Vec<u8>, Meta) {
        let frame = frame(5060, 5060, text);
        let timestamp = Timestamp::from_nanos(second * 1_000_000_000);
        let meta = Meta { timestamp, ..crate::trial::whole(&frame) };
        (frame, meta)
    }

    fn rows_of(text: &str, packets: &[(Vec<u8>, Meta)]) -> Vec<Vec<Cell>> {
        let mut trial = Trial::of(text);
        trial.push_all(packets, 256);
        trial.assert_balanced();
        trial.result("r").rows
    }

    #[test]
    fn calls_with_equal_ports_have_rows_of_their_own() {
        let other = String::from_utf8(invite()).expect("text").replace("c1", "c2").into_bytes();
        let bye = b"BYE sip:b@x SIP/2.0\r\nCall-ID: c1\r\n\r\n";
        let first = [vec![sip(0, &invite())], stream((3000, 4000), 1, 1000)].concat();
        let second = stream((3000, 4000), 61, 40_000);
        for (text, between, calls) in [
            ("r :: rtp", vec![sip(2, bye), sip(60, &other)], ["c1", "c2"]),
            ("r :: rtp", vec![sip(60, &other)], ["c1", "c2"]),
            ("r :: rtp(guess=yes)", vec![sip(2, bye)], ["c1", "-"]),
        ] {
            let rows = rows_of(text, &[first.clone(), between, second.clone()].concat());
            assert_eq!(rows.len(), 2, "{rows:?}");
            for (row, call) in rows.iter().zip(calls) {
                assert_eq!(row[0], Cell::Text(call.to_owned()));
                assert_eq!((&row[7], &row[8], &row[13]), (&20.into(), &0.into(), &20_000.into()));
                assert_eq!(row[14], Cell::Text("4.40".to_owned()));
            }
        }
    }

    #[test]
    fn media_from_an_announced_port_is_of_the_call() {
        // Behind a translator the other end is at a port that no description names.
        let packets = [vec![sip(0, &invite())], stream((3000, 4000), 1, 1)].concat();
        let returned: Vec<_> = stream((4000, 33_333), 1, 500)
            .into_iter()
            .map(|(_, meta)| meta)
            .zip(0u16..)
            .map(|(meta, number)| {
                let ends = IpPair::between(&Host::number(2), &Host::number(1), IpVersion::V4);
                let udp = Udp { src: 4000, dst: 33_333 }.packet(ends, &packet(500 + number));
                (Ethernet::between(&Host::number(2), &Host::number(1)).ip(&udp), meta)
            })
            .collect();
        let rows = rows_of("r :: rtp", &[packets, returned].concat());
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(
            rows.iter().all(|row| row[0] == Cell::Text("c1".to_owned()) && row[7] == 20.into()),
            "{rows:?}"
        );
    }

    #[test]
    fn streams_without_a_call_only_where_asked_for() {
        let frames: Vec<_> = (1..=9).map(|sequence| frame(3000, 4000, &packet(sequence))).collect();
        assert!(rows("r :: rtp", &frames).is_empty());
        let guessed = rows("r :: rtp(guess=yes)", &frames);
        assert_eq!(guessed[0][7], Cell::Number(6), "from the fourth packet on");
    }

    #[test]
    fn tables_have_a_most() {
        let mut frames = vec![frame(5060, 5060, &invite())];
        for source in 0..5u8 {
            let mut packet = packet(1);
            packet[11] = source;
            frames.push(frame(3000, 4000, &packet));
        }
        let rows = rows("r :: rtp(streams=2)", &frames);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2][7], Cell::Number(3));
    }
}
