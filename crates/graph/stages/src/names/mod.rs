//! `names`: flows by the name that their client asks for, with the packets before it.
//!
//! ```text
//! packets --> meter (TLS, HTTP, DNS) --> flow: waits | is wanted | is not
//!    is not wanted   refused
//!    is wanted       on its way, if no packet waits before it
//!    waits           a copy in the queue, in the order of arrival, until the first of these:
//!                    the name is known; `packets` of the flow came; `hold` is over; there is no room
//! ```
//!
//! Packets leave in the order in which they came, so one that is wanted waits for those before it.

mod expand;
mod queue;
mod words;

use tapline_flow::{
    DetailFields, Flow, Journal, JournalEntry, Meter, MeterSettings, PayloadFacts, TIMEOUT_MAX,
};
use tapline_graph::catalog::{Arguments, Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::{ClockReading, Selection, Timestamp};
use tapline_source::Error;

use crate::live_clock::{AHEAD_NS, ON_THEIR_WAY_NS};
use queue::{Decision, FlowStates, Queue};
use words::{NameKind, NameWords};

pub(crate) use expand::expand;
pub use words::split_names;

pub(crate) const CLASS: StageClass = StageClass {
    name: "names",
    summary: "packets of flows whose client asks for a name: in TLS, HTTP or DNS",
    description: "Words: sni(NAME) for TLS, DTLS and QUIC, http_host(NAME), dns_name(NAME), several joined by `or`; NAME is www.example.org, or .example.org for \
        that name and all below it, and several may have commas between them. The name is in the first packets of a flow, so these wait for it, as copies, in the \
        order in which they came. A flow whose name is not known after `packets` of its packets, or after `hold`, is refused, as are flows \
        that began before the capture. If there is no room for more packets, the flow of the oldest one is refused, and counted (no_room). A filter may \
        have the words too: filter(\"tcp port 443 and sni(.example.org)\") is filter(\"tcp port 443\") -> names(\"sni(.example.org)\").",
    parameters: &[
        Parameter::required("words", ParameterType::Text)
            .means("the names: \"sni(.example.org) or http_host(www.example.org)\""),
        Parameter::new("hold", ParameterType::Duration, "1s")
            .means("the longest time that a packet waits for the name of its flow"),
        Parameter::new("packets", ParameterType::Number(1, 1000), "16")
            .means("packets of a flow, of both directions, by which its name must be known"),
        Parameter::new("room", ParameterType::Number(1_000_000, 4_000_000_000), "16M")
            .means("bytes of packets that wait, with about 100 for each packet"),
        Parameter::new("flows", ParameterType::Number(1, 100_000_000), "262144")
            .means("flows at a time; one more forgets the flow that was idle longest. About 600 bytes each, allocated as flows come"),
    ],
    order: Order::Flow,
    example: "device(eth0) -> names(\"sni(.example.org)\") -> record(\"example.pcapng\")",
    make: Constructor::Stage(|arguments, _| Ok(Box::new(make(arguments)?))),
    ..StageClass::BASE
};

/// Silence after which a flow is forgotten: its next packets are those of a flow that began before.
const IDLE_NS: i64 = 300_000_000_000;

fn make(arguments: &Arguments) -> Result<Names, String> {
    let bounds = Bounds {
        hold_ns: arguments.nanoseconds("hold") as i64,
        packets: arguments.number("packets") as u32,
        room: arguments.number("room") as usize,
        flows: arguments.number("flows") as usize,
    };
    Names::new(arguments.text("words"), bounds)
}

/// Bounds of the packets that wait.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    hold_ns: i64,
    packets: u32,
    room: usize,
    flows: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { hold_ns: 1_000_000_000, packets: 16, room: 16_000_000, flows: 262_144 }
    }
}

/// The stage, which other chains of stages have too.
pub struct Names {
    words: NameWords,
    bounds: Bounds,
    meter: Meter,
    journal: Option<Journal>,
    ended: Vec<Flow>,
    flows: FlowStates,
    queue: Queue,
    /// The flow of each packet of a batch.
    of_packets: Vec<u32>,
    /// The time of the last packet.
    latest: Option<Timestamp>,
    is_live: bool,
    refused: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    wanted: u64,
    others: u64,
    /// Flows that were refused because their name was not known in time.
    late: u64,
    no_room: u64,
    told_no_room: u64,
}

