//! Flows as lines of text: JSON objects or CSV.
//!
//! ```text
//! JSON   {"flowStartNanoseconds":"2026-11-22T20:10:15.123456789Z","sourceIPv4Address":"10.0.0.1","octetDeltaCount":1500,...}
//! CSV    flowStartNanoseconds,sourceIPv4Address,sourceIPv6Address,...       IPv4 and IPv6 have a column each, of which one is empty
//! ```
//!
//! Fields have the names of IANA's information elements, and values the form of RFC 7373: decimal numbers, octets in
//! hexadecimal, UTC times with the digits of the element's unit. Fields of the reverse direction begin with `reverse`,
//! as in RFC 5103. `communityId` is not in IANA's registry: Community ID version 1 with seed 0, as Zeek, Suricata and
//! Arkime write it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tapline_geo::Places;
use tapline_packet::Timestamp;
use tapline_source::OutputAccount;

use super::community;
use super::element::{Element, FieldValue, IpFamily, PlaceLookup, RecordView, RowContext};
use super::file::MessageFile;
use super::table::ColumnType;
use super::text::{ValueText, end_json_line, json_key, json_text};
use super::{ExportAccount, ExportOptions, FlowSink};
use crate::{Error, Flow, Sampling};

/// Bytes of text per write.
const CHUNK: usize = 64 << 10;
/// The name of the only field that is not an information element.
pub(super) const COMMUNITY_ID: &str = "communityId";

/// Default columns of rows.
pub(super) const DEFAULT: &str = "flowStartNanoseconds,flowEndNanoseconds,sourceIPv4Address,sourceTransportPort,destinationIPv4Address,destinationTransportPort,\
    protocolIdentifier,octetDeltaCount,packetDeltaCount,tcpControlBits,initialTCPFlags,ipClassOfService,minimumTTL,maximumTTL,icmpTypeCodeIPv4,vlanId,\
    ingressInterface,flowEndReason,communityId";

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RowFormat {
    /// One object per line.
    #[default]
    Json,
    /// Comma-separated values, with a header line.
    Csv,
}

/// A field of a row.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) what: ColumnSource,
    /// The IP version; `None` for both.
    pub(super) version: Option<IpFamily>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ColumnSource {
    Element { element: Element, is_reverse: bool },
    CommunityId,
}

/// Writes flows as lines.
pub struct RowWriter {
    file: MessageFile,
    name: String,
    format: RowFormat,
    fields: Vec<RowField>,
    /// Whether a field is the Community ID.
    has_community: bool,
    biflow: bool,
    domain: u32,
    exporter: Option<IpAddr>,
    sampling: Sampling,
    places: PlaceLookup,
    text: Vec<u8>,
    values: ValueText,
    account: ExportAccount,
}

/// A column, and what is computed from it once.
struct RowField {
    column: Column,
    kind: ColumnType,
    /// The name as JSON has it, with its separators.
    key: Vec<u8>,
}

impl RowWriter {
    /// Makes a file, or empties the one that is there; `-` is standard output. The template and whether both directions
    /// are one row are those of `options`.
    ///
    /// # Errors
    /// If the file cannot be made, or the template cannot be.
    pub fn create(path: &Path, format: RowFormat, options: &ExportOptions) -> Result<RowWriter, Error> {
        let columns = columns(options)?;
        let places = place_lookup(&columns);
        let name = MessageFile::name_of(path);
        let file =
            MessageFile::create(path).map_err(|source| Error::Open { collector: name.clone(), source })?;
        let fields: Vec<RowField> = columns.into_iter().map(RowField::new).collect();
        let has_community = fields.iter().any(|field| matches!(field.column.what, ColumnSource::CommunityId));
        let text = if format == RowFormat::Csv { header(&fields) } else { Vec::new() };
        let packets = OutputAccount::of_written(&name, 0);
        Ok(RowWriter {
            file,
            name,
            format,
            fields,
            has_community,
            biflow: options.biflow,
            domain: options.domain,
            exporter: options.exporter,
            sampling: Sampling::NONE,
            places,
            text,
            values: ValueText::default(),
            account: ExportAccount { packets, ..ExportAccount::default() },
        })
    }

