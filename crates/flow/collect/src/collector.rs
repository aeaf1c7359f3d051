//! Datagrams of many sources, in order of their arrival.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use tapline_dissect::ByteReader;
use tapline_flow::Flow;
use tapline_flow::export::{RecordBatch, RecordLayout};
use tapline_packet::Timestamp;

use crate::account::{DatagramFault, Forgotten, Protocol, RefusedCause, SourceAccount};
use crate::draft::{CopyPlans, Draft, MessageTime, WINDOW};
use crate::flow_sink::{RecordOutput, RecordSink, Sums};
use crate::sampling::SharedRates;
use crate::sets::{self, Set};
use crate::sources::{HeldSet, Source, SourceKey, Sources};
use crate::template::{self, Form, RECORD_LEN_MIN, Template, TemplateChange};
use crate::template_file::{Entry, Keeping};
use crate::{TemplateFile, netflow5, sflow};

/// Templates of one source at most, and their fields.
const TEMPLATES_MAX: usize = 4096;
const FIELDS_MAX: usize = 1 << 16;
/// Maximum number of sets that one source holds, their octets, and the overhead of each.
const HELD_SETS_MAX: usize = 256;
const HELD_OCTETS_MAX: usize = 256 << 10;
const HELD_SET_LEN: usize = 64;
/// Settings for the reading of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorSettings {
    /// Sources at most, each an exporter's address and port and one of its domains.
    pub sources_max: usize,
    /// Whether packets and bytes are multiplied by the sampling interval, as an estimate.
    pub scales: bool,
}

impl Default for CollectorSettings {
    fn default() -> CollectorSettings {
        CollectorSettings { sources_max: 10_000, scales: false }
    }
}

/// Makes flows of datagrams. Its memory is bounded: see [`CollectorSettings`] and the constants of this file.
#[derive(Debug)]
pub struct Collector {
    settings: CollectorSettings,
    sources: Sources,
    /// Keeps templates.
    file: Option<TemplateFile>,
    /// Datagrams that were refused whole, by [`DatagramFault`].
    refused: [u64; DatagramFault::ALL.len()],
    read: u64,
    sums: Sums,
    /// The records of a set, and octets behind them for a plan to look at.
    padded: Vec<u8>,
    copies: CopyPlans,
}

/// A datagram, and where and when it came from.
#[derive(Clone, Copy)]
struct Arrival {
    from: SocketAddr,
    received: Timestamp,
}

impl Arrival {
    fn key(self, protocol: Protocol, domain: u32) -> SourceKey {
        SourceKey { exporter: self.from.ip(), port: self.from.port(), protocol, domain }
    }
}

impl Collector {
    /// A collector that knows the templates of `file`, and keeps new ones there.
    pub fn new(settings: CollectorSettings, file: Option<TemplateFile>) -> Collector {
        let mut collector = Collector {
            settings,
            sources: Sources::new(settings.sources_max),
            file: None,
            refused: [0; DatagramFault::ALL.len()],
            read: 0,
            sums: Sums::default(),
            padded: Vec::new(),
            copies: CopyPlans::default(),
        };
        if let Some(mut file) = file {
            for (key, entry) in file.take_kept() {
                collector.sources.with(key, key.exporter, Timestamp::EPOCH, |source, shared| match entry {
                    Entry::Template(id, template) => {
                        insert(source, id, template);
                    }
                    Entry::Interval(scope, interval) => {
                        let memory = source.rates.memory();
                        if let Some(before) = source.rates.set(scope, interval) {
                            shared.learn(scope, interval, before);
                        }
                        source.memory = source.memory - memory + source.rates.memory();
                    }
                    Entry::Boot(second) => source.set_boot_second(second),
                    Entry::Proven => source.is_proven = true,
                });
            }
            collector.file = Some(file);
        }
        collector
    }

    /// Reads a datagram from `from` that came at `received`, and adds its flows to `flows`. Parts of it that are refused
    /// are counted for its source.
    ///
    /// # Errors
    /// The reason for which all of it was refused, which is counted too.
    pub fn read(
        &mut self,
        from: SocketAddr,
        received: Timestamp,
        datagram: &[u8],
        flows: &mut Vec<Flow>,
    ) -> Result<(), DatagramFault> {
        self.read_to(Arrival { from, received }, datagram, RecordOutput::Flows(flows))
    }

