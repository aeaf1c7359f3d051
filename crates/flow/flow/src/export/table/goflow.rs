//! Tables as goflow2's protobuf messages, each behind its length: the form that `pb/flow.proto` of goflow2 2.2
//! describes, and ClickHouse reads as `Protobuf`.
//!
//! ```text
//! length (varint) | tag (varint): number of the field << 3 | kind, value | tag, value | ...       zero is left out (proto3)
//! ```
//!
//! Columns that the messages have no field for are left out.

use std::net::IpAddr;

use super::{Cell, ColumnType, EncodedRows, FlowTable, SpareBuffers, TableEncoder, TableShape, encode_rows};
use crate::Error;
use crate::export::element::Element;
use crate::export::rows::ColumnSource;

/// The template whose columns all have a field.
const GOFLOW_TEMPLATE: &str = "flowStartNanoseconds,flowEndNanoseconds,sourceIPv4Address,destinationIPv4Address,sourceTransportPort,\
    destinationTransportPort,protocolIdentifier,octetDeltaCount,packetDeltaCount,tcpControlBits,ipClassOfService,minimumTTL,icmpTypeCodeIPv4,vlanId,\
    ingressInterface,egressInterface,observationDomainId,samplingInterval";

/// A template whose default is that of goflow2's messages.
pub fn goflow_template(template: &str) -> String {
    Element::names(template, GOFLOW_TEMPLATE).join(",")
}

/// Kinds of values on the wire.
const VARINT: u32 = 0;
const BYTES: u32 = 2;
/// Field `type`, and its value for flows that IPFIX describes.
const TYPE: u32 = 1;
const IPFIX: u64 = 4;
/// Field `etype`, the type of Ethernet's payload, which follows from the addresses.
const ETYPE: u32 = 30;
const TIME_RECEIVED: u32 = 110;
const TIME_END: u32 = 112;
const SOURCE: u32 = 6;
const ICMP_TYPE: u32 = 31;
const ICMP_CODE: u32 = 32;

/// Fields by the element's number of IANA; both versions of IP have one.
const FIELDS: [(u16, u32); 35] = [
    (1, 9),
    (2, 10),
    (4, 20),
    (5, 23),
    (6, 26),
    (7, 21),
    (8, SOURCE),
    (27, SOURCE),
    (9, 16),
    (29, 16),
    (10, 18),
    (11, 22),
    (12, 7),
    (28, 7),
    (13, 17),
    (30, 17),
    (14, 19),
    (15, 12),
    (62, 12),
    (16, 14),
    (17, 15),
    (32, ICMP_TYPE),
    (139, ICMP_TYPE),
    (34, 3),
    (52, 25),
    (56, 27),
    (58, 29),
    (80, 28),
    (130, 11),
    (131, 11),
    (149, 70),
    (153, TIME_END),
    (152, 111),
    (156, 111),
    (157, TIME_END),
];

/// Encodes tables as messages of goflow2.
pub struct GoflowEncoder {
    kinds: Vec<ColumnType>,
    /// The field of each column, if there is one.
    fields: Vec<Option<u32>>,
    message: Vec<u8>,
}

impl GoflowEncoder {
    /// An encoder of tables of this shape.
    ///
    /// # Errors
    /// [`Error::Template`] for rows of both directions, which a message cannot hold, and for columns of which none has a
    /// field.
    pub fn new(shape: &TableShape) -> Result<GoflowEncoder, Error> {
        if shape.is_biflow {
            let what = "has both directions in a row, and goflow2's messages have one: leave --biflow out";
            return Err(Error::Template { what: what.to_owned() });
        }
        let field = |what: &ColumnSource| match what {
            ColumnSource::Element { element, .. } if element.enterprise(0).is_none() => {
                FIELDS.iter().find(|(id, _)| *id == element.id).map(|(_, field)| *field)
            }
            _ => None,
        };
        let fields: Vec<Option<u32>> = shape.columns.iter().map(|column| field(&column.what)).collect();
        if fields.iter().all(Option::is_none) {
            let what = "has no element that goflow2's messages have a field for: write default";
            return Err(Error::Template { what: what.to_owned() });
        }
        Ok(GoflowEncoder { kinds: shape.kinds.clone(), fields, message: Vec::new() })
    }
}

impl TableEncoder for GoflowEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        spare: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        let GoflowEncoder { kinds, fields, message } = self;
        Ok(encode_rows(table, kinds, bytes_max, spare, |row, out| {
            message.clear();
            number(TYPE, IPFIX, message);
            for ((cell, kind), field) in row.iter().zip(kinds.iter()).zip(fields.iter()) {
                if let Some(field) = field {
                    write(*field, *cell, *kind, message);
                }
            }
            varint(message.len() as u64, out);
            out.extend_from_slice(message);
        }))
    }
}

