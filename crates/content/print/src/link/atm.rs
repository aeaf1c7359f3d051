//! ATM: LLC frames (RFC 2684), Sun's captures, classical IP (RFC 2225), LAN emulation, signalling and OAM cells.
//!
//! ```text
//! RFC 2684:  | LLC, SNAP | payload |        or, Cisco's: | 0x03 | network layer protocol 1 | payload |
//! Sun:       | 0x80 sent, traffic 4 bits: 1 LAN emulation, 2 LLC | path 1 | channel 2 | payload |
//! OAM cell:  | 4 bits, path 8, channel 16, payload type 3, priority 1 | [header check 1] | cell 4 bits, function 4 | 45 | CRC-10
//! ```

use super::ethernet;
use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::llc::iso;
use crate::net::ipv4;
use crate::text::Text;

/// LLC headers that RFC 2684 uses: SNAP, ISO, IP. Other bytes are those of an IEEE 802.6 header before it.
const LLC_HEADERS: [u32; 3] = [0xaa_aa03, 0xfe_fe03, 0x06_0603];
const MAN_HEADER_LEN: usize = 20;
const SNAP_ETHERTYPE: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

const SUN_LEN: usize = 4;
const LAN_EMULATION: u8 = 1;

/// Channels of path 0 with a meaning (ATM Forum, UNI 3.1).
mod channel {
    pub(super) const META_SIGNALLING: u16 = 1;
    pub(super) const BROADCAST_SIGNALLING: u16 = 2;
    pub(super) const OAM_SEGMENT: u16 = 3;
    pub(super) const OAM_END: u16 = 4;
    pub(super) const SIGNALLING: u16 = 5;
    pub(super) const MANAGEMENT: u16 = 16;
}

const Q2931: u8 = 9;

const MESSAGES: &[(u8, &str)] = &[
    (0x02, "Call_proceeding"),
    (0x05, "Setup"),
    (0x07, "Connect"),
    (0x0f, "Connect_ack"),
    (0x46, "Restart"),
    (0x4d, "Release"),
    (0x4e, "Restart_ack"),
    (0x5a, "Release_complete"),
    (0x75, "Status_enquiry"),
    (0x7d, "Status"),
    (0x80, "Add_party"),
    (0x81, "Add_party_ack"),
    (0x82, "Add_party_reject"),
    (0x83, "Drop_party"),
    (0x84, "Drop_party_ack"),
];

const LAN_EMULATION_OPERATIONS: &[(u16, &str)] = &[
    (0x0001, "configure request"),
    (0x0101, "configure response"),
    (0x0002, "join request"),
    (0x0102, "join response"),
    (0x0003, "ready query"),
    (0x0103, "ready indication"),
    (0x0004, "register request"),
    (0x0104, "register response"),
    (0x0005, "unregister request"),
    (0x0105, "unregister response"),
    (0x0006, "ARP request"),
    (0x0106, "ARP response"),
    (0x0007, "flush request"),
    (0x0107, "flush response"),
    (0x0008, "NARP request"),
    (0x0009, "topology request"),
];

const PAYLOAD_TYPES: [&str; 8] = [
    "user data, uncongested, SDU 0",
    "user data, uncongested, SDU 1",
    "user data, congested, SDU 0",
    "user data, congested, SDU 1",
    "VCC OAM F5 flow segment",
    "VCC OAM F5 flow end-to-end",
    "Traffic Control and resource Mgmt",
    "Unknown",
];

const CELLS: &[(u8, &str)] = &[
    (1, "Fault Management"),
    (2, "Performance Management"),
    (8, "activate/deactivate"),
    (15, "System Management"),
];
const FAULTS: &[(u8, &str)] = &[(0, "AIS"), (1, "RDI"), (4, "Continuity Check"), (8, "Loopback")];
const PERFORMANCES: &[(u8, &str)] =
    &[(0, "Forward Monitoring"), (1, "Backward Reporting"), (2, "Monitoring and Reporting")];
const ACTIVATIONS: &[(u8, &str)] = &[(0, "Performance Monitoring"), (1, "Continuity Check")];