    /// As [`read`](Self::read), but adds the records that an exporter of this layout makes of the flows. Common templates
    /// need no flows for it.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_records(
        &mut self,
        from: SocketAddr,
        received: Timestamp,
        datagram: &[u8],
        layout: &Arc<RecordLayout>,
        records: &mut RecordBatch,
    ) -> Result<(), DatagramFault> {
        self.read_to(Arrival { from, received }, datagram, RecordOutput::Records(layout, records))
    }

    fn read_to(
        &mut self,
        arrival: Arrival,
        datagram: &[u8],
        to: RecordOutput<'_>,
    ) -> Result<(), DatagramFault> {
        let read = self.read_datagram(arrival, datagram, to);
        match read {
            Ok(()) => self.read += 1,
            Err(fault) => self.refuse(fault),
        }
        read
    }

    /// Counts a datagram that was not given to [`read`](Self::read), such as a fragment.
    pub fn refuse(&mut self, fault: DatagramFault) {
        self.refused[fault as usize] += 1;
    }

    /// Counts a flow of the datagram that was read last as filtered out.
    pub fn filter_out(&mut self, flow: &Flow) {
        if let Some(account) = self.sources.last_used() {
            account.flows -= 1;
            account.packets -= u128::from(flow.packets());
            account.bytes -= u128::from(flow.bytes());
            account.filtered += 1;
        }
        self.sums.answered -= flow.answered_packets();
    }

    /// Takes flows back that were handed on: their memory serves the next ones.
    pub fn recycle(&mut self, flows: &mut Vec<Flow>) {
        self.sums.recycle(flows.drain(..));
    }

    /// Datagrams that were read.
    pub fn datagrams(&self) -> u64 {
        self.read
    }

    /// Datagrams that were refused whole for this reason.
    pub fn refused(&self, fault: DatagramFault) -> u64 {
        self.refused[fault as usize]
    }

    /// Gives up the sets that are held: their templates will not come. They are counted as refused.
    pub fn finish(&mut self) {
        self.sources.finish();
    }

    /// The sources that are known and have sent a datagram, by address, protocol, domain and port.
    pub fn sources(&self) -> Vec<&SourceAccount> {
        let mut all: Vec<&SourceAccount> = self.sources.seen().collect();
        all.sort_by_key(|source| (source.exporter, source.protocol, source.domain, source.port));
        all
    }

    /// The sources that were forgotten, together.
    pub fn forgotten(&self) -> &Forgotten {
        self.sources.forgotten()
    }

    /// Whether flows came for whose packets outputs do not answer: their sums are at least what they say.
    pub fn is_beyond(&self) -> bool {
        self.sums.is_beyond
    }

    /// Templates that the file did not keep.
    pub fn templates_not_kept(&self) -> u64 {
        self.file.as_ref().map_or(0, TemplateFile::refused)
    }

    fn read_datagram(
        &mut self,
        arrival: Arrival,
        datagram: &[u8],
        to: RecordOutput<'_>,
    ) -> Result<(), DatagramFault> {
        let mut bytes = ByteReader(datagram);
        let version = bytes.u16().ok_or(DatagramFault::NotExport)?;
        match version {
            1 => self.read_fixed(arrival, Protocol::NetFlow1, bytes, to),
            5 => self.read_fixed(arrival, Protocol::NetFlow5, bytes, to),
            7 => self.read_fixed(arrival, Protocol::NetFlow7, bytes, to),
            9 => self.read_sets(arrival, Protocol::NetFlow9, sets::header9(&mut bytes), bytes, to),
            10 => self.read_sets(arrival, Protocol::Ipfix, sets::header10(&mut bytes), bytes, to),
            // sFlow's version has four octets.
            0 if bytes.u16() == Some(5) => self.read_sflow(arrival, bytes, to),
            _ => Err(DatagramFault::NotExport),
        }
    }

    fn read_fixed(
        &mut self,
        arrival: Arrival,
        protocol: Protocol,
        mut bytes: ByteReader<'_>,
        to: RecordOutput<'_>,
    ) -> Result<(), DatagramFault> {
        let header = netflow5::header(protocol, &mut bytes).ok_or(DatagramFault::Short)?;
        let Collector { settings, sources, sums, .. } = self;
        let key = arrival.key(protocol, header.engine.into());
        let Arrival { from, received } = arrival;
        let mut sink = RecordSink { time: header.time, scales: settings.scales, sums, to };
        sources.with(key, from.ip(), received, |source, shared| {
            source.account.datagrams += 1;
            source.account.sampling = (header.interval > 0).then_some(header.interval);
            if let Some(number) = header.sequence {
                source.note_sequence(number, Some(header.count.into()), received);
            }
            for _ in 0..header.count {
                let Some(mut draft) = netflow5::next(protocol, &mut bytes) else {
                    return source.account.refuse(RefusedCause::Malformed);
                };
                draft.sampled.interval = header.interval;
                sink.add(&draft, &mut source.account, source.rates.of(&draft, 0, shared));
            }
        });
        Ok(())
    }

    fn read_sflow(
        &mut self,
        arrival: Arrival,
        mut bytes: ByteReader<'_>,
        to: RecordOutput<'_>,
    ) -> Result<(), DatagramFault> {
        let header = sflow::header(&mut bytes).ok_or(DatagramFault::Short)?;
        let Collector { settings, sources, sums, .. } = self;
        let protocol = Protocol::SFlow5;
        let key = SourceKey { exporter: header.agent, port: 0, protocol, domain: header.sub_agent };
        let Arrival { from, received } = arrival;
        let time = MessageTime { export_ns: received.as_nanos(), uptime: None };
        let mut sink = RecordSink { time, scales: settings.scales, sums, to };
        sources.with(key, from.ip(), received, |source, _| {
            source.account.datagrams += 1;
            source.note_sequence(header.sequence, Some(1), received);
            let account = &mut source.account;
            for _ in 0..header.samples {
                match sflow::sample(&mut bytes) {
                    Some(sflow::Sample::Packet(draft)) => {
                        let interval = draft.sampled.told();
                        account.sampling = interval;
                        sink.add(&draft, account, interval);
                    }
                    Some(sflow::Sample::NotIp) => account.refuse(RefusedCause::NotIp),
                    Some(sflow::Sample::Other) => account.options += 1,
                    None => return account.refuse(RefusedCause::Malformed),
                }
            }
        });
        Ok(())
    }

    fn read_sets(
        &mut self,
        arrival: Arrival,
        protocol: Protocol,
        header: Option<sets::Header>,
        mut bytes: ByteReader<'_>,
        to: RecordOutput<'_>,
    ) -> Result<(), DatagramFault> {
        let header = header.ok_or(DatagramFault::Short)?;
        let Arrival { from, received } = arrival;
        let key = arrival.key(protocol, header.domain);
        self.adopt(key);
        let Collector { settings, sources, file, sums, padded, copies, .. } = self;
        let sink = RecordSink { time: header.time, scales: settings.scales, sums, to };
        let mut keeping = Keeping::Kept;
        sources.with(key, from.ip(), received, |source, shared| {
            source.account.datagrams += 1;
            if let Some(uptime) = header.time.uptime
                && source.note_uptime(uptime)
                && let (Some(file), Some(second)) = (&mut *file, source.boot_second())
            {
                keeping = keeping.and(file.keep(source.key(), &Entry::Boot(second)));
            }
            if protocol == Protocol::Ipfix {
                source.note_first(header.sequence);
            }
            let mut reader = SetReader {
                source,
                shared,
                file,
                keeping: &mut keeping,
                form: header.form,
                records: Some(0),
                padded,
                copies,
                sink,
            };
            while let Some(set) = sets::next(&mut bytes, header.form) {
                reader.read(set);
            }
            let records = reader.records;
            if source.note_sequence(header.sequence, records, received)
                && let Some(file) = file
            {
                keeping = keeping.and(file.keep(source.key(), &Entry::Proven));
            }
        });
        if keeping == Keeping::Full {
            self.rewrite_file();
        }
        Ok(())
    }

    /// Files of earlier versions have templates without the exporter's port: they are those of the first session.
    fn adopt(&mut self, key: SourceKey) {
        let without_port = SourceKey { port: 0, ..key };
        if key.port == 0 || self.sources.contains(key) {
            return;
        }
        if let Some(kept) = self.sources.remove_unseen(without_port) {
            self.sources.with(key, key.exporter, Timestamp::EPOCH, |source, _| {
                kept.templates.into_iter().for_each(|(id, template)| {
                    insert(source, id, template);
                });
            });
        }
    }

    /// Rewrites the file of templates with those of the known sources.
    fn rewrite_file(&mut self) {
        let Some(file) = &mut self.file else { return };
        file.rewrite(self.sources.by_worth().into_iter().flat_map(|source| {
            let key = source.key();
            let proven = source.is_proven.then_some((key, Entry::Proven));
            let boot = source.boot_second().map(|second| (key, Entry::Boot(second)));
            let intervals = source.rates.all().into_iter();
            let intervals = intervals.map(move |(scope, interval)| (key, Entry::Interval(scope, interval)));
            let templates = source.templates.iter();
            let templates =
                templates.map(move |(id, template)| (key, Entry::Template(*id, template.clone())));
            proven.into_iter().chain(boot).chain(intervals).chain(templates)
        }));
    }
}

