//! Link Layer Discovery Protocol (IEEE 802.1AB).
//!
//! ```text
//! (type 7 bits, length 9 bits, value)*, type 0 ends
//! 1 chassis, 2 port: subtype 1, id   3 time to live 2   4 port description   5 system name   6 system description
//! 7 capabilities 2, enabled 2        8 management address: length 1, family 1, address, numbering 1, interface 4,
//!                                      object id length 1, object id
//! 127 organization 3, subtype 1, value
//! ```

mod bridge;
mod ethernet;
mod exchange;
mod media;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::names;
use crate::text::Text;

const KINDS: &[(u16, &str)] = &[
    (0, "End"),
    (1, "Chassis ID"),
    (2, "Port ID"),
    (3, "Time to Live"),
    (4, "Port Description"),
    (5, "System Name"),
    (6, "System Description"),
    (7, "System Capabilities"),
    (8, "Management Address"),
    (127, "Organization specific"),
];

const SYSTEM_NAME: u16 = 5;

const CHASSIS_IDS: &[(u8, &str)] = &[
    (1, "Chassis component"),
    (2, "Interface alias"),
    (3, "Port component"),
    (4, "MAC address"),
    (5, "Network address"),
    (6, "Interface name"),
    (7, "Local"),
];

const PORT_IDS: &[(u8, &str)] = &[
    (1, "Interface alias"),
    (2, "Port component"),
    (3, "MAC address"),
    (4, "Network Address"),
    (5, "Interface Name"),
    (6, "Agent circuit ID"),
    (7, "Local"),
];

const CAPABILITIES: &[(u32, &str)] = &[
    (0x01, "Other"),
    (0x02, "Repeater"),
    (0x04, "Bridge"),
    (0x08, "WLAN AP"),
    (0x10, "Router"),
    (0x20, "Telephone"),
    (0x40, "Docsis"),
    (0x80, "Station Only"),
];

/// Organizations whose fields are known.
const BRIDGE: u32 = 0x00_80c2;
const ETHERNET: u32 = 0x00_120f;
const IANA: u32 = 0x00_005e;
const MEDIA: u32 = 0x00_12bb;
const EXCHANGE: u32 = 0x00_1b21;

/// Names of the bits of a value.
type Named = &'static [(u32, &'static str)];

