//! Datagrams of many sources, in order of their arrival.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use tapline_flow::{Endpoint, Flow};
use tapline_packet::Timestamp;

use crate::account::{DatagramFault, Protocol, RefusedCause, SourceAccount};
use crate::bytes::Bytes;
use crate::draft::{Draft, MessageTime};
use crate::sampling::SamplingRates;
use crate::sequence::Sequence;
use crate::sets::{self, Set};
use crate::template::{self, Form, Template, Told};
use crate::{TemplateFile, netflow5, sflow};

/// Templates of one source at most.
const TEMPLATES_MAX: usize = 4096;
/// Fields of the templates of all sources at most: some 30 MB.
const FIELDS_MAX: usize = 1 << 20;
/// Octets of sets that one source has held at most, and all sources together.
const HELD_OF_SOURCE_MAX: usize = 256 << 10;
const HELD_MAX: usize = 16 << 20;
/// Sets that one source has held at most, and what each takes beside its octets.
const HELD_SETS_MAX: usize = 256;
const HELD_SET_LEN: usize = 64;
/// Packets and bytes of one record at most: half an hour at 1 Tbit/s is 2.7e12 packets and 2.3e14 bytes.
const PACKETS_MAX: u64 = 1 << 42;
const BYTES_MAX: u64 = 1 << 48;
/// Packets and bytes of all records together, so that no sum wraps.
const SUM_MAX: u64 = 1 << 63;
/// How long before its message a flow may begin, and how long behind it end.
const BEFORE_NS: i64 = 7 * 86_400 * 1_000_000_000;
const BEHIND_NS: i64 = 3600 * 1_000_000_000;

/// How datagrams are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectorSettings {
    /// Sources at most, each an exporter's address and one of its domains.
    pub sources_max: usize,
    /// Whether packets and bytes are multiplied by the sampling interval, as an estimate.
    pub scales: bool,
}

impl Default for CollectorSettings {
    fn default() -> CollectorSettings {
        CollectorSettings { sources_max: 10_000, scales: false }
    }
}

/// An exporter's address, its protocol and its domain.
type SourceKey = (IpAddr, Protocol, u32);

/// Makes flows of datagrams. Its memory is bounded: see [`CollectorSettings`] and the constants of this file.
#[derive(Debug)]
pub struct Collector {
    settings: CollectorSettings,
    sources: HashMap<SourceKey, Source>,
    templates: Templates,
    /// Octets of sets that are held.
    held: usize,
    /// Datagrams that were refused whole, by [`DatagramFault`].
    refused: [u64; DatagramFault::ALL.len()],
    read: u64,
    /// Packets and bytes of all flows.
    sums: (u64, u64),
}

/// Templates of all sources: their number of fields, and the file that keeps them.
#[derive(Debug, Default)]
struct Templates {
    fields: usize,
    file: Option<TemplateFile>,
}

/// Counters of the templates of all sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateAccount {
    /// Fields of all templates that are known.
    pub fields: usize,
    /// Templates that the file did not keep.
    pub not_kept: u64,
}

#[derive(Debug)]
struct Source {
    account: SourceAccount,
    sequence: Sequence,
    rates: SamplingRates,
    templates: BTreeMap<u16, Template>,
    /// The time at which the uptime was 0, if options told it.
    boot_ns: Option<i64>,
    held: VecDeque<HeldSet>,
    held_octets: usize,
}

/// A set of records whose template has not come.
#[derive(Debug)]
struct HeldSet {
    id: u16,
    time: MessageTime,
    octets: Box<[u8]>,
}

impl Source {
    fn new((exporter, protocol, domain): SourceKey) -> Source {
        Source {
            account: SourceAccount::new(exporter, protocol, domain),
            sequence: Sequence::default(),
            rates: SamplingRates::default(),
            templates: BTreeMap::new(),
            boot_ns: None,
            held: VecDeque::new(),
            held_octets: 0,
        }
    }
}

