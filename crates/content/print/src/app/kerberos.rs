//! Kerberos as tcpdump prints it: for version 5 (RFC 4120) only the version, for version 4 the fields of its common
//! messages.
//!
//! ```text
//! version 4: version byte 4, type (7 bits) and byte order (1 bit), name NUL, instance NUL, realm NUL, ...
//! version 5: ASN.1; the first byte is 0x6a (AS-REQ) or 0x6b (AS-REP): application tags 10 and 11
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const TYPES: &[(u8, &str)] = &[
    (1 << 1, "KDC_REQUEST"),
    (2 << 1, "KDC_REPLY"),
    (3 << 1, "APPL_REQUEST"),
    (4 << 1, "APPL_REQUEST_MUTUAL"),
    (5 << 1, "ERR_REPLY"),
    (6 << 1, "PRIVATE"),
    (7 << 1, "SAFE"),
    (8 << 1, "APPL_ERR"),
    (63 << 1, "DIE"),
];

const ERRORS: [&str; 11] = [
    "OK",
    "NAME_EXP",
    "SERVICE_EXP",
    "AUTH_EXP",
    "PKT_VER",
    "NAME_MAST_KEY_VER",
    "SERV_MAST_KEY_VER",
    "BYTE_ORDER",
    "PRINCIPAL_UNKNOWN",
    "PRINCIPAL_NOT_UNIQUE",
    "NULL_KEY",
];

/// Prints one message; version 5 as ` v5` only.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "krb";
    let Ok(version) = span.u8(0) else {
        cx.cut();
        return Ok(());
    };
    match version {
        1..=3 => put!(cx, " v{version}"),
        4 => {
            cx.text(" v4");
            return print_4(cx, span);
        }
        // Tags of AS-REQ and AS-REP: the version number is further inside.
        106 | 107 => cx.text(" v5"),
        _ => {}
    }
    Ok(())
}

fn print_4(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let head = span.u8(1)?;
    let (kind, little) = (head & 0xfe, head & 1 != 0);
    let u16_at = |at| if little { span.u16_le(at) } else { span.u16(at) };
    put!(cx, " {} ", if little { "le" } else { "be" });
    match lookup(TYPES, kind) {
        Some(name) => put!(cx, "{name}: "),
        None => put!(cx, "#{kind}: "),
    }
    match kind >> 1 {
        1 => {
            // The time of the client has 4 bytes, the lifetime after it is in units of 5 minutes.
            let at = print_principal(cx, span)? + 4;
            put!(cx, " {}min ", u16::from(span.u8(at)?) * 5);
            let at = print_string(cx, span, at + 1)?;
            cx.text(".");
            print_string(cx, span, at)?;
        }
        2 => {
            // Before the length of the ciphertext: time (4), number of tickets (1), expiry (4), key version (1).
            let at = print_principal(cx, span)? + 10;
            put!(cx, " ({})", u16_at(at)?);
        }
        3 => {
            put!(cx, "v{} ", span.u8(2)?);
            let at = print_string(cx, span, 3)?;
            // The lengths of the ticket and of the authenticator.
            put!(cx, " ({}) ({})", span.u8(at)?, span.u8(at + 1)?);
        }
        5 => {
            let at = print_principal(cx, span)? + 4;
            // The code has 4 bytes, of which tcpdump reads the first 2.
            let code = u16_at(at)?;
            match ERRORS.get(usize::from(code)) {
                Some(name) => put!(cx, " {name} "),
                None => put!(cx, " #{code} "),
            }
            print_string(cx, span, at + 4)?;
        }
        _ => cx.text("(unknown)"),
    }
    Ok(())
}

/// Prints `name.instance@realm`. Returns the offset after it.
fn print_principal(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    let at = print_string(cx, span, 2)?;
    cx.text(".");
    let at = print_string(cx, span, at)?;
    cx.text("@");
    print_string(cx, span, at)
}

fn print_string(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> Result<usize, Cut> {
    let rest = span.data.get(at..).unwrap_or(&[]);
    let end = rest.iter().position(|&byte| byte == 0);
    cx.visible_until_nul(rest);
    end.map(|len| at + len + 1).ok_or(Cut)
}
