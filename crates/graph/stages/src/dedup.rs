//! `dedup`: packets that were seen already are left out.
//!
//! ```text
//! hash of what counts -> table of the last packets: there, and not too long ago -> a copy
//! ring of the same hashes in their order: the oldest leaves when there are too many
//! ```

use std::collections::HashMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage};
use tapline_packet::Timestamp;
use tapline_packet::headers::IpVersion;
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "dedup",
    summary: "packets that were not seen before, within a window",
    description: "Mirrored ports and taps show a packet twice, with another link header or one hop further. The first copy is passed on. Copies \
        are found by a keyed hash of 64 bits of the bytes of `same`: chance makes a copy of a new packet once in 10^15 packets at the default \
        window. Retransmissions of TCP differ in \
        the IP identification and are not copies.",
    parameters: &[
        Parameter::new("same", ParameterType::Choice(&["ip", "hop", "all"]), "ip")
            .means("the bytes that copies share: all from the IP header on; the same without the hop limit and the IPv4 header checksum; all bytes \
                with the link header"),
        Parameter::new("window", ParameterType::Duration, "100ms")
            .means("time after which a packet is not a copy any more"),
        Parameter::new("packets", ParameterType::Number(1, 10_000_000), "10000")
            .means("how many packets are remembered; about 60 bytes each"),
    ],
    order: Order::All,
    example: "device(span0) -> dedup(window=50ms) -> record(\"once.pcapng\")",
    refused: "copies",
    make: Constructor::Stage(|arguments, _| {
        let same = match arguments.text("same") {
            "all" => Same::All,
            "hop" => Same::Hop,
            _ => Same::Ip,
        };
        let room = arguments.number("packets") as usize;
        let window = arguments.nanoseconds("window") as i64;
        Ok(Box::new(Dedup {
            same,
            window,
            room,
            key: RandomState::new(),
            seen: HashMap::with_capacity(room),
            order: VecDeque::with_capacity(room),
        }))
    }),
    ..StageClass::BASE
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Same {
    Ip,
    Hop,
    All,
}

struct Dedup {
    same: Same,
    window: i64,
    room: usize,
    key: RandomState,
    /// When the packet of a hash went on.
    seen: HashMap<u64, Timestamp>,
    /// The hashes in the order in which they came.
    order: VecDeque<(u64, Timestamp)>,
}

impl Dedup {
    fn hash(&self, packets: &Packets<'_>, index: usize) -> u64 {
        let packet = packets.batch.packet(index);
        let headers = packets.headers(index);
        let data = packet.data;
        let (Some(l3), false) = (headers.l3(), self.same == Same::All) else {
            return self.key.hash_one((data, packet.meta.wire_len));
        };
        let end = headers.ip_end().clamp(l3, data.len());
        let ip = &data[l3..end];
        match (self.same, headers.ip(), ip) {
            (Same::Hop, Some(IpVersion::V4), [before @ .., _]) if before.len() >= 12 => {
                self.key.hash_one((&ip[..8], ip[9], &ip[12..]))
            }
            (Same::Hop, Some(IpVersion::V6), _) if ip.len() > 8 => self.key.hash_one((&ip[..7], &ip[8..])),
            _ => self.key.hash_one(ip),
        }
    }

    /// Whether a packet of this hash went on within the window; if not, this one does.
    fn is_copy(&mut self, hash: u64, time: Timestamp) -> bool {
        while self.order.front().is_some_and(|(_, at)| time.since(*at) > self.window) {
            self.forget_oldest();
        }
        if self.seen.get(&hash).is_some_and(|&at| (0..=self.window).contains(&time.since(at))) {
            return true;
        }
        if self.order.len() == self.room {
            self.forget_oldest();
        }
        self.seen.insert(hash, time);
        self.order.push_back((hash, time));
        false
    }

    fn forget_oldest(&mut self) {
        if let Some((oldest, at)) = self.order.pop_front()
            && self.seen.get(&oldest) == Some(&at)
        {
            self.seen.remove(&oldest);
        }
    }
}

