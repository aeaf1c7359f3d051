//! SCTP (RFC 9260) with I-DATA (RFC 8260) and partial reliability (RFC 3758).
//!
//! ```text
//! source port 2 | destination port 2 | verification tag 4 | checksum 4 | chunks
//! chunk = type 1, flags 1, length 2 (with this header), value, padding to 4
//! DATA = sequence number 4, stream 2, stream sequence 2, payload protocol 4, data
//! ```
//!
//! Text: `sctp (1) [INIT] [init tag: 1] ...`; with `-vv` a line for each chunk.

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net::Ip;
use crate::text::Text;

const HEADER_LEN: usize = 12;
const CHUNK_HEADER_LEN: usize = 4;

const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const SACK: u8 = 3;
const I_DATA: u8 = 0x40;
const I_FORWARD_TSN: u8 = 0xc2;

/// Types of chunks.
pub(crate) const CHUNKS: &[(u8, &str)] = &[
    (DATA, "DATA"),
    (INIT, "INIT"),
    (INIT_ACK, "INIT ACK"),
    (SACK, "SACK"),
    (4, "HB REQ"),
    (5, "HB ACK"),
    (6, "ABORT"),
    (7, "SHUTDOWN"),
    (8, "SHUTDOWN ACK"),
    (9, "OP ERR"),
    (10, "COOKIE ECHO"),
    (11, "COOKIE ACK"),
    (12, "ECN ECHO"),
    (13, "ECN CWR"),
    (14, "SHUTDOWN COMPLETE"),
    (I_DATA, "I-DATA"),
    (0xc0, "FOR CUM TSN"),
    (0xc1, "REL CTRL"),
    (I_FORWARD_TSN, "I-FORWARD-FSN"),
];

/// Names of payload protocol identifiers.
const PAYLOADS: &[(u32, &str)] = &[
    (1, "ISDN Q.921"),
    (2, "M2UA"),
    (3, "M3UA"),
    (4, "SUA"),
    (5, "M2PA"),
    (6, "V5.2"),
    (7, "H.248"),
    (8, "BICC"),
    (9, "TALI"),
    (10, "DUA"),
    (11, "ASAP"),
    (12, "ENRP"),
    (13, "H.323"),
    (14, "Q.IPC"),
    (15, "SIMCO"),
    (16, "DDPSC"),
    (17, "DDPSSC"),
    (18, "S1AP"),
    (19, "RUA"),
    (20, "HNBAP"),
    (21, "ForCES HP"),
    (22, "ForCES MP"),
    (23, "ForCES LP"),
    (24, "SBc-AP"),
    (25, "NBAP"),
    (27, "X2AP"),
];

/// Ports of ForCES (RFC 5811).
const FORCES_PORTS: &[(u16, &str)] = &[(6704, "[ForCES HP]"), (6705, "[ForCES MP]"), (6706, "[ForCES LP]")];

/// Flags of DATA and I-DATA, in the order of their letters.
const DATA_FLAGS: &[(u8, &str)] = &[(4, "(U)"), (2, "(B)"), (1, "(E)")];
const IMMEDIATE: u8 = 8;
const BEGINNING: u8 = 2;

/// One packet, with the addresses that go before it.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "sctp";
    if span.length < HEADER_LEN {
        put!(cx, "truncated-sctp - {} bytes missing!", HEADER_LEN - span.length);
        return Ok(());
    }
    span.need(HEADER_LEN)?;
    let ports = [span.u16(0)?, span.u16(2)?];
    cx.host(ip.source);
    put!(cx, ".{} > ", ports[0]);
    cx.host(ip.destination);
    put!(cx, ".{}: sctp", ports[1]);
    for port in ports {
        cx.text(lookup(FORCES_PORTS, port).unwrap_or(""));
    }
    print_chunks(cx, span.skip(HEADER_LEN))
}

fn print_chunks(cx: &mut Context<'_>, mut span: Span<'_>) -> Printed {
    let mut separator = if cx.verbose() >= 2 { "\n\t" } else { " (" };
    let mut number = 0;
    while span.length > 0 {
        number += 1;
        if span.length < CHUNK_HEADER_LEN {
            put!(cx, "{separator}{number}) [chunk descriptor cut off at end of packet]");
            break;
        }
        span.need(CHUNK_HEADER_LEN)?;
        let length = usize::from(span.u16(2)?);
        if length < CHUNK_HEADER_LEN {
            put!(cx, "{separator}{number}) [Bad chunk length {length}, < size of chunk descriptor]");
            break;
        }
        let padding = length.next_multiple_of(4) - length;
        if span.length < padding {
            put!(cx, "{separator}{number}) [Bad chunk length {length}, > remaining data in packet]");
            break;
        }
        span.need(length)?;
        let kind = span.u8(0)?;
        put!(cx, "{separator}{number}) [");
        match lookup(CHUNKS, kind) {
            Some(name) => put!(cx, "{name}] "),
            None => put!(cx, "Unknown chunk type: {kind:#x}] "),
        }
        let value = span.skip(CHUNK_HEADER_LEN).limit(length - CHUNK_HEADER_LEN);
        if !print_chunk(cx, kind, span.u8(1)?, value)? {
            cx.invalid();
            break;
        }
        if cx.verbose() < 2 {
            separator = ", (";
        }
        span.need(length + padding)?;
        span = span.skip(length + padding);
    }
    Ok(())
}