fn write(field: u32, cell: Cell<'_>, kind: ColumnType, out: &mut Vec<u8>) {
    match cell {
        Cell::Number(value) if field == ICMP_TYPE => {
            number(ICMP_TYPE, value >> 8, out);
            number(ICMP_CODE, value & 0xff, out);
        }
        Cell::Number(value) => number(field, value, out),
        Cell::Time(time) => {
            let factor = if kind == ColumnType::Nanoseconds { 1 } else { 1_000_000 };
            let ns = time.saturating_mul(factor).max(0) as u64;
            number(field, ns, out);
            if field == TIME_END {
                number(TIME_RECEIVED, ns, out);
            }
        }
        Cell::Address(address) => {
            match address {
                IpAddr::V4(address) => octets(field, &address.octets(), out),
                IpAddr::V6(address) => octets(field, &address.octets(), out),
            }
            if field == SOURCE {
                number(ETYPE, if address.is_ipv4() { 0x0800 } else { 0x86dd }, out);
            }
        }
        Cell::Bytes(_) | Cell::Null => {}
    }
}

/// A field with a number, unless it is zero.
fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        varint(u64::from(field << 3 | VARINT), out);
        varint(value, out);
    }
}

fn octets(field: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field << 3 | BYTES), out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Seven bits a byte, the low ones first; all but the last have the top bit.
pub(super) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Flow;
    use crate::export::ExportOptions;
    use crate::export::table::tests::{flows, table};

    /// A value of a message.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Read {
        Number(u64),
        Octets(Vec<u8>),
    }

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn read_octets<'b>(bytes: &mut &'b [u8]) -> &'b [u8] {
        let len = read_varint(bytes) as usize;
        let (octets, rest) = bytes.split_at(len);
        *bytes = rest;
        octets
    }

    /// Reads messages as protobuf's documents describe them.
    fn messages(mut bytes: &[u8]) -> Vec<BTreeMap<u64, Read>> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (mut message, mut fields) = (read_octets(&mut bytes), BTreeMap::new());
            while !message.is_empty() {
                let tag = read_varint(&mut message);
                let value = match tag & 7 {
                    0 => Read::Number(read_varint(&mut message)),
                    2 => Read::Octets(read_octets(&mut message).to_vec()),
                    kind => panic!("kind {kind}"),
                };
                assert_eq!(fields.insert(tag >> 3, value), None, "field {} twice", tag >> 3);
            }
            all.push(fields);
        }
        all
    }

    fn shape(template: &str, biflow: bool) -> TableShape {
        TableShape::new(&ExportOptions::of_rows(template, biflow)).expect("a template")
    }

    #[test]
    fn messages_have_what_the_flows_have() {
        let (flows, shape) = (flows(200), shape(GOFLOW_TEMPLATE, false));
        let mut encoder = GoflowEncoder::new(&shape).expect("fields");
        assert!(encoder.fields.iter().all(Option::is_some));
        let parts = encoder.encode(&table(&shape, &flows), 1000).expect("rows");
        let mut found = parts.iter().flat_map(|part| messages(&part.bytes));
        let number = |message: &BTreeMap<u64, Read>, field: u64| match message.get(&field) {
            Some(Read::Number(number)) => *number,
            other => {
                assert_eq!(other, None);
                0
            }
        };
        for flow in &flows {
            for (from, side) in flow.endpoints.iter().enumerate().filter(|(_, side)| side.has_sent()) {
                let message = found.next().expect("a message");
                let octets = match side.address {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                assert_eq!(message[&6], Read::Octets(octets));
                let icmp = if matches!(flow.protocol, 1 | 58) { flow.endpoints[1 - from].port } else { 0 };
                let etype = if side.address.is_ipv4() { 0x800 } else { 0x86dd };
                for (field, value) in [
                    (1, 4),
                    (9, side.bytes),
                    (10, side.packets),
                    (20, flow.protocol.into()),
                    (21, side.port.into()),
                    (22, flow.endpoints[1 - from].port.into()),
                    (25, 60),
                    (26, side.tcp_flags.into()),
                    (30, etype),
                    (31, u64::from(icmp >> 8)),
                    (32, u64::from(icmp & 0xff)),
                    (70, 1),
                    (110, side.last.as_nanos() as u64),
                    (111, side.first.as_nanos() as u64),
                    (112, side.last.as_nanos() as u64),
                ] {
                    assert_eq!(number(&message, field), value, "field {field}");
                }
            }
        }
        assert!(found.next().is_none());
        let packets: u64 = flows.iter().map(Flow::packets).sum();
        assert_eq!(parts.iter().map(|part| part.packets).sum::<u64>(), packets);
    }

    #[test]
    fn what_messages_cannot_hold_is_refused() {
        for (template, biflow) in [("default", true), ("communityId,initialTCPFlags", false)] {
            assert!(GoflowEncoder::new(&shape(template, biflow)).is_err(), "{template}");
        }
        assert!(GoflowEncoder::new(&shape("default", false)).is_ok());
    }
}
