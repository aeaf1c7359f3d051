//! `trailer`: the time stamp that a switch or tap put behind a frame becomes the packet's time.
//!
//! ```text
//! metamako   frame | FCS of the frame, 4 | extensions, 4 each | seconds, 4 | nanoseconds, 4 | flags, 1 | device, 2 | port, 1 | FCS, 4
//! exablaze   frame | FCS of the frame, 4 | device, 1 | port, 1 | seconds, 4 | 2^-40 seconds, 5 | reserved, 1 | FCS, 4
//! ixia       frame | fields: kind, 1; length, 1; value | length of the fields, 1 | AF12 | checksum, 2 | FCS, 4
//! vss        frame | seconds, 4 | clock, 2 bits, and nanoseconds, 30 bits | port, 0 to 2 | FCS, 4
//! ```
//!
//! All numbers have their high byte first. The FCS at the end is mostly not captured. The layouts are those that
//! Wireshark's dissectors of the same names read.

use tapline_graph::catalog::{Arguments, Constructor, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_packet::checksum::internet;
use tapline_packet::{Batch, Packet, Record, Timestamp};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "trailer",
    summary: "the time stamp that a switch or tap put behind a frame becomes the packet's time",
    description: "The trailer is removed, from the captured and the wire length, with an FCS behind it if that was captured. A packet that was not captured \
        whole, or whose last bytes are not a trailer (a stamp further than `apart` from the capture's time), is passed on unchanged; the result counts both kinds. \
        Stamps of several ports need not ascend: put merge behind this stage where order matters. Changed packets lose their pcapng options.",
    parameters: &[
        Parameter::required("kind", ParameterType::Choice(&["metamako", "exablaze", "ixia", "vss"]))
            .means("metamako: Arista 7130 (Metawatch), with its extensions. exablaze: Cisco Nexus 3550 and Exablaze Fusion. ixia: Ixia Anue and Vision. vss: VSS Monitoring"),
        Parameter::new("port", ParameterType::Number(0, 2), "0")
            .means("bytes of the port's number behind the stamp (vss)"),
        Parameter::new("apart", ParameterType::Duration, "30d")
            .means("how far the stamp may be from the time of the capture"),
    ],
    example: "device(eth0) -> trailer(metamako) -> merge -> record(\"stamped.pcapng\")",
    make: Constructor::Stage(|arguments, _| Ok(Box::new(make(arguments)))),
    ..StageClass::BASE
};

fn make(arguments: &Arguments) -> Trailer {
    let read = match arguments.text("kind") {
        "metamako" => metamako,
        "exablaze" => exablaze,
        "ixia" => ixia,
        _ => vss,
    };
    let (port, apart_ns) = (arguments.number("port") as usize, arguments.nanoseconds("apart"));
    Trailer { read, port, apart_ns, records: Vec::new(), stamped: 0, without: 0 }
}

/// Bytes of the frame check sequence of Ethernet.
const FCS_LEN: usize = 4;

/// A trailer at the end of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    time: Timestamp,
    /// Bytes of the trailer, with the frame's own FCS where it has that.
    len: usize,
}

/// Reads a trailer at the end of bytes; `None` where these cannot be one. The second argument is the number of bytes
/// for the port.
type Read = fn(&[u8], usize) -> Option<Stamp>;

struct Trailer {
    read: Read,
    port: usize,
    apart_ns: u64,
    records: Vec<Record>,
    stamped: u64,
    without: u64,
}

impl Trailer {
    /// The trailer of a packet, with a captured FCS behind it.
    fn find(&self, packet: Packet<'_>) -> Option<Stamp> {
        let data = packet.data;
        if data.len() != packet.meta.wire_len as usize {
            return None;
        }
        [0, FCS_LEN].into_iter().find_map(|behind| {
            let stamp = (self.read)(data.get(..data.len().checked_sub(behind)?)?, self.port)?;
            let apart = stamp.time.since(packet.meta.timestamp).unsigned_abs();
            (apart <= self.apart_ns).then_some(Stamp { len: stamp.len + behind, ..stamp })
        })
    }
}

impl Stage for Trailer {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        records.extend_from_slice(packets.batch.records());
        for index in packets.selection.iter() {
            let Some(Stamp { time, len }) = self.find(packets.batch.packet(index)) else {
                self.without += 1;
                continue;
            };
            self.stamped += 1;
            // Options lie behind the bytes as they were captured.
            let record = &mut records[index];
            (record.cap_len, record.options_len) = (record.cap_len - len as u32, 0);
            record.meta.wire_len -= len as u32;
            record.meta.timestamp = time;
        }
        let result = out.pass(&mut packets.changed(Batch::new(packets.batch.base(), &records)));
        self.records = records;
        result
    }

    fn result(&self) -> Option<Table> {
        Some(Table::of_numbers(&[("stamped", self.stamped), ("without", self.without)]))
    }

    fn merge(&mut self, other: &dyn std::any::Any) {
        if let Some(other) = other.downcast_ref::<Trailer>() {
            self.stamped += other.stamped;
            self.without += other.without;
        }
    }
}

