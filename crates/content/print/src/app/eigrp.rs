//! EIGRP (RFC 7868): `EIGRP Hello, length: 40`; with `-v` its fields.
//!
//! ```text
//! version 1 | operation 1 | checksum 2 | flags 4 | sequence 4 | acknowledgment 4 | router 2 | system 2 | fields
//! field    = type 2, length 2 with both, value
//! internal = next hop 4, cost 16, prefix length 1, as many bytes of the prefix as are needed
//! external = next hop 4, router 4, system 4, tag 4, metric 4, 0 2, protocol 1, flags 1, cost 16, prefix as above
//! cost     = delay 4, bandwidth 4, MTU 3, hops 1, reliability 1, load 1, 0 2
//! ```

use super::rip::pad_left;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const HEADER_LEN: usize = 20;
const FIELD_HEADER_LEN: usize = 4;
const COST_LEN: usize = 16;

const OPERATIONS: &[(u8, &str)] =
    &[(1, "Update"), (3, "Query"), (4, "Reply"), (5, "Hello"), (6, "IPX SAP"), (7, "Probe")];

const FLAGS: &[(u32, &str)] =
    &[(1, "Init"), (2, "Conditionally Received"), (4, "Restart"), (8, "End-of-Table")];

const PARAMETERS: u16 = 0x0001;
const SOFTWARE: u16 = 0x0004;
const INTERNAL: u16 = 0x0102;
const EXTERNAL: u16 = 0x0103;
const APPLETALK_INTERNAL: u16 = 0x0202;
const APPLETALK_EXTERNAL: u16 = 0x0203;
const APPLETALK_CABLE: u16 = 0x0204;

const FIELDS: &[(u16, &str)] = &[
    (PARAMETERS, "General Parameters"),
    (0x0002, "Authentication"),
    (0x0003, "Sequence"),
    (SOFTWARE, "Software Version"),
    (0x0005, "Next Multicast Sequence"),
    (INTERNAL, "IP Internal routes"),
    (EXTERNAL, "IP External routes"),
    (APPLETALK_INTERNAL, "AppleTalk Internal routes"),
    (APPLETALK_EXTERNAL, "AppleTalk External routes"),
    (APPLETALK_CABLE, "AppleTalk Cable setup"),
    (0x0302, "IPX Internal routes"),
    (0x0303, "IPX External routes"),
];

/// Protocols that external routes come from.
const PROTOCOLS: &[(u8, &str)] = &[
    (1, "IGRP"),
    (2, "EIGRP"),
    (3, "Static"),
    (4, "RIP"),
    (5, "Hello"),
    (6, "OSPF"),
    (7, "IS-IS"),
    (8, "EGP"),
    (9, "BGP"),
    (10, "IDRP"),
    (11, "Connected"),
];

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "eigrp";
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    let (version, operation) = (span.u8(0)?, span.u8(1)?);
    if version != 2 {
        put!(cx, "EIGRP version {version} packet not supported");
        return Ok(());
    }
    let name = lookup(OPERATIONS, operation);
    if cx.verbose() == 0 || span.length < HEADER_LEN {
        match name {
            Some(name) => put!(cx, "EIGRP {name}"),
            None => put!(cx, "EIGRP unknown ({operation})"),
        }
        put!(cx, ", length: {}", span.length);
        if cx.verbose() > 0 {
            put!(cx, " (too short, < {HEADER_LEN})");
        }
        return Ok(());
    }
    put!(cx, "\n\tEIGRP v{version}, opcode: ");
    match name {
        Some(name) => cx.text(name),
        None => put!(cx, "unknown, type: {operation}"),
    }
    put!(cx, " ({operation}), chksum: 0x{:04x}, Flags: [", span.u16(2)?);
    put_bits(cx, FLAGS, "none", ", ", span.u32(4)?);
    put!(cx, "]\n\tseq: 0x{:08x}, ack: 0x{:08x}, ", span.u32(8)?, span.u32(12)?);
    put!(cx, "VRID: {}, AS: {}, length: {}", span.u16(16)?, span.u16(18)?, span.length - HEADER_LEN);
    if !print_fields(cx, span.skip(HEADER_LEN))? {
        cx.cut();
    }
    Ok(())
}

/// `false` if a field was not captured as a whole.
fn print_fields(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length > 0 {
        if rest.captured() < FIELD_HEADER_LEN {
            return Ok(false);
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        if length < FIELD_HEADER_LEN || length > rest.length {
            cx.hex_lines("\n\t    ", rest.skip(FIELD_HEADER_LEN).with_length(rest.length));
            return Ok(true);
        }
        put!(cx, "\n\t  {} TLV (0x{kind:04x}), length: {length}", lookup(FIELDS, kind).unwrap_or("Unknown"));
        if rest.captured() < length {
            return Ok(false);
        }
        let value = rest.skip(FIELD_HEADER_LEN).with_length(length - FIELD_HEADER_LEN);
        let least = match kind {
            PARAMETERS | APPLETALK_CABLE => 8,
            SOFTWARE => 4,
            INTERNAL => 22,
            EXTERNAL => 42,
            APPLETALK_INTERNAL => 24,
            APPLETALK_EXTERNAL => 40,
            _ => 0,
        };
        if value.length < least {
            put!(cx, " (too short, < {})", least + FIELD_HEADER_LEN);
        } else {
            print_field(cx, kind, value)?;
        }
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t    ", value);
        }
        rest = rest.skip(length);
    }
    Ok(true)
}

