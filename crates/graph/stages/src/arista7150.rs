//! `arista7150`: ticks of the switch's clock behind each frame, and the frames that relate them to UTC, become the
//! packets' time.
//!
//! ```text
//! packet     frame | ticks, 4: 24 bits, 1 bit of padding, 7 bits | FCS, 4, if it was captured
//! keyframe   IPv4, protocol 253 | clock, 8 | UTC in ns, 8 | last sync, 8 | sent, 8 | drops, 8 | device, 2 | port, 2 | kind, 1 | 0, 1
//! ```
//!
//! Ticks are the lower 31 bits of the clock, of 350 MHz, so they begin again after 6.1 s. A stamp is the tick that is
//! nearest to the newest keyframe; the rate comes from two keyframes. The layouts are those of PF_RING and SolarCapture.

use std::any::Any;

use tapline_graph::catalog::{Arguments, Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_packet::headers::Headers;
use tapline_packet::{Batch, Packet, Record, Timestamp};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "arista7150",
    summary: "the ticks that an Arista 7150 put behind a frame become the packet's time",
    description: "The switch puts ticks of its clock before the FCS of each frame (mac timestamp before-fcs) or in place of it (replace-fcs), and sends keyframes that \
        relate ticks to UTC: packets of IP protocol 253. The ticks are removed, from the captured and the wire length. The rate of the clock is measured between two \
        keyframes, and is 350 MHz until then. Passed on unchanged are keyframes, packets that were not captured whole, and packets whose capture time is more than 3 s \
        from that of the newest keyframe: ticks begin again after 6 s. The result counts each kind. Stamps need not ascend: put merge behind this stage where order matters.",
    parameters: &[
        Parameter::new("fcs", ParameterType::Choice(&["no", "yes"]), "no")
            .means("yes: an FCS was captured behind the ticks; it is removed too"),
        Parameter::new("apart", ParameterType::Duration, "30d")
            .means("how far the UTC of a keyframe may be from its capture time"),
    ],
    order: Order::All,
    example: "device(eth0) -> arista7150 -> merge -> record(\"stamped.pcapng\")",
    make: Constructor::Stage(|arguments, _| Ok(Box::new(make(arguments)))),
    ..StageClass::BASE
};

/// IP protocol of keyframes, and the bytes of one.
const PROTOCOL: u8 = 253;
const KEYFRAME_LEN: usize = 46;
/// Nominal frequency of the clock, and its greatest error: keyframes that say more are not used for the rate.
const HERTZ: f64 = 350e6;
const ERROR_MAX: f64 = 0.02;
/// Bits of ticks, and half of the time after which they begin again.
const TICK_BITS: u32 = 31;
const HALF_NS: u64 = 3_000_000_000;
const TICKS_LEN: usize = 4;
const FCS_LEN: usize = 4;

fn make(arguments: &Arguments) -> Arista {
    let behind = if arguments.text("fcs") == "yes" { FCS_LEN } else { 0 };
    Arista {
        behind,
        apart_ns: arguments.nanoseconds("apart"),
        newest: None,
        ns_per_tick: 1e9 / HERTZ,
        ..Arista::default()
    }
}

/// A relation of the clock to UTC.
#[derive(Clone, Copy, Debug)]
struct Keyframe {
    clock: u64,
    utc_ns: u64,
    captured: Timestamp,
}

#[derive(Default)]
struct Arista {
    /// Bytes behind the ticks.
    behind: usize,
    apart_ns: u64,
    newest: Option<Keyframe>,
    ns_per_tick: f64,
    records: Vec<Record>,
    stamped: u64,
    without: u64,
    keyframes: u64,
}

