//! `rate`: a limit of packets or bits per second that drops whole flows.
//!
//! ```text
//! flow hash --> at or above `bound`?            shed: other flows than these have room together, as the last second showed
//!           --> in the table of this second?    shed: it found no token before
//!           --> no token in the bucket?         shed, and noted in the table; where that is full, `cap` falls to its hash
//!           --> goes on, and takes its tokens
//! ```
//!
//! A flow that was shed once stays so until the second ends: the table remembers it, or all flows from its hash on are
//! shed with it.

use std::any::Any;
use std::collections::HashSet;

use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_packet::Timestamp;
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "rate",
    summary: "limits packets or bits per second by dropping whole flows",
    description: "Tokens come at the given rate, by the time in the packets, up to those of `burst`; each packet takes one for itself (packets) \
        and one for each of its bits on the wire (bits). A packet is passed on while there is any token left of both kinds, and may leave the \
        last one overdrawn: in any time t at most rate \
        x (t + burst) and one packet more go on. If a packet finds none, its flow is left out, both directions, until the second ends (a second by the time \
        in the packets, from a whole one to the next). A hash of addresses, protocol and ports distinguishes flows. From second to second a bound on the hash adapts \
        too: if the flows below it brought more than the rate, it falls in proportion, so that mostly the same flows are left out again; if they brought \
        less, it rises, to the double at most. The table of flows left out has 16384 entries; where it is full, all flows with a hash above that of the one that does not fit are left out \
        until the second ends. A time stamp more than a second before the latest starts over. The result: packets that went on; packets left \
        out; flows left out, each counted once a second, those beyond the table not at all.",
    parameters: &[
        Parameter::new("packets", ParameterType::Number(0, 1_000_000_000), "0")
            .means("packets a second; 0 for any number"),
        Parameter::new("bits", ParameterType::Number(0, 10_000_000_000_000), "0")
            .means("bits a second, such as 10M; 0 for any number"),
        Parameter::new("burst", ParameterType::Duration, "100ms").means(
            "the time whose tokens are saved up at most, and are there at the start; at least one packet's",
        ),
        Parameter::new("seed", ParameterType::Number(0, u64::MAX), "1")
            .means("another seed leaves out other flows"),
    ],
    order: Order::All,
    example: "device(eth0) -> rate(bits=100M) -> record(\"some.pcapng\")",
    make: Constructor::Stage(|arguments, _| {
        let burst = arguments.nanoseconds("burst");
        let bucket = |name| Bucket::new(arguments.number(name), burst);
        Ok(Box::new(Rate {
            seed: arguments.number("seed"),
            buckets: [bucket("packets"), bucket("bits")],
            newest: None,
            bound: ALL,
            cap: ALL,
            shed: HashSet::new(),
            counts: Counts::default(),
        }))
    }),
    ..StageClass::BASE
};

/// The most flows that are remembered in one second.
const FLOWS_MAX: usize = 16_384;

const SECOND: i64 = 1_000_000_000;

/// More than every hash.
const ALL: u128 = 1 << 64;

/// Tokens of one kind, counted in billionths so that nothing is lost between two packets.
struct Bucket {
    /// Tokens a second, which is billionths a nanosecond; 0 for no limit.
    rate: i128,
    tokens: i128,
    tokens_max: i128,
    /// Tokens that packets of flows below the bound asked for in this second.
    brought: u64,
}

impl Bucket {
    fn new(rate: u64, burst_ns: u64) -> Bucket {
        let tokens_max = (i128::from(rate) * i128::from(burst_ns)).max(SECOND.into());
        Bucket { rate: rate.into(), tokens: tokens_max, tokens_max, brought: 0 }
    }

    fn fill(&mut self, nanos: i64) {
        self.tokens = (self.tokens + self.rate * i128::from(nanos)).min(self.tokens_max);
    }

    fn has_any(&self) -> bool {
        self.rate == 0 || self.tokens > 0
    }

    fn take(&mut self, count: u64) {
        if self.rate > 0 {
            self.tokens -= i128::from(count) * i128::from(SECOND);
        }
    }

    /// The bound at which the traffic of the last second would just be allowed.
    fn adapted(&self, bound: u128) -> u128 {
        let (brought, rate) = (u128::from(self.brought), self.rate.unsigned_abs());
        match rate {
            0 => ALL,
            rate if brought > rate => bound * rate / brought,
            // Half the rate or less: the double. A little more lets a bound of 0 rise.
            rate => bound * rate / brought.max(rate.div_ceil(2)) + (ALL >> 8),
        }
    }
}

struct Rate {
    seed: u64,
    /// Buckets of packets and of bits.
    buckets: [Bucket; 2],
    newest: Option<Timestamp>,
    /// Flows with hashes below it may go on, as the seconds before this one showed.
    bound: u128,
    /// Capacity that this second showed.
    cap: u128,
    /// Hashes of flows that are shed in this second.
    shed: HashSet<u64>,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    passed: u64,
    shed: u64,
    flows: u64,
}

