//! EAP (RFC 3748) and EAP over LANs (IEEE 802.1X).
//!
//! ```text
//! EAPOL: version 1 | type 1 | length 2 | body
//! EAP:   code 1 | identifier 1 | length 2 | requests and responses: type 1, data
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const FRAMES: &[(u8, &str)] = &[
    (0, "EAP packet"),
    (1, "EAPOL start"),
    (2, "EAPOL logoff"),
    (3, "EAPOL key"),
    (4, "Encapsulated ASF alert"),
];

const CODES: &[(u8, &str)] = &[(1, "Request"), (2, "Response"), (3, "Success"), (4, "Failure")];

const TYPES: &[(u8, &str)] = &[
    (0, "No proposed"),
    (1, "Identity"),
    (2, "Notification"),
    (3, "Nak"),
    (4, "MD5-challenge"),
    (5, "OTP"),
    (6, "GTC"),
    (13, "TLS"),
    (18, "SIM"),
    (21, "TTLS"),
    (23, "AKA"),
    (43, "FAST"),
    (254, "Expanded type"),
    (255, "Experimental"),
];

const TLS_FLAGS: &[(u32, &str)] = &[(0x80, "Length included"), (0x40, "More fragments"), (0x20, "Start bit")];

/// An EAPOL frame: `EAP packet (0) v1, len 5`; with `-v` the EAP packet in it.
pub(crate) fn print_lan(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "eap";
    if span.need(4).is_err() {
        cx.cut();
        return Ok(());
    }
    let (version, kind, length) = (span.u8(0)?, span.u8(1)?, span.u16(2)?);
    let name = lookup(FRAMES, kind).unwrap_or("unknown");
    put!(cx, "{name} ({kind}) v{version}, len {length}");
    if kind == 0 && cx.verbose() > 0 {
        if length == 0 {
            cx.cut();
            return Ok(());
        }
        cx.text(", ");
        return print(cx, span.skip(4).with_length(usize::from(length)));
    }
    Ok(())
}

/// Messages of SIM (RFC 4186) and AKA (RFC 4187).
const SUBSCRIBER_MESSAGES: &[(u8, &str)] = &[
    (1, "Challenge"),
    (2, "Auth reject"),
    (4, "Sync failure"),
    (5, "Identity"),
    (10, "Start"),
    (11, "Challenge"),
    (12, "Notification"),
    (13, "Reauth"),
    (14, "Client error"),
];

/// An EAP packet: `Response (2), id 1, len 10`, and its type on the next line.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let (code, length) = (span.u8(0)?, span.u16(2)?);
    if usize::from(length) != span.length {
        cx.text("EAP fragment?");
        return Ok(());
    }
    put!(cx, "{} ({code}), id {}, len {length}", lookup(CODES, code).unwrap_or("unknown"), span.u8(1)?);
    if length < 4 {
        cx.text(" (too short for EAP header)");
        return Ok(());
    }
    if span.need(span.length).is_err() {
        cx.cut();
        return Ok(());
    }
    if !matches!(code, 1 | 2) {
        return Ok(());
    }
    if length < 5 {
        cx.text(" (too short for EAP request/response)");
        return Ok(());
    }
    let span = span.limit(span.length);
    let kind = span.u8(4)?;
    cx.text("\n\t\t Type ");
    print_type(cx, kind);
    print_data(cx, kind, span.skip(5))
}

/// Prints the type data of a request or response.
fn print_data(cx: &mut Context<'_>, kind: u8, data: Span<'_>) -> Printed {
    let name = match kind {
        2 => "Notification",
        3 => "Legacy NAK",
        13 | 21 => "TLS/TTLS",
        43 => "FAST",
        18 | 23 => "SIM/AKA",
        1 if data.length > 0 => {
            cx.text(", Identity: ");
            cx.visible_until_nul(data.data);
            return Ok(());
        }
        _ => return Ok(()),
    };
    if data.length == 0 {
        put!(cx, " (too short for EAP {name} request/response)");
        return Ok(());
    }
    let first = data.u8(0)?;
    match kind {
        2 => {
            cx.text(", Notification: ");
            cx.visible_until_nul(data.data);
        }
        3 => {
            for (index, &wanted) in data.data.iter().enumerate() {
                cx.text(if index == 0 { " " } else { ", " });
                print_type(cx, wanted);
            }
        }
        18 | 23 => {
            let message = lookup(SUBSCRIBER_MESSAGES, first).unwrap_or("unknown");
            put!(cx, " subtype [{message}] 0x{first:02x}");
        }
        _ => {
            match kind {
                21 => put!(cx, " TTLSv{}", first & 7),
                43 => put!(cx, " FASTv{}", first & 7),
                _ => {}
            }
            cx.text(" flags [");
            put_bits(cx, TLS_FLAGS, "none", ", ", u32::from(first));
            put!(cx, "] 0x{first:02x}");
            if first & 0x80 != 0 && data.length < 5 {
                put!(cx, " (too short for EAP {name} request/response with length)");
            } else if first & 0x80 != 0 {
                put!(cx, ", len {}", data.u32(1)?);
            }
        }
    }
    Ok(())
}

fn print_type(cx: &mut Context<'_>, kind: u8) {
    put!(cx, "{} ({kind})", lookup(TYPES, kind).unwrap_or("unknown"));
}