    fn add(&mut self, flow: &Flow) {
        let places = self.places.of_flow(flow);
        let context = RowContext {
            is_biflow: self.biflow,
            domain: self.domain,
            exporter: self.exporter,
            sampling: self.sampling,
            places: places.as_ref(),
        };
        let is_v4 = flow.endpoints[0].address.is_ipv4();
        let version = if is_v4 { IpFamily::V4 } else { IpFamily::V6 };
        let community = if self.has_community { community::of_flow(flow) } else { None };
        let community = community.as_ref().map(|text| &text[..]);
        let (text, values, account) = (&mut self.text, &mut self.values, &mut self.account);
        context.for_each_row(flow, |view, _| {
            let fields = self.fields.iter().map(|field| {
                let is_there = field.column.version.is_none_or(|only| only == version);
                (field, is_there.then(|| field.column.what.row_value(view, community)))
            });
            match self.format {
                RowFormat::Json => json(fields, values, text),
                RowFormat::Csv => csv(fields, values, text),
            }
            account.records += 1;
        });
        self.account.packets.buffered += flow.answered_packets();
    }

    /// The names of the columns, where the format has them in front.
    fn header(&self) -> Vec<u8> {
        match self.format {
            RowFormat::Csv => header(&self.fields),
            RowFormat::Json => Vec::new(),
        }
    }
}

impl FlowSink for RowWriter {
    fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error> {
        self.sampling = sampling;
        Ok(())
    }

    fn set_places(&mut self, places: &Arc<Places>) {
        self.places.set(places);
    }

    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), Error> {
        let mut failure = Ok(());
        for flow in flows {
            self.account.flows += 1;
            self.add(flow);
            if self.text.len() >= CHUNK {
                let flushed = self.flush(now);
                failure = failure.and(flushed);
            }
        }
        failure
    }

    fn flush(&mut self, _: Timestamp) -> Result<(), Error> {
        if self.text.is_empty() {
            return Ok(());
        }
        let packets = std::mem::take(&mut self.account.packets.buffered);
        self.account.messages += 1;
        self.account.octets += self.text.len() as u64;
        let written = self.file.add(&self.text);
        self.text.clear();
        match written {
            Ok(()) => self.account.packets.written += packets,
            Err(_) => {
                self.account.packets.lost += packets;
                self.account.messages_lost += 1;
            }
        }
        written.map_err(|source| Error::Write { collector: self.name.clone(), source })
    }

    fn reopen(&mut self, now: Timestamp) -> Result<bool, Error> {
        self.flush(now)?;
        let reopened = self.file.reopen(Path::new(&self.name));
        let is_another = reopened.map_err(|source| Error::Open { collector: self.name.clone(), source })?;
        if is_another {
            self.text = self.header();
        }
        Ok(is_another)
    }

    fn account(&self) -> ExportAccount {
        self.account.clone()
    }
}

/// Places for rows of these columns.
pub(super) fn place_lookup(columns: &[Column]) -> PlaceLookup {
    PlaceLookup::of(columns.iter().filter_map(|column| match &column.what {
        ColumnSource::Element { element, .. } => Some(element),
        ColumnSource::CommunityId => None,
    }))
}

/// The fields of a row. An element that each version of IP has for itself is one field in JSON, and two columns in CSV.
pub(super) fn columns(options: &ExportOptions) -> Result<Vec<Column>, Error> {
    let mut columns: Vec<Column> = Vec::new();
    for name in &Element::names(&options.template, DEFAULT) {
        let more = match name.eq_ignore_ascii_case(COMMUNITY_ID) {
            true => {
                vec![Column { name: COMMUNITY_ID.to_owned(), what: ColumnSource::CommunityId, version: None }]
            }
            false => {
                let element = Element::of_name(name)?;
                element.check_options(options)?;
                of_element(element)
            }
        };
        if columns.iter().any(|column| column.name == more[0].name) {
            return Err(Error::Template { what: format!("has {name} twice: leave one out") });
        }
        columns.extend(more);
    }
    if options.biflow {
        let reversed: Vec<Column> = columns.iter().filter_map(reverse).collect();
        columns.extend(reversed);
    }
    Ok(columns)
}

