//! Flows that leave the graph: the common part of `ipfix` and `flowlog`.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tapline_flow::export::{Element, ExportAccount, ExportOptions, FlowSink, RecordLayout};
use tapline_flow::{DetailFields, Sampling};
use tapline_graph::catalog::{Arguments, BuildContext};
use tapline_graph::{
    CollectedRecords, Control, ExpiredFlows, Out, Packets, Stage, StageCounters, StageStatus, Table,
    TickContext, grouped,
};
use tapline_packet::Timestamp;
use tapline_source::{Error, OutputAccount, SkipCause};

use super::places::{self, PlaceReader};

/// Ticks in a second. After some of them a message of a live interface is sent though it is not full. Messages of files
/// are sent full, so that they do not depend on the speed of reading.
const TICKS_A_SECOND: u64 = 10;
/// Default time that messages and lines wait to be full.
pub(super) const DELAY: Duration = Duration::from_secs(1);
/// Timeout of a TCP message: short on live interfaces, where the ring fills meanwhile, and longer for files.
const WRITE_TIMEOUT_LIVE: Duration = Duration::from_millis(250);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of standard output in errors of flow sinks.
const STANDARD_OUTPUT: &str = "standard output";

/// Sampling of a meter, as its records report it. Collected flows have it in each record.
pub(super) fn sampling_of(meter: &Arguments) -> Sampling {
    let interval = sampling_factor(meter) as u32;
    if meter.get("sample_by").is_none() {
        return Sampling::NONE;
    }
    match meter.text("sample_by") {
        _ if meter.text("scale") == "yes" => Sampling::NONE,
        "flow" => Sampling::Flows(interval),
        _ => Sampling::Packets(interval),
    }
}

/// The sampling interval of a meter.
fn sampling_factor(meter: &Arguments) -> u64 {
    meter.get("sample").map_or(1, |_| meter.number("sample"))
}

/// Checks that the meters collect the details that a template needs.
pub(super) fn check_details(meters: &[&Arguments], own: &Arguments) -> Result<(), String> {
    let factor = |meter: &&Arguments| if meter.text("scale") == "yes" { sampling_factor(meter) } else { 1 };
    if meters.iter().any(|meter| factor(meter) != factor(&meters[0])) {
        return Err("its meters scale flows by different factors: give each a stage of its own".to_owned());
    }
    let needed = Element::needs_of(own.text("template"));
    for meter in meters {
        // A wrong word is reported by the meter.
        let asked = DetailFields::parse(meter.get("details").unwrap_or("none")).unwrap_or(needed);
        let missing = needed.without(asked);
        if missing.any() {
            let words = needed.with(asked).words();
            return Err(format!(
                "its template has elements of {}, which its meter does not collect: write flow(details=\"{words}\")",
                missing.words()
            ));
        }
    }
    Ok(())
}

/// Value of the parameter `exporter` for flows that were collected: each brings its exporter's address.
const RECORDS: &str = "records";

/// The options of records of this template, as each class that exports flows has them.
pub(super) fn options(
    arguments: &Arguments,
    site: &BuildContext<'_>,
    template: &str,
) -> Result<ExportOptions, String> {
    let exporter = match arguments.text("exporter") {
        "none" | RECORDS => None,
        text => {
            Some(text.parse().map_err(|_| format!("exporter=\"{text}\" is not an address of IPv4 or IPv6"))?)
        }
    };
    Ok(ExportOptions {
        domain: (arguments.number("domain") as u32).wrapping_add(site.worker as u32),
        exporter,
        is_collected: arguments.text("exporter") == RECORDS,
        has_places: places::is_given(arguments),
        ..ExportOptions::of_rows(template, arguments.text("biflow") == "yes")
    })
}

/// The stage that hands flows to `exporter`, and `places` with them. On live interfaces a message that is not full waits for `delay` at most.
pub(super) fn stage(
    class: &'static str,
    exporter: impl FlowSink + 'static,
    delay: Duration,
    places: Option<PlaceReader>,
    control: &Arc<Control>,
) -> Box<dyn Stage> {
    let ticks_waiting = (delay.as_millis() as u64 * TICKS_A_SECOND / 1000).clamp(1, u32::MAX.into()) as u32;
    Box::new(ExportStage {
        class,
        exporter: Box::new(exporter),
        places,
        received: 0,
        given: 0,
        reported: 0,
        left_out: (SkipCause::SmallFlow, 0),
        scale: 1,
        now: None,
        is_live: false,
        ticks: 0,
        ticks_waiting,
        is_finished: false,
        absorbed: ExportAccount::default(),
        reloads: control.reloads().count(),
        control: Arc::clone(control),
        events: Vec::new(),
        notices: Vec::new(),
    })
}

struct ExportStage {
    class: &'static str,
    exporter: Box<dyn FlowSink>,
    places: Option<PlaceReader>,
    /// Packets received, and packets counted by the flows received.
    received: u64,
    given: u64,
    /// Flows among `given` that other exporters metered.
    reported: u64,
    /// Packets of flows that were not handed on, and why.
    left_out: (SkipCause, u64),
    /// The factor of the counts of flows.
    scale: u64,
    /// The time of the last flows.
    now: Option<Timestamp>,
    is_live: bool,
    ticks: u32,
    ticks_waiting: u32,
    is_finished: bool,
    /// The account of this stage in other workers, after they ended.
    absorbed: ExportAccount,
    /// Requests to read and open files again that were obeyed.
    reloads: u64,
    control: Arc<Control>,
    events: Vec<String>,
    notices: Vec<String>,
}

