//! Link Layer Discovery Protocol (IEEE 802.1AB).
//!
//! ```text
//! (type 7 bits, length 9 bits, value)*, type 0 ends
//! 1 chassis, 2 port: subtype 1, id   3 time to live 2   4 port description   5 system name   6 system description
//! 7 capabilities 2, enabled 2        8 management address: length 1, family 1, address, numbering 1, interface 4,
//!                                      object id length 1, object id
//! 127 organization 3, subtype 1, value
//! ```

use crate::bytes::{Printed, Span};
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

const BRIDGE_SUBTYPES: &[(u8, &str)] = &[
    (1, "Port VLAN Id"),
    (2, "Port and Protocol VLAN ID"),
    (3, "VLAN name"),
    (4, "Protocol Identity"),
    (7, "Link aggregation"),
    (8, "Congestion Notification"),
    (9, "ETS Configuration"),
    (10, "ETS Recommendation"),
    (11, "Priority Flow Control Configuration"),
    (12, "Application Priority"),
    (13, "EVB"),
    (14, "CDCP"),
];

const ETHERNET_SUBTYPES: &[(u8, &str)] = &[
    (1, "MAC/PHY configuration/status"),
    (2, "Power via MDI"),
    (3, "Link aggregation"),
    (4, "Max frame size"),
];

const MEDIA_SUBTYPES: &[(u8, &str)] = &[
    (1, "LLDP-MED Capabilities"),
    (2, "Network policy"),
    (3, "Location identification"),
    (4, "Extended power-via-MDI"),
    (5, "Inventory - hardware revision"),
    (6, "Inventory - firmware revision"),
    (7, "Inventory - software revision"),
    (8, "Inventory - serial number"),
    (9, "Inventory - manufacturer name"),
    (10, "Inventory - model name"),
    (11, "Inventory - asset ID"),
];

/// What media subtypes 5 to 11 tell of a device.
const INVENTORY: [&str; 7] = [
    "Hardware revision",
    "Firmware revision",
    "Software revision",
    "Serial number",
    "Manufacturer name",
    "Model name",
    "Asset ID",
];

const FAMILIES: &[(u8, &str)] = &[(1, "IPv4"), (2, "IPv6"), (3, "NSAP"), (6, "802")];

const NUMBERINGS: &[(u8, &str)] = &[(1, "Unknown"), (2, "Interface Index"), (3, "System Port Number")];

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
        rest = rest.skip(2);
        if rest.length < length {
            return Err(crate::bytes::Cut);
        }
        rest.need(length)?;
        let value = rest.limit(length);
        if kind == 0 {
            break;
        }
        if cx.verbose() > 0 {
            print_value(cx, kind, value)?;
            if cx.verbose() > 1 {
                cx.hex_lines("\n\t  ", value);
            }
        } else if kind == SYSTEM_NAME {
            cx.text(": ");
            cx.visible_all(value.data);
        }
        rest = rest.skip(length);
    }
    Ok(())
}

fn print_value(cx: &mut Context<'_>, kind: u16, value: Span<'_>) -> Printed {
    match kind {
        1 => print_id(cx, value, CHASSIS_IDS, 4, 5),
        2 => print_id(cx, value, PORT_IDS, 3, 4),
        3 => {
            put!(cx, ": TTL {}s", value.u16(0)?);
            Ok(())
        }
        4 | 5 => {
            cx.text(": ");
            cx.visible_all(value.data);
            Ok(())
        }
        6 => {
            cx.text("\n\t  ");
            cx.visible_all(value.data);
            Ok(())
        }
        7 => {
            for (title, bits) in [("System ", value.u16(0)?), ("Enabled", value.u16(2)?)] {
                put!(cx, "\n\t  {title} Capabilities [");
                put_bits(cx, CAPABILITIES, "none", ", ", u32::from(bits));
                put!(cx, "] (0x{bits:04x})");
            }
            Ok(())
        }
        8 => print_management_address(cx, value),
        127 => print_organization(cx, value),
        _ => {
            cx.hex_lines("\n\t  ", value);
            Ok(())
        }
    }
}

