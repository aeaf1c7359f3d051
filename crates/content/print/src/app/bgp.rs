//! BGP-4 (RFC 4271): `: BGP`; with `-v` each message that begins in the segment, with the parameters that open and
//! end a session.
//!
//! ```text
//! marker 16 (all ones) | length 2 | type 1 | body
//! open = version 1, AS 2, hold time 2, identifier 4, options <1>      notification = code 1, subcode 1
//! update = withdrawn <2>, attributes <2>, routes
//! ```

mod update;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: usize = 19;

const MESSAGES: &[(u8, &str)] =
    &[(1, "Open"), (2, "Update"), (3, "Notification"), (4, "Keepalive"), (5, "Route Refresh")];

const CEASE: u8 = 6;

const ERRORS: &[(u8, &str)] = &[
    (1, "Message Header Error"),
    (2, "OPEN Message Error"),
    (3, "UPDATE Message Error"),
    (4, "Hold Timer Expired"),
    (5, "Finite State Machine Error"),
    (CEASE, "Cease"),
    (7, "Capability Message Error"),
];

/// Subcodes of errors: code, subcode, name.
const DETAILS: &[((u8, u8), &str)] = &[
    ((1, 1), "Connection Not Synchronized"),
    ((1, 2), "Bad Message Length"),
    ((1, 3), "Bad Message Type"),
    ((2, 1), "Unsupported Version Number"),
    ((2, 2), "Bad Peer AS"),
    ((2, 3), "Bad BGP Identifier"),
    ((2, 4), "Unsupported Optional Parameter"),
    ((2, 5), "Authentication Failure"),
    ((2, 6), "Unacceptable Hold Time"),
    ((2, 7), "Capability Message Error"),
    ((3, 1), "Malformed Attribute List"),
    ((3, 2), "Unrecognized Well-known Attribute"),
    ((3, 3), "Missing Well-known Attribute"),
    ((3, 4), "Attribute Flags Error"),
    ((3, 5), "Attribute Length Error"),
    ((3, 6), "Invalid ORIGIN Attribute"),
    ((3, 7), "AS Routing Loop"),
    ((3, 8), "Invalid NEXT_HOP Attribute"),
    ((3, 9), "Optional Attribute Error"),
    ((3, 10), "Invalid Network Field"),
    ((3, 11), "Malformed AS_PATH"),
    ((6, 1), "Maximum Number of Prefixes Reached"),
    ((6, 2), "Administrative Shutdown"),
    ((6, 3), "Peer Unconfigured"),
    ((6, 4), "Administrative Reset"),
    ((6, 5), "Connection Rejected"),
    ((6, 6), "Other Configuration Change"),
    ((6, 7), "Connection Collision Resolution"),
];

/// Subcodes of errors in the state of a session, and in a capability.
const STATE_DETAILS: [&str; 4] =
    ["Unspecified Error", "In OpenSent State", "In OpenConfirm State", "In Established State"];
const CAPABILITY_DETAILS: [&str; 5] = [
    "Unknown",
    "Invalid Action Value",
    "Invalid Capability Length",
    "Malformed Capability Value",
    "Unsupported Capability Code",
];

const CAPABILITIES: &[(u8, &str)] = &[
    (1, "Multiprotocol Extensions"),
    (2, "Route Refresh"),
    (3, "Cooperative Route Filtering"),
    (4, "Multiple Routes to a Destination"),
    (5, "Extended Next Hop Encoding"),
    (8, "Multiple Labels"),
    (64, "Graceful Restart"),
    (65, "32-Bit AS Number"),
    (67, "Dynamic Capability"),
    (68, "Multisession BGP"),
    (69, "Multiple Paths"),
    (70, "Enhanced Route Refresh"),
    (71, "Long-lived Graceful Restart"),
    (128, "Route Refresh (Cisco)"),
];

/// Address families (IANA, "Address Family Numbers").
const FAMILIES: &[(u16, &str)] = &[
    (0, "Reserved"),
    (1, "IPv4"),
    (2, "IPv6"),
    (3, "NSAP"),
    (4, "HDLC"),
    (5, "BBN 1822"),
    (6, "802"),
    (7, "E.163"),
    (8, "E.164"),
    (9, "F.69"),
    (10, "X.121"),
    (11, "Novell IPX"),
    (12, "Appletalk"),
    (13, "Decnet IV"),
    (14, "Banyan Vines"),
    (15, "E.164 with NSAP subaddress"),
    (25, "VPLS"),
    (196, "Layer-2 VPN"),
];

const SUBSEQUENT_FAMILIES: &[(u8, &str)] = &[
    (0, "Reserved"),
    (1, "Unicast"),
    (2, "Multicast"),
    (3, "Unicast+Multicast"),
    (4, "labeled Unicast"),
    (5, "Multicast VPN"),
    (64, "Tunnel"),
    (65, "VPLS"),
    (66, "MDT"),
    (70, "EVPN"),
    (128, "labeled VPN Unicast"),
    (129, "labeled VPN Multicast"),
    (130, "labeled VPN Unicast+Multicast"),
    (132, "Route Target Routing Information"),
];

