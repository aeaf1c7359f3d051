//! `flow`: packets become flows.
//!
//! ```text
//! packets --> meter --> packets that belong to flows
//!               \-----> flows that have ended, to the stages right behind
//! ```

use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};

use tapline_capture::{Error, InterfaceAccount};
use tapline_flow::{
    DetailFields, EndReason, Flow, FlowChange, KeyFields, Meter, MeterSettings, PAYLOAD_MAX, Statistics,
    UnmeteredCause,
};
use tapline_packet::{ClockReading, Interface, Timestamp};

use crate::catalog::{
    Arguments, Constructor, Order, Outputs, Parameter, ParameterType, StageClass, StageInput,
};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{ExpiredFlows, FlowChanges, MeteredSecond, Stage, StageStatus, TickContext};
use crate::stages::sample::Blocks;
use crate::table::{Cell, Table};

/// How long packets of a live interface may be on their way to us: the clock stays so far behind the system's.
const ON_THEIR_WAY_NS: i64 = 1_000_000_000;
/// How far their clock may be ahead of ours: what is further is wrong, and would stop all timers until then.
const AHEAD_NS: i64 = 1_000_000_000;
/// A step back of the wall clock beyond which all flows are ended; a lesser one only keeps them that much longer.
const SET_BACK_NS: i64 = 1_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
/// Changes of flows that go on which are handed on at a time.
const CHANGES_PER_PART: usize = 512;

/// The class of this stage.
pub(crate) const CLASS: StageClass = StageClass {
    name: "flow",
    summary: "packets become flows, for ipfix or flowtop right behind",
    description: "One entry holds both directions of a flow. Packets that belong to a flow go on; those without IP, cut short or sampled out are refused. Time is that of \
        the packets; on live interfaces flows end while nothing comes, too. The result tells what the table did (docs/flows.md).",
    parameters: &[
        Parameter {
            name: "active",
            kind: ParameterType::Duration,
            default: Some("60s"),
            meaning: "a flow that lasts so long becomes a record, and goes on in the next",
        },
        Parameter {
            name: "idle",
            kind: ParameterType::Duration,
            default: Some("15s"),
            meaning: "a flow ends that had no packet for longer",
        },
        Parameter {
            name: "closed",
            kind: ParameterType::Duration,
            default: Some("2s"),
            meaning: "after FIN both ways or RST so long a silence ends a flow",
        },
        Parameter {
            name: "flows",
            kind: ParameterType::Number(1, 1_000_000_000),
            default: Some("1048576"),
            meaning: "the most flows at a time; one more ends the flow that was idle longest. 195 bytes each, allocated as flows come",
        },
        Parameter {
            name: "key",
            kind: ParameterType::Text,
            default: Some("none"),
            meaning: "fields of the key besides addresses, ports and protocol: vlan, mpls, tunnel, tos, interface; with commas",
        },
        Parameter {
            name: "inner",
            kind: ParameterType::Choice(&["no", "yes"]),
            default: Some("no"),
            meaning: "whether tunnels are taken off (GRE, VXLAN, Geneve, GTP, IP in IP, ERSPAN, MPLS)",
        },
        Parameter {
            name: "bytes",
            kind: ParameterType::Choice(&["ip", "frame"]),
            default: Some("ip"),
            meaning: "whether bytes are those of IP packets or of frames",
        },
        Parameter {
            name: "sample",
            kind: ParameterType::Number(1, 1_000_000),
            default: Some("1"),
            meaning: "the sampling interval: 1 in this many packets is metered, a random one of each block; records carry the interval and are not scaled",
        },
        Parameter {
            name: "details",
            kind: ParameterType::Text,
            default: Some("none"),
            meaning: "groups of details to collect: tcp, sizes, gaps, dns, tls, http, application, payload, with commas; or all. Each costs time per packet and memory per flow",
        },
        Parameter {
            name: "payload",
            kind: ParameterType::Number(1, PAYLOAD_MAX as u64),
            default: Some("64"),
            meaning: "bytes of each side's first payload that are kept, if details has payload",
        },
        Parameter {
            name: "view",
            kind: ParameterType::Choice(&["no", "yes"]),
            default: Some("no"),
            meaning: "whether a `view` behind it is told once a second what each flow counted; 16 bytes a flow",
        },
        Parameter {
            name: "min_packets",
            kind: ParameterType::Number(1, 1_000_000),
            default: Some("1"),
            meaning: "flows with fewer packets, of both directions, are counted and not handed on",
        },
        Parameter {
            name: "scale",
            kind: ParameterType::Choice(&["no", "yes"]),
            default: Some("no"),
            meaning: "with sample: whether packets and bytes of flows are multiplied by the sampling interval; records then carry the interval 1",
        },
    ],
    outputs: Outputs::Flows,
    input: StageInput::Packets,
    order: Order::Flow,
    example: "device(eth0) -> flow(active=60s, idle=15s) -> ipfix(\"127.0.0.1:4739\")",
    make: Constructor::Stage(|arguments, site| {
        let settings = settings(arguments)?;
        let mut meter = Meter::new(&settings).map_err(|error| error.to_string())?;
        let is_viewed = arguments.text("view") == "yes";
        if is_viewed {
            meter.track_changes().map_err(|error| error.to_string())?;
        }
        Ok(Box::new(FlowStage {
            meter,
            seconds: is_viewed.then(Seconds::default),
            sampler: Sampler { interval: arguments.number("sample"), seed: site.worker as u64, blocks: None },
            min_packets: arguments.number("min_packets"),
            scale: if arguments.text("scale") == "yes" { arguments.number("sample") } else { 1 },
            small: Small::default(),
            ended: Vec::with_capacity(1024),
            is_live: false,
            offset_ns: None,
            absorbed: Statistics::default(),
            span: None,
        }))
    }),
};