fn print_id(
    cx: &mut Context<'_>,
    value: Span<'_>,
    subtypes: &[(u8, &'static str)],
    mac: u8,
    network: u8,
) -> Printed {
    let subtype = value.u8(0)?;
    put!(cx, "\n\t  Subtype {} ({subtype}): ", lookup(subtypes, subtype).unwrap_or("Unknown"));
    let id = value.skip(1);
    if subtype == mac {
        cx.mac(id.bytes(0, 6)?);
    } else if subtype == network {
        print_network_address(cx, id.u8(0)?, id.skip(1).data);
    } else if lookup(subtypes, subtype).is_some() {
        cx.visible_all(id.data);
    } else {
        cx.hex_lines("\n\t  ", id);
    }
    Ok(())
}

fn print_network_address(cx: &mut Context<'_>, family: u8, address: &[u8]) {
    match (family, address.len()) {
        (1, 4) => put!(cx, "AFI IPv4 (1): "),
        (2, 16) => put!(cx, "AFI IPv6 (2): "),
        _ => put!(cx, "AFI {} ({family}), no AF printer !", lookup(FAMILIES, family).unwrap_or("Unknown")),
    }
    if let (1, Ok(four)) = (family, <[u8; 4]>::try_from(address)) {
        cx.host(four.into());
    } else if let (2, Ok(sixteen)) = (family, <[u8; 16]>::try_from(address)) {
        cx.host(sixteen.into());
    }
}

fn print_management_address(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let length = usize::from(value.u8(0)?);
    put!(cx, "\n\t  Management Address length {length}, ");
    let address = value.bytes(1, length)?;
    if let [family, address @ ..] = address {
        print_network_address(cx, *family, address);
    }
    let rest = value.skip(1 + length);
    let numbering = rest.u8(0)?;
    put!(
        cx,
        "\n\t  {} Interface Numbering ({numbering}): {}",
        lookup(NUMBERINGS, numbering).unwrap_or("Unknown"),
        rest.u32(1)?
    );
    let object_len = usize::from(rest.u8(5)?);
    if object_len > 0 {
        put!(cx, "\n\t  OID length {object_len}: ");
        for &byte in rest.bytes(6, object_len)? {
            cx.hex(byte, 2);
        }
    }
    Ok(())
}

fn print_organization(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let (organization, subtype) = (value.u24(0)?, value.u8(3)?);
    put!(cx, ": OUI {} (0x{organization:06x})", names::organization(organization).unwrap_or("Unknown"));
    let subtypes = match organization {
        0x00_80c2 => BRIDGE_SUBTYPES,
        0x00_120f => ETHERNET_SUBTYPES,
        0x00_12bb => MEDIA_SUBTYPES,
        _ => &[],
    };
    if !subtypes.is_empty() {
        put!(cx, "\n\t  {} Subtype ({subtype})", lookup(subtypes, subtype).unwrap_or("unknown"));
    }
    let rest = value.skip(4);
    match (organization, subtype) {
        (0x00_80c2, 1) => put!(cx, "\n\t    port vlan id (PVID): {}", rest.u16(0)?),
        (0x00_80c2, 3) => {
            let name_len = usize::from(rest.u8(2)?);
            put!(cx, "\n\t    vlan id (VID): {}\n\t    vlan name: ", rest.u16(0)?);
            cx.visible_all(rest.bytes(3, name_len)?);
        }
        (0x00_120f, 3) => {
            let status = rest.u8(0)?;
            cx.text("\n\t    aggregation status [");
            put_bits(cx, &[(1, "supported"), (2, "enabled")], "none", ", ", u32::from(status));
            put!(cx, "], aggregation port ID {}", rest.u32(1)?);
        }
        (0x00_120f, 4) => put!(cx, "\n\t    MTU size {}", rest.u16(0)?),
        (0x00_12bb, 5..=11) => {
            put!(cx, "\n\t  {} ", INVENTORY[usize::from(subtype) - 5]);
            cx.visible_all(rest.data);
        }
        _ if subtypes.is_empty() => cx.hex_lines("\n\t  ", value),
        _ => cx.hex_lines("\n\t  ", rest),
    }
    Ok(())
}