fn of_element(element: Element) -> Vec<Column> {
    let [v4, v6] = [IpFamily::V4, IpFamily::V6].map(|version| element.for_family(version));
    let column = |element: Element, version| Column {
        name: element.name.to_owned(),
        what: ColumnSource::Element { element, is_reverse: false },
        version,
    };
    if v4 == v6 {
        return vec![column(v4, None)];
    }
    vec![column(v4, Some(IpFamily::V4)), column(v6, Some(IpFamily::V6))]
}

/// The column of the other direction, if that has a meaning.
fn reverse(column: &Column) -> Option<Column> {
    let ColumnSource::Element { element, .. } = column.what else { return None };
    element.is_directional.then(|| Column {
        name: element.name_of(true),
        what: ColumnSource::Element { element, is_reverse: true },
        version: column.version,
    })
}

/// The first line of CSV.
fn header(fields: &[RowField]) -> Vec<u8> {
    let names: Vec<&str> = fields.iter().map(|field| field.column.name.as_str()).collect();
    (names.join(",") + "\n").into_bytes()
}

impl RowField {
    fn new(column: Column) -> RowField {
        RowField { kind: ColumnType::of(&column.what), key: json_key(&column.name), column }
    }
}

/// A value of a row.
enum RowValue<'f> {
    Of(FieldValue<'f>),
    CommunityId(&'f [u8]),
}

impl ColumnSource {
    #[inline(always)]
    fn row_value<'f>(&self, view: &RecordView<'f>, community: Option<&'f [u8]>) -> RowValue<'f> {
        match self {
            ColumnSource::CommunityId => {
                community.map_or(RowValue::Of(FieldValue::Absent), RowValue::CommunityId)
            }
            ColumnSource::Element { element, is_reverse } => {
                RowValue::Of(view.field_value(element.value, *is_reverse))
            }
        }
    }
}

/// A field that the flow does not have is left out; `None` is one of the other version of IP.
#[inline(always)]
fn json<'f>(
    fields: impl Iterator<Item = (&'f RowField, Option<RowValue<'f>>)>,
    values: &mut ValueText,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    for (field, value) in fields {
        let Some(value) = value else { continue };
        if matches!(value, RowValue::Of(FieldValue::Absent)) {
            continue;
        }
        out.extend_from_slice(&field.key);
        match value {
            RowValue::Of(FieldValue::Text(text)) => json_text(text.as_bytes(), out),
            RowValue::Of(value) if matches!(field.kind, ColumnType::Unsigned(_)) => {
                values.write(value, field.kind, out);
            }
            RowValue::Of(value) => {
                out.push(b'"');
                values.write(value, field.kind, out);
                out.push(b'"');
            }
            RowValue::CommunityId(text) => json_text(text, out),
        }
    }
    end_json_line(start, out);
}

#[inline(always)]
fn csv<'f>(
    fields: impl Iterator<Item = (&'f RowField, Option<RowValue<'f>>)>,
    values: &mut ValueText,
    out: &mut Vec<u8>,
) {
    for (at, (field, value)) in fields.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match value {
            Some(RowValue::Of(FieldValue::Text(text))) => csv_text(text, out),
            Some(RowValue::Of(value)) => values.write(value, field.kind, out),
            Some(RowValue::CommunityId(text)) => out.extend_from_slice(text),
            None => {}
        }
    }
    out.push(b'\n');
}

/// Writes a text, in quotes if it has a comma or a quote (RFC 4180).
fn csv_text(text: &str, out: &mut Vec<u8>) {
    match text.contains([',', '"']) {
        true => out.extend_from_slice(format!("\"{}\"", text.replace('"', "\"\"")).as_bytes()),
        false => out.extend_from_slice(text.as_bytes()),
    }
}