fn print_field(cx: &mut Context<'_>, kind: u16, value: Span<'_>) -> Printed {
    match kind {
        PARAMETERS => {
            put!(cx, "\n\t    holdtime: {}s", value.u16(6)?);
            for (index, weight) in value.bytes(0, 5)?.iter().enumerate() {
                put!(cx, ", k{} {weight}", index + 1);
            }
        }
        SOFTWARE => {
            let [major, minor, protocol_major, protocol_minor] = value.array(0)?;
            put!(cx, "\n\t    IOS version: {major}.{minor}, EIGRP version {protocol_major}.{protocol_minor}");
        }
        INTERNAL | EXTERNAL => print_route(cx, kind, value)?,
        APPLETALK_INTERNAL => {
            print_cables(cx, value, 4 + COST_LEN)?;
            print_cost(cx, value.skip(4))?;
        }
        APPLETALK_EXTERNAL => {
            print_cables(cx, value, 20 + COST_LEN)?;
            put!(cx, "\n\t      origin-router {}", value.u32(4)?);
            print_origin(cx, value, value.u8(16)?, value.u8(17)?, u32::from(value.u16(18)?))?;
            print_cost(cx, value.skip(20))?;
        }
        APPLETALK_CABLE => {
            put!(cx, "\n\t    Cable-range: {}-{}", value.u16(0)?, value.u16(2)?);
            put!(cx, ", Router-ID {}", value.u32(4)?);
        }
        _ if cx.verbose() == 1 => cx.hex_lines("\n\t    ", value),
        _ => {}
    }
    Ok(())
}

fn print_route(cx: &mut Context<'_>, kind: u16, value: Span<'_>) -> Printed {
    let bits_at = if kind == INTERNAL { 20 } else { 40 };
    if !print_prefix(cx, value, bits_at)? {
        return Ok(());
    }
    if kind == INTERNAL {
        return print_cost(cx, value.skip(4));
    }
    cx.ipv4_after("\n\t      origin-router ", value, 4)?;
    print_origin(cx, value, value.u8(22)?, value.u8(23)?, value.u32(16)?)?;
    print_cost(cx, value.skip(24))
}

/// A prefix whose length is at `at`, and the next hop. `false` if the length makes no sense.
fn print_prefix(cx: &mut Context<'_>, value: Span<'_>, at: usize) -> Result<bool, Cut> {
    let bits = value.u8(at)?;
    if bits > 32 {
        put!(cx, "\n\t    illegal prefix length {bits}");
        return Ok(false);
    }
    let bytes = value.bytes(at + 1, usize::from(bits).div_ceil(8))?;
    let prefix: [u8; 4] = std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0));
    cx.text("\n\t    IPv4 prefix: ");
    let start = cx.out.len();
    cx.host(prefix.into());
    pad_left(cx, start, 15);
    put!(cx, "/{bits}, nexthop: ");
    match value.u32(0)? {
        0 => cx.text("self"),
        _ => cx.ipv4_after("", value, 0)?,
    }
    Ok(true)
}

fn print_cables(cx: &mut Context<'_>, value: Span<'_>, at: usize) -> Printed {
    put!(cx, "\n\t     Cable-Range: {}-{}, nexthop: ", value.u16(at)?, value.u16(at + 2)?);
    match value.u32(0)? {
        0 => cx.text("self"),
        hop => put!(cx, "{}.{}", hop >> 16, hop & 0xffff),
    }
    Ok(())
}

fn print_origin(cx: &mut Context<'_>, value: Span<'_>, protocol: u8, flags: u8, metric: u32) -> Printed {
    let name = lookup(PROTOCOLS, protocol).unwrap_or("unknown");
    put!(cx, ", origin-as {}, origin-proto {name}, flags [0x{flags:02x}]", value.u32(8)?);
    put!(cx, ", tag 0x{:08x}, metric {metric}", value.u32(12)?);
    Ok(())
}

fn print_cost(cx: &mut Context<'_>, cost: Span<'_>) -> Printed {
    put!(cx, "\n\t      delay {} ms, bandwidth {} Kbps", cost.u32(0)? / 100, cost.u32(4)?);
    put!(cx, ", mtu {}, hop {}", cost.u24(8)?, cost.u8(11)?);
    put!(cx, ", reliability {}, load {}", cost.u8(12)?, cost.u8(13)?);
    Ok(())
}
