//! Tables as messages of IPFIX (RFC 7011): each part is a file of RFC 5655, with its templates in front.
//!
//! ```text
//! message  version 10 | length | seconds | sequence | observation domain | sets, without padding
//! set      template set, in the first message of a part; then records of the flows of one version of IP
//! ```
//!
//! Lengths of the last message and of its last set are right after each record, so a part may end anywhere. A value that a
//! flow lacks is zero, or a text without letters.

use tapline_packet::Timestamp;

use super::{
    Cell, ColumnSource, ColumnType, EncodedRows, FlowTable, SpareBuffers, TableEncoder, TableShape,
    encode_rows,
};
use crate::Error;
use crate::export::ExportOptions;
use crate::export::element::{Element, FieldValue, IpFamily, write_value};
use crate::export::encoder::{field_specifier, numbers, words};
use crate::export::template::Field;

const VERSION: u16 = 10;
const HEADER_LEN: usize = 16;
const SET_HEADER_LEN: usize = 4;
const TEMPLATE_SET: u16 = 2;
/// The templates of flows of IPv4 and of IPv6.
const TEMPLATE_IDS: [u16; 2] = [256, 257];
/// The most octets of a message.
const MESSAGE_MAX: usize = 65_535;
/// The most octets of a text: a record has room in a message with any number of them.
const TEXT_MAX: usize = 512;

/// Encodes tables as messages of IPFIX.
pub struct IpfixEncoder {
    kinds: Vec<ColumnType>,
    /// The fields of each version of IP, and their columns.
    templates: [Vec<(usize, Field)>; 2],
    /// Columns of IPv6 alone.
    of_v6: Vec<usize>,
    messages: Messages,
}

/// Messages of a part, of which the last one is open.
struct Messages {
    domain: u32,
    enterprise: u32,
    seconds: u32,
    /// Records in all messages before the open one.
    sequence: u32,
    /// Records of the open one.
    records: u32,
    /// Offset of the open message.
    message: usize,
    /// Offset and id of its last set.
    set: Option<(usize, u16)>,
}

impl IpfixEncoder {
    /// An encoder of tables of this shape. It uses the domain and the enterprise number of `options`. The Community
    /// ID is not an information element, and left out.
    ///
    /// # Errors
    /// [`Error::Template`] if nothing else is left.
    pub fn new(shape: &TableShape, options: &ExportOptions) -> Result<IpfixEncoder, Error> {
        let of = |version: IpFamily| {
            let columns = shape.columns.iter().enumerate();
            let columns = columns.filter(|(_, column)| column.version.is_none_or(|only| only == version));
            let fields = columns.filter_map(|(at, column)| match column.what {
                ColumnSource::Element { element, is_reverse } => Some((at, Field { element, is_reverse })),
                ColumnSource::CommunityId => None,
            });
            fields.collect::<Vec<_>>()
        };
        let templates = [of(IpFamily::V4), of(IpFamily::V6)];
        if templates.iter().any(Vec::is_empty) {
            return Err(Error::Template { what: "has no information element that IPFIX knows".to_owned() });
        }
        let columns = shape.columns.iter().enumerate();
        let of_v6 = columns.filter(|(_, column)| column.version == Some(IpFamily::V6)).map(|(at, _)| at);
        let messages = Messages {
            domain: options.domain,
            enterprise: options.enterprise,
            seconds: 0,
            sequence: 0,
            records: 0,
            message: 0,
            set: None,
        };
        Ok(IpfixEncoder { kinds: shape.kinds.clone(), templates, of_v6: of_v6.collect(), messages })
    }
}

impl TableEncoder for IpfixEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        spare: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        let IpfixEncoder { kinds, templates, of_v6, messages } = self;
        let last = table.ends.iter().map(|end| end.last).max().unwrap_or(Timestamp::EPOCH);
        messages.seconds = last.seconds() as u32;
        let mut record = Vec::new();
        Ok(encode_rows(table, kinds, bytes_max, spare, |row, out| {
            let which = usize::from(of_v6.iter().any(|at| row[*at] != Cell::Null));
            record.clear();
            for (at, field) in &templates[which] {
                write_cell(row[*at], kinds[*at], &field.element, &mut record);
            }
            if out.is_empty() {
                messages.begin(out);
                messages.add_templates(templates, out);
            }
            messages.add(TEMPLATE_IDS[which], &record, out);
        }))
    }
}