/// Bytes of a cell behind its header.
const CELL_LEN: usize = 48;

/// Prints a packet of the link type ATM_RFC1483.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "atm";
    if span.u8(0)? == 3 {
        if cx.options.link_header {
            cx.text("CNLPID ");
        }
        cx.link_header_len += 1;
        return iso::print(cx, span.skip(1));
    }
    let mut rest = span;
    if !LLC_HEADERS.contains(&span.u24(0)?) {
        if cx.options.link_header {
            put!(cx, "{:08x}", span.u32(0)?);
            let [second, third, fourth] = [span.u32(4), span.u32(8), span.u32(12)];
            // A header that was not captured whole is left out of the line.
            let (second, third, fourth) = match (second, third, fourth) {
                (Ok(second), Ok(third), Ok(fourth)) => (second, third, fourth),
                _ => {
                    cx.out.truncate(cx.out.len() - 8);
                    return Err(Cut);
                }
            };
            put!(cx, "{second:08x} {third:08x}{fourth:08x} ");
        }
        span.need(MAN_HEADER_LEN)?;
        rest = span.skip(MAN_HEADER_LEN);
        cx.link_header_len += MAN_HEADER_LEN;
    }
    cx.link_header_len += llc(cx, rest)?;
    Ok(())
}

/// An LLC frame; how many bytes its header has.
pub(super) fn llc(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    let llc = app::llc(cx, span, None, None)?;
    if !llc.known {
        cx.unknown(span.with_length(span.captured()));
    }
    Ok(llc.header_len)
}

/// Prints a packet of the link type ATM_CLIP: an LLC header, or IP at once.
pub(super) fn print_classical_ip(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "cip";
    if cx.options.link_header {
        put!(cx, "{}: ", span.length);
    }
    if span.array(0)? != SNAP_ETHERTYPE {
        return ipv4::print(cx, span);
    }
    cx.link_header_len += llc(cx, span)?;
    Ok(())
}

/// Prints a packet of the link type SUNATM.
pub(super) fn print_sun(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "sunatm";
    let first = span.u8(0)?;
    if cx.options.link_header {
        cx.text(if first & 0x80 != 0 { "Tx: " } else { "Rx: " });
    }
    let (path, channel) = (span.u8(1)?, span.u16(2)?);
    cx.link_header_len += SUN_LEN;
    let rest = span.skip(SUN_LEN);
    cx.protocol = "atm";
    if cx.options.link_header {
        put!(cx, "VPI:{path} VCI:{channel} ");
    }
    match (path, channel) {
        (0, channel::SIGNALLING) => signalling(cx, rest),
        (0, channel::BROADCAST_SIGNALLING) => {
            cx.text("broadcast sig: ");
            Ok(())
        }
        (0, channel::META_SIGNALLING) => {
            cx.text("meta: ");
            Ok(())
        }
        (0, channel::OAM_SEGMENT | channel::OAM_END) => oam(cx, rest, true),
        (0, channel::MANAGEMENT) => {
            cx.text("ilmi: ");
            app::snmp(cx, rest)
        }
        _ if first & 0x0f == LAN_EMULATION => lan_emulation(cx, rest),
        _ => llc(cx, rest).map(drop),
    }
}

fn signalling(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let protocol = span.u8(0)?;
    if protocol != Q2931 {
        put!(cx, "SSCOP, proto {protocol} ");
        return Ok(());
    }
    cx.text("Q.2931");
    let message = span.u8(5)?;
    match lookup(MESSAGES, message) {
        Some(name) => put!(cx, ":{name} "),
        None => put!(cx, ":msgtype#{message} "),
    }
    put!(cx, "CALL_REF:0x{:06x}", span.u24(2)?);
    Ok(())
}

