//! Encodes flow records into messages of NetFlow v9 and IPFIX.
//!
//! ```text
//! v9      version 2 | count 2 | uptime ms 4 | seconds 4 | sequence 4 | source id 4 | flowsets
//! IPFIX   version 2 | length 2 | seconds 4 | sequence 4 | observation domain 4 | sets
//! set     id 2 | length 2 | records | zeros to a multiple of 4
//!           templates: 0 in v9, 2; options templates: 1 in v9, 3; else the template's id
//! ```
//!
//! The sequence of v9 counts messages, that of IPFIX data records, both before the message and from 0 (RFC 3954, 5.1;
//! RFC 7011, 3.1). A v9 collector computes times from uptime and seconds, which are whole: so the uptime begins at a
//! whole second, and the time of a message is rounded up to one.

use std::net::IpAddr;
use std::sync::Arc;

use tapline_geo::{Place, Places};
use tapline_packet::Timestamp;

use super::element::{FLOW_SELECTOR_BOB, PlaceLookup, RecordView, millis, write_value};
use super::records::{RecordBatch, RecordLayout, Run};
use super::template::{Field, Template};
use super::types;
use super::v5::V5;
use super::{ExportOptions, Message, MessageSink, Version};
use crate::{Error, Flow, Sampling};

/// The id of the template for options.
const OPTIONS_ID: u16 = 258;

/// Length of a set's header and of the largest padding.
const SET_LEN: usize = 4 + 6;

/// Octets of each text that a record has room for at least.
const LEAST_TEXT: usize = 8;

/// The longest uptime: half of the range of 32 bits of milliseconds.
const UPTIME_MAX_MS: i64 = 1 << 31;

/// Makes messages of flows.
pub(super) enum Encoder {
    /// NetFlow v5.
    V5(V5),
    /// Records by templates.
    Templates(Box<Templates>),
}

impl Encoder {
    pub(super) fn new(options: &ExportOptions, room: usize, repeats: bool) -> Result<Encoder, Error> {
        Ok(match options.version {
            Version::V5 => Encoder::V5(V5::new(options, room)),
            _ => Encoder::Templates(Box::new(Templates::new(options, room, repeats)?)),
        })
    }

    pub(super) fn add(&mut self, flow: &Flow, sink: &mut MessageSink<'_>) {
        match self {
            Encoder::V5(v5) => v5.add(flow, sink),
            Encoder::Templates(templates) => templates.add(flow, sink),
        }
    }

    /// The layout in which records are taken at present; `None` if they must be made of flows.
    pub(super) fn layout(&self) -> Option<&Arc<RecordLayout>> {
        match self {
            Encoder::Templates(templates)
                if !templates.places.is_set() && templates.sampling == Sampling::NONE =>
            {
                templates.layout.as_ref()
            }
            Encoder::V5(_) | Encoder::Templates(_) => None,
        }
    }

    /// Adds records in the [`layout`](Self::layout).
    pub(super) fn add_records(&mut self, records: &RecordBatch, sink: &mut MessageSink<'_>) {
        // What was set since the layout was asked for changes no length.
        let Encoder::Templates(templates) = self else { return };
        let Some(layout) = templates.layout.clone() else { return };
        records.runs(&layout).for_each(|run| templates.add_run(run, sink));
    }

    pub(super) fn flush(&mut self, sink: &mut MessageSink<'_>) {
        match self {
            Encoder::V5(v5) => v5.flush(sink),
            Encoder::Templates(templates) => templates.flush(sink),
        }
    }

    pub(super) fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error> {
        match self {
            Encoder::V5(v5) => v5.set_sampling(sampling)?,
            Encoder::Templates(templates) if templates.sampling != sampling => {
                templates.sampling = sampling;
                templates.needs_templates = true;
            }
            Encoder::Templates(_) => {}
        }
        Ok(())
    }

    pub(super) fn set_places(&mut self, places: &Arc<Places>) {
        match self {
            Encoder::V5(v5) => v5.set_places(places),
            Encoder::Templates(templates) => templates.places.set(places),
        }
    }

    /// Sends the templates again with the next message.
    pub(super) fn repeat_templates(&mut self) {
        if let Encoder::Templates(templates) = self {
            templates.needs_templates = true;
        }
    }