fn settings(arguments: &Arguments) -> Result<MeterSettings, String> {
    Ok(MeterSettings {
        active_ns: arguments.nanoseconds("active") as i64,
        idle_ns: arguments.nanoseconds("idle") as i64,
        closed_ns: arguments.nanoseconds("closed") as i64,
        flows_max: arguments.number("flows") as usize,
        key: KeyFields::parse(arguments.text("key")).map_err(|error| error.to_string())?,
        inner: arguments.text("inner") == "yes",
        counts_frames: arguments.text("bytes") == "frame",
        details: DetailFields::parse(arguments.text("details")).map_err(|error| error.to_string())?,
        payload: arguments.number("payload") as u16,
    })
}

/// The span of two spans.
fn both(one: (Timestamp, Timestamp), other: (Timestamp, Timestamp)) -> (Timestamp, Timestamp) {
    (one.0.min(other.0), one.1.max(other.1))
}

/// What a view is told once a second.
#[derive(Default)]
struct Seconds {
    /// The second of the last packets or the last tick.
    now: Option<i64>,
    /// Changes of flows that go on, a part at a time.
    part: Vec<FlowChange>,
    interfaces: Vec<(u32, String)>,
    accounts: Vec<InterfaceAccount>,
}

struct FlowStage {
    meter: Meter,
    /// With `view=yes`.
    seconds: Option<Seconds>,
    sampler: Sampler,
    min_packets: u64,
    /// The factor of what flows counted.
    scale: u64,
    small: Small,
    ended: Vec<Flow>,
    is_live: bool,
    /// The wall clock less the steady one, when the clocks were last looked at.
    offset_ns: Option<i64>,
    /// Counters of this stage in other workers, after they ended.
    absorbed: Statistics,
    /// The earliest and the latest packet of flows that have ended.
    span: Option<(Timestamp, Timestamp)>,
}

/// Flows with fewer packets than are handed on.
#[derive(Clone, Copy, Default)]
struct Small {
    flows: u64,
    packets: u64,
}