/// The messages of a segment.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "bgp";
    cx.text(": BGP");
    if cx.verbose() > 0 { print_messages(cx, span) } else { Ok(()) }
}

/// All captured bytes are looked through: a segment may begin within a message.
fn print_messages(cx: &mut Context<'_>, mut span: Span<'_>) -> Printed {
    let mut skipped = false;
    while span.captured() > 0 {
        if span.u8(0)? != 0xff {
            span = span.skip(1);
            skipped = true;
            continue;
        }
        let Ok(marker) = span.array::<16>(0) else { break };
        if marker != [0xff; 16] {
            span = span.skip(1);
            skipped = true;
            continue;
        }
        if span.need(HEADER_LEN).is_err() {
            cx.cut();
            break;
        }
        if skipped {
            cx.cut();
        }
        skipped = false;
        let (length, kind) = (usize::from(span.u16(16)?), span.u8(18)?);
        if length < HEADER_LEN {
            put!(cx, "\nmessage length {length} < {HEADER_LEN}");
            cx.invalid();
            break;
        }
        if span.captured() < length {
            put!(cx, "\n[|BGP {}]", lookup(MESSAGES, kind).unwrap_or("Unknown Message Type"));
            break;
        }
        print_message(cx, span.limit(length), kind)?;
        span = span.skip(length);
    }
    Ok(())
}

/// A message, all of which was captured.
fn print_message(cx: &mut Context<'_>, message: Span<'_>, kind: u8) -> Printed {
    let name = lookup(MESSAGES, kind).unwrap_or("Unknown");
    put!(cx, "\n\t{name} Message ({kind}), length: {}", message.length);
    let body = message.skip(HEADER_LEN);
    match kind {
        1 => {
            if body.length < 10 {
                cx.cut();
                return Ok(());
            }
            print_open(cx, body)
        }
        2 => update::print(cx, body),
        3 => print_notification(cx, body),
        4 => Ok(()),
        5 => print_refresh(cx, message),
        _ => {
            put!(cx, "\n\t  no Message {kind} decoder");
            cx.hex_lines("\n\t  ", message);
            Ok(())
        }
    }
}

fn print_open(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    put!(cx, "\n\t  Version {}, my AS {}, Holdtime {}s", body.u8(0)?, body.u16(1)?, body.u16(3)?);
    cx.ipv4_after(", ID ", body, 5)?;
    let length = usize::from(body.u8(9)?);
    put!(cx, "\n\t  Optional parameters, length: {length}");
    let mut rest = body.skip(10);
    let mut left = length;
    while left > 0 {
        if rest.length < 2 {
            cx.cut();
            return Ok(());
        }
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        if 2 + length > left {
            put!(cx, "\n\t     Option {kind}, length: {length}, goes past the end of the options");
            break;
        }
        let name = match kind {
            1 => "Authentication Information",
            2 => "Capabilities Advertisement",
            _ => "Unknown",
        };
        put!(cx, "\n\t    Option {name} ({kind}), length: {length}");
        match kind {
            2 => print_capabilities(cx, rest.skip(2), length)?,
            _ => put!(cx, "\n\t      no decoder for option {kind}"),
        }
        rest = rest.skip(2 + length);
        left -= 2 + length;
    }
    Ok(())
}

/// `AFI IPv4 (1), SAFI Unicast (1)`.
fn put_families(cx: &mut Context<'_>, family: u16, subsequent: u8) {
    put!(cx, "AFI {} ({family})", lookup(FAMILIES, family).unwrap_or("Unknown"));
    put!(cx, ", SAFI {} ({subsequent})", lookup(SUBSEQUENT_FAMILIES, subsequent).unwrap_or("Unknown"));
}

