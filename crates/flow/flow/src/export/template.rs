//! Templates: which elements a record has, in which order.

use super::element::{Element, FixedRecord, IpFamily};
use super::{ExportOptions, Version};
use crate::Error;

/// The fields that collectors understand best, as measured with them: times in milliseconds, flags of one octet, ICMP
/// both in the ports and in fields of its own.
const DEFAULT: &str = "sourceIPv4Address,destinationIPv4Address,flowStartMilliseconds,flowEndMilliseconds,octetDeltaCount,packetDeltaCount,\
    sourceTransportPort,destinationTransportPort,ingressInterface,egressInterface,vlanId,icmpTypeCodeIPv4,protocolIdentifier,ipClassOfService,\
    tcpControlBits,ipVersion,flowDirection,flowEndReason";

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) element: Element,
    pub(crate) is_reverse: bool,
}

impl Field {
    /// Enterprise and number.
    pub(crate) fn number(&self, ours: u32) -> (Option<u32>, u16) {
        self.element.number(self.is_reverse, ours)
    }
}

/// A template for flows of one version of IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) id: u16,
    pub(crate) fields: Vec<Field>,
    /// Octets of a record; where lengths vary, of the shortest.
    pub(crate) record_len: usize,
    /// Number of fields with variable lengths.
    pub(crate) variable: usize,
    /// The places of the fields, if the length of none varies.
    pub(crate) fixed: Option<FixedRecord>,
}

impl Template {
    /// The templates for IPv4 and IPv6.
    ///
    /// # Errors
    /// If a name means nothing, or the version of the protocol has no place for it.
    pub(crate) fn both(options: &ExportOptions) -> Result<[Template; 2], Error> {
        let names = Element::names(&options.template, DEFAULT);
        let has_default = names.starts_with(&Element::names("", DEFAULT));
        let elements = names.iter().map(|name| Element::of_name(name)).collect::<Result<Vec<_>, _>>()?;
        elements.iter().try_for_each(|element| element.check_options(options))?;
        let template = |version| Template::new(&elements, options, has_default, version);
        Ok([template(IpFamily::V4)?, template(IpFamily::V6)?])
    }

    /// Elements of the template, in order.
    pub(crate) fn elements(&self) -> impl Iterator<Item = &Element> {
        self.fields.iter().map(|field| &field.element)
    }

    fn new(
        elements: &[Element],
        options: &ExportOptions,
        has_default: bool,
        version: IpFamily,
    ) -> Result<Template, Error> {
        let mut fields: Vec<Field> = Vec::new();
        for element in elements {
            let element = of_protocol(element.for_family(version), options.version);
            push(&mut fields, Field { element, is_reverse: false })?;
            // Collectors look for ICMPv6 in version 9 here and there.
            if has_default && options.version == Version::V9 && element.id == 139 {
                for name in ["icmpTypeIPv6", "icmpCodeIPv6"] {
                    push(&mut fields, Field { element: Element::of_name(name)?, is_reverse: false })?;
                }
            }
        }
        if options.biflow {
            for field in fields.clone().into_iter().filter(|field| field.element.is_directional) {
                push(&mut fields, Field { is_reverse: true, ..field })?;
            }
        }
        if options.version == Version::V9 {
            fields.iter().try_for_each(check_v9)?;
        }
        let variable = fields.iter().filter(|field| field.element.is_variable()).count();
        let lengths = fields.iter().filter(|field| !field.element.is_variable());
        let record_len = lengths.map(|field| usize::from(field.element.len)).sum::<usize>() + variable;
        let id = if version == IpFamily::V4 { 256 } else { 257 };
        let fixed = FixedRecord::of(fields.iter().map(|field| (&field.element, field.is_reverse)));
        Ok(Template { id, fields, record_len, variable, fixed })
    }
}

/// NetFlow v9 has neither enterprises nor lengths that vary.
fn check_v9(field: &Field) -> Result<(), Error> {
    let lacks = match (field.number(0).0, field.element.is_variable()) {
        (Some(_), _) => "number for",
        (None, true) => "length for",
        (None, false) => return Ok(()),
    };
    let what = format!("has {}, which NetFlow v9 has no {lacks}: use --version 10", field.element.name);
    Err(Error::Template { what })
}

fn push(fields: &mut Vec<Field>, field: Field) -> Result<(), Error> {
    if fields.contains(&field) {
        return Err(Error::Template { what: format!("has {} twice: leave one out", field.element.name) });
    }
    fields.push(field);
    Ok(())
}

/// NetFlow v9 collectors know times only as those since the exporter's start.
fn of_protocol(element: Element, version: Version) -> Element {
    let name = match (version, element.id) {
        (Version::V9, 152) => "flowStartSysUpTime",
        (Version::V9, 153) => "flowEndSysUpTime",
        _ => return element,
    };
    Element::of_name(name).unwrap_or(element)
}