/// Numbers with their high byte first, taken from the end of bytes.
struct FromEnd<'d>(&'d [u8]);

impl FromEnd<'_> {
    fn take(&mut self, len: usize) -> Option<u64> {
        let (rest, number) = self.0.split_at_checked(self.0.len().checked_sub(len)?)?;
        self.0 = rest;
        Some(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.0 = self.0.get(..self.0.len().checked_sub(len)?)?;
        Some(())
    }
}

fn time(seconds: u64, nanos: u64) -> Option<Timestamp> {
    (nanos < 1_000_000_000).then(|| Timestamp::from_nanos((seconds * 1_000_000_000 + nanos) as i64))
}

/// Flag of a metamako trailer: extensions precede the stamp.
const HAS_EXTENSIONS: u64 = 2;

fn metamako(data: &[u8], _: usize) -> Option<Stamp> {
    let mut end = FromEnd(data);
    end.skip(3)?;
    let flags = end.take(1)?;
    let (nanos, seconds) = (end.take(4)?, end.take(4)?);
    let time = time(seconds, nanos)?;
    let mut is_last = flags & HAS_EXTENSIONS == 0;
    while !is_last {
        // An extension ends with its header: tag (5 bits), last (1), length in words (2); or, with the tag 31, ten bits of
        // length, less one.
        let header = end.take(4)?;
        let words = if header & 0x1f == 0x1f { (header >> 6 & 0x3ff) + 1 } else { header >> 6 & 3 };
        end.skip(words as usize * 4)?;
        is_last = header >> 5 & 1 == 1;
    }
    end.skip(FCS_LEN)?;
    Some(Stamp { time, len: data.len() - end.0.len() })
}

fn exablaze(data: &[u8], _: usize) -> Option<Stamp> {
    let mut end = FromEnd(data);
    end.skip(1)?;
    let (fraction, seconds) = (end.take(5)?, end.take(4)?);
    end.skip(2 + FCS_LEN)?;
    let nanos = (u128::from(fraction) * 1_000_000_000) >> 40;
    Some(Stamp { time: time(seconds, nanos as u64)?, len: data.len() - end.0.len() })
}

/// Mark of an Ixia trailer.
const IXIA_MARK: u64 = 0xaf12;

/// Fields of Ixia with a time: seconds and nanoseconds of a local clock, NTP, GPS, PTP, or one that holds over.
const IXIA_TIMES: std::ops::RangeInclusive<u8> = 3..=7;

fn ixia(data: &[u8], _: usize) -> Option<Stamp> {
    let mut end = FromEnd(data);
    let (checksum, mark, len) = (end.take(2)?, end.take(2)?, end.take(1)? as usize);
    let start = end.0.len().checked_sub(len)?;
    // The checksum of the Internet, over all before it.
    let covered = &data[start..data.len() - 2];
    if mark != IXIA_MARK || u64::from(internet(covered)) != checksum {
        return None;
    }
    let mut fields = &end.0[start..];
    while let [kind, len, rest @ ..] = fields {
        let (value, behind) = rest.split_at_checked(usize::from(*len))?;
        fields = behind;
        if let (true, &[_, _, _, _, _, _, _, _]) = (IXIA_TIMES.contains(kind), value) {
            let mut value = FromEnd(value);
            let (nanos, seconds) = (value.take(4)?, value.take(4)?);
            return Some(Stamp { time: time(seconds, nanos)?, len: data.len() - start });
        }
    }
    None
}