/// Takes a template of a source; `false` if the table is full.
fn insert(source: &mut Source, id: u16, template: Template) -> bool {
    let known = source.templates.get(&id);
    let fields = source.fields - known.map_or(0, |known| known.raw.len()) + template.raw.len();
    if fields > FIELDS_MAX || known.is_none() && source.templates.len() >= TEMPLATES_MAX {
        return false;
    }
    source.memory = source.memory - known.map_or(0, Template::memory) + template.memory();
    source.fields = fields;
    source.templates.insert(id, template);
    source.account.templates = source.templates.len() as u64;
    true
}

/// The sets of one message.
struct SetReader<'r> {
    source: &'r mut Source,
    /// Rates that the exporter reported under any of its domains.
    shared: &'r mut SharedRates,
    file: &'r mut Option<TemplateFile>,
    /// Whether the file keeps the contents of the message.
    keeping: &'r mut Keeping,
    form: Form,
    /// Data records so far; `None` once a set could not be counted.
    records: Option<u32>,
    padded: &'r mut Vec<u8>,
    copies: &'r mut CopyPlans,
    sink: RecordSink<'r>,
}

impl SetReader<'_> {
    fn read(&mut self, set: Result<Set<'_>, ()>) {
        match set {
            Ok(Set::Templates(bytes)) => self.read_templates(bytes, false),
            Ok(Set::OptionsTemplates(bytes)) => self.read_templates(bytes, true),
            Ok(Set::Records(id, bytes)) => self.read_records(id, bytes),
            Ok(Set::Unknown) => self.source.account.refuse(RefusedCause::Malformed),
            Err(()) => {
                self.source.account.refuse(RefusedCause::Malformed);
                self.records = None;
            }
        }
    }

    fn read_templates(&mut self, mut bytes: ByteReader<'_>, is_options: bool) {
        // Less than the shortest template is padding.
        while bytes.0.len() >= 4 && bytes.0.iter().any(|octet| *octet != 0) {
            match template::next(&mut bytes, self.form, is_options) {
                Some(TemplateChange::Template(id, told)) => {
                    self.learn(id, told);
                    self.release(id);
                }
                Some(TemplateChange::Withdrawal) => {}
                Some(TemplateChange::TooLong) => self.source.account.refuse(RefusedCause::NoRoom),
                None => return self.source.account.refuse(RefusedCause::Malformed),
            }
        }
    }

    fn learn(&mut self, id: u16, template: Template) {
        if self.source.templates.get(&id) == Some(&template) {
            return;
        }
        let kept = Entry::Template(id, template.clone());
        if !insert(self.source, id, template) {
            return self.source.account.refuse(RefusedCause::NoRoom);
        }
        if let Some(file) = self.file {
            *self.keeping = self.keeping.and(file.keep(self.source.key(), &kept));
        }
    }

    /// Decodes the sets that waited for this template.
    fn release(&mut self, id: u16) {
        if !self.source.held.iter().any(|set| set.id == id) {
            return;
        }
        let (ready, rest): (VecDeque<HeldSet>, _) =
            mem::take(&mut self.source.held).into_iter().partition(|set| set.id == id);
        self.source.held = rest;
        let (time, records) = (self.sink.time, self.records);
        for set in ready {
            self.source.held_octets -= set.octets.len() + HELD_SET_LEN;
            self.source.memory -= set.octets.len() + HELD_SET_LEN;
            self.sink.time = set.time;
            self.read_records(id, ByteReader(&set.octets));
        }
        // Their records are none of this message.
        (self.sink.time, self.records) = (time, records);
        self.source.account.held = self.source.held.len() as u64;
    }

    fn read_records(&mut self, id: u16, mut bytes: ByteReader<'_>) {
        let SetReader { source, sink, shared, file, keeping, padded, copies, .. } = self;
        let key = source.key();
        let Source { templates, account, rates, totals, boot_ns, memory, .. } = &mut **source;
        let Some(template) = templates.get(&id) else {
            self.records = None;
            return self.hold(id, bytes);
        };
        let memory_before = rates.memory() + totals.memory();
        let mut count = 0_u32;
        if let Some(plan) = &template.plan {
            let mut draft = Draft::new();
            draft.boot_ns = *boot_ns;
            draft.sampled.template = Some(id);
            let records = bytes.0.len() / template.record_len;
            padded.clear();
            padded.extend_from_slice(bytes.take(records * template.record_len).unwrap_or_default());
            padded.resize(padded.len() + WINDOW, 0);
            let mut copy = match sink.layout() {
                Some(layout) => copies.of(plan, layout),
                None => None,
            };
            if let Some(copy) = &mut copy {
                copy.begin_set(account.exporter, account.domain);
            }
            for record in padded.windows(WINDOW).step_by(template.record_len).take(records) {
                let Some(record) = record.first_chunk() else { break };
                if let Some(copy) = &mut copy
                    && !plan.is_icmp(record)
                {
                    plan.read_times(record, &mut draft);
                    plan.read_sampling(record, &mut draft);
                    sink.copy(copy, record, &draft, account, rates.of(&draft, account.domain, shared));
                } else {
                    plan.read(record, &mut draft);
                    sink.add(&draft, account, rates.of(&draft, account.domain, shared));
                }
            }
            count = records as u32;
        }
        // Less than the shortest record is padding.
        while bytes.0.len() >= template.record_len {
            let before = bytes.0.len();
            let mut draft = Draft::new();
            draft.boot_ns = *boot_ns;
            if !template.is_options() {
                draft.sampled.template = Some(id);
            } else if account.protocol == Protocol::Ipfix && account.domain == 0 {
                // Domain 0 is that of the exporting process as a whole (RFC 7011, 3.1).
                draft.sampled.is_of_system = true;
            }
            let read =
                template.record(&mut bytes, |field, is_reverse, value| draft.set(field, is_reverse, value));
            if read.is_none() {
                account.refuse(RefusedCause::Malformed);
                self.records = None;
                break;
            }
            count += 1;
            if template.is_options() {
                account.options += 1;
                *boot_ns = draft.boot_ns;
                if let Some(learnt) = rates.learn(&draft, account.domain) {
                    account.sampling = Some(learnt.interval);
                    shared.learn(learnt.scope, learnt.interval, learnt.before);
                    if learnt.before != Some(learnt.interval)
                        && let Some(file) = file
                    {
                        let entry = Entry::Interval(learnt.scope, learnt.interval);
                        **keeping = keeping.and(file.keep(key, &entry));
                    }
                }
            } else if before - bytes.0.len() < RECORD_LEN_MIN {
                account.refuse(RefusedCause::TooShort);
            } else {
                account.totals_forgotten += draft.take_totals(totals, sink.time);
                sink.add(&draft, account, rates.of(&draft, account.domain, shared));
            }
        }
        *memory = *memory - memory_before + rates.memory() + totals.memory();
        self.records = self.records.map(|records| records.saturating_add(count));
    }

    fn hold(&mut self, id: u16, bytes: ByteReader<'_>) {
        let (source, len) = (&mut *self.source, bytes.0.len() + HELD_SET_LEN);
        let has_room = source.held.len() < HELD_SETS_MAX && source.held_octets + len <= HELD_OCTETS_MAX;
        if !has_room {
            return source.account.refuse(RefusedCause::NoTemplate);
        }
        source.held_octets += len;
        source.memory += len;
        source.held.push_back(HeldSet { id, time: self.sink.time, octets: bytes.0.into() });
        source.account.held = source.held.len() as u64;
    }
}
