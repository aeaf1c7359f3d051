//! Records of fixed length: the place of each field is found once a template, not once a record.
//!
//! ```text
//! template  --FixedRecord::of, once-->  places of the common values (beside the record if it has not one) | other fields
//! record    zeros <-- other fields, each by its value <-- all common values, without a branch
//! ```

use std::net::IpAddr;

use super::record::{FieldValue, RecordView, is_known, needed, time_number};
use super::{Element, Value};
use crate::KnownField;

/// Octets behind a record to which common values are written that it does not have. They are taken off again.
const BESIDE_LEN: usize = 16;
/// Values that most records have, by their lengths.
const ADDRESSES: [Value; 5] =
    [Value::SourceAddress, Value::DestinationAddress, Value::NextHop, Value::ExporterV4, Value::ExporterV6];
const LONG: [Value; 4] = [Value::Octets, Value::Packets, Value::StartMilliseconds, Value::EndMilliseconds];
const WORDS: [Value; 7] = [
    Value::StartUptime,
    Value::EndUptime,
    Value::Ingress,
    Value::Egress,
    Value::SamplingInterval,
    Value::SourceAs,
    Value::DestinationAs,
];
const HALVES: [Value; 4] = [Value::SourcePort, Value::DestinationPort, Value::Vlan, Value::IcmpTypeCode];
const OCTETS: [Value; 6] = [
    Value::Protocol,
    Value::ClassOfService,
    Value::TcpFlags,
    Value::IpVersion,
    Value::Direction,
    Value::EndReason,
];

/// The places of the fields of a record, counted in octets from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedRecord {
    len: usize,
    addresses: [usize; ADDRESSES.len()],
    long: [usize; LONG.len()],
    words: [usize; WORDS.len()],
    halves: [usize; HALVES.len()],
    octets: [usize; OCTETS.len()],
    others: Vec<OtherField>,
}

/// A field that few records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OtherField {
    at: usize,
    value: Value,
    is_reverse: bool,
    len: usize,
}

impl FixedRecord {
    /// The record of these elements, each with whether it is of the reverse direction; `None` if a length varies.
    pub(crate) fn of<'e>(fields: impl Iterator<Item = (&'e Element, bool)> + Clone) -> Option<FixedRecord> {
        if fields.clone().any(|(element, _)| element.is_variable()) {
            return None;
        }
        let len = fields.clone().map(|(element, _)| usize::from(element.len)).sum();
        let mut record = FixedRecord {
            len,
            addresses: [len; ADDRESSES.len()],
            long: [len; LONG.len()],
            words: [len; WORDS.len()],
            halves: [len; HALVES.len()],
            octets: [len; OCTETS.len()],
            others: Vec::new(),
        };
        let mut at = 0;
        for (element, is_reverse) in fields {
            let (value, field_len) = (element.value, usize::from(element.len));
            match record.place(value, field_len).filter(|place| **place == len && !is_reverse) {
                Some(place) => *place = at,
                None => record.others.push(OtherField { at, value, is_reverse, len: field_len }),
            }
            at += field_len;
        }
        Some(record)
    }

    /// The length in octets.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place of a common value of this length.
    fn place(&mut self, value: Value, len: usize) -> Option<&mut usize> {
        let (values, places): (&[Value], &mut [usize]) = match len {
            _ if ADDRESSES.contains(&value) => (&ADDRESSES, &mut self.addresses),
            8 => (&LONG, &mut self.long),
            4 => (&WORDS, &mut self.words),
            2 => (&HALVES, &mut self.halves),
            1 => (&OCTETS, &mut self.octets),
            _ => return None,
        };
        places.get_mut(values.iter().position(|common| *common == value)?)
    }
}