impl Collector {
    /// A collector that knows the templates of `file`, and keeps new ones there.
    pub fn new(settings: CollectorSettings, file: Option<TemplateFile>) -> Collector {
        let mut collector = Collector {
            settings,
            sources: HashMap::new(),
            templates: Templates::default(),
            held: 0,
            refused: [0; DatagramFault::ALL.len()],
            read: 0,
            sums: (0, 0),
        };
        if let Some(mut file) = file {
            for kept in file.take_kept() {
                let key = (kept.exporter, kept.protocol, kept.domain);
                if let Some(source) = source(&mut collector.sources, settings.sources_max, key) {
                    collector.templates.insert(source, kept.id, kept.template);
                }
            }
            collector.templates.file = Some(file);
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
        from: IpAddr,
        received: Timestamp,
        datagram: &[u8],
        flows: &mut Vec<Flow>,
    ) -> Result<(), DatagramFault> {
        let read = self.read_datagram(from, received, datagram, flows);
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
        for source in self.sources.values_mut() {
            source.account.refused[RefusedCause::NoTemplate as usize] += source.held.len() as u64;
            source.account.held = 0;
            source.held.clear();
            source.held_octets = 0;
        }
        self.held = 0;
    }

    /// The sources that have sent a datagram, by address, protocol and domain.
    pub fn sources(&self) -> Vec<&SourceAccount> {
        let mut all: Vec<&SourceAccount> = self
            .sources
            .values()
            .map(|source| &source.account)
            .filter(|source| source.datagrams > 0)
            .collect();
        all.sort_by_key(|source| (source.exporter, source.protocol, source.domain));
        all
    }

    /// Counters of the templates of all sources.
    pub fn templates(&self) -> TemplateAccount {
        let not_kept = self.templates.file.as_ref().map_or(0, TemplateFile::refused);
        TemplateAccount { fields: self.templates.fields, not_kept }
    }

    fn read_datagram(
        &mut self,
        from: IpAddr,
        received: Timestamp,
        datagram: &[u8],
        flows: &mut Vec<Flow>,
    ) -> Result<(), DatagramFault> {
        let mut bytes = Bytes(datagram);
        let version = bytes.u16().ok_or(DatagramFault::NotExport)?;
        match version {
            5 => self.read_netflow5(from, bytes, flows),
            9 => self.read_sets(from, Protocol::NetFlow9, sets::header9(&mut bytes), bytes, flows),
            10 => self.read_sets(from, Protocol::Ipfix, sets::header10(&mut bytes), bytes, flows),
            // sFlow's version has four octets.
            0 if bytes.u16() == Some(5) => self.read_sflow(received, bytes, flows),
            _ => Err(DatagramFault::NotExport),
        }
    }

    fn read_netflow5(
        &mut self,
        from: IpAddr,
        mut bytes: Bytes<'_>,
        flows: &mut Vec<Flow>,
    ) -> Result<(), DatagramFault> {
        let header = netflow5::header(&mut bytes).ok_or(DatagramFault::Short)?;
        let Collector { settings, sources, sums, .. } = self;
        let key = (from, Protocol::NetFlow5, header.engine.into());
        let source = source(sources, settings.sources_max, key).ok_or(DatagramFault::NoRoom)?;
        let mut sink = FlowSink { time: header.time, scales: settings.scales, sums, flows };
        let account = &mut source.account;
        account.datagrams += 1;
        account.sampling = header.interval.max(1);
        source.sequence.note(header.sequence, Some(header.count.into()), account);
        for _ in 0..header.count {
            let Some(record) = bytes.take(netflow5::RECORD_LEN).and_then(<[u8]>::first_chunk) else {
                account.refuse(RefusedCause::Malformed);
                break;
            };
            let mut draft = netflow5::record(record);
            draft.sampled.interval = header.interval;
            sink.add(&draft, account, &source.rates);
        }
        Ok(())
    }

    fn read_sflow(
        &mut self,
        received: Timestamp,
        mut bytes: Bytes<'_>,
        flows: &mut Vec<Flow>,
    ) -> Result<(), DatagramFault> {
        let header = sflow::header(&mut bytes).ok_or(DatagramFault::Short)?;
        let Collector { settings, sources, sums, .. } = self;
        let key = (header.agent, Protocol::SFlow5, header.sub_agent);
        let source = source(sources, settings.sources_max, key).ok_or(DatagramFault::NoRoom)?;
        let time = MessageTime { export_ns: received.as_nanos(), uptime: None };
        let mut sink = FlowSink { time, scales: settings.scales, sums, flows };
        let account = &mut source.account;
        account.datagrams += 1;
        source.sequence.note(header.sequence, Some(1), account);
        for _ in 0..header.samples {
            match sflow::sample(&mut bytes) {
                Some(sflow::Sample::Packet(draft)) => {
                    account.sampling = draft.sampled.interval.max(1);
                    sink.add(&draft, account, &source.rates);
                }
                Some(sflow::Sample::NotIp) => account.refuse(RefusedCause::NotIp),
                Some(sflow::Sample::Other) => account.options += 1,
                None => {
                    account.refuse(RefusedCause::Malformed);
                    break;
                }
            }
        }
        Ok(())
    }

    fn read_sets(
        &mut self,
        from: IpAddr,
        protocol: Protocol,
        header: Option<sets::Header>,
        mut bytes: Bytes<'_>,
        flows: &mut Vec<Flow>,
    ) -> Result<(), DatagramFault> {
        let header = header.ok_or(DatagramFault::Short)?;
        let Collector { settings, sources, templates, held, sums, .. } = self;
        let key = (from, protocol, header.domain);
        let source = source(sources, settings.sources_max, key).ok_or(DatagramFault::NoRoom)?;
        source.account.datagrams += 1;
        let mut reader = SetReader {
            source,
            templates,
            held,
            form: header.form,
            records: Some(0),
            sink: FlowSink { time: header.time, scales: settings.scales, sums, flows },
        };
        while let Some(set) = sets::next(&mut bytes, header.form) {
            reader.read(set);
        }
        let units = if protocol == Protocol::NetFlow9 { Some(1) } else { reader.records };
        source.sequence.note(header.sequence, units, &mut source.account);
        Ok(())
    }
}

/// The source of a key, made if there is room.
fn source(sources: &mut HashMap<SourceKey, Source>, most: usize, key: SourceKey) -> Option<&mut Source> {
    if sources.len() >= most && !sources.contains_key(&key) {
        return None;
    }
    Some(sources.entry(key).or_insert_with(|| Source::new(key)))
}

/// What becomes of the flows of a message.
struct FlowSink<'f> {
    time: MessageTime,
    scales: bool,
    /// Packets and bytes of all flows of all sources.
    sums: &'f mut (u64, u64),
    flows: &'f mut Vec<Flow>,
}