impl Names {
    /// Names of a filter, with the default bounds.
    ///
    /// # Errors
    /// Words that are not such, or no memory.
    pub fn of_words(words: &str) -> Result<Names, String> {
        Names::new(words, Bounds::default())
    }

    fn new(words: &str, bounds: Bounds) -> Result<Names, String> {
        let words = NameWords::parse(words)?;
        let details = DetailFields {
            tls: words.has(NameKind::Sni),
            http: words.has(NameKind::HttpHost),
            dns: words.has(NameKind::DnsName),
            application: true,
            ..DetailFields::NONE
        };
        let settings = MeterSettings {
            active_ns: TIMEOUT_MAX.as_nanos() as i64,
            idle_ns: IDLE_NS,
            flows_max: bounds.flows,
            details,
            ..MeterSettings::default()
        };
        let mut meter = Meter::new(&settings).map_err(|error| error.to_string())?;
        meter.keep_journal();
        Ok(Names {
            words,
            bounds,
            meter,
            journal: Some(Journal::default()),
            ended: Vec::new(),
            flows: FlowStates::default(),
            queue: Queue::new(bounds.room),
            of_packets: Vec::new(),
            latest: None,
            is_live: false,
            refused: 0,
            counts: Counts::default(),
        })
    }

    /// Meters packets, and notes the flow of each in `flows`, by its place in the selection.
    fn meter(&mut self, packets: &Packets<'_>, selection: &mut Selection, of_packets: &mut Vec<u32>) {
        self.meter.push(&packets.batch, selection, packets.interfaces, &mut self.ended);
        self.ended.clear();
        let journal = self.meter.take_journal(self.journal.take().unwrap_or_default());
        let Some(mut journal) = journal else { return };
        for entry in journal.entries() {
            match entry {
                JournalEntry::Begun { slot, .. } => self.flows.begin(slot),
                JournalEntry::Packet { slot, .. } => {
                    let flow = self.flows.packet(slot);
                    if self.flows.is_over(flow, self.bounds.packets) {
                        self.counts.late += 1;
                        self.flows.decide(flow, Decision::Other);
                    }
                    of_packets.push(flow);
                }
                JournalEntry::Said { slot, said } => self.hear(slot, said),
                JournalEntry::Ended { slot, .. } => self.flows.end(slot),
                JournalEntry::Named { .. } => {}
            }
        }
        journal.clear();
        self.journal = Some(journal);
    }

    /// Decides about a flow by its application and name so far.
    fn hear(&mut self, slot: u32, said: &PayloadFacts) {
        let kind = match said.application {
            Some("http") => NameKind::HttpHost,
            Some("domain") => NameKind::DnsName,
            _ => NameKind::Sni,
        };
        let decision = match &said.name {
            Some(name) if self.words.accept(kind, name) => Decision::Wanted,
            Some(_) => Decision::Other,
            None if self.is_of_others(said.application) => Decision::Other,
            // It may be said in a later packet: of a handshake, or behind a greeting.
            None => return,
        };
        let flow = self.flows.of(slot);
        if self.flows.decide(flow, decision) {
            match decision {
                Decision::Wanted => self.counts.wanted += 1,
                _ => self.counts.others += 1,
            }
        }
    }

    /// Whether flows of an application have no name that is wanted.
    fn is_of_others(&self, application: Option<&str>) -> bool {
        match application {
            Some("http") => !self.words.has(NameKind::HttpHost),
            Some("domain") => !self.words.has(NameKind::DnsName),
            Some("tls" | "dtls" | "quic") => !self.words.has(NameKind::Sni),
            Some("ssh") => true,
            _ => false,
        }
    }

    /// Keeps a copy of a packet; flows of the oldest packets are refused until there is room.
    fn keep(
        &mut self,
        packets: &Packets<'_>,
        index: usize,
        flow: u32,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let packet = packets.batch.packet(index);
        let mut result = Ok(());
        while !self.queue.has_room(packet.data.len()) && !self.queue.is_empty() {
            self.counts.no_room += u64::from(self.queue.give_up_first(&mut self.flows));
            result = result.and(self.release(packets.clocks(), out));
        }
        match self.flows.decision(flow) {
            Decision::Other => self.refuse(flow),
            _ => self.queue.keep(packet, flow),
        }
        result
    }