impl Stage for Dedup {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let all = packets.clone();
        packets.selection.retain(|index| {
            let hash = self.hash(&all, index);
            !self.is_copy(hash, all.batch.packet(index).meta.timestamp)
        });
        out.pass(packets)
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Meta, Timestamp};
    use tapline_testkit::frames::*;

    use crate::trial::{Trial, whole};

    fn datagram(id: u16, ttl: u8) -> Vec<u8> {
        let (src, dst) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&src, &dst, IpVersion::V4);
        let segment = Udp { src: 1, dst: 2 }.datagram(pair, b"a copy, or not");
        Ethernet::between(&src, &dst).ip(&Ipv4 { id, ttl, ..Ipv4::new(src.v4, dst.v4, 17) }.packet(&segment))
    }

    fn datagram_v6(hop_limit: u8) -> Vec<u8> {
        let (src, dst) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&src, &dst, IpVersion::V6);
        let mut frame = Ethernet::between(&src, &dst).ip(&Udp { src: 1, dst: 2 }.packet(pair, b"a copy"));
        frame[14 + 7] = hop_limit;
        frame
    }

    /// Whether the second of two packets is taken for a copy of the first.
    fn is_copy(text: &str, one: &[u8], other: &[u8]) -> bool {
        let mut trial = Trial::of(text);
        trial.push_frames(&[one.to_vec(), other.to_vec()]);
        trial.assert_balanced();
        trial.data().len() == 1
    }

    #[test]
    fn copies_are_recognised_by_their_common_bytes() {
        let one = datagram(1, 64);
        let padded = [one.clone(), vec![0; 9]].concat();
        let (tagged, other) = (vlan(&one, 0x8100, 5), datagram(2, 64));
        let hop = datagram(1, 63);
        for (same, expected) in [
            ("ip", [true, true, true, false, false]),
            ("hop", [true, true, true, true, false]),
            ("all", [true, false, false, false, false]),
        ] {
            let text = format!("dedup({same})");
            let found = [&one, &padded, &tagged, &hop, &other].map(|packet| is_copy(&text, &one, packet));
            assert_eq!(found, expected, "{same}");
        }
        let v6 = [datagram_v6(64), datagram_v6(63)];
        assert_eq!(
            ["ip", "hop"].map(|same| is_copy(&format!("dedup({same})"), &v6[0], &v6[1])),
            [false, true]
        );
    }

    fn pushed(text: &str, packets: &[(u16, i64)]) -> Vec<i64> {
        let mut trial = Trial::of(text);
        let packet = |&(id, time): &(u16, i64)| {
            let data = datagram(id, 64);
            let meta = Meta { timestamp: Timestamp::from_nanos(time), ..whole(&data) };
            (data, meta)
        };
        trial.push_all(&packets.iter().map(packet).collect::<Vec<_>>(), 2);
        trial.assert_balanced();
        trial.stamps()
    }

    #[test]
    fn the_window_begins_with_the_copy_that_went_on() {
        let packets = [(1, 1000), (1, 1100), (1, 1101), (1, 1150), (1, 1201), (1, 1202), (1, 900)];
        assert_eq!(pushed("dedup(window=100ns)", &packets), [1000, 1101, 1202, 900]);
    }

    #[test]
    fn the_memory_of_packets_is_bounded() {
        for room in [1, 2, 5] {
            let text = format!("dedup(packets={room})");
            // As many different ones as there is room for, twice: all copies. One more, and the oldest is forgotten.
            let round: Vec<(u16, i64)> = (0..room).map(|id| (id, 0)).collect();
            assert_eq!(pushed(&text, &[round.clone(), round].concat()).len(), room as usize);
            let more: Vec<(u16, i64)> = (0..=room).chain([0]).map(|id| (id, 0)).collect();
            assert_eq!(pushed(&text, &more).len(), room as usize + 2);
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range() {
        assert_eq!(pushed("dedup", &[(1, i64::MAX), (1, i64::MIN), (1, i64::MAX), (1, 0)]).len(), 4);
    }
}