impl FlowSink<'_> {
    /// Makes a flow of a record, and counts it.
    #[inline]
    fn add(&mut self, draft: &Draft, account: &mut SourceAccount, rates: &SamplingRates) {
        if !draft.is_counted() {
            return account.refuse(RefusedCause::NoCounters);
        }
        let mut flow =
            draft.flow(self.time, (account.exporter, account.domain), rates.of(draft), self.scales);
        let both = |of: fn(&Endpoint) -> u64| flow.endpoints.iter().map(of).fold(0, u64::saturating_add);
        let (packets, bytes) = (both(|side| side.packets), both(|side| side.bytes));
        let sums = (self.sums.0.saturating_add(packets), self.sums.1.saturating_add(bytes));
        if packets > PACKETS_MAX || bytes > BYTES_MAX || sums.0.max(sums.1) > SUM_MAX {
            return account.refuse(RefusedCause::TooGreat);
        }
        *self.sums = sums;
        if let Some(time) = self.misplaced(&flow) {
            account.retimed += 1;
            for side in flow.endpoints.iter_mut().filter(|side| side.has_sent()) {
                (side.first, side.last) = (time, time);
            }
        }
        account.flows += 1;
        account.packets += packets;
        account.bytes += bytes;
        let (first, last) = (flow.first(), flow.last());
        account.span = Some(account.span.map_or((first, last), |span| (span.0.min(first), span.1.max(last))));
        self.flows.push(flow);
    }

    /// The time of the message, if the flow's own cannot be right.
    #[inline]
    fn misplaced(&self, flow: &Flow) -> Option<Timestamp> {
        let export_ns = self.time.export_ns;
        let is_early = flow.first().as_nanos() < export_ns.saturating_sub(BEFORE_NS);
        let is_late = flow.last().as_nanos() > export_ns.saturating_add(BEHIND_NS);
        (is_early || is_late).then_some(Timestamp::from_nanos(export_ns))
    }
}