impl RecordView<'_> {
    /// Writes a record. An absent value is 0.
    #[inline]
    pub(crate) fn write_fixed(&self, record: &FixedRecord, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + record.len + BESIDE_LEN, 0);
        let room = &mut out[start..];
        for field in &record.others {
            self.put_other(*field, room);
        }
        let known = self.flow.collected.as_ref().map_or(u32::MAX, |collected| collected.known.bits());
        macro_rules! put {
            ($values:ident, $places:expr, $len:literal: $($at:literal)*) => {
                $(self.put_number::<$len>($values[$at], known, $places[$at], room);)*
            };
        }
        put!(LONG, record.long, 8: 0 1 2 3);
        put!(WORDS, record.words, 4: 0 1 2 3 4 5 6);
        put!(HALVES, record.halves, 2: 0 1 2 3);
        put!(OCTETS, record.octets, 1: 0 1 2 3 4 5);
        for (value, at) in ADDRESSES.into_iter().zip(record.addresses) {
            self.put_address(value, known, at, room);
        }
        out.truncate(start + record.len);
    }

    /// All bits if the exporter gave the value, else none.
    #[inline(always)]
    fn mask(&self, value: Value, known: u32) -> u64 {
        let bit = |field: KnownField, side: usize| u64::from(known >> (field as usize + side) & 1);
        let is_given = match value {
            Value::IpVersion => bit(KnownField::Address, 0) | bit(KnownField::Address, 1),
            // Of other protocols it is 0 anyway.
            Value::IcmpTypeCode => bit(KnownField::IcmpTypeCode, 0),
            _ => needed(value, self.from, false).map_or(1, |(field, side)| bit(field, side)),
        };
        is_given.wrapping_neg()
    }

    #[inline(always)]
    fn put_number<const LEN: usize>(&self, value: Value, known: u32, at: usize, room: &mut [u8]) {
        let number = self.number(value, false).unwrap_or(0) & self.mask(value, known);
        if let Some(octets) = room.get_mut(at..).and_then(|room| room.first_chunk_mut::<LEN>())
            && let Some(low) = number.to_be_bytes().last_chunk::<LEN>()
        {
            *octets = *low;
        }
    }

    #[inline(always)]
    fn put_address(&self, value: Value, known: u32, at: usize, room: &mut [u8]) {
        let FieldValue::Address(address) = self.known_value(value, false) else { return };
        if self.mask(value, known) == 0 {
            return;
        }
        let Some(room) = room.get_mut(at..) else { return };
        match address {
            IpAddr::V4(address) => {
                if let Some(octets) = room.first_chunk_mut() {
                    *octets = address.octets();
                }
            }
            IpAddr::V6(address) => {
                if let Some(octets) = room.first_chunk_mut() {
                    *octets = address.octets();
                }
            }
        }
    }

    #[inline(never)]
    fn put_other(&self, field: OtherField, room: &mut [u8]) {
        let OtherField { at, value, is_reverse, len } = field;
        let is_given = self.flow.collected.is_none() || is_known(self.flow, value, self.from, is_reverse);
        let Some(room) = room.get_mut(at..at + len).filter(|_| is_given) else { return };
        match self.known_value(value, is_reverse) {
            FieldValue::Address(IpAddr::V4(address)) => copy_low(&address.octets(), room),
            FieldValue::Address(IpAddr::V6(address)) => copy_low(&address.octets(), room),
            _ => copy_low(&self.number(value, is_reverse).unwrap_or(0).to_be_bytes(), room),
        }
    }

    /// The number of a value that the flow has.
    #[inline(always)]
    fn number(&self, value: Value, is_reverse: bool) -> Option<u64> {
        match self.known_value(value, is_reverse) {
            FieldValue::Number(number) => Some(number),
            FieldValue::Time(time) => Some(time_number(value, time)),
            _ => None,
        }
    }
}

