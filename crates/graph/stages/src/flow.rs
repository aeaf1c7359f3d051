//! `flow`: packets become flows.
//!
//! ```text
//! packets --> meter --> packets that belong to flows
//!               \-----> flows that have ended, to the stages right behind
//! ```

mod choice;
pub(super) mod seconds;

use std::any::Any;
use std::cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use tapline_flow::{
    DetailFields, EndReason, Flow, Journal, KeyFields, Meter, MeterSettings, PAYLOAD_MAX, Sampling,
    Statistics, UnmeteredCause,
};
use tapline_graph::catalog::{Arguments, Constructor, Order, Outputs, Parameter, ParameterType, StageClass};
use tapline_graph::{
    Cell, ChangesPart, ExpiredFlows, FlowChanges, MeteredSecond, Out, Packets, Stage, StageStatus, Table,
    TickContext,
};
use tapline_packet::{ClockReading, Interface, Selection, Timestamp};
use tapline_source::Error;

use crate::flow_export::sampling_of;
use crate::flow_results::FlowResults;
use crate::live_clock::{AHEAD_NS, LiveClock, ON_THEIR_WAY_NS};
use crate::sample::Blocks;
use crate::settings::StageSettings;
use choice::Choice;
use seconds::{Seconds, begin_of, second_of};

