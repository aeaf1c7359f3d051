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
        cx.text(", ");
        return print(cx, span.skip(4));
    }
    Ok(())
}

/// An EAP packet: `Response (2), id 1, len 10`, and its type on the next line.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let (code, identifier, length) = (span.u8(0)?, span.u8(1)?, span.u16(2)?);
    put!(cx, "{} ({code}), id {identifier}, len {length}", lookup(CODES, code).unwrap_or("unknown"));
    if usize::from(length) > span.length {
        cx.text(" (goes past end of packet)");
        return Ok(());
    }
    if !matches!(code, 1 | 2) || length < 5 {
        return Ok(());
    }
    let span = span.limit(usize::from(length));
    let kind = span.u8(4)?;
    cx.text("\n\t\t Type ");
    print_type(cx, kind);
    let data = span.skip(5);
    match kind {
        1 | 2 if data.length > 0 => {
            cx.text(if kind == 1 { ", Identity: " } else { ", Notification: " });
            cx.visible_all(data.bytes(0, data.length)?);
        }
        3 => {
            for (index, &wanted) in data.bytes(0, data.length)?.iter().enumerate() {
                cx.text(if index == 0 { " " } else { ", " });
                print_type(cx, wanted);
            }
        }
        13 | 21 | 43 => {
            let flags = data.u8(0)?;
            match kind {
                21 => put!(cx, " TTLSv{}", flags & 7),
                43 => put!(cx, " FASTv{}", flags & 7),
                _ => {}
            }
            cx.text(" flags [");
            put_bits(cx, TLS_FLAGS, "none", ", ", u32::from(flags));
            put!(cx, "] 0x{flags:02x}");
            if flags & 0x80 != 0 {
                put!(cx, ", len {}", data.u32(1)?);
            }
        }
        _ => {}
    }
    Ok(())
}

fn print_type(cx: &mut Context<'_>, kind: u8) {
    put!(cx, "{} ({kind})", lookup(TYPES, kind).unwrap_or("unknown"));
}
