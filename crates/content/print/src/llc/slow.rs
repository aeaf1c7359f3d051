//! Slow protocols (IEEE 802.3, annex 57): link aggregation (LACP), its marker, and OAM.
//!
//! ```text
//! subtype 1 (1 LACP, 2 marker, 3 OAM) | version 1 | (type 1, length 1 with both, value)*
//! actor and partner: priority 2, system 6, key 2, port priority 2, port 2, state 1, reserved 3
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put, put_bits};
use crate::text::Text;

const STATES: &[(u32, &str)] = &[
    (0x01, "Activity"),
    (0x02, "Timeout"),
    (0x04, "Aggregation"),
    (0x08, "Synchronization"),
    (0x10, "Collecting"),
    (0x20, "Distributing"),
    (0x40, "Default"),
    (0x80, "Expired"),
];

/// One frame: `LACPv1, length 110`; with `-v` the state of both sides.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "slow";
    let subtype = span.u8(0)?;
    match subtype {
        1 | 2 => put!(
            cx,
            "{}v{}, length {}",
            ["LACP", "MARKER"][usize::from(subtype - 1)],
            span.u8(1)?,
            span.length
        ),
        3 => {
            put!(cx, "OAM, length {}", span.length);
            return Ok(());
        }
        _ => {
            put!(cx, "unknown ({subtype}), length {}", span.length);
            cx.hex_lines("\n\t", span);
            return Ok(());
        }
    }
    if cx.verbose() == 0 || span.u8(1)? != 1 {
        return Ok(());
    }
    let mut rest = span.skip(2).limit(span.length.saturating_sub(2));
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        put!(cx, "\n\t{} TLV (0x{kind:02x}), length {length}", name(subtype, kind));
        // The terminator, or a length that goes nowhere.
        if kind == 0 || length < 2 || length > rest.length {
            break;
        }
        rest.need(length)?;
        print_value(cx, subtype, kind, rest.skip(2).limit(length - 2))?;
        rest = rest.skip(length);
    }
    Ok(())
}

fn name(subtype: u8, kind: u8) -> &'static str {
    match (subtype, kind) {
        (_, 0) => "Terminator",
        (1, 1) => "Actor Information",
        (1, 2) => "Partner Information",
        (1, 3) => "Collector Information",
        (2, 1) => "Marker Information",
        (2, 2) => "Marker Response Information",
        _ => "Unknown",
    }
}

fn print_value(cx: &mut Context<'_>, subtype: u8, kind: u8, value: Span<'_>) -> Printed {
    match (subtype, kind) {
        (1, 1 | 2) => {
            cx.text("\n\t  System ");
            cx.mac(value.bytes(2, 6)?);
            put!(cx, ", System Priority {}, Key {}", value.u16(0)?, value.u16(8)?);
            put!(cx, ", Port {}, Port Priority {}\n\t  State Flags [", value.u16(12)?, value.u16(10)?);
            put_bits(cx, STATES, "none", ", ", u32::from(value.u8(14)?));
            cx.text("]");
        }
        (1, 3) => put!(cx, "\n\t  Max Delay {}", value.u16(0)?),
        (2, 1 | 2) => {
            cx.text("\n\t  Request System ");
            cx.mac(value.bytes(2, 6)?);
            put!(cx, ", Request Port {}, Request Transaction ID 0x{:08x}", value.u16(0)?, value.u32(8)?);
        }
        _ => cx.hex_lines("\n\t  ", value),
    }
    Ok(())
}