impl FlowStage {
    /// Takes small flows out of those that ended, and scales the rest; the packets of the small ones.
    fn select(&mut self) -> u64 {
        let before = self.small.packets;
        if self.min_packets > 1 {
            self.ended.retain(|flow| {
                let is_kept = flow.packets() >= self.min_packets;
                if !is_kept {
                    self.small.flows += 1;
                    self.small.packets += flow.packets();
                }
                is_kept
            });
        }
        if self.scale > 1 {
            for side in self.ended.iter_mut().flat_map(|flow| &mut flow.endpoints) {
                side.packets = side.packets.saturating_mul(self.scale);
                side.bytes = side.bytes.saturating_mul(self.scale);
            }
        }
        self.small.packets - before
    }

    fn hand_on(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let mut told = Ok(());
        if let Some(changes) = self.meter.ended_changes() {
            told = out.pass_changes(&FlowChanges { changes, second: None });
            changes.clear();
        }
        let now = if self.is_live { now } else { self.meter.clock().unwrap_or(now) };
        let small_packets = self.select();
        let sampling = if self.scale > 1 { 1 } else { self.sampler.interval as u32 };
        let (flows, scale) = (self.ended.as_slice(), self.scale);
        let spans = flows.iter().map(|flow| (flow.first(), flow.last()));
        self.span = self.span.into_iter().chain(spans).reduce(both);
        let handed = out.pass_flows(&ExpiredFlows {
            flows,
            now,
            sampling,
            is_live: self.is_live,
            scale,
            small_packets,
        });
        self.ended.clear();
        told.and(handed)
    }

    fn expire(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        let mut handed = Ok(());
        loop {
            let is_all = self.meter.expire(&mut self.ended);
            // Flows of a failed export are counted there; the others go on.
            handed = handed.and(self.hand_on(now, out));
            if is_all {
                return handed;
            }
        }
    }

    /// Ends all flows if the wall clock was set back: packets bear its time, and no flow would end before it has come
    /// there again.
    fn follow_clock(&mut self, clocks: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        let offset_ns = clocks.wall.as_nanos().saturating_sub(clocks.steady_ns);
        let before = self.offset_ns.replace(offset_ns).unwrap_or(offset_ns);
        if before.saturating_sub(offset_ns) < SET_BACK_NS {
            return Ok(());
        }
        let ended = self.end_all(clocks.wall, out);
        self.meter.reset_clock(clocks.wall.plus_nanos(-ON_THEIR_WAY_NS));
        ended
    }

    fn end_all(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        let mut handed = Ok(());
        loop {
            let is_all = self.meter.finish(&mut self.ended);
            handed = handed.and(self.hand_on(now, out));
            if is_all {
                return handed;
            }
        }
    }

    /// Tells the views behind that the second `second`, in seconds since 1970, has begun, if it is a new one: what each
    /// flow counted in the one before, and the totals.
    fn tell_second(&mut self, second: i64, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(seconds) = &mut self.seconds else { return Ok(()) };
        match seconds.now.replace(second) {
            Some(before) if before != second => self.tell_changes(now, out),
            _ => Ok(()),
        }
    }

    fn tell_changes(&mut self, end: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        let FlowStage { meter, seconds: Some(Seconds { part, interfaces, accounts, .. }), .. } = self else {
            return Ok(());
        };
        let mut told = Ok(());
        meter.changes(&mut |change| {
            part.push(change);
            if part.len() == CHANGES_PER_PART {
                let sent = out.pass_changes(&FlowChanges { changes: part, second: None });
                told = std::mem::replace(&mut told, Ok(())).and(sent);
                part.clear();
            }
        });
        let statistics = meter.statistics();
        let (interfaces, accounts) = (interfaces.clone(), accounts.clone());
        let second = MeteredSecond { end, is_live: self.is_live, statistics, interfaces, accounts };
        let sent = out.pass_changes(&FlowChanges { changes: part, second: Some(&second) });
        part.clear();
        told.and(sent)
    }

    /// Keeps names of interfaces, by the numbers that flows have.
    fn learn_interfaces(&mut self, known: &[Interface]) {
        let Some(seconds) = self.seconds.as_mut().filter(|seconds| seconds.interfaces.len() != known.len())
        else {
            return;
        };
        let number = |(at, interface): (usize, &Interface)| match interface.if_index {
            0 => (at as u32 + 1, interface.name.clone()),
            index => (index, interface.name.clone()),
        };
        seconds.interfaces = known.iter().enumerate().map(number).collect();
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = self.meter.statistics();
        statistics.merge(&self.absorbed);
        statistics
    }
}