impl Rate {
    /// Lets time come to that of a packet.
    fn advance(&mut self, time: Timestamp) {
        let Some(newest) = self.newest else {
            self.newest = Some(time);
            return;
        };
        let passed = time.since(newest);
        if (-SECOND..=0).contains(&passed) {
            return;
        }
        self.newest = Some(time);
        self.buckets.iter_mut().for_each(|bucket| bucket.fill(passed.max(0)));
        let seconds = time.seconds().abs_diff(newest.seconds());
        // In seconds without a packet the bound doubles too; it is above all hashes after eight.
        for _ in 0..seconds.min(10) {
            self.begin_second();
        }
    }

    fn begin_second(&mut self) {
        let adapted = self.buckets.iter().map(|bucket| bucket.adapted(self.bound)).min();
        self.bound = adapted.unwrap_or(ALL).min(ALL);
        self.cap = ALL;
        self.shed.clear();
        self.buckets.iter_mut().for_each(|bucket| bucket.brought = 0);
    }

    /// Whether a packet that costs these tokens goes on.
    fn passes(&mut self, hash: u64, costs: [u64; 2]) -> bool {
        if u128::from(hash) >= self.bound {
            self.note(hash);
            return false;
        }
        self.buckets.iter_mut().zip(costs).for_each(|(bucket, cost)| bucket.brought += cost);
        if u128::from(hash) >= self.cap || self.shed.contains(&hash) {
            return false;
        }
        if !self.buckets.iter().all(Bucket::has_any) {
            if !self.note(hash) {
                self.cap = hash.into();
            }
            return false;
        }
        self.buckets.iter_mut().zip(costs).for_each(|(bucket, cost)| bucket.take(cost));
        true
    }

    /// Remembers for this second that a flow is shed; `false` if the table is full.
    fn note(&mut self, hash: u64) -> bool {
        if self.shed.len() == FLOWS_MAX {
            return self.shed.contains(&hash);
        }
        self.counts.flows += u64::from(self.shed.insert(hash));
        true
    }
}

impl Stage for Rate {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let all = packets.clone();
        packets.selection.retain(|index| {
            let packet = all.batch.packet(index);
            self.advance(packet.meta.timestamp);
            let hash = all.headers(index).flow_hash(packet.data, self.seed);
            self.passes(hash, [1, u64::from(packet.meta.wire_len) * 8])
        });
        self.counts.passed += packets.len() as u64;
        self.counts.shed += (all.len() - packets.len()) as u64;
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let Counts { passed, shed, flows } = self.counts;
        Some(Table::of_numbers(&[("passed", passed), ("shed", shed), ("flows_shed", flows)]))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Rate>() {
            self.counts.passed += other.counts.passed;
            self.counts.shed += other.counts.shed;
            self.counts.flows += other.counts.flows;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::{FLOWS_MAX, SECOND};
    use crate::trial::{Arrived, Trial, whole};
    use tapline_packet::{Meta, Timestamp};
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};

    /// A datagram of a flow, which both its directions have.
    fn datagram(flow: u16, is_back: bool) -> Vec<u8> {
        let (mut src, mut dst) = (Host::number(flow), Host::number(60_000));
        let mut udp = Udp { src: 1000, dst: 53 };
        if is_back {
            std::mem::swap(&mut src, &mut dst);
            (udp.src, udp.dst) = (53, 1000);
        }
        Ethernet::between(&src, &dst).ip(&udp.packet(IpPair::between(&src, &dst, IpVersion::V4), &[7; 58]))
    }

    fn flow_of(data: &[u8]) -> u16 {
        let number = |at| u16::from_be_bytes([data[at], data[at + 1]]);
        if number(28) == 60_000 { number(32) } else { number(28) }
    }

    /// `per_second` packets a second from `start` on for `seconds`, of `flows` flows in turn.
    fn traffic(start: i64, seconds: i64, per_second: i64, flows: u16) -> Vec<(Vec<u8>, Meta)> {
        let packet = |n: i64| {
            let data = datagram((n % i64::from(flows)) as u16, n % 3 == 0);
            let timestamp = Timestamp::from_nanos(start * SECOND + n * SECOND / per_second);
            let meta = Meta { timestamp, ..whole(&data) };
            (data, meta)
        };
        (0..seconds * per_second).map(packet).collect()
    }

    fn by_second(arrived: &[Arrived]) -> HashMap<i64, Vec<u16>> {
        let mut seconds: HashMap<i64, Vec<u16>> = HashMap::new();
        for packet in arrived {
            seconds.entry(packet.meta.timestamp.seconds()).or_default().push(flow_of(&packet.data));
        }
        seconds
    }

