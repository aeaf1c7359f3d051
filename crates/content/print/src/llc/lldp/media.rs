//! Fields that TIA defines for media endpoints (ANSI/TIA-1057).

use super::{Named, put_text};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const SUBTYPES: &[(u8, &str)] = &[
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

/// Names of subtypes 5 to 11, which describe a device.
const INVENTORY: [&str; 7] = [
    "Hardware revision",
    "Firmware revision",
    "Software revision",
    "Serial number",
    "Manufacturer name",
    "Model name",
    "Asset ID",
];

const CAPABILITIES: Named = &[
    (0x01, "LLDP-MED capabilities"),
    (0x02, "network policy"),
    (0x04, "location identification"),
    (0x08, "extended power via MDI-PSE"),
    (0x10, "extended power via MDI-PD"),
    (0x20, "Inventory"),
];

const DEVICES: &[(u8, &str)] =
    &[(1, "endpoint class 1"), (2, "endpoint class 2"), (3, "endpoint class 3"), (4, "network connectivity")];

const APPLICATIONS: &[(u8, &str)] = &[
    (1, "voice"),
    (2, "voice signaling"),
    (3, "guest voice"),
    (4, "guest voice signaling"),
    (5, "softphone voice"),
    (6, "video conferencing"),
    (7, "streaming video"),
    (8, "video signaling"),
];

const POLICY_FLAGS: Named = &[(0x80, "Unknown"), (0x40, "Tagged"), (0x20, "reserved")];

const COORDINATES: u8 = 1;
const CIVIC_ADDRESS: u8 = 2;
const EMERGENCY_NUMBER: u8 = 3;
const LOCATION_FORMATS: &[(u8, &str)] = &[
    (COORDINATES, "coordinate-based LCI"),
    (CIVIC_ADDRESS, "civic address LCI"),
    (EMERGENCY_NUMBER, "ECS ELIN"),
];

const DATUMS: &[(u8, &str)] = &[
    (1, "World Geodesic System 1984"),
    (2, "North American Datum 1983 (NAVD88)"),
    (3, "North American Datum 1983 (MLLW)"),
];

const LOCATED: &[(u8, &str)] = &[
    (0, "location of DHCP server"),
    (1, "location of the network element believed to be closest to the client"),
    (2, "location of the client"),
];

const CIVIC_ELEMENTS: &[(u8, &str)] = &[
    (1, "national subdivisions (state,canton,region,province,prefecture)"),
    (2, "county, parish, gun, district"),
    (3, "city, township, shi"),
    (4, "city division, borough, city district, ward chou"),
    (5, "neighborhood, block"),
    (6, "street"),
];

const POWER_SOURCES: &[(u8, &str)] =
    &[(1, "PSE - primary power source"), (2, "local - backup power source"), (3, "PSE+local - reserved")];
const POWER_PRIORITIES: &[(u8, &str)] = &[(1, "critical"), (2, "high"), (3, "low")];
/// Powers from here on are reserved, in tenths of a watt.
const POWER_RESERVED: u16 = 1024;

/// Prints a field. `false` if its subtype is not known, so that its bytes are shown.
pub(super) fn print(cx: &mut Context<'_>, subtype: u8, value: Span<'_>) -> Result<bool, Cut> {
    put!(cx, "\n\t  {} Subtype ({subtype})", lookup(SUBTYPES, subtype).unwrap_or("unknown"));
    let length = value.length;
    match subtype {
        1 if length >= 3 => {
            let (capabilities, device) = (value.u16(0)?, value.u8(2)?);
            cx.text("\n\t    Media capabilities [");
            put_bits(cx, CAPABILITIES, "none", ", ", u32::from(capabilities));
            put!(cx, "] (0x{capabilities:04x})\n\t    Device type ");
            put!(cx, "[{}] (0x{device:02x})", lookup(DEVICES, device).unwrap_or("unknown"));
        }
        2 if length >= 4 => {
            let application = value.u8(0)?;
            put!(cx, "\n\t    Application type [{}]", lookup(APPLICATIONS, application).unwrap_or("none"));
            put!(cx, " (0x{application:02x}), Flags [");
            put_bits(cx, POLICY_FLAGS, "none", ", ", u32::from(value.u8(1)?));
            let (high, low) = (value.u16(1)?, value.u16(2)?);
            put!(cx, "]\n\t    Vlan id {}, L2 priority {}", (high & 0x1ffe) >> 1, (low & 0x01ff) >> 6);
            put!(cx, ", DSCP value {}", low & 0x3f);
        }
        3 if length >= 1 => location(cx, value)?,
        4 if length >= 3 => {
            let (first, power) = (value.u8(0)?, value.u16(1)?);
            let source = lookup(POWER_SOURCES, (first & 0x30) >> 4).unwrap_or("none");
            let priority = lookup(POWER_PRIORITIES, first & 15).unwrap_or("none");
            // tcpdump takes the two lowest bits for the type, which stands in the two highest.
            let device = if first & 3 != 0 { "PD device" } else { "PSE device" };
            put!(cx, "\n\t    Power type [{device}], Power source [{source}]");
            put!(cx, "\n\t    Power priority [{priority}] (0x{:02x}), Power ", first & 15);
            match power {
                ..POWER_RESERVED => put!(cx, "{}.{} Watts", power / 10, power % 10),
                _ => put!(cx, "{power} (Reserved)"),
            }
        }
        5..=11 => {
            put!(cx, "\n\t  {}", INVENTORY[usize::from(subtype) - 5]);
            put_text(cx, " ", value.data);
        }
        // Values that are too short show nothing.
        1..=4 => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn location(cx: &mut Context<'_>, value: Span<'_>) -> Result<(), Cut> {
    let format = value.u8(0)?;
    let name = lookup(LOCATION_FORMATS, format).unwrap_or("unknown");
    put!(cx, "\n\t    Location data format {name} (0x{format:02x})");
    let value = value.skip(1);
    match format {
        COORDINATES if value.length >= 16 => coordinates(cx, value)?,
        CIVIC_ADDRESS if value.length >= 1 => civic_address(cx, value)?,
        EMERGENCY_NUMBER => put_text(cx, "\n\t    ECS ELIN id ", value.data),
        COORDINATES | CIVIC_ADDRESS => {}
        _ => {
            cx.text("\n\t    Location ID ");
            cx.hex_lines("\n\t      ", value);
        }
    }
    Ok(())
}

/// A place on earth (RFC 3825).
fn coordinates(cx: &mut Context<'_>, value: Span<'_>) -> Result<(), Cut> {
    for (name, at) in [("Latitude", 0), ("Longitude", 5)] {
        let first = value.u8(at)?;
        let fixed = u64::from(first & 3) << 32 | u64::from(value.u32(at + 1)?);
        put!(cx, "\n\t    {name} resolution {}, {} value {fixed}", first >> 2, name.to_ascii_lowercase());
    }
    let kind = value.u8(10)? >> 4;
    let name = lookup(&[(1, "meters"), (2, "floors")], kind).unwrap_or("unknown");
    put!(
        cx,
        "\n\t    Altitude type {name} ({kind})\n\t    Altitude resolution {}",
        (value.u16(10)? >> 6) & 0x3f
    );
    put!(cx, ", altitude value 0x{:x}", value.u32(11)? & 0x3fff_ffff);
    let datum = value.u8(15)?;
    put!(cx, "\n\t    Datum {} (0x{datum:02x})", lookup(DATUMS, datum).unwrap_or("unknown"));
    Ok(())
}

/// length 1 | what 1 | country 2 | (type 1, length 1, text)*
fn civic_address(cx: &mut Context<'_>, value: Span<'_>) -> Result<(), Cut> {
    let length = value.u8(0)?;
    if length < 3 || value.length < 2 + usize::from(length) {
        return Ok(());
    }
    let what = value.u8(1)?;
    put!(cx, "\n\t    LCI length {length}, LCI what {}", lookup(LOCATED, what).unwrap_or("unknown"));
    put!(cx, " (0x{what:02x}), Country-code ");
    cx.visible_until_nul(value.bytes(2, 2)?);
    let mut rest = value.skip(4).limit(usize::from(length) - 3);
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let name = lookup(CIVIC_ELEMENTS, kind).unwrap_or("unknown");
        put!(cx, "\n\t      CA type '{name}' ({kind}), length {length}: ");
        if kind == 0 || length == 0 || rest.length < 2 + length {
            return Ok(());
        }
        cx.visible_until_nul(rest.bytes(2, length)?);
        rest = rest.skip(2 + length);
    }
    Ok(())
}
