//! BOOTP (RFC 951) and DHCP (RFC 2131).
//!
//! ```text
//! op 1 | hardware type 1 | hardware length 1 | hops 1 | transaction 4 | seconds 2 | flags 2
//! client 4 | your 4 | server 4 | gateway 4 | hardware address 16 | server name 64 | file 128
//! magic 4 (99.130.83.99) | options: (code 1 [length 1, value])*, 0 pads, 255 ends
//! ```
//!
//! Text: `BOOTP/DHCP, Request from 00:0b:82:01:fc:42, length 272`; with `-v` the set fields, one a line.

mod options;
pub(crate) mod tables;

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const ETHERNET: u8 = 1;
const MAC_LEN: u8 = 6;

/// Offset of the server's name; other fields follow.
const SERVER_NAME: usize = 44;
const FILE: usize = 108;
pub(crate) const VENDOR: usize = 236;

/// The magic cookie before DHCP's options (RFC 2132, 2).
pub(crate) const MAGIC: [u8; 4] = [99, 130, 83, 99];

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "bootp";
    let operation = span.u8(0)?;
    cx.text("BOOTP/DHCP, ");
    match operation {
        1 => cx.text("Request"),
        2 => cx.text("Reply"),
        _ => put!(cx, "unknown (0x{operation:02x})"),
    }
    let hardware = (span.u8(1)?, span.u8(2)?);
    if hardware == (ETHERNET, MAC_LEN) && operation == 1 {
        let mac = span.bytes(28, 6)?;
        cx.text(" from ");
        cx.mac(mac);
    }
    put!(cx, ", length {}", span.length);
    if cx.verbose() == 0 {
        return Ok(());
    }
    print_numbers(cx, span, hardware)?;
    print_addresses(cx, span, hardware)?;
    for (title, start, len) in [("sname", SERVER_NAME, 64), ("file", FILE, 128)] {
        if !print_string(cx, span, title, start, len)? {
            cx.invalid();
            return Ok(());
        }
    }
    print_vendor(cx, span)
}

fn print_numbers(cx: &mut Context<'_>, span: Span<'_>, hardware: (u8, u8)) -> Printed {
    span.need(10)?;
    if hardware.0 != ETHERNET {
        put!(cx, ", htype {}", hardware.0);
    }
    if hardware != (ETHERNET, MAC_LEN) {
        put!(cx, ", hlen {}", hardware.1);
    }
    let (hops, transaction, seconds) = (span.u8(3)?, span.u32(4)?, span.u16(8)?);
    if hops != 0 {
        put!(cx, ", hops {hops}");
    }
    if transaction != 0 {
        put!(cx, ", xid {transaction:#x}");
    }
    if seconds != 0 {
        put!(cx, ", secs {seconds}");
    }
    let flags = span.u16(10)?;
    cx.text(if flags & 0x8000 != 0 { ", Flags [Broadcast]" } else { ", Flags [none]" });
    if cx.verbose() > 1 {
        put!(cx, " (0x{flags:04x})");
    }
    Ok(())
}

fn print_addresses(cx: &mut Context<'_>, span: Span<'_>, hardware: (u8, u8)) -> Printed {
    for (title, at) in [("Client-IP", 12), ("Your-IP", 16), ("Server-IP", 20), ("Gateway-IP", 24)] {
        let address = span.array::<4>(at)?;
        if address != [0; 4] {
            put!(cx, "\n\t  {title} ");
            cx.host(address.into());
        }
    }
    if hardware == (ETHERNET, MAC_LEN) {
        let mac = span.bytes(28, 6)?;
        cx.text("\n\t  Client-Ethernet-Address ");
        cx.mac(mac);
    }
    Ok(())
}

/// A string in a field of `len` bytes. `false` if its end is missing.
fn print_string(
    cx: &mut Context<'_>,
    span: Span<'_>,
    title: &str,
    start: usize,
    len: usize,
) -> Result<bool, crate::bytes::Cut> {
    if span.u8(start)? == 0 {
        return Ok(true);
    }
    put!(cx, "\n\t  {title} \"");
    let rest = span.skip(start).data;
    let field = &rest[..len.min(rest.len())];
    let ended = cx.visible_until_nul(field);
    cx.text("\"");
    if !ended {
        span.need(start + len)?;
    }
    Ok(ended)
}

fn print_vendor(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let magic = span.array::<4>(VENDOR)?;
    match magic {
        MAGIC => options::print(cx, span.skip(VENDOR)),
        [b'C', b'M', b'U', 0] => print_cmu(cx, span.skip(VENDOR)),
        [0, 0, 0, 0] => Ok(()),
        _ => {
            put!(cx, "\n\t  Vendor-#{:#x}", u32::from_be_bytes(magic));
            Ok(())
        }
    }
}

/// The extensions of Carnegie Mellon's clients, older than DHCP.
fn print_cmu(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.text(" vend-cmu");
    span.need(8)?;
    let flags = span.u8(4)?;
    if flags & !1 != 0 {
        put!(cx, " F:{flags:#x}");
    }
    let mask = if flags & 1 != 0 { "SM" } else { "SM*" };
    for (name, at) in [
        ("DG", 12),
        (mask, 8),
        ("NS1", 16),
        ("NS2", 20),
        ("IEN1", 24),
        ("IEN2", 28),
        ("TS1", 32),
        ("TS2", 36),
    ] {
        let address = span.array::<4>(at)?;
        if address != [0; 4] {
            put!(cx, " {name}:");
            cx.host(address.into());
        }
    }
    Ok(())
}