/// The fields of one chunk. `false` if it is too short for them.
fn print_chunk(
    cx: &mut Context<'_>,
    kind: u8,
    flags: u8,
    value: Span<'_>,
) -> Result<bool, crate::bytes::Cut> {
    let needed = match kind {
        DATA => 12,
        INIT | INIT_ACK | I_DATA => 16,
        SACK => 12,
        I_FORWARD_TSN => 4,
        _ => return Ok(true),
    };
    match kind {
        DATA | I_DATA => print_data_flags(cx, kind, flags),
        _ => {}
    }
    if value.length < needed {
        put!(cx, "[chunk length {} < {needed}]", value.length);
        return Ok(false);
    }
    match kind {
        DATA => return print_data(cx, value),
        I_DATA => return print_i_data(cx, flags, value),
        SACK => print_selective_ack(cx, value)?,
        I_FORWARD_TSN => print_i_forward(cx, value)?,
        _ => print_init(cx, value)?,
    }
    Ok(true)
}

fn print_data_flags(cx: &mut Context<'_>, kind: u8, flags: u8) {
    let start = cx.out.len();
    if kind == I_DATA && flags & IMMEDIATE != 0 {
        cx.text("(I)");
    }
    for (bit, name) in DATA_FLAGS {
        cx.text(if flags & bit != 0 { name } else { "" });
    }
    if cx.out.len() > start {
        cx.text(" ");
    }
}

fn print_data(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, crate::bytes::Cut> {
    let payload_protocol = value.u32(8)?;
    put!(cx, "[TSN: {}] [SID: {}] [SSEQ {}] ", value.u32(0)?, value.u16(4)?, value.u16(6)?);
    print_payload_protocol(cx, payload_protocol);
    Ok(print_payload(cx, value.skip(12), ":"))
}

fn print_i_data(cx: &mut Context<'_>, flags: u8, value: Span<'_>) -> Result<bool, crate::bytes::Cut> {
    let last = value.u32(12)?;
    put!(cx, "[TSN: {}] [SID: {}] [MID: {}] ", value.u32(0)?, value.u16(4)?, value.u32(8)?);
    if flags & BEGINNING == 0 {
        put!(cx, "[FSN: {last}] ");
        return Ok(print_payload(cx, value.skip(16), ": "));
    }
    print_payload_protocol(cx, last);
    Ok(print_payload(cx, value.skip(16), ":"))
}

fn print_payload_protocol(cx: &mut Context<'_>, protocol: u32) {
    match lookup(PAYLOADS, protocol) {
        Some(name) => put!(cx, "[PPID {name}] "),
        None => put!(cx, "[PPID {protocol:#x}] "),
    }
}

/// `false` if there is none, which is not allowed.
fn print_payload(cx: &mut Context<'_>, payload: Span<'_>, colon: &str) -> bool {
    if payload.length == 0 {
        cx.text("[chunk length 0 == 0]");
        return false;
    }
    if cx.verbose() >= 2 {
        cx.text("[Payload");
        if !cx.options.hex.shows_hex() && !cx.options.quiet {
            cx.text(colon);
            cx.unknown(payload);
        }
        cx.text("]");
    }
    true
}

fn print_init(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    put!(cx, "[init tag: {}] [rwnd: {}] ", value.u32(0)?, value.u32(4)?);
    put!(cx, "[OS: {}] [MIS: {}] [init TSN: {}] ", value.u16(8)?, value.u16(10)?, value.u32(12)?);
    Ok(())
}

fn print_selective_ack(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let acked = value.u32(0)?;
    let (gaps, duplicates) = (value.u16(8)?, value.u16(10)?);
    put!(cx, "[cum ack {acked}] [a_rwnd {}] ", value.u32(4)?);
    put!(cx, "[#gap acks {gaps}] [#dup tsns {duplicates}] ");
    let mut rest = value.skip(12);
    for number in 1..=gaps {
        if rest.length == 0 {
            break;
        }
        let (start, end) = (u32::from(rest.u16(0)?), u32::from(rest.u16(2)?));
        let (start, end) = (acked.wrapping_add(start), acked.wrapping_add(end));
        put!(cx, "\n\t\t[gap ack block #{number}: start = {start}, end = {end}] ");
        rest = rest.skip(4);
    }
    for number in 1..=duplicates {
        if rest.length == 0 {
            break;
        }
        put!(cx, "\n\t\t[dup TSN #{number}: {}] ", rest.u32(0)?);
        rest = rest.skip(4);
    }
    Ok(())
}

fn print_i_forward(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    put!(cx, "[TSN: {}] ", value.u32(0)?);
    let mut rest = value.skip(4);
    while cx.verbose() >= 2 && rest.length >= 8 {
        put!(cx, "[SID: {}] ", rest.u16(0)?);
        cx.text(if rest.u16(2)? & 1 != 0 { "(U)" } else { "" });
        put!(cx, "[MID: {}] ", rest.u32(4)?);
        rest = rest.skip(8);
    }
    Ok(())
}