impl ExportOptions {
    /// Options for rows: the template, and whether a row has both directions.
    pub fn of_rows(template: &str, biflow: bool) -> ExportOptions {
        ExportOptions { template: template.to_owned(), biflow, ..ExportOptions::default() }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{Collected, EndReason, Endpoint, FlowContext, KnownField, KnownFields};

    fn side(address: &str, port: u16, packets: u64) -> Endpoint {
        Endpoint {
            address: address.parse::<IpAddr>().unwrap(),
            port,
            packets,
            bytes: 100 * packets,
            first: Timestamp::from_nanos(1_700_000_000_123_456_789),
            last: Timestamp::from_nanos(1_700_000_001_000_000_000),
            tcp_flags: 0x1b,
            tcp_flags_first: 2,
            ttl_min: 60,
            ttl_max: 64,
            tos: 0,
        }
    }

    fn flow(one: Endpoint, other: Endpoint) -> Flow {
        Flow {
            endpoints: [one, other],
            protocol: 6,
            end_reason: EndReason::End,
            context: FlowContext::NONE,
            details: None,
            collected: None,
            id: 0,
        }
    }

    fn written(format: RowFormat, options: &ExportOptions, flows: &[Flow]) -> (String, ExportAccount) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut rows = RowWriter::create(&path, format, options).unwrap();
        rows.export(flows, Timestamp::EPOCH).unwrap();
        assert_eq!(rows.account().packets.buffered, flows.iter().map(Flow::packets).sum::<u64>());
        rows.flush(Timestamp::EPOCH).unwrap();
        (std::fs::read_to_string(&path).unwrap(), rows.account())
    }