impl Templates {
    /// Takes a template of a source; `false` if there is no room for it.
    fn insert(&mut self, source: &mut Source, id: u16, template: Template) -> bool {
        let known = source.templates.get(&id).map_or(0, |known| known.raw.len());
        let fields = self.fields - known + template.raw.len();
        if fields > FIELDS_MAX || known == 0 && source.templates.len() >= TEMPLATES_MAX {
            return false;
        }
        self.fields = fields;
        source.templates.insert(id, template);
        source.account.templates = source.templates.len() as u64;
        true
    }

    fn learn(&mut self, source: &mut Source, id: u16, template: Template) -> bool {
        if source.templates.get(&id) == Some(&template) {
            return true;
        }
        let SourceAccount { exporter, protocol, domain, .. } = source.account;
        if let Some(file) = &mut self.file {
            file.keep(exporter, protocol, domain, id, &template);
        }
        self.insert(source, id, template)
    }
}

/// The sets of one message.
struct SetReader<'r> {
    source: &'r mut Source,
    templates: &'r mut Templates,
    held: &'r mut usize,
    form: Form,
    /// Data records so far; `None` once a set could not be counted.
    records: Option<u32>,
    sink: FlowSink<'r>,
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

    fn read_templates(&mut self, mut bytes: Bytes<'_>, is_options: bool) {
        // Less than the shortest template is padding.
        while bytes.len() >= 4 && bytes.0.iter().any(|octet| *octet != 0) {
            match template::next(&mut bytes, self.form, is_options) {
                Some(Told::Template(id, told)) => {
                    if !self.templates.learn(self.source, id, told) {
                        self.source.account.refuse(RefusedCause::NoRoom);
                    }
                    self.release(id);
                }
                Some(Told::Withdrawal) => {}
                Some(Told::TooLong) => self.source.account.refuse(RefusedCause::NoRoom),
                None => return self.source.account.refuse(RefusedCause::Malformed),
            }
        }
    }

    /// Decodes the sets that were held for want of this template.
    fn release(&mut self, id: u16) {
        if !self.source.held.iter().any(|set| set.id == id) {
            return;
        }
        let (ready, rest): (VecDeque<HeldSet>, _) =
            std::mem::take(&mut self.source.held).into_iter().partition(|set| set.id == id);
        self.source.held = rest;
        let (time, records) = (self.sink.time, self.records);
        for set in ready {
            self.source.held_octets -= set.octets.len() + HELD_SET_LEN;
            *self.held -= set.octets.len() + HELD_SET_LEN;
            self.sink.time = set.time;
            self.read_records(id, Bytes(&set.octets));
        }
        // Their records are none of this message.
        (self.sink.time, self.records) = (time, records);
        self.source.account.held = self.source.held.len() as u64;
    }

    fn read_records(&mut self, id: u16, mut bytes: Bytes<'_>) {
        let SetReader { source, sink, .. } = self;
        let Source { templates, account, rates, boot_ns, .. } = &mut **source;
        let Some(template) = templates.get(&id) else {
            self.records = None;
            return self.hold(id, bytes);
        };
        let mut count = 0_u32;
        // Less than the shortest record is padding.
        while bytes.len() >= template.record_len {
            let mut draft = Draft::new();
            draft.boot_ns = *boot_ns;
            let read =
                template.record(&mut bytes, |field, is_reverse, value| draft.set(field, is_reverse, value));
            if read.is_none() {
                account.refuse(RefusedCause::Malformed);
                self.records = None;
                return;
            }
            count += 1;
            if template.is_options() {
                account.options += 1;
                *boot_ns = draft.boot_ns;
                if let Some(interval) = rates.learn(&draft) {
                    account.sampling = interval;
                }
            } else {
                sink.add(&draft, account, rates);
            }
        }
        self.records = self.records.map(|records| records.saturating_add(count));
    }

    fn hold(&mut self, id: u16, bytes: Bytes<'_>) {
        let (source, len) = (&mut *self.source, bytes.len() + HELD_SET_LEN);
        let has_room = source.held.len() < HELD_SETS_MAX
            && source.held_octets + len <= HELD_OF_SOURCE_MAX
            && *self.held + len <= HELD_MAX;
        if !has_room {
            return source.account.refuse(RefusedCause::NoTemplate);
        }
        source.held_octets += len;
        *self.held += len;
        source.held.push_back(HeldSet { id, time: self.sink.time, octets: bytes.0.into() });
        source.account.held = source.held.len() as u64;
    }
}
