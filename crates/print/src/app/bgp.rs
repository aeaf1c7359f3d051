//! BGP-4 (RFC 4271): `: BGP`; with `-v` each message that begins in the segment, with what opens and ends a session.
//!
//! ```text
//! marker 16 (all ones) | length 2 | type 1 | body
//! open = version 1, AS 2, hold time 2, identifier 4, options <1>      notification = code 1, subcode 1
//! update = withdrawn <2>, attributes <2>, routes
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: usize = 19;

const MESSAGES: &[(u8, &str)] =
    &[(1, "Open"), (2, "Update"), (3, "Notification"), (4, "Keepalive"), (5, "Route Refresh")];

const ERRORS: &[(u8, &str)] = &[
    (1, "Message Header Error"),
    (2, "OPEN Message Error"),
    (3, "UPDATE Message Error"),
    (4, "Hold timer expired"),
    (5, "Finite State Machine Error"),
    (6, "Cease"),
];

/// What is wrong in detail: code, subcode, name.
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

/// The messages of a segment.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "bgp";
    cx.text(": BGP");
    if cx.verbose() > 0 && print_messages(cx, span).is_err() {
        cx.cut();
    }
    Ok(())
}

fn print_messages(cx: &mut Context<'_>, mut span: Span<'_>) -> Printed {
    while span.captured() > 0 && span.length > 0 {
        // A segment may begin within a message: the next marker is looked for.
        if span.length < HEADER_LEN || span.u8(0)? != 0xff {
            span = span.skip(1);
            continue;
        }
        if span.bytes(0, 16)? != [0xff; 16] {
            span = span.skip(1);
            continue;
        }
        let length = usize::from(span.u16(16)?);
        print_message(cx, span, length)?;
        if length < HEADER_LEN {
            break;
        }
        span = span.skip(length);
    }
    Ok(())
}

fn print_message(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Printed {
    let kind = span.u8(18)?;
    put!(cx, "\n\t{} Message ({kind}), length: {length}", lookup(MESSAGES, kind).unwrap_or("Unknown"));
    let body = span.skip(HEADER_LEN);
    match kind {
        1 => print_open(cx, body),
        2 => print_update(cx, body, length),
        3 => print_notification(cx, body),
        _ => Ok(()),
    }
}

fn print_open(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    body.need(10)?;
    put!(cx, "\n\t  Version {}, my AS {}, Holdtime {}s, ID ", body.u8(0)?, body.u16(1)?, body.u16(3)?);
    cx.host(body.array::<4>(5)?.into());
    put!(cx, "\n\t  Optional parameters, length: {}", body.u8(9)?);
    Ok(())
}

/// The sizes of its three parts; none at all marks the end of the first exchange (RFC 4724).
fn print_update(cx: &mut Context<'_>, body: Span<'_>, length: usize) -> Printed {
    let withdrawn = usize::from(body.u16(0)?);
    let attributes = usize::from(body.u16(2 + withdrawn)?);
    let routes = length.checked_sub(HEADER_LEN + 4 + withdrawn + attributes).ok_or(Cut)?;
    match (withdrawn, attributes, routes) {
        (0, 0, 0) => cx.text("\n\t  End-of-Rib Marker (empty NLRI)"),
        _ => put!(
            cx,
            "\n\t  Withdrawn {withdrawn} bytes, attributes {attributes} bytes, routes {routes} bytes"
        ),
    }
    Ok(())
}

fn print_notification(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    let (code, detail) = (body.u8(0)?, body.u8(1)?);
    match lookup(ERRORS, code) {
        Some(name) => put!(cx, ", {name} ({code})"),
        None => put!(cx, ", Unknown Error ({code})"),
    }
    let name = lookup(DETAILS, (code, detail)).unwrap_or("Unknown");
    put!(cx, ", subcode {name} ({detail})");
    Ok(())
}