    fn refuse(&mut self, flow: u32) {
        self.refused += 1;
        self.flows.left(flow);
    }

    /// Hands on what is decided at the front of the queue.
    fn release(&mut self, now: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        let mut result = Ok(());
        loop {
            let (lent, refused) = self.queue.take(&mut self.flows);
            self.refused += refused;
            if lent == 0 && refused == 0 {
                return result;
            }
            result = result.and(self.queue.lend(now, out));
        }
    }

    /// Refuses flows whose packets have waited for too long at this time, and hands on what is decided.
    fn advance(&mut self, time: Timestamp, now: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        let before = time.plus_nanos(-self.bounds.hold_ns);
        self.counts.late += self.queue.give_up_before(before, &mut self.flows);
        self.release(now, out)
    }
}

impl Stage for Names {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.is_live = packets.interfaces.iter().any(|interface| interface.if_index > 0);
        if self.is_live {
            self.meter.set_latest(packets.now.plus_nanos(AHEAD_NS));
        }
        self.queue.learn(packets.interfaces);
        let mut selection = packets.selection.clone();
        let all = selection.len() as u64;
        let mut of_packets = std::mem::take(&mut self.of_packets);
        of_packets.clear();
        self.meter(packets, &mut selection, &mut of_packets);
        // Packets without IP have no flow.
        self.refused += all - selection.len() as u64;
        let mut result = self.release(packets.clocks(), out);
        let mut direct = Selection::none();
        for (index, flow) in selection.iter().zip(of_packets.iter().copied()) {
            self.latest = Some(packets.batch.packet(index).meta.timestamp);
            match self.flows.decision(flow) {
                Decision::Other => self.refuse(flow),
                Decision::Wanted if self.queue.is_empty() => {
                    direct.push(index);
                    self.flows.left(flow);
                }
                _ => {
                    if !direct.is_empty() {
                        let first = std::mem::replace(&mut direct, Selection::none());
                        result = result.and(out.pass(&mut packets.narrowed_to(first)));
                    }
                    result = result.and(self.keep(packets, index, flow, out));
                }
            }
        }
        if !direct.is_empty() {
            result = result.and(out.pass(&mut packets.narrowed_to(direct)));
        }
        self.of_packets = of_packets;
        while !self.meter.expire(&mut self.ended) {
            self.ended.clear();
        }
        self.ended.clear();
        match self.latest {
            Some(latest) => result.and(self.advance(latest, packets.clocks(), out)),
            None => result,
        }
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        if self.is_live {
            let now = tick.now.plus_nanos(-ON_THEIR_WAY_NS);
            self.meter.set_clock(now);
            self.advance(now, tick.clocks(), out)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.counts.late += self.queue.give_up_before(Timestamp::from_nanos(i64::MAX), &mut self.flows);
        self.release(tick.clocks(), out)
    }

    fn counters(&self) -> StageCounters {
        StageCounters {
            refused: Some(self.refused),
            held: self.queue.len() as u64,
            ..StageCounters::default()
        }
    }

    fn result(&self) -> Option<Table> {
        let Counts { wanted, others, late, no_room, .. } = self.counts;
        Some(Table::of_numbers(&[
            ("flows", wanted),
            ("others", others),
            ("late", late),
            ("no_room", no_room),
            ("refused", self.refused),
        ]))
    }

    fn events(&mut self) -> Vec<String> {
        let new = self.counts.no_room - self.counts.told_no_room;
        self.counts.told_no_room = self.counts.no_room;
        let told = format!("names: {new} flows were refused for lack of room before their name was known");
        if new > 0 { vec![told] } else { Vec::new() }
    }

    fn merge(&mut self, other: &dyn std::any::Any) {
        if let Some(other) = other.downcast_ref::<Names>() {
            self.counts.wanted += other.counts.wanted;
            self.counts.others += other.counts.others;
            self.counts.late += other.counts.late;
            self.counts.no_room += other.counts.no_room;
            self.refused += other.refused;
        }
    }
}

#[cfg(test)]
mod tests;
