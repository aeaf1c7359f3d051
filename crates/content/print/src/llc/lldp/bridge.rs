//! Fields that IEEE 802.1 defines for LLDP (802.1Q, annex D).
//!
//! ```text
//! organization 3 | subtype 1 | value        positions below count from the value
//! ```

use super::{Named, put_text};
use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const SUBTYPES: &[(u8, &str)] = &[
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

pub(super) const AGGREGATION: Named = &[(1, "supported"), (2, "enabled")];
const PROTOCOL_VLAN: Named = &[(2, "supported"), (4, "enabled")];

/// Roles of an edge virtual bridge.
const EDGE_MODES: [&str; 4] =
    ["Not Supported", "EVB Bridge", "EVB Station", "Reserved for future Standardization"];

/// Prints a field. `false` if its subtype is not known, so that its bytes are shown.
pub(super) fn print(cx: &mut Context<'_>, subtype: u8, value: Span<'_>) -> Result<bool, crate::bytes::Cut> {
    put!(cx, "\n\t  {} Subtype ({subtype})", lookup(SUBTYPES, subtype).unwrap_or("unknown"));
    let length = value.length;
    match subtype {
        1 if length >= 2 => put!(cx, "\n\t    port vlan id (PVID): {}", value.u16(0)?),
        2 if length >= 3 => {
            let flags = value.u8(0)?;
            put!(cx, "\n\t    port and protocol vlan id (PPVID): {}, flags [", value.u16(1)?);
            put_bits(cx, PROTOCOL_VLAN, "none", ", ", u32::from(flags));
            put!(cx, "] (0x{flags:02x})");
        }
        3 if length >= 2 => {
            put!(cx, "\n\t    vlan id (VID): {}", value.u16(0)?);
            if length >= 3 && length >= 3 + usize::from(value.u8(2)?) {
                put_text(cx, "\n\t    vlan name: ", value.bytes(3, usize::from(value.u8(2)?))?);
            }
        }
        4 if length >= 1 && length > usize::from(value.u8(0)?) => {
            put_text(cx, "\n\t    protocol identity: ", value.bytes(1, usize::from(value.u8(0)?))?);
        }
        7 if length >= 5 => print_aggregation(cx, value)?,
        8 if length >= 2 => {
            for (name, bits) in [
                ("Pre-Priority CNPV Indicator", value.u8(0)?),
                ("Pre-Priority Ready Indicator", value.u8(1)?),
            ] {
                put!(cx, "\n\t    {name}");
                print_priorities(cx, bits);
            }
        }
        9 | 10 if length >= 21 => {
            let first = value.u8(0)?;
            match subtype {
                9 => put!(
                    cx,
                    "\n\t    Willing:{}, CBS:{}, RES:{}, Max TCs:{}",
                    first >> 7,
                    (first >> 6) & 2,
                    (first >> 3) & 7,
                    first & 7
                ),
                _ => put!(cx, "\n\t    RES: {first}"),
            }
            print_transmission_selection(cx, value)?;
        }
        11 if length >= 2 => {
            let first = value.u8(0)?;
            put!(cx, "\n\t    Willing: {}, MBC: {}", first >> 7, (first >> 6) & 1);
            put!(cx, ", RES: {}, PFC cap:{} \n\t    PFC Enable", (first >> 4) & 3, first & 15);
            print_priorities(cx, value.u8(1)?);
        }
        12 if length >= 1 => print_applications(cx, value)?,
        13 if length >= 5 => print_edge(cx, value)?,
        14 if length >= 4 => {
            let first = value.u8(0)?;
            put!(cx, "\n\t    Role: {}, RES: {}", first >> 7, (first >> 4) & 7);
            put!(cx, ", Scomp: {} ChnCap: {}", (first >> 3) & 1, value.u16(2)? & 0x0fff);
            if (length - 4).is_multiple_of(3) {
                for at in (4..length).step_by(3) {
                    let pair = value.u24(at)?;
                    put!(cx, "\n\t    SCID: {}, SVID: {}", pair >> 12, pair & 0x0fff);
                }
            }
        }
        // Values that are too short show nothing.
        1..=4 | 7..=14 => {}
        _ => return Ok(false),
    }
    Ok(true)
}

pub(super) fn print_aggregation(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let port = value.u32(1)?;
    cx.text("\n\t    aggregation status [");
    put_bits(cx, AGGREGATION, "none", ", ", u32::from(value.u8(0)?));
    put!(cx, "], aggregation port ID {port}");
    Ok(())
}

fn print_priorities(cx: &mut Context<'_>, bits: u8) {
    cx.text("\n\t     Priority : 0  1  2  3  4  5  6  7\n\t     Value    : ");
    for priority in 0..8 {
        put!(cx, "{}  ", (bits >> priority) & 1);
    }
}

/// Tables of enhanced transmission selection (802.1Q, D.2.8).
fn print_transmission_selection(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let columns = "0   1   2   3   4   5   6   7";
    put!(cx, "\n\t    Priority Assignment Table\n\t     Priority : {columns}\n\t     Value    :");
    for byte in value.bytes(1, 4)? {
        put!(cx, " {:<3} {:<3}", byte >> 4, byte & 15);
    }
    put!(cx, "\n\t    TC Bandwidth Table\n\t     TC%   : {columns}\n\t     Value :");
    for byte in value.bytes(5, 8)? {
        put!(cx, " {byte:<3}");
    }
    put!(cx, "\n\t    TSA Assignment Table\n\t     Traffic Class: {columns}\n\t     Value        :");
    for byte in value.bytes(13, 8)? {
        put!(cx, " {byte:<3}");
    }
    Ok(())
}

fn print_applications(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    put!(cx, "\n\t    RES: {}", value.u8(0)?);
    let table = value.skip(1);
    if table.length == 0 || !table.length.is_multiple_of(3) {
        return Ok(());
    }
    cx.text("\n\t    Application Priority Table");
    for at in (0..table.length).step_by(3) {
        let first = table.u8(at)?;
        put!(cx, "\n\t      Priority: {}, RES: {}", first >> 5, (first >> 3) & 3);
        put!(cx, ", Sel: {}, Protocol ID: {}", first & 7, table.u16(at + 1)?);
    }
    Ok(())
}

/// Edge virtual bridging (802.1Q, D.2.12).
fn print_edge(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let [bridge, station, retry, mode, keep_alive] = value.array(0)?;
    put!(cx, "\n\t    EVB Bridge Status\n\t      RES: {}, BGID: {}", bridge >> 3, (bridge >> 2) & 1);
    put!(cx, ", RRCAP: {}, RRCTR: {}", (bridge >> 1) & 1, bridge & 1);
    put!(cx, "\n\t    EVB Station Status\n\t      RES: {}, SGID: {}", station >> 4, (station >> 3) & 1);
    put!(cx, ", RRREQ: {},RRSTAT: {}", (station >> 2) & 1, station & 3);
    put!(cx, "\n\t    R: {}, RTE: {}", retry >> 5, retry & 0x1f);
    put!(cx, ", EVB Mode: {} [{}]", EDGE_MODES[usize::from(mode >> 6)], mode >> 6);
    put!(cx, "\n\t    ROL: {}, RWD: {}", (mode >> 5) & 1, mode & 0x1f);
    put!(cx, ", RES: {}, ROL: {}", keep_alive >> 6, (keep_alive >> 5) & 1);
    put!(cx, ", RKA: {}", keep_alive & 0x1f);
    Ok(())
}
