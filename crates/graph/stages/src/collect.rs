//! `collect`: messages of routers and probes become flows.
//!
//! ```text
//! packets --UDP--> datagrams --Collector--> flows, to the stages right behind
//!    \--> refused, by cause                 \--> a row of the result for each source
//! ```
//!
//! An exporter that is alone behind it takes records in place of flows, if nothing here looks at flows:
//! [`Stage::record_layout`].
//!
//! The datagrams end here. Stages behind answer for the packets that the flows count: [`StageCounters::reported`].

use std::any::Any;
use std::cell;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use tapline_capture::Listener;
use tapline_collect::{
    Collector, CollectorSettings, DatagramFault, Forgotten, RefusedCause, SourceAccount, TemplateFile,
};
use tapline_flow::export::{RecordBatch, RecordLayout};
use tapline_flow::{Flow, PacketCount, Sampling, Statistics};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Parameter, ParameterType, StageClass,
};
use tapline_graph::{
    Cell, ChangesPart, CollectedRecords, ExpiredFlows, FlowChanges, MeteredSecond, Out, Packets, Stage,
    StageCounters, StageStatus, Table, TickContext, grouped,
};
use tapline_packet::headers::Headers;
use tapline_packet::numbers::ip_protocol;
use tapline_packet::{Interface, Timestamp};
use tapline_source::{Error, InterfaceAccount, SkipCause};

use crate::flow::seconds::{begin_of, second_of};
use crate::flow_filter::FlowFilter;
use crate::flow_results::FlowResults;
use crate::settings::StageSettings;

/// Flows that are handed on at a time, unless a datagram has more.
const FLOWS_PER_PART: usize = 1024;