    /// Packets of records that wait in the open message.
    pub(super) fn waiting(&self) -> u64 {
        match self {
            Encoder::V5(v5) => v5.waiting(),
            Encoder::Templates(templates) => templates.packets,
        }
    }
}

/// The time at which an exporter's uptime is 0: a whole second, at least one second before each time that is exported
/// relative to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UptimeEpoch(Option<i64>);

impl UptimeEpoch {
    /// Whether the times `first` to `last` can be expressed as uptimes; if not, the message must end before
    /// [`set`](Self::set).
    pub(super) fn reaches(self, first: Timestamp, last: Timestamp) -> bool {
        self.0.is_some_and(|boot| millis(first) >= boot + 1000 && millis(last) - boot < UPTIME_MAX_MS)
    }

    /// Sets the epoch so that `first` can be expressed.
    pub(super) fn set(&mut self, first: Timestamp) {
        self.0 = Some((first.seconds() - 1).saturating_mul(1000));
    }

    pub(super) fn millis(self) -> i64 {
        self.0.unwrap_or(0)
    }

    /// Seconds and uptime for the header of a message. If the uptime has passed its maximum, both stay at the last time
    /// that can be expressed.
    pub(super) fn at(self, now: Timestamp) -> (u32, u32) {
        let seconds = now.seconds().saturating_add((now.subsec_nanos() > 0).into());
        let boot = self.millis() / 1000;
        let uptime = seconds.saturating_sub(boot).clamp(0, UPTIME_MAX_MS / 1000);
        (boot.wrapping_add(uptime) as u32, (uptime * 1000) as u32)
    }
}

/// NetFlow v9 and IPFIX.
pub(super) struct Templates {
    version: Version,
    templates: [Template; 2],
    layout: Option<Arc<RecordLayout>>,
    domain: u32,
    exporter: Option<IpAddr>,
    enterprise: u32,
    /// Descriptions of Tapline's own elements for collectors, in separate messages.
    types: Vec<Vec<u8>>,
    sampling: Sampling,
    places: PlaceLookup,
    biflow: bool,
    room: usize,
    /// Records of flows with which a message is sent; 0 for as many as have room, and those in the open one.
    records_max: u32,
    flow_records: u32,
    /// Sets are padded to multiples of 4, unless records are so short that a collector would take the padding for one.
    pads: bool,
    /// Interval at which templates are sent again, in messages and in nanoseconds; `None` for never.
    repeat: Option<(u32, i64)>,
    sent_at: Option<Timestamp>,
    messages_since: u32,
    needs_templates: bool,
    boot: UptimeEpoch,
    sequence: u32,
    /// The message so far; empty if there is none.
    message: Vec<u8>,
    /// Buffer for a record of variable length.
    record: Vec<u8>,
    /// Offset and id of the open set.
    set: Option<(usize, u16)>,
    /// Data records in the message, and all records with templates.
    data_records: u32,
    all_records: u16,
    /// Packets of the message's records.
    packets: u64,
}

impl Templates {
    fn new(options: &ExportOptions, room: usize, repeats: bool) -> Result<Templates, Error> {
        let templates = Template::both(options)?;
        let template_time = i64::try_from(options.template_time.as_nanos()).unwrap_or(i64::MAX);
        let pads = templates.iter().all(|template| template.record_len > 3);
        let all = Templates {
            pads,
            version: options.version,
            types: types::records(&templates, options.enterprise),
            places: PlaceLookup::of(templates.iter().flat_map(Template::elements)),
            layout: RecordLayout::of_templates(&templates, options).map(Arc::new),
            templates,
            domain: options.domain,
            exporter: options.exporter,
            enterprise: options.enterprise,
            sampling: Sampling::NONE,
            biflow: options.biflow,
            room,
            records_max: options.message_records,
            flow_records: 0,
            repeat: repeats.then_some((options.template_messages.max(1), template_time)),
            sent_at: None,
            messages_since: 0,
            needs_templates: true,
            boot: UptimeEpoch::default(),
            sequence: 0,
            message: Vec::with_capacity(room),
            record: Vec::new(),
            set: None,
            data_records: 0,
            all_records: 0,
            packets: 0,
        };
        let longest =
            all.templates.iter().map(|template| template.record_len + LEAST_TEXT * template.variable);
        let longest = longest.max().unwrap_or(0);
        // The options of a rate that is told later must have room too, and a set's header, and what fills it up.
        let sets =
            [Sampling::Packets(2), Sampling::Flows(2)].map(|sampling| all.template_sets(sampling).0.len());
        let head = all.header_len() + sets.into_iter().max().unwrap_or(0) + 8;
        if longest == 0 || head.max(all.header_len() + SET_LEN + longest) > room {
            let what = format!(
                "takes {head} octets and a record {longest}, and a message has {room}: name fewer elements, or give a greater --mtu"
            );
            return Err(Error::Template { what });
        }
        Ok(all)
    }

