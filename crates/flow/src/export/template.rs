//! Templates: which elements a record has, in which order.

use super::element::{Element, For};
use super::{Options, Version};
use crate::Error;

/// The number that says that an element is of the reverse direction (RFC 5103, 6.1).
const REVERSE: u32 = 29305;

/// What collectors understand best, as measured with them: times in milliseconds, flags of one octet, ICMP in the ports and beside.
const DEFAULT: [&str; 18] = [
    "sourceIPv4Address",
    "destinationIPv4Address",
    "flowStartMilliseconds",
    "flowEndMilliseconds",
    "octetDeltaCount",
    "packetDeltaCount",
    "sourceTransportPort",
    "destinationTransportPort",
    "ingressInterface",
    "egressInterface",
    "vlanId",
    "icmpTypeCodeIPv4",
    "protocolIdentifier",
    "ipClassOfService",
    "tcpControlBits",
    "ipVersion",
    "flowDirection",
    "flowEndReason",
];

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) element: Element,
    pub(crate) is_reverse: bool,
}

impl Field {
    /// The enterprise number that goes with it.
    pub(crate) fn enterprise(&self) -> Option<u32> {
        if self.is_reverse { Some(REVERSE) } else { self.element.enterprise() }
    }
}

/// A template for flows of one version of IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) id: u16,
    pub(crate) fields: Vec<Field>,
    /// Octets of a record.
    pub(crate) record_len: usize,
}

impl Template {
    /// The templates for IPv4 and IPv6.
    ///
    /// # Errors
    /// If a name means nothing, or the version of the protocol has no place for it.
    pub(crate) fn both(options: &Options) -> Result<[Template; 2], Error> {
        let names: Vec<&str> = match options.template.trim() {
            "" | "default" => DEFAULT.to_vec(),
            text => text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
        };
        let is_default = names == DEFAULT;
        let elements = names.iter().map(|name| Element::of_name(name)).collect::<Result<Vec<_>, _>>()?;
        let template = |version| Template::new(&elements, options, is_default, version);
        Ok([template(For::V4)?, template(For::V6)?])
    }

    fn new(
        elements: &[Element],
        options: &Options,
        is_default: bool,
        version: For,
    ) -> Result<Template, Error> {
        let mut fields: Vec<Field> = Vec::new();
        for element in elements {
            let element = of_protocol(element.for_version(version), options.version);
            push(&mut fields, Field { element, is_reverse: false })?;
            // Collectors look for ICMPv6 in version 9 here and there.
            if is_default && options.version == Version::V9 && element.id == 139 {
                for name in ["icmpTypeIPv6", "icmpCodeIPv6"] {
                    push(&mut fields, Field { element: Element::of_name(name)?, is_reverse: false })?;
                }
            }
        }
        if options.biflow {
            let directional = fields.clone().into_iter().filter(|field| field.element.is_directional);
            let reversed = directional.filter(|field| field.element.enterprise().is_none());
            for field in reversed.collect::<Vec<_>>() {
                push(&mut fields, Field { is_reverse: true, ..field })?;
            }
        }
        if options.version == Version::V9
            && let Some(field) = fields.iter().find(|field| field.enterprise().is_some())
        {
            let what =
                format!("has {}, which NetFlow v9 has no number for: use --version 10", field.element.name);
            return Err(Error::Template { what });
        }
        let record_len = fields.iter().map(|field| usize::from(field.element.len)).sum();
        let id = if version == For::V4 { 256 } else { 257 };
        Ok(Template { id, fields, record_len })
    }
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
