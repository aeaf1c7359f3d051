//! `flow`: packets become flows.
//!
//! ```text
//! packets --> meter --> packets that belong to flows
//!               \-----> flows that have ended, to the stages right behind
//! ```

use std::any::Any;

use tapline_capture::{Error, Wants};
use tapline_flow::{Cause, EndReason, Flow, KeyFields, Meter, Settings, Statistics};
use tapline_packet::Timestamp;

use crate::catalog::{Arguments, Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Ended, Moment, Stage};
use crate::table::Table;

/// How long packets of a live interface may be on their way to us: the clock stays so far behind the system's.
const ON_THEIR_WAY_NS: i64 = 1_000_000_000;

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "flow",
    summary: "packets become flows, for ipfix or flowtop right behind",
    description: "One entry holds both directions of a flow. Packets that belong to a flow go on; those without IP, cut short or sampled out are refused. Time is that of \
        the packets; on live interfaces flows end while nothing comes, too. The result tells what the table did (docs/flows.md).",
    parameters: &[
        Parameter {
            name: "active",
            kind: Kind::Duration,
            default: Some("60s"),
            meaning: "a flow that lasts so long becomes a record, and goes on in the next",
        },
        Parameter {
            name: "idle",
            kind: Kind::Duration,
            default: Some("15s"),
            meaning: "a flow ends that had no packet for longer",
        },
        Parameter {
            name: "closed",
            kind: Kind::Duration,
            default: Some("2s"),
            meaning: "after FIN both ways or RST so long a silence ends a flow",
        },
        Parameter {
            name: "flows",
            kind: Kind::Number(1, 1_000_000_000),
            default: Some("1048576"),
            meaning: "room for so many; if there are more, the longest silent ends. 190 bytes each, taken as they come",
        },
        Parameter {
            name: "key",
            kind: Kind::Text,
            default: Some("none"),
            meaning: "what tells flows apart besides addresses, ports and protocol: vlan, mpls, tunnel, tos, interface; with commas",
        },
        Parameter {
            name: "inner",
            kind: Kind::Choice(&["no", "yes"]),
            default: Some("no"),
            meaning: "whether tunnels are taken off (GRE, VXLAN, Geneve, GTP, IP in IP, ERSPAN, MPLS)",
        },
        Parameter {
            name: "bytes",
            kind: Kind::Choice(&["ip", "frame"]),
            default: Some("ip"),
            meaning: "whether bytes are those of IP packets or of frames",
        },
        Parameter {
            name: "sample",
            kind: Kind::Number(1, 1_000_000),
            default: Some("1"),
            meaning: "meter one of so many packets, chosen by chance in each block of so many; records tell the rate and are not scaled",
        },
    ],
    outputs: Outputs::One,
    order: Order::Flow,
    example: "device(eth0) -> flow(active=60s, idle=15s) -> ipfix(\"127.0.0.1:4739\")",
    make: Make::Stage(|arguments, site| {
        let settings = settings(arguments)?;
        let meter = Meter::new(&settings).map_err(|error| error.to_string())?;
        Ok(Box::new(FlowStage {
            meter,
            sampler: Sampler::new(arguments.number("sample"), site.worker as u64),
            ended: Vec::with_capacity(1024),
            is_live: false,
            absorbed: Statistics::default(),
        }))
    }),
};

fn settings(arguments: &Arguments) -> Result<Settings, String> {
    Ok(Settings {
        active_ns: arguments.nanoseconds("active") as i64,
        idle_ns: arguments.nanoseconds("idle") as i64,
        closed_ns: arguments.nanoseconds("closed") as i64,
        flows_max: arguments.number("flows") as usize,
        key: KeyFields::parse(arguments.text("key")).map_err(|error| error.to_string())?,
        inner: arguments.text("inner") == "yes",
        layer2: arguments.text("bytes") == "frame",
    })
}

struct FlowStage {
    meter: Meter,
    sampler: Sampler,
    ended: Vec<Flow>,
    is_live: bool,
    /// What the same stage did in other workers.
    absorbed: Statistics,
}

impl FlowStage {
    fn hand_on(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let now = if self.is_live { now } else { self.meter.clock().unwrap_or(now) };
        let handed = out.pass_flows(&Ended { flows: &self.ended, now, sampling: self.sampler.interval as u32 });
        self.ended.clear();
        handed
    }

    fn expire(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        loop {
            let is_all = self.meter.expire(&mut self.ended);
            self.hand_on(now, out)?;
            if is_all {
                return Ok(());
            }
        }
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
        self.sampler.choose(packets, &mut self.meter);
        self.meter.push(&packets.batch, &mut packets.selection, packets.interfaces, &mut self.ended);
        let passed = out.pass(packets);
        passed.and(self.expire(now, out))
    }

    fn flows(&mut self, _: &Ended<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        // Those of a meter before this one are its own affair.
        Ok(())
    }

    fn tick(&mut self, moment: &Moment<'_>, out: &mut Out<'_>) -> Result<Wants, Error> {
        if self.is_live {
            self.meter.set_clock(moment.now.plus_nanos(-ON_THEIR_WAY_NS));
            self.expire(moment.now, out)?;
        }
        Ok(Wants::More)
    }

    fn finish(&mut self, moment: &Moment<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        loop {
            let is_all = self.meter.finish(&mut self.ended);
            self.hand_on(moment.now, out)?;
            if is_all {
                return Ok(());
            }
        }
    }

    fn result(&self) -> Option<Table> {
        let all = self.statistics();
        let not = |cause: Cause| all.not_metered[cause as usize].packets;
        let ended = |reason: EndReason| all.ended.of(reason);
        Some(Table::of_numbers(&[
            ("packets", all.metered.packets),
            ("bytes", all.flow_bytes),
            ("not_ip", not(Cause::NotIp)),
            ("cut", not(Cause::Cut)),
            ("sampled_out", not(Cause::Sampled)),
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
        ]))
    }

    fn absorb(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<FlowStage>() {
            self.absorbed.merge(&other.statistics());
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// One of each block of packets, whichever chance says.
struct Sampler {
    interval: u64,
    chance: u64,
    /// Packets of this block that were seen, and which of them is wanted.
    at: u64,
    wanted: u64,
}

impl Sampler {
    fn new(interval: u64, seed: u64) -> Sampler {
        let mut sampler = Sampler { interval: interval.max(1), chance: seed, at: 0, wanted: 0 };
        sampler.wanted = sampler.below();
        sampler
    }

    fn choose(&mut self, packets: &mut Packets<'_>, meter: &mut Meter) {
        if self.interval == 1 {
            return;
        }
        let records = packets.batch.records();
        let (mut out, mut bytes) = (0, 0);
        packets.selection.retain(|index| {
            let is_wanted = self.next();
            if !is_wanted {
                out += 1;
                bytes += u64::from(records[index].meta.wire_len);
            }
            is_wanted
        });
        meter.note_sampled_out(out, bytes);
    }

    fn next(&mut self) -> bool {
        let is_wanted = self.at == self.wanted;
        self.at += 1;
        if self.at == self.interval {
            self.at = 0;
            self.wanted = self.below();
        }
        is_wanted
    }

    /// A number below the interval (splitmix64).
    fn below(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.chance;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (u128::from(bits ^ (bits >> 31)) * u128::from(self.interval) >> 64) as u64
    }
}
