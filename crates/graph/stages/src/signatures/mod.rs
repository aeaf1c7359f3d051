//! `signatures`: packets that match Snort's signatures, and a line of JSON for each alert.

mod alerts;
mod streams;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::path::Path;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Parameter, ParameterType, StageClass,
};
use tapline_graph::{Cell, Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::headers::{FiveTuple, Headers};
use tapline_packet::numbers::ip_protocol::TCP;
use tapline_packet::{BATCH_MAX, Packet, Selection, Timestamp};
use tapline_signature::{
    Action, Conversation, Detector, Direction, Finding, Refusal, Ruleset, Signature, Threshold,
    ThresholdState, Track, Variables,
};
use tapline_source::Error;

use super::input_file;
use super::recent::Recent;
use crate::settings::InterfaceOptions;
use crate::settings::StageSettings;
use alerts::{Alert, AlertFile};
use streams::StreamWindows;

pub(crate) const CLASS: StageClass = StageClass {
    name: "signatures",
    summary: "packets that match Snort's signatures",
    description: "Signatures in the language of Snort 2.9 and what Snort 3 and Suricata write alike: headers, content with its settings, pcre, flow, flow bits, sizes, \
        numbers in headers and payloads, thresholds (docs/signatures.md). A signature with an option that is not supported is refused by name, and the rest \
        of the file is used. Packets that are reported go to output 0: those of alert, log and drop, within thresholds; each alert is a line of JSON in the form \
        of Suricata's eve.json. Packets of a signature of the action pass alert nothing. If output 1 is connected, it gets all packets but those of the action \
        drop, in their order, for a stage that forwards: d :: device(eth0, direction=in) -> s :: signatures(\"local.rules\"); s[1] -> bounce(eth1). The result says how often each signature matched, and how often it was reported.",
    parameters: &[
        Parameter::required("file", ParameterType::Path).means("the signatures, one a line"),
        Parameter::new("variables", ParameterType::Text, "")
            .means("values of variables in headers: \"HOME_NET=10.0.0.0/8;HTTP_PORTS=[80,8080]\"; lines ipvar, portvar and var of the file count over these"),
        Parameter::new("alerts", ParameterType::Text, "")
            .means("the file of alerts, which is replaced; - is standard output; none without"),
        Parameter::new("streams", ParameterType::Choice(&["no", "yes"]), "no")
            .means("yes: contents may be spread over the packets of a TCP stream; the packet that completes them is passed on. Put reassemble \
                before this stage: without it, only the bytes of segments in disorder are examined, when their turn comes"),
        Parameter::new("refused", ParameterType::Choice(&["skip", "error"]), "skip")
            .means("skip: unsupported signatures are named, counted, and left out. error: the graph does not start"),
        Parameter::new("room", ParameterType::Number(1, 100_000_000), "100000")
            .means("flows, and pairs of signature and address with a threshold, that are remembered for certain; about 150 bytes each"),
        Parameter::new("n", ParameterType::Number(1, 100_000), "20")
            .means("signatures that the result shows"),
    ],
    outputs: Outputs::Many,
    order: Order::All,
    example: "device(eth0) -> signatures(\"local.rules\", variables=\"HOME_NET=10.0.0.0/8\", alerts=\"eve.json\") -> record(\"alerts.pcapng\")",
    access: |arguments, access| {
        access.reads_file(arguments.text("file"));
        access.makes_file(arguments.text("alerts"));
    },
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

const REFUSALS_TOLD: usize = 5;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let path = site.common.path(arguments.text("file"));
    let text = input_file::read(&path, input_file::PATTERNS_MAX)?;
    let variables = Variables::parse(arguments.text("variables"))?;
    let ruleset = Ruleset::parse(&text, variables);
    let (mut detector, refusals) =
        Detector::new(ruleset).map_err(|error| format!("{}: {error}", path.display()))?;
    if arguments.text("refused") == "error" && !refusals.is_empty() {
        return Err(told(&path, detector.signatures().len(), &refusals).join("\n"));
    }
    if detector.signatures().is_empty() {
        let reasons = told(&path, 0, &refusals).join("\n");
        return Err(format!("{} has no signature that can be used\n{reasons}", path.display()));
    }
    let room = arguments.number("room") as usize;
    let alerts = match arguments.text("alerts") {
        "" => None,
        "-" => Some(AlertFile::standard_output()),
        name => Some(AlertFile::create(&site.common.path(name))?),
    };
    let streams = (arguments.text("streams") == "yes").then(|| StreamWindows::new(room));
    if streams.is_some() {
        detector.expect_streams();
    }
    Ok(Box::new(Signatures {
        streams,
        reports: Reports {
            thresholds: Recent::new(room),
            tallies: vec![Tally::default(); detector.signatures().len()],
            alerts,
            failed: None,
            is_inline: false,
        },
        events: if refusals.is_empty() {
            Vec::new()
        } else {
            told(&path, detector.signatures().len(), &refusals)
        },
        detector,
        options: StageSettings::of(site.common).options.clone(),
        set_of: Vec::new(),
        forwarding: None,
        flows: Recent::new(room),
        n: arguments.number("n") as usize,
    }))
}

/// Messages for people about refused lines.
fn told(path: &Path, used: usize, refusals: &[Refusal]) -> Vec<String> {
    let head =
        format!("{}: {used} signatures are used, {} lines are refused", path.display(), refusals.len());
    let first = refusals.iter().take(REFUSALS_TOLD).map(ToString::to_string);
    let more = refusals.len().saturating_sub(REFUSALS_TOLD);
    let rest = (more > 0).then(|| format!("and {more} more lines are refused"));
    std::iter::once(head).chain(first).chain(rest).collect()
}

struct Signatures {
    detector: Detector,
    options: InterfaceOptions,
    /// The detector's set of headers for each interface.
    set_of: Vec<usize>,
    /// By canonical five-tuple.
    flows: Recent<FiveTuple, Conversation>,
    /// The last bytes of TCP streams, where contents may be spread over packets.
    streams: Option<StreamWindows>,
    reports: Reports,
    /// Packets of a graph in which packets are forwarded.
    forwarding: Option<ForwardCounts>,
    events: Vec<String>,
    n: usize,
}

/// The output of packets that are forwarded.
const FORWARDED: usize = 1;

/// Packets of a graph in which packets are forwarded.
#[derive(Clone, Copy, Default)]
struct ForwardCounts {
    /// Packets that a signature of the action drop kept from being forwarded.
    dropped: u64,
    /// Packets that went to at least one output.
    passed: u64,
}

/// Packets of a batch.
struct Verdicts {
    reported: [bool; BATCH_MAX],
    dropped: [bool; BATCH_MAX],
}

/// The outputs of findings.
struct Reports {
    thresholds: Recent<(u32, IpAddr), [ThresholdState; 2]>,
    /// By the signature's place in the detector.
    tallies: Vec<Tally>,
    alerts: Option<AlertFile>,
    /// The error of the first alert that could not be written. The batch is decided all the same, then the graph ends.
    failed: Option<Error>,
    /// Whether packets of the action drop are kept from being forwarded.
    is_inline: bool,
}

/// The fate of a packet.
#[derive(Clone, Copy, Default)]
struct Fate {
    is_reported: bool,
    is_dropped: bool,
}

/// Counters of a signature.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Packets that it fitted.
    fitted: u64,
    /// Reported findings: the others were beyond the threshold.
    reported: u64,
}