/// The name of a number by its place.
fn lookup_16(names: &[&'static str], number: u16) -> &'static str {
    names.get(usize::from(number)).copied().unwrap_or("unknown")
}

/// Text behind its title, up to a NUL.
fn put_text(cx: &mut Context<'_>, title: &str, text: &[u8]) {
    cx.text(title);
    cx.visible_until_nul(text);
}

/// Families of addresses (IANA, "Address Family Numbers").
const FAMILIES: [&str; 16] = [
    "Reserved",
    "IPv4",
    "IPv6",
    "NSAP",
    "HDLC",
    "BBN 1822",
    "802",
    "E.163",
    "E.164",
    "F.69",
    "X.121",
    "Novell IPX",
    "Appletalk",
    "Decnet IV",
    "Banyan Vines",
    "E.164 with NSAP subaddress",
];

const NUMBERINGS: &[(u8, &str)] = &[(2, "Interface Index"), (3, "System Port Number")];

/// One frame: `LLDP, length 104: name`; with `-v` all fields.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "lldp";
    put!(cx, "LLDP, length {}", span.length);
    if print_fields(cx, span).is_err() {
        cx.cut();
    }
    Ok(())
}

fn print_fields(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    while rest.length >= 2 {
        let head = rest.u16(0)?;
        let (kind, length) = (head >> 9, usize::from(head & 0x1ff));
        if cx.verbose() > 0 {
            match lookup(KINDS, kind) {
                Some(name) => put!(cx, "\n\t{name} TLV ({kind}), length {length}"),
                None => put!(cx, "\n\tUnknown TLV ({kind}), length {length}"),
            }
        }
        if kind == 0 || length == 0 {
            break;
        }
        rest = rest.skip(2);
        if rest.length < length {
            return Err(Cut);
        }
        rest.need(length)?;
        let value = rest.limit(length);
        if cx.verbose() > 0 {
            let known = print_value(cx, kind, value)?;
            if cx.verbose() > 1 || !known {
                cx.hex_lines("\n\t  ", value);
            }
        } else if kind == SYSTEM_NAME {
            put_text(cx, ": ", value.data);
        }
        rest = rest.skip(length);
    }
    Ok(())
}

/// `false` if the value has no known form, so that its bytes are shown.
fn print_value(cx: &mut Context<'_>, kind: u16, value: Span<'_>) -> Result<bool, Cut> {
    match kind {
        1 => return print_id(cx, value, CHASSIS_IDS, 4, 5),
        2 => return print_id(cx, value, PORT_IDS, 3, 4),
        3 => put!(cx, ": TTL {}s", value.u16(0)?),
        4 | 5 => put_text(cx, ": ", value.data),
        6 => put_text(cx, "\n\t  ", value.data),
        7 => {
            value.need(4)?;
            for (title, bits) in [("System ", value.u16(0)?), ("Enabled", value.u16(2)?)] {
                put!(cx, "\n\t  {title} Capabilities [");
                put_bits(cx, CAPABILITIES, "none", ", ", u32::from(bits));
                put!(cx, "] (0x{bits:04x})");
            }
        }
        8 => print_management_address(cx, value)?,
        127 => return print_organization(cx, value),
        _ => return Ok(false),
    }
    Ok(true)
}

fn print_id(
    cx: &mut Context<'_>,
    value: Span<'_>,
    subtypes: &[(u8, &'static str)],
    mac: u8,
    network: u8,
) -> Result<bool, Cut> {
    value.need(2)?;
    let subtype = value.u8(0)?;
    put!(cx, "\n\t  Subtype {} ({subtype}): ", lookup(subtypes, subtype).unwrap_or("Unknown"));
    let id = value.skip(1);
    if subtype == mac {
        cx.mac(id.bytes(0, 6)?);
    } else if subtype == network {
        print_network_address(cx, "", id)?;
    } else if lookup(subtypes, subtype).is_some() {
        cx.visible_until_nul(id.data);
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// An address behind its family, with a text before both.
fn print_network_address(cx: &mut Context<'_>, before: &str, address: Span<'_>) -> Printed {
    let family = address.u8(0)?;
    let name = FAMILIES.get(usize::from(family)).copied().unwrap_or("Unknown");
    address.need(match family {
        1 => 5,
        2 => 17,
        6 => 7,
        _ => 1,
    })?;
    put!(cx, "{before}AFI {name} ({family})");
    cx.text(if matches!(family, 1 | 2 | 6) { ": " } else { ", no AF printer !" });
    match family {
        1 => cx.host(address.array::<4>(1)?.into()),
        2 => cx.host(address.array::<16>(1)?.into()),
        6 => cx.mac(address.bytes(1, 6)?),
        _ => {}
    }
    Ok(())
}

fn print_management_address(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let length = usize::from(value.u8(0)?);
    let address = value.bytes(1, length)?;
    let title = format!("\n\t  Management Address length {length}, ");
    print_network_address(cx, &title, Span::whole(address))?;
    let rest = value.skip(1 + length);
    rest.need(5)?;
    let numbering = rest.u8(0)?;
    put!(
        cx,
        "\n\t  {} Interface Numbering ({numbering}): {}",
        lookup(NUMBERINGS, numbering).unwrap_or("Unknown"),
        rest.u32(1)?
    );
    if rest.length > 5 {
        let object_len = usize::from(rest.u8(5)?);
        let object = rest.bytes(6, object_len)?;
        if object_len > 0 {
            put!(cx, "\n\t  OID length {object_len}");
            cx.visible_until_nul(object);
        }
    }
    Ok(())
}

/// Fields of organizations: number 3, subtype 1, value.
fn print_organization(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    let organization = value.u24(0)?;
    put!(cx, ": OUI {} (0x{organization:06x})", names::organization(organization).unwrap_or("Unknown"));
    let is_known = matches!(organization, BRIDGE | ETHERNET | IANA | MEDIA | EXCHANGE);
    if value.length < 4 {
        return Ok(is_known);
    }
    let (subtype, rest) = (value.u8(3)?, value.skip(4));
    match organization {
        BRIDGE => bridge::print(cx, subtype, rest),
        ETHERNET => ethernet::print(cx, subtype, rest),
        MEDIA => media::print(cx, subtype, rest),
        EXCHANGE => exchange::print(cx, subtype, rest),
        IANA if value.length < 8 => Ok(true),
        IANA if subtype == 1 => {
            cx.text("\n\t  MUD-URL Subtype (1)\n\t  MUD-URL=");
            cx.visible_all(rest.data);
            Ok(true)
        }
        IANA => {
            put!(cx, "\n\t  unknown Subtype ({subtype})");
            Ok(false)
        }
        _ => Ok(false),
    }
}