    #[test]
    fn each_direction_is_a_row_or_both_are_one() {
        let template = "flowStartNanoseconds,flowEndMilliseconds,flowEndSeconds,sourceIPv4Address,destinationIPv4Address,\
            sourceTransportPort,octetDeltaCount,mplsTopLabelStackSection,flowEndReason";
        let both = flow(side("10.0.0.1", 4321, 3), side("10.0.0.2", 80, 2));
        let (text, account) =
            written(RowFormat::Json, &ExportOptions::of_rows(template, false), std::slice::from_ref(&both));
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            lines[0],
            serde_json::json!({
                "flowStartNanoseconds": "2023-11-14T22:13:20.123456789Z", "flowEndMilliseconds": "2023-11-14T22:13:21.000Z",
                "flowEndSeconds": "2023-11-14T22:13:21Z", "sourceIPv4Address": "10.0.0.1", "destinationIPv4Address": "10.0.0.2",
                "sourceTransportPort": 4321, "octetDeltaCount": 300, "mplsTopLabelStackSection": "000000", "flowEndReason": 3,
            })
        );
        assert_eq!((lines.len(), &lines[1]["sourceTransportPort"]), (2, &80.into()));
        assert_eq!(
            (account.flows, account.records, account.packets.written, account.packets.lost),
            (1, 2, 5, 0)
        );
        let exporter = Some("10.9.8.7".parse().unwrap());
        let told = ExportOptions { exporter, ..ExportOptions::of_rows("exporterIPv4Address", true) };
        let (text, _) = written(RowFormat::Json, &told, std::slice::from_ref(&both));
        assert_eq!(text, "{\"exporterIPv4Address\":\"10.9.8.7\"}\n");
        let (text, account) = written(RowFormat::Json, &ExportOptions::of_rows(template, true), &[both]);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["octetDeltaCount"], &line["reverseOctetDeltaCount"]), (&300.into(), &200.into()));
        assert_eq!((account.records, account.packets.written), (1, 5));
    }

    /// A flow of another exporter, which gave these fields and no others.
    fn collected(known: &[KnownField]) -> Flow {
        let mut fields = KnownFields::default();
        known.iter().for_each(|field| fields.add(*field, 0));
        let collected = Collected {
            known: fields,
            exporter: "192.0.2.1".parse().unwrap(),
            domain: 7,
            sampling: None,
            egress: 0,
            direction: 0,
            prefix_lens: [0; 2],
            autonomous_systems: [0; 2],
            next_hop: None,
            post_addresses: [None, Some("203.0.113.1".parse().unwrap())],
            post_ports: [None, Some(40_000)],
            nat_event: None,
            firewall_event: None,
            is_beyond: false,
        };
        Flow {
            collected: Some(Box::new(collected)),
            id: 0,
            ..flow(side("10.0.0.1", 0, 3), Endpoint { packets: 0, bytes: 0, ..side("0.0.0.0", 0, 0) })
        }
    }

    /// A field that an exporter did not give is left out: 0 would be a value.
    #[test]
    fn unknown_fields_are_left_out() {
        let known = [KnownField::Address, KnownField::Bytes, KnownField::Vlan];
        let mut flow = collected(&known);
        let all = "default,egressInterface,flowDirection,ipVersion,samplingInterval,samplingAlgorithm,layer2SegmentId,\
            mplsTopLabelStackSection,postNATDestinationIPv4Address,postNAPTDestinationTransportPort,natEvent,firewallEvent";
        let options = ExportOptions { is_collected: true, ..ExportOptions::of_rows(all, false) };
        let names = |flow: &Flow| -> Vec<String> {
            let (text, _) = written(RowFormat::Json, &options, std::slice::from_ref(flow));
            let line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
            line.into_iter().map(|(name, _)| name).collect()
        };
        let expected = [
            "flowEndNanoseconds",
            "flowStartNanoseconds",
            "ipVersion",
            "octetDeltaCount",
            "postNAPTDestinationTransportPort",
            "postNATDestinationIPv4Address",
            "sourceIPv4Address",
            "vlanId",
        ];
        let mut found = names(&flow);
        found.sort();
        assert_eq!(found, expected);
        let (text, _) = written(RowFormat::Csv, &options, std::slice::from_ref(&flow));
        let values = text.lines().nth(1).unwrap().split(',').filter(|value| !value.is_empty());
        assert_eq!(values.count(), expected.len());
        // An event that counts nothing is a row too.
        flow.endpoints[0] = Endpoint { packets: 0, bytes: 0, ..flow.endpoints[0] };
        assert_eq!(written(RowFormat::Json, &options, std::slice::from_ref(&flow)).0, "");
        if let Some(collected) = &mut flow.collected {
            collected.nat_event = Some(1);
            collected.known = KnownFields::default();
        }
        let found = names(&flow);
        assert!(
            found.contains(&"natEvent".to_owned()) && !found.contains(&"octetDeltaCount".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn both_versions_of_ip_have_their_columns() {
        let one = flow(side("10.0.0.1", 1, 1), side("10.0.0.2", 2, 0));
        let six = flow(side("2001:db8::1", 1, 1), side("2001:db8::2", 2, 0));
        let options =
            ExportOptions::of_rows("sourceIPv4Address,octetDeltaCount,destinationIPv6Address", false);
        let (text, _) = written(RowFormat::Csv, &options, &[one, six.clone()]);
        let expected = "sourceIPv4Address,sourceIPv6Address,octetDeltaCount,destinationIPv4Address,destinationIPv6Address\n\
            10.0.0.1,,100,10.0.0.2,\n,2001:db8::1,100,,2001:db8::2\n";
        assert_eq!(text, expected);
        let (text, _) = written(RowFormat::Json, &options, &[six]);
        assert_eq!(
            text,
            "{\"sourceIPv6Address\":\"2001:db8::1\",\"octetDeltaCount\":100,\"destinationIPv6Address\":\"2001:db8::2\"}\n"
        );
    }

    #[test]
    fn a_field_twice_or_without_a_meaning_is_refused() {
        for (template, word) in [
            ("octetDeltaCount,octetDeltaCount", "twice"),
            ("sourceIPv4Address,sourceIPv6Address", "twice"),
            ("octetDelta", "did you mean"),
        ] {
            let error = columns(&ExportOptions::of_rows(template, false)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn rows_that_cannot_be_written_are_lost() {
        let options = ExportOptions::of_rows("default", false);
        let mut rows = RowWriter::create(Path::new("/dev/full"), RowFormat::Csv, &options).unwrap();
        rows.export(&[flow(side("10.0.0.1", 1, 7), side("10.0.0.2", 2, 0))], Timestamp::EPOCH).unwrap();
        assert!(rows.flush(Timestamp::EPOCH).is_err());
        let account = rows.account();
        let OutputAccount { written, lost, buffered, .. } = account.packets;
        assert_eq!((written, lost, buffered, account.messages_lost), (0, 7, 0, 1));
    }
}