impl Signatures {
    /// Compiles the headers for interfaces that are new.
    fn extend(&mut self, packets: &Packets<'_>) -> Result<(), Error> {
        for interface in packets.interfaces.iter().skip(self.set_of.len()) {
            let options = (self.options)(interface);
            let set = self.detector.prepare(interface.link_type, &options);
            self.set_of.push(set.map_err(|error| Error::Filter(error.to_string()))?);
        }
        Ok(())
    }

    /// Evaluates the packets of one set of headers.
    fn inspect(&mut self, set: usize, packets: &Packets<'_>, verdicts: &mut Verdicts) {
        let mut selection = packets.selection.clone();
        selection.retain(|index| self.set_of.get(interface_of(packets, index)) == Some(&set));
        let headers = |index: usize| packets.headers(index);
        self.detector.search(set, &packets.batch, &selection, |index| {
            payload(&headers(index), packets.batch.packet(index).data)
        });
        for index in selection.iter() {
            let fate = self.inspect_packet(index, &headers(index), packets);
            (verdicts.reported[index], verdicts.dropped[index]) = (fate.is_reported, fate.is_dropped);
        }
    }

    /// Evaluates a packet.
    fn inspect_packet(&mut self, index: usize, headers: &Headers, packets: &Packets<'_>) -> Fate {
        let packet = packets.batch.packet(index);
        let piece = self.streams.as_mut().and_then(|streams| streams.take(headers, packet));
        let is_suspect = self.detector.is_suspect(index);
        let tuple = headers.five_tuple(packet.data);
        let Signatures { detector, flows, reports, .. } = self;
        let needs_state = is_suspect || piece.is_some();
        let flow = tuple.filter(|tuple| is_followed(detector, headers, packet, tuple.protocol, needs_state));
        let mut flow = flow.map(|tuple| observe(flows, tuple, headers, packet));
        let interface = packets.interfaces.get(packet.meta.interface.0 as usize);
        let interface = interface.map_or("", |interface| interface.name.as_str());
        let mut fate = Fate::default();
        let mut report = |finding: Finding<'_>| {
            let alert = Alert { signature: finding.signature, headers, packet, tuple, interface };
            let found = reports.take(finding.index, &alert);
            fate.is_reported |= found.is_reported;
            fate.is_dropped |= found.is_dropped;
        };
        if is_suspect {
            let flow = flow.as_mut().map(|(flow, direction)| (&mut **flow, *direction));
            detector.evaluate(index, packet.data, headers, payload(headers, packet.data), flow, &mut report);
        }
        if let Some(piece) = &piece {
            let flow = flow.as_mut().map(|(flow, direction)| (&mut **flow, *direction));
            detector.evaluate_stream(index, packet.data, headers, &piece.window(), flow, &mut report);
        }
        if let (Some(streams), Some(piece)) = (&mut self.streams, piece) {
            streams.put_back(piece);
        }
        fate
    }
}

