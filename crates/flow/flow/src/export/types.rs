//! Names and types of elements that IANA does not know, sent to collectors as options (RFC 5610).
//!
//! ```text
//! scope    privateEnterpriseNumber 346, 4 | informationElementId 303, 2
//! options  informationElementDataType 339, 1 | informationElementSemantics 344, 1 | informationElementUnits 345, 2 | informationElementName 341
//! ```

use super::element::{Detail, Element, Registry, Value};
use super::encoder::words;
use super::template::{Field, Template};

/// The id of the template for these options.
pub(super) const ID: u16 = 259;

/// The options template: two of its fields are the scope.
pub(super) fn template(out: &mut Vec<u8>) {
    let fields = [346, 4, 303, 2, 339, 1, 344, 1, 345, 2, 341, Element::VARIABLE];
    words(out, &[ID, 6, 2]);
    words(out, &fields);
}

/// A record for each of our own elements that the templates have.
pub(super) fn records(templates: &[Template], enterprise: u32) -> Vec<Vec<u8>> {
    let mut fields: Vec<&Field> = Vec::new();
    for field in templates.iter().flat_map(|template| &template.fields) {
        if field.element.registry == Registry::Ours && !fields.contains(&field) {
            fields.push(field);
        }
    }
    fields.into_iter().map(|field| record(field, enterprise)).collect()
}

fn record(field: &Field, enterprise: u32) -> Vec<u8> {
    let Type { data_type, semantics, units } = Type::of(&field.element);
    let name = field.element.name_of(field.is_reverse);
    let mut out = enterprise.to_be_bytes().to_vec();
    words(&mut out, &[field.number(enterprise).1]);
    out.extend_from_slice(&[data_type, semantics]);
    words(&mut out, &[units]);
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
    out
}

/// By the numbers of IANA's registries of data types, semantics and units.
struct Type {
    data_type: u8,
    semantics: u8,
    units: u16,
}

const QUANTITY: u8 = 1;
const DELTA_COUNTER: u8 = 3;
const IDENTIFIER: u8 = 4;
const BITS: u16 = 1;
const OCTETS: u16 = 2;
const PACKETS: u16 = 3;
const NANOSECONDS: u16 = 8;
const ENTRIES: u16 = 12;

impl Type {
    fn of(element: &Element) -> Type {
        let data_type = match element.len {
            _ if element.is_octets() => 0,
            1 => 1,
            2 => 2,
            4 => 3,
            Element::VARIABLE => 13,
            _ => 4,
        };
        let (semantics, units) = match element.value {
            Value::Detail(
                Detail::ServerRtt
                | Detail::ClientRtt
                | Detail::Response
                | Detail::GapMin
                | Detail::GapMean
                | Detail::GapMax
                | Detail::GapDeviation
                | Detail::DnsAfter,
            ) => (QUANTITY, NANOSECONDS),
            Value::Detail(
                Detail::Retransmitted | Detail::OutOfOrder | Detail::ZeroWindows | Detail::Size(_),
            ) => (DELTA_COUNTER, PACKETS),
            Value::Detail(Detail::RetransmittedOctets) => (DELTA_COUNTER, OCTETS),
            Value::Detail(Detail::SegmentSize | Detail::WindowMin | Detail::WindowMax) => (QUANTITY, OCTETS),
            Value::Throughput => (QUANTITY, BITS),
            Value::Detail(Detail::DnsAnswers) => (QUANTITY, ENTRIES),
            Value::Detail(Detail::DnsType | Detail::DnsCode | Detail::TlsVersion | Detail::TlsCipher) => {
                (IDENTIFIER, 0)
            }
            _ => (0, 0),
        };
        Type { data_type, semantics, units }
    }
}

#[cfg(test)]
mod tests {
    use super::super::element::ELEMENTS;
    use super::*;

    #[test]
    fn numbers_have_a_meaning_and_names_their_unit() {
        for element in ELEMENTS.iter().filter(|element| element.registry == Registry::Ours) {
            let Type { data_type, semantics, units } = Type::of(element);
            assert_eq!(element.is_number(), (1..=4).contains(&data_type), "{}", element.name);
            assert_eq!(element.is_number(), semantics > 0, "{}", element.name);
            assert_eq!(element.name.ends_with("Nanoseconds"), units == NANOSECONDS, "{}", element.name);
            assert!(element.name_of(true).len() < 100);
        }
    }
}