impl Messages {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(std::mem::take(&mut self.records));
        (self.message, self.set) = (out.len(), None);
        words(out, &[VERSION, HEADER_LEN as u16]);
        numbers(out, &[self.seconds, self.sequence, self.domain]);
    }

    fn add_templates(&mut self, templates: &[Vec<(usize, Field)>; 2], out: &mut Vec<u8>) {
        self.open_set(TEMPLATE_SET, out);
        for (id, fields) in TEMPLATE_IDS.iter().zip(templates) {
            words(out, &[*id, fields.len() as u16]);
            fields.iter().for_each(|(_, field)| field_specifier(out, field, self.enterprise));
        }
        self.write_lengths(out);
    }

    fn add(&mut self, id: u16, record: &[u8], out: &mut Vec<u8>) {
        if out.len() - self.message + SET_HEADER_LEN + record.len() > MESSAGE_MAX {
            self.begin(out);
        }
        if self.set.is_none_or(|(_, open)| open != id) {
            self.open_set(id, out);
        }
        out.extend_from_slice(record);
        self.records = self.records.wrapping_add(1);
        self.write_lengths(out);
    }

    fn open_set(&mut self, id: u16, out: &mut Vec<u8>) {
        self.set = Some((out.len(), id));
        words(out, &[id, SET_HEADER_LEN as u16]);
    }

    fn write_lengths(&self, out: &mut [u8]) {
        let end = out.len();
        for at in [Some(self.message), self.set.map(|(at, _)| at)].into_iter().flatten() {
            out[at + 2..at + 4].copy_from_slice(&((end - at) as u16).to_be_bytes());
        }
    }
}