impl Stage for FlowStage {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.is_live = packets.interfaces.iter().any(|interface| interface.if_index > 0);
        let now = packets.now;
        if self.is_live {
            self.follow_clock(packets.clocks(), out)?;
            self.meter.set_latest(now.plus_nanos(AHEAD_NS));
        }
        self.sampler.choose(packets, &mut self.meter, self.is_live);
        self.meter.push(&packets.batch, &mut packets.selection, packets.interfaces, &mut self.ended);
        let passed = out.pass(packets);
        self.learn_interfaces(packets.interfaces);
        let expired = self.expire(now, out);
        let told = match self.meter.clock().filter(|_| !self.is_live && self.seconds.is_some()) {
            Some(clock) => self.tell_second(clock.as_nanos().div_euclid(SECOND_NS), clock, out),
            None => Ok(()),
        };
        passed.and(expired).and(told)
    }

    fn flows(&mut self, _: &ExpiredFlows<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        // Flows of a meter before this one are not metered again.
        Ok(())
    }

    fn changes(&mut self, _: &FlowChanges<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        // Nor is what they counted.
        Ok(())
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        if self.is_live {
            self.follow_clock(tick.clocks(), out)?;
            self.meter.set_clock(tick.now.plus_nanos(-ON_THEIR_WAY_NS));
            self.expire(tick.now, out)?;
        }
        if let Some(seconds) = &mut self.seconds {
            seconds.accounts.clear();
            seconds.accounts.extend_from_slice(tick.interfaces);
        }
        if self.is_live {
            self.tell_second(tick.now.as_nanos().div_euclid(SECOND_NS), tick.now, out)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let ended = self.end_all(tick.now, out);
        if let Some(seconds) = &mut self.seconds {
            seconds.accounts = tick.interfaces.to_vec();
        }
        let end = if self.is_live { tick.now } else { self.meter.clock().unwrap_or(tick.now) };
        ended.and(self.tell_changes(end, out))
    }

    fn result(&self) -> Option<Table> {
        let all = self.statistics();
        let not = |cause: UnmeteredCause| all.not_metered[cause as usize].packets;
        let ended = |reason: EndReason| all.ended.of(reason);
        let mut table = Table::of_numbers(&[
            ("packets", all.metered.packets),
            ("bytes", all.flow_bytes),
            ("not_ip", not(UnmeteredCause::NotIp)),
            ("cut", not(UnmeteredCause::Cut)),
            ("sampled_out", not(UnmeteredCause::Sampled)),
            ("flows", all.made),
            ("idle", ended(EndReason::Idle)),
            ("active", ended(EndReason::Active)),
            ("end", ended(EndReason::End)),
            ("forced", ended(EndReason::Forced)),
            ("full", ended(EndReason::Full)),
            ("now", all.active),
            ("most", all.active_max),
            ("room", all.flows_max),
            ("chain", all.chain_max),
            ("late", all.late),
            ("ahead", all.ahead),
            ("no_room", all.refused.texts + all.refused.streams),
            ("small", self.small.flows),
        ]);
        if let Some((first, last)) = self.span {
            table.add("first_ns", Cell::Time(first.as_nanos()));
            table.add("last_ns", Cell::Time(last.as_nanos()));
        }
        Some(table)
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let all = self.meter.statistics();
        for (name, value) in [("now", all.active), ("room", all.flows_max), ("flows", all.made)] {
            tell(name, value);
        }
        for (name, reason) in [
            ("idle", EndReason::Idle),
            ("active", EndReason::Active),
            ("end", EndReason::End),
            ("full", EndReason::Full),
        ] {
            tell(name, all.ended.of(reason));
        }
        tell("chain_max", all.chain_max);
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<FlowStage>() {
            self.absorbed.merge(&other.statistics());
            self.small.flows += other.small.flows;
            self.small.packets += other.small.packets;
            self.span = self.span.into_iter().chain(other.span).reduce(both);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Meters a random packet of each block.
struct Sampler {
    interval: u64,
    /// The random seed: fixed for files, so that each run is the same; secret on live interfaces, so that a sender
    /// cannot avoid the sample.
    seed: u64,
    /// Since the first packets, which tell whether they are live.
    blocks: Option<Blocks>,
}

impl Sampler {
    fn choose(&mut self, packets: &mut Packets<'_>, meter: &mut Meter, is_live: bool) {
        if self.interval == 1 {
            return;
        }
        let blocks = self.blocks.get_or_insert_with(|| {
            let seed = if is_live { RandomState::new().build_hasher().finish() } else { self.seed };
            Blocks::new(1, self.interval, seed)
        });
        let records = packets.batch.records();
        let (mut out, mut bytes) = (0, 0);
        packets.selection.retain(|index| {
            let is_wanted = blocks.choose();
            if !is_wanted {
                out += 1;
                bytes += u64::from(records[index].meta.wire_len);
            }
            is_wanted
        });
        meter.count_sampled_out(out, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use tapline_packet::{ClockReading, Timestamp};
    use tapline_testkit::frames::*;

    use crate::TickContext;
    use crate::plan::{GraphText, Plan};
    use crate::table::Cell;
    use crate::trial::{Trial, whole};

    fn datagram(src: u16) -> Vec<u8> {
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        Ethernet::between(&a, &b).ip(&Udp { src, dst: 53 }.packet(pair, b"twelve bytes"))
    }

    fn number(trial: &Trial, stage: &str, column: &str) -> u64 {
        let table = trial.result(stage);
        let at = table.columns.iter().position(|name| *name == column).expect("a column");
        match table.rows[0][at] {
            Cell::Number(number) => number,
            Cell::Text(_) | Cell::Time(_) => panic!("{column} is no number"),
        }
    }

    /// A socket, and a graph whose flows go there.
    fn exported(flow: &str, export: &str) -> (UdpSocket, Trial) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        socket.set_nonblocking(true).expect("it can be");
        let to = socket.local_addr().expect("it has one");
        let text = format!("file(\"in\") -> f :: flow({flow}) -> json; f -> e :: ipfix(\"{to}\"{export})");
        (socket, Trial::graph(&text).unwrap_or_else(|why| panic!("{why}")))
    }

    fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2000];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
    }

    #[test]
    fn packets_without_a_flow_are_refused() {
        let (socket, mut trial) = exported("", "");
        let arp_frame = Ethernet::broadcast(&Host::number(1))
            .frame(0x0806, &arp(1, &Host::number(1), [0; 6], Host::number(2).v4));
        trial.push_frames(&[datagram(1), arp_frame, datagram(1), datagram(2)]);
        assert_eq!(trial.data().len(), 3);
        assert_eq!(trial.refused_and_held("f"), (1, 0));
        trial.assert_balanced();
        assert!(received(&socket).is_empty(), "the flows go on");
        trial.finish();
        trial.assert_balanced();
        let counted = ["packets", "not_ip", "flows", "forced"].map(|column| number(&trial, "f", column));
        assert_eq!(counted, [3, 1, 2, 2]);
        assert_eq!(["flows", "records", "messages"].map(|column| number(&trial, "e", column)), [2, 2, 1]);
        assert_eq!(received(&socket).len(), 1);
    }

    /// A live interface falls silent: its flows end by the clock.
    #[test]
    fn flows_of_silent_interfaces_end() {
        const SECOND: i64 = 1_000_000_000;
        let (socket, mut trial) = exported("idle=5s", "");
        trial.interfaces[0].if_index = 3;
        let stamped = (
            datagram(1),
            tapline_packet::Meta { timestamp: Timestamp::from_nanos(100 * SECOND), ..whole(&datagram(1)) },
        );
        trial.now = ClockReading::unset(Timestamp::from_nanos(100 * SECOND));
        trial.push_all(&[stamped], 1);
        for second in 100..120 {
            (0..10).for_each(|tenth| trial.tick(second * SECOND + tenth * SECOND / 10));
            assert_eq!(number(&trial, "f", "idle") == 1, second >= 106, "at {second}");
        }
        let messages = received(&socket);
        assert_eq!(messages.len(), 1);
        // The header has the time of the message, in seconds.
        assert!((106..109).contains(&messages[0][7]), "{:?}", &messages[0][..16]);
        trial.assert_balanced();
    }

    /// Messages of a file are the same however long it takes to read it.
    #[test]
    fn messages_of_files_wait_until_they_are_full() {
        const SECOND: i64 = 1_000_000_000;
        let (socket, mut trial) = exported("idle=5s", "");
        for second in 0..20 {
            let timestamp = Timestamp::from_nanos(second * SECOND);
            let meta = tapline_packet::Meta { timestamp, ..whole(&datagram(1)) };
            trial.push_all(&[(datagram(second as u16), meta)], 1);
            (0..20).for_each(|tenth| trial.tick(2 * second * SECOND + tenth * SECOND / 10));
        }
        assert_eq!(number(&trial, "f", "idle"), 14);
        assert!(received(&socket).is_empty());
        trial.finish();
        assert_eq!(received(&socket).len(), 1);
        trial.assert_balanced();
    }

    #[test]
    fn one_packet_of_each_block_is_metered() {
        let (_socket, mut trial) = exported("sample=10", "");
        trial.push_frames(&vec![datagram(1); 1000]);
        trial.finish();
        assert_eq!(["packets", "sampled_out"].map(|column| number(&trial, "f", column)), [100, 900]);
        trial.assert_balanced();
    }

    /// The sample of a file is the same in each run; that of a live interface cannot be predicted.
    #[test]
    fn chance_is_known_of_files_only() {
        let chosen = |if_index: u32| {
            let (_socket, mut trial) = exported("sample=10", "");
            trial.interfaces[0].if_index = if_index;
            trial.push_frames(&(0..2000).map(datagram).collect::<Vec<_>>());
            trial.data()
        };
        assert_eq!(chosen(0).len(), 200);
        assert_eq!(chosen(0), chosen(0));
        assert_ne!(chosen(3), chosen(3));
    }

    /// One packet with a wrong time stamp does not delay the end of other flows.
    #[test]
    fn a_wrong_clock_stops_no_timer() {
        const SECOND: i64 = 1_000_000_000;
        let (_socket, mut trial) = exported("idle=5s", "");
        trial.interfaces[0].if_index = 3;
        for (src, second) in [(1, 100), (2, 1_000_000), (3, 101)] {
            let meta = tapline_packet::Meta {
                timestamp: Timestamp::from_nanos(second * SECOND),
                ..whole(&datagram(src))
            };
            trial.now = ClockReading::unset(Timestamp::from_nanos(second.min(101) * SECOND));
            trial.push_all(&[(datagram(src), meta)], 1);
        }
        for tenth in 1010..1200 {
            trial.tick(tenth * SECOND / 10);
        }
        assert_eq!(["idle", "ahead"].map(|column| number(&trial, "f", column)), [3, 1]);
    }

    /// An hour back: flows of before end at once, those of afterwards in their time.
    #[test]
    fn a_clock_that_is_set_back_stops_no_timer() {
        const SECOND: i64 = 1_000_000_000;
        let (_socket, mut trial) = exported("idle=5s", "");
        trial.interfaces[0].if_index = 3;
        let now = |hour: i64, second: i64| ClockReading {
            wall: Timestamp::from_nanos((hour * 3600 + second) * SECOND),
            steady_ns: second * SECOND,
        };
        let push = |trial: &mut crate::trial::Trial, src, now: ClockReading| {
            trial.now = now;
            let meta = tapline_packet::Meta { timestamp: now.wall, ..whole(&datagram(src)) };
            trial.push_all(&[(datagram(src), meta)], 1);
        };
        push(&mut trial, 1, now(9, 0));
        trial.tick_at(now(9, 1));
        trial.tick_at(now(8, 2));
        assert_eq!(["forced", "now"].map(|column| number(&trial, "f", column)), [1, 0]);
        push(&mut trial, 2, now(8, 3));
        trial.tick_at(now(8, 7));
        assert_eq!(["idle", "now"].map(|column| number(&trial, "f", column)), [0, 1]);
        trial.tick_at(now(8, 10));
        assert_eq!(["idle", "late", "now"].map(|column| number(&trial, "f", column)), [1, 0, 0]);
    }

    /// Files of records that cannot be written: all flows are handed on all the same, the error is told, and the
    /// account balances.
    #[test]
    fn a_full_disk_leaves_no_packet_out_of_the_account() {
        let text = "file(\"in\") -> f :: flow -> e :: ipfix(\"file:/dev/full\"); f -> t :: flowtop(n=5000)";
        let mut trial = Trial::graph(text).unwrap_or_else(|why| panic!("{why}"));
        trial.push_frames(&(0..3000).map(datagram).collect::<Vec<_>>());
        let tick = TickContext::new(ClockReading::default(), &[]);
        let failed = trial.graph.finish(&tick).expect_err("nothing can be written").to_string();
        assert!(failed.contains("No space left"), "{failed}");
        trial.assert_balanced();
        let account = trial.account();
        let export = account
            .stages
            .iter()
            .find(|stage| stage.name == "e")
            .and_then(|stage| stage.counters.output.clone());
        let export = export.expect("it is an output");
        assert_eq!((export.written, export.lost, export.buffered), (0, 3000, 0));
        assert_eq!(trial.result("t").rows.len(), 3000, "the other one has them all");
    }

    #[test]
    fn an_exporter_takes_one_rate_of_sampling() {
        let plan = |text: &str| Plan::new(&[GraphText { name: "t", text }]).map(|_| ());
        let two = |one: u32, other: u32, more: &str| {
            plan(&format!(
                "e :: ipfix(\"127.0.0.1:9\"{more}); file(a) -> flow(sample={one}) -> e; file(b) -> flow(sample={other}) -> e"
            ))
        };
        assert!(two(10, 10, "").is_ok());
        let why = two(10, 1, "").unwrap_err();
        assert!(why.contains("one of 10") && why.contains("ipfix of its own"), "{why}");
        let why = two(16_384, 16_384, ", version=5").unwrap_err();
        assert!(why.contains("16383"), "{why}");
        assert!(two(16_383, 16_383, ", version=5").is_ok());
        assert!(two(16_384, 16_384, ", version=9").is_ok());
    }

    #[test]
    fn only_a_meter_leads_to_takers_of_flows() {
        let plan = |text: &str| Plan::new(&[GraphText { name: "t", text }]).map(|_| ());
        let why = plan("file(a) -> ipfix(\"b:1\")").unwrap_err();
        assert!(why.contains("takes flows") && why.contains("-> flow ->"), "{why}");
        assert!(plan("file(a) -> flow -> sample(1/2) -> flowtop").is_err());
        assert!(plan("file(a) -> flow -> flowtop").is_ok());
    }

    #[test]
    fn two_workers_give_the_result_of_one() {
        let text = "file(\"in\") -> f :: flow -> t :: flowtop(n=3); f -> json";
        let made = || Trial::graph(text).unwrap_or_else(|why| panic!("{why}"));
        let (mut one, mut other, mut all) = (made(), made(), made());
        let frames: Vec<Vec<u8>> = (0..100).map(|at| datagram(at % 7)).collect();
        let (left, right): (Vec<_>, Vec<_>) = frames.iter().cloned().partition(|frame| frame[35] % 2 == 0);
        one.push_frames(&left);
        other.push_frames(&right);
        all.push_frames(&frames);
        for trial in [&mut one, &mut other, &mut all] {
            trial.finish();
        }
        one.graph.merge(&other.graph);
        assert_eq!(number(&one, "f", "packets"), number(&all, "f", "packets"));
        assert_eq!(number(&one, "f", "flows"), 7);
        let packets =
            |trial: &Trial| trial.result("t").rows.iter().map(|row| row[3].clone()).collect::<Vec<_>>();
        assert_eq!(packets(&one), packets(&all));
    }
}