/// Losses of a run over files are an error: such a run waits for its receivers.
pub(super) fn check_losses(what: &str, losses: &[(String, u64, u64)], is_live: bool) -> Result<(), Error> {
    if is_live || losses.is_empty() {
        return Ok(());
    }
    let source = format!("not all was taken: {}", losses_text(losses)).into();
    Err(Error::Output { what: what.to_owned(), source })
}

fn losses_text(losses: &[(String, u64, u64)]) -> String {
    let one = |(name, messages, packets): &(String, u64, u64)| {
        format!("{name}: {} messages, {} packets", grouped(*messages), grouped(*packets))
    };
    losses.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl ExportStage {
    /// Opens the file again if it was renamed; one that cannot be opened is reported, and the previous one stays.
    fn reopen(&mut self, now: Timestamp) {
        match self.exporter.reopen(now) {
            Ok(true) => {
                self.notices.push(format!("{} opened again", self.exporter.account().packets.name));
            }
            Ok(false) => {}
            Err(error) => self.events.push(format!("{error}; the file before stays")),
        }
    }

    /// Notes the time of flows, and whether they are live.
    fn note(&mut self, now: Timestamp, is_live: bool) {
        self.now = Some(now);
        self.is_live = is_live;
        self.exporter.set_live(is_live);
        self.exporter.set_write_timeout(if is_live { WRITE_TIMEOUT_LIVE } else { WRITE_TIMEOUT });
    }

    fn checked(&self, result: Result<(), tapline_flow::Error>) -> Result<(), Error> {
        result.map_err(|error| match error {
            // As for lines of packets: the reader of the pipe has closed it.
            tapline_flow::Error::Write { collector, source }
                if source.kind() == io::ErrorKind::BrokenPipe && collector == STANDARD_OUTPUT =>
            {
                Error::BrokenPipe { what: collector }
            }
            error => Error::Output { what: self.class.to_owned(), source: Box::new(error) },
        })
    }
}

impl Stage for ExportStage {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        Ok(())
    }

    fn flows(&mut self, ended: &ExpiredFlows<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.note(ended.now, ended.is_live);
        let set = self.exporter.set_sampling(ended.sampling);
        self.checked(set)?;
        if let Some(places) = self.places.as_mut().and_then(PlaceReader::take_new) {
            self.exporter.set_places(&places);
        }
        let (cause, left_out) = ended.left_out;
        self.scale = ended.scale.max(1);
        self.left_out = (cause, self.left_out.1 + left_out);
        let packets = ended.flows.iter().map(|flow| flow.answered_packets() / self.scale).sum::<u64>();
        self.given += packets;
        self.reported += ended.reported();
        self.given += left_out;
        let exported = self.exporter.export(ended.flows, ended.now);
        self.checked(exported)
    }

    fn record_layout(&self) -> Option<Arc<RecordLayout>> {
        // Files of places complete the systems that a router has left out.
        if self.places.is_some() { None } else { self.exporter.record_layout() }
    }

    fn records(&mut self, collected: &CollectedRecords<'_>) -> Result<(), Error> {
        self.note(collected.now, collected.is_live);
        let packets = collected.records.packets();
        self.given += packets;
        self.reported += packets;
        let exported = self.exporter.export_records(collected.records, collected.now);
        self.checked(exported)
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.ticks += 1;
        let reloads = self.control.reloads().count();
        if std::mem::replace(&mut self.reloads, reloads) != reloads {
            self.reopen(tick.now);
        }
        if self.is_live && self.ticks.is_multiple_of(self.ticks_waiting) {
            let flushed = self.exporter.flush(tick.now);
            self.checked(flushed)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.is_finished = true;
        let finished = self.exporter.finish(self.now.unwrap_or(tick.now));
        self.checked(finished)?;
        check_losses(self.class, &self.exporter.account().losses, self.is_live)
    }

    fn counters(&self) -> StageCounters {
        let OutputAccount { name, written, lost, buffered, .. } = self.exporter.account().packets;
        let [written, lost, buffered] = [written, lost, buffered].map(|packets| packets / self.scale);
        // Until the end there are packets in flows that go on. Whatever did not come by then is lost.
        let rest = (self.received + self.reported).saturating_sub(self.given);
        let (in_flows, missing) = if self.is_finished { (0, rest) } else { (rest, 0) };
        let output = OutputAccount {
            name,
            written,
            lost: lost + missing,
            buffered: buffered + in_flows,
            skipped: Some(self.left_out),
            ..OutputAccount::default()
        };
        StageCounters { reported: self.reported, ..StageCounters::of_output(output) }
    }

    fn result(&self) -> Option<Table> {
        let mut all = self.exporter.account();
        all.merge(&self.absorbed);
        let rows = [("flows", all.flows), ("records", all.records), ("octets", all.octets)];
        let mut table = Table::of_numbers(&[&rows[..], &all.counters].concat());
        if !all.losses.is_empty() {
            table.add("lost_by", losses_text(&all.losses).into());
        }
        Some(table)
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn events(&mut self) -> Vec<String> {
        let mut events = self.exporter.take_events();
        events.append(&mut self.events);
        events.extend(self.places.iter().flat_map(PlaceReader::take_messages));
        events
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let all = self.exporter.account();
        tell("flows", all.flows);
        tell("records", all.records);
        all.counters.iter().for_each(|(name, value)| tell(name, *value));
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<ExportStage>() {
            self.absorbed.merge(&other.exporter.account());
            self.absorbed.merge(&other.absorbed);
        }
    }
}