    fn header_len(&self) -> usize {
        if self.version == Version::V9 { 20 } else { 16 }
    }

    fn add(&mut self, flow: &Flow, sink: &mut MessageSink<'_>) {
        if self.version == Version::V9 && !self.boot.reaches(flow.first(), flow.last()) {
            self.flush(sink);
            self.boot.set(flow.first());
        }
        // Records borrow the places while the message is changed.
        let lookup = std::mem::take(&mut self.places);
        self.add_records(flow, lookup.of_flow(flow).as_ref(), sink);
        self.places = lookup;
    }

    fn add_records(&mut self, flow: &Flow, places: Option<&[Place<'_>; 2]>, sink: &mut MessageSink<'_>) {
        if self.biflow {
            let view = self.view(flow, 0, (flow.first(), flow.last()), places);
            return self.record(&view, flow.answered_packets(), sink);
        }
        for from in flow.senders() {
            let side = &flow.endpoints[from];
            let view = self.view(flow, from, (side.first, side.last), places);
            self.record(&view, flow.answered_packets_of(from), sink);
        }
    }

    fn record(&mut self, view: &RecordView<'_>, packets: u64, sink: &mut MessageSink<'_>) {
        let which = usize::from(view.flow.endpoints[0].address.is_ipv6());
        let record_len = self.templates[which].record_len;
        if self.templates[which].fixed.is_some() {
            self.make_room(which, record_len, sink);
        }
        if let Some(fixed) = &self.templates[which].fixed {
            view.write_fixed(fixed, &mut self.message);
        } else {
            self.write_aside(which, view);
            self.make_room(which, self.record.len(), sink);
            self.message.extend_from_slice(&self.record);
        }
        self.data_records += 1;
        self.all_records += 1;
        self.packets += packets;
        sink.account.records += 1;
        self.flow_records += 1;
        if self.flow_records == self.records_max {
            self.flush(sink);
        }
    }

    /// Adds records in a row, as many at a time as a message has room for.
    fn add_run(&mut self, run: Run<'_>, sink: &mut MessageSink<'_>) {
        let which = usize::from(run.is_v6);
        let (len, mut octets, mut packets) = (self.templates[which].record_len, run.octets, run.packets);
        while !packets.is_empty() {
            self.make_room(which, len, sink);
            // Room was made for the first one.
            let fitting = self.room.saturating_sub(SET_LEN + self.message.len()) / len;
            let mut count = fitting.clamp(1, packets.len());
            if self.records_max > 0 {
                count = count.min((self.records_max - self.flow_records) as usize);
            }
            let (octets_now, octets_later) = octets.split_at(count * len);
            let (packets_now, packets_later) = packets.split_at(count);
            self.message.extend_from_slice(octets_now);
            self.data_records += count as u32;
            self.packets += packets_now.iter().sum::<u64>();
            sink.account.records += count as u64;
            self.flow_records += count as u32;
            if self.flow_records == self.records_max {
                self.flush(sink);
            }
            (octets, packets) = (octets_later, packets_later);
        }
    }

    /// Writes a record whose length varies; its texts are cut if they fit into no message.
    fn write_aside(&mut self, which: usize, view: &RecordView<'_>) {
        let template = &self.templates[which];
        let room = self.room - self.header_len() - SET_LEN;
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        write(template, view, usize::from(u16::MAX), &mut record);
        if record.len() > room {
            record.clear();
            // The length of a text may take two octets more than it does in the shortest record.
            let each = (room - template.record_len) / template.variable;
            write(template, view, if each > 254 { each - 2 } else { each.min(254) }, &mut record);
        }
        self.record = record;
    }

    fn view<'f>(
        &self,
        flow: &'f Flow,
        from: usize,
        (first, last): (Timestamp, Timestamp),
        places: Option<&'f [Place<'f>; 2]>,
    ) -> RecordView<'f> {
        let (boot_ms, domain, exporter, sampling) =
            (self.boot.millis(), self.domain, self.exporter, self.sampling);
        RecordView { flow, from, first, last, boot_ms, domain, exporter, sampling, places }
    }

    /// Opens the set of a template in a message that has room for a record.
    fn make_room(&mut self, which: usize, len: usize, sink: &mut MessageSink<'_>) {
        if !self.has_room(len) {
            self.flush(sink);
        }
        self.begin(true, sink);
        if !self.has_room(len) {
            // The templates alone fill it.
            self.flush(sink);
            self.begin(false, sink);
        }
        self.open_set(self.templates[which].id);
    }

    fn has_room(&self, len: usize) -> bool {
        self.message.is_empty() || self.message.len() + len + SET_LEN <= self.room
    }

    /// Begins a message if there is none, with templates where they are due and may be in it.
    fn begin(&mut self, may_have_templates: bool, sink: &mut MessageSink<'_>) {
        if !self.message.is_empty() {
            return;
        }
        let now = sink.now;
        self.message.resize(self.header_len(), 0);
        let is_due = self.repeat.is_some_and(|(messages, nanos)| {
            self.messages_since >= messages || self.sent_at.is_none_or(|then| now.since(then).abs() >= nanos)
        });
        if may_have_templates && (self.needs_templates || is_due) {
            let (sets, records, data_records) = self.template_sets(self.sampling);
            self.message.extend_from_slice(&sets);
            self.all_records += records;
            self.data_records += data_records;
            (self.needs_templates, self.messages_since, self.sent_at) = (false, 0, Some(now));
            self.tell_types(sink);
        }
    }

    /// Sends the types of our own elements, in messages of their own; then the next message begins.
    fn tell_types(&mut self, sink: &mut MessageSink<'_>) {
        if self.types.is_empty() {
            return;
        }
        self.flush(sink);
        let types = std::mem::take(&mut self.types);
        for record in &types {
            if !self.has_room(record.len()) {
                self.flush(sink);
            }
            if self.message.is_empty() {
                self.message.resize(self.header_len(), 0);
                set(&mut self.message, 3, types::template);
            }
            self.open_set(types::ID);
            self.message.extend_from_slice(record);
            self.data_records += 1;
        }
        self.types = types;
        self.flush(sink);
        self.message.resize(self.header_len(), 0);
    }

    /// Templates and options; how many records that is, and how many of these are data.
    fn template_sets(&self, sampling: Sampling) -> (Vec<u8>, u16, u32) {
        let is_v9 = self.version == Version::V9;
        let mut sets = Vec::new();
        set(&mut sets, if is_v9 { 0 } else { 2 }, |out| {
            for Template { id, fields, .. } in &self.templates {
                words(out, &[*id, fields.len() as u16]);
                fields.iter().for_each(|field| field_specifier(out, field, self.enterprise));
            }
        });
        let (elements, values) = match sampling {
            Sampling::Packets(0 | 1) | Sampling::Flows(0 | 1) => return (sets, 2, 0),
            Sampling::Packets(interval) => packet_sampling(interval),
            Sampling::Flows(interval) => flow_sampling(sampling, interval),
        };
        // Of the whole source (v9: scope 1, RFC 3954, 6.1) or observation domain (149).
        let (set_id, lengths, scope) = match is_v9 {
            true => (1, [4, 2 * elements.len() as u16], 1),
            false => (3, [1 + elements.len() as u16 / 2, 1], 149),
        };
        set(&mut sets, set_id, |out| {
            words(out, &[OPTIONS_ID, lengths[0], lengths[1], scope, 4]);
            words(out, &elements);
        });
        set(&mut sets, OPTIONS_ID, |out| {
            out.extend_from_slice(&self.domain.to_be_bytes());
            out.extend_from_slice(&values);
        });
        (sets, 4, 1)
    }

    fn open_set(&mut self, id: u16) {
        if self.set.is_some_and(|(_, open)| open == id) {
            return;
        }
        self.close_set();
        self.set = Some((self.message.len(), id));
        words(&mut self.message, &[id, 0]);
    }

    fn close_set(&mut self) {
        if let Some((at, _)) = self.set.take() {
            end_set(&mut self.message, at, self.pads);
        }
    }

    fn flush(&mut self, sink: &mut MessageSink<'_>) {
        if self.message.is_empty() {
            return;
        }
        self.close_set();
        self.write_header(sink.now);
        self.needs_templates |= sink.send(&Message { bytes: &self.message, packets: self.packets });
        self.sequence =
            self.sequence.wrapping_add(if self.version == Version::V9 { 1 } else { self.data_records });
        self.messages_since = self.messages_since.saturating_add(1);
        self.message.clear();
        (self.data_records, self.all_records, self.flow_records, self.packets) = (0, 0, 0, 0);
    }

    fn write_header(&mut self, now: Timestamp) {
        let (seconds, uptime) = self.boot.at(now);
        let len = self.message.len() as u16;
        let mut header = Vec::with_capacity(20);
        match self.version {
            Version::V9 => {
                words(&mut header, &[9, self.all_records]);
                numbers(&mut header, &[uptime, seconds, self.sequence, self.domain]);
            }
            _ => {
                words(&mut header, &[10, len]);
                numbers(&mut header, &[now.seconds() as u32, self.sequence, self.domain]);
            }
        }
        self.message[..header.len()].copy_from_slice(&header);
    }
}

