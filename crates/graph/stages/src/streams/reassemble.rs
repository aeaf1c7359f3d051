//! `reassemble`: the segments of TCP streams in order, each byte once.
//!
//! ```text
//! 1 3 2 2 5 ...        1 2 3 ... 5        in order as it came: lent on; held: a copy; with bytes that were there: cut in front
//! ```

use std::any::Any;

use tapline_graph::catalog::{Constructor, Order, StageClass};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::checksum::{RunningChecksum, updated};
use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType, Meta, Record};
use tapline_source::Error;
use tapline_stream::{Event, PacketFate, Piece};

use super::super::filters::of_indices;
use super::{IDLE, MEMORY, PATIENCE, ROOM, STREAM_MEMORY, Streams, table};

pub(crate) const CLASS: StageClass = StageClass {
    name: "reassemble",
    summary: "TCP segments in the order of their streams, each byte once",
    description: "A segment is passed on when all before it came, or was given up; so stages behind see streams as programs do \
        (docs/streams.md). Of bytes sent several times those \
        delivered first count: a segment with nothing new is refused, one with some new bytes is cut in front, with its lengths, number and \
        checksums. Segments behind a gap wait as copies. A gap is given up once the receiver acknowledged the missing bytes and `patience` has \
        passed, when more bytes wait than allowed, and at the end; the sequence numbers of the packets show it, and the result counts it by \
        cause. Packets that are not TCP, and fragments of IP packets, are passed on unchanged. \
        The result has every byte: bytes = delivered + duplicate + before_start + after_end + out_of_window + held.",
    parameters: &[ROOM, MEMORY, STREAM_MEMORY, PATIENCE, IDLE],
    order: Order::Flow,
    example: "device(eth0) -> reassemble -> match(\"secret\", borders=flow) -> print",
    make: Constructor::Stage(|arguments, _| {
        Ok(Box::new(Reassemble { streams: Streams::new(arguments), due: Due::default() }))
    }),
    ..StageClass::BASE
};

struct Reassemble {
    streams: Streams,
    due: Due,
}

/// Packets whose turn has come, in order.
#[derive(Default)]
struct Due {
    order: Vec<PacketSlot>,
    /// Bytes and records of copies.
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// The interfaces of the copies' interface numbers.
    interfaces: Vec<Interface>,
}

/// A packet of the batch at hand, or the next copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PacketSlot {
    Lent(u8),
    Copy,
}

impl Due {
    fn begin(&mut self) {
        self.order.clear();
        self.bytes.clear();
        self.records.clear();
    }

    fn learn(&mut self, interfaces: &[Interface]) {
        self.interfaces.extend(interfaces.iter().skip(self.interfaces.len()).cloned());
    }

    /// A segment's turn has come; `index` is that of the packet that was pushed.
    fn take(&mut self, index: Option<usize>, piece: &Piece<'_>) {
        if let (Some(index), true, 0) = (index, piece.is_current, piece.skipped) {
            self.order.push(PacketSlot::Lent(index as u8));
            return;
        }
        let (offset, mut meta) = (self.bytes.len(), *piece.packet.meta);
        self.bytes.extend_from_slice(piece.packet.data);
        if piece.skipped > 0 {
            let interface = self.interfaces.get(meta.interface.0 as usize);
            let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
            cut_front(&mut self.bytes, offset, &mut meta, (link_type, piece.payload_at, piece.skipped));
        }
        let cap_len = (self.bytes.len() - offset) as u32;
        self.records.push(Record { offset, cap_len, options_len: 0, meta });
        self.order.push(PacketSlot::Copy);
    }

    /// Hands all on, `packets` being those that were pushed.
    fn pass(&self, packets: &Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let (mut result, mut copied) = (Ok(()), 0);
        let is_lent = |place: &PacketSlot| matches!(place, PacketSlot::Lent(_));
        for run in self.order.chunk_by(|one, other| is_lent(one) == is_lent(other)) {
            for part in run.chunks(BATCH_MAX) {
                let indices: Vec<u8> = part
                    .iter()
                    .filter_map(|place| match place {
                        PacketSlot::Lent(index) => Some(*index),
                        PacketSlot::Copy => None,
                    })
                    .collect();
                let mut packets = match indices.is_empty() {
                    false => packets.narrowed_to(of_indices(&indices)),
                    true => {
                        let records = &self.records[copied..copied + part.len()];
                        copied += part.len();
                        packets.replaced(Batch::new(&self.bytes, records), &self.interfaces)
                    }
                };
                result = result.and(out.pass(&mut packets));
            }
        }
        result
    }
}