fn vss(data: &[u8], port: usize) -> Option<Stamp> {
    let mut end = FromEnd(data);
    end.skip(port)?;
    let (nanos, seconds) = (end.take(4)? & 0x3fff_ffff, end.take(4)?);
    Some(Stamp { time: time(seconds, nanos)?, len: data.len() - end.0.len() })
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;

    use super::*;
    use crate::trial::Trial;

    const SECONDS: u32 = 1_700_000_000;

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanos(i64::from(SECONDS) * 1_000_000_000 + nanos)
    }

    /// A frame with a trailer, captured a millisecond after its stamp.
    fn stamped(trailer: &[u8]) -> (Vec<u8>, Meta) {
        let frame = [vec![0xaa; 60], trailer.to_vec()].concat();
        let meta = Meta { wire_len: frame.len() as u32, timestamp: at(1_500_000), ..Meta::default() };
        (frame, meta)
    }

    fn metamako_trailer(extensions: &[u8], flags: u8) -> Vec<u8> {
        let stamp = [SECONDS.to_be_bytes(), 500_000_u32.to_be_bytes()].concat();
        [&[1, 2, 3, 4], extensions, &stamp, &[flags, 0, 40, 17]].concat()
    }

    fn exablaze_trailer() -> Vec<u8> {
        // Half a millisecond, in units of 2^-40 s.
        let fraction = (1_u64 << 40) / 2_000;
        [&[1, 2, 3, 4, 9, 8][..], &SECONDS.to_be_bytes(), &fraction.to_be_bytes()[3..], &[0]].concat()
    }

    /// Fields, their length, the mark, and the checksum of all before it.
    fn ixia_trailer(fields: &[u8]) -> Vec<u8> {
        let covered = [fields, &[fields.len() as u8, 0xaf, 0x12]].concat();
        let words = covered
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
        let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
        [&covered[..], &(!(sum as u16)).to_be_bytes()].concat()
    }

    fn check(kind: &str, trailer: &[u8], nanos: i64) {
        for behind in [&[][..], &[0xde, 0xad, 0xbe, 0xef]] {
            let mut trial = Trial::of(&format!("t :: trailer({kind})"));
            trial.push_all(&[stamped(&[trailer, behind].concat())], 1);
            let packet = trial.arrived().remove(0);
            assert_eq!((packet.data, packet.meta.wire_len), (vec![0xaa; 60], 60), "{kind} {behind:?}");
            assert_eq!(packet.meta.timestamp, at(nanos), "{kind}");
            assert_eq!(trial.numbers("t", None), [1, 0]);
            trial.assert_balanced();
        }
    }

    #[test]
    fn stamps_of_every_kind_become_the_time() {
        check("metamako", &metamako_trailer(&[], 1), 500_000);
        // An extension of one word, which is the last; and one of two words with the tag 31 before it.
        let short = [0, 0, 0, 7, 0, 0, 0, 0x60];
        check("metamako", &metamako_trailer(&short, 3), 500_000);
        let long = [[5; 8].as_slice(), &[0, 0, 0, 0x7f], &[0, 0, 0, 7, 0, 0, 0, 0x40]].concat();
        check("metamako", &metamako_trailer(&long, 3), 500_000);
        check("exablaze", &exablaze_trailer(), 499_999);
        let vss = [SECONDS.to_be_bytes(), (0xc000_0000_u32 | 500_000).to_be_bytes()].concat();
        check("vss", &vss, 500_000);
        let stamp = [&[6, 8][..], &SECONDS.to_be_bytes(), &500_000_u32.to_be_bytes()].concat();
        check("ixia", &ixia_trailer(&stamp), 500_000);
        // The original length before the time.
        check("ixia", &ixia_trailer(&[&[1, 2, 0, 60], &stamp[..]].concat()), 500_000);
        check("vss, port=2", &[&vss[..], &[0, 7]].concat(), 500_000);
    }

    #[test]
    fn what_is_no_trailer_stays_as_it_is() {
        let far = stamped(&[[1, 2, 3, 4], 99_u32.to_be_bytes(), 5_u32.to_be_bytes(), [1, 0, 0, 0]].concat());
        let (mut cut, mut cut_meta) = stamped(&metamako_trailer(&[], 1));
        cut_meta.wire_len += 1;
        let whole = (std::mem::take(&mut cut), cut_meta);
        let packets = [far, whole, (vec![1; 3], Meta { wire_len: 3, ..Meta::default() })];
        let mut trial = Trial::of("t :: trailer(metamako)");
        trial.push_all(&packets, 8);
        let arrived = trial.arrived();
        let as_before = arrived
            .iter()
            .zip(&packets)
            .all(|(now, before)| (&now.data, &now.meta) == (&before.0, &before.1));
        assert!(as_before, "{arrived:?}");
        assert_eq!(trial.numbers("t", None), [0, 3]);
    }

    #[test]
    fn any_bytes_are_read_within_their_bounds() {
        let mut bits = 1_u64;
        for len in 0..200 {
            for _ in 0..200 {
                let byte = |bits: &mut u64| {
                    *bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (*bits >> 56) as u8
                };
                let data: Vec<u8> = (0..len).map(|_| byte(&mut bits)).collect();
                for read in [metamako as Read, exablaze, ixia, vss] {
                    assert!(read(&data, 2).is_none_or(|stamp| stamp.len <= len));
                }
            }
        }
    }
}