pub(crate) const CLASS: StageClass = StageClass {
    name: "flow",
    summary: "meters flows, for ipfix or flowtop right behind",
    description: "One entry holds both directions of a flow. Packets that belong to a flow are passed on; those without IP, cut short or sampled \
        out are refused. Time is that of \
        the packets; on live interfaces flows end without packets, too. The result has the counters of the table (docs/flows.md).",
    parameters: &[
        Parameter::new("active", ParameterType::Duration, "60s")
            .means("a flow that lasts longer becomes a record, and continues in the next"),
        Parameter::new("idle", ParameterType::Duration, "15s")
            .means("a flow without a packet for longer ends"),
        Parameter::new("closed", ParameterType::Duration, "2s")
            .means("after FIN both ways or RST, the silence that ends a flow"),
        Parameter::new("flows", ParameterType::Number(1, 1_000_000_000), "1048576")
            .means("the most flows at a time; one more ends the flow that was idle longest. 195 bytes each, allocated as flows come"),
        Parameter::new("key", ParameterType::Text, "none")
            .means("fields of the key in addition to addresses, ports and protocol: vlan, mpls, tunnel, tos, interface; and fields to leave out: no-ports, no-client-port, no-protocol, ipv4/24, ipv6/64 (or other lengths); with commas"),
        Parameter::new("inner", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether tunnels are removed (GRE, VXLAN, Geneve, GTP, IP in IP, ERSPAN, MPLS)"),
        Parameter::new("bytes", ParameterType::Choice(&["ip", "frame"]), "ip")
            .means("whether bytes are those of IP packets or of frames"),
        Parameter::new("sample", ParameterType::Number(1, 1_000_000), "1")
            .means("the sampling interval: 1 in this many packets is metered, a random one of each block, or 1 in this many flows; records carry the interval and are not scaled"),
        Parameter::new("sample_by", ParameterType::Choice(&["packet", "flow"]), "packet")
            .means("whether packets are sampled or whole flows, both directions of each, by a hash of their keys (BOB of RFC 5475)"),
        Parameter::new("seed", ParameterType::Number(0, u32::MAX as u64), "0")
            .means("seed of the sample: meters with the same seed and key choose the same flows. 0 is a secret one on live interfaces, and of files always the same"),
        Parameter::new("details", ParameterType::Text, "none")
            .means("groups of details to collect: tcp, sizes, gaps, dns, tls, http, application, payload, ethernet, mpls, with commas; or all. Each costs time per packet and memory per flow"),
        Parameter::new("payload", ParameterType::Number(1, PAYLOAD_MAX as u64), "64")
            .means("bytes of each side's first payload that are kept, if details has payload"),
        Parameter::new("view", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether a `view` behind it gets the counts of each flow; 8 bytes a packet go to its thread"),
        choice::MIN_PACKETS,
        choice::MIN_BYTES,
        choice::DIRECTIONS,
        Parameter::new("scale", ParameterType::Choice(&["no", "yes"]), "no")
            .means("with sample: whether packets and bytes of flows are multiplied by the sampling interval; records then carry the interval 1"),
    ],
    outputs: Outputs::Flows,
    order: Order::Flow,
    example: "device(eth0) -> flow(active=60s, idle=15s) -> ipfix(\"127.0.0.1:4739\")",
    make: Constructor::Stage(|arguments, site| {
        let settings = settings(arguments)?;
        let mut meter = Meter::new(&settings).map_err(|error| error.to_string())?;
        let is_viewed = arguments.text("view") == "yes";
        if is_viewed {
            meter.keep_journal();
        }
        Ok(Box::new(FlowStage {
            meter,
            seconds: is_viewed.then(Seconds::default),
            sampler: Sampler {
                sampling: sampling_of(arguments),
                interval: arguments.number("sample"),
                is_by_flow: arguments.text("sample_by") == "flow",
                seed: arguments.number("seed"),
                worker: site.worker as u64,
                blocks: None,
                is_seeded: false,
            },
            choice: Choice::of(arguments)?,
            scale: if arguments.text("scale") == "yes" { arguments.number("sample") } else { 1 },
            ended: Vec::with_capacity(1024),
            // Until packets come it is known to who opened the sources, and told with the view.
            is_live: is_viewed
                && StageSettings::of(site.common).view.as_ref().is_some_and(|view| view.is_live()),
            clock: LiveClock::default(),
            absorbed: Statistics::default(),
            span: None,
        }))
    }),
    ..StageClass::BASE
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

struct FlowStage {
    meter: Meter,
    /// With `view=yes`.
    seconds: Option<Seconds>,
    sampler: Sampler,
    choice: Choice,
    /// The factor of the counts of flows.
    scale: u64,
    ended: Vec<Flow>,
    is_live: bool,
    clock: LiveClock,
    /// Counters of this stage in other workers, after they ended.
    absorbed: Statistics,
    /// The earliest and the latest packet of flows that have ended.
    span: Option<(Timestamp, Timestamp)>,
}

impl FlowStage {
    /// Takes flows out that are not handed on, and scales the rest; the packets of those taken out.
    fn select(&mut self) -> u64 {
        let left_out_packets = self.choice.select(&mut self.ended);
        if self.scale > 1 {
            for side in self.ended.iter_mut().flat_map(|flow| &mut flow.endpoints) {
                side.packets = side.packets.saturating_mul(self.scale);
                side.bytes = side.bytes.saturating_mul(self.scale);
            }
        }
        left_out_packets
    }

    fn hand_on(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let told = self.hand_on_journal(out);
        let now = if self.is_live { now } else { self.meter.clock().unwrap_or(now) };
        let left_out = (self.choice.cause(), self.select());
        let sampling = self.sampler.sampling;
        let (flows, scale) = (self.ended.as_slice(), self.scale);
        let spans = flows.iter().filter_map(|flow| Some((flow.began()?, flow.last())));
        self.span = self.span.into_iter().chain(spans).reduce(both);
        let handed = out.pass_flows(&ExpiredFlows {
            flows,
            now,
            sampling,
            is_live: self.is_live,
            scale,
            left_out,
            is_collected: false,
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

    /// Ends all flows if the wall clock was set back.
    fn follow_clock(&mut self, clocks: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        if self.clock.step_back(clocks).is_none() {
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

    /// Hands the journal on to the views behind, if it is full.
    fn hand_on_journal(&mut self, out: &mut Out<'_>) -> Result<(), Error> {
        match self.meter.journal().is_some_and(Journal::is_full) {
            true => self.tell(None, out),
            false => Ok(()),
        }
    }

    /// Passes a new second at `now` to the views behind: the rest of the previous one, and its totals.
    fn tell_second(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(seconds) = &mut self.seconds else { return Ok(()) };
        let second = second_of(now);
        match seconds.now.replace(second) {
            Some(before) if before != second => self.tell(Some(now), out),
            _ => Ok(()),
        }
    }

    /// Passes a second of a file, whose next packet is of this time: the second before ends with its last nanosecond,
    /// and time without packets is a second of its own, however long it is. Its time never goes back.
    fn tell_second_of_file(&mut self, next: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(seconds) = &mut self.seconds else { return Ok(()) };
        let second = second_of(next);
        let before = *seconds.now.get_or_insert(second);
        if second <= before {
            return Ok(());
        }
        seconds.now = Some(second);
        let told = self.tell(Some(begin_of(before.saturating_add(1))), out);
        match second.saturating_sub(before) {
            1 => told,
            _ => told.and(self.tell(Some(begin_of(second)), out)),
        }
    }

    /// Meters the packets of a batch. Of a file that is viewed, those of each second by themselves.
    fn meter(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let records = packets.batch.records();
        let time_of = |index: usize| records[index].meta.timestamp;
        let is_by_seconds = self.seconds.as_ref().is_some_and(|seconds| {
            let last = packets.selection.last().map(|last| second_of(time_of(last)));
            !self.is_live && last != seconds.now
        });
        if !is_by_seconds {
            self.meter_selected(packets);
            return Ok(());
        }
        let all = std::mem::take(&mut packets.selection);
        let (mut metered, mut told) = (Selection::none(), Ok(()));
        for index in all.iter() {
            let time = time_of(index);
            if self.seconds.as_ref().is_some_and(|seconds| seconds.now < Some(second_of(time))) {
                self.meter_selected(packets);
                packets.selection.iter().for_each(|index| metered.push(index));
                packets.selection.clear();
                told = told.and(self.tell_second_of_file(time, out));
            }
            packets.selection.push(index);
        }
        self.meter_selected(packets);
        packets.selection.iter().for_each(|index| metered.push(index));
        packets.selection = metered;
        told
    }

    fn meter_selected(&mut self, packets: &mut Packets<'_>) {
        self.sampler.choose(packets, &mut self.meter, self.is_live);
        self.meter.push(&packets.batch, &mut packets.selection, packets.interfaces, &mut self.ended);
    }

    /// Hands the journal on, with the totals of a second that ends here.
    fn tell(&mut self, end: Option<Timestamp>, out: &mut Out<'_>) -> Result<(), Error> {
        let FlowStage {
            meter, seconds: Some(Seconds { journals, interfaces, accounts, .. }), sampler, ..
        } = self
        else {
            return Ok(());
        };
        let journal = meter.take_journal(journals.empty()).map(Arc::new);
        let second = end.map(|end| {
            let (interfaces, accounts) = (interfaces.clone(), accounts.clone());
            let (statistics, sampling) = (meter.statistics(), sampler.interval);
            MeteredSecond { end, statistics, interfaces, accounts, sampling }
        });
        let is_wanted_again = &cell::Cell::new(false);
        let part = journal.as_ref().map(ChangesPart::Journal);
        let told = out.pass_changes(&FlowChanges {
            part,
            is_live: self.is_live,
            second: second.as_ref(),
            is_wanted_again,
        });
        journal.into_iter().for_each(|journal| journals.keep(journal));
        if is_wanted_again.get() {
            meter.describe_again();
        }
        told
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
        self.learn_interfaces(packets.interfaces);
        let told = self.meter(packets, out);
        let passed = out.pass(packets);
        let expired = self.expire(now, out);
        told.and(passed).and(expired).and(self.hand_on_journal(out))
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
            self.tell_second(tick.now, out)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let ended = self.end_all(tick.now, out);
        if let Some(seconds) = &mut self.seconds {
            seconds.accounts = tick.interfaces.to_vec();
        }
        let second = self.seconds.as_ref().and_then(|seconds| seconds.now).filter(|_| !self.is_live);
        let end = second.map_or(tick.now, |second| begin_of(second.saturating_add(1)));
        ended.and(self.tell(Some(end), out))
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
            ("small", self.choice.small_flows),
        ]);
        if self.choice.is_by_directions() {
            table.add("other_directions", self.choice.other_flows.into());
        }
        if let Some((first, last)) = self.span {
            table.add("first_ns", Cell::Time(first.as_nanos()));
            table.add("last_ns", Cell::Time(last.as_nanos()));
        }
        Some(table)
    }

    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(FlowResults::Meter(self.statistics(), self.span)))
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
            self.choice.merge(&other.choice);
            self.span = self.span.into_iter().chain(other.span).reduce(both);
        }
    }
}

/// Meters a random packet of each block, or has the meter choose flows.
struct Sampler {
    /// Sampling in the records.
    sampling: Sampling,
    interval: u64,
    is_by_flow: bool,
    /// The seed of the sample. 0 is fixed for files, so that each run is the same; secret on live interfaces, so that a
    /// sender cannot avoid the sample.
    seed: u64,
    worker: u64,
    /// Blocks of packets, since the first ones, which show whether they are live.
    blocks: Option<Blocks>,
    /// The meter knows the seed of flows.
    is_seeded: bool,
}

impl Sampler {
    fn choose(&mut self, packets: &mut Packets<'_>, meter: &mut Meter, is_live: bool) {
        if self.interval == 1 {
            return;
        }
        let secret = || RandomState::new().build_hasher().finish();
        let seed = || if is_live && self.seed == 0 { secret() } else { self.seed };
        if self.is_by_flow {
            if !std::mem::replace(&mut self.is_seeded, true) {
                meter.sample_flows(self.interval as u32, seed() as u32);
            }
            return;
        }
        let blocks = self
            .blocks
            .get_or_insert_with(|| Blocks::new(1, self.interval, seed().wrapping_add(self.worker)));
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
mod tests;