/// Takes bytes of payload out of a packet, in front, and corrects its lengths, number and checksums. The packet is at
/// the end of `bytes`, from `offset` on.
fn cut_front(
    bytes: &mut Vec<u8>,
    offset: usize,
    meta: &mut Meta,
    (link_type, payload_at, len): (LinkType, usize, usize),
) {
    let headers = Headers::parse(link_type, tapline_packet::Packet { data: &bytes[offset..], meta });
    let is_whole = bytes.len() - offset == meta.wire_len as usize;
    bytes.drain(offset + payload_at..offset + payload_at + len);
    meta.wire_len = meta.wire_len.saturating_sub(len as u32);
    let packet = &mut bytes[offset..];
    let (Some(l3), Some(l4)) = (headers.l3(), headers.l4()) else { return };
    let is_v4 = headers.ip() == Some(IpVersion::V4);
    shorten(packet, if is_v4 { l3 + 2 } else { l3 + 4 }, len, is_v4.then_some(l3 + 10));
    let number = word(packet, l4 + 4).wrapping_add(len as u32);
    // SYN takes a number, and went on before.
    let is_syn = packet[l4 + 13] & 0x02 != 0;
    packet[l4 + 13] &= !0x02;
    packet[l4 + 4..l4 + 8].copy_from_slice(&number.wrapping_add(is_syn.into()).to_be_bytes());
    let end = (headers.ip_end() - len).min(packet.len());
    if is_whole && let Some(sum) = tcp_checksum(&packet[..end], l3, l4, is_v4) {
        packet[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Makes a length less, and a header's checksum right. A length of 0 says nothing and stays.
fn shorten(packet: &mut [u8], at: usize, by: usize, checksum_at: Option<usize>) {
    let before = half(packet, at);
    if before == 0 {
        return;
    }
    let after = before.saturating_sub(by as u16);
    packet[at..at + 2].copy_from_slice(&after.to_be_bytes());
    if let Some(place) = checksum_at {
        let sum = updated(half(packet, place), before.into(), after.into());
        packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The checksum of a TCP segment (RFC 9293, 3.1), over pseudo header, header and payload.
fn tcp_checksum(packet: &[u8], l3: usize, l4: usize, is_v4: bool) -> Option<u16> {
    let addresses = if is_v4 { packet.get(l3 + 12..l3 + 20)? } else { packet.get(l3 + 8..l3 + 40)? };
    let segment = packet.get(l4..)?;
    let len = (segment.len() as u32).to_be_bytes();
    let sum = RunningChecksum::default().with(addresses).with(&len).with(&[0, 6]).with(&segment[..16]);
    Some(sum.with(&[0, 0]).with(&segment[18..]).finish())
}

fn half(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn word(packet: &[u8], at: usize) -> u32 {
    u32::from(half(packet, at)) << 16 | u32::from(half(packet, at + 2))
}

impl Stage for Reassemble {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let Reassemble { streams, due } = self;
        due.begin();
        due.learn(packets.interfaces);
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            streams.is_live |= packet.meta.if_index != 0;
            let taken = streams.reassembler.push(&packets.headers(index), packet, &mut |_, event| {
                if let Event::Segment(piece) = event {
                    due.take(Some(index), &piece);
                }
            });
            if taken == PacketFate::NotTcp {
                due.order.push(PacketSlot::Lent(index as u8));
            }
        }
        if due.records.is_empty() && due.order.len() == packets.len() {
            return out.pass(packets);
        }
        due.pass(packets, out)
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        let Reassemble { streams, due } = self;
        due.begin();
        streams.tick(tick, |_, event| {
            if let Event::Segment(piece) = event {
                due.take(None, &piece);
            }
        });
        due.pass(&Packets::all(Batch::empty(), &due.interfaces, tick.clocks()), out)?;
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let Reassemble { streams, due } = self;
        due.begin();
        streams.reassembler.finish(&mut |_, event| {
            if let Event::Segment(piece) = event {
                due.take(None, &piece);
            }
        });
        due.pass(&Packets::all(Batch::empty(), &due.interfaces, tick.clocks()), out)
    }

    fn counters(&self) -> StageCounters {
        StageCounters { held: self.streams.reassembler.account().held_packets, ..StageCounters::default() }
    }

    fn result(&self) -> Option<Table> {
        Some(table(&self.streams.account()))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Reassemble>() {
            self.streams.merge(&other.streams);
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::headers::Headers;
    use tapline_packet::{LinkType, Packet};
    use tapline_testkit::frames::*;

    use crate::trial::{Trial, whole};

    fn frame(version: IpVersion, sequence: u32, text: &str) -> Vec<u8> {
        let (a, b) = (Host::number(1), Host::number(2));
        let tcp = Tcp { src: 1024, dst: 80, seq: sequence, flags: 0x10, ..Tcp::default() };
        Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, version), text.as_bytes()))
    }

    fn payloads(frames: &[Vec<u8>]) -> Vec<String> {
        let text = |frame: &Vec<u8>| {
            let meta = whole(frame);
            let headers = Headers::parse(LinkType::ETHERNET, Packet { data: frame, meta: &meta });
            let payload = headers.payload().expect("TCP");
            String::from_utf8_lossy(&frame[payload..headers.ip_end()]).into_owned()
        };
        frames.iter().map(text).collect()
    }

    #[test]
    fn segments_go_on_in_order_and_once() {
        for version in [IpVersion::V4, IpVersion::V6] {
            let mut trial = Trial::of("r :: reassemble");
            let of = |sequence, text| frame(version, sequence, text);
            let frames =
                [of(0, "abc"), of(6, "ghi"), of(6, "ghi"), of(9, "jkl"), of(1, "bcdef"), of(3, "def")];
            trial.push_frames(&frames[..4]);
            assert_eq!(
                (payloads(&trial.data()), trial.refused_and_held("r")),
                (vec!["abc".to_owned()], (1, 2))
            );
            trial.push_frames(&frames[4..]);
            let data = trial.data();
            assert_eq!(payloads(&data), ["def", "ghi", "jkl"]);
            // Cut in front, it is the segment that a sender would have made of the rest.
            assert_eq!(data[0], frames[5]);
            assert_eq!(data[1..], [frames[1].clone(), frames[3].clone()]);
            assert_eq!(trial.refused_and_held("r"), (2, 0));
            trial.finish();
            trial.assert_balanced();
        }
    }

    #[test]
    fn what_is_no_tcp_goes_on_and_the_end_gives_all() {
        let mut trial = Trial::of("r :: reassemble");
        let (a, b) = (Host::number(1), Host::number(2));
        let ips = IpPair::between(&a, &b, IpVersion::V4);
        let udp = Ethernet::between(&a, &b).ip(&Udp { src: 1, dst: 2 }.packet(ips, b"hello"));
        let frames = [frame(IpVersion::V4, 0, "a"), frame(IpVersion::V4, 9, "z"), udp.clone()];
        trial.push_frames(&frames);
        assert_eq!(trial.data(), [frames[0].clone(), udp]);
        trial.finish();
        assert_eq!(trial.data(), [frames[1].clone()]);
        trial.assert_balanced();
        let result = trial.result("r");
        let at = result.columns.iter().position(|name| *name == "missing_at_end").expect("a column");
        assert_eq!(result.rows[0][at], 8.into());
    }

    /// A pattern over segments in disorder, each sent twice.
    #[test]
    fn match_finds_patterns_over_segments_in_disorder() {
        for (stages, expected) in
            [("match(\"needle\", borders=flow)", 0), ("reassemble -> match(\"needle\", borders=flow)", 1)]
        {
            let mut trial = Trial::of(stages);
            let of = |sequence, text| frame(IpVersion::V4, sequence, text);
            let frames = [of(0, "a ne"), of(6, "le"), of(6, "le"), of(4, "ed"), of(4, "ed")];
            trial.push_frames(&frames);
            assert_eq!(trial.data().len(), expected, "{stages}");
        }
    }
}
