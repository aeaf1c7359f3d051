//! Links of traffic engineering in opaque advertisements of OSPF (RFC 3630, RFC 4203, RFC 4124).
//!
//! ```text
//! (type 2, length 2, value, padding to 4)*      1 router: address 4      2 link: parts of the same form
//! ```

use super::advertisement::part_head;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const LINK: u16 = 2;

const PARTS: &[(u16, &str)] = &[
    (1, "Link Type"),
    (2, "Link ID"),
    (3, "Local Interface IP address"),
    (4, "Remote Interface IP address"),
    (5, "Traffic Engineering Metric"),
    (6, "Maximum Bandwidth"),
    (7, "Maximum Reservable Bandwidth"),
    (8, "Unreserved Bandwidth"),
    (9, "Administrative Group"),
    (11, "Link Local/Remote Identifier"),
    (14, "Link Protection Type"),
    (15, "Interface Switching Capability"),
    (RISK_GROUP, "Shared Risk Link Group"),
    (17, "Bandwidth Constraints"),
];
const RISK_GROUP: u16 = 16;

const PROTECTIONS: &[(u32, &str)] = &[
    (0x01, "Extra Traffic"),
    (0x02, "Unprotected"),
    (0x04, "Shared"),
    (0x08, "Dedicated 1:1"),
    (0x10, "Dedicated 1+1"),
    (0x20, "Enhanced"),
    (0x40, "Reserved"),
    (0x80, "Reserved"),
];

const SWITCHINGS: &[(u8, &str)] = &[
    (1, "Packet-Switch Capable-1"),
    (2, "Packet-Switch Capable-2"),
    (3, "Packet-Switch Capable-3"),
    (4, "Packet-Switch Capable-4"),
    (51, "Layer-2 Switch Capable"),
    (100, "Time-Division-Multiplex"),
    (150, "Lambda-Switch Capable"),
    (200, "Fiber-Switch Capable"),
];

const ENCODINGS: &[(u8, &str)] = &[
    (1, "Packet"),
    (2, "Ethernet V2/DIX"),
    (3, "ANSI/ETSI PDH"),
    (4, "Reserved"),
    (5, "SDH ITU-T G.707/SONET ANSI T1.105"),
    (6, "Reserved"),
    (7, "Digital Wrapper"),
    (8, "Lambda (photonic)"),
    (9, "Fiber"),
    (10, "Reserved"),
    (11, "FiberChannel"),
];

const MODELS: &[(u8, &str)] =
    &[(0, "Russian dolls"), (1, "Maximum allocation"), (254, "Maximum allocation with E-LSP support")];

/// Prints an advertisement's body. `false` if its lengths make no sense or it was not captured as a whole.
pub(super) fn print(cx: &mut Context<'_>, body: Span<'_>) -> Result<bool, Cut> {
    let mut rest = body;
    while rest.length > 0 {
        if rest.captured() < 4 {
            return Ok(false);
        }
        let Some((kind, length)) = part_head(cx, rest)? else { return Ok(false) };
        let name = match kind {
            1 => "Router Address",
            LINK => "Link",
            _ => "unknown",
        };
        put!(cx, "\n\t    {name} TLV ({kind}), length: {length}");
        let left = rest.length - 4;
        if length > left {
            put!(cx, "\n\t    Bogus length {length} > {left}");
            return Ok(false);
        }
        if kind == 0 || length == 0 {
            return Ok(false);
        }
        let value = rest.skip(4).with_length(length);
        let mut used = length.next_multiple_of(4);
        match kind {
            LINK => match print_link(cx, value)? {
                // The parts have taken all of the length, so nothing is left to pad.
                Some(end) => {
                    rest = Span { data: value.data.get(end..).unwrap_or(&[]), length: left };
                    used = 0;
                }
                None => return Ok(false),
            },
            1 if length < 4 => {
                put!(cx, "\n\t    TLV length {length} < 4");
                return Ok(false);
            }
            1 => cx.ipv4_after(", ", value, 0)?,
            _ if cx.verbose() == 1 => cx.hex_lines("\n\t      ", value),
            _ => {}
        }
        if used > left {
            put!(cx, "\n\t    Bogus padded length {used} > {left}");
            return Ok(false);
        }
        if kind != LINK {
            rest = rest.skip(4 + used);
        }
    }
    Ok(true)
}