pub(crate) const CLASS: StageClass = StageClass {
    name: "collect",
    summary: "messages of routers and probes become flows: IPFIX, NetFlow, sFlow",
    description: "IPFIX, NetFlow v9, v7, v5 and v1, and sFlow v5 in UDP datagrams, distinguished by their first bytes; other datagrams are refused. Templates and sequence \
        numbers are kept for each source: the exporter's address and port, and its domain. Sets whose template has not come are held for it, 256 of each source. The result \
        has a row for each source, with the losses by its sequence numbers (docs/collect.md). Stages behind answer for the packets that the flows count.",
    parameters: &[
        Parameter::new("templates", ParameterType::Text, "")
            .means("a file that keeps templates over restarts; without one they are learnt again"),
        Parameter::new("scale", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether packets and bytes are multiplied by the sampling interval of the exporter, as an estimate"),
        Parameter::new("sources", ParameterType::Number(1, 1_000_000), "10000")
            .means("the most sources; then those are forgotten that have not proved to be exporters, or are silent for the longest time"),
        Parameter::new("filter", ParameterType::Text, "")
            .means("pass on only flows that this filter accepts, by addresses, protocol, ports, TCP flags and VLAN; a filter before this stage sees the messages"),
        Parameter::new("view", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether a `view` behind it gets the flows, once a second"),
    ],
    outputs: Outputs::Flows,
    order: Order::All,
    example: "listen(\"udp://:4739\") -> collect -> flowlog(\"-\")",
    access: |arguments, access| {
        access.reads_file(arguments.text("templates"));
        access.makes_file(arguments.text("templates"));
    },
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let file = match arguments.text("templates") {
        "" => None,
        path => Some(TemplateFile::open(&site.common.path(path)).map_err(|error| error.to_string())?),
    };
    let settings = CollectorSettings {
        sources_max: arguments.number("sources") as usize,
        scales: arguments.text("scale") == "yes",
    };
    let filter = FlowFilter::new(arguments.text("filter"), &StageSettings::of(site.common).options)?;
    let is_viewed = arguments.text("view") == "yes";
    Ok(Box::new(CollectStage {
        filter,
        collector: Collector::new(settings, file),
        flows: Vec::with_capacity(FLOWS_PER_PART),
        records: None,
        // Until messages come it is known to who opened the sources, and told with the view.
        is_live: is_viewed && StageSettings::of(site.common).view.as_ref().is_some_and(|view| view.is_live()),
        reported: 0,
        viewed: is_viewed.then(Viewed::default),
        has_told_of_file: false,
        has_told_of_room: false,
        has_told_of_sums: false,
    }))
}

/// The counts for a view, once a second.
#[derive(Default)]
struct Viewed {
    /// The second of the last flows or the last tick.
    now: Option<i64>,
    statistics: Statistics,
    accounts: Vec<InterfaceAccount>,
}

struct CollectStage {
    collector: Collector,
    filter: Option<FlowFilter>,
    flows: Vec<Flow>,
    /// Records in place of flows, in the layout of the stage behind.
    records: Option<(Arc<RecordLayout>, RecordBatch)>,
    is_live: bool,
    /// Packets that the flows count.
    reported: u64,
    viewed: Option<Viewed>,
    has_told_of_file: bool,
    has_told_of_room: bool,
    has_told_of_sums: bool,
}

impl CollectStage {
    /// Reads a packet, which is a whole datagram of UDP.
    fn read(&mut self, headers: &Headers, data: &[u8], received: Timestamp) {
        let is_udp = headers.protocol() == Some(ip_protocol::UDP);
        let (Some(payload), Some((from, _)), true) = (headers.payload(), headers.addresses(data), is_udp)
        else {
            return self.collector.refuse(DatagramFault::NotExport);
        };
        if headers.fragment().is_some() {
            return self.collector.refuse(DatagramFault::Short);
        }
        let from = SocketAddr::new(from.to_canonical(), headers.ports(data).map_or(0, |(port, _)| port));
        let datagram = data.get(payload..headers.ip_end()).unwrap_or_default();
        // A refused datagram is counted by the collector.
        if let Some((layout, records)) = &mut self.records {
            let _ = self.collector.read_records(from, received, datagram, layout, records);
            return;
        }
        let first = self.flows.len();
        let _ = self.collector.read(from, received, datagram, &mut self.flows);
        if let Some(filter) = &mut self.filter {
            filter.retain(&mut self.flows, first, |flow| self.collector.filter_out(flow));
        }
    }

    /// Chooses between flows and records for the next packets.
    fn choose(&mut self, out: &Out<'_>) {
        let needs_flows = self.filter.is_some() || self.viewed.is_some();
        let layout = if needs_flows { None } else { out.record_layout() };
        let known = self.records.as_ref().map(|(known, _)| Arc::as_ptr(known));
        if known != layout.as_ref().map(Arc::as_ptr) {
            self.records = layout.map(|layout| (layout, RecordBatch::default()));
        }
    }

    /// Flows that wait to be handed on.
    fn waiting(&self) -> usize {
        self.records.as_ref().map_or(self.flows.len(), |(_, records)| records.flows() as usize)
    }

    fn hand_on(&mut self, now: Timestamp, out: &mut Out<'_>) -> Result<(), Error> {
        if let Some((_, records)) = &mut self.records {
            if records.flows() == 0 {
                return Ok(());
            }
            self.reported += records.packets();
            let handed = out.pass_records(&CollectedRecords { records, now, is_live: self.is_live });
            records.clear();
            return handed;
        }
        if self.flows.is_empty() {
            return Ok(());
        }
        let mut told = Ok(());
        if let Some(viewed) = &mut self.viewed {
            for flow in &self.flows {
                let count = PacketCount { packets: flow.packets(), bytes: flow.bytes() };
                viewed.statistics.metered.merge(count);
                viewed.statistics.flow_bytes = viewed.statistics.flow_bytes.saturating_add(count.bytes);
                viewed.statistics.made += 1;
                viewed.statistics.ended.count(flow.end_reason);
            }
            told = self.tell(Some(ChangesPart::Collected(&self.flows)), None, out);
        }
        self.reported += self.flows.iter().map(Flow::answered_packets).sum::<u64>();
        let handed = out.pass_flows(&ExpiredFlows {
            flows: &self.flows,
            now,
            sampling: Sampling::NONE,
            is_live: self.is_live,
            scale: 1,
            left_out: (SkipCause::SmallFlow, 0),
            is_collected: true,
        });
        self.collector.recycle(&mut self.flows);
        told.and(handed)
    }

    /// Reports the totals to the views behind, when a second is over.
    fn tell_second(&mut self, now: Timestamp, is_end: bool, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(viewed) = &mut self.viewed else { return Ok(()) };
        let second = second_of(now);
        let before = viewed.now.replace(second);
        if before == Some(second) && !is_end || before.is_none() {
            return Ok(());
        }
        let second = MeteredSecond {
            end: now,
            statistics: viewed.statistics,
            interfaces: Vec::new(),
            accounts: viewed.accounts.clone(),
            sampling: 1,
        };
        self.tell(None, Some(&second), out)
    }

    fn tell(
        &self,
        part: Option<ChangesPart<'_>>,
        second: Option<&MeteredSecond>,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let changes =
            FlowChanges { part, is_live: self.is_live, second, is_wanted_again: &cell::Cell::new(false) };
        out.pass_changes(&changes)
    }
}

/// Whether packets of these interfaces come now.
fn is_live(interfaces: &[Interface]) -> bool {
    interfaces.iter().any(|interface| interface.if_index > 0 || Listener::is_socket(interface))
}

impl Stage for CollectStage {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.is_live = is_live(packets.interfaces);
        self.choose(out);
        let mut handed = Ok(());
        let mut now = packets.now;
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let interface = packets.interfaces.get(packet.meta.interface.0 as usize);
            let Some(link_type) = interface.map(|interface| interface.link_type) else {
                self.collector.refuse(DatagramFault::NotExport);
                continue;
            };
            if !self.is_live {
                now = packet.meta.timestamp;
            }
            self.read(&Headers::parse(link_type, packet), packet.data, packet.meta.timestamp);
            if self.waiting() >= FLOWS_PER_PART {
                handed = handed.and(self.hand_on(now, out));
            }
        }
        handed = handed.and(self.hand_on(now, out));
        match self.is_live {
            true => handed,
            false => handed.and(self.tell_second(now, false, out)),
        }
    }

    fn flows(&mut self, _: &ExpiredFlows<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        // Flows of a meter before this one are not collected.
        Ok(())
    }

    fn changes(&mut self, _: &FlowChanges<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        if let Some(viewed) = &mut self.viewed {
            viewed.accounts.clear();
            viewed.accounts.extend_from_slice(tick.interfaces);
        }
        if self.is_live {
            self.tell_second(tick.now, false, out)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.collector.finish();
        let seen = self.viewed.as_ref().and_then(|viewed| viewed.now);
        let end = match self.is_live {
            true => tick.now,
            false => begin_of(seen.unwrap_or(0).saturating_add(1)),
        };
        self.tell_second(end, true, out)
    }

    fn counters(&self) -> StageCounters {
        let refused = DatagramFault::ALL.into_iter().map(|fault| self.collector.refused(fault)).sum();
        // The datagrams that were read end here: they are handed on as flows.
        StageCounters {
            refused: Some(refused),
            matched: Some(self.collector.datagrams()),
            ..StageCounters::default()
        }
    }

    fn result(&self) -> Option<Table> {
        let columns = [
            "exporter",
            "port",
            "protocol",
            "domain",
            "datagrams",
            "flows",
            "packets",
            "bytes",
            "lost",
            "unit",
            "late",
            "restarts",
            "sampling",
            "unscaled",
            "totals_forgotten",
            "templates",
            "held",
            "options",
            "filtered",
            "retimed",
        ];
        let columns = columns.into_iter().chain(RefusedCause::NAMES).chain(["first_ns", "last_ns"]).collect();
        let mut rows: Vec<Vec<Cell>> = self.collector.sources().into_iter().map(row).collect();
        rows.extend(forgotten_row(self.collector.forgotten()));
        Some(Table { columns, rows })
    }

    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(FlowResults::Sources(
            self.collector.sources().into_iter().cloned().collect(),
            self.collector.forgotten().clone(),
        )))
    }

    fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        let not_kept = self.collector.templates_not_kept();
        if not_kept > 0 && !mem::replace(&mut self.has_told_of_file, true) {
            events.push(
                "a template was not kept: its file has no room for it, or cannot be written".to_owned(),
            );
        }
        let forgotten = self.collector.forgotten().sources;
        if forgotten > 0 && !mem::replace(&mut self.has_told_of_room, true) {
            let what = "there are too many sources: those are forgotten that have not proved to be exporters, or are \
                        silent for the longest time (--sources-max; in graphs sources=)";
            events.push(what.to_owned());
        }
        if self.collector.is_beyond() && !mem::replace(&mut self.has_told_of_sums, true) {
            let what = "the flows of all sources count more than 2^63 packets, which forged records do: in the account \
                        each flow stands for one packet of each side from here on, so its sums are at least what they say";
            events.push(what.to_owned());
        }
        events
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let sources = self.collector.sources();
        tell("sources", sources.len() as u64);
        tell("forgotten", self.collector.forgotten().sources);
        tell("flows", sources.iter().map(|source| source.flows).sum());
        tell("missing", sources.iter().map(|source| source.lost).sum());
    }
}