/// The options of sampled packets: elements with their lengths, and their values.
fn packet_sampling(interval: u32) -> (Vec<u16>, Vec<u8>) {
    // samplingInterval, samplingAlgorithm: 2 is random.
    (vec![34, 4, 35, 1], [&interval.to_be_bytes()[..], &[2]].concat())
}

/// The options of sampled flows (RFC 7014, 6.3), without the seed: a sender who knows it can keep out of the sample
/// (RFC 5475, 6.2.3).
fn flow_sampling(sampling: Sampling, interval: u32) -> (Vec<u16>, Vec<u8>) {
    // flowSelectorAlgorithm, samplingProbability, and the ranges of hashes there are and of those chosen.
    let elements = vec![390, 2, 311, 8, 329, 8, 330, 8, 331, 8, 332, 8];
    let mut values = FLOW_SELECTOR_BOB.to_be_bytes().to_vec();
    values.extend((1.0 / f64::from(interval)).to_be_bytes());
    let greatest = sampling.greatest_hash().unwrap_or(u32::MAX);
    let ranges = [0, u32::MAX.into(), 0, u64::from(greatest)];
    ranges.iter().for_each(|number| values.extend(number.to_be_bytes()));
    (elements, values)
}

/// Numbers of four octets.
pub(super) fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

