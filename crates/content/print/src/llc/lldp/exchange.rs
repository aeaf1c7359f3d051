//! Data Center Bridging Capability Exchange, before IEEE 802.1 took it over (DCBX 1.01).
//!
//! ```text
//! (type 7 bits, length 9 bits, value)*      features: operating 1, maximum 1, flags 1, subtype 1, ...
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const SUBTYPES: &[(u8, &str)] =
    &[(1, "DCB Capability Exchange Protocol Rev 1"), (2, "DCB Capability Exchange Protocol Rev 1.01")];

const CONTROL: u16 = 1;
const PRIORITY_GROUPS: u16 = 2;
const FLOW_CONTROL: u16 = 3;
const APPLICATIONS: u16 = 4;

/// Prints a field. `false` if its last part is not known, so that its bytes are shown.
pub(super) fn print(cx: &mut Context<'_>, subtype: u8, value: Span<'_>) -> Result<bool, Cut> {
    put!(cx, "\n\t  {} Subtype ({subtype})", lookup(SUBTYPES, subtype).unwrap_or("unknown"));
    if subtype == 1 {
        return Ok(false);
    }
    let mut known = true;
    let mut rest = value;
    while rest.length >= 2 {
        let head = rest.u16(0)?;
        let (kind, length) = (head >> 9, usize::from(head & 0x1ff));
        known = true;
        rest = rest.skip(2);
        if kind == 0 || length == 0 || rest.length < length {
            break;
        }
        let part = rest.limit(length);
        known = matches!(kind, CONTROL..=APPLICATIONS);
        let least = match kind {
            CONTROL => 10,
            PRIORITY_GROUPS => 17,
            FLOW_CONTROL => 6,
            APPLICATIONS => 4,
            _ => 0,
        };
        if length < least {
            break;
        }
        match kind {
            CONTROL => {
                put!(cx, "\n\t    Control - Protocol Control (type 0x1, length {length})");
                print_versions(cx, part)?;
                put!(cx, "\n\t      Sequence Number: {}", part.u32(2)?);
                put!(cx, "\n\t      Acknowledgement Number: {}", part.u32(6)?);
            }
            PRIORITY_GROUPS => print_groups(cx, part)?,
            FLOW_CONTROL => print_flow_control(cx, part)?,
            APPLICATIONS => print_applications(cx, part)?,
            _ => {}
        }
        if cx.verbose() > 1 || !known {
            cx.hex_lines("\n\t    ", part);
        }
        rest = rest.skip(length);
    }
    Ok(known)
}

fn print_versions(cx: &mut Context<'_>, part: Span<'_>) -> Printed {
    put!(cx, "\n\t      Oper_Version: {}\n\t      Max_Version: {}", part.u8(0)?, part.u8(1)?);
    Ok(())
}

/// Prints the fields that all features begin with.
fn print_feature(cx: &mut Context<'_>, name: &str, kind: u16, part: Span<'_>) -> Printed {
    put!(cx, "\n\t    Feature - {name} (type 0x{kind:x}, length {})", part.length);
    print_versions(cx, part)?;
    let flags = part.u8(2)?;
    put!(cx, "\n\t      Info block(0x{flags:02X}): Enable bit: {}", flags >> 7);
    put!(cx, ", Willing bit: {}, Error Bit: {}", (flags >> 6) & 1, (flags >> 5) & 1);
    put!(cx, "\n\t      SubType: {}", part.u8(3)?);
    Ok(())
}

fn print_groups(cx: &mut Context<'_>, part: Span<'_>) -> Printed {
    print_feature(cx, "Priority Group", PRIORITY_GROUPS, part)?;
    cx.text("\n\t      Priority Allocation");
    let groups = part.u32(4)?;
    for priority in 0..8 {
        put!(cx, "\n\t          PgId_{priority}: {}", (groups >> (28 - 4 * priority)) & 15);
    }
    cx.text("\n\t      Priority Group Allocation");
    for (group, share) in part.bytes(8, 8)?.iter().enumerate() {
        put!(cx, "\n\t          Pg percentage[{group}]: {share}");
    }
    put!(cx, "\n\t      NumTCsSupported: {}", part.u8(16)?);
    Ok(())
}

fn print_flow_control(cx: &mut Context<'_>, part: Span<'_>) -> Printed {
    print_feature(cx, "Priority Flow Control", FLOW_CONTROL, part)?;
    let bits = part.u8(4)?;
    put!(cx, "\n\t      PFC Config (0x{bits:02X})");
    for priority in 0..8 {
        let state = if (bits >> priority) & 1 != 0 { "Enabled" } else { "Disabled" };
        put!(cx, "\n\t          Priority Bit {priority}: {state}");
    }
    put!(cx, "\n\t      NumTCPFCSupported: {}", part.u8(5)?);
    Ok(())
}

fn print_applications(cx: &mut Context<'_>, part: Span<'_>) -> Printed {
    print_feature(cx, "Application", APPLICATIONS, part)?;
    for entry in part.bytes(4, part.length - 4)?.chunks_exact(6) {
        let entry = Span::whole(entry);
        let selector = entry.u24(2)?;
        let family = if selector >> 22 != 0 { "Socket Number" } else { "L2 EtherType" };
        put!(cx, "\n\t      Application Value\n\t          Application Protocol ID: 0x{:04x}", entry.u16(0)?);
        put!(cx, "\n\t          SF (0x{:x}) Application Protocol ID is {family}", selector >> 22);
        put!(cx, "\n\t          OUI: 0x{:06x}", selector & 0x3f_ffff);
        put!(cx, "\n\t          User Priority Map: 0x{:02x}", entry.u8(5)?);
    }
    Ok(())
}