/// Prints the parts of a link. The offset of their end; `None` if their lengths make no sense.
fn print_link(cx: &mut Context<'_>, value: Span<'_>) -> Result<Option<usize>, Cut> {
    let (mut at, mut left) = (0, value.length);
    while left > 0 {
        if left < 4 {
            put!(cx, "\n\t    Remaining TLV length {left} < 4");
            return Ok(None);
        }
        let (kind, length) = (value.u16(at)?, usize::from(value.u16(at + 2)?));
        at += 4;
        left -= 4;
        if kind == 0 || length == 0 {
            cx.invalid();
            return Ok(None);
        }
        put!(cx, "\n\t      {} subTLV ({kind}), length: {length}", lookup(PARTS, kind).unwrap_or("unknown"));
        let padded = length.next_multiple_of(4);
        if left < length {
            put!(cx, "\n\t    Remaining TLV length {} < {}", left + 4, length + 4);
            return Ok(None);
        }
        let Ok(bytes) = value.bytes(at, length) else { return Ok(None) };
        if !print_part(cx, kind, Span::whole(bytes))? {
            cx.invalid();
            return Ok(None);
        }
        if left < padded {
            put!(cx, "\n\t    Remaining TLV length {} < {}", left + 4, padded + 4);
            return Ok(None);
        }
        // tcpdump passes over the numbers of risk groups twice.
        at += if kind == RISK_GROUP { length + padded } else { padded };
        left -= padded;
    }
    Ok(Some(at))
}

fn put_bandwidth(cx: &mut Context<'_>, part: Span<'_>, at: usize) -> Printed {
    crate::app::megabits(cx, part.u32(at)?);
    Ok(())
}

/// `false` if the length does not suit the part.
fn print_part(cx: &mut Context<'_>, kind: u16, part: Span<'_>) -> Result<bool, Cut> {
    let length = part.length;
    let fault = match kind {
        3..=7 | 9 | 14 if length != 4 => " != 4",
        2 | 11 if !matches!(length, 4 | 8) => " != 4 && != 8",
        8 if length != 32 => " != 32",
        17 if length < 4 => " < 4",
        15 if length < 36 => " < 36",
        1 if length != 1 => " != 1",
        RISK_GROUP if !length.is_multiple_of(4) => " != N x 4",
        _ => "",
    };
    cx.text(fault);
    if !fault.is_empty() {
        return Ok(false);
    }
    match kind {
        1 => {
            let kind = part.u8(0)?;
            let name = lookup(&[(1, "Point-to-point"), (2, "Multi-Access")], kind).unwrap_or("unknown");
            put!(cx, ", {name} ({kind})");
        }
        2 | 11 => {
            for at in (0..length).step_by(4) {
                cx.ipv4_after(", ", part, at)?;
                put!(cx, " (0x{:08x})", part.u32(at)?);
            }
        }
        3 | 4 => cx.ipv4_after(", ", part, 0)?,
        5 => put!(cx, ", Metric {}", part.u32(0)?),
        6 | 7 => {
            cx.text(", ");
            put_bandwidth(cx, part, 0)?;
        }
        8 => {
            for class in 0..8 {
                put!(cx, "\n\t\tTE-Class {class}: ");
                put_bandwidth(cx, part, class * 4)?;
            }
        }
        9 => put!(cx, ", 0x{:08x}", part.u32(0)?),
        14 => {
            cx.text(", ");
            put_bits(cx, PROTECTIONS, "none", ", ", u32::from(part.u8(0)?));
        }
        15 => {
            let (switching, encoding) = (part.u8(0)?, part.u8(1)?);
            let name = lookup(SWITCHINGS, switching).unwrap_or("Unknown");
            put!(cx, "\n\t\tInterface Switching Capability: {name}");
            let name = lookup(ENCODINGS, encoding).unwrap_or("Unknown");
            put!(cx, "\n\t\tLSP Encoding: {name}\n\t\tMax LSP Bandwidth:");
            for level in 0..8 {
                put!(cx, "\n\t\t  priority level {level}: ");
                put_bandwidth(cx, part, 4 + level * 4)?;
            }
        }
        RISK_GROUP => {
            for at in (0..length).step_by(4) {
                cx.text(if at == 0 { "\n\t\t  Shared risk group: " } else { ", " });
                cx.dec(part.u32(at)?);
            }
        }
        17 => return print_constraints(cx, part),
        _ if cx.verbose() == 1 => cx.hex_lines("\n\t\t", part),
        _ => {}
    }
    Ok(true)
}

fn print_constraints(cx: &mut Context<'_>, part: Span<'_>) -> Result<bool, Cut> {
    let (model, length) = (part.u8(0)?, part.length);
    let name = lookup(MODELS, model).unwrap_or("unknown");
    put!(cx, "\n\t\tBandwidth Constraints Model ID: {name} ({model})");
    if !length.is_multiple_of(4) {
        put!(cx, "\n\t\tlength {length} != N x 4");
        return Ok(false);
    }
    if length > 36 {
        put!(cx, "\n\t\tlength {length} > 36");
        return Ok(false);
    }
    for class in 0..(length - 4) / 4 {
        put!(cx, "\n\t\t  Bandwidth constraint CT{class}: ");
        put_bandwidth(cx, part, 4 + class * 4)?;
    }
    Ok(true)
}