impl Reports {
    /// Counts a finding, and writes its alert. `threshold` limits only reports: packets of the findings that it suppresses
    /// are dropped all the same.
    fn take(&mut self, index: usize, alert: &Alert<'_>) -> Fate {
        let Alert { signature, headers, packet, .. } = *alert;
        self.tallies[index].fitted += 1;
        let mut is_within = |at: usize, limit: Option<&Threshold>| {
            limit.is_none_or(|limit| {
                is_counted(&mut self.thresholds, (index as u32, at), limit, headers, packet)
            })
        };
        if !is_within(0, signature.detection_filter.as_ref()) {
            return Fate::default();
        }
        let is_dropped = signature.action == Action::Drop;
        if signature.is_silent || !is_within(1, signature.threshold.as_ref()) {
            return Fate { is_reported: false, is_dropped };
        }
        self.tallies[index].reported += 1;
        if let Some(file) = self.alerts.as_mut().filter(|_| signature.action != Action::Log)
            && let Err(error) = file.write(alert, is_dropped && self.is_inline)
        {
            self.failed.get_or_insert(error);
        }
        Fate { is_reported: true, is_dropped }
    }
}

/// The flow's state must know of a packet.
fn is_followed(
    detector: &Detector,
    headers: &Headers,
    packet: Packet<'_>,
    protocol: u8,
    needs_state: bool,
) -> bool {
    detector.tracks(protocol)
        && (needs_state
            || protocol != TCP
            || tcp_flags(headers, packet).is_some_and(|flags| flags & (SYN | RST) != 0))
}

fn observe<'f>(
    flows: &'f mut Recent<FiveTuple, Conversation>,
    tuple: FiveTuple,
    headers: &Headers,
    packet: Packet<'_>,
) -> (&'f mut Conversation, Direction) {
    let key = tuple.canonical();
    let is_lower = key == tuple;
    let flow = flows.of(key, Conversation::default);
    flow.observe(is_lower, (tuple.src_port, tuple.dst_port), tcp_flags(headers, packet));
    let direction = flow.direction(is_lower);
    (flow, direction)
}

/// Counts a packet under a limit; `index` and `at` are the places of the signature and of its limit.
fn is_counted(
    thresholds: &mut Recent<(u32, IpAddr), [ThresholdState; 2]>,
    (index, at): (u32, usize),
    limit: &Threshold,
    headers: &Headers,
    packet: Packet<'_>,
) -> bool {
    let Some((source, destination)) = headers.addresses(packet.data) else { return true };
    let address = if limit.track == Track::Source { source } else { destination };
    thresholds.of((index, address), Default::default)[at].count(limit, packet.meta.timestamp)
}