/// Numbers of two octets.
pub(super) fn words(out: &mut Vec<u8>, words: &[u16]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

pub(super) fn field_specifier(out: &mut Vec<u8>, field: &Field, ours: u32) {
    let len = field.element.len;
    match field.number(ours) {
        (None, id) => words(out, &[id, len]),
        (Some(enterprise), id) => {
            words(out, &[id | 0x8000, len]);
            out.extend_from_slice(&enterprise.to_be_bytes());
        }
    }
}

/// Writes a record with texts of at most `most` octets.
#[inline]
fn write(template: &Template, view: &RecordView<'_>, most: usize, out: &mut Vec<u8>) {
    for Field { element, is_reverse } in &template.fields {
        write_value(view.field_value(element.value, *is_reverse), element, most, out);
    }
}

/// Writes a whole set.
fn set(out: &mut Vec<u8>, id: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    words(out, &[id, 0]);
    write(out);
    end_set(out, at, true);
}

/// Pads the set that begins at `at`, and writes its length.
fn end_set(out: &mut Vec<u8>, at: usize, pads: bool) {
    let len = (out.len() - at).next_multiple_of(if pads { 4 } else { 1 });
    out.resize(at + len, 0);
    out[at + 2..at + 4].copy_from_slice(&(len as u16).to_be_bytes());
}