/// LAN emulation: an Ethernet frame behind two bytes, or a control message.
fn lan_emulation(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "lane";
    let client = span.u16(0)?;
    if client == 0xff00 {
        let (operation, protocol, version) = (span.u16(4), span.u8(2)?, span.u8(3)?);
        let operation = operation?;
        put!(cx, "lec: proto {protocol:x} vers {version:x} ");
        match lookup(LAN_EMULATION_OPERATIONS, operation) {
            Some(name) => cx.text(name),
            None => put!(cx, "opcode-#{operation}"),
        }
        return Ok(());
    }
    let rest = span.skip(2);
    if rest.captured() >= 14 {
        put!(cx, "lecid:{client:x} ");
    }
    ethernet::frame(cx, rest, "").map(drop)
}

/// A cell of operation and maintenance; `checked` if a byte checks its header.
pub(super) fn oam(cx: &mut Context<'_>, span: Span<'_>, checked: bool) -> Printed {
    cx.protocol = "oam";
    let check_len = usize::from(checked);
    let header = span.u32(check_len)?;
    let body = span.skip(4 + check_len);
    let (cell, function) = (body.u8(0)? >> 4, body.u8(0)? & 0x0f);
    let channel = (header >> 4) as u16;
    cx.text(match channel {
        channel::OAM_SEGMENT => "OAM F4 (segment)",
        channel::OAM_END => "OAM F4 (end)",
        _ => "OAM F5",
    });
    let payload = PAYLOAD_TYPES[(header >> 1 & 7) as usize];
    let path = header >> 20 & 0xff;
    put!(
        cx,
        ", vpi {path}, vci {channel}, payload [ {payload} ], clp {}, length {}",
        header & 1,
        span.length
    );
    if cx.verbose() == 0 {
        return Ok(());
    }
    put!(cx, "\n\tcell-type {} ({cell})", lookup(CELLS, cell).unwrap_or("unknown"));
    let functions = match cell {
        1 => Some(FAULTS),
        2 => Some(PERFORMANCES),
        8 => Some(ACTIVATIONS),
        _ => None,
    };
    let name = functions.map_or("unknown", |names| lookup(names, function).unwrap_or("none"));
    put!(cx, ", func-type {name} ({function})");
    match (cell, function) {
        (1, 8) => loopback(cx, body)?,
        (1, 0 | 1) => {
            body.need(46)?;
            put!(cx, "\n\tFailure-type 0x{:02x}", body.u8(1)?);
            put_location(cx, "\n\tLocation-ID ", body, 2, 16)?;
        }
        _ => {}
    }
    let sum = body.u16(46)? & 0x3ff;
    let correct = if crc10(body.bytes(0, CELL_LEN)?) == 0 { "" } else { "in" };
    put!(cx, "\n\tcksum 0x{sum:03x} ({correct}correct)");
    Ok(())
}

fn loopback(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    body.need(46)?;
    let indicator = if body.u8(1)? & 1 != 0 { "Request" } else { "Reply" };
    put!(cx, "\n\tLoopback-Indicator {indicator}, Correlation-Tag 0x{:08x}", body.u32(2)?);
    put_location(cx, "\n\tLocation-ID ", body, 6, 12)?;
    put_location(cx, "\n\tSource-ID   ", body, 18, 12)
}

/// Pairs of bytes that begin at each odd one: as tcpdump shows them, so the last reaches past the field.
fn put_location(cx: &mut Context<'_>, name: &str, span: Span<'_>, at: usize, len: usize) -> Printed {
    cx.text(name);
    for offset in (1..len).step_by(2) {
        put!(cx, "{:04x} ", span.u16(at + offset)?);
    }
    Ok(())
}

/// The CRC of ITU-T I.610, of x^10 + x^9 + x^5 + x^4 + x + 1; 0 over a cell with its own.
fn crc10(bytes: &[u8]) -> u16 {
    let mut remainder = 0_u16;
    for &byte in bytes {
        let mut top = (remainder >> 2 & 0xff) << 2;
        for _ in 0..8 {
            top <<= 1;
            if top & 0x400 != 0 {
                top ^= 0x633;
            }
        }
        remainder = (remainder << 8 & 0x3ff) ^ (top & 0x3ff) ^ u16::from(byte);
    }
    remainder
}