/// A number with its high byte first.
fn number(data: &[u8]) -> u64 {
    data.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl Arista {
    fn keyframe(&self, headers: &Headers, packet: Packet<'_>) -> Option<Keyframe> {
        let start = headers.l4().filter(|_| headers.protocol() == Some(PROTOCOL))?;
        let data = packet.data.get(start..headers.ip_end().min(packet.data.len()))?;
        if data.len() != KEYFRAME_LEN {
            return None;
        }
        let (clock, utc_ns, captured) = (number(&data[..8]), number(&data[8..16]), packet.meta.timestamp);
        let apart =
            i64::try_from(utc_ns).ok().map(|ns| Timestamp::from_nanos(ns).since(captured).unsigned_abs());
        apart.filter(|apart| *apart <= self.apart_ns).map(|_| Keyframe { clock, utc_ns, captured })
    }

    /// Takes a keyframe; the rate is measured since the one before.
    fn learn(&mut self, keyframe: Keyframe) {
        self.keyframes += 1;
        if let Some(before) = self.newest {
            let ticks = keyframe.clock.wrapping_sub(before.clock) as i64;
            let ns = keyframe.utc_ns.wrapping_sub(before.utc_ns) as i64;
            let ns_per_tick = ns as f64 / ticks as f64;
            if ticks > 0 && (ns_per_tick * HERTZ / 1e9 - 1.0).abs() <= ERROR_MAX {
                self.ns_per_tick = ns_per_tick;
            }
        }
        self.newest = Some(keyframe);
    }

    /// The time of a packet, and the bytes to remove.
    fn stamp(&self, packet: Packet<'_>) -> Option<(Timestamp, usize)> {
        let data = packet.data;
        let len = TICKS_LEN + self.behind;
        let keyframe = self.newest?;
        let is_near = packet.meta.timestamp.since(keyframe.captured).unsigned_abs() <= HALF_NS;
        if !is_near || data.len() != packet.meta.wire_len as usize {
            return None;
        }
        let start = data.len().checked_sub(len)?;
        let word = number(&data[start..start + TICKS_LEN]) as u32;
        let ticks = (word >> 8) << 7 | word & 0x7f;
        // The difference of 31 bits, with its sign.
        let unused = u32::BITS - TICK_BITS;
        let apart = (ticks.wrapping_sub(keyframe.clock as u32) << unused) as i32 >> unused;
        let apart_ns = (f64::from(apart) * self.ns_per_tick).round() as i64;
        let time_ns = i64::try_from(keyframe.utc_ns).ok()?.checked_add(apart_ns)?;
        Some((Timestamp::from_nanos(time_ns), len))
    }
}

impl Stage for Arista {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        records.extend_from_slice(packets.batch.records());
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            if let Some(keyframe) = self.keyframe(&packets.headers(index), packet) {
                self.learn(keyframe);
                continue;
            }
            let Some((time, len)) = self.stamp(packet) else {
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
        let Arista { stamped, without, keyframes, .. } = *self;
        Some(Table::of_numbers(&[("stamped", stamped), ("without", without), ("keyframes", keyframes)]))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Arista>() {
            self.stamped += other.stamped;
            self.without += other.without;
            self.keyframes += other.keyframes;
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;
    use tapline_testkit::frames::{Ethernet, Host, Ipv4};

    use super::*;
    use crate::trial::Trial;

    /// The keyframe, and the packet behind it, that a description of the format works out by hand
    /// (ithitman.blogspot.com, 2015): the packet is 9,608,080 ns after the keyframe, 3,362,828 ticks.
    const UTC_NS: u64 = 1_387_240_828_522_243_471;
    const KEY_TICKS: u64 = 2_136_278_506;
    const PACKET: [u8; 4] = [0xff, 0x10, 0xab, 0x76];
    const TICKS_APART: u64 = 3_362_828;

    fn at(ns: u64, frame: Vec<u8>) -> (Vec<u8>, Meta) {
        let meta = Meta {
            timestamp: Timestamp::from_nanos(ns as i64),
            wire_len: frame.len() as u32,
            ..Meta::default()
        };
        (frame, meta)
    }

    fn keyframe(clock: u64, utc_ns: u64) -> (Vec<u8>, Meta) {
        let (a, b) = (Host::number(1), Host::number(2));
        let data = [&clock.to_be_bytes()[..], &utc_ns.to_be_bytes(), &[0; 24], &[0, 1, 0, 2, 1, 0]].concat();
        let packet = Ipv4::new(a.v4, b.v4, PROTOCOL).packet(&data);
        at(utc_ns + 1000, Ethernet::between(&a, &b).ip(&packet))
    }

    /// The last four bytes of a packet at a tick of the clock.
    fn ticks(clock: u64) -> [u8; 4] {
        let ticks = clock as u32 & 0x7fff_ffff;
        ((ticks >> 7) << 8 | ticks & 0x7f).to_be_bytes()
    }

    fn packet(captured_ns: u64, behind: &[&[u8]]) -> (Vec<u8>, Meta) {
        at(captured_ns, [&[0xaa; 60][..], &behind.concat()].concat())
    }

    fn stamps(stage: &str, packets: &[(Vec<u8>, Meta)]) -> (Vec<(usize, u64)>, Vec<u64>) {
        let mut trial = Trial::of(&format!("a :: {stage}"));
        trial.push_all(packets, 2);
        let arrived = trial.arrived();
        trial.assert_balanced();
        let stamps =
            arrived.iter().map(|packet| (packet.data.len(), packet.meta.timestamp.as_nanos() as u64));
        (stamps.collect(), trial.numbers("a", None))
    }

    #[test]
    fn a_worked_example_has_its_time() {
        assert_eq!(ticks(KEY_TICKS + TICKS_APART), PACKET);
        let key = keyframe(3 << 31 | KEY_TICKS, UTC_NS);
        let expected = UTC_NS + TICKS_APART * 20 / 7;
        for (stage, behind) in
            [("arista7150", &[&PACKET[..]][..]), ("arista7150(fcs=yes)", &[&PACKET, &[1, 2, 3, 4]])]
        {
            let packets = [packet(UTC_NS, behind), key.clone(), packet(UTC_NS + 20_000_000, behind)];
            let (stamps, counts) = stamps(stage, &packets);
            // Before the first keyframe nothing is known.
            assert_eq!((stamps[0].0, stamps[0].1), (60 + behind.concat().len(), UTC_NS));
            assert_eq!((stamps[2].0, stamps[2].1.abs_diff(expected) <= 1), (60, true), "{stamps:?}");
            assert_eq!(counts, [1, 1, 1]);
        }
    }

    #[test]
    fn the_rate_is_measured_and_ticks_wrap() {
        // A clock that is 50 ppm fast: 350,017,500 ticks in a second.
        let (clock, second) = ((5 << 31) - 1_000_000, 350_017_500_u64);
        let keys = [keyframe(clock, UTC_NS), keyframe(clock + second, UTC_NS + 1_000_000_000)];
        let before = packet(UTC_NS + 999_000_000, &[&ticks(clock + second - 350_017)]);
        let behind = packet(UTC_NS + 1_500_000_000, &[&ticks(clock + second + second / 2)]);
        let late = packet(UTC_NS + 5_000_000_000, &[&ticks(clock)]);
        let (stamps, counts) =
            stamps("arista7150", &[keys[0].clone(), keys[1].clone(), before, behind, late]);
        assert!(stamps[2].1.abs_diff(UTC_NS + 999_000_001) <= 2, "{stamps:?}");
        assert!(stamps[3].1.abs_diff(UTC_NS + 1_500_000_000) <= 1, "{stamps:?}");
        assert_eq!(stamps[4], (64, UTC_NS + 5_000_000_000));
        assert_eq!(counts, [2, 1, 2]);
    }
}