/// Capabilities (RFC 5492) within `length` bytes: code 1, length 1, value.
fn print_capabilities(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Printed {
    let mut at = 0;
    while at < length {
        if span.bytes(at, 2).is_err() {
            cx.cut();
            return Ok(());
        }
        let (code, length) = (span.u8(at)?, usize::from(span.u8(at + 1)?));
        put!(cx, "\n\t      {} ({code}), length: {length}", lookup(CAPABILITIES, code).unwrap_or("Unknown"));
        let Ok(value) = span.bytes(at + 2, length) else {
            cx.cut();
            return Ok(());
        };
        if !print_capability(cx, code, Span::whole(value))? {
            return Ok(());
        }
        if cx.verbose() > 1 && length > 0 {
            cx.hex_lines("\n\t\t", Span::whole(value));
        }
        at += 2 + length;
    }
    Ok(())
}

/// `false` if it is too short, which ends the capabilities.
fn print_capability(cx: &mut Context<'_>, code: u8, value: Span<'_>) -> Result<bool, Cut> {
    let least = match code {
        1 | 65 => 4,
        64 => 2,
        _ => 0,
    };
    if value.length < least {
        put!(cx, " (too short, < {least})");
        return Ok(false);
    }
    match code {
        1 => {
            cx.text("\n\t\t");
            put_families(cx, value.u16(0)?, value.u8(3)?);
        }
        8 => {
            for entry in value.data.chunks_exact(4) {
                cx.text("\n\t\t");
                put_families(cx, u16::from_be_bytes([entry[0], entry[1]]), entry[2]);
                put!(cx, ", Count: {}", entry[3]);
            }
        }
        64 => {
            let first = value.u16(0)?;
            let flag = if first & 0x8000 != 0 { "R" } else { "none" };
            put!(cx, "\n\t\tRestart Flags: [{flag}], Restart Time {}s", first & 0x0fff);
            for entry in value.skip(2).data.chunks_exact(4) {
                cx.text("\n\t\t  ");
                put_families(cx, u16::from_be_bytes([entry[0], entry[1]]), entry[2]);
                put!(cx, ", Forwarding state preserved: {}", if entry[3] & 0x80 != 0 { "yes" } else { "no" });
            }
        }
        2 | 71 | 128 => {}
        65 => put!(cx, "\n\t\t 4 Byte AS {}", value.u32(0)?),
        69 if value.length == 0 => cx.text(" (bogus)"),
        69 => {
            for entry in value.data.chunks(4) {
                let &[a, b, subsequent, direction] = entry else {
                    cx.invalid();
                    break;
                };
                cx.text("\n\t\t");
                put_families(cx, u16::from_be_bytes([a, b]), subsequent);
                match lookup(&[(1, "Receive"), (2, "Send"), (3, "Both")], direction) {
                    Some(name) => put!(cx, ", Send/Receive: {name}"),
                    None => put!(cx, ", Send/Receive: Bogus (0x{direction:02x})"),
                }
            }
        }
        _ => {
            put!(cx, "\n\t\tno decoder for Capability {code}");
            if cx.verbose() == 1 {
                cx.hex_lines("\n\t\t", value);
            }
        }
    }
    Ok(true)
}

fn print_refresh(cx: &mut Context<'_>, message: Span<'_>) -> Printed {
    if message.length < HEADER_LEN + 4 {
        if message.captured() < HEADER_LEN + 4 {
            cx.cut();
        }
        return Ok(());
    }
    cx.text("\n\t  ");
    put_families(cx, message.u16(HEADER_LEN)?, message.u8(HEADER_LEN + 3)?);
    if cx.verbose() > 1 {
        cx.hex_lines("\n\t  ", message);
    }
    Ok(())
}

fn print_notification(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    if body.length < 2 {
        cx.cut();
        return Ok(());
    }
    let (code, detail) = (body.u8(0)?, body.u8(1)?);
    match lookup(ERRORS, code) {
        Some(name) => put!(cx, ", {name} ({code})"),
        None => put!(cx, ", Unknown Error ({code})"),
    }
    let by_place = |names: &[&'static str]| names.get(usize::from(detail)).copied().unwrap_or("Unknown");
    match code {
        1 | 2 | 3 | CEASE => {
            put!(cx, ", subcode {} ({detail})", lookup(DETAILS, (code, detail)).unwrap_or("Unknown"));
        }
        5 => put!(cx, " subcode {} ({detail})", by_place(&STATE_DETAILS)),
        7 => put!(cx, " subcode {} ({detail})", by_place(&CAPABILITY_DETAILS)),
        _ => {}
    }
    let data = body.skip(2);
    match (code, detail) {
        (CEASE, 1) if data.length >= 7 => {
            cx.text(", ");
            put_families(cx, data.u16(0)?, data.u8(2)?);
            put!(cx, ", Max Prefixes: {}", data.u32(3)?);
        }
        (CEASE, 2 | 4) if data.length >= 1 => print_communication(cx, data)?,
        _ => {}
    }
    Ok(())
}

/// Shutdown communication of an operator (RFC 9003): length 1, text; any other bytes are shown.
fn print_communication(cx: &mut Context<'_>, data: Span<'_>) -> Printed {
    let length = usize::from(data.u8(0)?);
    let rest = match length {
        _ if length > data.length - 1 => {
            cx.text(", invalid Shutdown Communication length");
            data
        }
        0 => {
            cx.text(", empty Shutdown Communication");
            data.skip(1)
        }
        _ => {
            put!(cx, ", Shutdown Communication (length: {length}): \"");
            cx.visible_all(data.bytes(1, length)?);
            cx.text("\"");
            data.skip(1 + length)
        }
    };
    if rest.length > 0 {
        put!(cx, ", Data: (length: {})", rest.length);
        cx.hex_lines("\n\t\t", rest);
    }
    Ok(())
}
