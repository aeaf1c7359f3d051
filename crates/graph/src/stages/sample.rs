//! `sample`: one of so many packets, whole flows, or one in so much time.

use tapline_capture::Error;
use tapline_packet::Timestamp;

use crate::catalog::{Arguments, Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;

/// The class of such stages that count packets or time.
pub(crate) const CLASS: Class = Class {
    name: "sample",
    summary: "one of so many packets, whole flows, or one packet in so much time",
    description: "By packets, one of each block of n goes on, at a place within the block that chance chooses: unlike every n-th packet, that is \
        no rhythm which traffic could share. By flow, whole flows go on or not, both directions alike, as a hash of addresses and ports \
        decides: statistics of flows stay right. By time, the first packet goes on that comes so long after the last that did.",
    parameters: &[
        Parameter {
            name: "share",
            kind: Kind::Ratio,
            default: Some("1/1"),
            meaning: "how many go on: 1/100 is one of a hundred (packets, flows)",
        },
        Parameter {
            name: "by",
            kind: Kind::Choice(&["packet", "flow", "time"]),
            default: Some("packet"),
            meaning: "what is chosen",
        },
        Parameter {
            name: "every",
            kind: Kind::Duration,
            default: Some("100ms"),
            meaning: "the least time between two packets (time)",
        },
        Parameter {
            name: "seed",
            kind: Kind::Number(0, u64::MAX),
            default: Some("1"),
            meaning: "where chance starts: the same seed chooses the same packets of the same traffic",
        },
    ],
    outputs: Outputs::One,
    order: Order::All,
    example: "device(eth0) -> sample(1/100) -> print",
    make: Make::Stage(|arguments, _| Ok(make(arguments))),
};

fn make(arguments: &Arguments) -> Box<dyn Stage> {
    let (over, under) = arguments.ratio("share");
    let seed = arguments.number("seed");
    match arguments.text("by") {
        "flow" => Box::new(ByFlow { bound: (u128::from(over) << 64) / u128::from(under), seed }),
        "time" => Box::new(ByTime { every: arguments.nanoseconds("every") as i64, last: None }),
        _ => Box::new(ByPacket { over, under, chance: Chance(seed), left: 0, wanted: 0 }),
    }
}

/// A small generator of chance (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number less than `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// `over` of each block of `under` packets, each choice alike.
struct ByPacket {
    over: u64,
    under: u64,
    chance: Chance,
    /// Packets of this block that are still to come, and how many of them are to go on.
    left: u64,
    wanted: u64,
}

impl ByPacket {
    fn choose(&mut self) -> bool {
        if self.left == 0 {
            (self.left, self.wanted) = (self.under, self.over);
        }
        let is_chosen = self.chance.below(self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(is_chosen);
        is_chosen
    }
}

impl Stage for ByPacket {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        packets.selection.retain(|_| self.choose());
        out.pass(packets)
    }
}

/// Flows whose hash lies below a bound.
struct ByFlow {
    /// Of 2^64.
    bound: u128,
    seed: u64,
}

impl Stage for ByFlow {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let batch = packets.batch;
        let seen = packets.clone();
        packets.selection.retain(|index| {
            let hash = seen.headers(index).flow_hash(batch.packet(index).data, self.seed);
            u128::from(hash) < self.bound
        });
        out.pass(packets)
    }
}

/// The first packet so long after the last one.
struct ByTime {
    every: i64,
    last: Option<Timestamp>,
}

impl Stage for ByTime {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let batch = packets.batch;
        packets.selection.retain(|index| {
            let time = batch.packet(index).meta.timestamp;
            // A clock that was set back starts anew.
            let is_due = self.last.is_none_or(|last| !(0..self.every).contains(&time.since(last)));
            if is_due {
                self.last = Some(time);
            }
            is_due
        });
        out.pass(packets)
    }
}