fn row(source: &SourceAccount) -> Vec<Cell> {
    let mut cells = vec![
        Cell::from(source.exporter.to_string()),
        Cell::from(u64::from(source.port)),
        Cell::from(source.protocol.name().to_owned()),
    ];
    cells.extend([source.domain.into(), source.datagrams, source.flows].map(Cell::from));
    cells.extend([source.packets, source.bytes].map(Cell::of_sum));
    cells.extend([Cell::from(source.lost)]);
    cells.push(Cell::from(source.unit.to_owned()));
    cells.extend([source.late, source.restarts].map(Cell::from));
    cells.push(Cell::from(source.sampling.map(u64::from)));
    let numbers = [
        source.unscaled,
        source.totals_forgotten,
        source.templates,
        source.held,
        source.options,
        source.filtered,
        source.retimed,
    ];
    cells.extend(numbers.map(Cell::from));
    cells.extend(source.refused.map(Cell::from));
    let time = |time: Option<Timestamp>| time.map_or(Cell::Unknown, |time| Cell::Time(time.as_nanos()));
    cells.extend([source.span.map(|span| span.0), source.span.map(|span| span.1)].map(time));
    cells
}

/// The sum of the sources that were forgotten, so that the rows sum up to all that was read.
fn forgotten_row(forgotten: &Forgotten) -> Option<Vec<Cell>> {
    if forgotten.sources == 0 {
        return None;
    }
    let mut cells = row(&forgotten.account);
    cells[0] = Cell::from(format!("{} forgotten", grouped(forgotten.sources)));
    // Port, protocol, domain, and the unit of what is lost.
    [1, 2, 3, 9].iter().for_each(|at| cells[*at] = Cell::Unknown);
    Some(cells)
}