/// Copies the last octets of a number to the end of the room, as many as there are.
fn copy_low(octets: &[u8], room: &mut [u8]) {
    room.iter_mut().rev().zip(octets.iter().rev()).for_each(|(to, octet)| *to = *octet);
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tapline_packet::Timestamp;

    use super::*;
    use crate::export::element::{ELEMENTS, IpFamily, write_value};
    use crate::{Collected, EndReason, Endpoint, Flow, FlowContext, KnownField, KnownFields, Sampling};

    fn endpoint(address: IpAddr, number: u8) -> Endpoint {
        Endpoint {
            address,
            port: 0x0800 + u16::from(number),
            packets: 0x0102_0304_0506_0708,
            bytes: u64::MAX - u64::from(number),
            first: Timestamp::from_nanos(1_700_000_000_123_456_789),
            last: Timestamp::from_nanos(1_700_000_001_987_654_321),
            tcp_flags: 0x12 + number,
            tcp_flags_first: 2,
            ttl_min: 60,
            ttl_max: 64,
            tos: 0xb8,
        }
    }

    fn flow([source, destination]: [IpAddr; 2], protocol: u8, known: Option<KnownFields>) -> Flow {
        let collected = known.map(|known| {
            Box::new(Collected {
                known,
                exporter: Ipv4Addr::new(192, 0, 2, 1).into(),
                domain: 0xdead_beef,
                sampling: Some(100),
                egress: 9,
                direction: 1,
                prefix_lens: [24, 0],
                autonomous_systems: [64_500, 0],
                next_hop: Some(source),
                post_addresses: [Some(destination), None],
                post_ports: [None, Some(7)],
                nat_event: Some(4),
                firewall_event: None,
                is_beyond: false,
            })
        });
        Flow {
            endpoints: [endpoint(source, 1), endpoint(destination, 2)],
            protocol,
            end_reason: EndReason::Active,
            context: FlowContext { mpls: 77, tunnel: 5, interface: 3, vlan: 12, ..FlowContext::NONE },
            details: None,
            collected,
            id: 5,
        }
    }

    /// Sets of known fields: none, all, and each but one.
    fn known_sets() -> Vec<Option<KnownFields>> {
        let without = |bit: u8| {
            let mut known = KnownFields::default();
            for field in [KnownField::Protocol, KnownField::Address, KnownField::Port, KnownField::Tos] {
                for side in 0..2 {
                    if field as u8 + side != bit {
                        known.add(field, side.into());
                    }
                }
            }
            known
        };
        let sets = (0..27).map(|bit| Some(without(bit)));
        sets.chain([None, Some(KnownFields::ALL), Some(KnownFields::default())]).collect()
    }

    #[test]
    fn a_record_at_once_is_that_field_by_field() {
        let v4 = [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into()];
        let v6 = [Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from(0x2001_0db8 << 96).into()];
        for (family, addresses) in [(IpFamily::V4, v4), (IpFamily::V6, v6)] {
            let elements = ELEMENTS.iter().map(|element| element.for_family(family));
            let elements: Vec<Element> = elements.filter(|element| !element.is_variable()).collect();
            for (protocol, known) in
                [1, 6, 58].into_iter().flat_map(|p| known_sets().into_iter().map(move |k| (p, k)))
            {
                let flow = flow(addresses, protocol, known);
                for (from, is_reverse) in [(0, false), (1, false), (0, true), (1, true)] {
                    let fields = elements.iter().map(|element| (element, is_reverse));
                    let fixed = FixedRecord::of(fields).expect("no length varies");
                    let side = &flow.endpoints[from];
                    let view = RecordView {
                        flow: &flow,
                        from,
                        first: side.first,
                        last: side.last,
                        boot_ms: 1_600_000_000_000,
                        domain: 5,
                        exporter: Some(Ipv6Addr::LOCALHOST.into()),
                        sampling: Sampling::Packets(10),
                        places: None,
                    };
                    let (mut expected, mut record) = (vec![9], vec![9]);
                    for element in &elements {
                        write_value(view.field_value(element.value, is_reverse), element, 0, &mut expected);
                    }
                    view.write_fixed(&fixed, &mut record);
                    assert_eq!(record, expected, "{protocol} {known:?} from {from}, reverse {is_reverse}");
                }
            }
        }
    }
}