fn tcp_flags(headers: &Headers, packet: Packet<'_>) -> Option<u8> {
    let start = headers.l4().filter(|_| headers.protocol() == Some(TCP))?;
    packet.data.get(start + 13).copied()
}

/// The bytes behind the transport's header, without the link's padding.
fn payload<'p>(headers: &Headers, data: &'p [u8]) -> &'p [u8] {
    let end = headers.ip_end().min(data.len());
    headers.payload().and_then(|start| data.get(start..end)).unwrap_or_default()
}

fn interface_of(packets: &Packets<'_>, index: usize) -> usize {
    packets.batch.packet(index).meta.interface.0 as usize
}

impl Stage for Signatures {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.set_of.len()
            && let Err(error) = self.extend(packets)
        {
            packets.selection = Selection::none();
            return Err(error);
        }
        let is_inline = out.connected().any(|output| output == FORWARDED);
        self.reports.is_inline = is_inline;
        let mut verdicts = Verdicts { reported: [false; BATCH_MAX], dropped: [false; BATCH_MAX] };
        // Sets have numbers from 0 on, one for each link type.
        let sets = self.set_of.iter().max().map_or(0, |last| last + 1);
        for set in 0..sets {
            self.inspect(set, packets, &mut verdicts);
        }
        let mut result = Ok(());
        let Verdicts { reported, dropped } = verdicts;
        if is_inline {
            let counts = self.forwarding.get_or_insert_default();
            let mut forwarded = packets.clone();
            forwarded.selection.retain(|index| !dropped[index]);
            counts.dropped += (packets.len() - forwarded.len()) as u64;
            counts.passed +=
                packets.selection.iter().filter(|&at| reported[at] || !dropped[at]).count() as u64;
            result = out.pass_to(FORWARDED, &mut forwarded);
        }
        packets.selection.retain(|index| reported[index]);
        let written = self.reports.failed.take().map_or(Ok(()), Err);
        result.and(out.pass(packets)).and(written)
    }

    fn counters(&self) -> StageCounters {
        StageCounters { matched: self.forwarding.map(|counts| counts.passed), ..StageCounters::default() }
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.reports.alerts.as_mut().map_or(Ok(()), AlertFile::flush)
    }

    fn tick(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.idle().map(|()| StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.idle()
    }

    fn result(&self) -> Option<Table> {
        let mut ranked: Vec<(&Signature, &Tally)> = self
            .detector
            .signatures()
            .iter()
            .zip(&self.reports.tallies)
            .filter(|(_, tally)| tally.fitted > 0)
            .collect();
        ranked.sort_by_key(|(signature, tally)| (Reverse(tally.fitted), signature.sid));
        let row = |(signature, tally): &(&Signature, &Tally)| {
            vec![
                Cell::from(u64::from(signature.sid)),
                Cell::from(signature.msg.clone()),
                Cell::from(tally.fitted),
                Cell::from(tally.reported),
            ]
        };
        Some(Table {
            columns: vec!["sid", "msg", "fitted", "reported"],
            rows: ranked.iter().take(self.n).map(row).collect(),
        })
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let counts = self.detector.counts();
        tell("alerts", self.reports.tallies.iter().map(|tally| tally.reported).sum());
        tell("evaluations", counts.evaluations);
        tell("given_up", counts.given_up);
        tell("passed", counts.passed);
        tell("unreported", counts.unreported);
        tell("flows_forgotten", self.flows.forgotten());
        if let Some(counts) = self.forwarding {
            tell("dropped", counts.dropped);
        }
    }

    fn merge(&mut self, other: &dyn Any) {
        let Some(other) = other.downcast_ref::<Signatures>() else { return };
        for (ours, theirs) in self.reports.tallies.iter_mut().zip(&other.reports.tallies) {
            ours.fitted += theirs.fitted;
            ours.reported += theirs.reported;
        }
    }
}

/// The time of a packet in the form of eve.json: microseconds, UTC.
fn eve_time(time: Timestamp) -> String {
    let moment = jiff::Timestamp::from_nanosecond(time.as_nanos().into()).unwrap_or_default();
    moment.strftime("%Y-%m-%dT%H:%M:%S.%6f+0000").to_string()
}