/// Writes a value in the octets of its element.
fn write_cell(cell: Cell<'_>, kind: ColumnType, element: &Element, out: &mut Vec<u8>) {
    let value = match cell.value(kind) {
        // Text is cut between characters, and bytes that are not UTF-8 anywhere.
        FieldValue::Bytes(text) if text.len() > TEXT_MAX => {
            str::from_utf8(text).map_or(FieldValue::Bytes(text), FieldValue::Text)
        }
        value => value,
    };
    write_value(value, element, TEXT_MAX, out);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{flows, table};
    use super::*;
    use crate::export::ELEMENTS;
    use crate::{Details, Http, LinkHeader, Sampling};

    fn number(bytes: &[u8], at: usize, len: usize) -> usize {
        bytes[at..at + len].iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    /// A set: its id and its records.
    type Set = (usize, Vec<u8>);

    /// The messages of a part: sequence and sets of each.
    fn messages(part: &[u8]) -> Vec<(usize, Vec<Set>)> {
        let (mut all, mut at) = (Vec::new(), 0);
        while at < part.len() {
            let message = &part[at..at + number(part, at + 2, 2)];
            assert_eq!((number(message, 0, 2), number(message, 12, 4)), (10, 77));
            let (mut sets, mut set) = (Vec::new(), HEADER_LEN);
            while set < message.len() {
                let len = number(message, set + 2, 2);
                sets.push((number(message, set, 2), message[set + 4..set + len].to_vec()));
                set += len;
            }
            assert_eq!(set, message.len());
            all.push((number(message, 8, 4), sets));
            at += message.len();
        }
        all
    }

    #[test]
    fn messages_have_every_record_once() {
        let options = ExportOptions {
            domain: 77,
            ..ExportOptions::of_rows("sourceIPv4Address,octetDeltaCount", false)
        };
        let shape = TableShape::new(&options).expect("a template");
        let flows = flows(5000);
        let table = table(&shape, &flows);
        for bytes_max in [500, 30_000, usize::MAX] {
            let mut encoder = IpfixEncoder::new(&shape, &options).expect("elements");
            let parts = encoder.encode(&table, bytes_max).expect("rows");
            let (mut records, mut found) = (0, Vec::new());
            for part in &parts {
                for (at, (sequence, sets)) in messages(&part.bytes).into_iter().enumerate() {
                    assert_eq!(sequence, records, "records before the message");
                    assert_eq!(sets[0].0 == 2, at == 0, "templates stand in the first message alone");
                    for (id, bytes) in sets.iter().filter(|(id, _)| *id != 2) {
                        let address_len = if *id == 256 { 4 } else { 16 };
                        for record in bytes.chunks(address_len + 8) {
                            found.push((
                                record[..address_len].to_vec(),
                                number(record, address_len, 8) as u64,
                            ));
                            records += 1;
                        }
                    }
                }
            }
            let sides = flows.iter().flat_map(|flow| flow.endpoints).filter(|side| side.has_sent());
            let octets = |address: std::net::IpAddr| match address {
                std::net::IpAddr::V4(address) => address.octets().to_vec(),
                std::net::IpAddr::V6(address) => address.octets().to_vec(),
            };
            let expected: Vec<(Vec<u8>, u64)> =
                sides.map(|side| (octets(side.address), side.bytes)).collect();
            assert_eq!(found, expected);
            assert!(parts.len() > 1 || bytes_max == usize::MAX);
        }
    }

    /// Details with texts that are cut, within a character too, and octets of several lengths.
    fn details(number: usize) -> Details {
        let cut = format!("{}{}", "a".repeat(number % 2), "ä".repeat(TEXT_MAX / 2 + 1));
        let link = LinkHeader { source: Some([2, 0, 0, 0, 0, 9]), ..LinkHeader::default() };
        Details {
            http: Some(Http { host: cut.as_str().into(), target: "/".into(), ..Http::default() }),
            payload: [b"\xff\x00".repeat(30).into(), Box::default()],
            link: Some([link; 2]),
            ..Details::default()
        }
    }

    #[test]
    fn records_are_those_of_exporters() {
        let names: Vec<&str> = ELEMENTS.iter().map(|element| element.name).collect();
        // Those of IPv6 are the same elements as those of IPv4, and no exporter is given.
        let names: Vec<&str> = names
            .into_iter()
            .filter(|name| !["IPv6", "exporter"].iter().any(|part| name.contains(part)))
            .collect();
        let mut flows = flows(300);
        for (number, flow) in flows.iter_mut().enumerate().step_by(3) {
            flow.context.mpls = 77;
            flow.details = Some(Box::new(details(number)));
        }
        for is_biflow in [false, true] {
            let of_rows = ExportOptions::of_rows(&names.join(","), is_biflow);
            let options = ExportOptions { domain: 77, has_places: true, ..of_rows };
            let shape = TableShape::new(&options).expect("a template");
            let mut encoder = IpfixEncoder::new(&shape, &options).expect("elements");
            let parts = encoder.encode(&table(&shape, &flows), usize::MAX).expect("rows");
            let sets = messages(&parts[0].bytes).into_iter().flat_map(|(_, sets)| sets);
            let written: Vec<u8> = sets.filter(|(id, _)| *id != 2).flat_map(|(_, bytes)| bytes).collect();
            let mut expected = Vec::new();
            for flow in &flows {
                let fields = &encoder.templates[usize::from(flow.endpoints[0].address.is_ipv6())];
                shape.context(Sampling::NONE).for_each_row(flow, |view, _| {
                    for (_, Field { element, is_reverse }) in fields {
                        let value = view.field_value(element.value, *is_reverse);
                        write_value(value, element, TEXT_MAX, &mut expected);
                    }
                });
            }
            assert!(written == expected, "of both directions: {is_biflow}");
        }
    }

    #[test]
    fn a_community_id_alone_is_no_template() {
        let options = ExportOptions::of_rows("communityId", false);
        let shape = TableShape::new(&options).expect("a template");
        assert!(IpfixEncoder::new(&shape, &options).is_err());
    }
}
