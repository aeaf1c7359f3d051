//! SLIP (RFC 1055) as the BSDs capture it, and its compressed TCP headers (RFC 1144).
//!
//! ```text
//! | direction 1: 0 in, 1 out | compressed header 15 | IP packet, with its TCP header put back |
//! compressed: | 1 C I P S A W U | [C: connection 1] | checksum 2 | [U, W, A, S, I: change 1, or 0 and 2]
//! ```
//!
//! A change of one byte is read but not skipped, as tcpdump 4.99 does.

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::net::{ipv4, ipv6};
use crate::text::Text;

const HEADER_LEN: usize = 16;
const COMPRESSED: usize = 1;

const NEW_CONNECTION: u8 = 0x40;
const NEW_ID: u8 = 0x20;
const NEW_SEQUENCE: u8 = 0x08;
const NEW_ACK: u8 = 0x04;
const NEW_WINDOW: u8 = 0x02;
const NEW_URGENT: u8 = 0x01;
const CHANGES: u8 = 0x0f;
/// Terminal echo: sequence and acknowledgement advance by the last packet's length.
const ECHO: u8 = NEW_SEQUENCE | NEW_WINDOW | NEW_URGENT;
/// Data in one direction: the sequence advances by the last packet's length.
const ONE_WAY: u8 = NEW_SEQUENCE | NEW_ACK | NEW_WINDOW | NEW_URGENT;

/// Values that compressed headers leave out: the connection of the last packet, and the length of each connection's
/// last packet.
pub(crate) struct Lengths {
    connection: u8,
    lengths: Box<[[u32; 256]; 2]>,
}

impl Lengths {
    pub(crate) fn new() -> Lengths {
        Lengths { connection: 255, lengths: Box::new([[0; 256]; 2]) }
    }

    fn last(&self, direction: u8) -> u32 {
        self.lengths[usize::from(direction & 1)][usize::from(self.connection)]
    }

    fn set_last(&mut self, direction: u8, length: u32) {
        self.lengths[usize::from(direction & 1)][usize::from(self.connection)] = length;
    }
}

/// Prints a packet of the link type SLIP.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "slip";
    span.need(HEADER_LEN)?;
    cx.link_header_len += HEADER_LEN;
    let packet = span.skip(HEADER_LEN);
    if cx.options.link_header {
        print_header(cx, span, packet)?;
    }
    match packet.u8(0)? >> 4 {
        4 => ipv4::print(cx, packet),
        6 => ipv6::print(cx, packet),
        version => {
            put!(cx, "ip v{version}");
            Ok(())
        }
    }
}

/// Prints a packet of the link type SLIP_BSDOS.
pub(super) fn print_bsdos(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "slip_bsdos";
    span.need(HEADER_LEN)?;
    cx.link_header_len += HEADER_LEN;
    ipv4::print(cx, span.skip(HEADER_LEN))
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>, packet: Span<'_>) -> Printed {
    let direction = match span.u8(0)? {
        direction @ (0 | 1) => {
            cx.text(if direction == 0 { "I " } else { "O " });
            Some(direction)
        }
        other => {
            put!(cx, "Invalid direction {other} ");
            None
        }
    };
    let kind = span.u8(COMPRESSED)?;
    match (kind & 0xf0, direction) {
        (0x40, _) => put!(cx, "ip {}: ", span.length),
        (0x70, _) => {
            // The protocol of the IP header, in whose place the connection's number was sent.
            let connection = span.u8(COMPRESSED + 9)?;
            cx.connections.slip.connection = connection;
            put!(cx, "utcp {connection}: ");
            if let Some(direction) = direction {
                let length = data_len(packet)?;
                cx.connections.slip.set_last(direction, length);
            }
        }
        (_, None) => {}
        (0x80.., Some(direction)) => {
            print_compressed(cx, span, packet, direction)?;
            cx.text(": ");
        }
        _ => put!(cx, "slip-{kind}!: "),
    }
    Ok(())
}

/// Bytes of a packet behind its TCP header.
fn data_len(packet: Span<'_>) -> Result<u32, crate::bytes::Cut> {
    packet.need(20)?;
    let ip_len = usize::from(packet.u8(0)? & 0x0f) * 4;
    packet.need(ip_len + 20)?;
    let tcp_len = usize::from(packet.u8(ip_len + 12)? >> 4) * 4;
    Ok((packet.length as u32).wrapping_sub((ip_len + tcp_len) as u32))
}

fn print_compressed(cx: &mut Context<'_>, span: Span<'_>, packet: Span<'_>, direction: u8) -> Printed {
    let flags = span.u8(COMPRESSED)?;
    let mut at = COMPRESSED + 1;
    if flags & NEW_CONNECTION != 0 {
        let connection = span.u8(at)?;
        cx.connections.slip.connection = connection;
        put!(cx, "ctcp {connection}");
        at += 1;
    } else {
        cx.text("ctcp *");
    }
    at += 2;
    let last = cx.connections.slip.last(direction);
    match flags & CHANGES {
        ECHO => put!(cx, " *SA+{last}"),
        ONE_WAY => put!(cx, " *S+{last}"),
        changes => {
            for (bit, name) in [(NEW_URGENT, "U="), (NEW_WINDOW, "W"), (NEW_ACK, "A+"), (NEW_SEQUENCE, "S+")]
            {
                if changes & bit != 0 {
                    at = print_change(cx, span, at, name)?;
                }
            }
        }
    }
    if flags & NEW_ID != 0 {
        at = print_change(cx, span, at, "I+")?;
    }
    let length = data_len(packet)?;
    cx.connections.slip.set_last(direction, length);
    put!(cx, " {length} ({})", at - COMPRESSED);
    Ok(())
}

/// A change in one byte, or in three of which the first is 0; where the next one is read. That of the window has a
/// sign.
fn print_change(
    cx: &mut Context<'_>,
    span: Span<'_>,
    at: usize,
    name: &str,
) -> Result<usize, crate::bytes::Cut> {
    let (change, next) = match span.u8(at)? {
        0 => (span.u16(at + 1)?, at + 3),
        change => (u16::from(change), at),
    };
    match name {
        "W" => put!(cx, " W{:+}", change as i16),
        _ => put!(cx, " {name}{change}"),
    }
    Ok(next)
}
