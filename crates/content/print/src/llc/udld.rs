//! Cisco's unidirectional link detection (RFC 5171).
//!
//! ```text
//! version 3 bits, code 5 | flags 1 | checksum 2 | (type 2, length 2 with these four, value)*
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const CODES: [&str; 4] = ["Reserved", "Probe message", "Echo message", "Flush message"];

const FLAGS: &[(u32, &str)] = &[
    (0x01, "RT"),
    (0x02, "RSY"),
    (0x04, "MBZ-2"),
    (0x08, "MBZ-3"),
    (0x10, "MBZ-4"),
    (0x20, "MBZ-5"),
    (0x40, "MBZ-6"),
    (0x80, "MBZ-7"),
];

const DEVICE: u16 = 1;
const PORT: u16 = 2;
const ECHO: u16 = 3;
const MESSAGE_INTERVAL: u16 = 4;
const TIMEOUT_INTERVAL: u16 = 5;
const DEVICE_NAME: u16 = 6;
const SEQUENCE: u16 = 7;

const TYPES: &[(u16, &str)] = &[
    (DEVICE, "Device-ID TLV"),
    (PORT, "Port-ID TLV"),
    (ECHO, "Echo TLV"),
    (MESSAGE_INTERVAL, "Message Interval TLV"),
    (TIMEOUT_INTERVAL, "Timeout Interval TLV"),
    (DEVICE_NAME, "Device Name TLV"),
    (SEQUENCE, "Sequence Number TLV"),
];

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "udld";
    if span.length < 4 {
        return invalid(cx, span);
    }
    let (first, flags) = (span.u8(0)?, span.u8(1)?);
    let code = first & 0x1f;
    let name = CODES.get(usize::from(code)).copied().unwrap_or("Reserved");
    put!(cx, "UDLDv{}, Code {name} ({code:x}), Flags [", first >> 5);
    put_bits(cx, FLAGS, "none", ", ", u32::from(flags));
    put!(cx, "] (0x{flags:02x}), length {}", span.length);
    if cx.verbose() == 0 {
        return span.need(span.length);
    }
    put!(cx, "\n\tChecksum 0x{:04x} (unverified)", span.u16(2)?);
    let mut rest = span.skip(4);
    while rest.length > 0 {
        if rest.length < 4 {
            return invalid(cx, rest);
        }
        let (kind, length) = (rest.u16(0)?, rest.u16(2)?);
        let name = lookup(TYPES, kind).unwrap_or("Unknown");
        put!(cx, "\n\t{name} (0x{kind:04x}) TLV, length {length}");
        let value = rest.skip(4);
        let value_len = usize::from(length).saturating_sub(4);
        if value_len == 0 || value.length < value_len {
            return invalid(cx, value);
        }
        match kind {
            DEVICE | PORT | DEVICE_NAME | ECHO => {
                cx.text(", ");
                cx.characters(value, value_len, kind != ECHO)?;
            }
            MESSAGE_INTERVAL | TIMEOUT_INTERVAL if value_len == 1 => put!(cx, ", {}s", value.u8(0)?),
            SEQUENCE if value_len == 4 => put!(cx, ", {}", value.u32(0)?),
            MESSAGE_INTERVAL | TIMEOUT_INTERVAL | SEQUENCE => return invalid(cx, value),
            _ => value.need(value_len)?,
        }
        rest = value.skip(value_len);
    }
    Ok(())
}

fn invalid(cx: &mut Context<'_>, rest: Span<'_>) -> Printed {
    cx.invalid();
    rest.need(rest.length)
}