    #[test]
    fn traffic_within_the_rate_passes_unchanged() {
        for text in ["s :: rate(packets=1000)", "s :: rate(bits=800k)", "s :: rate"] {
            let mut trial = Trial::of(text);
            trial.push_all(&traffic(3, 4, 1000, 50), 100); // of 100 bytes each
            assert_eq!(trial.numbers("s", None), [4000, 0, 0], "{text}");
            trial.assert_balanced();
        }
    }

    #[test]
    fn no_second_has_more_than_the_rate_and_the_burst() {
        for (text, most) in [("s :: rate(packets=1000)", 1101), ("s :: rate(bits=800k, burst=50ms)", 1051)] {
            let mut trial = Trial::of(text);
            trial.push_all(&traffic(0, 12, 3000, 100), 256);
            let seconds = by_second(&trial.arrived());
            for (second, packets) in &seconds {
                assert!(packets.len() <= most, "{text}: {} in second {second}", packets.len());
            }
            // Once the bound has adapted most of the rate is used, by whole flows: of 100 flows of 30 packets a second,
            // about 33.
            let used: usize = (4..12).map(|second| seconds[&second].len()).sum();
            assert!(used > 8 * 600, "{text}: only {used} of 8000 go on");
            trial.assert_balanced();
        }
    }

    #[test]
    fn shed_flows_stay_shed_for_the_second() {
        let mut trial = Trial::of("s :: rate(packets=1000)");
        let packets = traffic(0, 10, 3000, 100);
        trial.push_all(&packets, 200);
        let arrived = trial.arrived();
        let gone: HashSet<(i64, u16, i64)> = arrived
            .iter()
            .map(|packet| {
                let time = packet.meta.timestamp;
                (time.seconds(), flow_of(&packet.data), time.as_nanos())
            })
            .collect();
        let mut shed: HashSet<(i64, u16)> = HashSet::new();
        for (data, meta) in &packets {
            let (second, flow) = (meta.timestamp.seconds(), flow_of(data));
            if gone.contains(&(second, flow, meta.timestamp.as_nanos())) {
                assert!(!shed.contains(&(second, flow)), "flow {flow} came back in second {second}");
            } else {
                shed.insert((second, flow));
            }
        }
        let result = trial.numbers("s", None);
        assert_eq!(result, [arrived.len() as u64, 30_000 - arrived.len() as u64, shed.len() as u64]);
        // Later seconds shed mostly the same flows.
        let last = |second: i64| -> HashSet<u16> {
            shed.iter().filter(|(known, _)| *known == second).map(|(_, flow)| *flow).collect()
        };
        let (eighth, ninth) = (last(8), last(9));
        assert!(eighth.intersection(&ninth).count() * 10 >= ninth.len() * 7, "{eighth:?} {ninth:?}");
    }

    #[test]
    fn the_bound_rises_again_when_the_flood_is_over() {
        let mut trial = Trial::of("s :: rate(packets=1000)");
        trial.push_all(&traffic(0, 5, 20_000, 200), 256);
        trial.arrived();
        trial.push_all(&traffic(5, 20, 500, 200), 256);
        let seconds = by_second(&trial.arrived());
        assert_eq!(seconds[&24].len(), 500);
        trial.assert_balanced();
    }

    /// More flows than fit into the table, all without a token: shed flows stay shed.
    #[test]
    fn a_full_table_sheds_by_hash() {
        let mut trial = Trial::of("s :: rate(packets=10000, burst=1ns)");
        let flows = FLOWS_MAX as u16 * 3;
        let mut packets = traffic(0, 1, i64::from(flows) * 2, flows);
        // The second half comes late enough for tokens.
        let late = packets.split_off(flows.into());
        let crowd: Vec<_> = packets
            .into_iter()
            .map(|(data, meta)| (data, Meta { timestamp: Timestamp::EPOCH, ..meta }))
            .collect();
        trial.push_all(&crowd, 256);
        let first: HashSet<u16> = trial.data().iter().map(|data| flow_of(data)).collect();
        assert!(first.len() < 10, "{}", first.len());
        trial.push_all(&late, 256);
        let second: Vec<u16> = trial.data().iter().map(|data| flow_of(data)).collect();
        assert!(second.iter().all(|flow| first.contains(flow)), "a flow that was shed came back");
        assert_eq!(trial.numbers("s", None)[2], FLOWS_MAX as u64);
        trial.assert_balanced();
    }

    #[test]
    fn times_at_the_ends_of_the_range() {
        let mut trial = Trial::of("s :: rate(packets=1000000000, bits=10000000M, burst=1h)");
        trial.push_stamps(&[i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN, i64::MIN + 1]);
        assert_eq!(trial.stamps().len(), 7);
        trial.assert_balanced();
    }
}
